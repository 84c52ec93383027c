//! S3's metadata of a file, stored as extended attributes.
//!
//! Their names begin with `cenote.s3.`, which only views see. Values are JSON with a version, written in the transaction that places the
//! file.

use std::collections::BTreeMap;

use cenote_posix::{Attr, Time};
use md5::{Digest as _, Md5};
use s3s::dto::{ETag, Timestamp};
use serde::{Deserialize, Serialize};

/// [`Meta`] of a file, an upload or a part.
pub const META: &[u8] = b"cenote.s3.meta";
/// Tags: names and values.
pub const TAGS: &[u8] = b"cenote.s3.tags";
/// ACL.
pub const ACL: &[u8] = b"cenote.s3.acl";
/// Checksums of the parts that a file was made of.
pub const PARTS: &[u8] = b"cenote.s3.parts";
/// Marks a directory that is a key.
pub const MARKER: &[u8] = b"cenote.s3.marker";
/// Marks an implied directory (one that keys below it require): it is removed with the last of them.
pub const IMPLIED: &[u8] = b"cenote.s3.implied";

/// The version of these records.
const VERSION: u8 = 1;

/// Metadata of an object.
#[derive(Serialize, Deserialize, Clone, Default, PartialEq, Debug)]
#[serde(default)]
pub struct Meta {
    /// Version of the record, set by encoding.
    #[serde(rename = "v")]
    pub version_of_record: u8,
    /// ETag without quotes.
    #[serde(rename = "e", skip_serializing_if = "String::is_empty")]
    pub etag: String,
    /// Modification time of the file when this was written: if it differs, another view has written to the file since.
    #[serde(rename = "t")]
    pub modified: (i64, u32),
    /// Size in bytes, likewise.
    #[serde(rename = "n")]
    pub size_bytes: u64,
    /// `content-type` and similar headers.
    #[serde(rename = "h", skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// `x-amz-meta-*`.
    #[serde(rename = "u", skip_serializing_if = "BTreeMap::is_empty")]
    pub user: BTreeMap<String, String>,
    /// Checksums by algorithm, in base64.
    #[serde(rename = "c", skip_serializing_if = "BTreeMap::is_empty")]
    pub checksums: BTreeMap<String, String>,
    /// `COMPOSITE` or `FULL_OBJECT`.
    #[serde(rename = "ct", skip_serializing_if = "Option::is_none")]
    pub checksum_type: Option<String>,
    /// Algorithm that checks an upload's parts.
    #[serde(rename = "ca", skip_serializing_if = "Option::is_none")]
    pub checksum_algorithm: Option<String>,
    /// Sizes of the parts it was made of: runs of equal sizes, as count and size.
    #[serde(rename = "p", skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(u32, u64)>,
    /// Version id; `None` if it was put without versioning.
    #[serde(rename = "vid", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Delete marker.
    #[serde(rename = "dm", skip_serializing_if = "std::ops::Not::not")]
    pub is_delete_marker: bool,
    /// The user who put it.
    #[serde(rename = "o", skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Of an upload: its key.
    #[serde(rename = "k", skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The upload that created it.
    #[serde(rename = "up", skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
    /// When a delete marker was made, or an upload begun.
    #[serde(rename = "b", skip_serializing_if = "Option::is_none")]
    pub began: Option<(i64, u32)>,
    /// Tags and ACL that wait in an upload.
    #[serde(rename = "w", skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
}

/// Tags and ACL for the file of an upload.
#[derive(Serialize, Deserialize, Clone, Default, PartialEq, Debug)]
#[serde(default)]
pub struct Waiting {
    /// Its tags.
    pub tags: Vec<(String, String)>,
    /// ACL.
    pub acl: Option<crate::acl::Acl>,
}

impl Meta {
    /// Encodes the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut record = self.clone();
        record.version_of_record = VERSION;
        encode(&record)
    }
    /// Decodes the record; an unreadable one counts as missing, since the bytes are what matters.
    pub fn decode(value: &[u8]) -> Option<Self> {
        serde_json::from_slice::<Self>(value).ok().filter(|record| record.version_of_record == VERSION)
    }
    /// Returns whether it still describes the file: no other view has written to it since.
    pub fn is_of(&self, attr: &Attr) -> bool {
        self.size_bytes == attr.size_bytes && self.modified == (attr.modified.s, attr.modified.ns)
    }
    /// Returns the offset and size of part `number` (from 1).
    pub fn part(&self, number: u32) -> Option<(u64, u64)> {
        let mut offset = 0;
        let mut first = 1;
        for &(count, size) in &self.parts {
            if number < first + count {
                return number.checked_sub(first).map(|before| (offset + u64::from(before) * size, size));
            }
            offset += u64::from(count) * size;
            first += count;
        }
        None
    }
    /// Returns the number of parts it was made of, if any.
    pub fn parts_count(&self) -> Option<u32> {
        (!self.parts.is_empty()).then(|| self.parts.iter().map(|(count, _)| count).sum())
    }
    /// Appends a part of this size.
    pub fn push_part(&mut self, size: u64) {
        match self.parts.last_mut() {
            Some((count, last)) if *last == size => *count += 1,
            _ => self.parts.push((1, size)),
        }
    }
}

/// Encodes as JSON a value for which that cannot fail.
pub fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// Returns the ETag: as put, otherwise a hash of the file's number, size and modification time, which is stable until somebody writes to it.
pub fn etag(meta: Option<&Meta>, attr: &Attr) -> ETag {
    match meta {
        Some(meta) if !meta.etag.is_empty() && meta.is_of(attr) => ETag::Strong(meta.etag.clone()),
        _ => {
            let mut sum = Md5::new();
            for part in [attr.ino.0, attr.size_bytes, attr.modified.s as u64, u64::from(attr.modified.ns)] {
                sum.update(part.to_le_bytes());
            }
            ETag::Strong(format!("{}-c", hex(&sum.finalize())))
        }
    }
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// Converts a file's time to S3's type.
pub fn timestamp(time: Time) -> Timestamp {
    let since = time::Duration::new(time.s, time.ns as i32);
    Timestamp::from(time::OffsetDateTime::UNIX_EPOCH.saturating_add(since))
}

/// Returns the current time.
pub fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Time { s: since.as_secs() as i64, ns: since.subsec_nanos() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_by_number() {
        let mut meta = Meta::default();
        for size in [5, 5, 5, 7, 2] {
            meta.push_part(size);
        }
        assert_eq!(meta.parts, [(3, 5), (1, 7), (1, 2)]);
        assert_eq!(meta.parts_count(), Some(5));
        assert_eq!(
            [1, 2, 3, 4, 5].map(|number| meta.part(number).unwrap()),
            [(0, 5), (5, 5), (10, 5), (15, 7), (22, 2)]
        );
        assert_eq!((meta.part(0), meta.part(6)), (None, None));
    }

    #[test]
    fn records_come_back_as_they_were() {
        let mut meta = Meta { etag: "abc".into(), size_bytes: 7, modified: (1, 2), ..Meta::default() };
        meta.user.insert("a".into(), "\u{e9}".into());
        let mut back = Meta::decode(&meta.encode()).unwrap();
        back.version_of_record = 0;
        assert_eq!(back, meta);
        assert_eq!(Meta::decode(b"{\"v\":9}"), None);
        assert_eq!(Meta::decode(b"no json"), None);
    }
}
