//! POSIX errors with the store's own explanation.

use std::fmt;

use cenote::{Error, ErrorKind};

/// Result of calls of this crate.
pub type FsResult<T> = Result<T, FsError>;

/// An error: the number for programs, the cause for people.
#[derive(Clone, Debug)]
pub struct FsError {
    /// A number such as `libc::ENOENT`.
    pub errno: i32,
    /// The store's error, if the store failed.
    pub cause: Option<Box<Error>>,
}

impl FsError {
    /// Creates a POSIX error without further explanation.
    pub fn new(errno: i32) -> Self {
        Self { errno, cause: None }
    }
    /// Replaces the number where POSIX requires another one for the same error.
    #[must_use]
    pub(crate) fn with_errno(mut self, errno: i32) -> Self {
        self.errno = errno;
        self
    }
    /// Creates an error with an explanation for people.
    #[cold]
    pub(crate) fn because(errno: i32, kind: ErrorKind, subject: impl Into<String>, cause: impl Into<String>) -> Self {
        Self { errno, cause: Some(Box::new(Error::new(kind, subject).because(cause))) }
    }
    /// Returns the kind of the store's error, if the store failed.
    pub fn kind(&self) -> Option<ErrorKind> {
        self.cause.as_ref().map(|cause| cause.kind())
    }
}

/// Returns `Err` with this number.
pub(crate) fn fail<T>(errno: i32) -> FsResult<T> {
    Err(FsError::new(errno))
}

impl From<Error> for FsError {
    /// Maps the store's errors to numbers for a program that knows files only. `NotFound` becomes an error about something
    /// that a known file needs (its container, tree or bytes): a lookup of a name returns `ENOENT` itself.
    #[cold]
    fn from(error: Error) -> Self {
        let errno = match error.kind() {
            ErrorKind::NotFound => libc::ESTALE,
            ErrorKind::Exists => libc::EEXIST,
            ErrorKind::InvalidInput => libc::EINVAL,
            // The formats allow larger files than the file limit does, so what remains is a quota.
            ErrorKind::LimitExceeded => libc::EDQUOT,
            ErrorKind::Full => libc::ENOSPC,
            // The store was opened for reading, or this user may only read.
            ErrorKind::PermissionDenied => libc::EROFS,
            ErrorKind::Conflict | ErrorKind::Busy => libc::EBUSY,
            ErrorKind::Unsupported => libc::EOPNOTSUPP,
            ErrorKind::Corrupt
            | ErrorKind::VersionMismatch
            | ErrorKind::Io
            | ErrorKind::Disconnected
            | ErrorKind::Internal => libc::EIO,
        };
        Self { errno, cause: Some(Box::new(error)) }
    }
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", std::io::Error::from_raw_os_error(self.errno))?;
        self.cause.as_ref().map_or(Ok(()), |cause| write!(f, ": {cause}"))
    }
}

impl std::error::Error for FsError {}
