//! Which cluster a tier is in, and as whom. A store keeps the names of the cluster's configuration and of the file with
//! the key, never a key.
//!
//! As for other services (`remote/credentials.rs`), the store's word is not enough: a configuration leads to monitors,
//! and a key authenticates its user to them. A store of another user gets only files of that user, unless whoever opens
//! the store names them.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use cenote_model::{DeviceSpec, Error, ErrorKind, Result};
use cenote_rados::Connect;

use crate::object::remote::credentials::Trust;
use crate::object::service::{Answer, Refusal};

/// Variable by which the user who opens a store names the configuration of the cluster, whatever the store says.
pub(crate) const CONF_VARIABLE: &str = "CENOTE_CEPH_CONF";
/// The same for the file with the key.
const KEYRING_VARIABLE: &str = "CENOTE_CEPH_KEYRING";
/// The namespace of a tier whose path names none.
const NAMESPACE: &str = "cenote";

/// How a tier's pool is reached.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pool: String,
    namespace: String,
    user: Option<String>,
    conf: Option<PathBuf>,
    keyring: Option<PathBuf>,
    trust: Trust,
}

/// Files that stay open until the cluster's library has read them.
pub(crate) type OpenFiles = Vec<File>;

/// Pool and namespace of a path, `POOL` or `POOL/NAMESPACE`.
pub(crate) fn parts(path: &str) -> (&str, &str) {
    let (pool, namespace) = path.split_once('/').unwrap_or((path, ""));
    let namespace = namespace.trim_matches('/');
    (pool, if namespace.is_empty() { NAMESPACE } else { namespace })
}

impl Access {
    /// Checks the tier's options, in a store of `owner`.
    pub fn of(spec: &DeviceSpec, owner: Option<u32>) -> Result<Self> {
        let path = spec.path.to_string_lossy();
        let (pool, namespace) = parts(&path);
        let chosen = |variable: &str| std::env::var_os(variable).filter(|path| !path.is_empty());
        let file = |option: &str, variable: &str| -> Result<Option<PathBuf>> {
            let named = chosen(variable).or_else(|| spec.options.get(option).map(Into::into));
            named.map(|path| absolute(path.into(), spec, option)).transpose()
        };
        Ok(Self {
            pool: pool.to_owned(),
            namespace: namespace.to_owned(),
            user: spec.options.get("user").map(str::to_owned),
            conf: file("conf", CONF_VARIABLE)?,
            keyring: file("keyring", KEYRING_VARIABLE)?,
            trust: Trust { is_chosen: chosen(CONF_VARIABLE).is_some(), owner },
        })
    }
    /// The namespace of the tier.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
    /// What to connect with. The files named in it are read through descriptors that were checked, so that nobody can
    /// exchange them in between.
    pub fn connect(&self) -> Answer<(Connect, OpenFiles)> {
        let denied = |why: String| Refusal::new(ErrorKind::PermissionDenied, why);
        if let Some(owner) = self.trust.stranger().filter(|_| self.conf.is_none() || self.keyring.is_none()) {
            return Err(denied(format!(
                "the store belongs to user {owner}, who is not to say where this user's key is used: set {CONF_VARIABLE} to \
                 the cluster's configuration"
            )));
        }
        let mut open = Vec::new();
        let mut checked = |path: &Option<PathBuf>| -> Answer<Option<PathBuf>> {
            let Some(path) = path else { return Ok(None) };
            let advice = format!("name a file of your own by {CONF_VARIABLE} and {KEYRING_VARIABLE}");
            let file = self.trust.open(path, &advice).map_err(denied)?;
            let link = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
            open.push(file);
            Ok(Some(link))
        };
        let (conf, keyring) = (checked(&self.conf)?, checked(&self.keyring)?);
        let (pool, namespace, user) = (self.pool.clone(), self.namespace.clone(), self.user.clone());
        Ok((Connect { pool, namespace, conf, user, keyring }, open))
    }
}

/// The source of the key, for error messages.
pub(crate) fn key_words(spec: &DeviceSpec) -> String {
    let user = spec.options.get("user").unwrap_or("admin").trim_start_matches("client.");
    let keyring = spec.options.get("keyring").unwrap_or("the keyring that the cluster's configuration names");
    format!("{keyring} (client.{user})")
}

fn absolute(path: PathBuf, spec: &DeviceSpec, option: &str) -> Result<PathBuf> {
    let path = match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path,
    };
    if path.is_absolute() {
        return Ok(path);
    }
    Err(Error::new(ErrorKind::InvalidInput, format!("tier `{}`, option `{option}`", spec.name))
        .because(format!("{} is not the absolute path of a file", path.display()))
        .try_next(format!("write {option}=/PATH/OF/THE/FILE")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(options: &str) -> DeviceSpec {
        format!("name=cold,kind=rados,path=data/space,size=1GiB{options}").parse().unwrap()
    }

    #[test]
    fn a_path_is_a_pool_and_a_namespace() {
        assert_eq!(parts("data/space"), ("data", "space"));
        assert_eq!(parts("data"), ("data", "cenote"));
        assert_eq!(parts("data/"), ("data", "cenote"));
        let error = Access::of(&tier(",conf=ceph.conf"), None).unwrap_err();
        assert!(error.subject().contains("`conf`") && error.kind() == ErrorKind::InvalidInput, "{error}");
    }

    #[test]
    fn a_store_of_another_user_gets_no_key_of_this_one() {
        let me = rustix::process::geteuid().as_raw();
        let file = std::env::temp_dir().join(format!("cenote-ceph-access-{}", std::process::id()));
        std::fs::write(&file, "[global]\n").unwrap();
        let files = tier(&format!(",conf={0},keyring={0}", file.display()));
        let mine = Access::of(&files, Some(me)).unwrap().connect().unwrap();
        assert!(mine.0.conf.unwrap().starts_with("/proc/self/fd") && mine.1.len() == 2);
        let other = me + 1;
        let refused = |spec: &DeviceSpec| Access::of(spec, Some(other)).unwrap().connect().err().unwrap();
        for (spec, words) in [
            (tier(""), "not to say where this user's key is used"),
            (tier(&format!(",keyring={}", file.display())), "not to say"),
            (files, "it belongs to user"),
        ] {
            let refusal = refused(&spec);
            assert!(refusal.kind == ErrorKind::PermissionDenied && refusal.cause.contains(words), "{}", refusal.cause);
            assert!(refusal.cause.contains(CONF_VARIABLE), "{}", refusal.cause);
        }
        std::fs::remove_file(file).unwrap();
    }
}
