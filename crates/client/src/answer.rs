//! Converts answers of an engine to errors. This file must not know who asked.

use cenote_model::{Error, ErrorKind, KeyCode, Response};

/// Returns true if the error refuses the request itself, rather than reports a broken connection to the engine.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Exists | ErrorKind::InvalidInput | ErrorKind::LimitExceeded)
}

/// The error for a result code.
#[cold]
pub(crate) fn code_error(code: KeyCode, subject: String) -> Error {
    match code {
        KeyCode::Ok => Error::new(ErrorKind::Internal, subject).because("success taken for an error"),
        KeyCode::NotFound => Error::new(ErrorKind::NotFound, subject).because("it does not exist, or no longer"),
        KeyCode::Exists => Error::new(ErrorKind::Exists, subject),
        KeyCode::Invalid => Error::new(ErrorKind::InvalidInput, subject)
            .because("a key, value, range or block size is out of bounds")
            .try_next("docs/semantics.md has the limits"),
        KeyCode::Limit => Error::new(ErrorKind::LimitExceeded, subject)
            .because("the container's quota or a limit of the format would be passed")
            .try_next("raise the quota, or delete something"),
    }
}

/// The error for a response of the wrong kind.
#[cold]
pub(crate) fn surprise(wanted: &str, got: &Response) -> Error {
    let got = format!("{got:?}");
    let got = got.chars().take(100).collect::<String>();
    Error::new(ErrorKind::Internal, "answer of the engine").because(format!("{wanted} was expected, not {got}"))
}
