//! Metadata of an object: in requests, as stored, in answers.

use std::collections::{BTreeMap, HashMap};

use s3s::dto::{Timestamp, TimestampFormat};
use s3s::{S3Result, s3_error};

use crate::meta::Meta;

/// S3's limit of user metadata in bytes.
const USER_BYTES_MAX: usize = 2048;
/// Limit of the other headers in bytes.
const HEADER_BYTES_MAX: usize = 8192;

/// Metadata in a request.
#[derive(Default)]
pub struct RequestMetadata {
    pub content_type: Option<String>,
    pub cache_control: Option<String>,
    pub content_disposition: Option<String>,
    pub content_encoding: Option<String>,
    pub content_language: Option<String>,
    pub expires: Option<Timestamp>,
    pub redirect: Option<String>,
    pub storage_class: Option<String>,
    pub metadata: Option<HashMap<String, String>>,
}

impl RequestMetadata {
    /// Converts them to the stored form.
    pub fn meta(self, owner: &str) -> S3Result<Meta> {
        // Encodings of the transfer alone are not part of the object.
        let encoding = self.content_encoding.map(|encoding| {
            let kept: Vec<&str> =
                encoding.split(',').map(str::trim).filter(|one| !one.is_empty() && *one != "aws-chunked").collect();
            kept.join(", ")
        });
        let expires = self.expires.and_then(|time| {
            let mut text = Vec::new();
            time.format(TimestampFormat::HttpDate, &mut text).ok()?;
            String::from_utf8(text).ok()
        });
        let headers: BTreeMap<String, String> = [
            ("content-type", self.content_type),
            ("cache-control", self.cache_control),
            ("content-disposition", self.content_disposition),
            ("content-encoding", encoding),
            ("content-language", self.content_language),
            ("expires", expires),
            ("redirect", self.redirect),
            ("storage-class", self.storage_class.filter(|class| class != "STANDARD")),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value.filter(|value| !value.is_empty())?)))
        .collect();
        let user: BTreeMap<String, String> = self.metadata.unwrap_or_default().into_iter().collect();
        let bytes =
            |map: &BTreeMap<String, String>| map.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        if bytes(&user) > USER_BYTES_MAX || bytes(&headers) > HEADER_BYTES_MAX {
            return Err(s3_error!(MetadataTooLarge, "Your metadata headers exceed the maximum allowed metadata size."));
        }
        Ok(Meta { headers, user, owner: owner.to_owned(), ..Meta::default() })
    }
}

/// Returns a stored header.
pub fn header(meta: Option<&Meta>, name: &str) -> Option<String> {
    meta.and_then(|meta| meta.headers.get(name).cloned())
}

/// Returns the stored `Expires` time.
pub fn expires(meta: Option<&Meta>) -> Option<Timestamp> {
    header(meta, "expires").and_then(|text| Timestamp::parse(TimestampFormat::HttpDate, &text).ok())
}

/// Returns user metadata for an answer.
pub fn user(meta: Option<&Meta>) -> Option<HashMap<String, String>> {
    let user: HashMap<String, String> = meta?.user.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    (!user.is_empty()).then_some(user)
}
