//! How a store's directory says that the store's files lie in a pool: a small file with the place and the way to it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_model::{Error, ErrorKind, Result};
use cenote_rados::{CephPool, Connect, Pool};

use super::tenure::failed;
use super::{RadosPlace, Timing};
use crate::StoreDir;
use crate::sums::sum_of;

/// Name of the file in the store's directory.
pub const ADDRESS_FILE: &str = "home-on-rados";
/// Directory of the local copy, in the store's directory.
pub const COPY_DIR: &str = "home-copy";
/// Directory of the copy that was set aside when the store was last fetched anew.
pub const COPY_ASIDE_DIR: &str = "home-copy-before";
const MAGIC: &str = "cenote-home-on-rados 1";
/// How it is written on the command line.
const SCHEME: &str = "rados:";
const NAME_DEFAULT: &str = "cenote";

/// A place for a store in a pool, and how to get there.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Address {
    /// The pool.
    pub pool: String,
    /// The namespace there, of which everything belongs to the store.
    pub name: String,
    /// Configuration file of Ceph; empty: where Ceph's own programs look.
    pub conf: PathBuf,
    /// Name of the key's user, without `client.`; empty: `admin`.
    pub user: String,
    /// File with the key; empty: what the configuration says.
    pub keyring: PathBuf,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.pool, self.name)
    }
}

impl Address {
    /// Parses `rados:POOL[/NAME][,conf=FILE][,user=NAME][,keyring=FILE]`. Paths become absolute.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |why: &str| {
            Error::new(ErrorKind::InvalidInput, format!("`{text}`"))
                .because(why)
                .try_next("write it as rados:POOL/NAME, or rados:POOL/NAME,user=USER,conf=FILE,keyring=FILE")
        };
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| bad("only `rados:` is known here"))?;
        let mut words = rest.split(',');
        let place = words.next().unwrap_or("");
        let (pool, name) = place.split_once('/').unwrap_or((place, NAME_DEFAULT));
        let is_name = |name: &str| !name.is_empty() && !name.contains(|c: char| c.is_control() || c == '/' || c == ' ');
        if !is_name(pool) || !is_name(name) {
            return Err(bad("pool and name are one word each"));
        }
        let mut address = Self { pool: pool.to_owned(), name: name.to_owned(), ..Self::default() };
        for word in words {
            let path = |value: &str| std::path::absolute(value).map_err(|error| Error::io(value, &error));
            match word.split_once('=') {
                Some(("conf", value)) => address.conf = path(value)?,
                Some(("keyring", value)) => address.keyring = path(value)?,
                Some(("user", value)) if is_name(value) => {
                    value.strip_prefix("client.").unwrap_or(value).clone_into(&mut address.user);
                }
                _ => return Err(bad(&format!("`{word}` is no option"))),
            }
        }
        Ok(address)
    }
    /// The text that [`Address::parse`] reads as this address.
    pub fn spelled(&self) -> String {
        let mut text = self.to_string();
        let (conf, keyring) = (self.conf.display().to_string(), self.keyring.display().to_string());
        for (name, value) in [("user", &self.user), ("conf", &conf), ("keyring", &keyring)] {
            if !value.is_empty() {
                text = format!("{text},{name}={value}");
            }
        }
        text
    }
    /// The address of one of several stores that share this one's name, in the same pool.
    #[must_use]
    pub fn of(&self, which: &str) -> Self {
        Self { name: format!("{}-{which}", self.name), ..self.clone() }
    }
    /// What a store's directory says; `None` if the store is in the directory itself. `Corrupt` if it cannot be read.
    pub fn read(dir: &StoreDir) -> Result<Option<Self>> {
        let Some(text) = dir.read_text(ADDRESS_FILE)? else { return Ok(None) };
        Self::decode(&text).map(Some).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, dir.path().join(ADDRESS_FILE).display().to_string())
                .because("it is damaged, or of a later version")
                .try_next("delete it, then `cenote adopt DIR --from rados:POOL/NAME` writes it anew")
        })
    }
    /// Writes the file durably. `Exists` if there is one that says something else.
    pub fn write(&self, dir: &StoreDir) -> Result<()> {
        if dir.write_new(ADDRESS_FILE, &self.encode())? || Self::read(dir)?.as_ref() == Some(self) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Exists, dir.path().join(ADDRESS_FILE).display().to_string())
            .because("the directory is of a store with its home elsewhere")
            .try_next("choose another directory"))
    }
    fn encode(&self) -> String {
        let Self { pool, name, conf, user, keyring } = self;
        let (conf, keyring) = (conf.display(), keyring.display());
        let body = format!("pool {pool}\nname {name}\nconf {conf}\nuser {user}\nkeyring {keyring}\n");
        format!("{MAGIC}\nsum {:08x}\n{body}", sum_of(body.as_bytes()))
    }
    fn decode(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(MAGIC)?.strip_prefix("\nsum ")?;
        let (sum, body) = (rest.get(..8)?, rest.get(8..)?.strip_prefix('\n')?);
        (u32::from_str_radix(sum, 16).ok()? == sum_of(body.as_bytes())).then_some(())?;
        let field = |name: &str| body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Some(Self {
            pool: field("pool")?.to_owned(),
            name: field("name")?.to_owned(),
            conf: field("conf")?.into(),
            user: field("user")?.to_owned(),
            keyring: field("keyring")?.into(),
        })
    }
    /// Connects to the cluster, for the store in `dir`. Takes bounded time.
    pub fn connect(&self, dir: &Path) -> Result<RadosPlace> {
        let given = |path: &Path| (!path.as_os_str().is_empty()).then(|| path.to_owned());
        let connect = Connect {
            pool: self.pool.clone(),
            namespace: self.name.clone(),
            conf: given(&self.conf),
            user: (!self.user.is_empty()).then(|| self.user.clone()),
            keyring: given(&self.keyring),
        };
        let pool = CephPool::connect(&connect).map_err(|refusal| failed(&self.to_string(), &refusal))?;
        Ok(self.place(Arc::new(pool), dir))
    }
    /// The place of the store in `dir`.
    pub fn place(&self, pool: Arc<dyn Pool>, dir: &Path) -> RadosPlace {
        RadosPlace { pool, subject: self.to_string(), local: dir.join(COPY_DIR), timing: Timing::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_parsed_and_comes_back_from_its_file() {
        let text = "rados:meta/run-7,user=client.hpc,conf=/etc/ceph/a.conf,keyring=/k";
        let address = Address::parse(text).unwrap();
        let parts = (address.pool.as_str(), address.name.as_str(), address.user.as_str());
        assert_eq!(parts, ("meta", "run-7", "hpc"));
        assert_eq!(
            (address.conf.as_path(), address.to_string().as_str()),
            (Path::new("/etc/ceph/a.conf"), "rados:meta/run-7")
        );
        assert_eq!(Address::decode(&address.encode()), Some(address.clone()));
        assert_eq!(Address::parse(&address.spelled()), Ok(address.clone()));
        assert_eq!(Address::parse("rados:meta").map(|it| it.spelled()).unwrap(), "rados:meta/cenote");
        assert_eq!(Address { name: "run-7-n2".into(), ..address.clone() }, address.of("n2"));
        let damaged = address.encode().replace("run-7", "run-8");
        assert_eq!(Address::decode(&damaged), None);
        assert_eq!(Address::parse("rados:meta").unwrap().name, NAME_DEFAULT);
        for bad in ["meta", "rados:", "rados:/x", "rados:a/b/c", "rados:a b", "rados:a,x=y", "rados:a,user=", "s3:a"] {
            assert_eq!(Address::parse(bad).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }
}
