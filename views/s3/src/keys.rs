//! Access keys: which user has which, and the secrets that requests are signed with.
//!
//! They are records of an index in a container of its own, which belongs to whoever made it: nobody else is let in by the store.

use std::time::{SystemTime, UNIX_EPOCH};

use cenote::{ContainerSpec, Durability, Error, ErrorKind, Index, IndexId, Result, Store};
use serde::{Deserialize, Serialize};

/// The container. A slash keeps it from being a bucket or a directory.
const CONTAINER: &str = "cenote/s3";
/// The index in it.
const INDEX: IndexId = IndexId(1);
/// How long a key that was replaced still works unless told otherwise, in seconds.
pub const GRACE_S: u64 = 24 * 3600;

const KEY: u8 = b'k';
const USER: u8 = b'u';

/// A user.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Whose files it makes: numeric user.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
}

/// A key.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq)]
pub struct Key {
    /// What requests name: 20 letters and digits.
    pub id: String,
    /// What they are signed with.
    pub secret: String,
    /// Whose it is.
    pub user: String,
    /// When it was made, in seconds since 1970.
    pub made_s: u64,
    /// When it ends, if it was replaced.
    pub until_s: Option<u64>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("id", &self.id).field("user", &self.user).finish_non_exhaustive()
    }
}

impl Key {
    /// Whether it can be used at this time (seconds since 1970).
    pub fn is_valid(&self, now_s: u64) -> bool {
        self.until_s.is_none_or(|until| now_s < until)
    }
}

/// The keys of a store.
#[derive(Clone, Debug)]
pub struct Keys {
    index: Index,
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Keys {
    /// The keys of `store`; the place for them is made if it is not there.
    pub fn open(store: &Store) -> Result<Self> {
        let spec = ContainerSpec { durability: Durability::Sync, ..ContainerSpec::default() };
        let container = store.open_container(CONTAINER, &spec)?;
        let index = match container.open_index(INDEX) {
            Err(error) if error.kind() == ErrorKind::NotFound => match container.create_index(Some(INDEX)) {
                Err(error) if error.kind() == ErrorKind::Exists => container.open_index(INDEX)?,
                made => made?,
            },
            found => found?,
        };
        Ok(Self { index: index.remembering() })
    }
    /// A key by its id, if there is one and it still works.
    pub fn key(&self, id: &str) -> Result<Option<Key>> {
        let key: Option<Key> = self.record(KEY, id)?;
        Ok(key.filter(|key| key.is_valid(now_s())))
    }
    /// A user by name.
    pub fn user(&self, name: &str) -> Result<Option<User>> {
        self.record(USER, name)
    }
    /// All users, by name.
    pub fn users(&self) -> Result<Vec<User>> {
        self.all(USER)
    }
    /// All keys, ended ones too.
    pub fn keys(&self) -> Result<Vec<Key>> {
        self.all(KEY)
    }
    /// Makes a user (if there is none of that name) and a key. A user has two keys that work at most.
    pub fn add(&self, user: &User) -> Result<Key> {
        check_name(&user.name)?;
        let known = self.user(&user.name)?;
        let works = self.keys()?.into_iter().filter(|key| key.user == user.name && key.is_valid(now_s())).count();
        if works >= 2 {
            return Err(Error::new(ErrorKind::Exists, format!("keys of `{}`", user.name))
                .because("two of them work already")
                .try_next("`cenote s3 key rotate` or `cenote s3 key remove`"));
        }
        if known.is_none() {
            self.put(USER, &user.name, user)?;
        }
        self.make_key(&user.name)
    }
    /// Keeps this key, whose secret somebody else has chosen.
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
        self.put(KEY, id, &key)?;
        Ok(key)
    }
    /// Makes a new key for a user; the newest of the older ones works for `grace_s` seconds more, all others end.
    pub fn rotate(&self, name: &str, grace_s: u64) -> Result<Key> {
        let user = self.user(name)?.ok_or_else(|| no_user(name))?;
        let mut older: Vec<Key> = self.keys()?.into_iter().filter(|key| key.user == user.name).collect();
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
    /// Removes one key of a user, or the user with all keys. Buckets stay. How many keys there were.
    pub fn remove(&self, name: &str, id: Option<&str>) -> Result<usize> {
        self.user(name)?.ok_or_else(|| no_user(name))?;
        let all = self.keys()?;
        let mut removed = 0;
        for key in all.iter().filter(|key| key.user == name && id.is_none_or(|id| key.id == id)) {
            self.index.del(&[&named(KEY, &key.id)])?;
            removed += 1;
        }
        match id {
            Some(id) if removed == 0 => {
                Err(Error::new(ErrorKind::NotFound, format!("key `{id}` of `{name}`")).try_next("`cenote s3 key list`"))
            }
            Some(_) => Ok(removed),
            None => self.index.del(&[&named(USER, name)]).map(|_| removed),
        }
    }

    fn make_key(&self, user: &str) -> Result<Key> {
        let key = Key { id: drawn(20)?, secret: drawn(40)?, user: user.to_owned(), made_s: now_s(), until_s: None };
        self.put(KEY, &key.id, &key)?;
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

/// Users' names are in ARNs and in lists of rights: plain characters only.
fn check_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@' | b'+');
    if (1..=64).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, format!("S3 user `{}`", name.escape_default()))
        .because("a name has 1 to 64 letters, digits and `-_.@+`"))
}

/// Random letters and digits, five bits each.
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
