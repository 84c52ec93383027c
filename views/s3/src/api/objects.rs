//! Putting and deleting objects.
#![allow(clippy::type_complexity, reason = "what must hold for a deletion is a closure")]

use s3s::dto::{
    ChecksumType, DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject,
    ETagCondition, Error, ObjectCannedACL, ObjectOwnership, PostObjectInput, PostObjectOutput, PutObjectInput,
    PutObjectOutput, Timestamp,
};
use s3s::{S3Request, S3Result, s3_error};

use super::{Service, object_grants, refuse_unmet, request_metadata};
use crate::acl::{Acl, GrantHeaders};
use crate::alive;
use crate::body::{announced, receive};
use crate::bucket::Bucket;
use crate::checksum::Claims;
use crate::condition::Conditions;
use crate::keys::User;
use crate::name::KeyPath;
use crate::objects::{Object, Putting};

/// S3's limit of keys in one delete request.
const DELETE_MAX: usize = 1000;

impl Service {
    /// Returns the owner of a new object, and the requested ACL unless it only names the owner.
    pub(super) fn asked_acl(
        &self,
        bucket: &Bucket,
        user: Option<&User>,
        word: Option<&str>,
        headers: &GrantHeaders<'_>,
    ) -> S3Result<(String, Option<Acl>)> {
        let bucket_owner = bucket.owner();
        let gives_all = word == Some(ObjectCannedACL::BUCKET_OWNER_FULL_CONTROL);
        match bucket.record.ownership.as_deref() {
            Some(ObjectOwnership::BUCKET_OWNER_ENFORCED) if headers.is_empty() && (word.is_none() || gives_all) => {
                return Ok((bucket_owner, None));
            }
            Some(ObjectOwnership::BUCKET_OWNER_ENFORCED) => return Err(no_acls()),
            Some(ObjectOwnership::BUCKET_OWNER_PREFERRED) if gives_all => return Ok((bucket_owner, None)),
            _ => {}
        }
        let owner = user.map_or(bucket_owner.as_str(), |user| user.name.as_str());
        let acl = Acl::asked(word, headers, (owner, &bucket_owner), |name| self.0.is_user(name))?;
        let is_blocked = bucket.record.block.as_ref().and_then(|block| block.block_public_acls).unwrap_or_default();
        if is_blocked && acl.as_ref().is_some_and(Acl::is_public) {
            return Err(s3_error!(AccessDenied, "public ACLs are blocked on this bucket"));
        }
        Ok((owner.to_owned(), acl.filter(|acl| *acl != Acl::private(owner))))
    }

    pub(super) async fn put_object(&self, mut request: S3Request<PutObjectInput>) -> S3Result<PutObjectOutput> {
        refuse_unmet!(request.input);
        if self.0.keyed(&request.input.bucket).is_some() {
            return self.put_keyed(request).await;
        }
        let gateway = &self.0;
        let user = gateway.user(&request);
        let bucket = gateway.bucket(&request.input.bucket)?;
        KeyPath::parse(&request.input.key)?;
        let claims = Claims::of(&request.headers)?;
        let announced = announced(&request)?;
        let trailers = request.trailing_headers.take();
        let input = &mut request.input;
        let (owner, acl) = self.asked_acl(
            &bucket,
            user.as_ref(),
            input.acl.as_ref().map(ObjectCannedACL::as_str),
            &object_grants!(input),
        )?;
        let tags = super::tags::of_header(input.tagging.as_deref())?;
        let mut meta = request_metadata!(input).meta(&owner)?;
        let body = input.body.take();
        let conditions = Conditions {
            matches: input.if_match.as_ref(),
            none_matches: input.if_none_match.as_ref(),
            ..Conditions::default()
        };
        if !conditions.is_empty() {
            let there = gateway.object(&bucket, &input.key, None).ok().map(|object| object.etag());
            conditions.check_write(there.as_ref(), &input.key)?; // before the body arrives; checked again when it counts
        }
        let make = || gateway.new_file(&bucket, user.as_ref());
        let received = receive(body, make, &claims, announced, trailers).await?;
        meta.etag = received.sums.etag();
        meta.checksums = received.sums.checksums;
        if !meta.checksums.is_empty() {
            meta.checksum_type = Some(ChecksumType::FULL_OBJECT.into());
        }
        let sums = meta.checksums.clone();
        let put = gateway.put(Putting {
            bucket: &bucket,
            key: &input.key,
            user: user.as_ref(),
            source: received.content.source(),
            meta,
            tags,
            acl,
            parts: None,
            conditions,
        })?;
        let sum = |word: &str| sums.get(word).cloned();
        Ok(PutObjectOutput {
            e_tag: Some(put.etag),
            version_id: put.version,
            checksum_crc32: sum("CRC32"),
            checksum_crc32c: sum("CRC32C"),
            checksum_crc64nvme: sum("CRC64NVME"),
            checksum_sha1: sum("SHA1"),
            checksum_sha256: sum("SHA256"),
            checksum_type: (!sums.is_empty()).then(|| ChecksumType::from_static(ChecksumType::FULL_OBJECT)),
            ..Default::default()
        })
    }

    pub(super) async fn post_object(&self, mut request: S3Request<PostObjectInput>) -> S3Result<PostObjectOutput> {
        refuse_unmet!(request.input);
        let gateway = &self.0;
        let user = gateway.user(&request);
        let bucket = gateway.bucket(&request.input.bucket)?;
        let input = &mut request.input;
        if input.key.contains("${filename}") {
            return Err(s3_error!(NotImplemented, "the name of a form's file is not known here: give the whole key"));
        }
        KeyPath::parse(&input.key)?;
        let (owner, acl) = self.asked_acl(
            &bucket,
            user.as_ref(),
            input.acl.as_ref().map(ObjectCannedACL::as_str),
            &object_grants!(input),
        )?;
        let tags = super::tags::of_form(input.tagging.as_deref())?;
        let mut meta = request_metadata!(input).meta(&owner)?;
        let mut claims = Claims::default();
        for (algorithm, sum) in [
            ("CRC32", input.checksum_crc32.take()),
            ("CRC32C", input.checksum_crc32c.take()),
            ("CRC64NVME", input.checksum_crc64nvme.take()),
            ("SHA1", input.checksum_sha1.take()),
            ("SHA256", input.checksum_sha256.take()),
        ] {
            claims.sums.extend(sum.map(|sum| (algorithm, sum)));
        }
        let make = || gateway.new_file(&bucket, user.as_ref());
        let received = receive(input.body.take(), make, &claims, None, None).await?;
        meta.etag = received.sums.etag();
        meta.checksums = received.sums.checksums;
        let conditions = Conditions::default();
        let put = gateway.put(Putting {
            bucket: &bucket,
            key: &input.key,
            user: user.as_ref(),
            source: received.content.source(),
            meta,
            tags,
            acl,
            parts: None,
            conditions,
        })?;
        Ok(PostObjectOutput { e_tag: Some(put.etag), version_id: put.version, ..Default::default() })
    }

    pub(super) fn delete_object(&self, request: S3Request<DeleteObjectInput>) -> S3Result<DeleteObjectOutput> {
        let input = &request.input;
        if self.0.keyed(&input.bucket).is_some() {
            return self.delete_keyed(&input.bucket, &input.key);
        }
        let bucket = self.0.bucket(&input.bucket)?;
        let user = self.0.user(&request);
        let may = |object: &Object| may_delete(object, input);
        let deleted = self.0.delete(
            &bucket,
            &input.key,
            input.version_id.as_deref(),
            user.as_ref(),
            (&may, is_conditional(input)),
        )?;
        Ok(DeleteObjectOutput {
            delete_marker: deleted.is_marker.then_some(true),
            version_id: deleted.version,
            ..Default::default()
        })
    }

    pub(super) fn delete_objects(&self, mut request: S3Request<DeleteObjectsInput>) -> S3Result<DeleteObjectsOutput> {
        if self.0.keyed(&request.input.bucket).is_some() {
            return self.delete_many_keyed(request);
        }
        let bucket = self.0.bucket(&request.input.bucket)?;
        let user = self.0.user(&request);
        let wanted = std::mem::take(&mut request.input.delete.objects);
        if wanted.is_empty() || wanted.len() > DELETE_MAX {
            return Err(s3_error!(MalformedXML, "1 to {DELETE_MAX} keys are deleted at once"));
        }
        let is_quiet = request.input.delete.quiet.unwrap_or_default();
        let (mut gone, mut errors) = (Vec::new(), Vec::new());
        for one in wanted {
            alive::check()?;
            let verdict = self.may_delete_one(&request, &bucket, &one);
            let input = DeleteObjectInput {
                bucket: bucket.name.clone(),
                bypass_governance_retention: None,
                expected_bucket_owner: None,
                if_match: one.e_tag.clone().map(ETagCondition::ETag),
                if_match_last_modified_time: one.last_modified_time.clone(),
                if_match_size: one.size,
                key: one.key.clone(),
                mfa: None,
                request_payer: None,
                version_id: one.version_id.clone(),
            };
            let may = |object: &Object| may_delete(object, &input);
            let may: (&dyn Fn(&Object) -> S3Result<()>, bool) = (&may, is_conditional(&input));
            let done =
                verdict.and_then(|()| self.0.delete(&bucket, &one.key, one.version_id.as_deref(), user.as_ref(), may));
            match done {
                Ok(_) if is_quiet => {}
                Ok(done) => gone.push(DeletedObject {
                    delete_marker: done.is_marker.then_some(true),
                    delete_marker_version_id: done.version.clone().filter(|_| done.is_marker),
                    key: Some(one.key),
                    version_id: one.version_id,
                }),
                Err(error) => errors.push(Error {
                    code: Some(error.code().as_str().to_owned()),
                    key: Some(one.key),
                    message: error.message().map(ToOwned::to_owned),
                    version_id: one.version_id,
                }),
            }
        }
        Ok(DeleteObjectsOutput { deleted: Some(gone), errors: Some(errors), ..Default::default() })
    }
}

/// Refuses ACLs: the bucket's owner owns every object in it.
pub(super) fn no_acls() -> s3s::S3Error {
    let mut error = crate::failure::custom("AccessControlListNotSupported", 400);
    error.set_message("The bucket does not allow ACLs");
    error
}

fn is_conditional(input: &DeleteObjectInput) -> bool {
    input.if_match.is_some() || input.if_match_size.is_some() || input.if_match_last_modified_time.is_some()
}

fn may_delete(object: &Object, input: &DeleteObjectInput) -> S3Result<()> {
    let failed = || s3_error!(PreconditionFailed, "At least one of the pre-conditions you specified did not hold");
    Conditions { matches: input.if_match.as_ref(), ..Conditions::default() }
        .check_write(Some(&object.etag()), &input.key)?;
    if input.if_match_size.is_some_and(|size| size as u64 != object.size_bytes()) {
        return Err(failed());
    }
    let is_then = |time: &Timestamp| {
        let wanted = time::OffsetDateTime::from(time.clone()).unix_timestamp();
        wanted == object.attr.modified.s
    };
    if input.if_match_last_modified_time.as_ref().is_some_and(|time| !is_then(time)) {
        return Err(failed());
    }
    Ok(())
}
