//! The engine under deterministic simulation: one thread, one seed, every choice drawn from it.
//!
//! A run picks a small world (devices, profile of faults), then takes random steps: requests of several sessions,
//! engine ticks, background jobs in any order, readers that linger, resends, clock steps, I/O errors, flipped bits,
//! deaths of clients, of the daemon at any I/O, power losses of the machine; on request, weather (fault injection) over
//! its devices. After each answer the run asks the [`Oracle`] whether it is right; after each crash, whether the
//! remaining state is allowed. The same seed always takes the same steps.

mod access;
mod apply;
mod client;
#[cfg(feature = "crash")]
#[allow(clippy::unnecessary_wraps, reason = "all events have one type of outcome")]
mod cluster;
mod crash;
mod end;
mod fleet;
mod prepare;
mod read;
mod share;
mod snapshot;
mod step;
mod trace;
mod weather;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cenote_model::{ContainerId, DeviceId, DeviceKind, DeviceSpec, StoreConfig, StoreId};
use cenote_store::{Engine, Job, JobDone, Tuning};

use cenote_workload::{KeyShape, Steps};

use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::world::World;
use client::Client;
#[cfg(feature = "crash")]
pub use cluster::{ClusterSummary, run_cluster};
use fleet::Berth;
pub use fleet::run_fleet;
pub use prepare::{Prepared, prepare};
use read::{CachedMap, Reader};
pub use trace::Failure;
use trace::{Trace, trace};
use weather::add_tiers;
pub use weather::copy_of;

/// The properties that differ between seeds.
#[derive(Clone, Debug)]
struct Profile {
    steps: u64,
    write_max: u64,
    /// Share of crashing steps, in thousandths.
    crash_permille: u64,
    /// Share of crashes that are power losses, in thousandths.
    power_permille: u64,
    /// Probability of I/O errors while faults are injected; 0: never.
    error_permille: u64,
    flips: bool,
    /// Weight of steps that do background work.
    background: u32,
    ids: u64,
    /// Weight of steps about snapshots.
    snapshots: u32,
    /// Weight of updates that share ranges.
    shares: u32,
    /// Weight of steps that move data between tiers, and of steps that change the weather.
    weather: u32,
    /// Capacities are a multiple of this, so small that devices fill up. 0: they are not small.
    full: u64,
    tuning: Tuning,
}

impl Profile {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            steps: rng.between(40, 240),
            write_max: *rng.pick(&[600, 5_000, 5_000, 20_000, 150_000]),
            crash_permille: *rng.pick(&[0, 10, 20, 40]),
            power_permille: *rng.pick(&[0, 500, 500, 1000]),
            error_permille: if rng.chance(200) { rng.between(5, 200) } else { 0 },
            flips: rng.chance(150),
            background: *rng.pick(&[4, 20, 60]),
            ids: rng.between(1, 10),
            snapshots: *rng.pick(&[0, 0, 5, 20, 40]),
            shares: *rng.pick(&[0, 5, 15, 40]),
            weather: 0,
            full: *rng.pick(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8192, 8192, 81_920]),
            // Small files, so that rotation and checkpoints happen, and opening reads little.
            tuning: Tuning {
                log_bytes: *rng.pick(&[8 << 10, 16 << 10, 64 << 10, 256 << 10]),
                checkpoint_bytes: *rng.pick(&[4 << 10, 32 << 10, 1 << 20]),
                copy_bytes: *rng.pick(&[4 << 10, 64 << 10, 4 << 20]),
                copy_jobs: rng.between(1, 4) as usize,
                burst_bytes: *rng.pick(&[1, 4_000, 4 << 20]),
                value_bytes: *rng.pick(&[0, 200, 3000, 1 << 30]),
                ..Tuning::default()
            },
        }
    }
}

/// Counts of a run, for sums over many seeds.
#[derive(Clone, Copy, Default, Debug)]
pub struct Summary {
    /// Steps taken.
    pub steps: u64,
    /// Requests answered.
    pub requests: u64,
    /// Updates applied.
    pub updates: u64,
    /// Daemon deaths survived.
    pub deaths: u64,
    /// Power losses survived.
    pub power_losses: u64,
    /// I/O errors injected.
    pub errors: u64,
    /// Bits flipped.
    pub flips: u64,
    /// Background jobs run.
    pub jobs: u64,
    /// Devices that had a fault.
    pub faulty: u64,
    /// Devices destroyed.
    pub losses: u64,
    /// Times that all faults ended and the store had to come to rest without being reopened.
    pub recoveries: u64,
    /// A hash of the trace: the same for the same seed.
    pub trace_hash: u64,
    /// I/Os of the engine.
    pub ios: u64,
    /// Compressed extents found when everything was inspected.
    pub packed: u64,
    /// Shared ranges.
    pub shared: u64,
    /// Of a run with nodes.
    #[cfg(feature = "crash")]
    pub cluster: ClusterSummary,
}

/// Orders in which keys of records and offsets of writes come and go, where they are not drawn one by one.
struct Orders {
    keys: Steps,
    shape: KeyShape,
    offsets: Steps,
}

impl Orders {
    /// For every other seed. Uses its own random numbers, so that the seed's other choices stay the same.
    fn draw(seed: u64) -> Option<Self> {
        let mut rng = Rng::new(seed ^ 0x000D_E205);
        let shape = *rng.pick(&KeyShape::all(300));
        let (keys, offsets) = (Steps::new(rng.next_u64(), 60), Steps::new(rng.next_u64(), 24));
        rng.chance(500).then_some(Self { keys, shape, offsets })
    }
}

/// Bytes of the longest checkpoint that is encoded while the engine is held: for every other seed, jobs make all of
/// them. Uses its own stream, so that the seed's other choices stay the same.
fn held_bytes(seed: u64) -> u64 {
    *Rng::new(seed ^ 0x0000_C4E0).pick(&[0, 0, 2000, 1 << 20])
}

struct Sim {
    rng: Rng,
    orders: Option<Orders>,
    profile: Profile,
    world: World,
    /// The engine among those of its store.
    berth: Berth,
    engine: Option<Engine>,
    oracle: Oracle,
    clients: Vec<Client>,
    jobs: Vec<Job>,
    jobs_done: Vec<JobDone>,
    readers: Vec<Reader>,
    cached: Vec<CachedMap>,
    slots_taken: BTreeSet<usize>,
    next_write: u64,
    next_container: u64,
    /// The container of each snapshot that was ever requested.
    origins: BTreeMap<ContainerId, ContainerId>,
    next_device: u64,
    next_nonce: u128,
    /// Epoch of the last update, as far as known.
    last_epoch: u64,
    /// The engine's process died during the last call.
    died: bool,
    /// Errors were injected since the engine was opened: it may refuse work.
    hurt: bool,
    injected_seen: u64,
    fails_at_random: bool,
    /// Containers whose pin or unpin was requested.
    pinned: BTreeMap<ContainerId, Pinned>,
    /// How often the store was opened, which the instance word shows to clients.
    openings: u64,
    flips: u64,
    /// Destroyed devices.
    lost: BTreeSet<DeviceId>,
    /// Faults of the object service since all was well: it may fail at any call.
    troubles: u64,
    summary: Summary,
    trace: Trace,
}

/// Knowledge about a container's pin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pinned {
    /// Requested, without an answer yet.
    Asked,
    /// Pinned.
    Yes,
    /// Unknown after several concurrent requests.
    Unknown,
}

type Check<T = ()> = Result<T, String>;

/// A fault injected into an otherwise faultless run, for sweeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Inject {
    /// None: the seed decides.
    #[default]
    Nothing,
    /// No fault at all, not even from the seed. Counts the I/Os.
    Calm,
    /// No fault at all; for sweeps over the bytes that the run leaves.
    Rest,
    /// I/Os fail: the first one's number, and how many.
    Fail(u64, u64),
    /// The daemon dies at this I/O.
    Die(u64),
    /// The power fails at this I/O.
    Power(u64),
    /// The seed decides, including when devices vanish, come back or not, fill, slow down, shrink and fail while data
    /// move between them, and where clocks jump to.
    Weather,
}

/// Runs one seed with a fault at a given place.
pub fn run_injected(seed: u64, inject: Inject) -> Result<Summary, Failure> {
    match run_once(seed, false, false, inject) {
        Err(first) => run_once(seed, true, false, inject).and(Err(first)),
        fine => fine,
    }
}

/// Runs one seed with weather over its devices. `print`: write the trace to standard error as it grows.
pub fn run_weather(seed: u64, print: bool) -> Result<Summary, Failure> {
    run_twice(seed, print, Inject::Weather)
}

/// Runs one seed. `print`: write the trace to standard error as it grows.
pub fn run_seed(seed: u64, print: bool) -> Result<Summary, Failure> {
    run_twice(seed, print, Inject::Nothing)
}

fn run_twice(seed: u64, print: bool, inject: Inject) -> Result<Summary, Failure> {
    twice(print, |keep, print| run_once(seed, keep, print, inject))
}

fn twice(print: bool, run: impl Fn(bool, bool) -> Result<Summary, Failure>) -> Result<Summary, Failure> {
    match run(false, false) {
        Ok(summary) if !print => Ok(summary),
        // Run it once more with a full trace: the same seed takes the same steps.
        first => match (run(true, print), first) {
            (Err(failure), _) => Err(failure),
            (Ok(summary), Ok(_)) => Ok(summary),
            (Ok(_), Err(mut failure)) => {
                failure.message = format!("{} (NOT REPEATED with the same seed: nondeterminism)", failure.message);
                Err(failure)
            }
        },
    }
}

fn run_once(seed: u64, keep: bool, print: bool, inject: Inject) -> Result<Summary, Failure> {
    let options = if inject == Inject::Weather { "--weather ".to_owned() } else { String::new() };
    caught(seed, keep, print, options, |trace| {
        let Some(mut sim) = Sim::new(seed, trace, inject)? else { return Ok(Summary::default()) };
        let outcome = sim.run();
        sim.summary.trace_hash = sim.trace.hash();
        sim.summary.ios = sim.world.faults.count();
        outcome.map(|()| sim.summary)
    })
}

/// Runs a simulation; a panic is a finding.
fn caught(
    seed: u64,
    keep: bool,
    print: bool,
    options: String,
    run: impl FnOnce(&Trace) -> Check<Summary>,
) -> Result<Summary, Failure> {
    let trace = Trace::new(keep, print);
    let shared = trace.clone_handle();
    let result = catch_unwind(AssertUnwindSafe(|| run(&trace)));
    let message = match result {
        Ok(Ok(summary)) => return Ok(summary),
        Ok(Err(message)) => message,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            format!("panic: {}", text.unwrap_or_default())
        }
    };
    Err(Failure { seed, options, message, trace: shared.lines() })
}

impl Sim {
    /// `None`: the injected fault hit the creation of the store, which reported it.
    fn new(seed: u64, trace: &Trace, inject: Inject) -> Check<Option<Self>> {
        let mut rng = Rng::new(seed);
        let mut profile = Profile::draw(&mut rng);
        if inject == Inject::Weather {
            profile.bring_weather(&mut rng);
        } else if inject != Inject::Nothing {
            profile = Profile { steps: 120, crash_permille: 0, error_permille: 0, flips: false, ..profile };
        }
        match inject {
            Inject::Power(_) => profile.power_permille = 1000,
            Inject::Die(_) => profile.power_permille = 0,
            _ => {}
        }
        if profile.flips || profile.weather > 0 || inject == Inject::Rest {
            // Records whose values are on a damaged or absent device cannot be listed: keep values in memory.
            profile.tuning.value_bytes = u64::MAX / 4;
        }
        profile.tuning.check_checkpoints = true;
        profile.tuning.checkpoint_held_bytes = held_bytes(seed);
        let world = World::new(*rng.pick(&[64 << 10, 256 << 10, 1 << 20]), *rng.pick(&[4, 64, 1024]));
        match profile.full {
            0 => {}
            // Writes are longer than contiguous free space.
            81_920 => profile.write_max = 150_000,
            _ => profile.write_max = profile.write_max.clamp(5_000, 20_000),
        }
        let mut config = StoreConfig { devices: draw_devices(&mut rng, profile.full), ..StoreConfig::default() };
        if profile.weather > 0 {
            add_tiers(&mut rng, &mut config.devices);
        }
        trace!(trace, "seed {seed}: {profile:?}");
        for device in &config.devices {
            trace!(trace, "device `{}` {:?} {} bytes", device.name, device.kind, device.capacity_bytes);
        }
        let next_device = config.devices.len() as u64;
        let faults = &world.faults;
        match inject {
            Inject::Nothing | Inject::Calm | Inject::Rest | Inject::Weather => {}
            Inject::Fail(at, count) => faults.fail(at, at + count, None, rng.fork()),
            Inject::Die(at) | Inject::Power(at) => faults.die_at(at, rng.fork()),
        }
        let id = StoreId(0xCE40_7E00 + u128::from(seed));
        let engine = match Engine::create_tuned(world.seams(), id, &config, profile.tuning) {
            Ok(engine) => engine,
            Err(_) if faults.is_dead() || faults.injected() > 0 => return Ok(None),
            Err(error) => return Err(format!("create: {error:?}")),
        };
        Ok(Some(Self::around(seed, rng, profile, world, engine, Berth::ALONE, next_device, trace)))
    }
    /// The simulation of one engine; what it knows of the store is that it is empty.
    #[allow(clippy::too_many_arguments, reason = "one for each thing that seeds differ in")]
    fn around(
        seed: u64,
        rng: Rng,
        profile: Profile,
        world: World,
        engine: Engine,
        berth: Berth,
        next_device: u64,
        trace: &Trace,
    ) -> Self {
        Self {
            rng,
            orders: Orders::draw(seed),
            profile,
            world,
            berth,
            engine: Some(engine),
            oracle: Oracle::new(),
            clients: Vec::new(),
            jobs: Vec::new(),
            jobs_done: Vec::new(),
            readers: Vec::new(),
            cached: Vec::new(),
            slots_taken: BTreeSet::new(),
            next_write: 1,
            next_container: 1000,
            origins: BTreeMap::new(),
            next_device,
            next_nonce: 1,
            last_epoch: 0,
            died: false,
            hurt: false,
            injected_seen: 0,
            fails_at_random: false,
            openings: 0,
            pinned: BTreeMap::new(),
            flips: 0,
            lost: BTreeSet::new(),
            troubles: 0,
            summary: Summary::default(),
            trace: trace.clone_handle(),
        }
    }
    fn run(&mut self) -> Check {
        self.client_open()?;
        for _ in 0..self.profile.steps {
            self.summary.steps += 1;
            self.step()?;
            if self.died {
                let power = self.rng.chance(self.profile.power_permille);
                self.crash(power)?;
            }
        }
        self.end()?;
        self.summary.errors = self.world.faults.injected();
        self.summary.flips = self.flips;
        Ok(())
    }
    fn engine(&mut self) -> &mut Engine {
        self.engine.as_mut().expect("an engine is open between steps")
    }
}

fn draw_devices(rng: &mut Rng, full: u64) -> Vec<DeviceSpec> {
    let mut kinds = Vec::new();
    for _ in 0..rng.between(0, 2) {
        kinds.push(DeviceKind::SharedMemory);
    }
    for _ in 0..rng.between(0, 2) {
        kinds.push(*rng.pick(&[DeviceKind::File, DeviceKind::File, DeviceKind::PersistentMemory]));
    }
    if kinds.is_empty() || rng.chance(700) {
        kinds.push(DeviceKind::Directory);
    }
    let mut devices: Vec<_> = kinds.iter().enumerate().map(|(n, kind)| draw_device(rng, n as u64, *kind)).collect();
    if full > 0 {
        for device in &mut devices {
            device.capacity_bytes = full * rng.between(4, 14);
        }
    }
    devices
}

fn draw_device(rng: &mut Rng, number: u64, kind: DeviceKind) -> DeviceSpec {
    let capacity = match kind {
        DeviceKind::SharedMemory => rng.between(8, 64) * 8192,
        _ => rng.between(16, 128) * 16384,
    };
    DeviceSpec {
        name: format!("tier{number}"),
        kind,
        path: if kind == DeviceKind::SharedMemory { String::new() } else { format!("/simulated/{number}") }.into(),
        capacity_bytes: capacity,
        watermark_high_permille: *rng.pick(&[500, 800, 900]),
        watermark_low_permille: *rng.pick(&[200, 400]),
        options: draw_options(rng, kind),
    }
}

/// Enables compression for more than half of the tiers that support it.
fn draw_options(rng: &mut Rng, kind: DeviceKind) -> cenote_model::TierOptions {
    let compresses = matches!(kind, DeviceKind::File | DeviceKind::Directory) && rng.chance(600);
    let word = *rng.pick(&["lz4", "zstd", "auto"]);
    compresses.then(|| ("compress".to_owned(), word.to_owned())).into_iter().collect()
}
