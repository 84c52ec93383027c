//! Buckets: their stored record, and a short-lived cache of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cenote_posix::{Attr, Caller, FileSystem, Ino, Kind, SetXattr, Time};
use parking_lot::Mutex;
use s3s::dto::{CORSRule, LifecycleRule, PublicAccessBlockConfiguration};
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};

use crate::acl::Acl;
use crate::failure;
use crate::keys::User;
use crate::meta::encode;
use crate::name::may_be_bucket;
use crate::policy::Policy;

/// Where the record is: an extended attribute of the root.
const BUCKET: &[u8] = b"cenote.s3.bucket";
/// Maximum age of a cached bucket: changes by another server or a command are seen then.
const MEMORY: Duration = Duration::from_secs(1);
/// Maximum number of cached buckets.
const REMEMBERED_MAX: usize = 4096;

/// State of versioning.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Versioning {
    /// Versions were never kept.
    #[default]
    Never,
    /// Versions are kept.
    Enabled,
    /// Existing versions stay; no new ones are made.
    Suspended,
}

/// Stored record of a bucket.
#[derive(Serialize, Deserialize, Clone, Default)]
#[serde(default)]
pub struct Record {
    /// The user who created it through S3; `None` if another view created it.
    pub owner: Option<String>,
    /// ACL.
    pub acl: Option<Acl>,
    /// State of versioning.
    pub versioning: Versioning,
    /// Policy: the JSON as put.
    pub policy: Option<String>,
    /// CORS rules: which web pages of other hosts may use it.
    pub cors: Option<Vec<CORSRule>>,
    /// Tags: names and values.
    pub tags: Option<Vec<(String, String)>>,
    /// Rules by which uploads are aborted.
    pub lifecycle: Option<Vec<LifecycleRule>>,
    /// Ownership setting as put: the bucket's owner owns every object here in any case.
    pub ownership: Option<String>,
    /// Blocks of public access.
    pub block: Option<PublicAccessBlockConfiguration>,
}

/// A bucket.
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// Its root directory.
    pub root: Ino,
    /// Creation time.
    pub born: Time,
    /// Its record.
    pub record: Record,
    /// The policy, parsed.
    pub policy: Option<Policy>,
    /// Numeric user of the root.
    uid: u32,
}

impl Bucket {
    /// Returns whether this user owns it: its creator, or, for a container that another view created, the user with
    /// its root's numeric user.
    pub fn is_owned_by(&self, user: &User) -> bool {
        match &self.record.owner {
            Some(owner) => *owner == user.name,
            None => self.uid == user.uid,
        }
    }
    /// Returns the owner's name.
    pub fn owner(&self) -> String {
        self.record.owner.clone().unwrap_or_else(|| format!("uid-{}", self.uid))
    }
    /// Returns its ACL.
    pub fn acl(&self) -> Acl {
        self.record.acl.clone().unwrap_or_else(|| Acl::private(&self.owner()))
    }
    /// Returns whether grants to everybody are ignored.
    pub fn ignores_public(&self) -> bool {
        self.record.block.as_ref().and_then(|block| block.ignore_public_acls).unwrap_or_default()
    }
}

/// The buckets of a store.
pub struct Buckets {
    fs: FileSystem,
    me: Caller,
    remembered: Mutex<HashMap<String, (Instant, Arc<Bucket>)>>,
    /// Raised with each change here, so that a record read before it is not cached after it.
    changes: AtomicU64,
    /// Held while a record is changed.
    changing: Mutex<()>,
}

impl Buckets {
    pub fn new(fs: FileSystem, me: Caller) -> Self {
        Self { fs, me, remembered: Mutex::default(), changes: AtomicU64::new(0), changing: Mutex::default() }
    }
    /// Returns a bucket by name.
    pub fn get(&self, name: &str) -> S3Result<Arc<Bucket>> {
        if let Some((since, bucket)) = self.remembered.lock().get(name)
            && since.elapsed() < MEMORY
        {
            return Ok(bucket.clone());
        }
        let since = Instant::now();
        let before = self.changes.load(Ordering::SeqCst);
        let bucket = Arc::new(self.read(name)?);
        let mut remembered = self.remembered.lock();
        if self.changes.load(Ordering::SeqCst) != before {
            return Ok(bucket);
        }
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(name.to_owned(), (since, bucket.clone()));
        Ok(bucket)
    }
    /// Returns the bucket of this name, if there is one.
    pub fn find(&self, name: &str) -> S3Result<Option<Arc<Bucket>>> {
        match self.get(name) {
            Err(error) if error.code().as_str() == "NoSuchBucket" => Ok(None),
            found => found.map(Some),
        }
    }
    /// Removes a bucket from the cache.
    pub fn forget(&self, name: &str) {
        let mut remembered = self.remembered.lock();
        self.changes.fetch_add(1, Ordering::SeqCst);
        remembered.remove(name);
    }
    /// Changes a bucket's record.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut Record)) -> S3Result<()> {
        let _one_at_a_time = self.changing.lock();
        let mut bucket = self.read(name)?;
        change(&mut bucket.record);
        self.fs
            .set_xattr(&self.me, bucket.root, BUCKET, &encode(&bucket.record), SetXattr::Any)
            .map_err(|error| failure::failed(&error, name))?;
        self.forget(name);
        Ok(())
    }

    fn read(&self, name: &str) -> S3Result<Bucket> {
        let missing = || s3_error!(NoSuchBucket, "there is no bucket `{}`", name.escape_default());
        if !may_be_bucket(name) {
            return Err(missing());
        }
        let attr = match self.fs.lookup(&self.me, Ino::TOP, name.as_bytes()) {
            Ok(attr) if attr.kind == Kind::Directory => attr,
            Ok(_) => return Err(missing()),
            Err(error) if failure::is_missing(&error) => return Err(missing()),
            Err(error) => return Err(failure::failed(&error, name)),
        };
        self.of(name, &attr)
    }
    fn of(&self, name: &str, attr: &Attr) -> S3Result<Bucket> {
        let record: Record = match self.fs.xattr(&self.me, attr.ino, BUCKET) {
            Ok(value) => serde_json::from_slice(&value).map_err(|error| {
                s3_error!(error, InternalError, "what is kept about bucket `{name}` cannot be read")
            })?,
            Err(error) if error.errno == libc::ENODATA => Record::default(),
            Err(error) => return Err(failure::failed(&error, name)),
        };
        let policy = record.policy.as_deref().map(|text| Policy::parse(text, name)).transpose()?;
        Ok(Bucket { name: name.to_owned(), root: attr.ino, born: attr.born, record, policy, uid: attr.uid })
    }
}
