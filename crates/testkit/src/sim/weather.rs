//! Weather (fault injection) over devices while data move between them: device faults with or without an end, clocks
//! that jump, and the conditions that must hold then.

use std::collections::BTreeSet;

use cenote_device::object::fake::Trouble;
use cenote_model::{
    DeviceId, DeviceInfo, DeviceKind, DeviceSpec, DeviceState, ErrorKind, ObjectKey, Request, Response, Touch,
};
use cenote_store::Outcome;

use super::client::Goal;
use super::step::CROWDED;
use super::{Check, Profile, Sim, draw_device, trace};
use crate::rng::Rng;
use crate::weather::DeviceFault;

/// Errors of reads whose data have no other place.
const NO_OTHER_PLACE: &[ErrorKind] = &[ErrorKind::Io, ErrorKind::NotFound];
const TEN_YEARS_MS: i64 = 10 * 365 * 24 * 3_600_000;

impl Profile {
    /// More moves, and weather; without flipped bits, so that no byte is excused.
    pub(super) fn bring_weather(&mut self, rng: &mut Rng) {
        self.weather = *rng.pick(&[6, 15, 40]);
        self.flips = false;
        if rng.chance(700) {
            self.error_permille = 0;
        }
        if rng.chance(500) {
            self.crash_permille = 0;
        }
    }
}

/// Enough tiers for moves: at least two persistent ones, often a bucket.
pub(super) fn add_tiers(rng: &mut Rng, devices: &mut Vec<DeviceSpec>) {
    if rng.chance(500) {
        devices.push(bucket(rng, devices.len() as u64));
    }
    let persistent = |devices: &[DeviceSpec]| devices.iter().filter(|it| it.kind.is_persistent()).count();
    while persistent(devices) < 2 {
        let kind = *rng.pick(&[DeviceKind::File, DeviceKind::Directory]);
        let device = draw_device(rng, devices.len() as u64, kind);
        devices.push(device);
    }
}

pub(super) fn bucket(rng: &mut Rng, number: u64) -> DeviceSpec {
    let kind = *rng.pick(&[DeviceKind::S3, DeviceKind::Swift, DeviceKind::Rados]);
    let mut spec = draw_device(rng, number, kind);
    spec.path = format!("bucket/tier{number}").into();
    spec.options.set("pack", "64KiB");
    spec
}

impl Sim {
    /// Returns true if a device has a fault, or was destroyed.
    pub(super) fn is_faulty(&self, id: DeviceId) -> bool {
        self.world.weather.of(id).is_some()
            || self.lost.contains(&id)
            || self.is_closed(id)
            || (self.troubles > 0 && self.is_bucket(id))
    }
    /// Returns true if the store has devices that it could not open, or that are gone.
    pub(super) fn is_maimed(&self) -> bool {
        let ids = || self.engine.iter().flat_map(cenote_store::Engine::device_infos).map(|info| info.id);
        !self.lost.is_empty() || ids().any(|id| self.is_closed(id))
    }
    fn is_bucket(&self, id: DeviceId) -> bool {
        let infos = self.engine.iter().flat_map(cenote_store::Engine::device_infos);
        infos.filter(|info| info.id == id).any(|info| info.spec.kind.is_object())
    }
    fn is_closed(&self, id: DeviceId) -> bool {
        self.engine.as_ref().is_some_and(|engine| engine.device(id).is_none())
    }

    /// A request about the place of data.
    pub(super) fn step_move(&mut self) -> Check {
        let (Some(at), Some(key)) = (self.any_client(), self.any_object()) else { return Ok(()) };
        let ranges = vec![(self.rng.below(1 << 16), 1 + self.rng.below(1 << 18))];
        let request = match self.rng.below(10) {
            0..=4 => self.draw_arrangement(key),
            5 => Request::Fetch { key, ranges, ahead: self.rng.chance(300), must: self.rng.chance(300) },
            6 | 7 => {
                let reads =
                    (0..self.rng.between(1, 20)).map(|_| Touch { key, offset: ranges[0].0, bytes: ranges[0].1 });
                Request::Touched { reads: reads.collect() }
            }
            8 => Request::DeviceDrain { name: format!("tier{}", self.rng.below(self.next_device)) },
            _ => Request::Unreadable { key, ranges },
        };
        trace!(self.trace, "c{} asks {request:?}", self.clients[at].info.nonce);
        let may_fail = if matches!(request, Request::Unreadable { .. }) { NO_OTHER_PLACE } else { CROWDED };
        self.ask(at, &request, &Goal::Other { may_fail })
    }

    pub(super) fn step_weather(&mut self) -> Check {
        let devices = self.engine().device_infos();
        match self.rng.below(20) {
            0..=7 => self.inject(&devices),
            8..=11 => {
                let faulty: Vec<DeviceId> = self.world.weather.faulty().into_iter().map(|(id, _)| id).collect();
                let faulty: Vec<DeviceId> = faulty.into_iter().filter(|id| !self.lost.contains(id)).collect();
                if !faulty.is_empty() {
                    let id = *self.rng.pick(&faulty);
                    trace!(self.trace, "device {id} is well again");
                    self.world.weather.heal(id);
                }
            }
            12 => return self.lose_device(&devices),
            13 if self.rng.chance(300) => return self.recover_in_place(),
            14 | 15 => self.jump(),
            _ => self.trouble_service(),
        }
        Ok(())
    }
    fn inject(&mut self, devices: &[DeviceInfo]) {
        let device = self.rng.pick(devices).clone();
        let mut fault = DeviceFault::draw(&mut self.rng, device.spec.capacity_bytes);
        if device.spec.kind == DeviceKind::SharedMemory {
            fault = DeviceFault::Slow(1_000_000);
        }
        if self.lost.contains(&device.id) {
            return;
        }
        trace!(self.trace, "device {} `{}`: {fault:?}", device.id, device.spec.name);
        self.summary.faulty += 1;
        let rng = self.rng.fork();
        self.world.weather.inject(device.id, fault, rng);
    }
    /// The machine sleeps, or the calendar is set.
    fn jump(&mut self) {
        let years = *self.rng.pick(&[-10, -1, 1, 10]);
        if self.rng.chance(500) {
            trace!(self.trace, "the calendar is set by {years} years");
            self.world.clock.shift_calendar_ms(years * TEN_YEARS_MS / 10);
        } else {
            let hours = *self.rng.pick(&[1, 24, 10 * 365 * 24]);
            trace!(self.trace, "the machine sleeps {hours} hours");
            self.world.clock.advance_ns(hours * 3_600_000_000_000);
        }
    }
    fn trouble_service(&mut self) {
        let service = self.world.service.clone();
        match self.rng.below(6) {
            0 | 1 => {
                trace!(self.trace, "the service is well");
                service.trouble_always(None);
            }
            2 => {
                let landed = service.land(self.rng.between(1, 4) as usize);
                trace!(self.trace, "{landed} late requests arrive");
            }
            _ => {
                let trouble = *self.rng.pick(&[
                    Trouble::Passing,
                    Trouble::AnswerLost,
                    Trouble::Refused(ErrorKind::Io),
                    Trouble::Refused(ErrorKind::PermissionDenied),
                    Trouble::Truncated,
                    Trouble::Late,
                ]);
                self.troubles += 1;
                if self.rng.chance(200) {
                    trace!(self.trace, "the service: {trouble:?} from now on");
                    service.trouble_always(Some(trouble));
                } else {
                    let call = service.calls() + self.rng.below(10);
                    trace!(self.trace, "the service: {trouble:?} at call {call}");
                    service.trouble_at(call, trouble);
                }
            }
        }
    }

    /// Destroys a persistent device. Data with another place are readable once a reader has reported that it cannot
    /// read them.
    fn lose_device(&mut self, devices: &[DeviceInfo]) -> Check {
        let there = |info: &&DeviceInfo| info.spec.kind.is_persistent() && !self.is_faulty(info.id);
        let well: Vec<&DeviceInfo> = devices.iter().filter(there).collect();
        if self.lost.len() >= 2 || well.is_empty() || self.flips > 0 {
            return Ok(());
        }
        let victim = (*self.rng.pick(&well)).clone();
        let safe = self.with_another_place(&victim, devices)?;
        trace!(
            self.trace,
            "device {} `{}` is DESTROYED; {} ranges have another place",
            victim.id,
            victim.spec.name,
            safe.len()
        );
        self.summary.losses += 1;
        self.lost.insert(victim.id);
        let store = self.engine().id();
        self.world.devices.destroy(store, victim.id);
        let rng = self.rng.fork();
        self.world.weather.inject(victim.id, DeviceFault::Away, rng);
        self.hurt = true;
        // Others may have faults as well, or the journal may not accept it: then nothing can be checked.
        if self.fails_at_random || !self.is_calm_but(victim.id) {
            return Ok(());
        }
        self.rescue(&safe)
    }
    fn is_calm_but(&self, id: DeviceId) -> bool {
        let others = self.world.weather.faulty().into_iter().filter(|(other, _)| *other != id);
        others.count() == 0 && self.lost.len() == 1 && !self.is_troubled()
    }
    /// Returns true if the object service may fail at any later call.
    fn is_troubled(&self) -> bool {
        self.engine.iter().flat_map(cenote_store::Engine::device_infos).any(|info| info.spec.kind.is_object())
    }
    /// Ranges on a device that are also on another, healthy one: object, begin, end.
    fn with_another_place(&mut self, victim: &DeviceInfo, devices: &[DeviceInfo]) -> Check<Vec<(ObjectKey, u64, u64)>> {
        let well: BTreeSet<String> = (devices.iter().filter(|info| info.id != victim.id && !self.is_faulty(info.id)))
            .map(|info| info.spec.name.clone())
            .collect();
        let session = self.observer()?;
        let mut safe = Vec::new();
        let containers = self.oracle.current().containers.clone();
        for (container, state) in &containers {
            for object in state.objects.keys() {
                let key = ObjectKey { container: *container, object: *object };
                let explained = self.engine().handle(session, 0, Request::Explain { key });
                let Outcome::Ready(Response::Explanation(explanation)) = explained else {
                    return Err(format!("Explain of {key} must answer at once"));
                };
                for range in explanation.ranges.iter().filter(|range| range.extent.device == victim.id) {
                    if copy_of(&range.why, &range.device).is_some_and(|copy| well.contains(&copy)) {
                        safe.push((key, range.offset, range.offset + u64::from(range.extent.len)));
                    }
                }
            }
        }
        Ok(safe)
    }
    /// A reader reports what it cannot read; afterwards it can read it.
    fn rescue(&mut self, safe: &[(ObjectKey, u64, u64)]) -> Check {
        let Some(at) = self.any_client() else { return Ok(()) };
        for (key, from, to) in safe {
            let request = Request::Unreadable { key: *key, ranges: vec![(*from, to - from)] };
            self.ask(at, &request, &Goal::Other { may_fail: &[] })?;
            self.rest()?;
            if self.died {
                return Ok(());
            }
            let lookup = Request::Lookup { key: *key, offset: *from, len: to - from, limit: 1000 };
            let session = self.observer()?;
            let Outcome::Ready(Response::Lookup(found)) = self.engine().handle(session, 0, lookup) else {
                return Err(format!("{key} has no map"));
            };
            for (offset, extent) in &found.extents {
                if self.lost.contains(&extent.device) {
                    return Err(format!(
                        "UNREADABLE: {key} at {offset} has another place, but is looked for on {extent:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Ends all faults, except for destroyed devices: without being reopened, the store comes to rest, answers
    /// everybody, accepts a flush, and has all content.
    pub(super) fn recover_in_place(&mut self) -> Check {
        if self.died || self.world.faults.injected() > 0 || self.fails_at_random {
            return Ok(());
        }
        trace!(self.trace, "all is well again");
        self.calm();
        self.world.faults.heal(); // nor does the daemon die
        self.rest()?;
        if let Some((at, sent)) =
            self.clients.iter().filter(|c| c.alive).find_map(|c| Some((c.info.nonce, c.sent.first()?)))
        {
            return Err(format!("HANG: {:?} of client {at} is not answered after the weather", sent.request));
        }
        self.hurt = false;
        self.summary.recoveries += 1;
        if self.any_client().is_none() {
            self.client_open()?;
        }
        self.flush()?;
        self.rest()?;
        self.look_at_everything()
    }
    /// Ends all device faults; destroyed devices stay so.
    pub(super) fn calm(&mut self) {
        for (id, _) in self.world.weather.faulty() {
            if !self.lost.contains(&id) {
                self.world.weather.heal(id);
            }
        }
        self.world.service.revive();
        self.troubles = 0;
        self.world.service.land(usize::MAX);
    }
    /// Checks that the store's view of each device's state is right.
    pub(super) fn check_states(&mut self) -> Check {
        for info in self.engine().device_infos() {
            let failed = info.state == DeviceState::Failed;
            if failed && !self.is_faulty(info.id) {
                return Err(format!("device `{}` is well, and failed: {}", info.spec.name, info.note));
            }
        }
        Ok(())
    }
}

/// The name of the device that has a copy, from the text of an explanation.
pub fn copy_of(why: &str, own: &str) -> Option<String> {
    let mut parts = why.split('`');
    let mut before = parts.next().unwrap_or_default();
    while let (Some(name), Some(after)) = (parts.next(), parts.next()) {
        let is_copy = before.ends_with("a copy on ") || after.starts_with(" still has it");
        if is_copy && name != own {
            return Some(name.to_owned());
        }
        before = after;
    }
    None
}
