//! The factory of real devices.

use std::path::{Path, PathBuf};

use cenote_host::home::shm_base;
use cenote_model::{DeviceId, DeviceKind, DeviceSpec, Error, ErrorKind, Result, StoreId};

use crate::{Devices, OpenedDevice, directory, file, object, persistent_memory, shared_memory};

/// Opens the real devices: shared memory, files, directories and object services.
#[derive(Clone, Debug)]
pub struct SystemDevices {
    shm_base: PathBuf,
    /// Owner of the store, if known.
    owner: Option<u32>,
    /// Notes of the store's claims in object services.
    notes: Option<object::ClaimNotes>,
    /// Places of `raid` tiers.
    raid: object::raid::RaidDevices,
}

impl Default for SystemDevices {
    fn default() -> Self {
        Self::with_shm_base(shm_base())
    }
}

impl SystemDevices {
    /// Puts shared memory files below another directory (a tmpfs; for tests any directory).
    pub fn with_shm_base(path: impl Into<PathBuf>) -> Self {
        Self { shm_base: path.into(), owner: None, notes: None, raid: object::raid::RaidDevices::default() }
    }
    /// Sets the owner of the store: which secrets may serve its tiers depends on the owner.
    #[must_use]
    pub fn of_owner(self, owner: u32) -> Self {
        Self { owner: Some(owner), ..self }
    }
    /// Claims tiers in object services for the store's directory.
    #[must_use]
    pub fn noting(self, notes: object::ClaimNotes) -> Self {
        Self { raid: self.raid.noting(Some(notes.clone())), notes: Some(notes), ..self }
    }
    /// Asks `maker` for the places of `raid` tiers on nodes.
    #[must_use]
    pub fn with_places(self, maker: Option<object::raid::PlaceMaker>) -> Self {
        Self { raid: self.raid.with_places(maker), ..self }
    }
    /// The directory in shared memory that belongs to a store, if it has one.
    pub fn store_dir(&self, store: StoreId) -> Option<PathBuf> {
        shared_memory::find_store_dir(&self.shm_base, store).ok()?.map(|(_, path)| path)
    }
    /// Changes the store id in the files of a copied persistent device.
    pub fn change_store(&self, spec: &DeviceSpec, from: StoreId, to: StoreId) -> Result<()> {
        match spec.kind {
            DeviceKind::PersistentMemory => persistent_memory::change_store(spec, from, to),
            DeviceKind::File => file::change_store(spec, from, to),
            DeviceKind::Directory => directory::change_store(spec, from, to),
            DeviceKind::SharedMemory | DeviceKind::S3 | DeviceKind::Swift | DeviceKind::Rados | DeviceKind::Raid => {
                Err(Error::new(ErrorKind::Unsupported, format!("tier `{}`", spec.name))
                    .because("a directory's copy has no copy of it"))
            }
        }
    }
    /// The base directory of shared memory files.
    pub fn base(&self) -> &Path {
        &self.shm_base
    }
}

impl Devices for SystemDevices {
    fn open(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice> {
        match spec.kind {
            DeviceKind::SharedMemory => shared_memory::open(&self.shm_base, store, id, spec, create),
            DeviceKind::PersistentMemory => persistent_memory::open(store, id, spec, create),
            DeviceKind::File => file::open(store, id, spec, create),
            DeviceKind::Directory => directory::open(store, id, spec, create),
            DeviceKind::Raid => self.raid.open(store, id, spec, create),
            DeviceKind::S3 | DeviceKind::Swift | DeviceKind::Rados => {
                if create {
                    object::remote::approved::approve(spec, self.owner);
                } else {
                    object::remote::approved::check(spec, self.owner)?;
                }
                object::real(spec.kind, self.owner, self.notes.clone()).open(store, id, spec, create)
            }
        }
    }
    fn remove(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()> {
        match spec.kind {
            DeviceKind::SharedMemory => shared_memory::remove(&self.shm_base, store, id, spec),
            DeviceKind::PersistentMemory => persistent_memory::remove(store, id, spec),
            DeviceKind::File => file::remove(store, id, spec),
            DeviceKind::Directory => directory::remove(store, id, spec),
            DeviceKind::Raid => self.raid.remove(store, id, spec),
            DeviceKind::S3 | DeviceKind::Swift | DeviceKind::Rados => {
                object::remote::approved::check(spec, self.owner)?;
                object::real(spec.kind, self.owner, self.notes.clone()).remove(store, id, spec)
            }
        }
    }
}
