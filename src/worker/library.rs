//! Opens the vendors' libraries: where the operator says, then where the vendor puts them, then
//! where the loader looks, and at last in Python's packages. What somebody's virtual environment
//! brings is not what the node's jobs use, where the node has its own.
//!
//! A library is code that runs as we do. So one that others than root can change is refused, unless
//! it is in a folder that the operator names. The loader's own path is root's: children have no
//! `LD_LIBRARY_PATH`.

use std::{
    fmt, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// The libraries of NVIDIA's driver, which containers find in a folder of their own.
pub(crate) const NVIDIA_DRIVER: &[&str] = &["/usr/local/nvidia/lib64", "/usr/local/nvidia/lib"];

/// A library that is loaded.
#[derive(Debug)]
pub(crate) struct Library {
    library: libloading::Library,
    /// The name that it was found by: `libcudart.so.13`.
    pub(crate) name: String,
    /// Its file; the name alone where the loader found it.
    pub(crate) path: PathBuf,
}

/// Why a library can't be used, with every place that was tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LibraryError {
    #[error("{names} is not installed: tried {}", tried.join("; "))]
    Missing { names: String, tried: Vec<String> },
    #[error("{} has no {symbol}: it is too old or too new", path.display())]
    NoSymbol { path: PathBuf, symbol: String },
}

/// Where libraries are looked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    /// Named by the operator.
    named: Vec<PathBuf>,
    /// Where vendors put them.
    usual: Vec<PathBuf>,
    /// Whether the loader is asked.
    loader: bool,
    /// Where packages of other programs bring them along.
    packages: Vec<PathBuf>,
}

impl Search {
    /// Folders that the operator names, those of the vendor, and those of packages. In the latter two
    /// `*` is any name.
    pub(crate) fn new(named: &[PathBuf], usual: &[&str], packages: &[&str]) -> Search {
        let all = |patterns: &[&str]| patterns.iter().flat_map(|pattern| expand(pattern)).collect();
        Search { named: named.to_vec(), usual: all(usual), loader: true, packages: all(packages) }
    }

    /// These folders and nothing else.
    pub(crate) fn only(named: &[PathBuf]) -> Search {
        Search { named: named.to_vec(), ..Search::default() }
    }

    /// Opens the first of `names` that is there; better names come first.
    pub(crate) fn open(&self, names: &[&str]) -> Result<Library, LibraryError> {
        let mut tried = Vec::new();
        let found = look(&self.named, Trust::Operator, names, &mut tried)
            .or_else(|| look(&self.usual, Trust::Root, names, &mut tried))
            .or_else(|| self.loader.then(|| by_loader(names, &mut tried))?)
            .or_else(|| look(&self.packages, Trust::Root, names, &mut tried));
        found.ok_or_else(|| LibraryError::Missing { names: names.join(" or "), tried })
    }
}

/// Who vouches for a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// It is named in the configuration.
    Operator,
    /// Nobody but root can write there.
    Root,
}

fn look(folders: &[PathBuf], trust: Trust, names: &[&str], tried: &mut Vec<String>) -> Option<Library> {
    for folder in folders {
        let there = names.iter().map(|name| (name, folder.join(name))).filter(|(_, path)| path.exists());
        let mut none = true;
        for (name, path) in there {
            none = false;
            if trust == Trust::Root
                && let Err(why) = only_roots(&path)
            {
                tried.push(format!("{}: refused, {why}", path.display()));
                continue;
            }
            match load(&path) {
                Ok(library) => return Some(Library { library, name: (*name).to_string(), path }),
                Err(why) => tried.push(why),
            }
        }
        if none {
            tried.push(folder.display().to_string());
        }
    }
    None
}

fn by_loader(names: &[&str], tried: &mut Vec<String>) -> Option<Library> {
    for name in names {
        match load(Path::new(name)) {
            Ok(library) => return Some(Library { library, name: (*name).to_string(), path: name.into() }),
            Err(why) => tried.push(format!("the loader: {why}")),
        }
    }
    None
}

impl Library {
    /// A function of it.
    ///
    /// # Safety
    ///
    /// `T` must be the type of a function pointer with the signature that the library's header
    /// gives this symbol, and must not be used after the library is closed.
    #[expect(unsafe_code, reason = "loads a symbol of a foreign library")]
    pub(crate) unsafe fn symbol<T: Copy>(&self, symbol: &str) -> Result<T, LibraryError> {
        // SAFETY: the caller vouches for the type.
        let found = unsafe { self.library.get::<T>(symbol) };
        match found {
            Ok(function) => Ok(*function),
            Err(_) => Err(LibraryError::NoSymbol { path: self.path.clone(), symbol: symbol.to_string() }),
        }
    }

    /// Leaves it open until the process ends: what it registered there may still be called.
    pub(crate) fn keep(self) -> &'static libloading::Library {
        Box::leak(Box::new(self.library))
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

#[expect(unsafe_code, reason = "runs what a library does when it is loaded")]
fn load(path: &Path) -> Result<libloading::Library, String> {
    use libloading::os::unix;
    // SAFETY: what the library runs when it is loaded is the vendor's, from a path that only root
    // can change or that the operator names. RTLD_GLOBAL lets the vendor's other libraries find it
    // by its name instead of loading a second one.
    let library = unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_GLOBAL) };
    library.map(Into::into).map_err(|error| match std::error::Error::source(&error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    })
}

/// Whether nobody but root can change the file or a folder on the way to it.
fn only_roots(path: &Path) -> Result<(), String> {
    let real = fs::canonicalize(path).map_err(|error| error.to_string())?;
    for step in real.ancestors() {
        let is = fs::metadata(step).map_err(|error| format!("{}: {error}", step.display()))?;
        if is.uid() != 0 {
            return Err(format!("{} belongs to user {}, not to root", step.display(), is.uid()));
        }
        if is.mode() & 0o022 != 0 {
            return Err(format!("others than root can write {}", step.display()));
        }
    }
    Ok(())
}

/// The folders that a pattern names, in which a part may begin or end with `*`; the last by name
/// first, which is the newest version.
fn expand(pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = match part.split_once('*') {
            None => found.into_iter().map(|folder| folder.join(part)).collect(),
            Some((before, after)) => {
                found.iter().flat_map(|folder| matching(folder, before, after)).collect()
            }
        };
    }
    found.retain(|folder| folder.is_dir());
    found
}

fn matching(folder: &Path, before: &str, after: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.retain(|name| {
        name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
    });
    names.sort();
    names.into_iter().rev().map(|name| folder.join(name)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_missing_library_tells_every_place_that_was_tried() {
        let folder = tempfile::tempdir().unwrap();
        let search = Search::new(&[folder.path().to_path_buf()], &["/usr/lib"], &["/usr/share"]);
        let why = search.open(&["libno-such.so.2", "libno-such.so.1"]).unwrap_err().to_string();
        assert!(why.starts_with("libno-such.so.2 or libno-such.so.1 is not installed"), "{why}");
        for place in
            [folder.path().to_str().unwrap(), "/usr/lib", "/usr/share", "the loader: libno-such.so.1"]
        {
            assert!(why.contains(place), "{place}: {why}");
        }
    }

    #[test]
    fn the_loader_finds_the_rest_and_a_missing_symbol_is_named() {
        let library = Search::new(&[], &[], &[]).open(&["libm.so.6"]).unwrap();
        #[expect(unsafe_code, reason = "a symbol that is not there")]
        // SAFETY: nothing is called.
        let missing = unsafe { library.symbol::<unsafe extern "C" fn()>("hipMalloc") }.unwrap_err();
        assert_eq!(missing.to_string(), "libm.so.6 has no hipMalloc: it is too old or too new");
    }

    #[test]
    fn what_others_than_root_can_write_is_refused_where_the_operator_does_not_name_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libm.so.6");
        fs::copy("/lib/x86_64-linux-gnu/libm.so.6", &path)
            .or_else(|_| fs::copy("/lib/aarch64-linux-gnu/libm.so.6", &path))
            .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(only_roots(&path).is_err());
        let usual = folder.path().to_str().unwrap().to_string();
        let found = Search::new(&[], &[&usual], &[]).open(&["libm.so.6"]).unwrap();
        assert_eq!(found.path, Path::new("libm.so.6"), "the loader's own");
        let found = Search::new(&[folder.path().to_path_buf()], &[], &[]).open(&["libm.so.6"]).unwrap();
        assert_eq!(found.path, path);
    }

    #[test]
    fn a_pattern_gives_the_newest_first() {
        let root = tempfile::tempdir().unwrap();
        for name in ["rocm-6.4.1/lib", "rocm-7.0.0/lib", "other/lib"] {
            fs::create_dir_all(root.path().join(name)).unwrap();
        }
        let pattern = format!("{}/rocm-*/lib", root.path().display());
        let names: Vec<PathBuf> =
            ["rocm-7.0.0/lib", "rocm-6.4.1/lib"].map(|name| root.path().join(name)).into();
        assert_eq!(expand(&pattern), names);
    }
}
