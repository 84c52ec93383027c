//! Errors: a kind for programs; operation, subject, cause and next step for people.

use std::fmt;

/// The kind of a failure: what a program can act on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ErrorKind {
    /// No such store, container, object, index or device.
    NotFound = 1,
    /// It exists already.
    Exists = 2,
    /// The request is invalid: a bad size, range, name or combination.
    InvalidInput = 3,
    /// The request exceeds a limit of the format or a quota.
    LimitExceeded = 4,
    /// All tiers that may take the data are full.
    Full = 5,
    /// Stored bytes do not match their checksum, or metadata contradict each other.
    Corrupt = 6,
    /// A version that this one cannot read, or an unknown format.
    VersionMismatch = 7,
    /// This user lacks the permission.
    PermissionDenied = 8,
    /// Another transaction changed what this one had read.
    Conflict = 9,
    /// The device or file system failed.
    Io = 10,
    /// Another process has the store exclusively, or the store is shutting down.
    Busy = 11,
    /// The daemon is gone and requests in flight cannot be confirmed.
    Disconnected = 12,
    /// This version does not support the request.
    Unsupported = 13,
    /// A bug in Cenote.
    Internal = 14,
}

impl ErrorKind {
    /// The kind with this code, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        use ErrorKind as K;
        [
            K::NotFound,
            K::Exists,
            K::InvalidInput,
            K::LimitExceeded,
            K::Full,
            K::Corrupt,
            K::VersionMismatch,
            K::PermissionDenied,
            K::Conflict,
            K::Io,
            K::Busy,
            K::Disconnected,
            K::Unsupported,
            K::Internal,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == code)
    }
    /// Returns true if the same call may succeed later with nothing changed.
    pub fn retry_helps(self) -> bool {
        matches!(self, Self::Busy | Self::Disconnected | Self::Conflict | Self::Full)
    }
    /// A few words for a person.
    pub fn words(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::Exists => "exists already",
            Self::InvalidInput => "invalid",
            Self::LimitExceeded => "past a limit",
            Self::Full => "no space left",
            Self::Corrupt => "corrupt",
            Self::VersionMismatch => "wrong version",
            Self::PermissionDenied => "permission denied",
            Self::Conflict => "conflict",
            Self::Io => "I/O error",
            Self::Busy => "busy",
            Self::Disconnected => "disconnected",
            Self::Unsupported => "not supported",
            Self::Internal => "internal error",
        }
    }
}

/// The result of most calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure: its kind, its subject (object, tier, path), the cause and the next step.
///
/// Boxed inside, so that a `Result` stays small on hot paths.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    subject: String,
    cause: String,
    next_step: String,
}

impl Error {
    /// An error about `subject`, e.g. ``object 00…2a of container `runs` ``.
    #[cold]
    pub fn new(kind: ErrorKind, subject: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, subject: subject.into(), cause: String::new(), next_step: String::new() }))
    }
    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Self {
        self.0.cause = cause.into();
        self
    }
    /// Adds what the user can do.
    #[must_use]
    pub fn try_next(mut self, step: impl Into<String>) -> Self {
        self.0.next_step = step.into();
        self
    }
    /// The error for the operating system's refusal of an operation on `subject`.
    #[cold]
    pub fn io(subject: impl Into<String>, error: &std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::Full,
            _ => ErrorKind::Io,
        };
        Self::new(kind, subject).because(error.to_string())
    }
    /// Its kind, which a program can act on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
    /// Its subject.
    pub fn subject(&self) -> &str {
        &self.0.subject
    }
    /// Its cause; may be empty.
    pub fn cause(&self) -> &str {
        &self.0.cause
    }
    /// The next step for the user; may be empty.
    pub fn next_step(&self) -> &str {
        &self.0.next_step
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.subject, self.0.kind.words())?;
        if !self.0.cause.is_empty() {
            write!(f, ": {}", self.0.cause)?;
        }
        if !self.0.next_step.is_empty() {
            write!(f, " ({})", self.0.next_step)?;
        }
        Ok(())
    }
}
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:?}] {self}", self.0.kind)
    }
}
impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_helps_where_time_alone_can_change_something() {
        let all = (0..=u8::MAX).filter_map(ErrorKind::from_code);
        let helped: Vec<ErrorKind> = all.filter(|kind| kind.retry_helps()).collect();
        assert_eq!(helped, [ErrorKind::Full, ErrorKind::Conflict, ErrorKind::Busy, ErrorKind::Disconnected]);
    }

    #[test]
    fn errors_say_what_and_why_and_what_next() {
        let bare = Error::new(ErrorKind::Full, "tier `ram`");
        assert_eq!(format!("{bare} {bare:?}"), "tier `ram`: no space left [Full] tier `ram`: no space left");
        let whole = bare.because("quota").try_next("delete something");
        assert_eq!(whole.to_string(), "tier `ram`: no space left: quota (delete something)");
        assert_eq!((whole.subject(), whole.cause(), whole.next_step()), ("tier `ram`", "quota", "delete something"));
    }

    #[test]
    fn what_the_system_refuses_is_told_by_its_kind() {
        use std::io::ErrorKind as Io;
        for (given, kind) in [
            (Io::NotFound, ErrorKind::NotFound),
            (Io::PermissionDenied, ErrorKind::PermissionDenied),
            (Io::StorageFull, ErrorKind::Full),
            (Io::QuotaExceeded, ErrorKind::Full),
            (Io::BrokenPipe, ErrorKind::Io),
        ] {
            let error = Error::io("file `f`", &std::io::Error::new(given, "a test"));
            assert_eq!((error.kind(), error.subject(), error.cause()), (kind, "file `f`", "a test"));
        }
    }
}
