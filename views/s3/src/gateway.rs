//! What all requests share, and the way from a key to a file.

use std::hash::BuildHasher;
use std::sync::Arc;

use cenote_posix::{Attr, Caller, FileSystem, FsError, Ino, Kind, Make, SetXattr};
use parking_lot::{Mutex, MutexGuard};
use s3s::{S3Request, S3Result, s3_error};

use crate::bucket::{Bucket, Buckets};
use crate::failure::{collision, failed, is_gone, is_missing};
use crate::keyed::Keyed;
use crate::keys::{Keys, User};
use crate::meta::{IMPLIED, MARKER, META, Meta};
use crate::name::KeyPath;

/// Locks of keys: requests about one key follow each other, so that what a request saw still holds when it acts.
const LOCKS: usize = 256;
/// Attempts to make a key's directories while others delete them.
const ATTEMPTS: usize = 64;

/// A store as S3 sees it.
pub struct Gateway {
    /// The trees.
    pub fs: FileSystem,
    /// Who this server is for the trees: rights are checked here.
    pub me: Caller,
    /// The buckets.
    pub buckets: Buckets,
    /// The keys.
    pub keys: Keys,
    /// What clients are told the region is.
    pub region: String,
    /// Buckets whose keys another room makes up.
    pub keyed: Option<Arc<dyn Keyed>>,
    locks: Box<[Mutex<()>]>,
    hasher: foldhash::fast::FixedState,
}

/// What is at a key's path.
pub enum Found {
    /// A file.
    File(Attr),
    /// A directory.
    Directory(Attr),
    /// Something else: a symbolic link, a pipe, a device. Not shown.
    Other,
    /// Nothing.
    Nothing,
}

impl Gateway {
    pub fn new(fs: FileSystem, me: Caller, keys: Keys, region: String, keyed: Option<Arc<dyn Keyed>>) -> Self {
        Self {
            buckets: Buckets::new(fs.clone(), me.clone()),
            fs,
            me,
            keys,
            region,
            keyed,
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
            hasher: foldhash::fast::FixedState::default(),
        }
    }
    /// Held while something is done to a key that depends on what is there.
    pub fn lock(&self, bucket: &Bucket, key: &str) -> MutexGuard<'_, ()> {
        let place = self.hasher.hash_one((bucket.root, key)) as usize % self.locks.len();
        self.locks[place].lock()
    }
    /// The bucket of a request.
    pub fn bucket(&self, name: &str) -> S3Result<Arc<Bucket>> {
        self.buckets.get(name)
    }
    /// For whom files are made.
    pub fn caller(&self, user: Option<&User>) -> Caller {
        user.map_or_else(|| self.me.clone(), |user| Caller { uid: user.uid, gid: user.gid, ..self.me.clone() })
    }

    /// The directory that a key's last name is in; none if a directory on the way is not there.
    pub fn parent(&self, bucket: &Bucket, path: KeyPath<'_>) -> S3Result<Option<Ino>> {
        let mut at = bucket.root;
        for name in path.directories() {
            match self.fs.lookup(&self.me, at, name.as_bytes()) {
                Ok(attr) if attr.kind == Kind::Directory => at = attr.ino,
                Ok(_) => return Ok(None),
                Err(error) if is_gone(&error) => return Ok(None),
                Err(error) => return Err(failed(&error, name)),
            }
        }
        Ok(Some(at))
    }
    /// What is at a key's path, and the directory it is in.
    pub fn find(&self, bucket: &Bucket, path: KeyPath<'_>) -> S3Result<(Option<Ino>, Found)> {
        let Some(parent) = self.parent(bucket, path)? else { return Ok((None, Found::Nothing)) };
        self.find_in(parent, path.last()).map(|found| (Some(parent), found))
    }
    /// What a name in a directory is.
    pub fn find_in(&self, parent: Ino, name: &str) -> S3Result<Found> {
        match self.fs.lookup(&self.me, parent, name.as_bytes()) {
            Ok(attr) => Ok(match attr.kind {
                Kind::File => Found::File(attr),
                Kind::Directory => Found::Directory(attr),
                _ => Found::Other,
            }),
            Err(error) if is_gone(&error) => Ok(Found::Nothing),
            Err(error) => Err(failed(&error, name)),
        }
    }
    /// The directory that a key's last name is to be in, made if it is not there.
    pub fn make_parent(&self, caller: &Caller, bucket: &Bucket, path: KeyPath<'_>, key: &str) -> S3Result<Ino> {
        let mut at = bucket.root;
        let mut way = String::new();
        for name in path.directories() {
            way.push_str(name);
            at = self.directory(caller, at, name, (&way, key))?;
            way.push('/');
        }
        Ok(at)
    }
    /// Makes a directory that keys below it bring about, if it is not there.
    pub fn directory(&self, caller: &Caller, at: Ino, name: &str, (way, key): (&str, &str)) -> S3Result<Ino> {
        for _ in 0..ATTEMPTS {
            match self.find_in(at, name)? {
                Found::Directory(attr) => return Ok(attr.ino),
                Found::File(_) | Found::Other => return Err(collision(key, way)),
                Found::Nothing => {}
            }
            let what = Make { kind: Kind::Directory, mode: 0o755, rdev: 0, target: Vec::new() };
            match self.fs.make(caller, at, name.as_bytes(), &what) {
                Ok(attr) => {
                    match self.fs.set_xattr(&self.me, attr.ino, IMPLIED, b"1", SetXattr::Any) {
                        Err(error) if is_gone(&error) => continue,
                        done => done.map_err(|error| failed(&error, way))?,
                    }
                    return Ok(attr.ino);
                }
                Err(error) if error.errno == libc::EEXIST => {}
                Err(error) if is_gone(&error) => return Err(vanished(key)),
                Err(error) => return Err(failed(&error, way)),
            }
        }
        Err(vanished(key))
    }
    /// Takes away the directories above a key that only keys below brought about and that are empty now.
    pub fn prune(&self, bucket: &Bucket, path: KeyPath<'_>) -> S3Result<()> {
        let mut way = vec![bucket.root];
        let mut names = Vec::new();
        for name in path.directories() {
            match self.find_in(way[way.len() - 1], name)? {
                Found::Directory(attr) => way.push(attr.ino),
                _ => break,
            }
            names.push(name);
        }
        self.prune_way(&way, &names);
        Ok(())
    }
    /// The same for directories that are known: `way[i + 1]` is `names[i]` in `way[i]`.
    pub fn prune_way(&self, way: &[Ino], names: &[&str]) {
        for place in (0..names.len()).rev() {
            let directory = way[place + 1];
            let is_empty = self.fs.list(directory, None, 1).is_ok_and(|entries| entries.is_empty());
            if !is_empty || !self.has(directory, IMPLIED) || self.has(directory, MARKER) {
                return;
            }
            // Somebody may have put something there meanwhile: then it is not empty, and stays.
            if self.fs.rmdir(&self.me, way[place], names[place].as_bytes()).is_err() {
                return;
            }
        }
    }
    /// Whether there is an extended attribute.
    pub fn has(&self, ino: Ino, name: &[u8]) -> bool {
        self.fs.xattr(&self.me, ino, name).is_ok()
    }
    /// An extended attribute, if there is one.
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> S3Result<Option<Vec<u8>>> {
        match self.fs.xattr(&self.me, ino, name) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.errno == libc::ENODATA || is_missing(&error) => Ok(None),
            Err(error) => Err(failed(&error, "attributes")),
        }
    }
    /// What was said of an object when it was put.
    pub fn meta(&self, ino: Ino) -> S3Result<Option<Meta>> {
        Ok(self.xattr(ino, META)?.and_then(|value| Meta::decode(&value)))
    }
    /// The user of a request.
    #[expect(clippy::unused_self, reason = "asked of the gateway, like all that is known of a request")]
    pub fn user<T>(&self, request: &S3Request<T>) -> Option<User> {
        request.extensions.get::<User>().cloned()
    }
    /// The user of a request that needs one.
    pub fn known<T>(&self, request: &S3Request<T>) -> S3Result<User> {
        self.user(request).ok_or_else(|| s3_error!(AccessDenied, "this needs a key"))
    }
    /// Whether there is a user of this name.
    pub fn is_user(&self, name: &str) -> bool {
        self.keys.user(name).is_ok_and(|user| user.is_some())
    }
}

/// Looks by name and does something to what was found; again if that was replaced or deleted in between, as files are by those who put over them.
pub fn again<T>(mut attempt: impl FnMut() -> S3Result<T>) -> S3Result<T> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if is_aborted(&error) => {}
            done => return done,
        }
    }
    attempt()
}

/// Whether something was replaced or deleted between two looks at it.
pub fn is_aborted(error: &s3s::S3Error) -> bool {
    error.code().as_str() == "OperationAborted"
}

/// Others delete the directories of a key while it is put, again and again.
pub fn vanished(key: &str) -> s3s::S3Error {
    s3_error!(OperationAborted, "the directories of `{}` are being deleted; try again", key.escape_default())
}

/// No object of this key.
pub fn no_key(key: &str) -> s3s::S3Error {
    s3_error!(NoSuchKey, "there is no object `{}`", key.escape_default())
}

/// Whether trying again helps: a directory on the way vanished, or another was there first.
pub fn is_race(error: &FsError) -> bool {
    matches!(error.errno, libc::ENOENT | libc::EBUSY | libc::EEXIST | libc::ESTALE)
}
