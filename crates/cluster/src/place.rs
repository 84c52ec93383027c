//! Where the register of a cluster is, as its members' file says it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cenote_model::{Error, ErrorKind, Result, StoreId};
use cenote_rados::{CephPool, Connect};
use serde::{Deserialize, Serialize};

use crate::register::{EtcdOptions, EtcdRegister, Login, RadosRegister, Register, Tls};

/// Fewest nodes that keep a register together: of two, either would stop it.
const GROUP_MIN: usize = 3;
/// How long an operation of a service may take: leases wait for the answers.
const OPERATION: Duration = Duration::from_secs(3);

/// Where the register is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RegisterPlace {
    /// In a file of the first node: while that is away, the view stays as it is.
    #[default]
    First,
    /// On three nodes or more, of which most have to be there.
    Nodes,
    /// In an etcd that exists.
    Etcd(EtcdPlace),
    /// In a pool of a Ceph cluster that exists.
    Rados(RadosPlace),
}

/// An etcd, for the register of a cluster. Files are those of the nodes that keep the register.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct EtcdPlace {
    /// Client addresses, such as `http://10.0.0.1:2379`.
    pub endpoints: Vec<String>,
    /// The user, if etcd asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The file with the user's password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// The file with the certificate of who vouches for the servers, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The file with this client's certificate, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// The file with the key of that, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

/// A replicated pool of Ceph, for the register of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RadosPlace {
    /// The pool.
    pub pool: String,
    /// The namespace; empty: the pool's default one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The configuration file of the Ceph cluster; `None`: the usual ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf: Option<PathBuf>,
    /// The user; `None`: `admin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

fn invalid(why: String) -> Error {
    Error::new(ErrorKind::InvalidInput, "where the register is").because(why).try_next(
        "for example `kind=nodes`, `kind=etcd,endpoint=http://HOST:2379` or `kind=rados,pool=POOL`: `docs/cluster.md`",
    )
}

impl RegisterPlace {
    /// The usual place: that of the most nodes that may be lost.
    pub fn usual(nodes: usize, protect: u8) -> Self {
        if protect > 0 && nodes >= GROUP_MIN { Self::Nodes } else { Self::First }
    }
    /// Reads `kind=KIND,name=value,…`, as people write it. Relative paths begin at the working directory.
    pub fn parse(text: &str) -> Result<Self> {
        let mut pairs = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            pairs.push(part.split_once('=').ok_or_else(|| invalid(format!("`{part}` is no NAME=VALUE")))?);
        }
        let kind = pairs.iter().position(|(name, _)| *name == "kind").map(|at| pairs.remove(at).1);
        match kind {
            Some("first") => nothing_more(&pairs, Self::First),
            Some("nodes") => nothing_more(&pairs, Self::Nodes),
            Some("etcd") => EtcdPlace::parse(&pairs).map(Self::Etcd),
            Some("rados") => RadosPlace::parse(&pairs).map(Self::Rados),
            Some(kind) => Err(invalid(format!("`{kind}` is no kind: first, nodes, etcd or rados"))),
            None => Err(invalid("no `kind=` is named".into())),
        }
    }
    /// Fails with why a cluster of so many nodes cannot have it.
    pub fn check(&self, nodes: usize) -> Result<(), String> {
        match self {
            Self::Nodes if nodes < GROUP_MIN => {
                Err(format!("{nodes} nodes cannot keep the register together: it takes {GROUP_MIN}"))
            }
            Self::Etcd(etcd) if etcd.endpoints.is_empty() => Err("no endpoint of etcd is named".into()),
            Self::Rados(rados) if rados.pool.is_empty() => Err("no pool for the register is named".into()),
            _ => Ok(()),
        }
    }
    /// How many nodes keep it, beginning at the first: so many that most are left if `protect` are lost.
    pub fn keepers(&self, nodes: usize, protect: u8) -> usize {
        let wanted = 2 * usize::from(protect) + 1;
        match self {
            Self::First => 1,
            // Of an even number, one more may not be lost than of the odd number below.
            Self::Nodes => wanted.max(GROUP_MIN).min(odd(nodes)),
            Self::Etcd(_) | Self::Rados(_) => wanted.max(2).min(nodes),
        }
    }
    /// How many of all nodes can be lost, whichever they are, while so many keepers keep it.
    pub fn survives(&self, keepers: usize) -> usize {
        match self {
            Self::First => 0,
            Self::Nodes => keepers.saturating_sub(1) / 2,
            Self::Etcd(_) | Self::Rados(_) => keepers.saturating_sub(1),
        }
    }
    /// Where it is, for people; `names`: those of the nodes that keep it.
    pub fn text(&self, names: &[String]) -> String {
        match self {
            Self::First => format!("in a file of node {}", names.join(", ")),
            Self::Nodes => format!("kept by nodes {}, of which most have to be there", names.join(", ")),
            Self::Etcd(etcd) => format!("in etcd at {}", etcd.endpoints.join(", ")),
            Self::Rados(rados) => format!("in pool {} of Ceph", rados.pool),
        }
    }
    /// Opens a register that exists outside of the cluster; `None` if the nodes keep it themselves.
    pub fn open(&self, cluster: StoreId) -> Result<Option<Arc<dyn Register>>> {
        match self {
            Self::First | Self::Nodes => Ok(None),
            Self::Etcd(etcd) => Ok(Some(Arc::new(etcd.open(cluster)?))),
            Self::Rados(rados) => Ok(Some(Arc::new(rados.open(cluster)?))),
        }
    }
    /// Removes the register of a cluster that is no more from where it is, outside of the cluster.
    pub fn remove(&self, cluster: StoreId) -> Result<()> {
        match self {
            Self::First | Self::Nodes => Ok(()),
            Self::Etcd(etcd) => etcd.open(cluster)?.remove(),
            Self::Rados(rados) => rados.open(cluster)?.remove(),
        }
    }
}

/// The greatest odd number up to this one.
fn odd(nodes: usize) -> usize {
    nodes - (nodes + 1) % 2
}

fn nothing_more(pairs: &[(&str, &str)], place: RegisterPlace) -> Result<RegisterPlace> {
    pairs.first().map_or(Ok(place), |pair| Err(unknown(pair.0)))
}

#[cold]
fn unknown(name: &str) -> Error {
    invalid(format!("`{name}` is not known there"))
}

fn path(text: &str) -> Option<PathBuf> {
    std::path::absolute(text).ok()
}

impl EtcdPlace {
    fn parse(pairs: &[(&str, &str)]) -> Result<Self> {
        let mut place = Self::default();
        for (name, value) in pairs {
            match *name {
                "endpoint" => place.endpoints.push((*value).into()),
                "user" => place.user = Some((*value).into()),
                "password-file" => place.password_file = path(value),
                "ca" => place.ca = path(value),
                "cert" => place.cert = path(value),
                "key" => place.key = path(value),
                _ => return Err(unknown(name)),
            }
        }
        if place.endpoints.is_empty() {
            return Err(invalid("no `endpoint=` is named".into()));
        }
        if place.cert.is_some() != place.key.is_some() {
            return Err(invalid("`cert` and `key` belong together".into()));
        }
        if place.user.is_some() != place.password_file.is_some() {
            return Err(invalid("`user` and `password-file` belong together".into()));
        }
        Ok(place)
    }
    fn open(&self, cluster: StoreId) -> Result<EtcdRegister> {
        let login = match (&self.user, &self.password_file) {
            (Some(user), Some(file)) => Some(Login { user: user.clone(), password: first_line(file)? }),
            _ => None,
        };
        let certificate = self.cert.clone().zip(self.key.clone());
        let options = EtcdOptions::new(self.endpoints.clone(), format!("cenote/{cluster}/view"));
        let tls = Tls { authority: self.ca.clone(), certificate };
        EtcdRegister::new(&EtcdOptions { timeout: OPERATION, login, tls, ..options })
    }
}

fn first_line(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).map_err(|error| Error::io(file.display().to_string(), &error))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

impl RadosPlace {
    fn parse(pairs: &[(&str, &str)]) -> Result<Self> {
        let mut place = Self::default();
        for (name, value) in pairs {
            match *name {
                "pool" => place.pool = (*value).into(),
                "namespace" => place.namespace = (*value).into(),
                "conf" => place.conf = path(value),
                "user" => place.user = Some((*value).into()),
                _ => return Err(unknown(name)),
            }
        }
        if place.pool.is_empty() { Err(invalid("no `pool=` is named".into())) } else { Ok(place) }
    }
    fn open(&self, cluster: StoreId) -> Result<RadosRegister> {
        let connect = Connect {
            pool: self.pool.clone(),
            namespace: self.namespace.clone(),
            conf: self.conf.clone(),
            user: self.user.clone(),
            keyring: None,
        };
        let place = format!("{}/{}", self.pool, self.namespace);
        let pool = CephPool::connect_within(&connect, OPERATION.as_secs()).map_err(|refusal| {
            Error::new(ErrorKind::Disconnected, format!("the register in pool {place}"))
                .because(refusal.cause)
                .try_next("check the Ceph cluster and the way to it (`ceph -s`), then start this node again")
        })?;
        Ok(RadosRegister::new(Arc::new(pool), &place, format!("cenote-{cluster}-view")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_people_write_them() {
        let parse = |text| RegisterPlace::parse(text).unwrap();
        assert_eq!((parse("kind=first"), parse("kind=nodes")), (RegisterPlace::First, RegisterPlace::Nodes));
        let text = "kind=etcd,endpoint=http://a:1,endpoint=http://b:2,user=u,password-file=/p,ca=/c";
        let RegisterPlace::Etcd(etcd) = parse(text) else { panic!() };
        assert_eq!(etcd.endpoints, ["http://a:1", "http://b:2"]);
        assert_eq!((etcd.user.as_deref(), etcd.ca), (Some("u"), Some("/c".into())));
        let RegisterPlace::Rados(rados) = parse("pool=p,kind=rados,namespace=n") else { panic!() };
        assert_eq!((rados.pool.as_str(), rados.namespace.as_str()), ("p", "n"));
        for wrong in [
            "",
            "nodes",
            "kind=zoo",
            "kind=nodes,x=1",
            "kind=etcd",
            "kind=etcd,endpoint=a,pool=b",
            "kind=rados",
            "kind=etcd,endpoint=a,user=u",
            "kind=etcd,endpoint=a,cert=c",
        ] {
            assert_eq!(RegisterPlace::parse(wrong).unwrap_err().kind(), ErrorKind::InvalidInput, "{wrong}");
        }
    }

    #[test]
    fn most_keepers_are_left_when_as_many_nodes_are_lost_as_may_be() {
        assert_eq!(RegisterPlace::usual(2, 1), RegisterPlace::First);
        assert_eq!(RegisterPlace::usual(4, 0), RegisterPlace::First);
        assert_eq!(RegisterPlace::usual(3, 1), RegisterPlace::Nodes);
        let nodes = |nodes, protect| RegisterPlace::Nodes.keepers(nodes, protect);
        assert_eq!([nodes(3, 0), nodes(3, 1), nodes(4, 1), nodes(64, 1)], [3; 4]);
        // Of four nodes, three can keep it, and one may be lost.
        assert_eq!([nodes(4, 2), nodes(5, 2), nodes(9, 3), nodes(6, 3)], [3, 5, 7, 5]);
        assert_eq!(RegisterPlace::First.keepers(9, 3), 1);
        let etcd = RegisterPlace::Etcd(EtcdPlace::default());
        assert_eq!([etcd.keepers(1, 0), etcd.keepers(9, 0), etcd.keepers(9, 1), etcd.keepers(2, 1)], [1, 2, 3, 2]);
    }
}
