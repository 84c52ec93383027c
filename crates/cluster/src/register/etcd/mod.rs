//! A register that is a key of etcd, by its JSON gateway (etcd 3.4 and later).

mod gateway;

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cenote_model::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use super::cell::{Cell, Stored};
use super::{Held, PAUSE_MAX, Register, Stamp, Token, is_other, poll_change, record};
use gateway::Gateway;

/// How long a call takes at most, unless the options say otherwise.
const TIMEOUT: Duration = Duration::from_secs(5);
/// One watch takes no longer: a server that died silently is noticed by the read behind it.
const WATCH_MAX: Duration = Duration::from_secs(10);

/// Which key of which etcd, and as whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdOptions {
    /// Client addresses, such as `http://10.0.0.1:2379`; the next one is asked if one does not answer.
    pub endpoints: Vec<String>,
    /// The key of the record. The key with `/stamp` behind it is used, too.
    pub key: String,
    /// How long a call takes at most, whatever the number of endpoints.
    pub timeout: Duration,
    /// The user, if etcd asks for one.
    pub login: Option<Login>,
    /// Certificates, for addresses with `https`.
    pub tls: Tls,
}

impl EtcdOptions {
    /// Without user and certificates.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>, key: impl Into<String>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            key: key.into(),
            timeout: TIMEOUT,
            login: None,
            tls: Tls::default(),
        }
    }
}

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Files in PEM.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tls {
    /// Who vouches for the servers; `None`: whom the machine trusts.
    pub authority: Option<PathBuf>,
    /// This client's certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Two keys: the record, and the stamp that guards it. Both change in one transaction, if the stamp is the one that was seen. Its
/// value is compared and not its revision: an etcd that was restored from a snapshot gives revisions a second time.
pub struct EtcdRegister {
    gateway: Gateway,
    key: String,
    subject: String,
}

impl EtcdRegister {
    /// The register in this key. Nothing is sent before the first call.
    pub fn new(options: &EtcdOptions) -> Result<Self> {
        let subject = format!("the register in key `{}` of etcd", options.key);
        let gateway = Gateway::new(options, subject.clone())?;
        Ok(Self { gateway, key: options.key.clone(), subject })
    }
    /// Removes the record, for a cluster that is no more.
    pub fn remove(&self) -> Result<()> {
        for key in [self.record_key(), self.stamp_key()] {
            self.gateway.call("/v3/kv/deleterange", &json!({ "key": key })).map_err(|trouble| trouble.error)?;
        }
        Ok(())
    }
    fn record_key(&self) -> String {
        STANDARD.encode(&self.key)
    }
    fn stamp_key(&self) -> String {
        STANDARD.encode(format!("{}/stamp", self.key))
    }
    fn swap_request(&self, seen: Option<Stamp>, stamp: Stamp, bytes: &[u8]) -> Value {
        let (record, guard) = (self.record_key(), self.stamp_key());
        let compare = match seen {
            Some(seen) => json!([{ "key": guard, "target": "VALUE", "result": "EQUAL", "value": stamp_text(seen) }]),
            None => json!([absent(&record), absent(&guard)]),
        };
        json!({
            "compare": compare,
            "success": [
                { "request_put": { "key": record, "value": STANDARD.encode(bytes) } },
                { "request_put": { "key": guard, "value": stamp_text(stamp) } },
            ],
        })
    }
    /// What the watch on the key needs besides reads: one before, so that nothing is missed, and one behind.
    fn watch_change(&self, after: Option<&Token>, timeout: Duration) -> Result<Option<Held>> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let watch = self.gateway.watch(&self.record_key(), left.min(WATCH_MAX));
            let Some(watch) = watch.filter(|_| !left.is_zero()) else { return poll_change(self, after, left) };
            match self.read() {
                Ok(held) if is_other(held.as_ref(), after) => return Ok(held),
                Err(error) if !error.kind().retry_helps() => return Err(error),
                _ => {}
            }
            let begun = Instant::now();
            if !watch.wait() && begun.elapsed() < PAUSE_MAX {
                // It is ended at once, again and again perhaps: looks at intervals spare etcd.
                return poll_change(self, after, until.saturating_duration_since(Instant::now()));
            }
        }
    }
}

/// The stamp as a value: readable by `etcdctl get`.
fn stamp_text(stamp: Stamp) -> String {
    STANDARD.encode(format!("{:032x}", stamp.0))
}

fn absent(key: &str) -> Value {
    json!({ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0" })
}

impl Cell for EtcdRegister {
    fn subject(&self) -> String {
        self.subject.clone()
    }
    fn load(&self) -> Result<Option<Vec<u8>>> {
        // Not `serializable`: such a read could be an old one of a member that is cut off.
        let request = json!({ "key": self.record_key() });
        let answer = self.gateway.call("/v3/kv/range", &request).map_err(|trouble| trouble.error)?;
        let Some(found) = answer["kvs"].as_array().and_then(|found| found.first()) else {
            return if answer["header"].is_object() { Ok(None) } else { Err(self.no_etcd()) };
        };
        let bytes = STANDARD.decode(found["value"].as_str().unwrap_or_default());
        bytes.map(Some).map_err(|error| record::corrupt(&self.subject, error.to_string()))
    }
    fn store(&self, seen: Option<Stamp>, stamp: Stamp, bytes: &[u8]) -> Stored {
        match self.gateway.call("/v3/kv/txn", &self.swap_request(seen, stamp, bytes)) {
            Ok(answer) if answer["succeeded"].as_bool() == Some(true) => Stored::Done,
            Ok(answer) if answer["header"].is_object() => Stored::Other,
            Ok(_) => Stored::Unknown(self.no_etcd()),
            Err(trouble) if trouble.may_happen => Stored::Unknown(trouble.error),
            Err(trouble) => Stored::Failed(trouble.error),
        }
    }
    fn wait_change(&self, after: Option<&Token>, timeout: Duration) -> Result<Option<Held>> {
        self.watch_change(after, timeout)
    }
}

impl EtcdRegister {
    #[cold]
    fn no_etcd(&self) -> Error {
        Error::new(ErrorKind::Unsupported, self.subject.clone())
            .because("what answers there is no etcd")
            .try_next("name the client addresses of etcd 3.4 or later")
    }
}
