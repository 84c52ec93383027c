//! A pool of a Ceph cluster, through Debian's librados.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::librados::{Cluster, Errno, Namespace, WriteOp};
use crate::pool::{Answer, Change, Check, Pool, Refusal, RefusalKind};

/// How long a client looks for a monitor that answers, in seconds.
pub const CONNECT_S: u64 = 5;
/// How long monitors may take for an answer, in seconds.
pub const MONITOR_S: u64 = 10;
/// How long an operation on an object may take, in seconds. A cluster needs some 20 s to notice a dead device with its
/// default settings, and carries out after that what waited for it.
pub const OPERATION_S: u64 = 30;
/// A longer read asks for the object's size first, so that it takes no more memory than the object.
const READ_BYTES: usize = 64 << 20;
/// Records that one request to the cluster asks for.
const RECORDS: u64 = 1000;
/// How often a change tries again because the object came or went meanwhile.
const TRIES: u32 = 8;

/// Which namespace of which pool, and as whom.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Connect {
    /// Name of the pool. It must exist.
    pub pool: String,
    /// Name of the namespace; empty: the pool's default one. It exists as soon as it has an object.
    pub namespace: String,
    /// The cluster's configuration file; `None`: the usual ones (`CEPH_CONF`, `/etc/ceph/ceph.conf`, `~/.ceph`).
    pub conf: Option<PathBuf>,
    /// The user, with or without `client.` before it; `None`: `admin`.
    pub user: Option<String>,
    /// The file with the user's key; `None`: where the configuration says.
    pub keyring: Option<PathBuf>,
}

impl Connect {
    /// The user in full.
    fn client(&self) -> String {
        let user = self.user.as_deref().unwrap_or("admin");
        if user.starts_with("client.") { user.to_owned() } else { format!("client.{user}") }
    }
    fn set_up(&self, cluster: &Cluster, operation_s: u64) -> Answer<()> {
        let conf = self.conf.as_deref().map(path_text).transpose()?;
        cluster.read_conf(conf.as_deref()).map_err(|errno| self.unreadable(errno))?;
        let seconds = [
            (c"client_mount_timeout", CONNECT_S),
            (c"rados_mon_op_timeout", MONITOR_S),
            (c"rados_osd_op_timeout", operation_s),
        ];
        for (option, seconds) in seconds {
            set(cluster, option, &text(&seconds.to_string())?)?;
        }
        let keyring = self.keyring.as_deref().map(path_text).transpose()?;
        keyring.map_or(Ok(()), |keyring| set(cluster, c"keyring", &keyring))
    }
    fn unreadable(&self, errno: Errno) -> Refusal {
        let conf = self.conf.as_ref().map_or("/etc/ceph/ceph.conf".to_owned(), |conf| conf.display().to_string());
        Refusal::new(kind_of(errno), format!("the cluster's configuration {conf} cannot be read: {}", words(errno)))
    }
    fn unconnected(&self, errno: Errno) -> Refusal {
        let why = match errno {
            libc::ENOENT => {
                return Refusal::new(
                    RefusalKind::Denied,
                    format!("the configuration leads to no monitor, or to no key of {}", self.client()),
                );
            }
            libc::ETIMEDOUT => format!("no monitor of the cluster answers within {CONNECT_S} s"),
            libc::EPERM | libc::EACCES | libc::EINVAL => {
                format!("the cluster does not know {}, or another key of it", self.client())
            }
            errno => format!("no connection to the cluster: {}", words(errno)),
        };
        let kind = if errno == libc::EINVAL { RefusalKind::Denied } else { kind_of(errno) };
        Refusal::new(kind, why)
    }
    fn unopened(&self, errno: Errno) -> Refusal {
        match errno {
            libc::ENOENT => no_pool(&self.pool),
            errno => Refusal::new(kind_of(errno), format!("pool `{}` cannot be opened: {}", self.pool, words(errno))),
        }
    }
}

fn set(cluster: &Cluster, option: &CStr, value: &CStr) -> Answer<()> {
    let refused =
        |errno| Refusal::new(RefusalKind::Failed, format!("librados does not take {option:?}: {}", words(errno)));
    cluster.set(option, value).map_err(refused)
}

fn text(text: &str) -> Answer<CString> {
    CString::new(text).map_err(|_| Refusal::new(RefusalKind::Unsupported, format!("{text:?} has a NUL in it")))
}

fn path_text(path: &Path) -> Answer<CString> {
    let refused = |_| Refusal::new(RefusalKind::Unsupported, format!("{} has a NUL in it", path.display()));
    CString::new(path.as_os_str().as_bytes()).map_err(refused)
}

fn no_pool(pool: &str) -> Refusal {
    Refusal::new(RefusalKind::NotFound, format!("the cluster has no pool `{pool}`"))
}

fn words(errno: Errno) -> String {
    io::Error::from_raw_os_error(errno).to_string()
}

fn kind_of(errno: Errno) -> RefusalKind {
    match errno {
        libc::ENOENT => RefusalKind::NotFound,
        libc::EEXIST => RefusalKind::Exists,
        libc::ECANCELED => RefusalKind::Refused,
        libc::ENOSPC | libc::EDQUOT => RefusalKind::Full,
        // A client on the cluster's blocklist gets ESHUTDOWN.
        libc::EPERM | libc::EACCES | libc::ESHUTDOWN => RefusalKind::Denied,
        libc::EOPNOTSUPP => RefusalKind::Unsupported,
        libc::ETIMEDOUT | libc::ENOTCONN | libc::ECONNRESET | libc::EPIPE | libc::EAGAIN | libc::EINTR => {
            RefusalKind::Unanswered
        }
        _ => RefusalKind::Failed,
    }
}

/// A namespace of a pool of a Ceph cluster. A child that is forked cannot use its parent's: each call is refused.
pub struct CephPool {
    pool: String,
    namespace: Namespace,
}

impl CephPool {
    /// Connects to the cluster. Takes at most [`CONNECT_S`] and [`MONITOR_S`].
    ///
    /// `Unsupported`: librados is not on this machine. `NotFound`: no such pool or configuration file. `Denied`: no
    /// key, or not one that the cluster knows. `Unanswered`: no monitor answers.
    pub fn connect(connect: &Connect) -> Answer<Self> {
        Self::connect_within(connect, OPERATION_S)
    }
    /// Like [`CephPool::connect`], with another limit of the time that an operation takes, in seconds.
    pub fn connect_within(connect: &Connect, operation_s: u64) -> Answer<Self> {
        let (pool, namespace) = (text(&connect.pool)?, text(&connect.namespace)?);
        let cluster = Cluster::new(&text(&connect.client())?)
            .map_err(|why| Refusal::new(RefusalKind::Unsupported, format!("{why}: install the package librados2")))?;
        connect.set_up(&cluster, operation_s)?;
        cluster.connect().map_err(|errno| connect.unconnected(errno))?;
        let namespace = cluster.open(&pool, &namespace).map_err(|errno| connect.unopened(errno))?;
        Ok(Self { pool: connect.pool.clone(), namespace })
    }
    fn namespace(&self) -> Answer<&Namespace> {
        if self.namespace.cluster().is_own() {
            return Ok(&self.namespace);
        }
        let why =
            "this process was forked from the one that is connected to the cluster, and has no connection of its own";
        Err(Refusal::new(RefusalKind::Failed, why))
    }
    fn refusal(&self, object: &str, errno: Errno) -> Refusal {
        let kind = kind_of(errno);
        let why = match kind {
            RefusalKind::NotFound if !self.namespace.is_there() => return no_pool(&self.pool),
            RefusalKind::NotFound => format!("there is no object `{object}`"),
            RefusalKind::Exists => format!("`{object}` exists"),
            RefusalKind::Refused => format!("an attribute of `{object}` is another"),
            RefusalKind::Full => format!("pool `{}` or its quota is full ({})", self.pool, words(errno)),
            RefusalKind::Denied => format!("the key does not allow this in pool `{}` ({})", self.pool, words(errno)),
            RefusalKind::Unsupported => format!("pool `{}` cannot do this ({})", self.pool, words(errno)),
            RefusalKind::Unanswered => {
                format!("pool `{}` did not answer about `{object}` ({})", self.pool, words(errno))
            }
            RefusalKind::Failed => format!("`{object}` in pool `{}`: {}", self.pool, words(errno)),
        };
        Refusal::new(kind, why)
    }
    /// Like [`Pool::change`] in one operation. With `absent` the object must not exist, and no check is compared: all
    /// hold for an absent object.
    fn operate(
        &self,
        object: &CStr,
        checks: &[Check<'_>],
        changes: &[Change<'_>],
        absent: bool,
    ) -> Answer<Result<(), Errno>> {
        let mut op = self.namespace()?.write_op();
        if absent {
            op.create(true);
        } else {
            checks.iter().try_for_each(|check| add_check(&mut op, *check))?;
        }
        changes.iter().try_for_each(|change| add_change(&mut op, *change))?;
        Ok(op.operate(object))
    }
    /// Checks without a change.
    fn look(&self, object: &str, checks: &[Check<'_>]) -> Answer<()> {
        for check in checks {
            let holds = match check {
                Check::Exists => self.size(object)?.ok_or(libc::ENOENT).map(drop),
                Check::Absent => self.size(object)?.map_or(Ok(()), |_| Err(libc::EEXIST)),
                Check::Attribute(name, expected) => {
                    let found = match self.attribute(object, name) {
                        Err(refusal) if refusal.kind == RefusalKind::NotFound => None,
                        found => found?,
                    };
                    if found.unwrap_or_default() == *expected { Ok(()) } else { Err(libc::ECANCELED) }
                }
            };
            holds.map_err(|errno| self.refusal(object, errno))?;
        }
        Ok(())
    }
}

fn add_check(op: &mut WriteOp<'_>, check: Check<'_>) -> Answer<()> {
    match check {
        Check::Exists => op.assert_exists(),
        Check::Absent => op.create(true),
        Check::Attribute(name, expected) => op.compare(&text(name)?, expected),
    }
    Ok(())
}

fn add_change(op: &mut WriteOp<'_>, change: Change<'_>) -> Answer<()> {
    match change {
        Change::Create => op.create(false),
        Change::Replace(bytes) => op.replace(bytes),
        Change::Write(offset, bytes) => op.write(offset, bytes),
        Change::Append(bytes) => op.append(bytes),
        Change::Remove => op.remove(),
        Change::SetAttribute(name, value) => op.set_attribute(&text(name)?, value),
        Change::SetRecord(key, value) => op.set_record(text(key)?.to_bytes(), value),
        Change::RemoveRecord(key) => {
            op.create(false); // the cluster refuses it for an absent object
            op.remove_record(key.as_bytes());
        }
    }
    Ok(())
}

/// The first check that fails for an absent object, or the change that cannot be made to one.
fn failure_of_absent(checks: &[Check<'_>], changes: &[Change<'_>]) -> Option<Errno> {
    let failure = |check: &Check<'_>| match check {
        Check::Exists => Some(libc::ENOENT),
        Check::Attribute(_, expected) if !expected.is_empty() => Some(libc::ECANCELED),
        Check::Attribute(..) | Check::Absent => None,
    };
    let removes = || (changes.first() == Some(&Change::Remove)).then_some(libc::ENOENT);
    checks.iter().find_map(failure).or_else(removes)
}

impl Pool for CephPool {
    fn change(&self, object: &str, checks: &[Check<'_>], changes: &[Change<'_>]) -> Answer<()> {
        let name = text(object)?;
        let is_absent = checks.contains(&Check::Absent);
        // `Absent` is an exclusive creation there, which would create the object for the changes as well.
        if changes.is_empty() || is_absent && changes.first() == Some(&Change::Remove) {
            self.look(object, checks)?;
            return if changes.is_empty() { Ok(()) } else { Err(self.refusal(object, libc::ENOENT)) };
        }
        for _ in 0..TRIES {
            // A replicated pool answers ENOENT to a comparison with an attribute of an absent object, also where no
            // bytes are expected; then all hangs on its being absent still.
            let failed = match self.operate(&name, checks, changes, false)? {
                Err(libc::ENOENT) if self.namespace()?.is_there() => failure_of_absent(checks, changes),
                outcome => return outcome.map_err(|errno| self.refusal(object, errno)),
            };
            if let Some(errno) = failed {
                return Err(self.refusal(object, errno));
            }
            match self.operate(&name, checks, changes, true)? {
                Err(libc::EEXIST) if !is_absent => {} // it has come meanwhile
                outcome => return outcome.map_err(|errno| self.refusal(object, errno)),
            }
        }
        Err(Refusal::new(RefusalKind::Failed, format!("`{object}` comes and goes while it is changed")))
    }
    fn read(&self, object: &str, offset: u64, len: usize) -> Answer<Vec<u8>> {
        let name = text(object)?;
        let failed = |errno| self.refusal(object, errno);
        let namespace = self.namespace()?;
        let mut len = len;
        if len > READ_BYTES {
            let size = namespace.stat(&name).map_err(failed)?;
            len = len.min(size.saturating_sub(offset) as usize);
        }
        if len == 0 {
            return namespace.stat(&name).map(|_| Vec::new()).map_err(failed);
        }
        namespace.read(&name, offset, len).map_err(failed)
    }
    fn size(&self, object: &str) -> Answer<Option<u64>> {
        let namespace = self.namespace()?;
        match namespace.stat(&text(object)?) {
            Err(libc::ENOENT) if namespace.is_there() => Ok(None),
            size => size.map(Some).map_err(|errno| self.refusal(object, errno)),
        }
    }
    fn attribute(&self, object: &str, name: &str) -> Answer<Option<Vec<u8>>> {
        match self.namespace()?.attribute(&text(object)?, &text(name)?) {
            Err(libc::ENODATA) => Ok(None),
            value => value.map(Some).map_err(|errno| self.refusal(object, errno)),
        }
    }
    fn records(&self, object: &str, after: &str, most: usize) -> Answer<Vec<(String, Vec<u8>)>> {
        let (name, namespace) = (text(object)?, self.namespace()?);
        let (mut found, mut after): (Vec<(String, Vec<u8>)>, _) = (Vec::new(), after.to_owned());
        while found.len() < most {
            let wanted = RECORDS.min((most - found.len()) as u64);
            let records = namespace.records(&name, &text(&after)?, wanted);
            let (records, more) = records.map_err(|errno| self.refusal(object, errno))?;
            let more = more && !records.is_empty();
            for (key, value) in records {
                found.push((utf8(key)?, value));
            }
            match found.last() {
                Some((last, _)) if more => after.clone_from(last),
                _ => break,
            }
        }
        Ok(found)
    }
    fn list(&self) -> Answer<Vec<String>> {
        let names = self.namespace()?.list().map_err(|errno| self.refusal("(list)", errno))?;
        let mut names = names.into_iter().map(utf8).collect::<Answer<Vec<String>>>()?;
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}

fn utf8(name: Vec<u8>) -> Answer<String> {
    String::from_utf8(name).map_err(|error| {
        let name = String::from_utf8_lossy(error.as_bytes()).into_owned();
        Refusal::new(RefusalKind::Failed, format!("`{name}` is not UTF-8: it is not ours"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_object_fails_as_the_contract_says() {
        let (empty, other) = (Check::Attribute("a", b""), Check::Attribute("a", b"x"));
        let create = [Change::Create];
        assert_eq!(failure_of_absent(&[empty, Check::Absent], &create), None);
        assert_eq!(failure_of_absent(&[empty, Check::Exists, other], &create), Some(libc::ENOENT));
        assert_eq!(failure_of_absent(&[other, Check::Exists], &create), Some(libc::ECANCELED));
        assert_eq!(failure_of_absent(&[], &[Change::Remove]), Some(libc::ENOENT));
        assert_eq!(failure_of_absent(&[empty], &[Change::Create, Change::Remove]), None);
    }

    #[test]
    fn a_machine_without_a_cluster_says_what_is_missing() {
        let nowhere = Connect { pool: "p".into(), conf: Some("/nonexistent/ceph.conf".into()), ..Connect::default() };
        let refusal = CephPool::connect(&nowhere).err().unwrap();
        let is_told = match refusal.kind {
            RefusalKind::Unsupported => refusal.cause.contains("librados2"),
            RefusalKind::NotFound => refusal.cause.contains("/nonexistent/ceph.conf"),
            _ => false,
        };
        assert!(is_told, "{refusal:?}");
        let nul = Connect { pool: "p\0".into(), ..Connect::default() };
        assert!(CephPool::connect(&nul).err().unwrap().cause.contains("NUL"));
    }
}
