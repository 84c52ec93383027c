//! Access keys: their users, and the secrets that sign requests.
//!
//! They are records of an index in a container of its own. Every reader of the store can read those records, so the
//! secrets in them are encrypted ([`crate::seal`]); they are shown once, at creation.

use std::time::{SystemTime, UNIX_EPOCH};

use cenote::{CONTAINER_MODE_PRIVATE, ContainerSpec, Durability, Error, ErrorKind, Index, IndexId, Result, Store};
use serde::{Deserialize, Serialize};

use crate::seal::Seal;

/// The container. The slash keeps it from being a bucket or a directory.
const CONTAINER: &str = "cenote/s3";
/// The index in it.
const INDEX: IndexId = IndexId(1);
/// How long a replaced key still works by default, in seconds.
pub const GRACE_S: u64 = 24 * 3600;

const KEY: u8 = b'k';
const USER: u8 = b'u';

/// A user.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Numeric user for the files that the user creates.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
}

/// An access key.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// The id in requests: 20 letters and digits.
    pub id: String,
    /// The secret that signs requests; empty in lists.
    pub secret: String,
    /// Name of its user.
    pub user: String,
    /// Creation, in seconds since 1970.
    pub made_s: u64,
    /// When it expires, if it was replaced.
    pub until_s: Option<u64>,
}

/// A key as stored.
#[derive(Serialize, Deserialize, Clone)]
struct Kept {
    id: String,
    /// The unencrypted secret of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    secret: String,
    #[serde(default)]
    sealed: String,
    user: String,
    made_s: u64,
    until_s: Option<u64>,
}

impl Kept {
    fn with(self, secret: String) -> Key {
        Key { id: self.id, secret, user: self.user, made_s: self.made_s, until_s: self.until_s }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("id", &self.id).field("user", &self.user).finish_non_exhaustive()
    }
}

impl Key {
    /// Returns whether it is valid at this time (seconds since 1970).
    pub fn is_valid(&self, now_s: u64) -> bool {
        self.until_s.is_none_or(|until| now_s < until)
    }
}

/// The access keys of a store.
#[derive(Clone, Debug)]
pub struct Keys {
    index: Index,
    seal: Seal,
}

/// Returns the time in seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Keys {
    /// Opens the keys of `store`, and creates their container if it does not exist.
    pub fn open(store: &Store) -> Result<Self> {
        let spec =
            ContainerSpec { durability: Durability::Sync, mode: CONTAINER_MODE_PRIVATE, ..ContainerSpec::default() };
        let container = store.open_container(CONTAINER, &spec)?;
        let index = match container.open_index(INDEX) {
            Err(error) if error.kind() == ErrorKind::NotFound => match container.create_index(Some(INDEX)) {
                Err(error) if error.kind() == ErrorKind::Exists => container.open_index(INDEX)?,
                made => made?,
            },
            found => found?,
        };
        let keys = Self { index: index.remembering(), seal: Seal::of(store)? };
        keys.seal_old()?;
        Ok(keys)
    }
    /// Encrypts secrets that an earlier version stored in plain text.
    fn seal_old(&self) -> Result<()> {
        for mut kept in self.kept()?.into_iter().filter(|kept| !kept.secret.is_empty()) {
            tracing::warn!(key = kept.id, "readers of the store could read its secret; now it is sealed: replace it");
            kept.sealed = self.seal.close(&kept.id, &std::mem::take(&mut kept.secret))?;
            self.put(KEY, &kept.id.clone(), &kept)?;
        }
        Ok(())
    }
    /// Returns a valid key by id.
    pub fn key(&self, id: &str) -> Result<Option<Key>> {
        let Some(kept) = self.record::<Kept>(KEY, id)? else { return Ok(None) };
        let secret = match kept.secret.as_str() {
            "" => self.seal.open(&kept.id, &kept.sealed)?,
            plain => plain.to_owned(),
        };
        Ok(Some(kept.with(secret)).filter(|key| key.is_valid(now_s())))
    }
    /// Returns a user by name.
    pub fn user(&self, name: &str) -> Result<Option<User>> {
        self.record(USER, name)
    }
    /// Lists all users, by name.
    pub fn users(&self) -> Result<Vec<User>> {
        self.all(USER)
    }
    /// Lists all keys, including expired ones, without secrets.
    pub fn keys(&self) -> Result<Vec<Key>> {
        Ok(self.kept()?.into_iter().map(|kept| kept.with(String::new())).collect())
    }
    fn kept(&self) -> Result<Vec<Kept>> {
        self.all(KEY)
    }
    fn keep(&self, key: &Key) -> Result<()> {
        let kept = Kept {
            id: key.id.clone(),
            secret: String::new(),
            sealed: self.seal.close(&key.id, &key.secret)?,
            user: key.user.clone(),
            made_s: key.made_s,
            until_s: key.until_s,
        };
        self.put(KEY, &key.id, &kept)
    }
    /// Creates a user (if none has that name) and a key. A user has at most two valid keys.
    pub fn add(&self, user: &User) -> Result<Key> {
        check_name(&user.name)?;
        let known = self.user(&user.name)?;
        let works = self.keys()?.into_iter().filter(|key| key.user == user.name && key.is_valid(now_s())).count();
        if works >= 2 {
            return Err(Error::new(ErrorKind::Exists, format!("keys of `{}`", user.name))
                .because("the user has two valid keys, the most that are allowed")
                .try_next("rotate or remove one: `cenote s3 key rotate`, `cenote s3 key remove`"));
        }
        if known.is_none() {
            self.put(USER, &user.name, user)?;
        }
        self.make_key(&user.name)
    }
    /// Stores a key with a given secret.
    pub fn import(&self, user: &User, id: &str, secret: &str) -> Result<Key> {
        check_name(&user.name)?;
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
        if !(3..=128).contains(&id.len()) || !is_plain(id) || !(8..=128).contains(&secret.len()) {
            return Err(Error::new(ErrorKind::InvalidInput, "key")
                .because("an id has 3 to 128 printable characters without `/`, a secret 8 to 128"));
        }
        if self.user(&user.name)?.is_none() {
            self.put(USER, &user.name, user)?;
        }
        let key = Key {
            id: id.to_owned(),
            secret: secret.to_owned(),
            user: user.name.clone(),
            made_s: now_s(),
            until_s: None,
        };
        self.keep(&key)?;
        Ok(key)
    }
    /// Creates a new key for a user; the newest of the older ones stays valid for `grace_s` more seconds, all
    /// others expire.
    pub fn rotate(&self, name: &str, grace_s: u64) -> Result<Key> {
        let user = self.user(name)?.ok_or_else(|| no_user(name))?;
        let mut older: Vec<Kept> = self.kept()?.into_iter().filter(|key| key.user == user.name).collect();
        older.sort_by_key(|key| std::cmp::Reverse(key.made_s));
        let made = self.make_key(name)?;
        for (age, mut key) in older.into_iter().enumerate() {
            if age == 0 && grace_s > 0 {
                let until = now_s() + grace_s;
                key.until_s = Some(key.until_s.map_or(until, |earlier| earlier.min(until)));
                self.put(KEY, &key.id.clone(), &key)?;
            } else {
                self.index.del(&[&named(KEY, &key.id)])?;
            }
        }
        Ok(made)
    }
    /// Removes one key of a user, or the user with all keys. Buckets stay. Returns the number of keys removed.
    pub fn remove(&self, name: &str, id: Option<&str>) -> Result<usize> {
        self.user(name)?.ok_or_else(|| no_user(name))?;
        let all = self.keys()?;
        let mut removed = 0;
        for key in all.iter().filter(|key| key.user == name && id.is_none_or(|id| key.id == id)) {
            self.index.del(&[&named(KEY, &key.id)])?;
            removed += 1;
        }
        match id {
            Some(id) if removed == 0 => Err(Error::new(ErrorKind::NotFound, format!("key `{id}` of `{name}`"))
                .try_next("`cenote s3 key list` lists them")),
            Some(_) => Ok(removed),
            None => self.index.del(&[&named(USER, name)]).map(|_| removed),
        }
    }

    fn make_key(&self, user: &str) -> Result<Key> {
        let key = Key { id: drawn(20)?, secret: drawn(40)?, user: user.to_owned(), made_s: now_s(), until_s: None };
        self.keep(&key)?;
        Ok(key)
    }
    fn record<T: for<'a> Deserialize<'a>>(&self, tag: u8, name: &str) -> Result<Option<T>> {
        let value = self.index.get_one(&named(tag, name))?;
        value.map(|value| decode(name, &value)).transpose()
    }
    fn all<T: for<'a> Deserialize<'a>>(&self, tag: u8) -> Result<Vec<T>> {
        self.index
            .iter(&[tag])
            .map(|record| record.and_then(|(key, value)| decode(&String::from_utf8_lossy(&key[1..]), &value)))
            .collect()
    }
    fn put(&self, tag: u8, name: &str, value: &impl Serialize) -> Result<()> {
        self.index.put(&[(&named(tag, name), &crate::meta::encode(value))]).map(drop)
    }
}

fn named(tag: u8, name: &str) -> Vec<u8> {
    let mut key = vec![tag];
    key.extend_from_slice(name.as_bytes());
    key
}

fn decode<T: for<'a> Deserialize<'a>>(name: &str, value: &[u8]) -> Result<T> {
    serde_json::from_slice(value)
        .map_err(|error| Error::new(ErrorKind::Corrupt, format!("S3 key or user `{name}`")).because(error.to_string()))
}

fn no_user(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("S3 user `{name}`")).try_next("`cenote s3 key list` lists them")
}

/// Checks a user's name, which occurs in ARNs and ACLs: plain characters only.
fn check_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@' | b'+');
    if (1..=64).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, format!("S3 user `{}`", name.escape_default()))
        .because("a name has 1 to 64 letters, digits and `-_.@+`"))
}

/// Returns random letters and digits, five bits each.
fn drawn(len: usize) -> Result<String> {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut bytes = vec![0; len];
    let mut filled = 0;
    while filled < len {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Error::io("random numbers", &error.into()))?;
    }
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte & 31)])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns everything that a reader of the store can see.
    fn records(keys: &Keys) -> String {
        let all = keys.index.iter(&[]).map(|record| String::from_utf8_lossy(&record.unwrap().1).into_owned());
        all.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn no_reader_finds_a_secret() {
        let dir = std::env::temp_dir().join(format!("cenote-s3-keys-{}", std::process::id()));
        let tier = |text: &str| text.parse().unwrap();
        let devices = vec![
            tier("name=memory,kind=memory,size=16MiB"),
            tier(&format!("name=disk,kind=directory,path={},size=64MiB", dir.join("disk").display())),
        ];
        let config = cenote::StoreConfig { devices, ..cenote::StoreConfig::default() };
        let mode = cenote::Mode::InProcess;
        let options = cenote::OpenOptions { mode, create: true, config, ..cenote::OpenOptions::default() };
        let store = Store::open_with(&dir, &options).unwrap();
        let keys = Keys::open(&store).unwrap();
        let user = User { name: "ann".into(), uid: 1, gid: 1 };
        let drawn = keys.add(&user).unwrap();
        let chosen = keys.import(&user, "CHOSEN", "chosen-by-ann").unwrap();
        // A record of an earlier version.
        let old = r#"{"id":"OLD","secret":"as-it-was","user":"ann","made_s":7,"until_s":null}"#;
        keys.index.put(&[(&named(KEY, "OLD"), old.as_bytes())]).unwrap();
        assert_eq!(keys.key("OLD").unwrap().unwrap().secret, "as-it-was", "until it is sealed");
        let keys = Keys::open(&store).unwrap();
        for (id, secret) in
            [(drawn.id.as_str(), drawn.secret.as_str()), (&chosen.id, &chosen.secret), ("OLD", "as-it-was")]
        {
            assert_eq!(keys.key(id).unwrap().unwrap().secret, secret);
            assert!(!records(&keys).contains(secret), "{id}: {}", records(&keys));
        }
        assert!(keys.keys().unwrap().iter().all(|key| key.secret.is_empty()), "they are told once");
        let next = keys.rotate("ann", 60).unwrap();
        assert!(!records(&keys).contains(&next.secret));
        store.close().unwrap();
        Store::destroy(&dir, true).unwrap();
        assert!(!dir.exists(), "the file with the store's secret goes too");
    }
}
