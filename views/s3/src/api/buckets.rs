//! Buckets: creation, deletion and settings.

use cenote_posix::{Ino, Kind, Make};
use s3s::dto::{
    BucketCannedACL, BucketLocationConstraint, BucketVersioningStatus, Checksum, ChecksumType, CreateBucketInput,
    CreateBucketOutput, DeleteBucketCorsInput, DeleteBucketCorsOutput, DeleteBucketLifecycleInput,
    DeleteBucketLifecycleOutput, DeleteBucketOutput, GetBucketCorsInput, GetBucketCorsOutput, GetBucketEncryptionInput,
    GetBucketEncryptionOutput, GetBucketLifecycleConfigurationInput, GetBucketLifecycleConfigurationOutput,
    GetBucketLocationInput, GetBucketLocationOutput, GetBucketReplicationInput, GetBucketReplicationOutput,
    GetBucketRequestPaymentInput, GetBucketRequestPaymentOutput, GetBucketVersioningInput, GetBucketVersioningOutput,
    GetBucketWebsiteInput, GetBucketWebsiteOutput, GetObjectAttributesInput, GetObjectAttributesOutput,
    GetObjectAttributesParts, GetObjectLockConfigurationInput, GetObjectLockConfigurationOutput, HeadBucketInput,
    HeadBucketOutput, MFADelete, ObjectPart, Payer, PutBucketCorsInput, PutBucketCorsOutput,
    PutBucketLifecycleConfigurationInput, PutBucketLifecycleConfigurationOutput, PutBucketVersioningInput,
    PutBucketVersioningOutput, StorageClass,
};
use s3s::{S3Request, S3Result, s3_error};

use super::Service;
use crate::acl::{Acl, GrantHeaders};
use crate::bucket::Versioning;
use crate::failure::{failed, is_missing};
use crate::gateway::no_key;
use crate::meta::{PARTS, timestamp};
use crate::name::may_be_made;
use crate::objects::Object;

/// The region reported by an empty answer.
const FIRST_REGION: &str = "us-east-1";

impl Service {
    pub(super) fn create_bucket(&self, request: S3Request<CreateBucketInput>) -> S3Result<CreateBucketOutput> {
        let gateway = &self.0;
        let user = gateway.known(&request)?;
        let input = request.input;
        if !may_be_made(&input.bucket) {
            return Err(s3_error!(
                InvalidBucketName,
                "`{}` is no name for a bucket: 3 to 63 small letters, digits, `-` and `.`",
                input.bucket.escape_default()
            ));
        }
        if input.object_lock_enabled_for_bucket == Some(true) {
            return Err(s3_error!(NotImplemented, "objects are not locked here"));
        }
        let headers = GrantHeaders {
            read: input.grant_read.as_deref(),
            write: input.grant_write.as_deref(),
            read_acp: input.grant_read_acp.as_deref(),
            write_acp: input.grant_write_acp.as_deref(),
            full: input.grant_full_control.as_deref(),
        };
        let word = input.acl.as_ref().map(BucketCannedACL::as_str);
        let acl = Acl::asked(word, &headers, (&user.name, &user.name), |name| gateway.is_user(name))?;
        let what = Make { kind: Kind::Directory, mode: 0o755, rdev: 0, target: Vec::new() };
        match gateway.fs.make(&gateway.caller(Some(&user)), Ino::TOP, input.bucket.as_bytes(), &what) {
            Ok(_) => {}
            Err(error) if error.errno == libc::EEXIST => {
                let own = gateway.bucket(&input.bucket).ok().filter(|bucket| bucket.is_owned_by(&user));
                return match own {
                    // In this region owners may create an existing bucket again; in others they may not.
                    Some(own) if gateway.region == FIRST_REGION => {
                        let wanted = acl.unwrap_or_else(|| Acl::private(&user.name));
                        let is_same = own.acl() == wanted;
                        let told = CreateBucketOutput { location: Some(format!("/{}", input.bucket)) };
                        let other =
                            || s3_error!(BucketAlreadyExists, "`{}` is there already, with other rights", input.bucket);
                        if is_same { Ok(told) } else { Err(other()) }
                    }
                    Some(_) => {
                        Err(s3_error!(BucketAlreadyOwnedByYou, "`{}` is there already, and yours", input.bucket))
                    }
                    None => Err(s3_error!(BucketAlreadyExists, "`{}` is there already", input.bucket)),
                };
            }
            Err(error) => return Err(failed(&error, &input.bucket)),
        }
        let ownership = input.object_ownership.map(|word| word.as_str().to_owned());
        gateway.buckets.change(&input.bucket, |record| {
            record.owner = Some(user.name);
            record.acl = acl;
            record.ownership = ownership;
        })?;
        Ok(CreateBucketOutput { location: Some(format!("/{}", input.bucket)) })
    }
    /// Deletes a bucket without keys, versions and other files; also deletes its uploads.
    pub(super) fn drop_bucket(&self, name: &str) -> S3Result<DeleteBucketOutput> {
        let gateway = &self.0;
        let bucket = gateway.bucket(name)?;
        let not_empty =
            |what: &str| s3_error!(BucketNotEmpty, "The bucket you tried to delete is not empty: it has {what}");
        let is_empty = |ino| match gateway.fs.list(ino, None, 1) {
            Err(error) if is_missing(&error) => Ok(true),
            entries => entries.map(|entries| entries.is_empty()).map_err(|error| failed(&error, name)),
        };
        if !is_empty(bucket.root)? {
            return Err(not_empty("files or directories"));
        }
        if let Some(versions) = gateway.versions_root(&bucket)?
            && !is_empty(versions)?
        {
            return Err(not_empty("old versions or deletions"));
        }
        for upload in gateway.uploads(&bucket)? {
            gateway.drop_upload(&bucket, &upload)?;
        }
        gateway.drop_behind(&bucket)?;
        gateway.buckets.forget(name);
        match gateway.fs.rmdir(&gateway.me, Ino::TOP, name.as_bytes()) {
            Err(error) if error.errno == libc::ENOTEMPTY => Err(not_empty("something in it")),
            done => done.map(|()| DeleteBucketOutput {}).map_err(|error| failed(&error, name)),
        }
    }
    pub(super) fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> S3Result<HeadBucketOutput> {
        self.0.bucket(self.0.rights_of(&request.input.bucket))?;
        Ok(HeadBucketOutput { bucket_region: Some(self.0.region.clone()), ..Default::default() })
    }
    pub(super) fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<GetBucketLocationOutput> {
        self.0.bucket(self.0.rights_of(&request.input.bucket))?;
        let told = (self.0.region != FIRST_REGION).then(|| BucketLocationConstraint::from(self.0.region.clone()));
        Ok(GetBucketLocationOutput { location_constraint: told })
    }
    pub(super) fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<GetBucketVersioningOutput> {
        let status = match self.0.bucket(&request.input.bucket)?.record.versioning {
            Versioning::Never => None,
            Versioning::Enabled => Some(BucketVersioningStatus::ENABLED),
            Versioning::Suspended => Some(BucketVersioningStatus::SUSPENDED),
        };
        Ok(GetBucketVersioningOutput { status: status.map(BucketVersioningStatus::from_static), ..Default::default() })
    }
    pub(super) fn put_bucket_versioning(
        &self,
        request: S3Request<PutBucketVersioningInput>,
    ) -> S3Result<PutBucketVersioningOutput> {
        let input = request.input;
        let versioning = match input.versioning_configuration.status.as_ref().map(BucketVersioningStatus::as_str) {
            Some(BucketVersioningStatus::ENABLED) => Versioning::Enabled,
            Some(BucketVersioningStatus::SUSPENDED) => Versioning::Suspended,
            _ => return Err(s3_error!(MalformedXML, "versioning is Enabled or Suspended")),
        };
        if input.versioning_configuration.mfa_delete.as_ref().is_some_and(|word| word.as_str() == MFADelete::ENABLED) {
            return Err(s3_error!(NotImplemented, "there are no MFA devices here"));
        }
        self.0.buckets.change(&input.bucket, |record| record.versioning = versioning)?;
        Ok(PutBucketVersioningOutput {})
    }
    pub(super) fn get_bucket_cors(&self, request: S3Request<GetBucketCorsInput>) -> S3Result<GetBucketCorsOutput> {
        let bucket = self.0.bucket(&request.input.bucket)?;
        let rules = bucket.record.cors.clone();
        let rules = rules.ok_or_else(|| s3_error!(NoSuchCORSConfiguration, "The CORS configuration does not exist"))?;
        Ok(GetBucketCorsOutput { cors_rules: Some(rules) })
    }
    pub(super) fn put_bucket_cors(&self, request: S3Request<PutBucketCorsInput>) -> S3Result<PutBucketCorsOutput> {
        let rules = request.input.cors_configuration.cors_rules;
        crate::cors::check(&rules)?;
        self.0.buckets.change(&request.input.bucket, |record| record.cors = Some(rules))?;
        Ok(PutBucketCorsOutput {})
    }
    pub(super) fn delete_bucket_cors(
        &self,
        request: S3Request<DeleteBucketCorsInput>,
    ) -> S3Result<DeleteBucketCorsOutput> {
        self.0.buckets.change(&request.input.bucket, |record| record.cors = None)?;
        Ok(DeleteBucketCorsOutput {})
    }
    pub(super) fn get_bucket_lifecycle_configuration(
        &self,
        request: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<GetBucketLifecycleConfigurationOutput> {
        let bucket = self.0.bucket(&request.input.bucket)?;
        let rules = bucket.record.lifecycle.clone();
        let rules = rules
            .ok_or_else(|| s3_error!(NoSuchLifecycleConfiguration, "The lifecycle configuration does not exist"))?;
        Ok(GetBucketLifecycleConfigurationOutput { rules: Some(rules), ..Default::default() })
    }
    pub(super) fn put_bucket_lifecycle_configuration(
        &self,
        request: S3Request<PutBucketLifecycleConfigurationInput>,
    ) -> S3Result<PutBucketLifecycleConfigurationOutput> {
        let input = request.input;
        let mut rules = input.lifecycle_configuration.map(|configuration| configuration.rules).unwrap_or_default();
        crate::lifecycle::check(&mut rules)?;
        self.0.buckets.change(&input.bucket, |record| record.lifecycle = Some(rules))?;
        Ok(PutBucketLifecycleConfigurationOutput::default())
    }
    pub(super) fn delete_bucket_lifecycle(
        &self,
        request: S3Request<DeleteBucketLifecycleInput>,
    ) -> S3Result<DeleteBucketLifecycleOutput> {
        self.0.buckets.change(&request.input.bucket, |record| record.lifecycle = None)?;
        Ok(DeleteBucketLifecycleOutput {})
    }
    pub(super) fn get_bucket_encryption(
        &self,
        request: S3Request<GetBucketEncryptionInput>,
    ) -> S3Result<GetBucketEncryptionOutput> {
        self.0.bucket(&request.input.bucket)?;
        Err(s3_error!(
            ServerSideEncryptionConfigurationNotFoundError,
            "The server side encryption configuration was not found"
        ))
    }
    pub(super) fn get_bucket_request_payment(
        &self,
        request: S3Request<GetBucketRequestPaymentInput>,
    ) -> S3Result<GetBucketRequestPaymentOutput> {
        self.0.bucket(&request.input.bucket)?;
        Ok(GetBucketRequestPaymentOutput { payer: Some(Payer::from_static(Payer::BUCKET_OWNER)) })
    }
    pub(super) fn get_bucket_website(
        &self,
        request: S3Request<GetBucketWebsiteInput>,
    ) -> S3Result<GetBucketWebsiteOutput> {
        self.0.bucket(&request.input.bucket)?;
        Err(s3_error!(NoSuchWebsiteConfiguration, "The specified bucket does not have a website configuration"))
    }
    pub(super) fn get_bucket_replication(
        &self,
        request: S3Request<GetBucketReplicationInput>,
    ) -> S3Result<GetBucketReplicationOutput> {
        self.0.bucket(&request.input.bucket)?;
        Err(s3_error!(ReplicationConfigurationNotFoundError, "The replication configuration was not found"))
    }
    pub(super) fn get_object_lock_configuration(
        &self,
        request: S3Request<GetObjectLockConfigurationInput>,
    ) -> S3Result<GetObjectLockConfigurationOutput> {
        self.0.bucket(&request.input.bucket)?;
        Err(s3_error!(ObjectLockConfigurationNotFoundError, "Object Lock configuration does not exist for this bucket"))
    }

    pub(super) fn get_object_attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<GetObjectAttributesOutput> {
        let input = &request.input;
        let bucket = self.0.bucket(&input.bucket)?;
        let tell = |object: Object| self.attributes(input, &object);
        self.0.about(&bucket, &input.key, input.version_id.as_deref(), tell)
    }
    fn attributes(&self, input: &GetObjectAttributesInput, object: &Object) -> S3Result<GetObjectAttributesOutput> {
        let wants = |word: &str| {
            let mut words = input.object_attributes.iter().flat_map(|attribute| attribute.as_str().split(','));
            words.any(|wanted| wanted.trim() == word)
        };
        let fresh = object.fresh();
        let sum = |word: &str| fresh.and_then(|meta| meta.checksums.get(word).cloned());
        let has_sums = fresh.is_some_and(|meta| !meta.checksums.is_empty());
        let checksum = Checksum {
            checksum_crc32: sum("CRC32"),
            checksum_crc32c: sum("CRC32C"),
            checksum_crc64nvme: sum("CRC64NVME"),
            checksum_sha1: sum("SHA1"),
            checksum_sha256: sum("SHA256"),
            checksum_type: fresh.and_then(|meta| meta.checksum_type.clone()).map(ChecksumType::from),
        };
        let parts = fresh.filter(|meta| wants("ObjectParts") && meta.parts_count().is_some());
        let object_parts = parts.map(|meta| {
            let kept = self.0.xattr(object.attr.ino, PARTS)?;
            let sums: Option<(String, Vec<String>)> = kept.and_then(|value| serde_json::from_slice(&value).ok());
            let total = meta.parts_count().unwrap_or_default();
            let after = input.part_number_marker.unwrap_or(0).max(0) as u32;
            let limit = input.max_parts.unwrap_or(1000).clamp(0, 1000) as u32;
            let end = after.saturating_add(limit).min(total);
            let (word, sums) = sums.unwrap_or_default();
            let part = |number: u32| {
                let sum = |wanted: &str| sums.get(number as usize - 1).filter(|_| word == wanted).cloned();
                ObjectPart {
                    part_number: Some(number as i32),
                    size: meta.part(number).map(|(_, size)| size as i64),
                    checksum_crc32: sum("CRC32"),
                    checksum_crc32c: sum("CRC32C"),
                    checksum_crc64nvme: sum("CRC64NVME"),
                    checksum_sha1: sum("SHA1"),
                    checksum_sha256: sum("SHA256"),
                }
            };
            S3Result::<GetObjectAttributesParts>::Ok(GetObjectAttributesParts {
                is_truncated: Some(end < total),
                max_parts: Some(limit as i32),
                next_part_number_marker: Some(end as i32),
                part_number_marker: Some(after as i32),
                parts: Some((after.saturating_add(1)..=end).map(part).collect()),
                total_parts_count: Some(total as i32),
            })
        });
        if object.is_directory && !input.key.ends_with('/') {
            return Err(no_key(&input.key));
        }
        Ok(GetObjectAttributesOutput {
            checksum: (wants("Checksum") && has_sums).then_some(checksum),
            e_tag: wants("ETag").then(|| object.etag()),
            last_modified: Some(timestamp(object.attr.modified)),
            object_parts: object_parts.transpose()?,
            object_size: wants("ObjectSize").then_some(object.size_bytes() as i64),
            storage_class: wants("StorageClass").then(|| StorageClass::from_static(StorageClass::STANDARD)),
            version_id: object.version.clone(),
            ..Default::default()
        })
    }
}
