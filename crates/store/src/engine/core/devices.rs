//! Devices of the store: slots, specifications, and the superblock that names them.

use std::sync::Arc;

use cenote_device::{Device, OpenedDevice};
use cenote_model::size::human;
use cenote_model::{DEVICES_WORD, DeviceId, DeviceSpec, DeviceState, Error, ErrorKind, Response, Result, StoreId};

use super::{Core, Wait, Waiter};
use crate::engine::failed;
use crate::map::{DeviceIndex, NO_DEVICE};
use crate::space::{Bitmap, DeviceSlot, Pace, RetiredQueue, STAMP_BYTES, SlotSpace, Trust};
use crate::superblock::{Stamp, Superblock, SuperblockDevice, capacity_max};
use crate::{Outcome, Seams, SessionId};

/// Time after a start in which clients repeat requests that the previous engine left unanswered.
const AGAIN_NS: u64 = 60_000_000_000;
/// Longest name of a device, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Checks a specification by itself, and its name against the others.
pub fn check_spec<'a>(spec: &DeviceSpec, mut others: impl Iterator<Item = &'a str>) -> Result<()> {
    let invalid =
        |why: String| Err(Error::new(ErrorKind::InvalidInput, format!("device `{}`", spec.name)).because(why));
    if spec.name.is_empty() || spec.name.len() > NAME_BYTES_MAX {
        return invalid(format!("a name has 1 to {NAME_BYTES_MAX} bytes"));
    }
    if others.any(|other| other == spec.name) {
        return Err(Error::new(ErrorKind::Exists, format!("device `{}`", spec.name)).try_next("choose another name"));
    }
    let (low, high) = (spec.watermark_low_permille, spec.watermark_high_permille);
    if high == 0 || high > 1000 || low > high {
        return invalid(format!(
            "watermarks of {low}‰ and {high}‰: the low one must not be above the high one, nor that above 1000"
        ));
    }
    let most = capacity_max(spec.kind);
    if spec.capacity_bytes <= 2 * STAMP_BYTES || spec.capacity_bytes > most {
        let (capacity, most) = (spec.capacity_bytes, most >> 40);
        return invalid(format!("a capacity of {capacity} bytes: more than 8 KiB, up to {most} TiB"));
    }
    Ok(())
}

/// Returns a slot for an opened device, with all its space free.
pub fn slot_of(id: DeviceId, spec: &DeviceSpec, opened: &OpenedDevice, incarnation: u64) -> DeviceSlot {
    let device = &opened.device;
    let (unit, segment) = (device.unit_bytes().max(1), device.segment_bytes().max(1));
    slot_with(id, spec, Some(Arc::clone(device)), device.capacity_bytes(), (unit, segment), incarnation)
}

/// Returns a slot with all its space free.
pub fn slot_with(
    id: DeviceId,
    spec: &DeviceSpec,
    device: Option<Arc<dyn Device>>,
    capacity: u64,
    (unit_bytes, segment_bytes): (u32, u64),
    incarnation: u64,
) -> DeviceSlot {
    let unit = u64::from(unit_bytes);
    let stamp = STAMP_BYTES.min(capacity / unit * unit);
    let mut slot = DeviceSlot {
        id,
        spec: spec.clone(),
        state: DeviceState::Online,
        removed: false,
        device,
        failure: String::new(),
        incarnation,
        space: SlotSpace {
            unit_bytes,
            segment_bytes,
            withheld: vec![(0, stamp)],
            map: Bitmap::new(capacity / unit, (segment_bytes / unit).max(1)),
            retired: RetiredQueue::default(),
            replay_retired: None,
            reserved_bytes: 0,
            copied_bytes: 0,
            packed_bytes: 0,
            unpacked_bytes: 0,
            looked_in_vain: 0,
        },
        trust: Trust::default(),
        pace: Pace::default(),
    };
    slot.clear_space();
    slot
}

/// Returns the slot of a tenant for a device that the landlord has opened.
pub fn slot_of_tenant(slot: &DeviceSlot) -> DeviceSlot {
    let units = (slot.space.unit_bytes, slot.space.segment_bytes);
    let capacity = slot.space.map.units() * u64::from(slot.space.unit_bytes);
    let mine = slot_with(slot.id, &slot.spec, slot.device.clone(), capacity, units, slot.incarnation);
    // A failed sync may have dropped bytes of all of them, so all learn of it.
    let trust = Trust { syncs: Arc::clone(&slot.trust.syncs), ..Trust::default() };
    DeviceSlot { state: slot.state, removed: slot.removed, failure: slot.failure.clone(), trust, ..mine }
}

/// Creates a device, writes its stamp and returns its slot.
pub fn make_device(
    seams: &Seams,
    store: StoreId,
    id: DeviceId,
    spec: &DeviceSpec,
    incarnation: u64,
) -> Result<DeviceSlot> {
    let device = make_stamped(seams.devices.as_ref(), store, id, spec, incarnation)?;
    let units = (device.unit_bytes().max(1), device.segment_bytes().max(1));
    let capacity = device.capacity_bytes();
    Ok(slot_with(id, spec, Some(device), capacity, units, incarnation))
}

/// Creates a device and writes its stamp.
pub fn make_stamped(
    devices: &dyn cenote_device::Devices,
    store: StoreId,
    id: DeviceId,
    spec: &DeviceSpec,
    incarnation: u64,
) -> Result<Arc<dyn Device>> {
    let device = devices.open(store, id, spec, true)?.device;
    let stamp = Stamp { store, device: id, incarnation };
    device.write_at(0, &stamp.encode()).and_then(|()| device.sync())?;
    Ok(device)
}

impl Core {
    /// Returns true if a previous engine may have carried out this request without answering it. The journal holds no
    /// outcomes of device requests, so finding the requested state counts as success.
    pub fn may_be_again(&self, session: SessionId) -> bool {
        session.0 < self.store.resumed_below
            && self.seams.clock.now_ns().saturating_sub(self.store.opened_ns) < AGAIN_NS
            && self.state.sessions.open.contains_key(&session)
    }

    /// Starts to empty a device; the response waits until no extent is on it. Fails if the device does not exist or
    /// the superblock cannot be written.
    pub fn device_drain(&mut self, name: &str) -> Outcome {
        self.update_clock();
        let dev = match self.named(name) {
            Ok(dev) => dev,
            Err(error) => return failed(error),
        };
        let before = std::mem::replace(&mut self.state.space.get_mut(dev).state, DeviceState::Draining);
        if let Err((error, _)) = self.change_superblock(|engine| engine.state.space.get_mut(dev).state = before) {
            return failed(error);
        }
        // Clients stop writing to their leases on it, and reserve space for files elsewhere.
        self.seams.control.word_raise(DEVICES_WORD);
        if self.is_drained(dev) {
            return Outcome::Ready(Response::Done);
        }
        let ticket = self.ticket();
        self.answers.waiting.push(Waiter { ticket, what: Wait::Drained { dev }, response: Response::Done });
        Outcome::Wait(ticket)
    }

    /// Returns the sessions that lease space of a device, as text.
    pub fn who_leases(&self, dev: DeviceIndex) -> Option<String> {
        let mut who = Vec::new();
        for session in self.state.sessions.open.values() {
            let bytes: u64 = session.leases.range((dev, 0)..=(dev, u64::MAX)).map(|(_, len)| len).sum();
            if bytes > 0 && session.is_own() {
                who.push(format!("the store itself ({})", human(bytes)));
            } else if bytes > 0 {
                who.push(format!("process {} ({})", session.info.pid, human(bytes)));
            }
        }
        (!who.is_empty()).then(|| who.join(", "))
    }

    /// Returns the slot of a device. Fails if no device has this name.
    pub fn named(&self, name: &str) -> Result<DeviceIndex> {
        let found = self.state.space.slots.iter().position(|slot| !slot.removed && slot.spec.name == name);
        found.map(|slot| slot as DeviceIndex).filter(|slot| *slot != NO_DEVICE).ok_or_else(|| {
            let names: Vec<_> = self.state.space.present().map(|slot| format!("`{}`", slot.spec.name)).collect();
            Error::new(ErrorKind::NotFound, format!("device `{name}`"))
                .try_next(format!("the store has {}", names.join(", ")))
        })
    }

    /// Writes the superblock. A failed write may still have reached media, so this runs `undo` and writes the
    /// superblock again; the error comes with whether that second write succeeded.
    pub fn change_superblock(&mut self, undo: impl FnOnce(&mut Self)) -> std::result::Result<(), (Error, bool)> {
        let Err(error) = self.write_superblock() else { return Ok(()) };
        undo(self);
        Err((error, self.write_superblock().is_ok()))
    }

    /// Writes the superblock from the current device slots. A tenant does not: it is the landlord's.
    pub fn write_superblock(&self) -> Result<()> {
        if !self.store.home.is_landlord() {
            return Ok(());
        }
        let devices = self.state.space.slots.iter().map(SuperblockDevice::of).collect();
        let superblock = Superblock {
            id: self.store.id,
            writers: self.store.writers.clone(),
            readers: self.store.readers.clone(),
            devices,
            homes: self.store.homes.clone(),
            home: self.store.home.of_cluster,
        };
        superblock.write(self.seams.meta.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use cenote_device::Devices;
    use cenote_device::mem::MemDevices;
    use cenote_model::StoreId;

    use super::*;
    use crate::engine::filled::a_file;

    #[test]
    fn whole_units_of_a_device_are_within_it() {
        let spec = a_file();
        let opened = MemDevices::new(1 << 20).open(StoreId(1), DeviceId(1), &spec, true).unwrap();
        let slot = slot_of(DeviceId(1), &spec, &opened, 1);
        let (unit, end) = (u64::from(slot.space.unit_bytes), slot.space.map.units() * u64::from(slot.space.unit_bytes));
        assert!(slot.has_units(0, unit) && slot.has_units(0, end) && slot.has_units(end - unit, unit));
        for (offset, len) in [(0, 0), (1, unit), (0, 1), (end, unit), (0, end + unit), (u64::MAX - unit + 1, unit)] {
            assert!(!slot.has_units(offset, len), "{len} at {offset}");
        }
    }
}
