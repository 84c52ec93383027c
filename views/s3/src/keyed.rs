//! Buckets whose keys and values another crate provides: the Zarr view of HDF5 files.
//!
//! They have the rights of an existing bucket, and no versions, metadata or multipart uploads.

use std::fmt::Debug;

use cenote::{Error, ErrorKind, Result};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use crate::gateway::Gateway;
use crate::listing::{Page, Wanted};

/// Provider of such buckets' keys (in S3's form) and values.
pub trait Keyed: Send + Sync + Debug {
    /// Returns the bucket whose rights apply to a bucket of this name; `None` if it is not one of these.
    fn rights_of(&self, bucket: &str) -> Option<&str>;
    /// Returns the value of a key.
    fn get(&self, bucket: &str, key: &str) -> Result<Option<Vec<u8>>>;
    /// Returns the size of a value in bytes.
    fn size(&self, bucket: &str, key: &str) -> Result<Option<u64>>;
    /// Sets a key.
    fn set(&self, bucket: &str, key: &str, value: &[u8]) -> Result<()>;
    /// Deletes a key, if it exists.
    fn delete(&self, bucket: &str, key: &str) -> Result<()>;
    /// Returns the names directly in a directory (empty, or ending in `/`), in order; those of directories
    /// end in `/`.
    fn names(&self, bucket: &str, directory: &str) -> Result<Vec<String>>;
    /// Returns the keys below a directory, in order.
    fn keys(&self, bucket: &str, directory: &str) -> Result<Vec<String>>;
}

impl Gateway {
    /// Returns the provider of a bucket, if it is one of these.
    pub fn keyed(&self, bucket: &str) -> Option<&dyn Keyed> {
        self.keyed.as_deref().filter(|keyed| keyed.rights_of(bucket).is_some())
    }
    /// Returns the bucket whose rights apply to a bucket of that name.
    pub fn rights_of<'a>(&'a self, bucket: &'a str) -> &'a str {
        self.keyed.as_deref().and_then(|keyed| keyed.rights_of(bucket)).unwrap_or(bucket)
    }
}

/// Returns a page of keys of such a bucket.
pub fn page(keyed: &dyn Keyed, bucket: &str, wanted: &Wanted) -> S3Result<Page<u64>> {
    let directory = wanted.prefix.rfind('/').map_or("", |at| &wanted.prefix[..=at]);
    let all = match wanted.delimiter.as_str() {
        "/" => {
            let names = keyed.names(bucket, directory).map_err(|error| failed(&error, directory))?;
            names.into_iter().map(|name| format!("{directory}{name}")).collect()
        }
        _ => keyed.keys(bucket, directory).map_err(|error| failed(&error, directory))?,
    };
    let mut page = Page { items: Vec::new(), prefixes: Vec::new(), next: None };
    let mut last = None;
    for key in all.into_iter().filter(|key| key.starts_with(&wanted.prefix)) {
        let shown = wanted.common(&key).map_or_else(|| key.clone(), str::to_owned);
        let is_passed = wanted.after.as_ref().is_some_and(|after| shown <= *after);
        if is_passed || last.as_ref() == Some(&shown) {
            continue;
        }
        if page.items.len() + page.prefixes.len() == wanted.limit {
            page.next = last;
            break;
        }
        if wanted.common(&key).is_some() {
            page.prefixes.push(shown.clone());
        } else if let Some(bytes) = keyed.size(bucket, &key).map_err(|error| failed(&error, &key))? {
            page.items.push((key, bytes));
        }
        last = Some(shown);
    }
    Ok(page)
}

/// Converts a provider's error for the client.
pub fn failed(error: &Error, key: &str) -> S3Error {
    let code = match error.kind() {
        ErrorKind::NotFound => S3ErrorCode::NoSuchKey,
        ErrorKind::PermissionDenied => S3ErrorCode::AccessDenied,
        ErrorKind::InvalidInput | ErrorKind::Unsupported => S3ErrorCode::InvalidArgument,
        ErrorKind::Conflict | ErrorKind::Busy | ErrorKind::Exists => S3ErrorCode::OperationAborted,
        _ => {
            tracing::warn!(key, %error, "a request failed");
            S3ErrorCode::InternalError
        }
    };
    S3Error::with_message(code, format!("`{key}`: {error}"))
}

/// Returns the value of a key that must exist.
pub fn value(keyed: &dyn Keyed, bucket: &str, key: &str) -> S3Result<Vec<u8>> {
    let value = keyed.get(bucket, key).map_err(|error| failed(&error, key))?;
    value.ok_or_else(|| s3_error!(NoSuchKey, "The specified key does not exist."))
}
