//! A tier in a bucket of an object service (S3, OpenStack Swift): a log of immutable packs behind the interface of a
//! device.
//!
//! Writes gather in memory until they fill a *pack* or somebody syncs; a pack goes to the service as one object and
//! is never changed. A map in memory says in which pack each byte of the device is; it is made anew from the packs'
//! tables when the device is opened. Bytes written or discarded since leave garbage in old packs, which is collected
//! ([`tidy`]).
//!
//! What this room must not know: HTTP and credentials ([`remote`] does), and what the bytes mean.

mod catalogue;
mod claim;
mod device;
pub mod fake;
mod map;
mod opening;
mod pack;
mod place;
mod read;
pub mod remote;
pub mod service;
mod tidy;

use std::sync::Arc;

use cenote_model::{DeviceId, DeviceSpec, Error, ErrorKind, Result, StoreId, size};

pub use claim::ClaimNotes;
pub use device::{ObjectDevice, Packing, Usage};
pub use remote::Remote;
pub use service::{ObjectService, Patience, Patient};

use crate::{Devices, OpenedDevice};
use opening::{create, open, remove};
use place::Place;

/// Sizes that a pack may have.
const PACK_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;

/// Opens devices on services that a function makes. For the real ones there is [`crate::SystemDevices`].
pub struct ObjectDevices<F> {
    service: F,
    background: bool,
    patience: Patience,
    notes: Option<ClaimNotes>,
}

impl<F> ObjectDevices<F> {
    /// `service` makes the service of a tier. Without `background` every request is made by who needs it.
    pub fn new(service: F, background: bool, patience: Patience) -> Self {
        Self { service, background, patience, notes: None }
    }
    /// Tiers are claimed for the directory of their store, so that no copy of it writes there as well.
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
    /// As [`Devices::open`], with the device as what it is.
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

/// The real services, for a store that belongs to `owner`.
pub(crate) fn real(owner: Option<u32>, notes: Option<ClaimNotes>) -> impl Devices {
    let service = move |spec: &DeviceSpec| Remote::of_owner(spec, remote::Timeouts::default(), owner);
    ObjectDevices::new(service, true, Patience::default()).noting(notes)
}

fn place_of(store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<Place> {
    let credentials = spec.options.get("credentials").map_or_else(|| "the environment".to_owned(), str::to_owned);
    Place::of(store, id, spec, credentials)
}

fn packing_of(spec: &DeviceSpec, background: bool) -> Result<Packing> {
    let preset = Packing { background, ..Packing::default() };
    let Some(text) = spec.options.get("pack") else { return Ok(preset) };
    let refuse = |why: String| {
        Err(Error::new(ErrorKind::InvalidInput, format!("tier `{}`", spec.name))
            .because(format!("pack={text}: {why}"))
            .try_next("choose a size from 64KiB to 1GiB, such as 16MiB"))
    };
    match size::parse(text) {
        Ok(bytes) if PACK_BYTES.contains(&bytes) => Ok(Packing { pack_bytes: bytes as u32, ..preset }),
        Ok(_) => refuse("packs have 64 KiB to 1 GiB".to_owned()),
        Err(why) => refuse(why),
    }
}
