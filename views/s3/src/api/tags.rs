//! Tags of objects and buckets.

use std::collections::HashSet;

use s3s::dto::{
    DeleteBucketTaggingInput, DeleteBucketTaggingOutput, DeleteObjectTaggingInput, DeleteObjectTaggingOutput,
    GetBucketTaggingInput, GetBucketTaggingOutput, GetObjectTaggingInput, GetObjectTaggingOutput,
    PutBucketTaggingInput, PutBucketTaggingOutput, PutObjectTaggingInput, PutObjectTaggingOutput, Tag, TagSet, Tagging,
};
use s3s::{S3Request, S3Result, s3_error};

use super::Service;
use crate::meta::{TAGS, encode};
use crate::objects::Object;

/// S3's limit of tags of an object.
const OBJECT_MAX: usize = 10;
/// S3's limit of tags of a bucket.
const BUCKET_MAX: usize = 50;

type Tags = Vec<(String, String)>;

/// Returns the tags, or an error for tags that S3 does not allow.
fn checked(mut tags: Tags, max: usize) -> S3Result<Tags> {
    if tags.len() > max {
        return Err(s3_error!(InvalidTag, "there cannot be more than {max} tags"));
    }
    let mut names = HashSet::new();
    for (name, value) in &tags {
        if name.is_empty() || name.chars().count() > 128 {
            return Err(s3_error!(InvalidTag, "The TagKey you have provided is invalid"));
        }
        if value.chars().count() > 256 {
            return Err(s3_error!(InvalidTag, "The TagValue you have provided is invalid"));
        }
        if !names.insert(name) {
            return Err(s3_error!(InvalidTag, "Cannot provide multiple Tags with the same key"));
        }
    }
    tags.sort();
    Ok(tags)
}

/// Parses tags in a header: in query form.
pub fn of_header(text: Option<&str>) -> S3Result<Tags> {
    let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let tags = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (url_decoded(name), url_decoded(value))
    });
    checked(tags.collect(), OBJECT_MAX)
}

/// Parses tags in a form: XML, or in query form.
pub fn of_form(text: Option<&str>) -> S3Result<Tags> {
    let text = text.unwrap_or_default().trim();
    if !text.starts_with('<') {
        return of_header(Some(text));
    }
    let mut deserializer = s3s::xml::Deserializer::new(text.as_bytes());
    let tagging: Tagging = s3s::xml::Deserialize::deserialize(&mut deserializer)
        .map_err(|error| s3_error!(error, MalformedXML, "the tags are not what they should be"))?;
    of_set(tagging.tag_set, OBJECT_MAX)
}

fn of_set(set: TagSet, max: usize) -> S3Result<Tags> {
    let tags = set.into_iter().map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default()));
    checked(tags.collect(), max)
}

fn told(tags: Tags) -> TagSet {
    tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) }).collect()
}

pub fn url_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match (bytes[at], code.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                at += 3;
                continue;
            }
            (b'+', _) => decoded.push(b' '),
            (byte, _) => decoded.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

impl Service {
    /// Returns the tags of an object.
    pub(super) fn tags_of(&self, object: &Object) -> S3Result<Tags> {
        let value = self.0.xattr(object.attr.ino, TAGS)?;
        Ok(value.and_then(|value| serde_json::from_slice(&value).ok()).unwrap_or_default())
    }
    fn set_tags(&self, bucket: &str, key: &str, version: Option<&str>, tags: &Tags) -> S3Result<Option<String>> {
        let bucket = self.0.bucket(bucket)?;
        let value = (!tags.is_empty()).then(|| encode(tags));
        self.0.about(&bucket, key, version, |object| {
            self.0.set_or_remove(object.attr.ino, TAGS, value.as_deref())?;
            Ok(object.version)
        })
    }
    pub(super) fn get_object_tagging(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<GetObjectTaggingOutput> {
        let input = request.input;
        let bucket = self.0.bucket(&input.bucket)?;
        self.0.about(&bucket, &input.key, input.version_id.as_deref(), |object| {
            Ok(GetObjectTaggingOutput { tag_set: told(self.tags_of(&object)?), version_id: object.version })
        })
    }
    pub(super) fn put_object_tagging(
        &self,
        request: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<PutObjectTaggingOutput> {
        let input = request.input;
        let tags = of_set(input.tagging.tag_set, OBJECT_MAX)?;
        let version_id = self.set_tags(&input.bucket, &input.key, input.version_id.as_deref(), &tags)?;
        Ok(PutObjectTaggingOutput { version_id })
    }
    pub(super) fn delete_object_tagging(
        &self,
        request: S3Request<DeleteObjectTaggingInput>,
    ) -> S3Result<DeleteObjectTaggingOutput> {
        let input = request.input;
        let version_id = self.set_tags(&input.bucket, &input.key, input.version_id.as_deref(), &Vec::new())?;
        Ok(DeleteObjectTaggingOutput { version_id })
    }
    pub(super) fn get_bucket_tagging(
        &self,
        request: S3Request<GetBucketTaggingInput>,
    ) -> S3Result<GetBucketTaggingOutput> {
        let bucket = self.0.bucket(&request.input.bucket)?;
        let tags = bucket.record.tags.clone().ok_or_else(|| s3_error!(NoSuchTagSet, "the bucket has no tags"))?;
        Ok(GetBucketTaggingOutput { tag_set: told(tags) })
    }
    pub(super) fn put_bucket_tagging(
        &self,
        request: S3Request<PutBucketTaggingInput>,
    ) -> S3Result<PutBucketTaggingOutput> {
        let tags = of_set(request.input.tagging.tag_set, BUCKET_MAX)?;
        self.0.buckets.change(&request.input.bucket, |record| record.tags = Some(tags))?;
        Ok(PutBucketTaggingOutput {})
    }
    pub(super) fn delete_bucket_tagging(
        &self,
        request: S3Request<DeleteBucketTaggingInput>,
    ) -> S3Result<DeleteBucketTaggingOutput> {
        self.0.buckets.change(&request.input.bucket, |record| record.tags = None)?;
        Ok(DeleteBucketTaggingOutput {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_give_tags() {
        assert_eq!(
            of_header(Some("a=b&c%20d=e+f&g")).unwrap(),
            [("a".into(), "b".into()), ("c d".into(), "e f".into()), ("g".into(), String::new())]
        );
        assert!(of_header(Some("a=1&a=2")).is_err());
        assert!(of_header(Some("%=%zz")).is_ok());
        let many: Vec<String> = (0..11).map(|n| format!("k{n}=v")).collect();
        assert!(of_header(Some(&many.join("&"))).is_err());
    }
}
