//! `GET`, and `HEAD`, which gives the same answer without the bytes.

use std::collections::BTreeMap;

use cenote_posix::File;
use s3s::dto::{
    ChecksumMode, ChecksumType, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, Range,
    StorageClass, StreamingBlob,
};
use s3s::{S3Request, S3Result, s3_error};

use super::Service;
use crate::api::described::{expires, header, user};
use crate::body::send;
use crate::condition::Conditions;
use crate::gateway::again;
use crate::meta::{Meta, PARTS, TAGS, timestamp};
use crate::objects::Object;

/// Content type of an object that was put without one.
pub(super) const TYPE: &str = "binary/octet-stream";

/// The requested part of an object.
struct Slice {
    offset: u64,
    len: u64,
    /// The range in the answer; `None`: the whole object.
    range: Option<String>,
}

/// Parameters of `GET` and `HEAD`.
pub(super) struct GetRequest<'a> {
    pub bucket: &'a str,
    pub key: &'a str,
    pub conditions: Conditions<'a>,
    pub range: Option<&'a Range>,
    version: Option<&'a str>,
    part: Option<i32>,
    checksums: Option<&'a ChecksumMode>,
}

/// Collects the fields that both requests have under the same names.
macro_rules! get_request {
    ($input:expr) => {
        GetRequest {
            bucket: &$input.bucket,
            key: &$input.key,
            conditions: Conditions {
                matches: $input.if_match.as_ref(),
                none_matches: $input.if_none_match.as_ref(),
                modified_since: $input.if_modified_since.as_ref(),
                unmodified_since: $input.if_unmodified_since.as_ref(),
            },
            range: $input.range.as_ref(),
            version: $input.version_id.as_deref(),
            part: $input.part_number,
            checksums: $input.checksum_mode.as_ref(),
        }
    };
}

impl Service {
    pub(super) fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<GetObjectOutput> {
        let get_request = get_request!(request.input);
        again(|| {
            if let Some(keyed) = self.0.keyed(get_request.bucket) {
                return super::keyed::get(keyed, &get_request);
            }
            let (object, file) = self.opened(get_request.bucket, get_request.key, get_request.version)?;
            let (mut answer, slice) = self.answer(&object, &get_request)?;
            answer.body = Some(match file {
                Some(file) => send(file, slice.offset, slice.len)?,
                None => StreamingBlob::from(s3s::Body::empty()),
            });
            Ok(answer)
        })
    }
    pub(super) fn head_object(
        &self,
        request: &S3Request<HeadObjectInput>,
    ) -> S3Result<(HeadObjectOutput, http::HeaderMap)> {
        let get_request = get_request!(request.input);
        again(|| {
            let answer = if let Some(keyed) = self.0.keyed(get_request.bucket) {
                super::keyed::get(keyed, &get_request)?
            } else {
                let bucket = self.0.bucket(get_request.bucket)?;
                self.answer(&self.0.object(&bucket, get_request.key, get_request.version)?, &get_request)?.0
            };
            let mut headers = http::HeaderMap::new();
            if let Some(count) = answer.tag_count {
                headers.insert("x-amz-tagging-count", count.into());
            }
            Ok((without_body(answer), headers))
        })
    }
    /// Builds the answer without the bytes, and the requested range of bytes.
    fn answer(&self, object: &Object, get_request: &GetRequest<'_>) -> S3Result<(GetObjectOutput, Slice)> {
        let modified = timestamp(object.attr.modified);
        get_request.conditions.check_read(&object.etag(), &modified)?;
        let slice = slice(object, get_request.range, get_request.part)?;
        let tells_sums = get_request.checksums.is_some() && (slice.range.is_none() || get_request.part.is_some());
        let meta = object.meta.as_ref();
        let sums = if tells_sums { self.sums(object, get_request.part)? } else { BTreeMap::new() };
        let sum = |word: &str| sums.get(word).cloned();
        let answer = GetObjectOutput {
            accept_ranges: Some("bytes".into()),
            content_length: Some(slice.len as i64),
            content_range: slice.range.clone(),
            content_type: Some(content_type(object)),
            cache_control: header(meta, "cache-control"),
            content_disposition: header(meta, "content-disposition"),
            content_encoding: header(meta, "content-encoding"),
            content_language: header(meta, "content-language"),
            expires: expires(meta),
            website_redirect_location: header(meta, "redirect"),
            storage_class: header(meta, "storage-class").map(StorageClass::from),
            metadata: user(meta),
            e_tag: Some(object.etag()),
            last_modified: Some(modified),
            version_id: object.version.clone(),
            parts_count: get_request.part.and(meta).and_then(Meta::parts_count).map(|count| count as i32),
            tag_count: self.tag_count(object)?,
            checksum_crc32: sum("CRC32"),
            checksum_crc32c: sum("CRC32C"),
            checksum_crc64nvme: sum("CRC64NVME"),
            checksum_sha1: sum("SHA1"),
            checksum_sha256: sum("SHA256"),
            checksum_type: checksum_type(object, tells_sums),
            ..Default::default()
        };
        Ok((answer, slice))
    }
    /// Returns an object and its open file, the same one even if others replace it; no file for a directory.
    pub(super) fn opened(&self, bucket: &str, key: &str, version: Option<&str>) -> S3Result<(Object, Option<File>)> {
        let bucket = self.0.bucket(bucket)?;
        self.0.about(&bucket, key, version, |mut object| {
            if object.is_directory {
                return Ok((object, None));
            }
            let file = self.0.open(&object, key)?;
            object.attr = file.attr().map_err(|error| crate::failure::failed(&error, key))?;
            Ok((object, Some(file)))
        })
    }
    /// Returns the checksums of an object, or of one of its parts.
    fn sums(&self, object: &Object, part: Option<i32>) -> S3Result<BTreeMap<String, String>> {
        let Some(meta) = object.fresh() else { return Ok(BTreeMap::new()) };
        let (Some(part), Some(_)) = (part, meta.parts_count()) else { return Ok(meta.checksums.clone()) };
        let kept = self.0.xattr(object.attr.ino, PARTS)?;
        let kept: Option<(String, Vec<String>)> = kept.and_then(|value| serde_json::from_slice(&value).ok());
        let found = kept.and_then(|(word, sums)| Some((word, sums.into_iter().nth(part as usize - 1)?)));
        Ok(found.into_iter().collect())
    }
    pub(super) fn tag_count(&self, object: &Object) -> S3Result<Option<i32>> {
        let value = self.0.xattr(object.attr.ino, TAGS)?;
        let tags: Option<Vec<(String, String)>> = value.and_then(|value| serde_json::from_slice(&value).ok());
        Ok(tags.map(|tags| tags.len() as i32).filter(|count| *count > 0))
    }
}

/// Converts an answer to `GET` into one to `HEAD`, except the count of tags, a header that `s3s` does not know here.
fn without_body(answer: GetObjectOutput) -> HeadObjectOutput {
    HeadObjectOutput {
        accept_ranges: answer.accept_ranges,
        content_length: answer.content_length,
        content_range: answer.content_range,
        content_type: answer.content_type,
        cache_control: answer.cache_control,
        content_disposition: answer.content_disposition,
        content_encoding: answer.content_encoding,
        content_language: answer.content_language,
        expires: answer.expires,
        website_redirect_location: answer.website_redirect_location,
        storage_class: answer.storage_class,
        metadata: answer.metadata,
        e_tag: answer.e_tag,
        last_modified: answer.last_modified,
        version_id: answer.version_id,
        parts_count: answer.parts_count,
        checksum_crc32: answer.checksum_crc32,
        checksum_crc32c: answer.checksum_crc32c,
        checksum_crc64nvme: answer.checksum_crc64nvme,
        checksum_sha1: answer.checksum_sha1,
        checksum_sha256: answer.checksum_sha256,
        checksum_type: answer.checksum_type,
        ..Default::default()
    }
}

fn content_type(object: &Object) -> String {
    let default = if object.is_directory { "application/x-directory" } else { TYPE };
    header(object.meta.as_ref(), "content-type").unwrap_or_else(|| default.to_owned())
}

fn checksum_type(object: &Object, tells: bool) -> Option<ChecksumType> {
    let meta = object.fresh().filter(|meta| tells && !meta.checksums.is_empty())?;
    Some(ChecksumType::from(meta.checksum_type.clone().unwrap_or_else(|| ChecksumType::FULL_OBJECT.to_owned())))
}

/// Returns the part of an object that a range or a part number means.
fn slice(object: &Object, range: Option<&Range>, part: Option<i32>) -> S3Result<Slice> {
    let size = object.size_bytes();
    let told = |offset: u64, len: u64| Some(format!("bytes {offset}-{}/{size}", offset + len - 1));
    match (part, range) {
        (Some(_), Some(_)) => {
            Err(s3_error!(InvalidRequest, "Cannot specify both Range header and partNumber query parameter"))
        }
        (Some(number), None) => {
            let parts = object.fresh().filter(|meta| !meta.parts.is_empty());
            let found = match (parts, u32::try_from(number)) {
                (Some(meta), Ok(number)) => meta.part(number),
                (None, Ok(1)) => Some((0, size)),
                _ => None,
            };
            let (offset, len) =
                found.ok_or_else(|| s3_error!(InvalidPart, "The requested partnumber is not satisfiable"))?;
            Ok(Slice { offset, len, range: if len == 0 { None } else { told(offset, len) } })
        }
        (None, Some(range)) => {
            let range = range.check(size)?;
            let len = range.end - range.start;
            if len == 0 {
                return Err(s3_error!(InvalidRange, "The requested range is not satisfiable"));
            }
            Ok(Slice { offset: range.start, len, range: told(range.start, len) })
        }
        (None, None) => Ok(Slice { offset: 0, len: size, range: None }),
    }
}
