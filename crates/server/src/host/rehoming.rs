//! Homes of other nodes that are opened on this one: from the copy that their host kept here, or from the pool that all nodes
//! reach.

use std::path::Path;
use std::sync::Arc;

use cenote_device::mirror::Rehomed;
use cenote_device::object::raid::PlaceMaker;
use cenote_device::rados_dir::Address;
use cenote_device::{SharedControl, StoreDir, StoreLock, SystemDevices, home};
use cenote_model::{Error, ErrorKind, HomeId, Result};
use cenote_store::Engine;

use super::{Host, OpenHow, Place, make_dir, open_dir};
use crate::identity;
use crate::metadata::Metadata;

/// Where a home of another node is opened.
pub(crate) struct Rehoming<'a> {
    /// The directory of its copy.
    pub dir: &'a Path,
    /// Where its shared memory is.
    pub base: &'a Path,
    /// Makes places of its tiers on other nodes of the cluster.
    pub places: PlaceMaker,
}

impl Host {
    /// Opens a home that another node had, from the copy in `dir`, whose shared memory is below `base`. `NotFound` if the
    /// copy is not there; `Busy` if another process has it.
    pub fn open_copy(
        dir: &Path,
        base: &Path,
        policy_plugin: Option<&Path>,
        places: Option<PlaceMaker>,
    ) -> Result<Self> {
        let subject = || format!("copy of a home in {}", dir.display());
        let store_dir = StoreDir::open(dir)?;
        let Some(store_lock) = StoreLock::acquire(dir)? else {
            return Err(Error::new(ErrorKind::Busy, subject()).because("another process has it"));
        };
        let dir_fd = open_dir(dir).map_err(|error| Error::io(subject(), &error))?;
        let meta = Metadata::of_copy(dir)?;
        Engine::peek(meta.files.as_ref())?;
        let devices = SystemDevices::with_shm_base(base).of_owner(store_dir.owner()).with_places(places);
        let control = Arc::new(SharedControl::new(base).with_what_survived());
        let place = Place { base: base.to_path_buf(), owner: store_dir.owner(), dir_fd, store_lock, is_copy: true };
        let how = OpenHow { policy_plugin, mirrored: true, ..OpenHow::default() };
        Self::start(dir, &how, place, meta, control, Arc::new(Rehomed::new(devices, dir)), true)
    }
    /// Opens a home from the pool, whoever had it: the view of the cluster has given it to this node. What is in the pool and
    /// in tiers that all nodes reach is there; memory is, if no other directory had the home since.
    pub(crate) fn open_shared(home: HomeId, address: &Address, to: &Rehoming<'_>) -> Result<Self> {
        let Rehoming { dir, base, places } = to;
        let subject = || format!("home {home} in {address}");
        make_dir(dir, None).map_err(|error| Error::io(subject(), &error))?;
        make_dir(base, None).map_err(|error| Error::io(subject(), &error))?;
        let store_dir = StoreDir::open(dir)?;
        let Some(store_lock) = StoreLock::acquire(dir)? else {
            return Err(Error::new(ErrorKind::Busy, subject()).because("another process of this node has it"));
        };
        let dir_fd = open_dir(dir).map_err(|error| Error::io(subject(), &error))?;
        address.write(&store_dir)?;
        let meta = Metadata::open_granted(dir, address)?;
        let found = Engine::peek(meta.files.as_ref())?;
        if found.home != home {
            return Err(Error::new(ErrorKind::InvalidInput, subject())
                .because(format!("what lies there is home {}", found.home))
                .try_next("`homes_on` in the file `cluster` of the nodes leads to another store"));
        }
        if meta.has_moved() {
            home::remove_memory(base, found.id)?;
        }
        home::make_memory_dir(base, found.id, &store_dir)?;
        let notes = identity::notes(dir, &meta.files)?;
        let devices = SystemDevices::with_shm_base(base)
            .of_owner(store_dir.owner())
            .noting(notes)
            .with_places(Some(places.clone()));
        let control = Arc::new(SharedControl::new(base));
        let place = Place { base: base.to_path_buf(), owner: store_dir.owner(), dir_fd, store_lock, is_copy: true };
        let how = OpenHow { mirrored: true, ..OpenHow::default() };
        Self::start(dir, &how, place, meta, control, Arc::new(Rehomed::new(devices, *dir)), true)
    }
}
