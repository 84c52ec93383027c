//! Devices that failed of late are no place for new bytes while others take them: a copy that cannot be made there is made
//! elsewhere, and not tried there again and again. Of those that have shown bad bytes, copies are not trusted unread.

use std::sync::Arc;

use cenote_model::{DeviceId, Error, ErrorKind};

use super::Core;
use crate::copying::Unread;
use crate::space::DeviceSlot;
use crate::superblock::Superblock;

/// For so long after a failure.
const AVOIDED_NS: u64 = 30_000_000_000;
/// For so long after bad bytes were found: a day, within which the scrub reads all of most stores.
const DOUBTED_NS: u64 = 24 * 3600 * 1_000_000_000;

/// What a device did of late.
pub struct Trouble {
    /// For a person.
    pub why: String,
    until_ns: u64,
}

impl Core {
    /// A device failed.
    pub fn note_trouble(&mut self, dev: u8, error: &Error) {
        let why = if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() };
        let until_ns = self.state.now.ns.saturating_add(AVOIDED_NS);
        self.state.space.get_mut(dev).trust.trouble = Some(Trouble { why, until_ns });
    }

    /// Bytes of a device were read and are not those that were written there: there may be more.
    pub fn note_damage(&mut self, dev: u8) {
        let until_ns = self.state.now.ns.saturating_add(DOUBTED_NS);
        let was = self.state.space.get_mut(dev).trust.damaged_until_ns.replace(until_ns);
        self.state.space.any_damaged = true;
        if was.is_none() {
            self.remember_damage();
        }
    }

    /// The superblock says which devices have shown damage, for the next opening. One that cannot be written now is written
    /// with the next change of devices; until then the note holds for this opening alone.
    pub fn remember_damage(&self) {
        let _ = self.write_superblock();
    }

    /// What the superblock says of devices that had shown damage before the store was closed.
    pub fn recall_damage(&mut self, superblock: &Superblock) {
        self.update_clock();
        let until_ns = self.state.now.ns.saturating_add(DOUBTED_NS);
        for (slot, device) in self.state.space.slots.iter_mut().zip(&superblock.devices) {
            slot.trust.damaged_until_ns = device.is_damaged.then_some(until_ns);
            self.state.space.any_damaged |= device.is_damaged;
        }
    }

    /// Bytes of a device were read and are not those that were written there (`is_damage`), or cannot be read.
    pub fn note_unread(&mut self, dev: u8, is_damage: bool, error: &Error) {
        if is_damage { self.note_damage(dev) } else { self.note_trouble(dev, error) }
    }

    /// What is needed of a tier that is not open cannot be done.
    pub fn not_open(&self, dev: u8) -> Error {
        Error::new(ErrorKind::Io, format!("tier `{}`", self.state.space.get(dev).spec.name))
            .because("it is not open")
            .try_next("bring it back (`cenote tiers` says what is wrong with it), and try again")
    }

    /// Bytes could not be read, for a person: devices know paths and addresses, people know tiers. What is damaged is helped
    /// by `mending` alone; what cannot be reached now is still there.
    pub fn not_read(&mut self, subject: String, unread: &Unread, mending: &str) -> Error {
        let Unread { device, error } = unread;
        let is_it = |slot: &DeviceSlot| {
            let both = slot.device.as_ref().zip(device.as_ref());
            both.is_some_and(|(one, other)| Arc::ptr_eq(one, other))
        };
        let what = if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() };
        let is_damaged = error.kind() == ErrorKind::Corrupt;
        let at = self.state.space.slots.iter().position(is_it).map(|at| at as u8);
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

    /// What lies long enough behind is forgotten: the device is given another try.
    pub fn forget_trouble(&mut self) {
        let now = self.state.now.ns;
        for slot in &mut self.state.space.slots {
            // A clock that went back must not keep a device out for ever.
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

    /// Devices to be avoided if there are others.
    pub fn troubled(&self) -> Vec<DeviceId> {
        self.state.space.present().filter(|slot| slot.trust.trouble.is_some()).map(|slot| slot.id).collect()
    }
}
