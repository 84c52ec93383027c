//! The nodes of a cluster for the crash test: directories of this host, each with a daemon of its own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cenote::{HomeId, Mode, OpenOptions, Store};
use cenote_cluster::register::GroupRegister;
use cenote_cluster::{KEY_FILE, Member, Members, RegisterPlace};
use cenote_device::home::remove_memory;
use cenote_host::home::shm_base;
use cenote_model::{StoreConfig, StoreId};
use cenote_rpc::net::ClusterKey;

use super::parent::{Check, holder, text, tiers};

/// The directory of a node, counted from 0.
pub fn dir_of(dir: &Path, node: usize) -> PathBuf {
    dir.join(format!("n{}", node + 1))
}

/// Moves a node's directory away, and deletes its shared memory: the node is lost for good.
pub fn take_away(dir: &Path, id: StoreId) -> Check {
    let mut lost = dir.as_os_str().to_owned();
    lost.push(".lost");
    std::fs::rename(dir, PathBuf::from(lost)).map_err(text)?;
    remove_memory(&shm_base(), id).map_err(text)
}

/// The nodes of a cluster for a test; gone when this value is dropped.
pub struct Cluster {
    /// The directory that has those of the nodes.
    pub dir: PathBuf,
    /// The store at each node that was not lost.
    pub stores: Vec<Store>,
}

impl Cluster {
    /// Makes so many nodes in a directory of this name and process, see [`make`].
    ///
    /// # Panics
    /// If they cannot be made.
    pub fn new(name: &str, program: &Path, count: usize, protect: u8) -> Self {
        let dir = std::env::temp_dir().join(format!("cenote-{name}-{}", std::process::id()));
        let stores = make(&dir, program, count, protect).expect("a cluster of this host");
        Self { dir, stores }
    }
    /// The directory of a node, counted from 0.
    pub fn dir_of(&self, node: usize) -> PathBuf {
        dir_of(&self.dir, node)
    }
    /// Kills the daemon of a node.
    ///
    /// # Panics
    /// If there is none.
    pub fn kill_daemon(&self, node: usize) {
        let holder = cenote_server::holder(&self.dir_of(node)).expect("a daemon has the store");
        let pid = rustix::process::Pid::from_raw(holder.pid as i32).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("a daemon that can be killed");
    }
    /// Loses a node for good: its daemon, its memory and its directory.
    ///
    /// # Panics
    /// If it was lost before.
    pub fn lose(&mut self, node: usize) {
        let dir = self.dir_of(node);
        let at = self.stores.iter().position(|store| store.dir() == dir).expect("a node that is there");
        let store = self.stores.remove(at);
        self.kill_daemon(node);
        let id = store.id();
        drop(store);
        take_away(&dir, id).expect("a directory of the node");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // All of them first: a client waits for the daemon of another node.
        for store in &self.stores {
            let _ = store.close();
        }
        for store in &self.stores {
            let _ = Store::stop_daemon(store.dir());
            let _ = Store::destroy(store.dir(), true);
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Makes so many nodes, and starts their daemons. The cluster survives the loss of `protect` nodes.
pub fn make(dir: &Path, program: &Path, count: usize, protect: u8) -> Check<Vec<Store>> {
    let held: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<_>>().map_err(text)?;
    let addresses = held.iter().map(TcpListener::local_addr).collect::<std::io::Result<Vec<_>>>().map_err(text)?;
    let member =
        |(at, address)| Member { home: HomeId(at as u16 + 1), address, name: format!("n{}", at + 1), has_left: false };
    let all: Vec<Member> = addresses.into_iter().enumerate().map(member).collect();
    let key = ClusterKey::draw().map_err(text)?;
    for node in 0..count {
        let place = dir_of(dir, node);
        let home = HomeId(node as u16 + 1);
        let config = StoreConfig { devices: tiers(&place), home, ..StoreConfig::default() };
        let options =
            OpenOptions { mode: Mode::InProcess, create: true, create_new: true, config, ..OpenOptions::default() };
        Store::open_with(&place, &options).and_then(|store| store.close()).map_err(text)?;
        key.create_file(&place.join(KEY_FILE)).map_err(text)?;
        let register = RegisterPlace::usual(count, protect);
        let members = Members {
            cluster: StoreId(7),
            home,
            protect,
            homes_on: None,
            register,
            keeping: None,
            encrypt: false,
            all: all.clone(),
        };
        members.write(&place).map_err(text)?;
        if members.register == RegisterPlace::Nodes && members.is_keeper() {
            GroupRegister::make(&place).map_err(text)?;
        }
    }
    drop(held);
    (0..count).try_for_each(|node| begin(&dir_of(dir, node), program))?;
    let stores: Vec<Store> = (0..count).map(|node| open(&dir_of(dir, node))).collect::<Check<_>>()?;
    stores[0].make_label_directory().map_err(text)?;
    Ok(stores)
}

/// Opens the store at a node.
pub fn open(dir: &Path) -> Check<Store> {
    Store::open_with(dir, &OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() }).map_err(text)
}

/// A process that has a store for so long after a daemon could not be started there is another daemon, and not one that was
/// killed and is still ending.
const ENDING: Duration = Duration::from_secs(2);
/// Time limit for the start of a daemon.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a node's daemon. Succeeds if there is one: a client may have been faster.
pub fn begin(dir: &Path, program: &Path) -> Check {
    // Another program may be named in the environment, as for clients.
    let named = std::env::var_os("CENOTE_BIN");
    let (begin, first) = (Instant::now(), holder(dir));
    loop {
        let mut serve = Command::new(named.as_deref().unwrap_or(program.as_os_str()));
        serve.arg("serve").arg(dir).arg("--background").stdin(Stdio::null()).stdout(Stdio::null());
        let served = serve.stderr(Stdio::null()).status().map_err(text)?;
        let holds = holder(dir);
        if served.success() || (holds.is_some() && (holds != first || begin.elapsed() > ENDING)) {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err(format!("no daemon can be started in {}: {served}", dir.display()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
