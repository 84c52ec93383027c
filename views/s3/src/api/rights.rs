//! ACLs of buckets and objects, policies, and blocks of public access.

use s3s::dto::{
    AccessControlPolicy, BucketCannedACL, DeleteBucketOwnershipControlsInput, DeleteBucketOwnershipControlsOutput,
    DeleteBucketPolicyInput, DeleteBucketPolicyOutput, DeletePublicAccessBlockInput, DeletePublicAccessBlockOutput,
    GetBucketAclInput, GetBucketAclOutput, GetBucketOwnershipControlsInput, GetBucketOwnershipControlsOutput,
    GetBucketPolicyInput, GetBucketPolicyOutput, GetBucketPolicyStatusInput, GetBucketPolicyStatusOutput,
    GetObjectAclInput, GetObjectAclOutput, GetPublicAccessBlockInput, GetPublicAccessBlockOutput, ObjectCannedACL,
    ObjectOwnership, OwnershipControls, OwnershipControlsRule, PolicyStatus, PutBucketAclInput, PutBucketAclOutput,
    PutBucketOwnershipControlsInput, PutBucketOwnershipControlsOutput, PutBucketPolicyInput, PutBucketPolicyOutput,
    PutObjectAclInput, PutObjectAclOutput, PutPublicAccessBlockInput, PutPublicAccessBlockOutput,
};
use s3s::{S3Request, S3Result, s3_error};

use super::objects::no_acls;
use super::{Service, object_grants};
use crate::acl::{Acl, GrantHeaders};
use crate::bucket::Bucket;
use crate::meta::{ACL, encode};
use crate::objects::Object;
use crate::policy::Policy;

impl Service {
    /// Returns the ACL of an object.
    pub(super) fn acl_of(&self, bucket: &Bucket, object: &Object) -> S3Result<Acl> {
        if bucket.record.ownership.as_deref() == Some(ObjectOwnership::BUCKET_OWNER_ENFORCED) {
            return Ok(Acl::private(&bucket.owner()));
        }
        let kept = self.0.xattr(object.attr.ino, ACL)?.and_then(|value| serde_json::from_slice(&value).ok());
        let owner = object.meta.as_ref().map(|meta| meta.owner.clone()).filter(|owner| !owner.is_empty());
        Ok(kept.unwrap_or_else(|| Acl::private(&owner.unwrap_or_else(|| bucket.owner()))))
    }
    fn new_acl(
        &self,
        bucket: &Bucket,
        owner: &str,
        (word, headers, body): (Option<&str>, &GrantHeaders<'_>, Option<AccessControlPolicy>),
    ) -> S3Result<Acl> {
        if bucket.record.ownership.as_deref() == Some(ObjectOwnership::BUCKET_OWNER_ENFORCED) {
            return Err(no_acls());
        }
        let is_user = |name: &str| self.0.is_user(name);
        let asked = Acl::asked(word, headers, (owner, &bucket.owner()), is_user)?;
        let acl = match (asked, body) {
            (Some(acl), None) => acl,
            (None, Some(body)) => Acl::of_body(body, owner, is_user)?,
            (Some(_), Some(_)) => {
                return Err(s3_error!(UnexpectedContent, "give a canned ACL, grants or a body, one of them"));
            }
            (None, None) => return Err(s3_error!(MissingSecurityHeader, "give a canned ACL, grants or a body")),
        };
        let is_blocked = bucket.record.block.as_ref().and_then(|block| block.block_public_acls).unwrap_or_default();
        if is_blocked && acl.is_public() {
            return Err(s3_error!(AccessDenied, "public ACLs are blocked on this bucket"));
        }
        Ok(acl)
    }
    pub(super) fn get_bucket_acl(&self, request: S3Request<GetBucketAclInput>) -> S3Result<GetBucketAclOutput> {
        let (owner, grants) = self.0.bucket(&request.input.bucket)?.acl().told();
        Ok(GetBucketAclOutput { grants: Some(grants), owner: Some(owner) })
    }
    pub(super) fn put_bucket_acl(&self, request: S3Request<PutBucketAclInput>) -> S3Result<PutBucketAclOutput> {
        let input = request.input;
        let bucket = self.0.bucket(&input.bucket)?;
        let headers = GrantHeaders {
            read: input.grant_read.as_deref(),
            write: input.grant_write.as_deref(),
            read_acp: input.grant_read_acp.as_deref(),
            write_acp: input.grant_write_acp.as_deref(),
            full: input.grant_full_control.as_deref(),
        };
        let word = input.acl.as_ref().map(BucketCannedACL::as_str);
        let acl = self.new_acl(&bucket, &bucket.owner(), (word, &headers, input.access_control_policy.clone()))?;
        self.0.buckets.change(&input.bucket, |record| record.acl = Some(acl))?;
        Ok(PutBucketAclOutput::default())
    }
    pub(super) fn get_object_acl(&self, request: S3Request<GetObjectAclInput>) -> S3Result<GetObjectAclOutput> {
        let input = request.input;
        let bucket = self.0.bucket(&input.bucket)?;
        let acl = |object| self.acl_of(&bucket, &object);
        let (owner, grants) = self.0.about(&bucket, &input.key, input.version_id.as_deref(), acl)?.told();
        Ok(GetObjectAclOutput { grants: Some(grants), owner: Some(owner), ..Default::default() })
    }
    pub(super) fn put_object_acl(&self, request: S3Request<PutObjectAclInput>) -> S3Result<PutObjectAclOutput> {
        let input = request.input;
        let bucket = self.0.bucket(&input.bucket)?;
        let word = input.acl.as_ref().map(ObjectCannedACL::as_str);
        self.0.about(&bucket, &input.key, input.version_id.as_deref(), |object| {
            let owner = self.acl_of(&bucket, &object)?.owner;
            let asked = (word, &object_grants!(input), input.access_control_policy.clone());
            let acl = self.new_acl(&bucket, &owner, asked)?;
            self.0.set_or_remove(object.attr.ino, ACL, Some(&encode(&acl)))
        })?;
        Ok(PutObjectAclOutput::default())
    }

    pub(super) fn get_bucket_policy(
        &self,
        request: S3Request<GetBucketPolicyInput>,
    ) -> S3Result<GetBucketPolicyOutput> {
        let bucket = self.0.bucket(&request.input.bucket)?;
        let policy = bucket.record.policy.clone();
        let policy = policy.ok_or_else(|| s3_error!(NoSuchBucketPolicy, "The bucket policy does not exist"))?;
        Ok(GetBucketPolicyOutput { policy: Some(policy) })
    }
    pub(super) fn put_bucket_policy(
        &self,
        request: S3Request<PutBucketPolicyInput>,
    ) -> S3Result<PutBucketPolicyOutput> {
        let input = request.input;
        let bucket = self.0.bucket(&input.bucket)?;
        let policy = Policy::parse(&input.policy, &input.bucket)?;
        let is_blocked = bucket.record.block.as_ref().and_then(|block| block.block_public_policy).unwrap_or_default();
        if is_blocked && policy.is_public() {
            return Err(s3_error!(AccessDenied, "public policies are blocked on this bucket"));
        }
        self.0.buckets.change(&input.bucket, |record| record.policy = Some(input.policy))?;
        Ok(PutBucketPolicyOutput {})
    }
    pub(super) fn delete_bucket_policy(
        &self,
        request: S3Request<DeleteBucketPolicyInput>,
    ) -> S3Result<DeleteBucketPolicyOutput> {
        self.0.buckets.change(&request.input.bucket, |record| record.policy = None)?;
        Ok(DeleteBucketPolicyOutput {})
    }
    pub(super) fn get_bucket_policy_status(
        &self,
        request: S3Request<GetBucketPolicyStatusInput>,
    ) -> S3Result<GetBucketPolicyStatusOutput> {
        let bucket = self.0.bucket(&request.input.bucket)?;
        let by_policy = bucket.policy.as_ref().is_some_and(Policy::is_public);
        let is_public = by_policy || (bucket.acl().is_public() && !bucket.ignores_public());
        Ok(GetBucketPolicyStatusOutput { policy_status: Some(PolicyStatus { is_public: Some(is_public) }) })
    }

    pub(super) fn get_public_access_block(
        &self,
        request: S3Request<GetPublicAccessBlockInput>,
    ) -> S3Result<GetPublicAccessBlockOutput> {
        let bucket = self.0.bucket(&request.input.bucket)?;
        let block = bucket.record.block.clone();
        let block = block.ok_or_else(|| {
            let mut error = crate::failure::custom("NoSuchPublicAccessBlockConfiguration", 404);
            error.set_message("The public access block configuration was not found");
            error
        })?;
        Ok(GetPublicAccessBlockOutput { public_access_block_configuration: Some(block) })
    }
    pub(super) fn put_public_access_block(
        &self,
        request: S3Request<PutPublicAccessBlockInput>,
    ) -> S3Result<PutPublicAccessBlockOutput> {
        let mut block = request.input.public_access_block_configuration;
        for setting in [
            &mut block.block_public_acls,
            &mut block.block_public_policy,
            &mut block.ignore_public_acls,
            &mut block.restrict_public_buckets,
        ] {
            setting.get_or_insert(false);
        }
        self.0.buckets.change(&request.input.bucket, |record| record.block = Some(block))?;
        Ok(PutPublicAccessBlockOutput {})
    }
    pub(super) fn delete_public_access_block(
        &self,
        request: S3Request<DeletePublicAccessBlockInput>,
    ) -> S3Result<DeletePublicAccessBlockOutput> {
        self.0.buckets.change(&request.input.bucket, |record| record.block = None)?;
        Ok(DeletePublicAccessBlockOutput {})
    }
    pub(super) fn get_bucket_ownership_controls(
        &self,
        request: S3Request<GetBucketOwnershipControlsInput>,
    ) -> S3Result<GetBucketOwnershipControlsOutput> {
        let bucket = self.0.bucket(&request.input.bucket)?;
        let word = bucket.record.ownership.clone();
        let word = word
            .ok_or_else(|| s3_error!(OwnershipControlsNotFoundError, "The bucket ownership controls were not found"))?;
        let rules = vec![OwnershipControlsRule { object_ownership: ObjectOwnership::from(word) }];
        Ok(GetBucketOwnershipControlsOutput { ownership_controls: Some(OwnershipControls { rules }) })
    }
    pub(super) fn put_bucket_ownership_controls(
        &self,
        request: S3Request<PutBucketOwnershipControlsInput>,
    ) -> S3Result<PutBucketOwnershipControlsOutput> {
        let input = request.input;
        let rule = input.ownership_controls.rules.into_iter().next();
        let word = rule.map(|rule| rule.object_ownership.as_str().to_owned());
        let word = word.ok_or_else(|| s3_error!(MalformedXML, "ownership controls have a rule"))?;
        let acl = self.0.bucket(&input.bucket)?.acl();
        if word == ObjectOwnership::BUCKET_OWNER_ENFORCED && acl != Acl::private(&acl.owner) {
            let mut error = crate::failure::custom("InvalidBucketAclWithObjectOwnership", 400);
            error.set_message("Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting");
            return Err(error);
        }
        self.0.buckets.change(&input.bucket, |record| record.ownership = Some(word))?;
        Ok(PutBucketOwnershipControlsOutput {})
    }
    pub(super) fn delete_bucket_ownership_controls(
        &self,
        request: S3Request<DeleteBucketOwnershipControlsInput>,
    ) -> S3Result<DeleteBucketOwnershipControlsOutput> {
        self.0.buckets.change(&request.input.bucket, |record| record.ownership = None)?;
        Ok(DeleteBucketOwnershipControlsOutput {})
    }
}
