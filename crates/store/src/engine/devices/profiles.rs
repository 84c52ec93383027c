//! Speed of the devices: measured by the engine's owner in space that the engine grants, and learned from the engine's
//! copies.
//!
//! The engine itself takes no time except what its clock says of jobs. [`Engine::measure_next`] gives out a
//! measurement, and [`Engine::measured`] takes it back. Its space is reserved meanwhile, which is not in the journal:
//! an engine that dies leaves nothing behind.

use std::collections::BTreeSet;
use std::sync::Arc;

use cenote_device::measure::{Probe, measure};
use cenote_device::{Clock, Device};
use cenote_model::{
    ContainerId, DeviceId, DeviceKind, DeviceState, Error, ErrorKind, Learner, Profile, Response, Result, Seen, Speed,
};

use super::Devices;
use crate::engine::core::{Core, Purpose};
use crate::engine::failed;
use crate::habits::{HABIT_BYTES_MAX, HABITS, Habit, Habits, PROGRAM_BYTES_MAX};
use crate::map::DeviceIndex;
use crate::profile::{DeviceProfile, PROFILE, decode, encode};
use crate::space::DeviceSlot;
use crate::syncs::Syncs;
use crate::{Outcome, Ticket};

/// Largest and smallest range to measure in.
const RANGE_BYTES_MAX: u64 = 32 << 20;
const RANGE_BYTES_MIN: u64 = 64 << 10;
/// Longest measurement, whatever a request says.
const MEASURE_MS_MAX: u32 = 10_000;
/// A measurement takes at most one part in this many of a device's free space: the store may need the rest.
const FREE_SHARE: u64 = 4;

/// State of measurements.
#[derive(Default)]
pub struct Profiles {
    /// The requests that wait, their devices, and how long each is to be measured.
    asked: Vec<(Ticket, DeviceId, u32)>,
    /// The range being measured: device slot, offset, bytes.
    running: Option<(DeviceIndex, u64, u64)>,
    /// Devices not to be measured again unless a request asks: measuring failed, or found no room.
    given_up: BTreeSet<DeviceId>,
    /// Something was learned that is not in the file.
    is_changed: bool,
}

impl Profiles {
    /// Bytes of a device that are reserved for measuring it.
    pub fn reserved_bytes(&self, dev: DeviceIndex) -> u64 {
        self.running.filter(|(measured, ..)| *measured == dev).map_or(0, |(_, _, bytes)| bytes)
    }
    /// Returns true if a device is to be measured without a request: once. Measuring a service would leave objects in
    /// it, and may cost money.
    fn wants(&self, slot: &DeviceSlot) -> bool {
        slot.pace.profile.points.is_empty() && slot.spec.kind.is_shareable() && !self.given_up.contains(&slot.id)
    }
}

/// A device slot, the device, and a range of it: begin and bytes.
type Range = (DeviceIndex, Arc<dyn Device>, (u64, u64));

/// A device to be measured, with space for it.
pub struct Measurement {
    device: Arc<dyn Device>,
    kind: DeviceKind,
    id: DeviceId,
    range: (u64, u64),
    syncs: Arc<Syncs>,
    clock: Arc<dyn Clock>,
    /// How long it is to be measured, if a request waits for that.
    pub asked_ms: Option<u32>,
}

impl Measurement {
    /// The device.
    pub fn device(&self) -> DeviceId {
        self.id
    }
    /// Measures, without the engine. `None` if `stop` said so, or the space is too small for a result.
    pub fn run(&self, budget_ns: u64, stop: &(dyn Fn() -> bool + Sync)) -> Result<Option<Profile>> {
        measure(&Probe {
            device: self.device.as_ref(),
            kind: self.kind,
            offset: self.range.0,
            len: self.range.1,
            budget_ns,
            clock: self.clock.as_ref(),
            sync: &|| self.syncs.sync(self.device.as_ref()),
            stop,
        })
    }
}

impl Devices {
    /// Returns a device to be measured now, if there is one: one that a request names, or with `idle` one that was
    /// never measured. It comes back through [`Engine::measured`]; until then there is no other.
    pub fn measure_next(&mut self, core: &mut Core, idle: bool) -> Option<Measurement> {
        if self.profiles.running.is_some() {
            return None;
        }
        while let Some((_, id, ms)) = self.profiles.asked.first().copied() {
            if let Some(measurement) = self.measurement(core, id, Some(ms)) {
                return Some(measurement);
            }
            let dev = core.state.space.slot_of(id);
            let name = dev.map_or_else(|| id.to_string(), |dev| core.state.space.get(dev).spec.name.clone());
            let why = Error::new(ErrorKind::Full, format!("device `{name}`"))
                .because("it is not online, or has too little free space to measure in")
                .try_next("make some room on it, and ask again");
            self.answer_asked(core, id, &Err(why));
        }
        if !idle {
            return None;
        }
        let new = core.state.space.present().filter(|slot| self.profiles.wants(slot));
        let ids: Vec<DeviceId> = new.map(|slot| slot.id).collect();
        ids.into_iter().find_map(|id| self.measurement(core, id, None))
    }

    /// Returns true if [`Engine::measure_next`] would return something.
    pub fn is_measuring_due(&self, core: &Core, idle: bool) -> bool {
        let new = || core.state.space.present().any(|slot| self.profiles.wants(slot));
        self.profiles.running.is_none() && (!self.profiles.asked.is_empty() || idle && new())
    }

    fn measurement(&mut self, core: &mut Core, id: DeviceId, asked_ms: Option<u32>) -> Option<Measurement> {
        let Some((dev, device, range)) = take_range(core, id) else {
            self.profiles.given_up.insert(id);
            return None;
        };
        self.profiles.running = Some((dev, range.0, range.1));
        let slot = core.state.space.get(dev);
        let (kind, syncs, clock) = (slot.spec.kind, Arc::clone(&slot.trust.syncs), Arc::clone(&core.seams.clock));
        Some(Measurement { device, kind, id, range, syncs, clock, asked_ms })
    }

    /// Takes a measurement back: frees its space, keeps the result and answers those who asked.
    pub fn measured(&mut self, core: &mut Core, measurement: &Measurement, result: Result<Option<Profile>>) {
        core.update_clock();
        let Some((dev, offset, bytes)) = self.profiles.running.take() else { return };
        let slot = core.state.space.get_mut(dev);
        if !slot.removed {
            slot.unreserve(offset, bytes);
        }
        match result {
            Ok(Some(profile)) => self.set_profile(core, measurement.id, profile),
            Ok(None) => {} // stopped in favour of other work
            Err(error) => {
                self.profiles.given_up.insert(measurement.id);
                self.answer_asked(core, measurement.id, &Err(error));
            }
        }
    }

    /// Keeps a device's measured profile, for this engine and the next ones.
    pub fn set_profile(&mut self, core: &mut Core, id: DeviceId, profile: Profile) {
        let Some(dev) = core.state.space.slot_of(id) else { return };
        let slot = core.state.space.get_mut(dev);
        slot.pace.speed = profile.speed().filter(Speed::is_sane).or(slot.pace.speed);
        slot.pace.learner = None;
        slot.pace.profile = profile.clone();
        self.profiles.is_changed = true;
        self.write_profiles(core);
        self.answer_asked(core, id, &Ok(profile));
    }

    /// Returns the profile of a device, or a ticket for a measurement. Fails if the device does not exist.
    pub fn profile(&mut self, core: &mut Core, name: &str, measure_ms: u32) -> Outcome {
        let dev = match core.named(name) {
            Ok(dev) => dev,
            Err(error) => return failed(error),
        };
        let slot = core.state.space.get(dev);
        if measure_ms == 0 {
            return Outcome::Ready(Response::Profile(slot.pace.profile.clone()));
        }
        let id = slot.id;
        let ticket = core.ticket();
        self.profiles.asked.push((ticket, id, measure_ms.min(MEASURE_MS_MAX)));
        Outcome::Wait(ticket)
    }

    fn answer_asked(&mut self, core: &mut Core, id: DeviceId, result: &Result<Profile>) {
        let asked = std::mem::take(&mut self.profiles.asked);
        let (answered, left): (Vec<_>, Vec<_>) = asked.into_iter().partition(|(_, device, _)| *device == id);
        self.profiles.asked = left;
        let response = || match result {
            Ok(profile) => Response::Profile(profile.clone()),
            Err(error) => Response::Failed(error.clone()),
        };
        core.answers.finished.extend(answered.into_iter().map(|(ticket, ..)| (ticket, response())));
    }

    /// Learns the devices' speed from what a job saw.
    pub fn observe(&mut self, core: &mut Core, seen: &[(Arc<dyn Device>, Seen)]) {
        if seen.is_empty() {
            return;
        }
        let copies = |purpose| matches!(purpose, Purpose::Cut(_) | Purpose::Leave(_));
        let sharing = core.jobs.copying(copies) as u32 + 1; // this job is not counted any more
        for (device, seen) in seen.iter().filter(|(_, seen)| seen.bytes > 0 && seen.ns > 0) {
            let is_it = |slot: &&mut DeviceSlot| slot.device.as_ref().is_some_and(|other| Arc::ptr_eq(other, device));
            if let Some(slot) = core.state.space.slots.iter_mut().find(is_it) {
                let believed = slot.pace.speed.unwrap_or_else(|| Speed::usual(slot.spec.kind));
                let learner = slot.pace.learner.get_or_insert_with(|| Learner::new(believed));
                learner.learn(&Seen { sharing, ..*seen });
                slot.pace.speed = Some(learner.speed()).filter(Speed::is_sane).or(slot.pace.speed);
                self.profiles.is_changed = true;
            }
        }
    }

    /// Reads the profiles and habits that earlier engines wrote.
    pub fn read_profiles(&mut self, core: &mut Core) {
        let habits = core.seams.meta.read_file(HABITS).unwrap_or_default();
        self.habits = Habits::decode(core.store.id, &habits).unwrap_or_default();
        let bytes = core.seams.meta.read_file(PROFILE).unwrap_or_default();
        for known in decode(core.store.id, &bytes).unwrap_or_default() {
            if let Some(dev) = core.state.space.slot_of(known.device) {
                let slot = core.state.space.get_mut(dev);
                (slot.pace.speed, slot.pace.profile) = (known.speed, known.profile);
            }
        }
    }

    /// Returns the access pattern that a program has learned in a container.
    pub fn habit(&self, container: ContainerId, program: &str) -> Response {
        Response::Habit(self.habits.of(container, program).to_vec())
    }

    /// Keeps an access pattern that a program has learned. It is written with the next checkpoint, or when the store is
    /// closed. Fails if it is too long or the container does not exist.
    pub fn learn_habit(
        &mut self,
        core: &mut Core,
        container: ContainerId,
        program: String,
        learned: Vec<u8>,
    ) -> Result<Response> {
        if learned.len() > HABIT_BYTES_MAX || program.len() > PROGRAM_BYTES_MAX {
            return Err(Error::new(ErrorKind::InvalidInput, format!("what `{program:.40}` has learned"))
                .because(format!("{} bytes, {HABIT_BYTES_MAX} at most", learned.len())));
        }
        if core.state.containers.get(container).is_none() {
            return Err(Error::new(ErrorKind::NotFound, format!("container {container}")));
        }
        self.habits.learn(Habit { container, program, learned });
        Ok(Response::Done)
    }

    /// Writes profiles and habits if they changed. Nothing depends on them, so failures are ignored.
    pub fn write_profiles(&mut self, core: &mut Core) {
        if std::mem::take(&mut self.habits.is_changed) {
            let containers = &core.state.containers;
            self.habits.keep(|id| containers.get(id).is_some());
            let _ = core.seams.meta.write_file(HABITS, &self.habits.encode(core.store.id));
        }
        if !std::mem::take(&mut self.profiles.is_changed) {
            return;
        }
        let of = |slot: &DeviceSlot| DeviceProfile {
            device: slot.id,
            speed: slot.pace.speed,
            profile: slot.pace.profile.clone(),
        };
        let known: Vec<DeviceProfile> = core.state.space.present().map(of).collect();
        let _ = core.seams.meta.write_file(PROFILE, &encode(core.store.id, &known));
    }
}

/// Takes free space of a device, in one piece.
fn take_range(core: &mut Core, id: DeviceId) -> Option<Range> {
    let dev = core.state.space.slot_of(id)?;
    let slot = core.state.space.get_mut(dev);
    let device = slot.device.clone().filter(|_| slot.state == DeviceState::Online)?;
    let free = slot.space.map.free_units() * u64::from(slot.space.unit_bytes);
    let mut bytes = RANGE_BYTES_MAX.min(free / FREE_SHARE).checked_next_power_of_two()?;
    while bytes >= RANGE_BYTES_MIN {
        if slot.longest_free(bytes).is_some() && bytes <= free / FREE_SHARE {
            let mut runs = slot.take(bytes, bytes).into_iter();
            let range = runs.next();
            runs.for_each(|(offset, len)| slot.unreserve(offset, len));
            return range.map(|range| (dev, device, range));
        }
        bytes /= 2;
    }
    None
}
