//! Devices that failed of late. They take no new bytes while others do: a copy that fails there is made elsewhere,
//! without repeated attempts. Copies on devices that have shown bad bytes are verified before they are trusted.

use std::sync::Arc;

use cenote_model::{DeviceId, Error, ErrorKind};

use super::Core;
use crate::copying::Unread;
use crate::map::DeviceIndex;
use crate::space::DeviceSlot;
use crate::superblock::Superblock;

/// Time for which a device is avoided after a failure.
const AVOIDED_NS: u64 = 30_000_000_000;
/// Time for which copies are doubted after bad bytes were found: a day, within which the scrub reads all of most
/// stores.
const DOUBTED_NS: u64 = 24 * 3600 * 1_000_000_000;

/// A recent failure of a device.
pub struct Trouble {
    /// The cause, as text.
    pub why: String,
    until_ns: u64,
}

impl Core {
    /// Notes a failure of a device.
    pub fn note_trouble(&mut self, dev: DeviceIndex, error: &Error) {
        let why = if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() };
        let until_ns = self.state.now.ns.saturating_add(AVOIDED_NS);
        self.state.space.get_mut(dev).trust.trouble = Some(Trouble { why, until_ns });
    }

    /// Notes damage of a device: bytes read differ from those written, and there may be more.
    pub fn note_damage(&mut self, dev: DeviceIndex) {
        let until_ns = self.state.now.ns.saturating_add(DOUBTED_NS);
        let was = self.state.space.get_mut(dev).trust.damaged_until_ns.replace(until_ns);
        self.state.space.any_damaged = true;
        if was.is_none() {
            self.remember_damage();
        }
    }

    /// Writes the superblock, which tells the next opening the devices that have shown damage. If the write fails, the
    /// next change of devices writes it; until then the note holds for this opening alone.
    pub fn remember_damage(&self) {
        let _ = self.write_superblock();
    }

    /// Restores from the superblock which devices had shown damage before the store was closed.
    pub fn recall_damage(&mut self, superblock: &Superblock) {
        self.update_clock();
        let until_ns = self.state.now.ns.saturating_add(DOUBTED_NS);
        for (slot, device) in self.state.space.slots.iter_mut().zip(&superblock.devices) {
            slot.trust.damaged_until_ns = device.is_damaged.then_some(until_ns);
            self.state.space.any_damaged |= device.is_damaged;
        }
    }

    /// Notes damage (`is_damage`) of a device, or bytes that cannot be read.
    pub fn note_unread(&mut self, dev: DeviceIndex, is_damage: bool, error: &Error) {
        if is_damage { self.note_damage(dev) } else { self.note_trouble(dev, error) }
    }

    /// Returns the error for an operation that needs a tier that is not open.
    pub fn not_open(&self, dev: DeviceIndex) -> Error {
        Error::new(ErrorKind::Io, format!("tier `{}`", self.state.space.get(dev).spec.name))
            .because("it is not open")
            .try_next("bring it back (`cenote tiers` says what is wrong with it), and try again")
    }

    /// Returns the error for bytes that could not be read, by tier: devices know paths and addresses, people know
    /// tiers. Only `mending` helps damaged bytes; unreachable bytes are still there.
    pub fn not_read(&mut self, subject: String, unread: &Unread, mending: &str) -> Error {
        let Unread { device, error } = unread;
        let is_it = |slot: &DeviceSlot| {
            let both = slot.device.as_ref().zip(device.as_ref());
            both.is_some_and(|(one, other)| Arc::ptr_eq(one, other))
        };
        let what = if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() };
        let is_damaged = error.kind() == ErrorKind::Corrupt;
        let at = self.state.space.slots.iter().position(is_it).map(|at| at as DeviceIndex);
        if let Some(dev) = at {
            self.note_unread(dev, is_damaged, error);
        }
        let cause = match at {
            Some(dev) => format!("on tier `{}`: {what}", self.state.space.get(dev).spec.name),
            None => what,
        };
        let next = match error.next_step() {
            _ if is_damaged => mending,
            "" => "see `cenote tiers` for the tier that fails, and try again when it is back",
            next => next,
        };
        Error::new(error.kind(), subject).because(cause).try_next(next)
    }

    /// Forgets failures after their time, so that the device is tried again.
    pub fn forget_trouble(&mut self) {
        let now = self.state.now.ns;
        for slot in &mut self.state.space.slots {
            // A clock that went back must not exclude a device for ever.
            slot.trust.trouble.take_if(|trouble| !(now..=now.saturating_add(AVOIDED_NS)).contains(&trouble.until_ns));
        }
        if self.state.space.any_damaged {
            let (mut any, mut forgot) = (false, false);
            for slot in &mut self.state.space.slots {
                let over = |until: &mut u64| !(now..=now.saturating_add(DOUBTED_NS)).contains(until);
                forgot |= slot.trust.damaged_until_ns.take_if(over).is_some();
                any |= slot.trust.damaged_until_ns.is_some();
            }
            self.state.space.any_damaged = any;
            if forgot {
                self.remember_damage();
            }
        }
    }

    /// Returns the devices to avoid if there are others.
    pub fn troubled(&self) -> Vec<DeviceId> {
        self.state.space.present().filter(|slot| slot.trust.trouble.is_some()).map(|slot| slot.id).collect()
    }
}
