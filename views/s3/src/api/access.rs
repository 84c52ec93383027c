//! Access control: the library checks signatures with the secrets from here; this module decides rights.
#![allow(clippy::single_match_else, reason = "rights in one table")]

use std::net::IpAddr;

use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::ObjectIdentifier;
use s3s::path::S3Path;
use s3s::{S3Request, S3Result, s3_error};

use super::Service;
use crate::acl::Right;
use crate::bucket::Bucket;
use crate::failure::of_store;
use crate::keys::User;
use crate::objects::Object;
use crate::policy::{Policy, Question, Verdict};

/// S3's limit for the lifetime of a signed address, in seconds.
const SIGNED_S_MAX: u64 = 7 * 24 * 3600;

/// Origin of a request.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Network address.
    pub address: IpAddr,
    /// Whether the connection uses TLS.
    pub is_secure: bool,
}

/// The ACL permission that an operation needs, and on which list; `Nothing`: only owners and policies allow
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    OfBucket(Right),
    OfObject(Right),
    Nothing,
}

#[async_trait::async_trait]
impl S3Auth for Service {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let key = self.0.keys.key(access_key).map_err(|error| of_store(&error))?;
        key.map(|key| SecretKey::from(key.secret)).ok_or_else(|| {
            s3_error!(InvalidAccessKeyId, "The AWS Access Key Id you provided does not exist in our records.")
        })
    }
}

#[async_trait::async_trait]
impl S3Access for Service {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let user = match cx.credentials() {
            Some(credentials) => Some(self.user_of(&credentials.access_key)?),
            None => None,
        };
        let operation = cx.s3_op().name().to_owned();
        let asked = RequestParts { uri: cx.uri(), headers: cx.headers(), peer: None };
        let lives_s = asked.query("X-Amz-Expires").and_then(|seconds| seconds.parse::<u64>().ok());
        if lives_s.is_some_and(|seconds| seconds > SIGNED_S_MAX) {
            return Err(s3_error!(AccessDenied, "a signed address lives {SIGNED_S_MAX} s at most"));
        }
        let path = match cx.s3_path() {
            S3Path::Root => None,
            S3Path::Bucket { bucket } => Some((bucket.to_string(), None)),
            S3Path::Object { bucket, key } => Some((bucket.to_string(), Some(key.to_string()))),
        };
        let done = match path {
            None => user.as_ref().map(drop).ok_or_else(denied),
            Some((bucket, key)) => self.check_in(cx, user.as_ref(), &operation, &bucket, key.as_deref()),
        };
        if let Some(user) = user {
            cx.extensions_mut().insert(user);
        }
        done
    }
}

impl Service {
    fn user_of(&self, access_key: &str) -> S3Result<User> {
        let key = self.0.keys.key(access_key).map_err(|error| of_store(&error))?.ok_or_else(denied)?;
        self.0.keys.user(&key.user).map_err(|error| of_store(&error))?.ok_or_else(denied)
    }
    fn check_in(
        &self,
        cx: &mut S3AccessContext<'_>,
        user: Option<&User>,
        operation: &str,
        bucket: &str,
        key: Option<&str>,
    ) -> S3Result<()> {
        match operation {
            "CreateBucket" => return user.map(drop).ok_or_else(denied),
            // Each key is checked separately.
            "DeleteObjects" => return Ok(()),
            _ => {}
        }
        // The operation itself reports a missing bucket.
        let Some(bucket) = self.0.buckets.find(self.0.rights_of(bucket))? else { return Ok(()) };
        let wanted = cx.headers().get("x-amz-expected-bucket-owner");
        if wanted.is_some_and(|wanted| wanted.as_bytes() != bucket.owner().as_bytes()) {
            return Err(denied());
        }
        let peer = cx.extensions_mut().get::<Peer>().copied();
        let request = RequestParts { uri: cx.uri(), headers: cx.headers(), peer };
        let version = request.query("versionId");
        let (action, need) = needs(operation, version.is_some());
        self.decide(&bucket, key, user, (&action, need), &request)
    }
    /// Decides whether a user may do something in a bucket.
    fn decide(
        &self,
        bucket: &Bucket,
        key: Option<&str>,
        user: Option<&User>,
        (action, need): (&str, Need),
        request: &RequestParts<'_>,
    ) -> S3Result<()> {
        let is_owner = user.is_some_and(|user| bucket.is_owned_by(user));
        let name = user.map(|user| user.name.as_str());
        if let Some(policy) = &bucket.policy {
            let resource = key.map_or_else(|| bucket.name.clone(), |key| format!("{}/{key}", bucket.name));
            let value = |wanted: &str| self.value(bucket, key, user, wanted, request);
            let verdict = policy.ask(&Question { user: name, action, resource: &resource, value: &value });
            // The bucket's owner can always revoke the policy.
            let is_about_policy = is_owner && action.ends_with("BucketPolicy");
            match verdict {
                Verdict::Deny if !is_about_policy => return Err(denied()),
                Verdict::Allow if is_owner || !is_restricted(bucket, policy) => return Ok(()),
                _ => {}
            }
        }
        if is_owner {
            return Ok(());
        }
        let ignores = bucket.ignores_public();
        let is_granted = match (need, key) {
            (Need::OfBucket(right), _) => bucket.acl().allows(name, right, ignores),
            (Need::OfObject(right), Some(key)) => {
                let allows = |object: Object| {
                    let is_own = object.meta.as_ref().is_some_and(|meta| name == Some(meta.owner.as_str()));
                    Ok(is_own || self.acl_of(bucket, &object)?.allows(name, right, ignores))
                };
                match self.0.about(bucket, key, request.query("versionId").as_deref(), allows) {
                    Ok(allows) => allows,
                    // Only users who may list learn whether a key exists.
                    Err(_) => {
                        let value = |wanted: &str| match wanted {
                            "s3:prefix" => Some(key.to_owned()),
                            _ => self.value(bucket, None, user, wanted, request),
                        };
                        let question =
                            Question { user: name, action: "s3:ListBucket", resource: &bucket.name, value: &value };
                        let verdict = bucket.policy.as_ref().map(|policy| policy.ask(&question));
                        verdict == Some(Verdict::Allow) || bucket.acl().allows(name, Right::Read, ignores)
                    }
                }
            }
            _ => false,
        };
        if is_granted { Ok(()) } else { Err(denied()) }
    }
    /// Checks that the user of a request may read another object.
    pub(super) fn may_read<T>(&self, request: &S3Request<T>, bucket: &str, key: &str) -> S3Result<()> {
        let bucket = self.0.bucket(bucket)?;
        let user = self.0.user(request);
        let asked = RequestParts {
            uri: &request.uri,
            headers: &request.headers,
            peer: request.extensions.get::<Peer>().copied(),
        };
        self.decide(&bucket, Some(key), user.as_ref(), ("s3:GetObject", Need::OfObject(Right::Read)), &asked)
    }
    /// Checks that the user of a request may delete one of several objects.
    pub(super) fn may_delete_one<T>(
        &self,
        request: &S3Request<T>,
        bucket: &Bucket,
        one: &ObjectIdentifier,
    ) -> S3Result<()> {
        let user = self.0.user(request);
        let asked = RequestParts {
            uri: &request.uri,
            headers: &request.headers,
            peer: request.extensions.get::<Peer>().copied(),
        };
        let action = if one.version_id.is_some() { "s3:DeleteObjectVersion" } else { "s3:DeleteObject" };
        self.decide(bucket, Some(&one.key), user.as_ref(), (action, Need::OfBucket(Right::Write)), &asked)
    }
    /// Returns the value of a condition key.
    fn value(
        &self,
        bucket: &Bucket,
        key: Option<&str>,
        user: Option<&User>,
        wanted: &str,
        request: &RequestParts<'_>,
    ) -> Option<String> {
        match wanted {
            "aws:sourceip" => request.peer.map(|peer| peer.address.to_canonical().to_string()),
            "aws:securetransport" => request.peer.map(|peer| peer.is_secure.to_string()),
            "aws:referer" => request.header("referer"),
            "aws:useragent" => request.header("user-agent"),
            "aws:username" | "aws:userid" => user.map(|user| user.name.clone()),
            "aws:principalarn" => user.map(|user| format!("arn:aws:iam:::user/{}", user.name)),
            "s3:prefix" => request.query("prefix"),
            "s3:delimiter" => request.query("delimiter"),
            "s3:max-keys" => request.query("max-keys"),
            "s3:versionid" => request.query("versionId"),
            "s3:signatureversion" => user.map(|_| "AWS4-HMAC-SHA256".to_owned()),
            "s3:authtype" => {
                let is_signed_url = request.query("X-Amz-Signature").is_some();
                user.map(|_| if is_signed_url { "REST-QUERY-STRING" } else { "REST-HEADER" }.to_owned())
            }
            _ => {
                if let Some(tag) = wanted.strip_prefix("s3:existingobjecttag/") {
                    let version = request.query("versionId");
                    let tags = self.0.about(bucket, key?, version.as_deref(), |object| self.tags_of(&object)).ok()?;
                    return tags.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(tag)).map(|(_, value)| value);
                }
                if let Some(tag) = wanted.strip_prefix("s3:requestobjecttag/") {
                    let tags = super::tags::of_header(request.header("x-amz-tagging").as_deref()).ok()?;
                    return tags.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(tag)).map(|(_, value)| value);
                }
                wanted
                    .strip_prefix("s3:")
                    .filter(|name| name.starts_with("x-amz-"))
                    .and_then(|name| request.header(name))
            }
        }
    }
}

/// Returns whether access by a public policy is restricted to the owner.
fn is_restricted(bucket: &Bucket, policy: &Policy) -> bool {
    let block = bucket.record.block.as_ref();
    block.and_then(|block| block.restrict_public_buckets).unwrap_or_default() && policy.is_public()
}

fn denied() -> s3s::S3Error {
    s3_error!(AccessDenied, "Access Denied")
}

/// The parts of a request that conditions refer to.
struct RequestParts<'a> {
    uri: &'a http::Uri,
    headers: &'a http::HeaderMap,
    peer: Option<Peer>,
}

impl RequestParts<'_> {
    fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned)
    }
    fn query(&self, wanted: &str) -> Option<String> {
        let pairs = self.uri.query()?.split('&');
        pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| super::tags::url_decoded(value))
    }
}

/// Returns an operation's action in policies, and the ACL permission that it needs.
fn needs(operation: &str, of_version: bool) -> (String, Need) {
    use Need::{Nothing, OfBucket, OfObject};
    let (action, need) = match operation {
        "GetObject" | "HeadObject" | "SelectObjectContent" if of_version => ("GetObjectVersion", OfObject(Right::Read)),
        "GetObject" | "HeadObject" | "SelectObjectContent" => ("GetObject", OfObject(Right::Read)),
        "GetObjectAttributes" if of_version => ("GetObjectVersionAttributes", OfObject(Right::Read)),
        "GetObjectAttributes" => ("GetObjectAttributes", OfObject(Right::Read)),
        "GetObjectTagging" if of_version => ("GetObjectVersionTagging", Nothing),
        "PutObjectTagging" if of_version => ("PutObjectVersionTagging", Nothing),
        "DeleteObjectTagging" if of_version => ("DeleteObjectVersionTagging", Nothing),
        "GetObjectAcl" if of_version => ("GetObjectVersionAcl", OfObject(Right::ReadAcp)),
        "PutObjectAcl" if of_version => ("PutObjectVersionAcl", OfObject(Right::WriteAcp)),
        "GetObjectAcl" => ("GetObjectAcl", OfObject(Right::ReadAcp)),
        "PutObjectAcl" => ("PutObjectAcl", OfObject(Right::WriteAcp)),
        "PutObject"
        | "PostObject"
        | "CopyObject"
        | "CreateMultipartUpload"
        | "UploadPart"
        | "UploadPartCopy"
        | "CompleteMultipartUpload" => ("PutObject", OfBucket(Right::Write)),
        "AbortMultipartUpload" => ("AbortMultipartUpload", OfBucket(Right::Write)),
        "ListParts" => ("ListMultipartUploadParts", OfBucket(Right::Write)),
        "DeleteObject" if of_version => ("DeleteObjectVersion", OfBucket(Right::Write)),
        "DeleteObject" => ("DeleteObject", OfBucket(Right::Write)),
        "ListObjects" | "ListObjectsV2" | "HeadBucket" => ("ListBucket", OfBucket(Right::Read)),
        "ListObjectVersions" => ("ListBucketVersions", OfBucket(Right::Read)),
        "ListMultipartUploads" => ("ListBucketMultipartUploads", OfBucket(Right::Read)),
        "GetBucketAcl" => ("GetBucketAcl", OfBucket(Right::ReadAcp)),
        "PutBucketAcl" => ("PutBucketAcl", OfBucket(Right::WriteAcp)),
        "GetBucketCors" => ("GetBucketCORS", Nothing),
        "PutBucketCors" | "DeleteBucketCors" => ("PutBucketCORS", Nothing),
        "GetBucketLifecycleConfiguration" => ("GetLifecycleConfiguration", Nothing),
        "PutBucketLifecycleConfiguration" | "DeleteBucketLifecycle" => ("PutLifecycleConfiguration", Nothing),
        "DeleteBucketTagging" => ("PutBucketTagging", Nothing),
        "GetPublicAccessBlock" => ("GetBucketPublicAccessBlock", Nothing),
        "PutPublicAccessBlock" | "DeletePublicAccessBlock" => ("PutBucketPublicAccessBlock", Nothing),
        other => (other, Nothing),
    };
    (format!("s3:{action}"), need)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_actions() {
        assert_eq!(needs("HeadObject", false), ("s3:GetObject".into(), Need::OfObject(Right::Read)));
        assert_eq!(needs("DeleteObject", true), ("s3:DeleteObjectVersion".into(), Need::OfBucket(Right::Write)));
        assert_eq!(needs("PutBucketPolicy", false), ("s3:PutBucketPolicy".into(), Need::Nothing));
    }
}
