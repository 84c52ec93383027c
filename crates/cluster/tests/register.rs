//! All registers pass the same suite: in memory, in a file, through messages, in a pool of RADOS in memory, in a real etcd, if it
//! is installed, and in a real Ceph cluster, if `CENOTE_TEST_CEPH=POOL@CONF` names one
//! (`python3 scripts/ceph_cluster.py run -- cargo test -p cenote-cluster --test register`).

mod etcd;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use cenote_cluster::register::conformance::{self, Place};
use cenote_cluster::register::{
    Ask, FileRegister, MemoryRegister, RadosRegister, Register, RemoteRegister, VIEW_FILE, answer,
};
use cenote_model::{Error, ErrorKind, Result};
use cenote_rados::{Answer, CephPool, Change, Check, Connect, MemoryPool, Pool, Refusal, RefusalKind};

static PLACES: AtomicU32 = AtomicU32::new(0);

/// A name that no other place of this process has.
fn fresh_name() -> String {
    format!("{}-{}", std::process::id(), PLACES.fetch_add(1, Ordering::Relaxed))
}

impl Place for Memory {
    fn client(&self) -> Box<dyn Register> {
        Box::new(self.0.clone())
    }
    fn damage(&self, bytes: &[u8]) {
        self.0.damage(bytes);
    }
    fn set_away(&self, is_away: bool) -> bool {
        self.0.set_away(is_away);
        true
    }
    fn patience(&self) -> Duration {
        Duration::from_secs(1)
    }
}

struct Memory(MemoryRegister);

#[test]
fn memory() {
    conformance::register(|| Memory(MemoryRegister::default()));
}

/// A register in a file, asked by its own process, or by others through messages.
struct InFile {
    dir: PathBuf,
    register: FileRegister,
    is_remote: bool,
    is_away: Arc<AtomicBool>,
}

impl InFile {
    fn new(is_remote: bool) -> Self {
        let dir = std::env::temp_dir().join(format!("cenote-register-{}", fresh_name()));
        std::fs::create_dir_all(&dir).unwrap();
        let register = FileRegister::open(&dir).unwrap();
        Self { dir, register, is_remote, is_away: Arc::default() }
    }
}

impl Drop for InFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The way to the process that has the register: nothing but bytes goes this way.
struct Way(FileRegister, Arc<AtomicBool>);

impl Ask for Way {
    fn ask(&self, request: &[u8], timeout: Duration) -> Result<Vec<u8>> {
        if self.1.load(Ordering::Acquire) {
            std::thread::sleep(timeout);
            return Err(Error::new(ErrorKind::Disconnected, "a connection").because("it is cut"));
        }
        Ok(answer(&self.0, request))
    }
}

impl Place for InFile {
    fn client(&self) -> Box<dyn Register> {
        if !self.is_remote {
            return Box::new(self.register.clone());
        }
        let way = Way(self.register.clone(), Arc::clone(&self.is_away));
        Box::new(RemoteRegister::new(way, "node 1", Duration::from_millis(300)))
    }
    fn damage(&self, bytes: &[u8]) {
        std::fs::write(self.dir.join(VIEW_FILE), bytes).unwrap();
    }
    fn set_away(&self, is_away: bool) -> bool {
        self.is_away.store(is_away, Ordering::Release);
        self.is_remote
    }
    fn patience(&self) -> Duration {
        Duration::from_millis(1300)
    }
}

#[test]
fn a_file() {
    conformance::register(|| InFile::new(false));
}

#[test]
fn a_file_of_another_node() {
    conformance::register(|| InFile::new(true));
}

/// A pool that can be kept away.
struct Cut<P> {
    pool: P,
    is_away: AtomicBool,
}

impl<P> Cut<P> {
    fn look(&self) -> Answer<()> {
        let away = || Refusal::new(RefusalKind::Unanswered, "no answer in time");
        if self.is_away.load(Ordering::Acquire) { Err(away()) } else { Ok(()) }
    }
}

impl<P: Pool> Pool for Cut<P> {
    fn change(&self, object: &str, checks: &[Check<'_>], changes: &[Change<'_>]) -> Answer<()> {
        self.look().and_then(|()| self.pool.change(object, checks, changes))
    }
    fn read(&self, object: &str, offset: u64, len: usize) -> Answer<Vec<u8>> {
        self.look().and_then(|()| self.pool.read(object, offset, len))
    }
    fn size(&self, object: &str) -> Answer<Option<u64>> {
        self.look().and_then(|()| self.pool.size(object))
    }
    fn attribute(&self, object: &str, name: &str) -> Answer<Option<Vec<u8>>> {
        self.look().and_then(|()| self.pool.attribute(object, name))
    }
    fn records(&self, object: &str, after: &str, most: usize) -> Answer<Vec<(String, Vec<u8>)>> {
        self.look().and_then(|()| self.pool.records(object, after, most))
    }
    fn list(&self) -> Answer<Vec<String>> {
        self.look().and_then(|()| self.pool.list())
    }
}

struct InPool<P: Pool + 'static> {
    pool: Arc<Cut<P>>,
    object: String,
}

impl<P: Pool + 'static> InPool<P> {
    fn new(pool: P) -> Self {
        Self { pool: Arc::new(Cut { pool, is_away: AtomicBool::new(false) }), object: format!("view-{}", fresh_name()) }
    }
}

impl<P: Pool + 'static> Drop for InPool<P> {
    fn drop(&mut self) {
        let _ = self.pool.pool.change(&self.object, &[], &[Change::Remove]);
    }
}

impl<P: Pool + 'static> Place for InPool<P> {
    fn client(&self) -> Box<dyn Register> {
        Box::new(RadosRegister::new(Arc::clone(&self.pool) as Arc<dyn Pool>, "data", self.object.clone()))
    }
    fn damage(&self, bytes: &[u8]) {
        self.pool.change(&self.object, &[], &[Change::Replace(bytes)]).unwrap();
    }
    fn set_away(&self, is_away: bool) -> bool {
        self.pool.is_away.store(is_away, Ordering::Release);
        true
    }
    fn patience(&self) -> Duration {
        Duration::from_secs(1)
    }
}

#[test]
fn an_object_of_a_pool_in_memory() {
    conformance::register(|| InPool::new(MemoryPool::default()));
}

#[test]
fn an_object_of_a_ceph_pool() {
    let Ok(text) = std::env::var("CENOTE_TEST_CEPH") else {
        eprintln!("skipped: CENOTE_TEST_CEPH names no pool of a Ceph cluster");
        return;
    };
    let (pool, conf) = text.split_once('@').expect("CENOTE_TEST_CEPH=POOL@CONF");
    let connect = Connect {
        pool: pool.into(),
        namespace: format!("register-{}", fresh_name()),
        conf: Some(conf.into()),
        user: Some("cenote".into()),
        keyring: None,
    };
    conformance::register(|| InPool::new(CephPool::connect(&connect).unwrap()));
}
