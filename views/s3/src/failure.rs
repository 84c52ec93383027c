//! Conversion of the file system's errors to S3's.

use cenote_posix::FsError;
use s3s::{S3Error, S3ErrorCode, s3_error};

/// Converts an error about `subject` (a bucket or a key).
pub fn failed(error: &FsError, subject: &str) -> S3Error {
    let code = match error.errno {
        libc::ENOENT => S3ErrorCode::NoSuchKey,
        libc::EACCES | libc::EPERM | libc::EROFS => S3ErrorCode::AccessDenied,
        libc::ENAMETOOLONG => S3ErrorCode::KeyTooLongError,
        libc::EINVAL => S3ErrorCode::InvalidArgument,
        libc::ENOTDIR | libc::EISDIR => return collision(subject, "another key on its way"),
        libc::EBUSY | libc::EEXIST | libc::ESTALE | libc::EAGAIN => S3ErrorCode::OperationAborted,
        libc::ENOSPC | libc::EDQUOT => {
            let mut full = custom("InsufficientStorage", 507);
            full.set_message(format!("`{subject}`: {error}"));
            return full;
        }
        _ => {
            tracing::warn!(subject, %error, "a request failed");
            S3ErrorCode::InternalError
        }
    };
    S3Error::with_message(code, format!("`{subject}`: {error}"))
}

/// Error for a key that would be a file and a directory at once.
pub fn collision(key: &str, other: &str) -> S3Error {
    let mut error = custom("KeyCollision", 409);
    error.set_message(format!(
        "keys are paths of files here: `{key}` and `{other}` cannot both be there, since one would be a file and a directory at once"
    ));
    error
}

/// Creates an error for which S3 has no code.
pub fn custom(code: &'static str, status: u16) -> S3Error {
    let mut error = S3Error::new(S3ErrorCode::Custom(code.into()));
    if let Ok(status) = http::StatusCode::from_u16(status) {
        error.set_status_code(status);
    }
    error
}

/// Converts a store's error.
pub fn of_store(error: &cenote::Error) -> S3Error {
    tracing::warn!(%error, "the store failed");
    s3_error!(InternalError, "{error}")
}

/// Returns whether the error only says that the target of a name does not exist (any more).
pub fn is_gone(error: &FsError) -> bool {
    is_missing(error) || error.errno == libc::ESTALE
}

/// Returns whether the error only says that something does not exist.
pub fn is_missing(error: &FsError) -> bool {
    matches!(error.errno, libc::ENOENT | libc::ENOTDIR)
}
