//! Keys of a tier's objects, and errors about them.

use cenote_model::{DeviceId, DeviceKind, DeviceSpec, Error, ErrorKind, Result, StoreId};

use super::rados;
use super::service::Refusal;

/// Upper bound of sequence numbers that this device assigns: objects with greater numbers are foreign.
const SEQUENCE_END: u64 = 1 << 62;

/// Bucket and prefix of a tier, or pool and namespace.
#[derive(Clone, Debug)]
pub(super) struct BucketPath {
    pub tier: String,
    pub kind: DeviceKind,
    pub bucket: String,
    /// Empty, or ends with `/`.
    prefix: String,
    /// Common prefix of all keys except the owner's.
    pub own: String,
    /// Source of the credentials, for error messages.
    pub credentials: String,
}

/// What a key below the prefix of the device names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Named {
    Pack(u64),
    Catalogue(u64),
    Claim(u64),
}

impl Named {
    /// Returns true for objects that say who has the tier, rather than what it holds.
    pub fn is_claim(self) -> bool {
        matches!(self, Self::Claim(_))
    }
}

impl BucketPath {
    /// Parses `BUCKET/PREFIX` or `POOL/NAMESPACE`. The places of a `raid` tier are this tier's alone.
    pub fn of(store: StoreId, id: DeviceId, spec: &DeviceSpec, credentials: String) -> Result<Self> {
        if spec.kind == DeviceKind::Raid {
            let (tier, bucket) = (spec.name.clone(), spec.path.display().to_string());
            let own = format!("store-{store}/dev-{}/", id.0);
            return Ok(Self { tier, kind: spec.kind, bucket, prefix: String::new(), own, credentials });
        }
        let refuse = |why: &str| {
            let tier = format!("{} tier `{}` at {}", spec.kind.word(), spec.name, spec.path.display());
            let form = if spec.kind == DeviceKind::Rados { "POOL/NAMESPACE" } else { "BUCKET/PREFIX" };
            Err(Error::new(ErrorKind::InvalidInput, tier).because(why).try_next(format!("write path={form}")))
        };
        let Some(path) = spec.path.to_str() else { return refuse("the path is not UTF-8") };
        if path.starts_with('/') {
            return refuse("it is a bucket and a prefix in it, not a path of the file system");
        }
        let is_rados = spec.kind == DeviceKind::Rados;
        let (bucket, prefix) =
            if is_rados { rados::access::parts(path) } else { path.split_once('/').unwrap_or((path, "")) };
        let prefix = prefix.trim_matches('/');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if !path.chars().all(plain) {
            return refuse("only letters, digits and -_. are taken, so that every service takes them");
        }
        if bucket.is_empty() || prefix.split('/').any(|part| part == ".." || part == ".") || path.contains("//") {
            return refuse("no bucket, or empty parts or dots in the prefix");
        }
        if is_rados && prefix.contains('/') {
            return refuse("a namespace has no `/`");
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let own = format!("{prefix}store-{store}/dev-{}/", id.0);
        let bucket = bucket.to_owned();
        Ok(Self { tier: spec.name.clone(), kind: spec.kind, bucket, prefix, own, credentials })
    }
    pub fn owner_key(&self) -> String {
        format!("{}cenote-owner", self.prefix)
    }
    pub fn pack_key(&self, sequence: u64) -> String {
        format!("{}pack-{sequence:020}", self.own)
    }
    pub fn catalogue_key(&self, sequence: u64) -> String {
        format!("{}map-{sequence:020}", self.own)
    }
    /// Common prefix of the keys of all claims.
    pub fn claims(&self) -> String {
        format!("{}claims/", self.own)
    }
    pub fn claim_key(&self, number: u64) -> String {
        format!("{}claim-{number:020}", self.claims())
    }
    /// What a key of this device names.
    pub fn named(&self, key: &str) -> Option<Named> {
        let (word, digits) = key.strip_prefix(&self.own)?.split_once('-')?;
        let number = Some(digits).filter(|digits| digits.len() == 20)?.parse().ok().filter(|n| *n < SEQUENCE_END)?;
        match word {
            "pack" => Some(Named::Pack(number)),
            "map" => Some(Named::Catalogue(number)),
            "claims/claim" => Some(Named::Claim(number)),
            _ => None,
        }
    }
    /// The tier, as the subject of an error.
    pub fn subject(&self) -> String {
        format!("{} tier `{}` at {}/{}", self.kind.word(), self.tier, self.bucket, self.prefix)
    }
    /// One of its objects, as the subject of an error.
    pub fn object(&self, key: &str) -> String {
        format!("{} tier `{}`, object {}/{key}", self.kind.word(), self.tier, self.bucket)
    }
    /// Converts a refusal by the service into an error about an object.
    #[cold]
    pub fn error(&self, key: &str, refusal: &Refusal) -> Error {
        if self.kind == DeviceKind::Raid {
            let next = match refusal.kind {
                ErrorKind::PermissionDenied => "let this user read and write the tier's directories",
                ErrorKind::Full => "free some space on the tier's file systems, or add a tier",
                ErrorKind::NotFound | ErrorKind::Corrupt => {
                    "bring back the disks that had it, if there are others than those that are there; or write again what was in it"
                }
                ErrorKind::Exists => "somebody else writes there: give each store places of its own",
                _ => "bring places back: `cenote tiers` names those that are away; what was synced is safe there",
            };
            return Error::new(refusal.kind, self.object(key)).because(refusal.cause.clone()).try_next(next);
        }
        let next = match refusal.kind {
            ErrorKind::PermissionDenied => {
                format!("renew the credentials in {}; they are read again with the next request", self.credentials)
            }
            ErrorKind::NotFound if key == self.owner_key() || key == self.own => {
                format!("make sure that `{}` is there", self.bucket)
            }
            ErrorKind::NotFound => {
                "somebody deleted it: restore it from a copy, or write again what was in it".to_owned()
            }
            ErrorKind::Full => format!("free space in `{}`, or have its quota raised", self.bucket),
            ErrorKind::Exists => "somebody else writes there: give each store a prefix of its own".to_owned(),
            _ => "check the service and the network; what was synced is safe there".to_owned(),
        };
        Error::new(refusal.kind, self.object(key)).because(refusal.cause.clone()).try_next(next)
    }
    /// The error for an object whose bytes differ from those written.
    #[cold]
    pub fn damaged(&self, key: &str, why: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupt, self.object(key))
            .because(why)
            .try_next("somebody or something changed it: restore it from a copy, or write again what was in it")
    }
}

/// Returns true for keys of objects that say who has a tier: small, few, and the ones that two processes may store at once.
/// Packs and catalogues are stored by the process alone that has the tier.
pub(super) fn is_record(key: &str) -> bool {
    key.ends_with("cenote-owner") || key.contains("/claims/")
}
