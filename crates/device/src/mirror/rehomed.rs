//! The devices of a home that lies on another node than the one that made it.

use std::path::PathBuf;

use cenote_model::{DeviceId, DeviceKind, DeviceSpec, Result, StoreId};

use crate::{Devices, OpenedDevice};

/// Opens devices of a home under paths of this node: `tier-ID` in one directory, whatever path the home knows.
pub struct Rehomed<D> {
    inner: D,
    dir: PathBuf,
}

impl<D: Devices> Rehomed<D> {
    /// Opens through `inner`, whose shared memory must not be that of a home that was made here; other tiers lie in `dir`.
    pub fn new(inner: D, dir: impl Into<PathBuf>) -> Self {
        Self { inner, dir: dir.into() }
    }
    fn spec(&self, id: DeviceId, spec: &DeviceSpec) -> DeviceSpec {
        let mut spec = spec.clone();
        if spec.kind != DeviceKind::SharedMemory && !spec.kind.is_object() {
            spec.path = self.dir.join(format!("tier-{}", id.0));
        }
        spec
    }
}

impl<D: Devices> Devices for Rehomed<D> {
    fn open(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice> {
        self.inner.open(store, id, &self.spec(id, spec), create)
    }
    fn remove(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()> {
        self.inner.remove(store, id, &self.spec(id, spec))
    }
}
