//! The parent: starts clients, kills them and daemons, and compares the store with what was acknowledged.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cenote::{ContainerSpec, Durability, Mode, NextFrom, OpenOptions, Store};
use cenote_model::{ContainerId, DeviceKind, DeviceSpec, IndexId, StoreConfig};

use rustix::process::Signal;

use super::losses;
use super::nodes;
use super::ops::beginnings;
use super::slot::{Process, Slot};
use super::{ACCOUNTS, SHARED, UNITS};
use crate::oracle::{Change, StoreState};
use crate::rng::Rng;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of every choice; the times at which processes die do not follow from it.
    pub seed: u64,
    /// Stops after this many kills.
    pub kills: u64,
    /// Stops after this time.
    pub limit: Duration,
    /// Number of client processes.
    pub clients: u64,
    /// Nodes of a cluster; 1 for a store by itself.
    pub nodes: usize,
    /// Loss of how many nodes the cluster survives. If any, nodes are lost for good and hang, too.
    pub protect: u8,
    /// Nodes are also lost while copies of their homes are under way.
    pub early: bool,
    /// Directory of the store; created, and removed if no failure was found.
    pub dir: PathBuf,
    /// The program that runs a client: this one, given `client …`.
    pub program: PathBuf,
    /// Prints progress.
    pub verbose: bool,
}

/// Results of a run.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Daemons killed, to come again.
    pub daemon_kills: u64,
    /// Clients killed.
    pub client_kills: u64,
    /// Daemons stopped for a while, which then went on.
    pub pauses: u64,
    /// Nodes lost for good, with everything on them.
    pub losses: u64,
    /// Nodes that lost their memory and their processes, and came again once others had their homes.
    pub absences: u64,
    /// Nodes that hung until others had their homes, and then went on.
    pub hangs: u64,
    /// Nodes that were excluded though nobody wanted it, and came back.
    pub surprises: u64,
    /// Clients of nodes that were excluded, which ended with an error.
    pub given_up: u64,
    /// Operations acknowledged.
    pub acknowledged: u64,
    /// Longest time that an operation of a client of a living node took.
    pub stall: Duration,
    /// Longest time from the loss of a node, or its silence, until each home had a host and its mirrors again.
    pub whole: Duration,
    /// Comparisons made.
    pub comparisons: u64,
    /// What was lost, torn or wrong.
    pub failures: Vec<String>,
}

impl Tally {
    /// Processes and nodes killed.
    pub fn kills(&self) -> u64 {
        self.daemon_kills + self.client_kills + self.losses + self.absences + self.hangs
    }
}

/// Time for what is in the rings of dead clients.
const RINGS: Duration = Duration::from_millis(300);
/// Time for a change that waits until nodes which do not answer trust nothing any more, and some more.
const UNTRUSTED: Duration = Duration::from_millis(2800);

pub(super) type Check<T = ()> = Result<T, String>;

pub(super) fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

/// Runs the test.
pub fn run(options: &Options) -> Check<Tally> {
    std::fs::create_dir_all(&options.dir).map_err(text)?;
    if options.protect > 0 {
        return losses::run(options);
    }
    let stores = match options.nodes {
        0 | 1 => vec![make_store(&options.dir)?],
        count => nodes::make(&options.dir, &options.program, count, 0)?,
    };
    make_shared(&stores[0])?;
    let mut run = Run::new(options, stores);
    let mut slots = run.new_slots()?;
    let begin = Instant::now();
    while run.tally.kills() < options.kills && begin.elapsed() < options.limit && run.tally.failures.is_empty() {
        std::thread::sleep(Duration::from_millis(run.rng.between(5, 120)));
        run.one_kill(&mut slots)?;
        if options.verbose && run.tally.kills().is_multiple_of(20) {
            eprintln!("{:.0} s: {:?}", begin.elapsed().as_secs_f64(), run.tally);
        }
    }
    for slot in &mut slots {
        run.stop_and_compare(slot)?;
    }
    drop(slots);
    let dirs: Vec<PathBuf> = run.stores.iter().map(|store| store.dir().to_path_buf()).collect();
    let tally = run.end();
    if tally.failures.is_empty() {
        dirs.iter().try_for_each(|dir| Store::destroy(dir, true).map(drop).map_err(text))?;
        let _ = std::fs::remove_dir_all(&options.dir);
    }
    Ok(tally)
}

/// The tiers of a store in `dir`.
pub(super) fn tiers(dir: &Path) -> Vec<DeviceSpec> {
    let tier = |name: &str, kind, path: PathBuf, capacity: u64| DeviceSpec {
        name: name.into(),
        kind,
        path,
        capacity_bytes: capacity,
        watermark_high_permille: 700,
        watermark_low_permille: 400,
        options: cenote_model::TierOptions::default(),
    };
    // A memory tier that is too small, so that data drain while processes die.
    vec![
        tier("memory", DeviceKind::SharedMemory, PathBuf::new(), 16 << 20),
        tier("pmem", DeviceKind::PersistentMemory, dir.join("pmem"), 32 << 20),
        tier("disk", DeviceKind::Directory, dir.join("disk"), 512 << 20),
    ]
}

fn make_store(dir: &Path) -> Check<Store> {
    let config = StoreConfig { devices: tiers(dir), ..StoreConfig::default() };
    let options = OpenOptions { mode: Mode::Daemon, create: true, create_new: true, config, ..OpenOptions::default() };
    Store::open_with(dir, &options).map_err(text)
}

/// Makes the index that all clients share.
pub(super) fn make_shared(store: &Store) -> Check {
    let shared = store.create_container(SHARED, &ContainerSpec::default()).map_err(text)?;
    let index = shared.create_index(Some(IndexId(1))).map_err(text)?;
    for account in 0..ACCOUNTS {
        index.put(&[(&account.to_be_bytes(), &UNITS.to_be_bytes())]).map_err(text)?;
    }
    Ok(())
}

/// A world, and what was done to it.
pub(super) struct Run<'a> {
    pub options: &'a Options,
    pub rng: Rng,
    /// The store at each node that lives.
    pub stores: Vec<Store>,
    pub tally: Tally,
    /// When nodes were last excluded that came back.
    pub excluded: BTreeMap<PathBuf, Instant>,
    /// The view that admitted each node.
    pub admitted: BTreeMap<u16, u64>,
}

impl<'a> Run<'a> {
    pub fn new(options: &'a Options, stores: Vec<Store>) -> Self {
        let (excluded, admitted) = (BTreeMap::new(), BTreeMap::new());
        Self { options, rng: Rng::new(options.seed), stores, tally: Tally::default(), excluded, admitted }
    }
    /// Lets the stores go.
    pub fn end(self) -> Tally {
        self.tally
    }
    pub fn new_slots(&mut self) -> Check<Vec<Slot>> {
        (0..self.options.clients).map(|number| self.new_slot(number)).collect()
    }
    fn new_slot(&mut self, number: u64) -> Check<Slot> {
        let mut containers = [ContainerId::default(); 2];
        let mut state = StoreState::default();
        let durabilities = [Durability::Async, Durability::Sync];
        for (part, (label, durability)) in Slot::labels(number).into_iter().zip(durabilities).enumerate() {
            let spec = ContainerSpec { durability, ..ContainerSpec::default() };
            let container = self.at(number).create_container(&label, &spec).map_err(text)?;
            state.change(&Change::ContainerCreate { id: container.id(), label, spec }, 0);
            for change in beginnings(container.id()) {
                state.change(&change, 0);
                match change {
                    Change::ObjectCreate { key, .. } => {
                        container.create_object(Some(key.object), Some(12)).map_err(text)?;
                    }
                    _ => {
                        container.create_index(Some(IndexId(1))).map_err(text)?;
                    }
                }
            }
            containers[part] = container.id();
        }
        let (process, stall) = (self.spawn(number, 0)?, Duration::ZERO);
        Ok(Slot {
            number,
            process,
            state,
            containers,
            done: 0,
            begun: None,
            acknowledged: 0,
            stall,
            dropped: Vec::new(),
        })
    }
    /// Starts a process for a slot.
    pub fn spawn(&self, slot: u64, first: u64) -> Check<Process> {
        // Where nodes hang, a program also works on what its own node has.
        let is_at_home = self.options.protect > 0 && slot % 2 == 1;
        let node = if is_at_home { slot } else { slot + 1 };
        Process::start(self.options, self.at(node).dir(), slot, first)
    }
    /// Notes that a client ended by itself, and goes on with another one if it may.
    pub fn note_ended(&mut self, slot: &mut Slot) -> Check {
        let Some(what) = slot.ended()? else { return Ok(()) };
        if self.options.protect > 0 {
            self.open_again()?;
        }
        if !self.is_excused(slot) {
            self.tally.failures.push(what);
            return Ok(());
        }
        self.tally.given_up += 1;
        self.stop_and_compare(slot)?;
        self.restart(slot)
    }
    pub fn one_kill(&mut self, slots: &mut [Slot]) -> Check {
        for slot in slots.iter_mut() {
            self.note_ended(slot)?;
        }
        // Comparing takes time over several nodes.
        let daemons = if self.options.nodes > 1 { 750 } else { 550 };
        if self.rng.chance(daemons) {
            let node = self.rng.index(self.stores.len());
            return self.strike(node);
        }
        let at = self.rng.index(slots.len());
        self.tally.client_kills += 1;
        self.stop_and_compare(&mut slots[at])?;
        self.restart(&mut slots[at])
    }
    /// Returns true if a slot's process may end with an error, or wait for long: its node was excluded meanwhile.
    fn is_excused(&self, slot: &Slot) -> bool {
        self.excluded.get(&slot.process.place).is_some_and(|at| *at >= slot.process.started)
    }
    /// Goes on with another process of a slot whose process is dead.
    pub fn restart(&self, slot: &mut Slot) -> Check {
        let process = self.spawn(slot.number, slot.next())?;
        slot.go_on(process);
        Ok(())
    }
    /// The store at the node with this number, modulo the number of nodes.
    pub fn at(&self, number: u64) -> &Store {
        &self.stores[number as usize % self.stores.len()]
    }
    /// Kills a node's daemon, or stops it for a while.
    fn strike(&mut self, node: usize) -> Check {
        let dir = self.stores[node].dir();
        let Some(pid) = holder(dir) else { return Ok(()) };
        if self.stores.len() > 1 && self.rng.chance(250) {
            // Longer silence is that of a lost node.
            let longest = if self.options.protect > 0 { 200 } else { 1500 };
            let pause = Duration::from_millis(self.rng.between(20, longest));
            self.tally.pauses += 1;
            signal(pid, Signal::STOP);
            std::thread::sleep(pause);
            signal(pid, Signal::CONT);
            return Ok(());
        }
        signal(pid, Signal::KILL);
        self.tally.daemon_kills += 1;
        if self.stores.len() > 1 {
            // Clients start only the daemon of their own node.
            std::thread::sleep(Duration::from_millis(self.rng.between(0, 200)));
            nodes::begin(dir, &self.options.program)?;
        }
        Ok(())
    }
    /// Kills a client, reads its log to the end, and compares its containers with the allowed states.
    pub fn stop_and_compare(&mut self, slot: &mut Slot) -> Check {
        self.note_wait_and_stop(slot)?;
        self.compare(slot)
    }
    /// Kills a client that waits for an answer, and notes for how long it has waited.
    pub fn note_wait_and_stop(&mut self, slot: &mut Slot) -> Check {
        slot.listen(self.options.seed, false)?;
        slot.stall = slot.stall.max(slot.waits());
        self.stop(slot)
    }
    /// Kills a client and reads its log to the end.
    pub fn stop(&mut self, slot: &mut Slot) -> Check {
        slot.process.kill()?;
        slot.listen(self.options.seed, true)?;
        self.tally.acknowledged += std::mem::take(&mut slot.acknowledged);
        let stall = std::mem::take(&mut slot.stall);
        if !self.is_excused(slot) {
            self.tally.stall = self.tally.stall.max(stall);
        }
        Ok(())
    }
    /// Compares the containers of a slot whose process is dead.
    pub fn compare(&mut self, slot: &mut Slot) -> Check {
        if slot.begun.is_some() {
            self.settle();
        }
        self.compare_settled(slot)
    }
    /// Waits until nothing is on its way of what dead processes left.
    pub fn settle(&self) {
        // Requests left in a dead client's ring may still be carried out; and a home asks other nodes before a change, or
        // waits until they trust nothing any more.
        std::thread::sleep(if self.options.nodes > 1 { UNTRUSTED } else { RINGS });
    }
    /// Compares the containers of a slot whose process is dead, as is what it left.
    pub fn compare_settled(&mut self, slot: &mut Slot) -> Check {
        self.tally.comparisons += 1;
        let mut compared = self.try_compare(slot);
        if compared.is_err() && self.options.protect > 0 && self.open_again()? {
            compared = self.try_compare(slot);
        }
        self.tally.failures.extend(compared.err());
        self.check_sum()
    }
    fn try_compare(&self, slot: &mut Slot) -> Check {
        // What the process left is carried out before its own node lets another one in, and else at any time.
        if self.options.nodes > 1
            && let Some(store) = self.stores.iter().find(|store| store.dir() == slot.process.place)
        {
            let fresh = nodes::open(store.dir())?;
            fresh.container(&Slot::labels(slot.number)[0]).and_then(|it| it.info()).map_err(text)?;
        }
        // Another node compares than the one that has them, and the one that changes them.
        let store = self.at(slot.number + 2);
        let containers = Slot::labels(slot.number).map(|label| store.container(&label).map_err(text));
        let containers = containers.into_iter().collect::<Check<Vec<_>>>()?;
        slot.compare(self.options.seed, &containers)
    }
    fn check_sum(&mut self) -> Check {
        let index = self.stores[0].container(SHARED).map_err(text)?.index(IndexId(1));
        let records = index.next(NextFrom::Start, 1000).map_err(text)?;
        let sum: u64 = records.iter().filter_map(|(_, v)| v.try_into().ok().map(u64::from_be_bytes)).sum();
        if sum != ACCOUNTS * UNITS || records.len() as u64 != ACCOUNTS {
            self.tally.failures.push(format!("a torn transfer: {} records sum up to {sum}", records.len()));
        }
        Ok(())
    }
}

/// The pid that holds the store's lock: the daemon's.
pub(super) fn holder(dir: &Path) -> Option<u32> {
    let lock = std::fs::metadata(dir.join(cenote_device::LOCK_FILE)).ok()?;
    let inode = format!(":{}", lock.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let line =
        locks.lines().find(|line| line.contains("FLOCK") && line.split_whitespace().any(|w| w.ends_with(&inode)))?;
    let pid: u32 = line.split_whitespace().nth(4)?.parse().ok()?;
    (pid != std::process::id() && pid > 1).then_some(pid)
}

pub(super) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}
