//! State shared by all requests, and lookup of a key's file.

use std::hash::BuildHasher;
use std::sync::Arc;

use cenote_posix::{Attr, Caller, FileSystem, FsError, FsResult, Ino, Kind, Make, SetXattr};
use parking_lot::{Mutex, MutexGuard};
use s3s::{S3Request, S3Result, s3_error};

use crate::bucket::{Bucket, Buckets};
use crate::failure::{collision, failed, is_gone, is_missing};
use crate::keyed::Keyed;
use crate::keys::{Keys, User};
use crate::meta::{IMPLIED, MARKER, META, Meta};
use crate::name::KeyPath;

/// Number of locks for keys: requests about one key run one after the other, so that what a request saw still holds when it acts.
const LOCKS: usize = 256;
/// Attempts to create a key's directories while others delete them.
const ATTEMPTS: usize = 64;

/// A store as S3 sees it.
pub struct Gateway {
    /// The trees.
    pub fs: FileSystem,
    /// This server's credentials for the trees: rights are checked here.
    pub me: Caller,
    /// Buckets.
    pub buckets: Buckets,
    /// Access keys.
    pub keys: Keys,
    /// The region reported to clients.
    pub region: String,
    /// Buckets whose keys another crate provides.
    pub keyed: Option<Arc<dyn Keyed>>,
    locks: Box<[Mutex<()>]>,
    hasher: foldhash::fast::FixedState,
}

/// Result of looking up a key's path.
pub enum Lookup {
    /// File.
    File(Attr),
    /// Directory.
    Directory(Attr),
    /// Symbolic link, pipe or device: not shown.
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
    /// Locks a key, for an operation that depends on the existing object.
    pub fn lock(&self, bucket: &Bucket, key: &str) -> MutexGuard<'_, ()> {
        let place = self.hasher.hash_one((bucket.root, key)) as usize % self.locks.len();
        self.locks[place].lock()
    }
    /// Returns the bucket of a request.
    pub fn bucket(&self, name: &str) -> S3Result<Arc<Bucket>> {
        self.buckets.get(name)
    }
    /// Returns the credentials with which files are created.
    pub fn caller(&self, user: Option<&User>) -> Caller {
        user.map_or_else(|| self.me.clone(), |user| Caller { uid: user.uid, gid: user.gid, ..self.me.clone() })
    }

    /// Returns the directory of a key's last name; `None` if a directory on the path does not exist.
    pub fn parent(&self, bucket: &Bucket, path: KeyPath<'_>) -> S3Result<Option<Ino>> {
        again(|| {
            let mut at = bucket.root;
            for name in path.directories() {
                match self.on_path(bucket, at, name)? {
                    Lookup::Directory(attr) => at = attr.ino,
                    _ => return Ok(None),
                }
            }
            Ok(Some(at))
        })
    }
    /// Looks up a key's path; also returns the directory.
    pub fn find(&self, bucket: &Bucket, path: KeyPath<'_>) -> S3Result<(Option<Ino>, Lookup)> {
        again(|| {
            let Some(parent) = self.parent(bucket, path)? else { return Ok((None, Lookup::Nothing)) };
            self.on_path(bucket, parent, path.last()).map(|found| (Some(parent), found))
        })
    }
    /// Looks up a name in a directory on a key's path. Fails with `OperationAborted` if the directory was removed since it was found:
    /// its path may lead to a new one.
    fn on_path(&self, bucket: &Bucket, at: Ino, name: &str) -> S3Result<Lookup> {
        match self.fs.lookup(&self.me, at, name.as_bytes()) {
            Err(error) if error.errno == libc::ESTALE && at != bucket.root => Err(failed(&error, name)),
            found => of_lookup(found, name),
        }
    }
    /// Looks up a name in a directory.
    pub fn find_in(&self, parent: Ino, name: &str) -> S3Result<Lookup> {
        of_lookup(self.fs.lookup(&self.me, parent, name.as_bytes()), name)
    }
    /// Returns the directory for a key's last name, created if it does not exist.
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
    /// Creates an implied directory (one that keys below it require) if it does not exist.
    pub fn directory(&self, caller: &Caller, at: Ino, name: &str, (way, key): (&str, &str)) -> S3Result<Ino> {
        for _ in 0..ATTEMPTS {
            match self.find_in(at, name)? {
                Lookup::Directory(attr) => return Ok(attr.ino),
                Lookup::File(_) | Lookup::Other => return Err(collision(key, way)),
                Lookup::Nothing => {}
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
    /// Removes implied directories above a key that are empty now.
    pub fn prune(&self, bucket: &Bucket, path: KeyPath<'_>) -> S3Result<()> {
        let mut way = vec![bucket.root];
        let mut names = Vec::new();
        for name in path.directories() {
            match self.find_in(way[way.len() - 1], name)? {
                Lookup::Directory(attr) => way.push(attr.ino),
                _ => break,
            }
            names.push(name);
        }
        self.prune_way(&way, &names);
        Ok(())
    }
    /// Removes empty implied directories whose numbers are known: `way[i + 1]` is `names[i]` in `way[i]`.
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
    /// Returns whether an extended attribute exists.
    pub fn has(&self, ino: Ino, name: &[u8]) -> bool {
        self.fs.xattr(&self.me, ino, name).is_ok()
    }
    /// Returns an extended attribute, if it exists.
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> S3Result<Option<Vec<u8>>> {
        match self.fs.xattr(&self.me, ino, name) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.errno == libc::ENODATA || is_missing(&error) => Ok(None),
            Err(error) => Err(failed(&error, "attributes")),
        }
    }
    /// Returns the metadata of an object.
    pub fn meta(&self, ino: Ino) -> S3Result<Option<Meta>> {
        Ok(self.xattr(ino, META)?.and_then(|value| Meta::decode(&value)))
    }
    /// Returns the user of a request.
    #[expect(clippy::unused_self, reason = "asked of the gateway, like all that is known of a request")]
    pub fn user<T>(&self, request: &S3Request<T>) -> Option<User> {
        request.extensions.get::<User>().cloned()
    }
    /// Returns the user of a request that needs one.
    pub fn known<T>(&self, request: &S3Request<T>) -> S3Result<User> {
        self.user(request).ok_or_else(|| s3_error!(AccessDenied, "this needs a key"))
    }
    /// Returns whether there is a user of this name.
    pub fn is_user(&self, name: &str) -> bool {
        self.keys.user(name).is_ok_and(|user| user.is_some())
    }
}

/// The result of looking up a name.
fn of_lookup(found: FsResult<Attr>, name: &str) -> S3Result<Lookup> {
    match found {
        Ok(attr) => Ok(match attr.kind {
            Kind::File => Lookup::File(attr),
            Kind::Directory => Lookup::Directory(attr),
            _ => Lookup::Other,
        }),
        Err(error) if is_gone(&error) => Ok(Lookup::Nothing),
        Err(error) => Err(failed(&error, name)),
    }
}

/// Looks up a name and acts on the result; retries if the file was replaced or deleted in between, as a put over it does.
pub fn again<T>(mut attempt: impl FnMut() -> S3Result<T>) -> S3Result<T> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if is_aborted(&error) => {}
            done => return done,
        }
    }
    attempt()
}

/// Returns whether something was replaced or deleted between two lookups.
pub fn is_aborted(error: &s3s::S3Error) -> bool {
    error.code().as_str() == "OperationAborted"
}

/// Error for a put whose directories others delete again and again.
pub fn vanished(key: &str) -> s3s::S3Error {
    s3_error!(OperationAborted, "the directories of `{}` are being deleted; try again", key.escape_default())
}

/// Error for a missing key.
pub fn no_key(key: &str) -> s3s::S3Error {
    s3_error!(NoSuchKey, "there is no object `{}`", key.escape_default())
}

/// Returns whether a retry helps: a directory on the path vanished, or another request was faster.
pub fn is_race(error: &FsError) -> bool {
    matches!(error.errno, libc::ENOENT | libc::EBUSY | libc::EEXIST | libc::ESTALE)
}
