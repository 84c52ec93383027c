//! Lists of buckets, keys and versions.

use cenote_posix::{Attr, Ino, Kind};
use s3s::dto::{
    ChecksumAlgorithm, ChecksumType, CommonPrefix, DeleteMarkerEntry, ETag, EncodingType, ListBucketsInput,
    ListBucketsOutput, ListObjectVersionsInput, ListObjectVersionsOutput, ListObjectsInput, ListObjectsOutput,
    ListObjectsV2Input, ListObjectsV2Output, Object, ObjectStorageClass, ObjectVersion, ObjectVersionStorageClass,
};
use s3s::{S3Request, S3Result, s3_error};

use super::Service;
use crate::acl::owner;
use crate::bucket::{Bucket, Versioning};
use crate::failure::failed;
use crate::listing::{Files, Item, Page, Wanted, url_encoded};
use crate::meta::{self, Meta, timestamp};
use crate::objects::EMPTY_MD5;
use crate::versions::{NULL, Versioned};
use crate::walk::Walk;

/// Maximum number of buckets in a page.
const BUCKETS_MAX: usize = 10_000;

/// A page of a list, as the answers of both versions of the request have it.
pub(super) struct ListPage {
    pub keys: Vec<Object>,
    pub prefixes: Vec<CommonPrefix>,
    /// Where the next page begins; `None`: this is the last one.
    pub next: Option<String>,
}

/// A line of a list of versions.
struct Line {
    key: String,
    id: String,
    meta: Option<Meta>,
    attr: cenote_posix::Attr,
    is_latest: bool,
}

impl Service {
    pub(super) fn list_buckets(&self, request: S3Request<ListBucketsInput>) -> S3Result<ListBucketsOutput> {
        let gateway = &self.0;
        let user = gateway.known(&request)?;
        let input = request.input;
        let limit = input.max_buckets.map_or(BUCKETS_MAX, |limit| limit.clamp(1, BUCKETS_MAX as i32) as usize);
        let mut after = input.continuation_token.as_deref().map(untoken).transpose()?;
        let (mut buckets, mut next) = (Vec::<s3s::dto::Bucket>::new(), None);
        'all: loop {
            let page = gateway.fs.list(Ino::TOP, after.as_deref().map(str::as_bytes), 1000);
            let page = page.map_err(|error| failed(&error, "buckets"))?;
            let Some((last, _)) = page.last() else { break };
            let last = String::from_utf8_lossy(last).into_owned();
            for (name, attr) in page {
                let Ok(name) = String::from_utf8(name) else { continue };
                let is_wanted = input.prefix.as_ref().is_none_or(|prefix| name.starts_with(prefix));
                if attr.kind != Kind::Directory || !is_wanted {
                    continue;
                }
                let Some(bucket) = gateway.buckets.find(&name)? else { continue };
                if !bucket.is_owned_by(&user) {
                    continue;
                }
                if buckets.len() == limit {
                    next = buckets.last().and_then(|last| last.name.clone()).map(|name| token(&name));
                    break 'all;
                }
                buckets.push(s3s::dto::Bucket {
                    bucket_region: input.max_buckets.map(|_| gateway.region.clone()),
                    creation_date: Some(timestamp(bucket.born)),
                    name: Some(name),
                });
            }
            after = Some(last);
        }
        Ok(ListBucketsOutput {
            buckets: Some(buckets),
            continuation_token: next,
            owner: Some(owner(&user.name)),
            prefix: input.prefix,
        })
    }

    /// Converts an object to a list entry.
    fn told(
        &self,
        bucket: &Bucket,
        key: &str,
        item: &Item,
        (tells_owner, encode): (bool, &dyn Fn(String) -> String),
    ) -> S3Result<Option<Object>> {
        let found = match &item.marker {
            Some(_) => Some((item.attr.clone(), None)),
            None => self.0.described(bucket, key, &item.attr)?,
        };
        let Some((attr, meta)) = found else { return Ok(None) };
        let described = meta.as_ref().or(item.marker.as_ref());
        let who = described.map(|meta| meta.owner.clone()).filter(|owner| !owner.is_empty());
        let etag = match &item.marker {
            Some(_) => ETag::Strong(EMPTY_MD5.to_owned()),
            None => meta::etag(meta.as_ref(), &attr),
        };
        let class = described.and_then(|meta| meta.headers.get("storage-class").cloned());
        let algorithms =
            meta.as_ref().map(|meta| meta.checksums.keys().cloned().map(ChecksumAlgorithm::from).collect::<Vec<_>>());
        Ok(Some(Object {
            e_tag: Some(etag),
            key: Some(encode(key.to_owned())),
            last_modified: Some(timestamp(attr.modified)),
            owner: tells_owner.then(|| owner(&who.unwrap_or_else(|| bucket.owner()))),
            size: Some(if item.marker.is_some() { 0 } else { attr.size_bytes as i64 }),
            storage_class: Some(ObjectStorageClass::from(class.unwrap_or_else(|| "STANDARD".to_owned()))),
            checksum_type: meta.as_ref().and_then(|meta| meta.checksum_type.clone()).map(ChecksumType::from),
            checksum_algorithm: algorithms.filter(|algorithms| !algorithms.is_empty()),
            ..Default::default()
        }))
    }
    /// Returns what is told of a page's keys, and its common prefixes.
    fn contents(
        &self,
        bucket: &Bucket,
        page: Page<Item>,
        tells_owner: bool,
        encode: &dyn Fn(String) -> String,
    ) -> S3Result<(Vec<Object>, Vec<CommonPrefix>)> {
        let tell = |(key, item): &(String, Item)| self.told(bucket, key, item, (tells_owner, encode)).transpose();
        let objects = page.items.iter().filter_map(tell);
        let prefixes = page.prefixes.into_iter().map(|prefix| CommonPrefix { prefix: Some(encode(prefix)) }).collect();
        Ok((objects.collect::<S3Result<_>>()?, prefixes))
    }

    /// Returns a page of a bucket's keys: keys, common prefixes, and where the next page begins.
    fn listed(
        &self,
        bucket: &str,
        wanted: &Wanted,
        tells_owner: bool,
        encode: &dyn Fn(String) -> String,
    ) -> S3Result<ListPage> {
        if let Some(keyed) = self.0.keyed(bucket) {
            return super::keyed::list(keyed, bucket, wanted, encode);
        }
        let bucket = self.0.bucket(bucket)?;
        let mut page = wanted.page(&Files(&self.0), bucket.root)?;
        let next = page.next.take();
        let (keys, prefixes) = self.contents(&bucket, page, tells_owner, encode)?;
        Ok(ListPage { keys, prefixes, next })
    }

    pub(super) fn list_objects(&self, request: S3Request<ListObjectsInput>) -> S3Result<ListObjectsOutput> {
        let input = request.input;
        let wanted = Wanted {
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: input.delimiter.clone().unwrap_or_default(),
            after: input.marker.clone().filter(|marker| !marker.is_empty()),
            limit: Wanted::limit(input.max_keys)?,
        };
        let is_url = is_url(input.encoding_type.as_ref())?;
        let encode = |text: String| if is_url { url_encoded(&text) } else { text };
        let ListPage { keys, prefixes, next } = self.listed(&input.bucket, &wanted, true, &encode)?;
        Ok(ListObjectsOutput {
            name: Some(input.bucket),
            is_truncated: Some(next.is_some()),
            next_marker: next.filter(|_| !wanted.delimiter.is_empty()).map(&encode),
            prefix: Some(encode(wanted.prefix)),
            marker: Some(encode(input.marker.unwrap_or_default())),
            max_keys: Some(wanted.limit as i32),
            delimiter: input.delimiter.filter(|delimiter| !delimiter.is_empty()).map(&encode),
            encoding_type: input.encoding_type,
            contents: Some(keys),
            common_prefixes: Some(prefixes),
            ..Default::default()
        })
    }

    pub(super) fn list_objects_v2(&self, request: S3Request<ListObjectsV2Input>) -> S3Result<ListObjectsV2Output> {
        let input = request.input;
        let given = input.continuation_token.as_deref().filter(|given| !given.is_empty());
        let continued = given.map(untoken).transpose()?;
        let wanted = Wanted {
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: input.delimiter.clone().unwrap_or_default(),
            after: continued.or_else(|| input.start_after.clone().filter(|after| !after.is_empty())),
            limit: Wanted::limit(input.max_keys)?,
        };
        let is_url = is_url(input.encoding_type.as_ref())?;
        let encode = |text: String| if is_url { url_encoded(&text) } else { text };
        let tells_owner = input.fetch_owner.unwrap_or_default();
        let ListPage { keys, prefixes, next } = self.listed(&input.bucket, &wanted, tells_owner, &encode)?;
        Ok(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(encode(wanted.prefix)),
            max_keys: Some(wanted.limit as i32),
            key_count: Some((keys.len() + prefixes.len()) as i32),
            continuation_token: input.continuation_token,
            is_truncated: Some(next.is_some()),
            next_continuation_token: next.as_deref().map(token),
            contents: Some(keys),
            common_prefixes: Some(prefixes),
            delimiter: input.delimiter.filter(|delimiter| !delimiter.is_empty()).map(&encode),
            encoding_type: input.encoding_type,
            start_after: input.start_after.map(&encode),
            ..Default::default()
        })
    }

    pub(super) fn list_object_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<ListObjectVersionsOutput> {
        let input = request.input;
        let bucket = self.0.bucket(&input.bucket)?;
        let limit = Wanted::limit(input.max_keys)?;
        let marker = input.key_marker.clone().filter(|marker| !marker.is_empty());
        let within = input.version_id_marker.clone().filter(|id| !id.is_empty() && marker.is_some());
        let wanted = Wanted {
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: input.delimiter.clone().unwrap_or_default(),
            after: marker.clone(),
            limit,
        };
        let is_url = is_url(input.encoding_type.as_ref())?;
        let encode = |text: String| if is_url { url_encoded(&text) } else { text };
        let mut lines: Vec<Line> = Vec::new();
        let mut prefixes: Vec<String> = Vec::new();
        let mut next: Option<(String, Option<String>)> = None;
        let mut is_truncated = false;
        let begin = if within.is_some() { marker.clone() } else { wanted.begins() };
        if let Some(begin) = begin.filter(|_| limit > 0) {
            let (files, olds) = (Files(&self.0), Versioned(&self.0));
            let mut files = Walk::new(&files, bucket.root, &begin, limit + 1)?;
            let root = self.0.versions_root(&bucket)?;
            let mut olds = root.map(|root| Walk::new(&olds, root, &begin, limit + 1)).transpose()?;
            let mut file = files.next()?;
            let mut old = olds.as_mut().map_or(Ok(None), Walk::next)?;
            while let Some(key) = least(file.as_ref(), old.as_ref()) {
                if !key.starts_with(&wanted.prefix) {
                    break;
                }
                if let Some(common) = wanted.common(&key) {
                    let common = common.to_owned();
                    if lines.len() + prefixes.len() >= limit {
                        is_truncated = true;
                        break;
                    }
                    if file.as_ref().is_some_and(|(key, _)| key.starts_with(&common)) {
                        files.skip(&common)?;
                        file = files.next()?;
                    }
                    if let (Some(olds), true) =
                        (&mut olds, old.as_ref().is_some_and(|(key, _)| key.starts_with(&common)))
                    {
                        olds.skip(&common)?;
                        old = olds.next()?;
                    }
                    next = Some((common.clone(), None));
                    prefixes.push(common);
                    continue;
                }
                let current = file.take_if(|(name, _)| *name == key).map(|(_, item)| item);
                let directory = old.take_if(|(name, _)| *name == key).map(|(_, directory)| directory);
                let all = self.lines(&bucket, &key, current.as_ref(), directory)?;
                let skipped = match &within {
                    Some(id) if marker.as_deref() == Some(&key) => {
                        all.iter().position(|line| line.id == *id).map_or(0, |at| at + 1)
                    }
                    _ => 0,
                };
                for line in all.into_iter().skip(skipped) {
                    if lines.len() + prefixes.len() >= limit {
                        is_truncated = true;
                        break;
                    }
                    next = Some((line.key.clone(), Some(line.id.clone())));
                    lines.push(line);
                }
                if is_truncated {
                    break;
                }
                if current.is_some() {
                    file = files.next()?;
                }
                if directory.is_some() {
                    old = olds.as_mut().map_or(Ok(None), Walk::next)?;
                }
            }
        }
        let (versions, markers) = self.sorted(&bucket, lines, &encode);
        let (next_key, next_id) = next.filter(|_| is_truncated).unzip();
        Ok(ListObjectVersionsOutput {
            name: Some(input.bucket),
            versions: Some(versions),
            delete_markers: Some(markers),
            common_prefixes: Some(
                prefixes.into_iter().map(|prefix| CommonPrefix { prefix: Some(encode(prefix)) }).collect(),
            ),
            is_truncated: Some(is_truncated),
            key_marker: Some(encode(input.key_marker.unwrap_or_default())),
            version_id_marker: Some(input.version_id_marker.unwrap_or_default()),
            next_key_marker: next_key.map(&encode),
            next_version_id_marker: next_id.flatten(),
            max_keys: Some(limit as i32),
            prefix: Some(encode(wanted.prefix)),
            delimiter: input.delimiter.filter(|delimiter| !delimiter.is_empty()).map(&encode),
            encoding_type: input.encoding_type,
            ..Default::default()
        })
    }
    /// Returns all versions of a key, the newest first.
    fn lines(&self, bucket: &Bucket, key: &str, current: Option<&Item>, directory: Option<Ino>) -> S3Result<Vec<Line>> {
        let mut lines = Vec::new();
        let found = match current {
            Some(Item { attr, marker: Some(marker) }) => {
                let mut attr = Attr { size_bytes: 0, ..attr.clone() };
                (attr.modified.s, attr.modified.ns) = marker.modified;
                Some((attr, Some(Meta { etag: EMPTY_MD5.to_owned(), ..marker.clone() })))
            }
            Some(Item { attr, marker: None }) => self.0.described(bucket, key, attr)?,
            None => None,
        };
        if let Some((attr, meta)) = found {
            let id = meta.as_ref().and_then(|meta| meta.version.clone()).unwrap_or_else(|| NULL.to_owned());
            lines.push(Line { key: key.to_owned(), id, meta, attr, is_latest: true });
        }
        if let Some(directory) = directory {
            for (place, old) in self.0.olds(directory)?.into_iter().enumerate() {
                // Without a current version, the newest old one is the latest if it is a delete marker.
                let is_latest = current.is_none() && place == 0 && old.meta.is_delete_marker;
                lines.push(Line {
                    key: key.to_owned(),
                    id: old.id().to_owned(),
                    attr: old.attr,
                    meta: Some(old.meta),
                    is_latest,
                });
            }
        }
        Ok(lines)
    }
    fn sorted(
        &self,
        bucket: &Bucket,
        lines: Vec<Line>,
        encode: &dyn Fn(String) -> String,
    ) -> (Vec<ObjectVersion>, Vec<DeleteMarkerEntry>) {
        let _ = self;
        let (mut versions, mut markers) = (Vec::new(), Vec::new());
        for line in lines {
            let who = line.meta.as_ref().map(|meta| meta.owner.clone()).filter(|owner| !owner.is_empty());
            let who = owner(&who.unwrap_or_else(|| bucket.owner()));
            let is_told = bucket.record.versioning != Versioning::Never || line.id != NULL;
            let id = if is_told { line.id } else { NULL.to_owned() };
            if let Some(meta) = line.meta.as_ref().filter(|meta| meta.is_delete_marker) {
                let (s, ns) = meta.began.unwrap_or_default();
                markers.push(DeleteMarkerEntry {
                    is_latest: Some(line.is_latest),
                    key: Some(encode(line.key)),
                    last_modified: Some(timestamp(cenote_posix::Time { s, ns })),
                    owner: Some(who),
                    version_id: Some(id),
                });
                continue;
            }
            versions.push(ObjectVersion {
                e_tag: Some(meta::etag(line.meta.as_ref(), &line.attr)),
                is_latest: Some(line.is_latest),
                key: Some(encode(line.key)),
                last_modified: Some(timestamp(line.attr.modified)),
                owner: Some(who),
                size: Some(line.attr.size_bytes as i64),
                storage_class: Some(ObjectVersionStorageClass::from_static(ObjectVersionStorageClass::STANDARD)),
                version_id: Some(id),
                ..Default::default()
            });
        }
        (versions, markers)
    }
}

fn least(file: Option<&(String, Item)>, old: Option<&(String, Ino)>) -> Option<String> {
    match (file, old) {
        (Some((a, _)), Some((b, _))) => Some(a.min(b).clone()),
        (Some((one, _)), None) | (None, Some((one, _))) => Some(one.clone()),
        (None, None) => None,
    }
}

fn is_url(encoding: Option<&EncodingType>) -> S3Result<bool> {
    match encoding.map(EncodingType::as_str) {
        None => Ok(false),
        Some("url") => Ok(true),
        Some(_) => Err(s3_error!(InvalidArgument, "Invalid Encoding Method specified in Request")),
    }
}

/// Encodes where a list continues as a token for clients.
fn token(key: &str) -> String {
    base64_simd::URL_SAFE_NO_PAD.encode_to_string(key)
}

fn untoken(token: &str) -> S3Result<String> {
    let bytes = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(token).ok();
    bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| s3_error!(InvalidArgument, "The continuation token provided is incorrect"))
}
