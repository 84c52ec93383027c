//! Several engines of one store under simulation: each with clients, jobs and an oracle of its own, over the same devices,
//! files, clock and control table. They take turns at random; whatever ends one ends all, and all are opened again.

use std::collections::BTreeMap;

use cenote_model::{ContainerId, DeviceId, StoreConfig, StoreId};
use cenote_store::Engine;

use super::trace::Trace;
use super::{Check, Failure, Profile, Sim, Summary, caught, draw_devices, trace, twice};
use crate::rng::Rng;
use crate::world::World;

/// An engine's place in the simulation: which numbers and names are its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Berth {
    index: u16,
    count: u16,
    /// It asked for the end of all, with or without the machine.
    pub wants_power: Option<bool>,
}

impl Berth {
    pub const ALONE: Self = Self { index: 0, count: 1, wants_power: None };

    pub fn is_alone(self) -> bool {
        self.count == 1
    }
    /// A label of a container. The service sees to it that no two engines have the same.
    pub fn label(self, number: u64) -> String {
        if self.is_alone() { format!("label{number}") } else { format!("label{number} of {}", self.index) }
    }
    /// Returns true if its readers may use this slot.
    pub fn has_slot(self, slot: usize) -> bool {
        slot % usize::from(self.count) == usize::from(self.index)
    }
}

impl Sim {
    /// A number for a container or snapshot that was never used.
    pub(super) fn new_container(&mut self) -> ContainerId {
        self.next_container += 1;
        ContainerId(self.next_container * u64::from(self.berth.count) + u64::from(self.berth.index))
    }
}

/// Runs one seed with several engines. `print`: write the trace to standard error as it grows.
pub fn run_fleet(seed: u64, engines: u16, print: bool) -> Result<Summary, Failure> {
    let options = format!("--engines {engines} ");
    twice(print, |keep, print| {
        caught(seed, keep, print, options.clone(), |trace| {
            let mut fleet = Fleet::new(seed, engines, trace)?;
            fleet.run()?;
            Ok(fleet.summary())
        })
    })
}

struct Fleet {
    rng: Rng,
    world: World,
    sims: Vec<Sim>,
    trace: Trace,
}

impl Fleet {
    fn new(seed: u64, engines: u16, trace: &Trace) -> Check<Self> {
        let mut rng = Rng::new(seed ^ 0xF1EE_7000);
        // Bytes of one engine's that go bad would be another's surprise.
        let mut profile = Profile { flips: false, ..Profile::draw(&mut rng) };
        if profile.full > 0 {
            profile.write_max = profile.write_max.clamp(5_000, 20_000);
        }
        let world = World::new(*rng.pick(&[64 << 10, 256 << 10, 1 << 20]), *rng.pick(&[4, 64, 1024]));
        let mut devices = draw_devices(&mut rng, profile.full);
        for device in &mut devices {
            device.capacity_bytes = (device.capacity_bytes + (128 << 10)) * u64::from(engines);
        }
        trace!(trace, "seed {seed}, {engines} engines: {profile:?}");
        for device in &devices {
            trace!(trace, "device `{}` {:?} {} bytes", device.name, device.kind, device.capacity_bytes);
        }
        let next_device = devices.len() as u64;
        let config = StoreConfig { devices, engines, ..StoreConfig::default() };
        let id = StoreId(0xCE40_7E00 + u128::from(seed));
        let made = Engine::create_all(&world.seams(), id, &config, profile.tuning);
        let made = made.map_err(|error| format!("create: {error:?}"))?;
        let mut sims = Vec::new();
        for (index, engine) in (0..engines).zip(made) {
            let berth = Berth { index, count: engines, wants_power: None };
            let own = rng.fork();
            let (profile, world) = (profile.clone(), world.clone());
            sims.push(Sim::around(seed + u64::from(index), own, profile, world, engine, berth, next_device, trace));
        }
        Ok(Self { rng, world, sims, trace: trace.clone_handle() })
    }
    fn run(&mut self) -> Check {
        for sim in &mut self.sims {
            sim.client_open()?;
        }
        let steps = self.sims[0].profile.steps * self.sims.len() as u64;
        for _ in 0..steps {
            let at = self.rng.index(self.sims.len());
            trace!(self.trace, "engine {at}:");
            self.sims[at].summary.steps += 1;
            self.sims[at].step()?;
            self.crash_if_one_died()?;
        }
        self.end()
    }
    fn crash_if_one_died(&mut self) -> Check {
        // Of an I/O at which the process died, each engine learns by its own next one.
        let is_dead = self.world.faults.is_dead();
        if !is_dead && self.sims.iter().all(|sim| !sim.died) {
            return Ok(());
        }
        let wanted = self.sims.iter().find_map(|sim| sim.berth.wants_power);
        let permille = self.sims[0].profile.power_permille;
        let power = wanted.unwrap_or_else(|| self.rng.chance(permille));
        self.crash(power)
    }
    /// Ends all engines; `power`: the machine too. Opens the store again and asks the oracles.
    fn crash(&mut self, mut power: bool) -> Check {
        for sim in &mut self.sims {
            sim.engine = None;
            sim.jobs.clear();
            sim.jobs_done.clear();
            sim.berth.wants_power = None;
        }
        self.sims[0].lose(power);
        let permille = self.sims[0].profile.power_permille;
        let tuning = self.sims[0].profile.tuning;
        let engines = loop {
            if self.rng.chance(300) {
                let rng = self.rng.fork();
                let ahead = self.rng.below(40 * self.sims.len() as u64);
                trace!(self.trace, "and will die again within {ahead} I/Os");
                self.world.faults.die_at(self.world.faults.count() + ahead, rng);
            }
            let opened = Engine::open_all(&self.world.seams(), tuning);
            let dead = self.world.faults.is_dead();
            self.world.faults.heal();
            match opened {
                _ if dead => {
                    trace!(self.trace, "died while opening");
                    let again = self.rng.chance(permille / 2);
                    self.sims[0].lose(again);
                    power |= again;
                }
                Ok(opened) => break opened,
                Err(error) => return Err(format!("open after a crash: {error:?}")),
            }
        };
        if let Some((_, report)) = engines.iter().find(|(_, report)| report.power_lost && !power) {
            return Err(format!("a process died, and the store found a power loss: {report:?}"));
        }
        for (sim, (engine, report)) in self.sims.iter_mut().zip(engines) {
            trace!(self.trace, "opened {:?}: {report:?}", engine.home());
            sim.openings += 1;
            sim.reopen(engine);
        }
        for sim in &mut self.sims {
            sim.after_crash(power)?;
        }
        self.check_loans()
    }
    /// What engines use and what they may give out is lent to them, and nothing is lent twice.
    fn check_loans(&mut self) -> Check {
        let mut used: Vec<(DeviceId, u64, u64, usize)> = Vec::new();
        for (at, sim) in self.sims.iter_mut().enumerate() {
            let found = sim.survey()?;
            let engine = sim.engine();
            if let Some(wrong) = engine.outside_of_loans().first() {
                return Err(format!("engine {at}: {wrong}"));
            }
            let loans = engine.loans()[at].clone();
            let leases = sim.clients.iter().flat_map(|client| client.leases.iter().map(|(_, run)| *run));
            let leases = leases.map(|run| (run.device, run.offset, run.offset + run.len));
            let extents = found.used.iter().map(|used| (used.device, used.kept().0, used.kept().1));
            for (device, from, to) in extents.chain(leases) {
                let is_lent = |loan: &cenote_store::Loan| {
                    loan.device == device && loan.offset <= from && to <= loan.offset + loan.bytes
                };
                if !loans.iter().any(is_lent) {
                    return Err(format!("engine {at} uses {from} to {to} of device {device}, which it was not lent"));
                }
                used.push((device, from, to, at));
            }
        }
        used.sort_unstable();
        let mut farthest: BTreeMap<DeviceId, (u64, usize)> = BTreeMap::new();
        for (device, from, to, at) in used {
            let (end, owner) = farthest.entry(device).or_insert((0, at));
            if *end > from && *owner != at {
                return Err(format!("engines {owner} and {at} both use byte {from} of device {device}"));
            }
            if to > *end {
                (*end, *owner) = (to, at);
            }
        }
        Ok(())
    }
    /// All clients leave, the store comes to rest, and nothing may be lost, hang or leak.
    fn end(&mut self) -> Check {
        trace!(self.trace, "the end: everybody leaves");
        self.world.faults.heal();
        self.sims.iter_mut().for_each(|sim| sim.fails_at_random = false);
        if self.sims.iter().any(|sim| sim.hurt || sim.died) {
            self.crash(false)?;
        }
        for sim in &mut self.sims {
            while !sim.readers.is_empty() {
                sim.reader_end()?;
            }
        }
        for sim in &mut self.sims {
            sim.rest()?;
            sim.check_answered()?;
            while !sim.clients.is_empty() {
                sim.client_bury(0);
            }
            sim.client_open()?;
            sim.flush_all()?;
            sim.look_at_everything()?;
            if sim.is_flushed() {
                sim.check_space(false)?;
            }
        }
        self.check_loans()?;
        let power = self.rng.chance(500);
        trace!(self.trace, "and once more after a crash");
        self.crash(power)?;
        let empties = self.rng.chance(300);
        for sim in &mut self.sims {
            sim.look_at_everything()?;
            if empties {
                sim.delete_everything()?;
            }
        }
        Ok(())
    }
    fn summary(&self) -> Summary {
        let mut sum = self.sims[0].summary;
        for sim in &self.sims[1..] {
            sum.steps += sim.summary.steps;
            sum.requests += sim.summary.requests;
            sum.updates += sim.summary.updates;
            sum.jobs += sim.summary.jobs;
            sum.packed += sim.summary.packed;
            sum.shared += sim.summary.shared;
        }
        sum.errors = self.world.faults.injected();
        sum.ios = self.world.faults.count();
        sum.trace_hash = self.trace.hash();
        sum
    }
}
