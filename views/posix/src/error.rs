//! Failures as POSIX numbers them, with the store's own words.

use std::fmt;

use cenote::{Error, ErrorKind};

/// What the calls here return.
pub type FsResult<T> = Result<T, FsError>;

/// A failure: the number for programs, the cause for people.
#[derive(Clone, Debug)]
pub struct FsError {
    /// `libc::ENOENT` and the like.
    pub errno: i32,
    /// What the store said, if it was the store.
    pub cause: Option<Box<Error>>,
}

impl FsError {
    /// One of POSIX's own failures, which need no further words.
    pub fn new(errno: i32) -> Self {
        Self { errno, cause: None }
    }
    /// The same failure, which POSIX numbers otherwise here.
    #[must_use]
    pub(crate) fn with_errno(mut self, errno: i32) -> Self {
        self.errno = errno;
        self
    }
    /// A failure with words for people.
    #[cold]
    pub(crate) fn because(errno: i32, kind: ErrorKind, subject: impl Into<String>, cause: impl Into<String>) -> Self {
        Self { errno, cause: Some(Box::new(Error::new(kind, subject).because(cause))) }
    }
    /// What kind of failure the store said it was, if it was the store.
    pub fn kind(&self) -> Option<ErrorKind> {
        self.cause.as_ref().map(|cause| cause.kind())
    }
}

/// `Err` of a number.
pub(crate) fn fail<T>(errno: i32) -> FsResult<T> {
    Err(FsError::new(errno))
}

impl From<Error> for FsError {
    /// What the store's failures are to a program that knows files only. `NotFound` is of something that a file was known to
    /// have (its container, its tree, its bytes): whoever looks for a name says `ENOENT` himself.
    #[cold]
    fn from(error: Error) -> Self {
        let errno = match error.kind() {
            ErrorKind::NotFound => libc::ESTALE,
            ErrorKind::Exists => libc::EEXIST,
            ErrorKind::InvalidInput => libc::EINVAL,
            // Formats have room for more than files are let have: what is left is a quota.
            ErrorKind::LimitExceeded => libc::EDQUOT,
            ErrorKind::Full => libc::ENOSPC,
            // Of a store that was opened for reading, or that this user may only read.
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
