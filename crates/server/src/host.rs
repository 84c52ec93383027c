//! A store opened by this process: lock, control table, engine and its threads.

mod rehoming;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cenote_cluster::Members;
use cenote_device::control::{ControlView, SharedControl, boot_ns};
use cenote_device::object::raid::PlaceMaker;
use cenote_device::rados_dir::{ADDRESS_FILE, Take};
use cenote_device::{Devices, Holder, RadosMetaDir, StoreDir, StoreLock, SystemClock, SystemDevices, home, store_dir};
use cenote_host::home::shm_base;
use cenote_host::{fork, process};
use cenote_model::{DeviceKind, DeviceSpec, Error, ErrorKind, HomeId, NodeId, Request, Result, StoreConfig, StoreId};
use cenote_store::{Engine, Seams, SessionInfo, StoreSummary};
use rustix::fs::{Mode, OFlags};

use crate::Service;
use crate::clients::{Client, Clients};
use crate::identity::{self, Identity};
use crate::metadata::{self, Metadata};
use crate::mirroring::Mirroring;
use crate::service::lock;
use crate::words::Words;
pub(crate) use rehoming::Rehoming;

/// How to open a store, and whether to create one.
#[derive(Clone, Debug, Default)]
pub struct OpenHow<'a> {
    /// Create a store if there is none.
    pub create: Option<&'a StoreConfig>,
    /// Fail if a store exists.
    pub create_new: bool,
    /// Wraps the engine's seams, for tests.
    pub world: Option<Wrap>,
    /// A shared library with a placement policy ([`crate::Plugin`]), which must load. `None`: the one stored with the
    /// store ([`crate::keep_plugin`]), if there is one.
    pub policy_plugin: Option<&'a Path>,
    /// Note all changes, for copies on other nodes.
    pub mirrored: bool,
    /// Makes places of its tiers on other nodes of the cluster.
    pub places: Option<PlaceMaker>,
    /// Take the home from the directory that had it last: the view of the cluster has given it to this one.
    pub is_granted: bool,
}

/// Wraps an engine's seams.
pub type Wrap = fn(Seams) -> Seams;

/// A store whose engine runs in this process.
pub struct Host {
    /// The engine and its threads.
    pub service: Arc<Service>,
    /// The shared control table and the files of clients.
    pub control: Arc<SharedControl>,
    /// The superblock's content.
    pub summary: StoreSummary,
    /// Value of the instance word for this engine.
    pub instance: u64,
    dir: PathBuf,
    /// Where its shared memory is.
    base: PathBuf,
    /// It is a copy of another node's home.
    is_copy: bool,
    /// Its changes, if other nodes are to have copies.
    pub(crate) mirroring: Option<Arc<Mirroring>>,
    /// The store's home, if that is not its directory.
    rados: Option<Arc<RadosMetaDir>>,
    /// Owner of the directory.
    owner: u32,
    /// The directory itself, whatever its path leads to by now.
    dir_fd: OwnedFd,
    store_lock: Mutex<Option<StoreLock>>,
    /// That of the node's directory, if the home of the node lies in a copy below.
    node_lock: Mutex<Option<StoreLock>>,
    /// Fork generation of the host.
    generation: u64,
    pub(crate) clients: Clients,
}

/// Where a store is, and what keeps others from it.
struct Place {
    base: PathBuf,
    owner: u32,
    dir_fd: OwnedFd,
    store_lock: StoreLock,
    /// It is a copy of another node's home: its memory belongs to no other directory.
    is_copy: bool,
}

impl Host {
    /// Lets other nodes remember what they see of the store. The thread behind `bell` sends them messages, and carries out
    /// what waits for their answers.
    /// `formerly`: a home whose host was another node may have told any of these until a moment ago.
    /// `errands`: called when there may be something to say to other homes.
    pub(crate) fn tell_words(
        &self,
        bell: cenote_rpc::Doorbell,
        formerly: &[NodeId],
        errands: Box<dyn Fn() + Send + Sync>,
    ) {
        if self.control.granted().0 == 0 {
            for node in formerly {
                self.control.grant(node.0, boot_ns() + Words::trusted_for_ns());
            }
        }
        let words = Words::of(self.control.clone(), Box::new(boot_ns));
        words.on_work(Box::new(move || bell.ring()));
        // What was revoked when they were prepared stays so until they are settled.
        let prepared = self.service.with_engine(|engine| engine.prepared()).unwrap_or_default();
        for (transaction, updates) in prepared {
            let change = words.begin(None, &Request::Apply { checks: Vec::new(), updates, atomic: true });
            words.end_or_hold(change, Some(transaction));
        }
        words.on_errands(errands);
        let _ = self.service.words.set(Arc::new(words));
    }
    /// Opens the store in `dir`. `None` if another process has it.
    pub fn open(dir: &Path, how: &OpenHow<'_>) -> Result<Option<Self>> {
        let subject = || format!("store {}", dir.display());
        if !dir.exists() {
            if how.create.is_none() {
                return Err(Error::new(ErrorKind::NotFound, subject())
                    .because("there is no such directory")
                    .try_next("check the path, or make a store there: `cenote init DIR`"));
            }
            make_dir(dir, how.create).map_err(|error| Error::io(subject(), &error))?;
        }
        let store_dir = StoreDir::open(dir)?; // refuses an untrusted directory before anything in it is read
        if how.create.is_none() && metadata::home_of(dir)?.is_none() {
            // Before the lock file is created: do not change a directory that holds no store.
            let found = Engine::peek(&metadata::look(dir)?)?;
            home::make_memory_dir(&shm_base(), found.id, &store_dir)?;
        }
        if !how.mirrored && Members::read(dir)?.is_some_and(|members| members.homes_move()) {
            return Err(Error::new(ErrorKind::Unsupported, subject())
                .because("other nodes have copies of it, which only its daemon keeps the same")
                .try_next("open it through the daemon, as all commands do by themselves"));
        }
        let Some(store_lock) = StoreLock::acquire(dir)? else { return Ok(None) };
        let dir_fd = open_dir(dir).map_err(|error| Error::io(subject(), &error))?;
        let take = if how.is_granted { Take::Granted } else { Take::Own };
        let meta = Metadata::open(dir, how.create.is_some(), take)?;
        let found = Engine::peek(meta.files.as_ref());
        let exists = match &found {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error.clone()),
        };
        if exists && how.create_new {
            return Err(Error::new(ErrorKind::Exists, subject()).try_next("open it, or choose another directory"));
        }
        if let Ok(summary) = &found {
            if meta.rados.is_some() {
                if meta.has_moved() {
                    home::remove_memory(&shm_base(), summary.id)?;
                }
                home::make_memory_dir(&shm_base(), summary.id, &store_dir)?;
            }
            identity::enter(dir, &meta, summary)?;
        }
        let control = Arc::new(SharedControl::default());
        let notes = identity::notes(dir, &meta.files)?;
        let devices = Arc::new(
            SystemDevices::default().of_owner(store_dir.owner()).noting(notes).with_places(how.places.clone()),
        );
        let place = Place { base: shm_base(), owner: store_dir.owner(), dir_fd, store_lock, is_copy: false };
        Self::start(dir, how, place, meta, control, devices, exists).map(Some)
    }
    fn start(
        dir: &Path,
        how: &OpenHow<'_>,
        place: Place,
        meta: Metadata,
        control: Arc<SharedControl>,
        devices: Arc<dyn Devices>,
        exists: bool,
    ) -> Result<Self> {
        let subject = || format!("store {}", dir.display());
        let Place { base, owner, dir_fd, store_lock, is_copy } = place;
        let seams =
            Seams { meta: Arc::clone(&meta.files), devices, clock: Arc::new(SystemClock), control: control.clone() };
        let seams = if let Some(wrap) = how.world { wrap(seams) } else { seams };
        let (seams, mirroring) = if how.mirrored {
            let (seams, mirroring) = Mirroring::wrap(seams, control.clone(), draw()?);
            (seams, Some(mirroring))
        } else {
            (seams, None)
        };
        let tuning = crate::memory::tuning()?;
        let mut engines: Vec<Engine> = match how.create {
            Some(config) if !exists => {
                let id = Engine::draw_id(&seams);
                Engine::create_all(&seams, id, &with_devices(dir, config)?, tuning).inspect_err(|_| {
                    let _ = control.delete(); // report the error of the creation, not this one
                })?
            }
            _ => Engine::open_all(&seams, tuning)?.into_iter().map(|(engine, _)| engine).collect(),
        };
        for engine in &mut engines {
            crate::plugin::load(engine, dir, how.policy_plugin)?;
        }
        let summary = engines[0].summary();
        let has_several = engines.len() > 1;
        let service = Service::start(engines);
        if has_several {
            service.tend_transactions(&control);
        }
        let (watched, table) = (dir_fd.try_clone().map_err(|error| Error::io(subject(), &error))?, control.clone());
        let home = meta.rados.clone();
        service.watch(Box::new(move || {
            let gone = if is_deleted(&watched) { Some(crate::service::gone()) } else { home.as_ref()?.lost() };
            if gone.is_some() {
                // Invalidates what readers cached: their next call asks the engine, which reports the end.
                cenote_device::Control::instance_raise(table.as_ref());
            }
            gone
        }));
        let instance = ControlView::map(control.read_only()?)?.instance();
        if let Err(error) = home::note_home(&base, summary.id, dir) {
            tracing::warn!(%error, "if the directory is deleted by hand, its memory will have to be as well");
        }
        if !is_copy {
            identity::note_memory(dir, summary.id, false);
        }
        if !exists {
            Identity::here(dir, summary.id)?.write(meta.local.as_ref())?;
        }
        let (dir, generation) = (dir.to_path_buf(), fork::generation());
        let clients = Clients::of(control.clone());
        let store_lock = Mutex::new(Some(store_lock));
        let host = Self {
            service,
            control,
            summary,
            instance,
            dir,
            base,
            is_copy,
            mirroring,
            rados: meta.rados,
            owner,
            dir_fd,
            store_lock,
            node_lock: Mutex::default(),
            generation,
            clients,
        };
        host.reap();
        Ok(host)
    }
    /// The store's id.
    pub fn id(&self) -> StoreId {
        self.summary.id
    }
    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// Rights of a user: `Some(true)` write, `Some(false)` read, `None` nothing.
    pub fn rights(&self, uid: u32) -> Option<bool> {
        if self.is_owner(uid) || self.summary.writers.contains(&uid) {
            Some(true)
        } else {
            self.summary.readers.contains(&uid).then_some(false)
        }
    }
    /// Returns true for the owner of the directory, root, and the user who runs this engine: owners and modes of
    /// containers do not bind them.
    pub fn is_owner(&self, uid: u32) -> bool {
        uid == 0 || uid == self.owner || uid == rustix::process::geteuid().as_raw()
    }
    /// Admits a client: opens a session (the same one for the same nonce) and creates its file, with the lock by which
    /// its process proves that it lives.
    pub fn client(&self, who: &SessionInfo, ring_bytes: u64) -> Result<(Client, OwnedFd)> {
        self.clients.admit(self.service.as_ref(), who, ring_bytes)
    }
    /// Forgets a client's file once nothing of it is needed.
    pub fn client_remove(&self, number: u64) {
        self.clients.remove(number);
    }
    /// Carries out the pipelined changes of dead processes, closes their sessions, and forgets their files.
    pub fn reap(&self) {
        self.clients.reap(self.service.as_ref(), || self.service.with_engine(|_| ()).is_err());
    }
    /// Closes the engine and releases the directory.
    pub fn close(&self) -> Result<()> {
        let result = self.service.close();
        if result.is_ok() {
            self.note_closed();
        }
        self.unlock();
        result
    }
    /// Notes that the directory no longer changes, so that a copy of it agrees with its shared memory.
    fn note_closed(&self) {
        if lock(&self.store_lock).is_some() && !self.is_deleted() && !self.is_copy {
            identity::note_memory(&self.dir, self.summary.id, true);
        }
    }
    /// Keeps the lock of the node's directory for as long as the home is open.
    pub(crate) fn keep_node_lock(&self, held: StoreLock) {
        *lock(&self.node_lock) = Some(held);
    }
    /// Returns true if somebody deleted the directory.
    pub fn is_deleted(&self) -> bool {
        is_deleted(&self.dir_fd)
    }
    /// Returns true if another node was the home's host since this one, or may have been.
    pub(crate) fn was_elsewhere(&self) -> bool {
        self.is_copy || self.rados.as_ref().is_some_and(|rados| rados.has_moved())
    }
    /// Fails if another directory has the store's home by now, as the pool says that is asked now.
    pub(crate) fn confirm(&self) -> Result<()> {
        self.rados.as_ref().map_or(Ok(()), |rados| rados.confirm())
    }
    /// Returns why this process must let the store go: another one has it by now.
    pub fn lost(&self) -> Option<Error> {
        self.rados.as_ref()?.lost()
    }
    /// Releases the directory, once the engine is closed. Frees the shared memory if the directory was deleted.
    pub(crate) fn unlock(&self) {
        if let Some(held) = lock(&self.store_lock).take() {
            self.control.let_go();
            if self.is_deleted() {
                let _ = home::remove_memory(&self.base, self.summary.id);
            }
            drop(held);
            drop(lock(&self.node_lock).take());
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A forked child's copy leaves everything to its parent.
        if self.generation == fork::generation() {
            let _ = self.service.close();
            self.unlock();
        }
    }
}

/// A random number.
pub(crate) fn draw() -> Result<u64> {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => Ok(u64::from_ne_bytes(bytes)),
        Ok(_) => Err(Error::new(ErrorKind::Io, "the system's random numbers").because("there were too few")),
        Err(errno) => Err(Error::io("the system's random numbers", &errno.into())),
    }
}

/// Creates a directory that nobody else can read, whatever the umask; users named by the store can reach its socket.
pub(crate) fn make_dir(dir: &Path, config: Option<&StoreConfig>) -> std::io::Result<()> {
    let is_alone = config.is_none_or(|config| config.writers.is_empty() && config.readers.is_empty());
    let others = if is_alone { Mode::empty() } else { Mode::XGRP | Mode::XOTH };
    store_dir::make_private_dir(dir, Mode::RWXU | others)
}

/// Opens a directory itself, to know later whether it is still there.
fn open_dir(dir: &Path) -> std::io::Result<OwnedFd> {
    Ok(rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns true if a store's directory was deleted, or everything in it.
fn is_deleted(dir: &OwnedFd) -> bool {
    let has_no = |name: &&str| {
        rustix::fs::statat(dir, *name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).err() == Some(rustix::io::Errno::NOENT)
    };
    rustix::fs::fstat(dir).is_ok_and(|stat| stat.st_nlink == 0) || ["superblock", ADDRESS_FILE].iter().all(has_no)
}

/// The holder of the lock of the store in `dir`, if the system reports it.
pub fn holder(dir: &Path) -> Option<Holder> {
    cenote_device::holder_of_store(dir)
}

/// Returns true if a process has the lock of the store in `dir`.
pub fn is_locked(dir: &Path) -> bool {
    matches!(StoreLock::acquire(dir), Ok(None))
}

/// The id of the store in a directory; `None` if there is none.
pub fn store_in(dir: &Path) -> Result<Option<StoreId>> {
    match Engine::peek(&metadata::look(dir)?) {
        Ok(found) => Ok(Some(found.id)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if the directory holds a store.
pub fn holds_store(dir: &Path) -> Result<bool> {
    Ok(home_number(dir)?.is_some())
}

/// Which home of a cluster the store in a directory is, 0 of a store by itself; `None` if the directory holds no store.
pub fn home_number(dir: &Path) -> Result<Option<HomeId>> {
    if !dir.exists() {
        return Ok(None);
    }
    match Engine::peek(&metadata::look(dir)?) {
        Ok(store) => Ok(Some(store.home)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Session information of this process.
pub fn this_process(nonce: u128, write: bool) -> SessionInfo {
    let pid = std::process::id();
    let started = process::started_of(pid).unwrap_or(0);
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    SessionInfo { nonce, pid, started, uid, gid, write, bound: None, node: None }
}

/// The configuration with its devices: the given ones, or a memory tier and a directory sized for this machine.
fn with_devices(dir: &Path, config: &StoreConfig) -> Result<StoreConfig> {
    let mut config = config.clone();
    let dir = dir.canonicalize().map_err(|error| Error::io(dir.display().to_string(), &error))?;
    if config.devices.is_empty() {
        let memory = (memory_bytes() / 8).min(free_bytes(&shm_base()) / 2);
        let disk = free_bytes(&dir) / 2;
        let tier = |name: &str, kind, path, capacity: u64| DeviceSpec {
            name: name.into(),
            kind,
            path,
            capacity_bytes: capacity.next_multiple_of(16 << 20),
            watermark_high_permille: 800,
            watermark_low_permille: 600,
            options: cenote_model::TierOptions::default(),
        };
        config.devices = vec![
            tier("memory", DeviceKind::SharedMemory, PathBuf::new(), memory.clamp(32 << 20, 64 << 30)),
            tier("disk", DeviceKind::Directory, dir.join("disk"), disk.clamp(64 << 20, 1 << 50)),
        ];
    }
    for device in &mut config.devices {
        let has_path = device.kind != DeviceKind::SharedMemory && !device.kind.is_object();
        if has_path && device.path.is_relative() {
            device.path = dir.join(&device.path);
        }
    }
    Ok(config)
}

/// Memory of the machine, in bytes.
pub(crate) fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit.max(1)))
}

fn free_bytes(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}
