//! Failures of the file system as S3 names them.

use cenote_posix::FsError;
use s3s::{S3Error, S3ErrorCode, s3_error};

/// What went wrong with `subject` (a bucket or a key), in S3's words and ours.
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

/// A key that would be a file and a directory at once.
pub fn collision(key: &str, other: &str) -> S3Error {
    let mut error = custom("KeyCollision", 409);
    error.set_message(format!(
        "keys are paths of files here: `{key}` and `{other}` cannot both be there, since one would be a file and a directory at once"
    ));
    error
}

/// An error that S3 has no code for.
pub fn custom(code: &'static str, status: u16) -> S3Error {
    let mut error = S3Error::new(S3ErrorCode::Custom(code.into()));
    if let Ok(status) = http::StatusCode::from_u16(status) {
        error.set_status_code(status);
    }
    error
}

/// What a store's own error is to a client.
pub fn of_store(error: &cenote::Error) -> S3Error {
    tracing::warn!(%error, "the store failed");
    s3_error!(InternalError, "{error}")
}

/// Whether it only says that what a name led to is not there any more, or never was.
pub fn is_gone(error: &FsError) -> bool {
    is_missing(error) || error.errno == libc::ESTALE
}

/// Whether it only says that something is not there.
pub fn is_missing(error: &FsError) -> bool {
    matches!(error.errno, libc::ENOENT | libc::ENOTDIR)
}
