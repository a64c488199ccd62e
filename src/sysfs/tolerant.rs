//! Reading many files of one part, where one that is broken must not hide the others.

use std::str::FromStr;

use probes::lines::Problem;
use rustix::io::Errno;

use super::{Dir, ReadError};

/// Collects what could not be read of one part.
#[derive(Debug)]
pub(crate) struct Tolerant {
    part: String,
    unread: Vec<Problem>,
}

impl Tolerant {
    pub(crate) fn of(part: &str) -> Tolerant {
        Tolerant { part: part.to_string(), unread: Vec::new() }
    }

    /// A file's text; none if it is not there, empty, or in the list of what could not be read.
    pub(crate) fn text(&mut self, dir: &Dir, name: &str) -> Option<String> {
        self.take(dir.text(name)).filter(|text| !text.is_empty())
    }

    /// A file's number, likewise.
    pub(crate) fn number<T: FromStr + TryFrom<u64>>(&mut self, dir: &Dir, name: &str) -> Option<T> {
        self.take(dir.number(name))
    }

    /// The names in a directory, likewise.
    pub(crate) fn names(&mut self, dir: &Dir) -> Vec<String> {
        self.take(dir.names().map(Some)).unwrap_or_default()
    }

    /// Remembers an error. A driver that answers EINVAL, EOPNOTSUPP or `N/A` says that it has no
    /// such value at the moment, which is absent and not broken.
    pub(crate) fn take<T>(&mut self, result: Result<Option<T>, ReadError>) -> Option<T> {
        match result {
            Ok(found) => found,
            Err(error) => {
                if !refused(&error) {
                    let path = error.path().display().to_string();
                    self.unread.push(Problem { part: self.part.clone(), path, error: error.what() });
                }
                None
            }
        }
    }

    /// Remembers a file whose text is not of its usual form.
    pub(crate) fn odd(&mut self, dir: &Dir, name: &str, text: &str) {
        let path = dir.path.join(name).display().to_string();
        self.unread.push(Problem {
            part: self.part.clone(),
            path,
            error: format!("{text:?} is not understood"),
        });
    }

    pub(crate) fn unread(self) -> Vec<Problem> {
        self.unread
    }
}

fn refused(error: &ReadError) -> bool {
    match error {
        ReadError::Io { source, .. } => [Errno::INVAL, Errno::OPNOTSUPP]
            .map(|errno| Some(errno.raw_os_error()))
            .contains(&source.raw_os_error()),
        ReadError::NotANumber { text, .. } => text.starts_with("N/A"),
    }
}

#[cfg(test)]
mod tests {
    use std::{io, path::PathBuf};

    use super::*;

    #[test]
    fn a_refusal_is_absent_and_an_io_error_is_a_problem() {
        for (errno, problems) in
            [(Errno::INVAL, 0), (Errno::OPNOTSUPP, 0), (Errno::IO, 1), (Errno::ACCESS, 1)]
        {
            let mut files = Tolerant::of("mlx5_0");
            let source = io::Error::from_raw_os_error(errno.raw_os_error());
            assert_eq!(files.take::<u32>(Err(ReadError::Io { path: PathBuf::from("/sys/x"), source })), None);
            assert_eq!(files.unread().len(), problems, "{errno}");
        }
    }
}
