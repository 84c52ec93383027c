//! Conditions of requests on the existing object.

use s3s::dto::{ETag, ETagCondition, Timestamp};
use s3s::{S3Error, S3Result, s3_error};

/// Conditions in a request's headers.
#[derive(Default)]
pub struct Conditions<'a> {
    /// `If-Match`
    pub matches: Option<&'a ETagCondition>,
    /// `If-None-Match`
    pub none_matches: Option<&'a ETagCondition>,
    /// `If-Modified-Since`
    pub modified_since: Option<&'a Timestamp>,
    /// `If-Unmodified-Since`
    pub unmodified_since: Option<&'a Timestamp>,
}

fn failed(which: &str) -> S3Error {
    s3_error!(PreconditionFailed, "At least one of the pre-conditions you specified did not hold: {which}")
}

fn is_it(condition: &ETagCondition, etag: &ETag) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(wanted) => wanted.value().trim_matches('"') == etag.value(),
    }
}

/// HTTP times are whole seconds.
fn seconds(time: &Timestamp) -> i64 {
    time::OffsetDateTime::from(time.clone()).unix_timestamp()
}

impl Conditions<'_> {
    /// Checks a read: 412 if the object differs, 304 if nothing is new.
    pub fn check_read(&self, etag: &ETag, modified: &Timestamp) -> S3Result<()> {
        self.check_source(etag, modified).map_err(|error| {
            let is_stale = error.code().as_str() == "NotModified";
            if is_stale { not_modified(etag) } else { error }
        })
    }
    /// Checks the source of a copy: always 412.
    pub fn check_copy(&self, etag: &ETag, modified: &Timestamp) -> S3Result<()> {
        self.check_source(etag, modified).map_err(|error| {
            let is_stale = error.code().as_str() == "NotModified";
            if is_stale { failed("the source is what it is not to be") } else { error }
        })
    }
    fn check_source(&self, etag: &ETag, modified: &Timestamp) -> S3Result<()> {
        match (self.matches, self.unmodified_since) {
            (Some(condition), _) if !is_it(condition, etag) => return Err(failed("If-Match")),
            (None, Some(since)) if seconds(modified) > seconds(since) => return Err(failed("If-Unmodified-Since")),
            _ => {}
        }
        match (self.none_matches, self.modified_since) {
            (Some(condition), _) if is_it(condition, etag) => Err(s3_error!(NotModified)),
            (None, Some(since)) if seconds(modified) <= seconds(since) => Err(s3_error!(NotModified)),
            _ => Ok(()),
        }
    }
    /// Checks a write: `there` is the ETag of the existing object, if any.
    pub fn check_write(&self, there: Option<&ETag>, key: &str) -> S3Result<()> {
        if let Some(condition) = self.matches {
            match there {
                None => return Err(crate::gateway::no_key(key)),
                Some(etag) if !is_it(condition, etag) => return Err(failed("If-Match")),
                Some(_) => {}
            }
        }
        match (self.none_matches, there) {
            (Some(condition), Some(etag)) if is_it(condition, etag) => Err(failed("If-None-Match")),
            _ => Ok(()),
        }
    }
    /// Returns whether there are no conditions.
    pub fn is_empty(&self) -> bool {
        self.matches.is_none()
            && self.none_matches.is_none()
            && self.modified_since.is_none()
            && self.unmodified_since.is_none()
    }
}

fn not_modified(etag: &ETag) -> S3Error {
    let mut error = s3_error!(NotModified);
    let mut headers = http::HeaderMap::new();
    if let Ok(value) = etag.to_http_header() {
        headers.insert(http::header::ETAG, value);
    }
    error.set_headers(headers);
    error.set_status_code(http::StatusCode::NOT_MODIFIED);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from(time::OffsetDateTime::from_unix_timestamp(seconds).unwrap())
    }

    #[test]
    fn tags_go_before_times() {
        let etag = ETag::Strong("a".into());
        let (same, other) = (ETagCondition::ETag(etag.clone()), ETagCondition::ETag(ETag::Strong("b".into())));
        let check = |conditions: Conditions<'_>| {
            conditions.check_read(&etag, &at(100)).map_err(|e| e.code().as_str().to_owned())
        };
        assert!(
            check(Conditions { matches: Some(&same), unmodified_since: Some(&at(50)), ..Conditions::default() })
                .is_ok()
        );
        assert_eq!(
            check(Conditions { matches: Some(&other), ..Conditions::default() }).unwrap_err(),
            "PreconditionFailed"
        );
        assert_eq!(
            check(Conditions { none_matches: Some(&same), ..Conditions::default() }).unwrap_err(),
            "NotModified"
        );
        assert!(
            check(Conditions { none_matches: Some(&other), modified_since: Some(&at(200)), ..Conditions::default() })
                .is_ok()
        );
        assert_eq!(
            check(Conditions { modified_since: Some(&at(100)), ..Conditions::default() }).unwrap_err(),
            "NotModified"
        );
        assert_eq!(
            check(Conditions { unmodified_since: Some(&at(99)), ..Conditions::default() }).unwrap_err(),
            "PreconditionFailed"
        );
        let none = Conditions { none_matches: Some(&ETagCondition::Any), ..Conditions::default() };
        assert!(none.check_write(None, "k").is_ok() && none.check_write(Some(&etag), "k").is_err());
        let this = Conditions { matches: Some(&ETagCondition::Any), ..Conditions::default() };
        assert_eq!(this.check_write(None, "k").unwrap_err().code().as_str(), "NoSuchKey");
    }
}
