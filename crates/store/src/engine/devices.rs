//! Devices come and go while the store is open.

use std::sync::Arc;

use cenote_device::{Device, OpenedDevice};
use cenote_model::size::human;
use cenote_model::{
    DEVICES_WORD, DeviceId, DeviceSpec, DeviceState, Error, ErrorKind, Profile, Response, Result, StoreId,
};

use super::changes::Change;
use super::flush::{Wait, Waiter};
use super::{Engine, failed};
use crate::map::NO_DEVICE;
use crate::space::{Bitmap, DEVICES_MAX, DeviceSlot, RetiredQueue, STAMP_BYTES};
use crate::superblock::{Superblock, SuperblockDevice, capacity_max};
use crate::work::make_stamped;
use crate::{Outcome, Seams, SessionId};

/// How long after a start clients repeat what the engine before left unanswered.
const AGAIN_NS: u64 = 60_000_000_000;
/// Longest name of a device, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// What of a specification can be checked by looking at it.
pub(super) fn check_spec<'a>(spec: &DeviceSpec, mut others: impl Iterator<Item = &'a str>) -> Result<()> {
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

/// A device that was opened, as a slot with all its space free.
pub(super) fn slot_of(id: DeviceId, spec: &DeviceSpec, opened: &OpenedDevice, incarnation: u64) -> DeviceSlot {
    let device = &opened.device;
    let (unit, segment) = (device.unit_bytes().max(1), device.segment_bytes().max(1));
    slot_with(id, spec, Some(Arc::clone(device)), device.capacity_bytes(), (unit, segment), incarnation)
}

/// A slot with all its space free.
pub(crate) fn slot_with(
    id: DeviceId,
    spec: &DeviceSpec,
    device: Option<Arc<dyn Device>>,
    capacity: u64,
    (unit_bytes, segment_bytes): (u32, u64),
    incarnation: u64,
) -> DeviceSlot {
    let unit = u64::from(unit_bytes);
    let mut map = Bitmap::new(capacity / unit, (segment_bytes / unit).max(1));
    map.mark(0, STAMP_BYTES.div_ceil(unit));
    DeviceSlot {
        id,
        spec: spec.clone(),
        state: DeviceState::Online,
        removed: false,
        device,
        failure: String::new(),
        unit_bytes,
        segment_bytes,
        incarnation,
        map,
        retired: RetiredQueue::default(),
        reserved_bytes: 0,
        trouble: None,
        damaged_until_ns: None,
        unsynced: false,
        syncs: Arc::default(),
        failed_syncs: 0,
        copied_bytes: 0,
        replay_retired: None,
        speed: None,
        learner: None,
        profile: Profile::default(),
        packed_bytes: 0,
        unpacked_bytes: 0,
    }
}

/// Makes a device and writes its stamp.
pub(super) fn make_device(
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

impl Engine {
    /// True if the request may be one that an engine before this one carried out and could not answer any more. Device
    /// requests leave no outcome in the journal: for these, finding done what is asked for is as good as doing it.
    fn may_be_again(&self, session: SessionId) -> bool {
        session.0 < self.resumed_below
            && self.seams.clock.now_ns().saturating_sub(self.opened_ns) < AGAIN_NS
            && self.state.sessions.open.contains_key(&session)
    }

    pub(super) fn device_add(&mut self, session: SessionId, spec: &DeviceSpec) -> Result<Outcome> {
        if self.may_be_again(session)
            && let Some(slot) = self.state.space.present().find(|slot| slot.spec == *spec)
        {
            return Ok(Outcome::Ready(Response::Device(slot.id)));
        }
        let present = self.state.space.present().map(|slot| slot.spec.name.as_str());
        check_spec(spec, present.chain(self.changes.names()))?;
        if self.state.space.slots.len() + self.changes.names().count() >= DEVICES_MAX {
            return Err(Error::new(ErrorKind::LimitExceeded, format!("device `{}`", spec.name))
                .because(format!("a store has had at most {DEVICES_MAX} devices in its life"))
                .try_next("make a new store"));
        }
        let last = self.state.space.slots.iter().map(|slot| slot.id.0).max().unwrap_or(0);
        let id = DeviceId(last.max(self.device_id_burnt) + 1);
        let incarnation = self.seams.clock.unix_ms().wrapping_mul(1 << 16) | u64::from(id.0);
        self.device_id_burnt = id.0;
        self.forget_removed_at(spec);
        Ok(self.change(Change { ticket: None, id, spec: spec.clone(), incarnation: Some(incarnation) }))
    }

    /// Deletes what removed devices left at the place of a new one: an engine that died right after a removal did not.
    fn forget_removed_at(&mut self, spec: &DeviceSpec) {
        let is_at = |slot: &&DeviceSlot| slot.removed && (slot.spec.kind, &slot.spec.path) == (spec.kind, &spec.path);
        for slot in self.state.space.slots.iter().filter(is_at) {
            self.changes.push(Change { ticket: None, id: slot.id, spec: slot.spec.clone(), incarnation: None });
        }
    }

    /// Queues a change that the one who asks waits for.
    fn change(&mut self, change: Change) -> Outcome {
        let ticket = self.ticket();
        self.changes.push(Change { ticket: Some(ticket), ..change });
        Outcome::Wait(ticket)
    }

    pub(super) fn device_drain(&mut self, name: &str) -> Outcome {
        self.update_clock();
        let dev = match self.named(name) {
            Ok(dev) => dev,
            Err(error) => return failed(error),
        };
        let before = std::mem::replace(&mut self.state.space.get_mut(dev).state, DeviceState::Draining);
        if let Err((error, _)) = self.change_superblock(|engine| engine.state.space.get_mut(dev).state = before) {
            return failed(error);
        }
        // Clients write no more to what they lease of it, and keep space for files elsewhere.
        self.seams.control.word_raise(DEVICES_WORD);
        if self.is_drained(dev) {
            return Outcome::Ready(Response::Done);
        }
        let ticket = self.ticket();
        self.waiting.push(Waiter { ticket, what: Wait::Drained { dev }, response: Response::Done });
        Outcome::Wait(ticket)
    }

    pub(super) fn device_remove(&mut self, session: SessionId, name: &str) -> Result<Outcome> {
        let was_removed = self.state.space.slots.iter().any(|slot| slot.removed && slot.spec.name == name);
        let dev = match self.named(name) {
            Err(_) if was_removed && self.may_be_again(session) => return Ok(Outcome::Ready(Response::Done)),
            found => found?,
        };
        self.release_space();
        let busy = |why: String, next: &str| {
            Err(Error::new(ErrorKind::Busy, format!("device `{name}`")).because(why).try_next(next))
        };
        let slot = self.state.space.get(dev);
        if slot.used_bytes() > 0 {
            return busy(format!("{} bytes are still on it", slot.used_bytes()), "drain it first");
        }
        if self.state.space.present().count() == 1 {
            return busy("it is the store's only device".to_owned(), "add another device first");
        }
        if let Some(who) = self.who_leases(dev) {
            let next = if slot.state == DeviceState::Draining {
                "try again in a moment; if that does not help, stop who does not answer"
            } else {
                "drain it first: clients give such space back then"
            };
            return busy(format!("space of it is leased, or kept for files, by {who}"), next);
        }
        if slot.reserved_bytes > self.profiles.reserved_bytes(dev) || slot.retired.bytes() > 0 {
            return busy("readers may still look at it".to_owned(), "try again in a moment");
        }
        let (id, spec) = (slot.id, slot.spec.clone());
        // What says that all has left it must survive what takes it away.
        self.sync_log_now()?;
        self.state.space.get_mut(dev).removed = true;
        if let Err((error, taken_back)) =
            self.change_superblock(|engine| engine.state.space.get_mut(dev).removed = false)
        {
            if !taken_back {
                // The next opening may find it removed: nothing may be placed on it.
                self.state.space.get_mut(dev).state = DeviceState::Draining;
            }
            return Err(error);
        }
        self.state.space.get_mut(dev).device = None;
        Ok(self.change(Change { ticket: None, id, spec, incarnation: None }))
    }

    /// Whose space on a device is leased, in words.
    fn who_leases(&self, dev: u8) -> Option<String> {
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

    pub(super) fn named(&self, name: &str) -> Result<u8> {
        let found = self.state.space.slots.iter().position(|slot| !slot.removed && slot.spec.name == name);
        found.map(|slot| slot as u8).filter(|slot| *slot != NO_DEVICE).ok_or_else(|| {
            let names: Vec<_> = self.state.space.present().map(|slot| format!("`{}`", slot.spec.name)).collect();
            Error::new(ErrorKind::NotFound, format!("device `{name}`"))
                .try_next(format!("the store has {}", names.join(", ")))
        })
    }

    /// Writes the superblock. If that fails it may be on media all the same, so `undo` is done and it is written as it
    /// was; with the error comes whether that succeeded.
    pub(super) fn change_superblock(&mut self, undo: impl FnOnce(&mut Self)) -> std::result::Result<(), (Error, bool)> {
        let Err(error) = self.write_superblock() else { return Ok(()) };
        undo(self);
        Err((error, self.write_superblock().is_ok()))
    }

    pub(super) fn write_superblock(&self) -> Result<()> {
        let devices = self.state.space.slots.iter().map(SuperblockDevice::of).collect();
        let superblock =
            Superblock { id: self.id, writers: self.writers.clone(), readers: self.readers.clone(), devices };
        superblock.write(self.seams.meta.as_ref())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use cenote_device::Devices;
    use cenote_device::mem::MemDevices;
    use cenote_model::{DeviceKind, StoreId};

    use super::*;

    pub(crate) fn a_file() -> DeviceSpec {
        DeviceSpec {
            name: "file".into(),
            kind: DeviceKind::File,
            path: "file".into(),
            capacity_bytes: 1 << 20,
            watermark_high_permille: 900,
            watermark_low_permille: 700,
            options: cenote_model::TierOptions::default(),
        }
    }

    #[test]
    fn whole_units_of_a_device_are_within_it() {
        let spec = a_file();
        let opened = MemDevices::new(1 << 20).open(StoreId(1), DeviceId(1), &spec, true).unwrap();
        let slot = slot_of(DeviceId(1), &spec, &opened, 1);
        let (unit, end) = (u64::from(slot.unit_bytes), slot.map.units() * u64::from(slot.unit_bytes));
        assert!(slot.has_units(0, unit) && slot.has_units(0, end) && slot.has_units(end - unit, unit));
        for (offset, len) in [(0, 0), (1, unit), (0, 1), (end, unit), (0, end + unit), (u64::MAX - unit + 1, unit)] {
            assert!(!slot.has_units(offset, len), "{len} at {offset}");
        }
    }
}
