//! Operations on buckets whose keys another crate provides (see [`crate::keyed`]).

use s3s::dto::{
    CommonPrefix, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, ETag, Error,
    GetObjectOutput, Object, PutObjectInput, PutObjectOutput, Range, StreamingBlob,
};
use s3s::{Body, S3Request, S3Result, s3_error};

use super::Service;
use super::lists::ListPage;
use super::reading::{GetRequest, TYPE};
use crate::body::{announced, gathered};
use crate::checksum::{Claims, Sums};
use crate::condition::Conditions;
use crate::keyed::{self, Keyed};
use crate::listing::Wanted;
use crate::meta::{now, timestamp};

/// Maximum size of a value: HDF5 chunks are smaller than 4 GiB, and this server holds a value in memory as a whole.
const VALUE_BYTES_MAX: u64 = 1 << 30;

fn etag(value: &[u8]) -> ETag {
    let mut sums = Sums::of(&Claims::default());
    sums.update(value);
    ETag::Strong(sums.finish().etag())
}

/// Returns the requested bytes of a value, and the range in the answer.
fn part<'a>(value: &'a [u8], range: Option<&Range>) -> S3Result<(&'a [u8], Option<String>)> {
    let Some(range) = range else { return Ok((value, None)) };
    let size = value.len() as u64;
    let range = range.check(size)?;
    if range.is_empty() {
        return Err(s3_error!(InvalidRange, "The requested range is not satisfiable"));
    }
    let told = format!("bytes {}-{}/{size}", range.start, range.end - 1);
    Ok((&value[range.start as usize..range.end as usize], Some(told)))
}

/// Answers `GET`, and without the body `HEAD`. Modification times are unknown, so conditions on them are ignored.
pub(super) fn get(keyed: &dyn Keyed, asked: &GetRequest<'_>) -> S3Result<GetObjectOutput> {
    let value = keyed::value(keyed, asked.bucket, asked.key)?;
    let etag = etag(&value);
    let conditions = Conditions {
        matches: asked.conditions.matches,
        none_matches: asked.conditions.none_matches,
        ..Conditions::default()
    };
    let modified = timestamp(now());
    conditions.check_read(&etag, &modified)?;
    let (bytes, told) = part(&value, asked.range)?;
    Ok(GetObjectOutput {
        content_length: Some(bytes.len() as i64),
        body: Some(StreamingBlob::from(Body::from(bytes.to_vec()))),
        accept_ranges: Some("bytes".into()),
        content_range: told,
        content_type: Some(TYPE.into()),
        e_tag: Some(etag),
        last_modified: Some(modified),
        ..Default::default()
    })
}

impl Service {
    pub(super) async fn put_keyed(&self, mut request: S3Request<PutObjectInput>) -> S3Result<PutObjectOutput> {
        let claims = Claims::of(&request.headers)?;
        let announced = announced(&request)?;
        if announced.is_some_and(|bytes| bytes > VALUE_BYTES_MAX) {
            return Err(s3_error!(EntityTooLarge, "a value here takes {VALUE_BYTES_MAX} bytes at most"));
        }
        let trailers = request.trailing_headers.take();
        let input = &mut request.input;
        let (value, sums) = gathered(input.body.take(), &claims, announced, VALUE_BYTES_MAX, trailers).await?;
        let Some(keyed) = self.0.keyed(&input.bucket) else { return Err(s3_error!(NoSuchBucket)) };
        if input.if_none_match.is_some() || input.if_match.is_some() {
            let there = keyed.get(&input.bucket, &input.key).map_err(|error| keyed::failed(&error, &input.key))?;
            let conditions = Conditions {
                matches: input.if_match.as_ref(),
                none_matches: input.if_none_match.as_ref(),
                ..Conditions::default()
            };
            conditions.check_write(there.map(|value| etag(&value)).as_ref(), &input.key)?;
        }
        keyed.set(&input.bucket, &input.key, &value).map_err(|error| keyed::failed(&error, &input.key))?;
        Ok(PutObjectOutput { e_tag: Some(sums), ..Default::default() })
    }
    pub(super) fn delete_keyed(&self, bucket: &str, key: &str) -> S3Result<DeleteObjectOutput> {
        let Some(keyed) = self.0.keyed(bucket) else { return Err(s3_error!(NoSuchBucket)) };
        keyed.delete(bucket, key).map_err(|error| keyed::failed(&error, key))?;
        Ok(DeleteObjectOutput::default())
    }
    pub(super) fn delete_many_keyed(&self, request: S3Request<DeleteObjectsInput>) -> S3Result<DeleteObjectsOutput> {
        let bucket = self.0.bucket(self.0.rights_of(&request.input.bucket))?;
        let (mut gone, mut errors) = (Vec::new(), Vec::new());
        for one in &request.input.delete.objects {
            let done = self.may_delete_one(&request, &bucket, one);
            match done.and_then(|()| self.delete_keyed(&request.input.bucket, &one.key)) {
                Ok(_) => gone.push(DeletedObject { key: Some(one.key.clone()), ..Default::default() }),
                Err(error) => errors.push(Error {
                    code: Some(error.code().as_str().to_owned()),
                    key: Some(one.key.clone()),
                    message: error.message().map(ToOwned::to_owned),
                    version_id: None,
                }),
            }
        }
        Ok(DeleteObjectsOutput { deleted: Some(gone), errors: Some(errors), ..Default::default() })
    }
}

/// Returns a page of a list: keys, common prefixes, and where the next page begins.
pub(super) fn list(
    keyed: &dyn Keyed,
    bucket: &str,
    wanted: &Wanted,
    encode: &dyn Fn(String) -> String,
) -> S3Result<ListPage> {
    let page = keyed::page(keyed, bucket, wanted)?;
    let told = |(key, bytes): (String, u64)| Object {
        key: Some(encode(key)),
        size: Some(bytes as i64),
        last_modified: Some(timestamp(now())),
        ..Default::default()
    };
    let prefixes = page.prefixes.into_iter().map(|prefix| CommonPrefix { prefix: Some(encode(prefix)) });
    Ok(ListPage { keys: page.items.into_iter().map(told).collect(), prefixes: prefixes.collect(), next: page.next })
}
