//! Requests that add and remove devices while the store is open.

use cenote_model::{DeviceId, DeviceSpec, DeviceState, Error, ErrorKind, Response, Result};

use super::Devices;
use super::changes::Change;
use crate::engine::core::{Core, check_spec};
use crate::space::{DEVICES_MAX, DeviceSlot};
use crate::{Outcome, SessionId};

impl Devices {
    /// Makes a device and adds it to the store; the response waits for the job. Fails if the specification is invalid,
    /// the name is taken, or the store has had too many devices.
    pub fn device_add(&mut self, core: &mut Core, session: SessionId, spec: &DeviceSpec) -> Result<Outcome> {
        if core.may_be_again(session)
            && let Some(slot) = core.state.space.present().find(|slot| slot.spec == *spec)
        {
            return Ok(Outcome::Ready(Response::Device(slot.id)));
        }
        let present = core.state.space.present().map(|slot| slot.spec.name.as_str());
        check_spec(spec, present.chain(self.changes.names()))?;
        if core.state.space.slots.len() + self.changes.names().count() >= DEVICES_MAX {
            return Err(Error::new(ErrorKind::LimitExceeded, format!("device `{}`", spec.name))
                .because(format!("a store has had at most {DEVICES_MAX} devices in its life"))
                .try_next("make a new store"));
        }
        let last = core.state.space.slots.iter().map(|slot| slot.id.0).max().unwrap_or(0);
        let id = DeviceId(last.max(self.id_burnt) + 1);
        let incarnation = core.seams.clock.unix_ms().wrapping_mul(1 << 16) | u64::from(id.0);
        self.id_burnt = id.0;
        self.forget_removed_at(core, spec);
        Ok(self.change(core, Change { ticket: None, id, spec: spec.clone(), incarnation: Some(incarnation) }))
    }

    /// Queues the deletion of what removed devices left at the place of a new one: an engine that died right after a
    /// removal did not delete it.
    fn forget_removed_at(&mut self, core: &mut Core, spec: &DeviceSpec) {
        let is_at = |slot: &&DeviceSlot| slot.removed && (slot.spec.kind, &slot.spec.path) == (spec.kind, &spec.path);
        for slot in core.state.space.slots.iter().filter(is_at) {
            self.changes.push(Change { ticket: None, id: slot.id, spec: slot.spec.clone(), incarnation: None });
        }
    }

    /// Queues a change whose response waits.
    fn change(&mut self, core: &mut Core, change: Change) -> Outcome {
        let ticket = core.ticket();
        self.changes.push(Change { ticket: Some(ticket), ..change });
        Outcome::Wait(ticket)
    }

    /// Removes a device that holds nothing. Calls `sync_journal` first, because the records that emptied the device
    /// must be on media before it goes. Fails if the device does not exist, or anything is on it or leased.
    pub fn device_remove(
        &mut self,
        core: &mut Core,
        session: SessionId,
        name: &str,
        sync_journal: impl FnOnce(&mut Core) -> Result<()>,
    ) -> Result<Outcome> {
        let was_removed = core.state.space.slots.iter().any(|slot| slot.removed && slot.spec.name == name);
        let dev = match core.named(name) {
            Err(_) if was_removed && core.may_be_again(session) => return Ok(Outcome::Ready(Response::Done)),
            found => found?,
        };
        core.release_space();
        let busy = |why: String, next: &str| {
            Err(Error::new(ErrorKind::Busy, format!("device `{name}`")).because(why).try_next(next))
        };
        let slot = core.state.space.get(dev);
        if slot.used_bytes() > 0 {
            return busy(format!("{} bytes are still on it", slot.used_bytes()), "drain it first");
        }
        if core.state.space.present().count() == 1 {
            return busy("it is the store's only device".to_owned(), "add another device first");
        }
        if let Some(who) = core.who_leases(dev) {
            let next = if slot.state == DeviceState::Draining {
                "try again in a moment; if that does not help, stop who does not answer"
            } else {
                "drain it first: clients give such space back then"
            };
            return busy(format!("space of it is leased, or kept for files, by {who}"), next);
        }
        if slot.space.reserved_bytes > self.profiles.reserved_bytes(dev) || slot.space.retired.bytes() > 0 {
            return busy("readers may still look at it".to_owned(), "try again in a moment");
        }
        let (id, spec) = (slot.id, slot.spec.clone());
        sync_journal(core)?;
        core.state.space.get_mut(dev).removed = true;
        if let Err((error, taken_back)) =
            core.change_superblock(|engine| engine.state.space.get_mut(dev).removed = false)
        {
            if !taken_back {
                // The next opening may find it removed: nothing may be placed on it.
                core.state.space.get_mut(dev).state = DeviceState::Draining;
            }
            return Err(error);
        }
        core.state.space.get_mut(dev).device = None;
        Ok(self.change(core, Change { ticket: None, id, spec, incarnation: None }))
    }
}
