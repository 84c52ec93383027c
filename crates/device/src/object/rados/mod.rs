//! A tier in a pool of Ceph RADOS: whole objects in a namespace of the tier's own. No records, so that erasure-coded
//! pools serve as well.

pub(crate) mod access;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use cenote_model::{DeviceSpec, ErrorKind, Result};
use cenote_rados::{CephPool, Change, Check, Pool, RefusalKind};
use parking_lot::Mutex;

use super::service::{Answer, ObjectService, Refusal};
use access::Access;

/// Bytes of the largest object. An OSD takes 90 MiB in one operation (`osd_max_write_size`) and 128 MiB in one object
/// (`osd_max_object_size`) unless it is set up otherwise; this leaves room for the table of a pack of [`PACK_BYTES_MAX`].
const OBJECT_BYTES_MAX: u64 = 80 << 20;
/// Upper bound of the option `pack`.
pub(super) const PACK_BYTES_MAX: u64 = 64 << 20;
/// Objects whose sizes are asked for at once.
const LOOKS_AT_ONCE: usize = 16;
/// How long an operation may take while others wait for the tier, in seconds.
const HASTE_S: u64 = 10;

/// Connects to a pool; operations may take this many seconds.
type Connector = dyn Fn(u64) -> Answer<Arc<dyn Pool>> + Send + Sync;

/// The namespace of a tier.
pub struct RadosService {
    connector: Box<Connector>,
    /// Begins each key, and is not part of the name of the object.
    prefix: String,
    session: Mutex<Session>,
    is_in_haste: AtomicBool,
}

/// The connection in use until it is refused.
#[derive(Default)]
struct Session {
    pool: Option<Arc<dyn Pool>>,
    /// Others that waited meanwhile for the connection fail as well, instead of waiting in vain one after the other.
    failed: Option<(Instant, Refusal)>,
}

impl RadosService {
    /// The namespace of a tier in a store of `owner`. Checks only the tier's options and connects to nothing:
    /// `InvalidInput` names the invalid option.
    pub fn of_owner(spec: &DeviceSpec, owner: Option<u32>) -> Result<Self> {
        let access = Access::of(spec, owner)?;
        let prefix = format!("{}/", access.namespace());
        let connect = move |seconds| -> Answer<Arc<dyn Pool>> {
            let (connect, _open) = access.connect()?;
            Ok(Arc::new(CephPool::connect_within(&connect, seconds).map_err(refusal_of)?))
        };
        Ok(Self::new(&prefix, connect))
    }

    /// The objects in the pool that `connector` connects to, whose keys all begin with `prefix`.
    pub fn new(prefix: &str, connector: impl Fn(u64) -> Answer<Arc<dyn Pool>> + Send + Sync + 'static) -> Self {
        Self {
            connector: Box::new(connector),
            prefix: prefix.to_owned(),
            session: Mutex::default(),
            is_in_haste: AtomicBool::new(false),
        }
    }

    /// The name of an object.
    fn name<'a>(&self, key: &'a str) -> &'a str {
        key.strip_prefix(&self.prefix).unwrap_or(key)
    }

    /// The current connection; a new one if the current one is the refused one.
    fn pool(&self, refused: Option<&Arc<dyn Pool>>) -> Answer<Arc<dyn Pool>> {
        let begun = Instant::now();
        let mut session = self.session.lock();
        if let Some(pool) = session.pool.as_ref().filter(|now| !refused.is_some_and(|was| Arc::ptr_eq(now, was))) {
            return Ok(Arc::clone(pool));
        }
        if let Some((_, refusal)) = session.failed.as_ref().filter(|(when, _)| *when > begun) {
            return Err(refusal.clone());
        }
        let is_in_haste = self.is_in_haste.load(Ordering::Relaxed);
        let connected = (self.connector)(if is_in_haste { HASTE_S } else { cenote_rados::OPERATION_S });
        session.failed = connected.as_ref().err().map(|refusal| (Instant::now(), refusal.clone()));
        session.pool = connected.as_ref().ok().cloned();
        connected
    }

    /// Runs `act` with a connection; once more with a new one if the cluster denies it, since keys may be renewed.
    fn with<T>(&self, act: impl Fn(&dyn Pool) -> cenote_rados::Answer<T>) -> Answer<T> {
        let pool = self.pool(None)?;
        match act(&*pool) {
            Err(refusal) if refusal.kind == RefusalKind::Denied => {
                let renewed = self.pool(Some(&pool))?;
                act(&*renewed).map_err(refusal_of)
            }
            answer => answer.map_err(refusal_of),
        }
    }

    /// The sizes of these objects; those that are gone are left out.
    fn sizes(&self, names: &[String]) -> Answer<Vec<(String, u64)>> {
        let (next, found) = (AtomicUsize::new(0), Mutex::new(Ok(Vec::new())));
        let look = || {
            while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                let size = self.with(|pool| pool.size(name));
                let mut found = found.lock();
                match (size, &mut *found) {
                    (Ok(Some(size)), Ok(found)) => found.push((format!("{}{name}", self.prefix), size)),
                    (Ok(None), _) => {}
                    (Err(refusal), _) => *found = Err(refusal),
                    (_, Err(_)) => return,
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..names.len().min(LOOKS_AT_ONCE) {
                scope.spawn(look);
            }
            look();
        });
        found.into_inner()
    }
}

/// Converts what a pool says.
pub(super) fn refusal_of(refusal: cenote_rados::Refusal) -> Refusal {
    let kind = match refusal.kind {
        RefusalKind::Unanswered => return Refusal::passing(refusal.cause),
        RefusalKind::NotFound => ErrorKind::NotFound,
        RefusalKind::Exists => ErrorKind::Exists,
        RefusalKind::Refused => ErrorKind::Conflict,
        RefusalKind::Full => ErrorKind::Full,
        RefusalKind::Denied => ErrorKind::PermissionDenied,
        RefusalKind::Unsupported => ErrorKind::Unsupported,
        RefusalKind::Failed => ErrorKind::Io,
    };
    Refusal::new(kind, refusal.cause)
}

impl ObjectService for RadosService {
    fn put(&self, key: &str, parts: &[Bytes], only_new: bool) -> Answer<()> {
        let name = self.name(key);
        let checks = if only_new { &[Check::Absent][..] } else { &[] };
        // One operation with one buffer: an erasure-coded pool takes nothing else than whole objects.
        let whole = if let [one] = parts { one.clone() } else { Bytes::from(parts.concat()) };
        self.with(|pool| pool.change(name, checks, &[Change::Replace(&whole)]))
    }
    fn get(&self, key: &str, from: u64, len: u64) -> Answer<Bytes> {
        let name = self.name(key);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.with(|pool| pool.read(name, from, len)).map(Bytes::from)
    }
    fn list(&self, prefix: &str) -> Answer<Vec<(String, u64)>> {
        let prefix = self.name(prefix);
        let mut names = self.with(|pool| pool.list())?;
        names.retain(|name| name.starts_with(prefix));
        self.sizes(&names)
    }
    fn delete(&self, key: &str) -> Answer<()> {
        let name = self.name(key);
        match self.with(|pool| pool.change(name, &[], &[Change::Remove])) {
            // Fails if it is the pool that is not there.
            Err(refusal) if refusal.kind == ErrorKind::NotFound => self.with(|pool| pool.size(name)).map(drop),
            answer => answer,
        }
    }
    fn object_bytes_max(&self) -> u64 {
        OBJECT_BYTES_MAX
    }
    fn hasten(&self, is_in_haste: bool) {
        let was_in_haste = self.is_in_haste.swap(is_in_haste, Ordering::Relaxed);
        if was_in_haste != is_in_haste {
            // The next request makes a connection with the other time-out.
            self.session.lock().pool = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cenote_rados::MemoryPool;

    use super::*;

    #[test]
    fn keys_are_names_in_a_namespace_and_lists_have_sizes() {
        let memory: Arc<dyn Pool> = Arc::new(MemoryPool::default());
        let pool = Arc::clone(&memory);
        let service = RadosService::new("space/", move |_| Ok(Arc::clone(&pool)));
        let parts = [Bytes::from_static(b"one "), Bytes::from_static(b"two")];
        service.put("space/a/x-1", &parts, true).unwrap();
        assert_eq!(memory.list().unwrap(), ["a/x-1"]);
        assert_eq!(service.put("space/a/x-1", &parts, true).unwrap_err().kind, ErrorKind::Exists);
        service.put("space/a/x-1", &parts[1..], false).unwrap();
        for number in 0..100 {
            service.put(&format!("space/b/x-{number}"), &parts, true).unwrap();
        }
        assert_eq!(service.list("space/a/").unwrap(), [("space/a/x-1".to_owned(), 3)]);
        assert_eq!(service.list("space/").unwrap().len(), 101);
        assert!(service.list("space/b/").unwrap().iter().all(|(_, size)| *size == 7));
        assert_eq!(&service.get("space/b/x-7", 4, 100).unwrap()[..], b"two", "what there is");
        assert_eq!(service.get("space/none", 0, 1).unwrap_err().kind, ErrorKind::NotFound);
        for _ in 0..2 {
            service.delete("space/b/x-7").unwrap();
        }
    }

    #[test]
    fn a_renewed_key_serves_at_once_and_waiters_share_a_failure() {
        let tried = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&tried);
        let service = RadosService::new("", move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(200));
            Err(Refusal::passing("no monitor answers"))
        });
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert!(service.get("k", 0, 1).unwrap_err().again));
            }
        });
        assert!(tried.load(Ordering::Relaxed) <= 2, "they waited for one connection");
        assert!(service.get("k", 0, 1).unwrap_err().again, "and the next call tries again");
    }
}
