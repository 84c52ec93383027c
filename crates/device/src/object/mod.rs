//! A tier in a bucket of an object service (S3, OpenStack Swift, Ceph RADOS), or on several places with a layout: a log
//! of immutable packs behind the [`crate::Device`] interface.
//!
//! Writes gather in memory until they fill a *pack* (a log segment) or somebody syncs; a pack goes to the service as
//! one object and never changes. A map in memory names the pack of each byte of the device; opening the device
//! rebuilds it from the packs' tables. Bytes that were overwritten or discarded are garbage in old packs, which
//! [`tidy`] collects.
//!
//! What this room must not know: HTTP, librados, credentials and layouts ([`remote`], [`rados`] and [`raid`] do), and what the bytes mean.

mod catalogue;
mod claim;
mod device;
pub mod fake;
mod map;
mod opening;
mod pack;
mod place;
pub mod rados;
pub mod raid;
mod read;
pub mod remote;
pub mod service;
mod tidy;

use std::sync::Arc;

use cenote_model::{DeviceId, DeviceKind, DeviceSpec, Error, ErrorKind, Result, StoreId, size};

pub use claim::ClaimNotes;
pub use device::{ObjectDevice, Packing, Usage};
pub use remote::Remote;
pub use service::{ObjectService, Patience, Patient};

use crate::{Devices, OpenedDevice};
use opening::{create, open, remove};
use place::BucketPath;

/// Permitted pack sizes.
fn pack_bytes(kind: DeviceKind) -> std::ops::RangeInclusive<u64> {
    64 << 10..=if kind == DeviceKind::Rados { rados::PACK_BYTES_MAX } else { 1 << 30 }
}

/// Opens devices on services that a function creates. For real services use [`crate::SystemDevices`].
pub struct ObjectDevices<F> {
    service: F,
    background: bool,
    patience: Patience,
    notes: Option<ClaimNotes>,
}

impl<F> ObjectDevices<F> {
    /// `service` creates the service of a tier. Without `background` the calling thread makes each request itself.
    pub fn new(service: F, background: bool, patience: Patience) -> Self {
        Self { service, background, patience, notes: None }
    }
    /// Claims tiers for the directory of their store, so that no copy of it writes there as well.
    #[must_use]
    pub fn noting(self, notes: Option<ClaimNotes>) -> Self {
        Self { notes, ..self }
    }
}

impl<S, F> ObjectDevices<F>
where
    S: ObjectService + 'static,
    F: Fn(&DeviceSpec) -> Result<S> + Send + Sync,
{
    /// Like [`Devices::open`], but returns the concrete type.
    pub fn open_one(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, make: bool) -> Result<ObjectDevice> {
        let packing = packing_of(spec, self.background)?;
        let place = place_of(store, id, spec)?;
        let service = Arc::new((self.service)(spec)?);
        let asking = Patient::new(Arc::clone(&service), self.patience.while_opening());
        let act = if make { create } else { open };
        service.hasten(true);
        let (owner, state, held) = act(&asking, &place, (store, id, spec), self.notes.as_ref())?;
        service.hasten(false);
        let service = Box::new(Patient::new(service, self.patience));
        Ok(ObjectDevice::new(service, place, owner, packing, (state, held)))
    }
}

impl<S, F> Devices for ObjectDevices<F>
where
    S: ObjectService + 'static,
    F: Fn(&DeviceSpec) -> Result<S> + Send + Sync,
{
    fn open(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, make: bool) -> Result<OpenedDevice> {
        let device = self.open_one(store, id, spec, make)?;
        Ok(OpenedDevice { device: Arc::new(device), survived: !make })
    }
    fn remove(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()> {
        let place = place_of(store, id, spec)?;
        let service = Patient::new((self.service)(spec)?, self.patience.while_opening());
        remove(&service, &place, (store, id), self.notes.as_ref())
    }
}

/// Devices on the real services, for a store that belongs to `owner`.
pub(crate) fn real(kind: DeviceKind, owner: Option<u32>, notes: Option<ClaimNotes>) -> Box<dyn Devices> {
    if kind == DeviceKind::Rados {
        let service = move |spec: &DeviceSpec| rados::RadosService::of_owner(spec, owner);
        return Box::new(ObjectDevices::new(service, true, Patience::default()).noting(notes));
    }
    let service = move |spec: &DeviceSpec| Remote::of_owner(spec, remote::Timeouts::default(), owner);
    Box::new(ObjectDevices::new(service, true, Patience::default()).noting(notes))
}

fn place_of(store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<BucketPath> {
    let credentials = match spec.options.get("credentials") {
        _ if spec.kind == DeviceKind::Rados => rados::access::key_words(spec),
        credentials => credentials.unwrap_or("the environment").to_owned(),
    };
    BucketPath::of(store, id, spec, credentials)
}

fn packing_of(spec: &DeviceSpec, background: bool) -> Result<Packing> {
    let preset = Packing { background, ..Packing::default() };
    let Some(text) = spec.options.get("pack") else { return Ok(preset) };
    let range = pack_bytes(spec.kind);
    let (least, most) = (size::human(*range.start()), size::human(*range.end()));
    let refuse = |why: String| {
        Err(Error::new(ErrorKind::InvalidInput, format!("tier `{}`", spec.name))
            .because(format!("pack={text}: {why}"))
            .try_next(format!("choose a size from {least} to {most}, such as 16MiB")))
    };
    match size::parse(text) {
        Ok(bytes) if range.contains(&bytes) => Ok(Packing { pack_bytes: bytes as u32, ..preset }),
        Ok(_) => refuse(format!("packs have {least} to {most}")),
        Err(why) => refuse(why),
    }
}
