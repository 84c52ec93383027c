//! Destruction of stores on request, and cleanup after stores whose directory was deleted by hand.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_cluster::register::{GROUP_FILE, GROUP_LOCK_FILE, VIEW_FILE, VIEW_LOCK_FILE};
use cenote_cluster::{KEY_FILE, MEMBERS_FILE, Members, NODE_FILE};
use cenote_device::home::{self, Orphan};
use cenote_device::object::raid::PlaceMaker;
use cenote_device::rados_dir::{ADDRESS_FILE, Take};
use cenote_device::{LOCK_FILE, SharedControl, StoreDir, StoreLock, SystemClock, SystemDevices};
use cenote_host::home::shm_base;
use cenote_model::{DeviceKind, Error, ErrorKind, Result, StoreId};
use cenote_store::{Engine, Seams};

use crate::daemon::location;
use crate::daemon::{
    LOG_FILE, LOG_FILE_BEFORE, MOUNT_LOG_FILE, MOUNT_LOG_FILE_BEFORE, PARTS_DIR, RESTART_FILE, SOCKET, WEB_ADDRESS_FILE,
};
use crate::identity::{self, IDENTITY_FILE};
use crate::metadata::{self, Metadata};
use crate::plugin::PLUGIN_FILE;

/// The HDF5 view's directory inside a store's directory.
const STUBS_DIR: &str = "hdf5-stubs";
/// Name of the file in a store's directory with random bytes that only its owner can read.
pub const SECRET_FILE: &str = "secret";

/// The result of destroying a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destroyed {
    /// The destroyed store.
    pub store: StoreId,
    /// Devices that could not be removed (with `force` only).
    pub failures: Vec<Error>,
    /// Files in the directory that do not belong to the store; they remain, and so does the directory.
    pub foreign: Vec<PathBuf>,
}

/// Destroys the store in `dir`: its segments in memory, files and directories, its metadata, and finally the
/// directory itself unless it holds anything else. `None` if a process has the store open.
pub fn destroy(dir: &Path, force: bool) -> Result<Option<Destroyed>> {
    let subject = || format!("store {}", dir.display());
    if !dir.exists() {
        return Err(Error::new(ErrorKind::NotFound, subject()).because("there is no such directory"));
    }
    let store_dir = StoreDir::open(dir)?;
    Engine::peek(&metadata::look(dir)?).map_err(|error| match error.kind() {
        ErrorKind::Corrupt | ErrorKind::VersionMismatch => error.try_next(
            "its tiers cannot be known: delete this directory and those of its tiers by hand, then run `cenote clean`",
        ),
        _ => error,
    })?;
    let Some(lock) = StoreLock::acquire(dir)? else { return Ok(None) };
    let meta = Metadata::open(dir, false, Take::Own)?;
    identity::may_destroy(dir, &meta, &Engine::peek(meta.files.as_ref())?)?;
    let summary = Engine::peek(meta.files.as_ref())?; // a moved directory has its new path by now
    let notes = identity::notes(dir, &meta.files)?;
    // What it has on other nodes goes with them.
    let places = Some(PlaceMaker::unreachable());
    let seams = Seams {
        meta: Arc::clone(&meta.files),
        devices: Arc::new(SystemDevices::default().of_owner(store_dir.owner()).noting(notes).with_places(places)),
        clock: Arc::new(SystemClock),
        control: Arc::new(SharedControl::default()),
    };
    if let Some(members) = Members::read(dir)? {
        location::forget(dir, &members)?;
    }
    let failures = Engine::destroy(seams, force)?;
    home::remove_memory(&shm_base(), summary.id)?;
    identity::forget_claims(meta.files.as_ref())?;
    meta.rados.as_ref().map_or(Ok(()), |rados| rados.destroy())?;
    for device in summary.devices.iter().filter(|device| device.kind == DeviceKind::Directory) {
        let _ = std::fs::remove_dir(&device.path); // only if it is empty now
    }
    let logs = [LOG_FILE, LOG_FILE_BEFORE, MOUNT_LOG_FILE, MOUNT_LOG_FILE_BEFORE];
    let register = [VIEW_FILE, VIEW_LOCK_FILE, GROUP_FILE, GROUP_LOCK_FILE];
    let cluster = [MEMBERS_FILE, KEY_FILE, NODE_FILE].into_iter().chain(register);
    for name in [SOCKET, WEB_ADDRESS_FILE, RESTART_FILE, PLUGIN_FILE, IDENTITY_FILE, SECRET_FILE, ADDRESS_FILE]
        .into_iter()
        .chain(cluster)
        .chain(logs)
        .chain([LOCK_FILE])
    {
        let _ = store_dir.remove(name);
    }
    let _ = std::fs::remove_dir_all(dir.join(PARTS_DIR));
    // These stubs stand for files of the store; nobody else's files are there.
    let _ = std::fs::remove_dir_all(dir.join(STUBS_DIR));
    let foreign = match std::fs::remove_dir(dir) {
        Ok(()) => Vec::new(),
        Err(_) => std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect(),
    };
    drop(lock);
    Ok(Some(Destroyed { store: summary.id, failures, foreign }))
}

/// Shared memory that no process uses, of this user's stores whose directory is gone.
pub fn orphans() -> Result<Vec<Orphan>> {
    home::orphans(&shm_base(), |dir, store| {
        // In doubt the store exists: a directory that cannot be read now may hold it.
        match (dir.try_exists(), metadata::look(dir).and_then(|meta| Engine::peek(&meta))) {
            (Ok(false), _) => false,
            (Ok(true), Ok(found)) => found.id == store,
            (Ok(true), Err(error)) => error.kind() != ErrorKind::NotFound,
            (Err(_), _) => true,
        }
    })
}

/// Frees the memory of orphans.
pub fn sweep(orphans: &[Orphan]) -> Result<()> {
    orphans.iter().try_for_each(|orphan| home::remove_memory(&shm_base(), orphan.store))
}
