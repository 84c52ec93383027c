//! Multipart uploads.

use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, ChecksumAlgorithm, ChecksumType, CommonPrefix,
    CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, ETag, Initiator, ListMultipartUploadsInput, ListMultipartUploadsOutput,
    ListPartsInput, ListPartsOutput, MultipartUpload, ObjectCannedACL, Part, StorageClass, Timestamp, UploadPartInput,
    UploadPartOutput,
};
use s3s::{S3Request, S3Result, s3_error};

use super::{Service, object_grants, refuse_unmet, request_metadata};
use crate::acl::owner;
use crate::body::{Source, announced, receive};
use crate::bucket::Bucket;
use crate::checksum::{Algorithm, Claims};
use crate::condition::Conditions;
use crate::listing::{KEYS_MAX, Wanted, url_encoded};
use crate::meta::{Meta, Waiting, timestamp};
use crate::name::KeyPath;
use crate::objects::Putting;
use crate::uploads::PARTS_MAX;

/// Checks the bounds of a part number.
pub fn part_number(number: i32) -> S3Result<i32> {
    if (1..=PARTS_MAX).contains(&number) {
        return Ok(number);
    }
    Err(s3_error!(InvalidArgument, "Part number must be an integer between 1 and {PARTS_MAX}, inclusive"))
}

fn time_of(began: Option<(i64, u32)>) -> Option<Timestamp> {
    began.map(|(s, ns)| timestamp(cenote_posix::Time { s, ns }))
}

impl Service {
    pub(super) fn create_multipart_upload(
        &self,
        mut request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<CreateMultipartUploadOutput> {
        refuse_unmet!(request.input);
        let user = self.0.user(&request);
        let bucket = self.0.bucket(&request.input.bucket)?;
        let input = &mut request.input;
        if KeyPath::parse(&input.key)?.is_directory {
            return Err(s3_error!(
                InvalidArgument,
                "keys are paths of files here; one with a slash at its end can have no bytes"
            ));
        }
        let (owner, acl) = self.asked_acl(
            &bucket,
            user.as_ref(),
            input.acl.as_ref().map(ObjectCannedACL::as_str),
            &object_grants!(input),
        )?;
        let tags = super::tags::of_header(input.tagging.as_deref())?;
        let algorithm = input.checksum_algorithm.as_ref().map(|word| {
            Algorithm::parse(word.as_str())
                .ok_or_else(|| s3_error!(InvalidRequest, "Checksum algorithm provided is unsupported"))
        });
        let algorithm = algorithm.transpose()?;
        let kind = input.checksum_type.as_ref().map(|kind| kind.as_str().to_owned());
        if kind.as_deref() == Some(ChecksumType::FULL_OBJECT) && !algorithm.is_none_or(Algorithm::combines) {
            return Err(s3_error!(
                InvalidRequest,
                "The FULL_OBJECT checksum type cannot be used with the sha checksum algorithms."
            ));
        }
        let kind = kind.or_else(|| {
            let is_full = algorithm == Some(Algorithm::Crc64Nvme);
            algorithm.map(|_| if is_full { ChecksumType::FULL_OBJECT } else { ChecksumType::COMPOSITE }.to_owned())
        });
        let mut meta = request_metadata!(input).meta(&owner)?;
        meta.checksum_algorithm = algorithm.map(|algorithm| algorithm.word().to_owned());
        meta.checksum_type.clone_from(&kind);
        meta.waiting = Some(Waiting { tags, acl }).filter(|waiting| *waiting != Waiting::default());
        let id = self.0.begin_upload(&bucket, &input.key, meta)?;
        Ok(CreateMultipartUploadOutput {
            bucket: Some(input.bucket.clone()),
            key: Some(input.key.clone()),
            upload_id: Some(id),
            checksum_algorithm: algorithm.map(|algorithm| ChecksumAlgorithm::from_static(algorithm.word())),
            checksum_type: kind.map(ChecksumType::from),
            ..Default::default()
        })
    }

    pub(super) async fn upload_part(&self, mut request: S3Request<UploadPartInput>) -> S3Result<UploadPartOutput> {
        let gateway = &self.0;
        let user = gateway.user(&request);
        let bucket = gateway.bucket(&request.input.bucket)?;
        let number = part_number(request.input.part_number)?;
        let upload = gateway.upload(&bucket, &request.input.key, &request.input.upload_id)?;
        let mut claims = Claims::of(&request.headers)?;
        claims.algorithm = upload.meta.checksum_algorithm.as_deref().and_then(Algorithm::parse).or(claims.algorithm);
        let announced = announced(&request)?;
        let trailers = request.trailing_headers.take();
        let make = || gateway.new_file(&bucket, user.as_ref());
        let received = receive(request.input.body.take(), make, &claims, announced, trailers).await?;
        let meta = Meta {
            etag: received.sums.etag(),
            size_bytes: received.size_bytes,
            checksums: received.sums.checksums,
            ..Meta::default()
        };
        gateway.put_part(&upload, number, (received.content.source(), user.as_ref()), &meta)?;
        let sum = |word: &str| meta.checksums.get(word).cloned();
        Ok(UploadPartOutput {
            e_tag: Some(ETag::Strong(meta.etag.clone())),
            checksum_crc32: sum("CRC32"),
            checksum_crc32c: sum("CRC32C"),
            checksum_crc64nvme: sum("CRC64NVME"),
            checksum_sha1: sum("SHA1"),
            checksum_sha256: sum("SHA256"),
            ..Default::default()
        })
    }

    pub(super) fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<CompleteMultipartUploadOutput> {
        let gateway = &self.0;
        let user = gateway.user(&request);
        let input = request.input;
        let bucket = gateway.bucket(&input.bucket)?;
        let upload = match gateway.upload(&bucket, &input.key, &input.upload_id) {
            Err(error) => return self.completed(&bucket, &input.key, &input.upload_id).ok_or(error),
            upload => upload?,
        };
        let mut named = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        // If a number occurs twice, the later one counts.
        named.reverse();
        named.dedup_by_key(|part| part.part_number);
        named.reverse();
        let whole = gateway.assemble(&bucket, user.as_ref(), &upload, &named)?;
        let size = whole.file.attr().map_err(|error| crate::failure::failed(&error, &input.key))?.size_bytes;
        if input.mpu_object_size.is_some_and(|announced| announced as u64 != size) {
            return Err(s3_error!(InvalidRequest, "the parts have {size} bytes, which is not what was announced"));
        }
        for (word, claimed) in [
            ("CRC32", &input.checksum_crc32),
            ("CRC32C", &input.checksum_crc32c),
            ("CRC64NVME", &input.checksum_crc64nvme),
            ("SHA1", &input.checksum_sha1),
            ("SHA256", &input.checksum_sha256),
        ] {
            let known = whole.meta.checksums.get(word);
            if let (Some(claimed), Some(known)) = (claimed, known)
                && claimed.split('-').next() != known.split('-').next()
            {
                return Err(s3_error!(BadDigest, "The {word} you specified did not match the calculated checksum."));
            }
        }
        let waiting = upload.meta.waiting.clone().unwrap_or_default();
        let (sums, kind) = (whole.meta.checksums.clone(), whole.meta.checksum_type.clone());
        let conditions = Conditions {
            matches: input.if_match.as_ref(),
            none_matches: input.if_none_match.as_ref(),
            ..Conditions::default()
        };
        let put = gateway.put(Putting {
            bucket: &bucket,
            key: &input.key,
            user: user.as_ref(),
            source: Source::File(&whole.file),
            meta: whole.meta,
            tags: waiting.tags,
            acl: waiting.acl,
            parts: whole.parts,
            conditions,
        })?;
        gateway.drop_upload(&bucket, &upload)?;
        let sum = |word: &str| sums.get(word).cloned();
        Ok(CompleteMultipartUploadOutput {
            bucket: Some(input.bucket.clone()),
            location: Some(format!("/{}/{}", input.bucket, url_encoded(&input.key))),
            key: Some(input.key),
            e_tag: Some(put.etag),
            version_id: put.version,
            checksum_crc32: sum("CRC32"),
            checksum_crc32c: sum("CRC32C"),
            checksum_crc64nvme: sum("CRC64NVME"),
            checksum_sha1: sum("SHA1"),
            checksum_sha256: sum("SHA256"),
            checksum_type: kind.filter(|_| !sums.is_empty()).map(ChecksumType::from),
            ..Default::default()
        })
    }

    /// Returns the answer of a completion that was done already: the client did not receive it, and
    /// asks again.
    fn completed(&self, bucket: &Bucket, key: &str, id: &str) -> Option<CompleteMultipartUploadOutput> {
        let object = self.0.object(bucket, key, None).ok()?;
        let meta = object.meta.as_ref().filter(|meta| meta.upload.as_deref() == Some(id))?;
        let sum = |word: &str| meta.checksums.get(word).cloned();
        Some(CompleteMultipartUploadOutput {
            bucket: Some(bucket.name.clone()),
            location: Some(format!("/{}/{}", bucket.name, url_encoded(key))),
            key: Some(key.to_owned()),
            e_tag: Some(object.etag()),
            version_id: meta.version.clone(),
            checksum_crc32: sum("CRC32"),
            checksum_crc32c: sum("CRC32C"),
            checksum_crc64nvme: sum("CRC64NVME"),
            checksum_sha1: sum("SHA1"),
            checksum_sha256: sum("SHA256"),
            checksum_type: meta.checksum_type.clone().map(ChecksumType::from),
            ..Default::default()
        })
    }

    pub(super) fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<AbortMultipartUploadOutput> {
        let input = request.input;
        let bucket = self.0.bucket(&input.bucket)?;
        let upload = self.0.upload(&bucket, &input.key, &input.upload_id)?;
        self.0.drop_upload(&bucket, &upload)?;
        Ok(AbortMultipartUploadOutput::default())
    }

    pub(super) fn list_parts(&self, request: S3Request<ListPartsInput>) -> S3Result<ListPartsOutput> {
        let input = request.input;
        let bucket = self.0.bucket(&input.bucket)?;
        let upload = self.0.upload(&bucket, &input.key, &input.upload_id)?;
        let limit = Wanted::limit(input.max_parts)?;
        let after = input.part_number_marker.unwrap_or(0);
        let (parts, more) = self.0.parts(&upload, after, limit)?;
        let last = parts.last().map(|part| part.number);
        let mut told = Vec::with_capacity(parts.len());
        for part in parts {
            let attr = self.0.fs.attr(part.ino).map_err(|error| crate::failure::failed(&error, &input.key))?;
            let sum = |word: &str| part.meta.checksums.get(word).cloned();
            told.push(Part {
                e_tag: Some(ETag::Strong(part.meta.etag.clone())),
                last_modified: Some(timestamp(attr.modified)),
                part_number: Some(part.number),
                size: Some(part.meta.size_bytes as i64),
                checksum_crc32: sum("CRC32"),
                checksum_crc32c: sum("CRC32C"),
                checksum_crc64nvme: sum("CRC64NVME"),
                checksum_sha1: sum("SHA1"),
                checksum_sha256: sum("SHA256"),
            });
        }
        let who = owner(&upload.meta.owner);
        Ok(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            parts: Some(told),
            is_truncated: Some(more),
            max_parts: Some(limit as i32),
            part_number_marker: Some(after),
            next_part_number_marker: last,
            initiator: Some(Initiator { display_name: who.display_name.clone(), id: who.id.clone() }),
            owner: Some(who),
            checksum_algorithm: upload.meta.checksum_algorithm.map(ChecksumAlgorithm::from),
            checksum_type: upload.meta.checksum_type.map(ChecksumType::from),
            storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
            ..Default::default()
        })
    }

    pub(super) fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<ListMultipartUploadsOutput> {
        let input = request.input;
        let bucket = self.0.bucket(&input.bucket)?;
        let limit = Wanted::limit(input.max_uploads)?.min(KEYS_MAX);
        let wanted = Wanted {
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: input.delimiter.clone().unwrap_or_default(),
            after: None,
            limit,
        };
        let marker = input.key_marker.clone().unwrap_or_default();
        let id_marker = input.upload_id_marker.clone().filter(|_| !marker.is_empty());
        let is_behind = |key: &str, id: &str| match &id_marker {
            Some(after) => (key, id) > (marker.as_str(), after.as_str()),
            None => marker.is_empty() || key > marker.as_str(),
        };
        let encode = |text: String| if input.encoding_type.is_some() { url_encoded(&text) } else { text };
        let (mut uploads, mut prefixes, mut is_truncated) = (Vec::new(), Vec::<String>::new(), false);
        let mut next: Option<(String, String)> = None;
        for upload in self.0.uploads(&bucket)? {
            let key = &upload.meta.key;
            if !key.starts_with(&wanted.prefix) || !is_behind(key, &upload.id) {
                continue;
            }
            let common = wanted.common(key);
            if common.is_some_and(|common| prefixes.last().is_some_and(|last| last == common)) {
                continue;
            }
            if uploads.len() + prefixes.len() >= limit {
                is_truncated = true;
                break;
            }
            next = Some((key.clone(), upload.id.clone()));
            if let Some(common) = common {
                prefixes.push(common.to_owned());
                continue;
            }
            let who = owner(&upload.meta.owner);
            uploads.push(MultipartUpload {
                initiated: time_of(upload.meta.began),
                initiator: Some(Initiator { display_name: who.display_name.clone(), id: who.id.clone() }),
                key: Some(encode(key.clone())),
                owner: Some(who),
                storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
                upload_id: Some(upload.id),
                checksum_algorithm: upload.meta.checksum_algorithm.map(ChecksumAlgorithm::from),
                checksum_type: upload.meta.checksum_type.map(ChecksumType::from),
            });
        }
        let (next_key, next_id) = next.filter(|_| is_truncated).unzip();
        Ok(ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            uploads: Some(uploads),
            common_prefixes: Some(
                prefixes.into_iter().map(|prefix| CommonPrefix { prefix: Some(encode(prefix)) }).collect(),
            ),
            is_truncated: Some(is_truncated),
            max_uploads: Some(limit as i32),
            next_key_marker: next_key.map(&encode),
            next_upload_id_marker: next_id,
            key_marker: input.key_marker.clone().map(&encode),
            upload_id_marker: input.upload_id_marker.clone(),
            prefix: input.prefix.clone().map(&encode),
            delimiter: input.delimiter.clone().map(&encode),
            encoding_type: input.encoding_type.clone(),
            ..Default::default()
        })
    }
}
