//! Failures as POSIX numbers them, with the store's own words.

use std::fmt;

use cenote::Error;

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
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", std::io::Error::from_raw_os_error(self.errno))?;
        self.cause.as_ref().map_or(Ok(()), |cause| write!(f, ": {cause}"))
    }
}

impl std::error::Error for FsError {}
