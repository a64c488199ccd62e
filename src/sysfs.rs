//! Reads the kernel's small text files: the only module that knows what `/sys` is.
//!
//! The root is given, so a recorded tree can stand in. A missing file is `None` and a broken one is
//! an error that names it: the two must never look alike, since drivers leave out what they do not
//! support and return EIO or EINVAL where they do. Before each access the path is noted in a
//! [`Progress`], so that a read that never returns can still be named by somebody else.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use sysfs_class::SysClass;

pub(crate) mod drm;
pub(crate) mod host;
pub(crate) mod pci;
pub(crate) mod rdma;
pub(crate) mod tolerant;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("{}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {text:?} is not a number", path.display())]
    NotANumber { path: PathBuf, text: String },
}

impl ReadError {
    pub(crate) fn path(&self) -> &Path {
        match self {
            ReadError::Io { path, .. } | ReadError::NotANumber { path, .. } => path,
        }
    }

    /// What happened, without the path.
    pub(crate) fn what(&self) -> String {
        match self {
            ReadError::Io { source, .. } => source.to_string(),
            ReadError::NotANumber { text, .. } => format!("{text:?} is not a number"),
        }
    }
}

/// The file that a reader is at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<Mutex<PathBuf>>);

impl Progress {
    /// Notes what is accessed next.
    pub(crate) fn at(&self, path: &Path) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = path.to_path_buf();
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A directory of attribute files.
#[derive(Clone, Debug)]
pub(crate) struct Dir {
    path: PathBuf,
    progress: Progress,
}

impl SysClass for Dir {
    fn class() -> &'static str {
        ""
    }

    #[expect(unsafe_code, reason = "the trait demands it; nothing here relies on the path being valid")]
    unsafe fn from_path_unchecked(path: PathBuf) -> Dir {
        Dir::at(path, Progress::default())
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Dir {
    /// A directory that may or may not exist.
    pub(crate) fn at(path: impl Into<PathBuf>, progress: Progress) -> Dir {
        Dir { path: path.into(), progress }
    }

    /// A directory below this one.
    pub(crate) fn dir(&self, name: &str) -> Dir {
        Dir { path: self.path.join(name), progress: self.progress.clone() }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The last part of the path.
    pub(crate) fn name(&self) -> String {
        file_name(&self.path)
    }

    /// A file's text without surrounding blanks; `None` if the file is not there.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, ReadError> {
        self.progress.at(&self.path.join(name));
        match self.trim_file(name) {
            Ok(text) => Ok(Some(text)),
            Err(source) => self.absent_or(name, source),
        }
    }

    /// A file's number, decimal or `0x` hexadecimal; `None` if the file is not there.
    pub(crate) fn number<T: FromStr + TryFrom<u64>>(&self, name: &str) -> Result<Option<T>, ReadError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let parsed = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok().and_then(|number| T::try_from(number).ok()),
            None => text.parse().ok(),
        };
        match parsed {
            Some(number) => Ok(Some(number)),
            None => Err(ReadError::NotANumber { path: self.path.join(name), text }),
        }
    }

    /// A file's bytes; `None` if the file is not there.
    pub(crate) fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, ReadError> {
        let path = self.path.join(name);
        self.progress.at(&path);
        match fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(source) => self.absent_or(name, source),
        }
    }

    /// The first bytes of a long text file; `None` if the file is not there.
    pub(crate) fn head(&self, name: &str, limit: usize) -> Result<Option<String>, ReadError> {
        let path = self.path.join(name);
        self.progress.at(&path);
        let mut bytes = Vec::new();
        match fs::File::open(path).and_then(|file| file.take(limit as u64).read_to_end(&mut bytes)) {
            Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(source) => self.absent_or(name, source),
        }
    }

    /// The names in this directory, sorted; empty if it is not there.
    pub(crate) fn names(&self) -> Result<Vec<String>, ReadError> {
        self.progress.at(&self.path);
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(source) => return self.absent_or("", source).map(Option::unwrap_or_default),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| ReadError::Io { path: self.path.clone(), source })?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// Whether something of this name is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.progress.at(&self.path.join(name));
        self.path.join(name).symlink_metadata().is_ok()
    }

    /// Whether this directory is there; an error where that can't be told.
    pub(crate) fn exists(&self) -> Result<bool, ReadError> {
        self.progress.at(&self.path);
        match self.path.metadata() {
            Ok(_) => Ok(true),
            Err(source) => self.absent_or::<()>("", source).map(|found| found.is_some()),
        }
    }

    /// The last part of what a symbolic link points at: a driver, a subsystem, a parent device.
    pub(crate) fn link_name(&self, name: &str) -> Option<String> {
        self.progress.at(&self.path.join(name));
        fs::read_link(self.path.join(name)).ok().map(|target| file_name(&target))
    }

    /// This directory with every symbolic link on the way followed.
    pub(crate) fn resolved(&self) -> Result<Dir, ReadError> {
        self.progress.at(&self.path);
        match self.path.canonicalize() {
            Ok(path) => Ok(Dir { path, progress: self.progress.clone() }),
            Err(source) => Err(ReadError::Io { path: self.path.clone(), source }),
        }
    }

    fn absent_or<T>(&self, name: &str, source: io::Error) -> Result<Option<T>, ReadError> {
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            _ => {
                let path = if name.is_empty() { self.path.clone() } else { self.path.join(name) };
                Err(ReadError::Io { path, source })
            }
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_is_not_broken_and_both_are_not_zero() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("width"), "16\n").unwrap();
        fs::write(root.path().join("vendor"), "0x1002\n").unwrap();
        fs::write(root.path().join("odd"), "N/A\n").unwrap();
        fs::create_dir(root.path().join("folder")).unwrap();
        let dir = Dir::at(root.path(), Progress::default());
        assert_eq!(dir.number::<u32>("width").unwrap(), Some(16));
        assert_eq!(dir.number::<u16>("vendor").unwrap(), Some(0x1002));
        assert_eq!(dir.number::<u32>("missing").unwrap(), None);
        assert_eq!(dir.number::<u32>("width/missing").unwrap(), None);
        assert!(dir.number::<u32>("odd").unwrap_err().to_string().ends_with("odd: \"N/A\" is not a number"));
        let error = dir.text("folder").unwrap_err();
        assert!(error.path().ends_with("folder"), "{error}");
        assert!(dir.progress.path().ends_with("folder"));
        assert_eq!(dir.dir("missing").names().unwrap(), Vec::<String>::new());
    }
}
