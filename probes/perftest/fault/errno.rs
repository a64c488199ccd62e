//! Error numbers of the system: as a number, or in the words of `strerror`.

use std::fmt;

/// An error of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errno {
    /// Its number, where the text gives one or we know the words.
    pub number: i32,
    /// Its name in errno.h, if we know it.
    pub name: Option<&'static str>,
}

/// What verbs, sockets and drivers return: number, name, words of the C library.
const KNOWN: [(i32, &str, &str); 40] = [
    (1, "EPERM", "Operation not permitted"),
    (2, "ENOENT", "No such file or directory"),
    (3, "ESRCH", "No such process"),
    (4, "EINTR", "Interrupted system call"),
    (5, "EIO", "Input/output error"),
    (6, "ENXIO", "No such device or address"),
    (7, "E2BIG", "Argument list too long"),
    (9, "EBADF", "Bad file descriptor"),
    (11, "EAGAIN", "Resource temporarily unavailable"),
    (12, "ENOMEM", "Cannot allocate memory"),
    (13, "EACCES", "Permission denied"),
    (14, "EFAULT", "Bad address"),
    (16, "EBUSY", "Device or resource busy"),
    (17, "EEXIST", "File exists"),
    (19, "ENODEV", "No such device"),
    (22, "EINVAL", "Invalid argument"),
    (24, "EMFILE", "Too many open files"),
    (28, "ENOSPC", "No space left on device"),
    (32, "EPIPE", "Broken pipe"),
    (34, "ERANGE", "Numerical result out of range"),
    (38, "ENOSYS", "Function not implemented"),
    (61, "ENODATA", "No data available"),
    (62, "ETIME", "Timer expired"),
    (71, "EPROTO", "Protocol error"),
    (75, "EOVERFLOW", "Value too large for defined data type"),
    (92, "ENOPROTOOPT", "Protocol not available"),
    (93, "EPROTONOSUPPORT", "Protocol not supported"),
    (95, "EOPNOTSUPP", "Operation not supported"),
    (98, "EADDRINUSE", "Address already in use"),
    (99, "EADDRNOTAVAIL", "Cannot assign requested address"),
    (100, "ENETDOWN", "Network is down"),
    (101, "ENETUNREACH", "Network is unreachable"),
    (103, "ECONNABORTED", "Software caused connection abort"),
    (104, "ECONNRESET", "Connection reset by peer"),
    (107, "ENOTCONN", "Transport endpoint is not connected"),
    (110, "ETIMEDOUT", "Connection timed out"),
    (111, "ECONNREFUSED", "Connection refused"),
    (112, "EHOSTDOWN", "Host is down"),
    (113, "EHOSTUNREACH", "No route to host"),
    (121, "EREMOTEIO", "Remote I/O error"),
];

impl Errno {
    /// From `.. with error=93`, or `ERRNO: Bad address.`
    pub(super) fn of(line: &str) -> Option<Errno> {
        if let Some((_, rest)) = line.split_once("with error=") {
            let digits = rest.split(|c: char| !c.is_ascii_digit() && c != '-').next()?;
            // Some callers print what the kernel returned, which is negative.
            let number = digits.parse::<i32>().ok()?.checked_abs()?;
            let name = KNOWN.iter().find(|known| known.0 == number).map(|known| known.1);
            return Some(Errno { number, name });
        }
        let words = line.strip_prefix("ERRNO:")?.trim().trim_end_matches('.');
        let known = KNOWN.iter().find(|known| known.2.eq_ignore_ascii_case(words))?;
        Some(Errno { number: known.0, name: Some(known.1) })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => write!(f, "{name}, errno {}", self.number),
            None => write!(f, "errno {}", self.number),
        }
    }
}
