//! The operations of S3 in the library's types: each reads a request, calls the gateway, and writes the answer.
#![allow(clippy::needless_pass_by_value, reason = "the library hands requests over, and all operations have one shape")]

mod access;
mod buckets;
mod copying;
mod described;
mod keyed;
mod lists;
mod objects;
mod reading;
mod rights;
mod tags;
mod uploads;

use std::sync::Arc;

pub use access::Peer;
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput, CompleteMultipartUploadOutput,
    CopyObjectInput, CopyObjectOutput, CreateBucketInput, CreateBucketOutput, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, DeleteBucketCorsInput, DeleteBucketCorsOutput, DeleteBucketInput,
    DeleteBucketLifecycleInput, DeleteBucketLifecycleOutput, DeleteBucketOutput, DeleteBucketOwnershipControlsInput,
    DeleteBucketOwnershipControlsOutput, DeleteBucketPolicyInput, DeleteBucketPolicyOutput, DeleteBucketTaggingInput,
    DeleteBucketTaggingOutput, DeleteObjectInput, DeleteObjectOutput, DeleteObjectTaggingInput,
    DeleteObjectTaggingOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletePublicAccessBlockInput,
    DeletePublicAccessBlockOutput, GetBucketAclInput, GetBucketAclOutput, GetBucketCorsInput, GetBucketCorsOutput,
    GetBucketEncryptionInput, GetBucketEncryptionOutput, GetBucketLifecycleConfigurationInput,
    GetBucketLifecycleConfigurationOutput, GetBucketLocationInput, GetBucketLocationOutput,
    GetBucketOwnershipControlsInput, GetBucketOwnershipControlsOutput, GetBucketPolicyInput, GetBucketPolicyOutput,
    GetBucketPolicyStatusInput, GetBucketPolicyStatusOutput, GetBucketReplicationInput, GetBucketReplicationOutput,
    GetBucketRequestPaymentInput, GetBucketRequestPaymentOutput, GetBucketTaggingInput, GetBucketTaggingOutput,
    GetBucketVersioningInput, GetBucketVersioningOutput, GetBucketWebsiteInput, GetBucketWebsiteOutput,
    GetObjectAclInput, GetObjectAclOutput, GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectInput,
    GetObjectLockConfigurationInput, GetObjectLockConfigurationOutput, GetObjectOutput, GetObjectTaggingInput,
    GetObjectTaggingOutput, GetPublicAccessBlockInput, GetPublicAccessBlockOutput, HeadBucketInput, HeadBucketOutput,
    HeadObjectInput, HeadObjectOutput, ListBucketsInput, ListBucketsOutput, ListMultipartUploadsInput,
    ListMultipartUploadsOutput, ListObjectVersionsInput, ListObjectVersionsOutput, ListObjectsInput, ListObjectsOutput,
    ListObjectsV2Input, ListObjectsV2Output, ListPartsInput, ListPartsOutput, PostObjectInput, PostObjectOutput,
    PutBucketAclInput, PutBucketAclOutput, PutBucketCorsInput, PutBucketCorsOutput,
    PutBucketLifecycleConfigurationInput, PutBucketLifecycleConfigurationOutput, PutBucketOwnershipControlsInput,
    PutBucketOwnershipControlsOutput, PutBucketPolicyInput, PutBucketPolicyOutput, PutBucketTaggingInput,
    PutBucketTaggingOutput, PutBucketVersioningInput, PutBucketVersioningOutput, PutObjectAclInput, PutObjectAclOutput,
    PutObjectInput, PutObjectOutput, PutObjectTaggingInput, PutObjectTaggingOutput, PutPublicAccessBlockInput,
    PutPublicAccessBlockOutput, UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3, S3Request, S3Response, S3Result};

use crate::gateway::Gateway;

/// Implementation of the operations.
#[derive(Clone)]
pub struct Service(pub Arc<Gateway>);

/// Forwards each of the library's operations to the method of the same name here.
macro_rules! operations {
    (later { $($later:ident($later_input:ident) -> $later_output:ident,)* } at_once { $($name:ident($input:ident) -> $output:ident,)* }) => {
        #[async_trait::async_trait]
        impl S3 for Service {
            $(async fn $later(&self, request: S3Request<$later_input>) -> S3Result<S3Response<$later_output>> {
                Service::$later(self, request).await.map(S3Response::new)
            })*
            $(async fn $name(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                Service::$name(self, request).map(S3Response::new)
            })*
            async fn head_object(&self, request: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
                let (output, headers) = Service::head_object(self, &request)?;
                Ok(S3Response::with_headers(output, headers))
            }
            async fn delete_bucket(&self, request: S3Request<DeleteBucketInput>) -> S3Result<S3Response<DeleteBucketOutput>> {
                Service::drop_bucket(self, &request.input.bucket).map(S3Response::new)
            }
        }
    };
}

operations! {
    later {
        put_object(PutObjectInput) -> PutObjectOutput,
        post_object(PostObjectInput) -> PostObjectOutput,
        upload_part(UploadPartInput) -> UploadPartOutput,
    }
    at_once {
        get_object(GetObjectInput) -> GetObjectOutput,
        delete_object(DeleteObjectInput) -> DeleteObjectOutput,
        delete_objects(DeleteObjectsInput) -> DeleteObjectsOutput,
        copy_object(CopyObjectInput) -> CopyObjectOutput,
        get_object_attributes(GetObjectAttributesInput) -> GetObjectAttributesOutput,
        get_object_tagging(GetObjectTaggingInput) -> GetObjectTaggingOutput,
        put_object_tagging(PutObjectTaggingInput) -> PutObjectTaggingOutput,
        delete_object_tagging(DeleteObjectTaggingInput) -> DeleteObjectTaggingOutput,
        get_object_acl(GetObjectAclInput) -> GetObjectAclOutput,
        put_object_acl(PutObjectAclInput) -> PutObjectAclOutput,
        create_multipart_upload(CreateMultipartUploadInput) -> CreateMultipartUploadOutput,
        upload_part_copy(UploadPartCopyInput) -> UploadPartCopyOutput,
        complete_multipart_upload(CompleteMultipartUploadInput) -> CompleteMultipartUploadOutput,
        abort_multipart_upload(AbortMultipartUploadInput) -> AbortMultipartUploadOutput,
        list_parts(ListPartsInput) -> ListPartsOutput,
        list_multipart_uploads(ListMultipartUploadsInput) -> ListMultipartUploadsOutput,
        list_buckets(ListBucketsInput) -> ListBucketsOutput,
        list_objects(ListObjectsInput) -> ListObjectsOutput,
        list_objects_v2(ListObjectsV2Input) -> ListObjectsV2Output,
        list_object_versions(ListObjectVersionsInput) -> ListObjectVersionsOutput,
        create_bucket(CreateBucketInput) -> CreateBucketOutput,
        head_bucket(HeadBucketInput) -> HeadBucketOutput,
        get_bucket_location(GetBucketLocationInput) -> GetBucketLocationOutput,
        get_bucket_versioning(GetBucketVersioningInput) -> GetBucketVersioningOutput,
        put_bucket_versioning(PutBucketVersioningInput) -> PutBucketVersioningOutput,
        get_bucket_acl(GetBucketAclInput) -> GetBucketAclOutput,
        put_bucket_acl(PutBucketAclInput) -> PutBucketAclOutput,
        get_bucket_policy(GetBucketPolicyInput) -> GetBucketPolicyOutput,
        put_bucket_policy(PutBucketPolicyInput) -> PutBucketPolicyOutput,
        delete_bucket_policy(DeleteBucketPolicyInput) -> DeleteBucketPolicyOutput,
        get_bucket_policy_status(GetBucketPolicyStatusInput) -> GetBucketPolicyStatusOutput,
        get_bucket_cors(GetBucketCorsInput) -> GetBucketCorsOutput,
        put_bucket_cors(PutBucketCorsInput) -> PutBucketCorsOutput,
        delete_bucket_cors(DeleteBucketCorsInput) -> DeleteBucketCorsOutput,
        get_bucket_tagging(GetBucketTaggingInput) -> GetBucketTaggingOutput,
        put_bucket_tagging(PutBucketTaggingInput) -> PutBucketTaggingOutput,
        delete_bucket_tagging(DeleteBucketTaggingInput) -> DeleteBucketTaggingOutput,
        get_bucket_lifecycle_configuration(GetBucketLifecycleConfigurationInput) -> GetBucketLifecycleConfigurationOutput,
        put_bucket_lifecycle_configuration(PutBucketLifecycleConfigurationInput) -> PutBucketLifecycleConfigurationOutput,
        delete_bucket_lifecycle(DeleteBucketLifecycleInput) -> DeleteBucketLifecycleOutput,
        get_bucket_ownership_controls(GetBucketOwnershipControlsInput) -> GetBucketOwnershipControlsOutput,
        put_bucket_ownership_controls(PutBucketOwnershipControlsInput) -> PutBucketOwnershipControlsOutput,
        delete_bucket_ownership_controls(DeleteBucketOwnershipControlsInput) -> DeleteBucketOwnershipControlsOutput,
        get_public_access_block(GetPublicAccessBlockInput) -> GetPublicAccessBlockOutput,
        put_public_access_block(PutPublicAccessBlockInput) -> PutPublicAccessBlockOutput,
        delete_public_access_block(DeletePublicAccessBlockInput) -> DeletePublicAccessBlockOutput,
        get_bucket_encryption(GetBucketEncryptionInput) -> GetBucketEncryptionOutput,
        get_bucket_request_payment(GetBucketRequestPaymentInput) -> GetBucketRequestPaymentOutput,
        get_bucket_website(GetBucketWebsiteInput) -> GetBucketWebsiteOutput,
        get_bucket_replication(GetBucketReplicationInput) -> GetBucketReplicationOutput,
        get_object_lock_configuration(GetObjectLockConfigurationInput) -> GetObjectLockConfigurationOutput,
    }
}

/// Collects an object's metadata from fields that several requests have in common.
macro_rules! request_metadata {
    ($input:expr) => {
        crate::api::described::RequestMetadata {
            content_type: $input.content_type.take(),
            cache_control: $input.cache_control.take(),
            content_disposition: $input.content_disposition.take(),
            content_encoding: $input.content_encoding.take(),
            content_language: $input.content_language.take(),
            expires: $input.expires.take(),
            redirect: $input.website_redirect_location.take(),
            storage_class: $input.storage_class.take().map(|class| class.as_str().to_owned()),
            metadata: $input.metadata.take(),
        }
    };
}

/// Refuses what is not implemented: encryption by the server, object locks.
macro_rules! refuse_unmet {
    ($input:expr) => {
        if $input.server_side_encryption.is_some()
            || $input.sse_customer_algorithm.is_some()
            || $input.sse_customer_key.is_some()
            || $input.ssekms_key_id.is_some()
        {
            return Err(s3s::s3_error!(
                NotImplemented,
                "objects are not encrypted here; put them without asking for it"
            ));
        }
        if $input.object_lock_mode.is_some()
            || $input.object_lock_legal_hold_status.is_some()
            || $input.object_lock_retain_until_date.is_some()
        {
            return Err(s3s::s3_error!(
                InvalidRequest,
                "Bucket is missing Object Lock Configuration: objects are not locked here"
            ));
        }
    };
}

/// Collects the grants in the headers of a request about an object.
macro_rules! object_grants {
    ($input:expr) => {
        crate::acl::GrantHeaders {
            read: $input.grant_read.as_deref(),
            write: None,
            read_acp: $input.grant_read_acp.as_deref(),
            write_acp: $input.grant_write_acp.as_deref(),
            full: $input.grant_full_control.as_deref(),
        }
    };
}

use {object_grants, refuse_unmet, request_metadata};
