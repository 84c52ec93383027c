//! Directories of the benches' stores and files, and the opening of stores.

use std::path::{Path, PathBuf};

use cenote::{Container, ContainerSpec, DeviceKind, DeviceSpec, Durability, Mode, OpenOptions, Store, StoreConfig};

use crate::Outcome;

/// A directory that is deleted when this value is dropped.
pub struct BenchDir {
    path: PathBuf,
    stores: Vec<(PathBuf, String)>,
}

impl BenchDir {
    /// In shared memory, where files are fastest.
    pub fn in_memory(name: &str) -> Outcome<Self> {
        Self::make(Path::new("/dev/shm"), name)
    }
    /// On the file system of `dir`.
    pub fn on_disk(dir: &Path, name: &str) -> Outcome<Self> {
        Self::make(dir, name)
    }
    fn make(parent: &Path, name: &str) -> Outcome<Self> {
        let path = parent.join(format!("cenote-bench-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self { path: path.canonicalize()?, stores: Vec::new() })
    }
    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Creates a store in it.
    pub fn store(&mut self, name: &str, mode: Mode, devices: Vec<DeviceSpec>) -> Outcome<Store> {
        let dir = self.path.join(name);
        let config = StoreConfig { devices, ..StoreConfig::default() };
        let options = OpenOptions { mode, create: true, config, ..OpenOptions::default() };
        let store = Store::open_with(&dir, &options)?;
        self.stores.push((dir, format!("/dev/shm/cenote-{}", store.id())));
        Ok(store)
    }
}

impl Drop for BenchDir {
    fn drop(&mut self) {
        for (store, segments) in &self.stores {
            let _ = Store::stop_daemon(store);
            // They outlive processes by design; open clients keep their mappings.
            let _ = std::fs::remove_dir_all(segments);
        }
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A memory tier.
pub fn memory(mib: u64) -> DeviceSpec {
    DeviceSpec {
        name: "memory".into(),
        kind: DeviceKind::SharedMemory,
        path: PathBuf::new(),
        capacity_bytes: mib << 20,
        watermark_high_permille: 980,
        watermark_low_permille: 960,
        options: cenote::TierOptions::default(),
    }
}

/// A tier of one preallocated file.
pub fn file(path: PathBuf, mib: u64) -> DeviceSpec {
    DeviceSpec {
        name: "file".into(),
        kind: DeviceKind::File,
        path,
        capacity_bytes: mib << 20,
        watermark_high_permille: 980,
        watermark_low_permille: 960,
        options: cenote::TierOptions::default(),
    }
}

/// A container for measurements.
pub fn container(store: &Store, label: &str, durability: Durability) -> Outcome<Container> {
    let spec = ContainerSpec { durability, ..ContainerSpec::default() };
    Ok(store.create_container(label, &spec)?)
}
