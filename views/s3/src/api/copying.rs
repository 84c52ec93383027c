//! Copies of objects, and into parts of uploads. The store shares the bytes where it can; they do not pass through this
//! server.

use cenote_posix::File;
use md5::{Digest as _, Md5};
use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopyPartResult, CopySource, ETag, MetadataDirective,
    ObjectCannedACL, TaggingDirective, UploadPartCopyInput, UploadPartCopyOutput,
};
use s3s::{S3Request, S3Result, s3_error};

use super::{Service, object_grants, refuse_unmet, request_metadata};
use crate::body::{self, PUT_BYTES_MAX};
use crate::condition::Conditions;
use crate::failure::failed;
use crate::keys::User;
use crate::meta::{Meta, hex, timestamp};
use crate::name::KeyPath;
use crate::objects::{Object, Putting};

/// Source of a copy.
struct Source {
    bucket: String,
    key: String,
    version: Option<String>,
}

impl Service {
    /// Returns the source of a copy, if this user may read it.
    fn source<T>(&self, request: &S3Request<T>, source: &CopySource) -> S3Result<(Source, Object, Option<File>)> {
        let CopySource::Bucket { bucket, key, version_id } = source else {
            return Err(s3_error!(NotImplemented, "copies come from buckets"));
        };
        let source = Source {
            bucket: bucket.to_string(),
            key: key.to_string(),
            version: version_id.as_ref().map(ToString::to_string),
        };
        self.may_read(request, &source.bucket, &source.key)?;
        let (object, file) = self.opened(&source.bucket, &source.key, source.version.as_deref())?;
        Ok((source, object, file))
    }

    pub(super) fn copy_object(&self, mut request: S3Request<CopyObjectInput>) -> S3Result<CopyObjectOutput> {
        refuse_unmet!(request.input);
        let gateway = &self.0;
        let user: Option<User> = gateway.user(&request);
        let bucket = gateway.bucket(&request.input.bucket)?;
        KeyPath::parse(&request.input.key)?;
        let (source, object, from) = self.source(&request, &request.input.copy_source)?;
        let input = &mut request.input;
        let conditions = Conditions {
            matches: input.copy_source_if_match.as_ref(),
            none_matches: input.copy_source_if_none_match.as_ref(),
            modified_since: input.copy_source_if_modified_since.as_ref(),
            unmodified_since: input.copy_source_if_unmodified_since.as_ref(),
        };
        conditions.check_copy(&object.etag(), &timestamp(object.attr.modified))?;
        let size = object.size_bytes();
        if size > PUT_BYTES_MAX {
            return Err(s3_error!(InvalidRequest, "one copy takes {PUT_BYTES_MAX} bytes at most; copy it in parts"));
        }
        let replaces =
            input.metadata_directive.as_ref().is_some_and(|word| word.as_str() == MetadataDirective::REPLACE);
        let retags = input.tagging_directive.as_ref().is_some_and(|word| word.as_str() == TaggingDirective::REPLACE);
        let is_itself = source.bucket == input.bucket && source.key == input.key && source.version.is_none();
        if is_itself && !replaces && !retags && input.storage_class.is_none() {
            return Err(s3_error!(
                InvalidRequest,
                "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata."
            ));
        }
        let (owner, acl) = self.asked_acl(
            &bucket,
            user.as_ref(),
            input.acl.as_ref().map(ObjectCannedACL::as_str),
            &object_grants!(input),
        )?;
        let tags = if retags { super::tags::of_header(input.tagging.as_deref())? } else { self.tags_of(&object)? };
        let fresh = object.fresh().cloned();
        let mut meta = if replaces {
            request_metadata!(input).meta(&owner)?
        } else {
            Meta { owner, version: None, upload: None, ..object.meta.clone().unwrap_or_default() }
        };
        let file = gateway.new_file(&bucket, user.as_ref())?;
        if let Some(from) = from.filter(|_| size > 0) {
            copy(&from, &file, 0, size, &source.key)?;
        }
        // The content is the same, so its checksums are too, if they are known.
        let known = fresh.unwrap_or_default();
        meta.etag = known.etag;
        meta.checksums = known.checksums;
        meta.checksum_type = known.checksum_type;
        meta.parts = if known.parts.len() > 1 { known.parts } else { Vec::new() };
        if size == 0 {
            crate::objects::EMPTY_MD5.clone_into(&mut meta.etag);
        }
        let sums = meta.checksums.clone();
        let put = gateway.put(Putting {
            bucket: &bucket,
            key: &input.key,
            user: user.as_ref(),
            source: body::Source::File(&file),
            meta,
            tags,
            acl,
            parts: None,
            conditions: Conditions::default(),
        })?;
        let sum = |word: &str| sums.get(word).cloned();
        Ok(CopyObjectOutput {
            copy_object_result: Some(CopyObjectResult {
                e_tag: Some(put.etag),
                last_modified: Some(timestamp(put.attr.modified)),
                checksum_crc32: sum("CRC32"),
                checksum_crc32c: sum("CRC32C"),
                checksum_crc64nvme: sum("CRC64NVME"),
                checksum_sha1: sum("SHA1"),
                checksum_sha256: sum("SHA256"),
                ..Default::default()
            }),
            copy_source_version_id: object.version,
            version_id: put.version,
            ..Default::default()
        })
    }

    pub(super) fn upload_part_copy(&self, request: S3Request<UploadPartCopyInput>) -> S3Result<UploadPartCopyOutput> {
        let gateway = &self.0;
        let user = gateway.user(&request);
        let input = &request.input;
        let bucket = gateway.bucket(&input.bucket)?;
        let number = super::uploads::part_number(input.part_number)?;
        let upload = gateway.upload(&bucket, &input.key, &input.upload_id)?;
        let (source, object, from) = self.source(&request, &input.copy_source)?;
        let conditions = Conditions {
            matches: input.copy_source_if_match.as_ref(),
            none_matches: input.copy_source_if_none_match.as_ref(),
            modified_since: input.copy_source_if_modified_since.as_ref(),
            unmodified_since: input.copy_source_if_unmodified_since.as_ref(),
        };
        conditions.check_copy(&object.etag(), &timestamp(object.attr.modified))?;
        let size = object.size_bytes();
        let (offset, len) = match &input.copy_source_range {
            None => (0, size),
            Some(range) => range_of(range, size)?,
        };
        if len > PUT_BYTES_MAX {
            return Err(s3_error!(InvalidRequest, "one part takes {PUT_BYTES_MAX} bytes at most"));
        }
        let file = gateway.new_file(&bucket, user.as_ref())?;
        if let Some(from) = from.filter(|_| len > 0) {
            copy(&from, &file, offset, len, &source.key)?;
        }
        let mut meta = Meta { size_bytes: len, ..Meta::default() };
        meta.etag = match object.fresh() {
            Some(known) if len == size && known.etag.len() == 32 => known.etag.clone(),
            _ => sum_of_range(&object, offset, len),
        };
        if let Some(algorithm) = upload.meta.checksum_algorithm.as_deref().and_then(crate::checksum::Algorithm::parse)
            && let Some(sum) = crate::uploads::sum_of_file(algorithm, &file)?
        {
            meta.checksums.insert(algorithm.word().to_owned(), sum);
        }
        gateway.put_part(&upload, number, (body::Source::File(&file), user.as_ref()), &meta)?;
        let modified = file.attr().map_err(|error| failed(&error, &input.key))?.modified;
        let sum = |word: &str| meta.checksums.get(word).cloned();
        Ok(UploadPartCopyOutput {
            copy_part_result: Some(CopyPartResult {
                e_tag: Some(ETag::Strong(meta.etag.clone())),
                last_modified: Some(timestamp(modified)),
                checksum_crc32: sum("CRC32"),
                checksum_crc32c: sum("CRC32C"),
                checksum_crc64nvme: sum("CRC64NVME"),
                checksum_sha1: sum("SHA1"),
                checksum_sha256: sum("SHA256"),
            }),
            copy_source_version_id: object.version.clone(),
            ..Default::default()
        })
    }
}

fn copy(from: &File, to: &File, offset: u64, len: u64, key: &str) -> S3Result<()> {
    let copied = to.copy_from(from, offset, 0, len).map_err(|error| failed(&error, key))?;
    if copied == len {
        Ok(())
    } else {
        Err(s3_error!(OperationAborted, "the source became shorter while it was copied"))
    }
}

/// Parses `bytes=a-b`, both ends within the object.
fn range_of(text: &str, size: u64) -> S3Result<(u64, u64)> {
    let ends = text.strip_prefix("bytes=").and_then(|ends| ends.split_once('-'));
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let (Some(first), Some(last)) =
        (ends.and_then(|(first, _)| number(first)), ends.and_then(|(_, last)| number(last)))
    else {
        return Err(s3_error!(
            InvalidArgument,
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy"
        ));
    };
    if first > last || last >= size {
        return Err(s3_error!(InvalidRange, "the source has {size} bytes, and the range is not within them"));
    }
    Ok((first, last - first + 1))
}

/// Computes the sum of a part copied without its bytes passing here: from the source's ETag and the range.
fn sum_of_range(object: &Object, offset: u64, len: u64) -> String {
    let mut sum = Md5::new();
    sum.update(object.etag().value().as_bytes());
    sum.update(offset.to_le_bytes());
    sum.update(len.to_le_bytes());
    hex(&sum.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_lie_within_the_source() {
        assert_eq!(range_of("bytes=0-9", 10).unwrap(), (0, 10));
        for bad in ["bytes=0-10", "bytes=5-4", "bytes=-5", "bytes=5-", "0-9", "bytes=+1-2", "bytes=a-b"] {
            assert!(range_of(bad, 10).is_err(), "{bad}");
        }
    }
}
