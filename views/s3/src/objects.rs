//! Objects: put, find, delete; with old versions where they are kept.
#![allow(
    clippy::needless_pass_by_value,
    clippy::type_complexity,
    reason = "what is put or deleted is handed over, with what must hold"
)]

use cenote_posix::{Attr, Caller, File, FsResult, Ino, New, OpenFlags, Over, Rename, SetXattr, Time};
use s3s::dto::ETag;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use crate::acl::Acl;
use crate::body::Source;
use crate::bucket::{Bucket, Versioning};
use crate::condition::Conditions;
use crate::failure::{collision, failed, is_missing};
use crate::gateway::{Gateway, Lookup, again, is_aborted, is_race, no_key, vanished};
use crate::keys::User;
use crate::meta::{ACL, MARKER, META, Meta, PARTS, TAGS, encode, etag};
use crate::name::KeyPath;
use crate::uploads::FILE_MODE;
use crate::versions::{NULL, Old, id_of, is_id, kept_name, new_id};

/// Attempts against concurrent changes of the same key.
const ATTEMPTS: usize = 64;
/// Size limit of an extended attribute in bytes.
const VALUE_BYTES_MAX: usize = 60 << 10;

/// A put in progress.
pub struct Putting<'a> {
    /// Bucket.
    pub bucket: &'a Bucket,
    /// Key.
    pub key: &'a str,
    /// User; `None` without a key.
    pub user: Option<&'a User>,
    /// Bytes.
    pub source: Source<'a>,
    /// Metadata.
    pub meta: Meta,
    /// Tags.
    pub tags: Vec<(String, String)>,
    /// ACL, unless it only names the owner.
    pub acl: Option<Acl>,
    /// Checksums of the parts, in stored form.
    pub parts: Option<Vec<u8>>,
    /// Conditions of the request.
    pub conditions: Conditions<'a>,
}

/// Result of a put.
pub struct Put {
    /// Its ETag.
    pub etag: ETag,
    /// Its version, if the bucket shows versions.
    pub version: Option<String>,
    /// Its file.
    pub attr: Attr,
}

/// An object that was found.
pub struct Object {
    /// Attributes of its file, or of the directory for a key with a trailing slash.
    pub attr: Attr,
    /// Metadata, if it was put through S3.
    pub meta: Option<Meta>,
    /// Its version, if the bucket shows versions.
    pub version: Option<String>,
    /// It is a directory.
    pub is_directory: bool,
}

impl Object {
    /// Converts an old version or a delete marker.
    fn of(old: Old) -> Self {
        Self { attr: old.attr, meta: Some(old.meta), version: None, is_directory: false }
    }
    /// Returns its ETag.
    pub fn etag(&self) -> ETag {
        if self.is_directory { ETag::Strong(EMPTY_MD5.to_owned()) } else { etag(self.meta.as_ref(), &self.attr) }
    }
    /// Returns its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        if self.is_directory { 0 } else { self.attr.size_bytes }
    }
    /// Returns the metadata if they still describe the bytes.
    pub fn fresh(&self) -> Option<&Meta> {
        self.meta.as_ref().filter(|meta| self.is_directory || meta.is_of(&self.attr))
    }
}

/// MD5 of no bytes.
pub const EMPTY_MD5: &str = "d41d8cd98f00b204e9800998ecf8427e";

/// Result of a deletion.
#[derive(Default)]
pub struct Deleted {
    /// The deleted version, or the new delete marker.
    pub version: Option<String>,
    /// The version is, or was, a delete marker.
    pub is_marker: bool,
}

impl Gateway {
    /// Puts a file under its key; the same transaction replaces or keeps the previous file.
    pub fn put(&self, mut putting: Putting<'_>) -> S3Result<Put> {
        let (bucket, key) = (putting.bucket, putting.key);
        let path = KeyPath::parse(key)?;
        if path.is_directory {
            return self.put_directory(putting, path);
        }
        let caller = self.caller(putting.user);
        let versioning = bucket.record.versioning;
        let _one_at_a_time = self.lock(bucket, key);
        putting.meta.version = (versioning == Versioning::Enabled).then(new_id);
        for _ in 0..ATTEMPTS {
            let parent = match self.make_parent(&caller, bucket, path, key) {
                Err(error) if is_aborted(&error) => continue,
                parent => parent?,
            };
            let there = match self.there(parent, path.last(), key) {
                Err(error) if is_aborted(&error) => continue,
                there => there?,
            };
            let there_etag = there.as_ref().map(|(attr, meta)| etag(meta.as_ref(), attr));
            if let Err(error) = putting.conditions.check_write(there_etag.as_ref(), key) {
                self.prune(bucket, path)?;
                return Err(error);
            }
            let kept = match self.kept(bucket, path, there.as_ref()) {
                Err(error) if is_aborted(&error) => continue,
                kept => kept?,
            };
            let over = match &there {
                Some((attr, _)) if kept.is_some() || !putting.conditions.is_empty() => Over::This(attr.ino),
                None if versioning != Versioning::Never || !putting.conditions.is_empty() => Over::Nothing,
                _ => Over::Any,
            };
            let keep = kept.as_ref().map(|(directory, name)| (*directory, name.as_bytes()));
            let to = (parent, path.last().as_bytes());
            let attr = match self.place(&caller, &mut putting, to, over, keep) {
                Err(error) if is_race(&error) => continue,
                Err(error) if error.errno == libc::EISDIR => return Err(collision(key, &format!("{key}/"))),
                placed => placed.map_err(|error| failed(&error, key))?,
            };
            if versioning == Versioning::Suspended
                && let Some(directory) = self.versions_of(bucket, path, false)?
            {
                self.drop_null(directory, None)?;
                self.prune_versions(bucket, path)?;
            }
            return Ok(Put { etag: etag(Some(&putting.meta), &attr), version: putting.meta.version.clone(), attr });
        }
        Err(vanished(key))
    }
    /// Returns the file at a key's name, and its metadata.
    fn there(&self, parent: Ino, name: &str, key: &str) -> S3Result<Option<(Attr, Option<Meta>)>> {
        match self.find_in(parent, name)? {
            Lookup::File(attr) => self.meta(attr.ino).map(|meta| Some((attr, meta))),
            Lookup::Nothing => Ok(None),
            Lookup::Directory(_) => Err(collision(key, &format!("{key}/"))),
            Lookup::Other => Err(collision(key, "a link or device of this name")),
        }
    }
    /// Gives the content its name. The stored checksums refer to the file as it is then.
    fn place(
        &self,
        caller: &Caller,
        putting: &mut Putting<'_>,
        to: (Ino, &[u8]),
        over: Over,
        keep: Option<(Ino, &[u8])>,
    ) -> FsResult<Attr> {
        match putting.source {
            Source::File(file) => {
                let attr = file.attr()?;
                (putting.meta.size_bytes, putting.meta.modified) = (attr.size_bytes, time_of(&attr));
                let values = values(putting);
                let values: Vec<_> = values.iter().map(|(name, value)| (*name, value.as_slice())).collect();
                self.fs.place(&self.me, file, to, &values, over, keep)
            }
            Source::Bytes(bytes) => {
                putting.meta.size_bytes = bytes.len() as u64;
                let mut describe = |now: Time| {
                    putting.meta.modified = (now.s, now.ns);
                    values(putting)
                };
                let new = New { bytes, mode: FILE_MODE, describe: &mut describe };
                self.fs.put(caller, to, new, over, keep)
            }
        }
    }
    /// Returns where the existing file is kept, if it is.
    fn kept(
        &self,
        bucket: &Bucket,
        path: KeyPath<'_>,
        there: Option<&(Attr, Option<Meta>)>,
    ) -> S3Result<Option<(Ino, String)>> {
        let Some((attr, meta)) = there else { return Ok(None) };
        let name = kept_name(meta.as_ref(), attr);
        let keeps = match bucket.record.versioning {
            Versioning::Never => false,
            Versioning::Enabled => true,
            Versioning::Suspended => id_of(&name) != NULL,
        };
        if !keeps {
            return Ok(None);
        }
        let directory = self.versions_of(bucket, path, true)?.ok_or_else(|| vanished(path.last()))?;
        if id_of(&name) == NULL {
            self.drop_null(directory, Some(&name))?;
        }
        Ok(Some((directory, name)))
    }
    /// Makes a directory a key.
    fn put_directory(&self, putting: Putting<'_>, path: KeyPath<'_>) -> S3Result<Put> {
        let (bucket, key) = (putting.bucket, putting.key);
        let is_empty = match putting.source {
            Source::Bytes(bytes) => bytes.is_empty(),
            Source::File(file) => file.attr().map_err(|error| failed(&error, key))?.size_bytes == 0,
        };
        if !is_empty {
            return Err(s3_error!(
                InvalidArgument,
                "keys are paths of files here, and `{}` is a directory: it can have no bytes",
                key.escape_default()
            ));
        }
        let caller = self.caller(putting.user);
        let _one_at_a_time = self.lock(bucket, key);
        again(|| {
            let parent = self.make_parent(&caller, bucket, path, key)?;
            let there = match self.find_in(parent, path.last())? {
                Lookup::Directory(attr) => self.xattr(attr.ino, MARKER)?,
                _ => None,
            };
            let empty = ETag::Strong(EMPTY_MD5.to_owned());
            putting.conditions.check_write(there.as_ref().map(|_| &empty), key)?;
            let ino = self.directory(&caller, parent, path.last(), (key.trim_end_matches('/'), key))?;
            let mut meta = putting.meta.clone();
            EMPTY_MD5.clone_into(&mut meta.etag);
            let done = self.fs.set_xattr(&self.me, ino, MARKER, &meta.encode(), SetXattr::Any);
            done.map_err(|error| failed(&error, key))?;
            self.set_or_remove(ino, TAGS, (!putting.tags.is_empty()).then(|| encode(&putting.tags)).as_deref())?;
            self.set_or_remove(ino, ACL, putting.acl.as_ref().map(encode).as_deref())?;
            let attr = self.fs.attr(ino).map_err(|error| failed(&error, key))?;
            Ok(Put { etag: empty, version: None, attr })
        })
    }
    /// Sets or removes an extended attribute.
    pub fn set_or_remove(&self, ino: Ino, name: &[u8], value: Option<&[u8]>) -> S3Result<()> {
        let done = match value {
            Some(value) => self.fs.set_xattr(&self.me, ino, name, value, SetXattr::Any),
            None => self.fs.remove_xattr(&self.me, ino, name),
        };
        match done {
            Err(error) if error.errno == libc::ENODATA => Ok(()),
            done => done.map_err(|error| failed(&error, "attributes")),
        }
    }
    /// Returns a version as shown to clients: none in buckets that never kept versions.
    fn told(&self, bucket: &Bucket, meta: Option<&Meta>) -> Option<String> {
        let _ = self;
        let is_told = bucket.record.versioning != Versioning::Never;
        is_told.then(|| meta.and_then(|meta| meta.version.clone()).unwrap_or_else(|| NULL.to_owned()))
    }

    /// Finds an object, or one of its versions.
    pub fn object(&self, bucket: &Bucket, key: &str, version: Option<&str>) -> S3Result<Object> {
        self.about(bucket, key, version, Ok)
    }
    /// Finds an object, or one of its versions, and reads more about it, all from one file even if it is replaced meanwhile.
    pub fn about<T>(
        &self,
        bucket: &Bucket,
        key: &str,
        version: Option<&str>,
        ask: impl Fn(Object) -> S3Result<T>,
    ) -> S3Result<T> {
        again(|| ask(self.object_now(bucket, key, version)?))
    }
    /// Returns a listed key's file and metadata; those of the current file if it was replaced, `None` if it was deleted.
    pub fn described(&self, bucket: &Bucket, key: &str, attr: &Attr) -> S3Result<Option<(Attr, Option<Meta>)>> {
        match self.meta(attr.ino) {
            Err(error) if is_aborted(&error) => match self.object(bucket, key, None) {
                Err(error) if *error.code() == S3ErrorCode::NoSuchKey => Ok(None),
                object => object.map(|object| Some((object.attr, object.meta))),
            },
            meta => Ok(Some((attr.clone(), meta?))),
        }
    }
    fn object_now(&self, bucket: &Bucket, key: &str, version: Option<&str>) -> S3Result<Object> {
        let Ok(path) = KeyPath::parse(key) else { return Err(no_key(key)) };
        let versioning = bucket.record.versioning;
        let current = match self.find(bucket, path)?.1 {
            Lookup::File(attr) if !path.is_directory => {
                let meta = self.meta(attr.ino)?;
                Some(Object { version: self.told(bucket, meta.as_ref()), attr, meta, is_directory: false })
            }
            Lookup::Directory(attr) if path.is_directory => self.xattr(attr.ino, MARKER)?.map(|value| Object {
                version: self.told(bucket, None),
                attr,
                meta: Meta::decode(&value),
                is_directory: true,
            }),
            _ => None,
        };
        let Some(version) = version else {
            return match current {
                Some(object) => Ok(object),
                None if versioning == Versioning::Never || path.is_directory => Err(no_key(key)),
                None => Err(self.deleted(bucket, path, key)?),
            };
        };
        if !is_id(version) {
            return Err(s3_error!(InvalidArgument, "Invalid version id specified"));
        }
        let is_it = |object: &Object| {
            let id = object.meta.as_ref().and_then(|meta| meta.version.as_deref());
            id.unwrap_or(NULL) == version
        };
        if let Some(object) = current.filter(is_it) {
            return Ok(object);
        }
        let directory = self.versions_of(bucket, path, false)?;
        let old = directory.map(|directory| self.version_in(directory, version)).transpose()?.flatten();
        match old {
            None => Err(s3_error!(NoSuchVersion, "`{}` has no such version", key.escape_default())),
            Some(old) if old.meta.is_delete_marker => Err(marker_error(s3_error!(MethodNotAllowed), old.id())),
            Some(old) => Ok(Object {
                version: Some(version.to_owned()),
                attr: old.attr,
                meta: Some(old.meta),
                is_directory: false,
            }),
        }
    }
    /// Returns the error for a key that has no current version.
    fn deleted(&self, bucket: &Bucket, path: KeyPath<'_>, key: &str) -> S3Result<S3Error> {
        let directory = self.versions_of(bucket, path, false)?;
        let newest = directory.map(|directory| self.newest_in(directory)).transpose()?.flatten();
        Ok(match newest {
            Some(newest) if newest.meta.is_delete_marker => marker_error(no_key(key), newest.id()),
            _ => no_key(key),
        })
    }
    /// Opens an object's file for reading.
    pub fn open(&self, object: &Object, key: &str) -> S3Result<File> {
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        self.fs.open(&self.me, object.attr.ino, flags).map_err(|error| failed(&error, key))
    }

    /// Deletes an object, or one of its versions. A missing one counts as deleted.
    pub fn delete(
        &self,
        bucket: &Bucket,
        key: &str,
        version: Option<&str>,
        user: Option<&User>,
        (may, is_conditional): (&dyn Fn(&Object) -> S3Result<()>, bool),
    ) -> S3Result<Deleted> {
        let Ok(path) = KeyPath::parse(key) else { return Ok(Deleted::default()) };
        let _one_at_a_time = self.lock(bucket, key);
        if path.is_directory {
            return again(|| self.delete_directory(bucket, path, may));
        }
        let versioning = bucket.record.versioning;
        let there = again(|| match self.find(bucket, path)? {
            (Some(parent), Lookup::File(attr)) => {
                let meta = self.meta(attr.ino)?;
                Ok(Some((parent, Object { version: None, attr, meta, is_directory: false })))
            }
            _ => Ok(None),
        })?;
        match (version, &there) {
            (None, Some((_, object))) => may(object)?,
            (None, None) if versioning != Versioning::Never => {
                let directory = self.versions_of(bucket, path, false)?;
                let newest = directory.map(|directory| self.newest_in(directory)).transpose()?.flatten();
                match newest.filter(|newest| newest.meta.is_delete_marker) {
                    Some(newest) => may(&Object::of(newest))?,
                    None if is_conditional => return Ok(Deleted::default()),
                    None => {}
                }
            }
            _ => {}
        }
        match (version, versioning) {
            (Some(version), _) => self.delete_version(bucket, (path, key), version, there, may),
            (None, Versioning::Never) => {
                if let Some((parent, _)) = there {
                    self.drop_version(parent, path.last())?;
                    self.prune(bucket, path)?;
                }
                Ok(Deleted::default())
            }
            (None, _) => self.delete_softly(bucket, path, there, user),
        }
    }
    fn delete_directory(
        &self,
        bucket: &Bucket,
        path: KeyPath<'_>,
        may: &dyn Fn(&Object) -> S3Result<()>,
    ) -> S3Result<Deleted> {
        let (Some(parent), Lookup::Directory(attr)) = self.find(bucket, path)? else { return Ok(Deleted::default()) };
        let Some(value) = self.xattr(attr.ino, MARKER)? else { return Ok(Deleted::default()) };
        may(&Object { attr: attr.clone(), meta: Meta::decode(&value), version: None, is_directory: true })?;
        for name in [MARKER, TAGS, ACL] {
            self.set_or_remove(attr.ino, name, None)?;
        }
        self.prune_way(&[parent, attr.ino], &[path.last()]);
        self.prune(bucket, path)?;
        Ok(Deleted::default())
    }
    /// Creates a delete marker; the current version becomes an old one.
    fn delete_softly(
        &self,
        bucket: &Bucket,
        path: KeyPath<'_>,
        there: Option<(Ino, Object)>,
        user: Option<&User>,
    ) -> S3Result<Deleted> {
        let is_null = bucket.record.versioning == Versioning::Suspended;
        let directory = self.versions_of(bucket, path, true)?.ok_or_else(|| vanished(path.last()))?;
        if is_null {
            self.drop_null(directory, None)?;
        }
        // First the marker, then the version it deletes: a crash in between leaves the object as it was.
        let name = there.as_ref().map(|(_, object)| kept_name(object.meta.as_ref(), &object.attr));
        if let (Some(name), false) = (&name, is_null)
            && id_of(name) == NULL
        {
            self.drop_null(directory, None)?;
        }
        let owner = user.map(|user| user.name.as_str()).unwrap_or_default();
        let id = self.mark_deleted(bucket, directory, is_null, owner)?;
        if let (Some((parent, _)), Some(name)) = (there, name) {
            if is_null && id_of(&name) == NULL {
                self.drop_version(parent, path.last())?;
            } else {
                let from = (parent, path.last().as_bytes());
                match self.fs.rename(&self.me, from, (directory, name.as_bytes()), Rename::Replace) {
                    Err(error) if is_missing(&error) => {}
                    done => done.map_err(|error| failed(&error, path.last()))?,
                }
            }
            self.prune(bucket, path)?;
        }
        Ok(Deleted { version: Some(id), is_marker: true })
    }
    /// Deletes one version permanently; if it was the current one, the previous version becomes current.
    fn delete_version(
        &self,
        bucket: &Bucket,
        (path, key): (KeyPath<'_>, &str),
        version: &str,
        there: Option<(Ino, Object)>,
        may: &dyn Fn(&Object) -> S3Result<()>,
    ) -> S3Result<Deleted> {
        if !is_id(version) {
            return Err(s3_error!(InvalidArgument, "Invalid version id specified"));
        }
        let mut deleted = Deleted { version: Some(version.to_owned()), is_marker: false };
        let directory = self.versions_of(bucket, path, false)?;
        if let Some((parent, object)) = &there {
            let id = object.meta.as_ref().and_then(|meta| meta.version.as_deref()).unwrap_or(NULL);
            if id == version {
                may(object)?;
                let newest = directory.map(|directory| self.newest_in(directory)).transpose()?.flatten();
                let to = (*parent, path.last().as_bytes());
                match (directory, newest) {
                    (Some(directory), Some(newest)) if !newest.meta.is_delete_marker => {
                        let from = (directory, newest.name.as_bytes());
                        self.fs.rename(&self.me, from, to, Rename::Replace).map_err(|error| failed(&error, key))?;
                        self.prune_versions(bucket, path)?;
                    }
                    _ => {
                        self.drop_version(*parent, path.last())?;
                        self.prune(bucket, path)?;
                    }
                }
                return Ok(deleted);
            }
        }
        let Some(directory) = directory else { return Ok(deleted) };
        let Some(old) = self.version_in(directory, version)? else { return Ok(deleted) };
        deleted.is_marker = old.meta.is_delete_marker;
        let name = old.name.clone();
        may(&Object::of(old))?;
        let was_newest = self.newest_in(directory)?.is_some_and(|newest| newest.name == name);
        self.drop_version(directory, &name)?;
        if was_newest && deleted.is_marker && there.is_none() {
            self.promote(bucket, path, key, directory)?;
        }
        self.prune_versions(bucket, path)?;
        Ok(deleted)
    }
    /// Returns a key's old versions, the newest first.
    pub fn olds(&self, directory: Ino) -> S3Result<Vec<Old>> {
        self.versions_in(directory)
    }
}

/// Returns the extended attributes with which an object is placed.
fn values(putting: &Putting<'_>) -> Vec<(&'static [u8], Vec<u8>)> {
    let mut values: Vec<(&'static [u8], Vec<u8>)> = vec![(META, putting.meta.encode())];
    if !putting.tags.is_empty() {
        values.push((TAGS, encode(&putting.tags)));
    }
    if let Some(acl) = &putting.acl {
        values.push((ACL, encode(acl)));
    }
    if let Some(parts) = putting.parts.as_ref().filter(|parts| parts.len() <= VALUE_BYTES_MAX) {
        values.push((PARTS, parts.clone()));
    }
    values
}

fn time_of(attr: &Attr) -> (i64, u32) {
    (attr.modified.s, attr.modified.ns)
}

/// Adds the headers of a delete marker to an error.
fn marker_error(mut error: S3Error, id: &str) -> S3Error {
    let mut headers = http::HeaderMap::new();
    headers.insert("x-amz-delete-marker", http::HeaderValue::from_static("true"));
    if let Ok(id) = http::HeaderValue::from_str(id) {
        headers.insert("x-amz-version-id", id);
    }
    error.set_headers(headers);
    error
}
