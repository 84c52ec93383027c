//! Every implementation passes the suites.

use std::path::PathBuf;

use cenote_device::mem::{MemControl, MemDevices, MemMetaDir};
use cenote_device::{FsMetaDir, StoreLock, SystemDevices, conformance};
use cenote_model::{DeviceKind, DeviceSpec};

/// A directory of its own, deleted on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cenote-device-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}
impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn spec(kind: DeviceKind, path: PathBuf, capacity_bytes: u64) -> DeviceSpec {
    DeviceSpec {
        name: kind.word().to_owned(),
        kind,
        path,
        capacity_bytes,
        watermark_high_permille: 900,
        watermark_low_permille: 800,
        options: cenote_model::TierOptions::default(),
    }
}

#[test]
fn shared_memory() {
    let base = Scratch(PathBuf::from(format!("/dev/shm/cenote-device-test-{}", std::process::id())));
    std::fs::create_dir_all(&base.0).unwrap();
    let devices = SystemDevices::with_shm_base(&base.0);
    let seed = conformance::seed();
    conformance::devices(&devices, &spec(DeviceKind::SharedMemory, PathBuf::new(), 20 << 20), seed);
    assert_eq!(std::fs::read_dir(&base.0).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn file() {
    let dir = Scratch::new("file");
    let spec = spec(DeviceKind::File, dir.0.join("tier"), 20 << 20);
    conformance::devices(&SystemDevices::default(), &spec, conformance::seed());
}

#[test]
fn persistent_memory() {
    let dir = Scratch::new("pmem");
    let spec = spec(DeviceKind::PersistentMemory, dir.0.join("tier"), 20 << 20);
    conformance::devices(&SystemDevices::default(), &spec, conformance::seed());
}

#[test]
fn directory() {
    let dir = Scratch::new("directory");
    let spec = spec(DeviceKind::Directory, dir.0.join("tier"), 300 << 20);
    conformance::devices(&SystemDevices::default(), &spec, conformance::seed());
}

#[test]
fn in_memory() {
    let seed = conformance::seed();
    for kind in [DeviceKind::SharedMemory, DeviceKind::PersistentMemory, DeviceKind::File] {
        conformance::devices(&MemDevices::new(1 << 20), &spec(kind, PathBuf::new(), 5 << 20), seed);
    }
    conformance::meta_dir(&MemMetaDir::default(), seed);
    conformance::control(&MemControl::default());
}

#[test]
fn store_directory() {
    let dir = Scratch::new("meta");
    conformance::meta_dir(&FsMetaDir::open(&dir.0).unwrap(), conformance::seed());
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn the_lock_is_exclusive_and_not_inherited() {
    let dir = Scratch::new("lock");
    let lock = StoreLock::acquire(&dir.0).unwrap().expect("free");
    assert!(StoreLock::acquire(&dir.0).unwrap().is_none(), "held");
    drop(lock);
    assert!(StoreLock::acquire(&dir.0).unwrap().is_some(), "free again");
}
