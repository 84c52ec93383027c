//! The parent: starts clients, kills them and the daemon, and compares the store with what was acknowledged.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use cenote::{Container, ContainerSpec, Durability, Mode, NextFrom, OpenOptions, Store};
use cenote_model::{ContainerId, DeviceKind, DeviceSpec, IndexId, StoreConfig};

use super::ops::{Op, beginnings, draw};
use super::plain::{compare, read};
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
    /// Daemons killed.
    pub daemon_kills: u64,
    /// Clients killed.
    pub client_kills: u64,
    /// Operations acknowledged.
    pub acknowledged: u64,
    /// Comparisons made.
    pub comparisons: u64,
    /// What was lost, torn or wrong.
    pub failures: Vec<String>,
}

struct Slot {
    number: u64,
    child: Child,
    log: Receiver<String>,
    state: StoreState,
    containers: Vec<Container>,
    /// End of the acknowledged operations.
    done: u64,
    /// The last operation that began.
    begun: Option<u64>,
}

type Check<T = ()> = Result<T, String>;

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

/// Runs the test.
pub fn run(options: &Options) -> Check<Tally> {
    std::fs::create_dir_all(&options.dir).map_err(text)?;
    let store = make_store(&options.dir)?;
    let mut run = Run { options, rng: Rng::new(options.seed), store, tally: Tally::default() };
    let mut slots = Vec::new();
    for number in 0..options.clients {
        slots.push(run.new_slot(number)?);
    }
    let begin = Instant::now();
    while run.kills() < options.kills && begin.elapsed() < options.limit && run.tally.failures.is_empty() {
        std::thread::sleep(Duration::from_millis(run.rng.between(5, 120)));
        run.one_kill(&mut slots)?;
        if options.verbose && run.kills().is_multiple_of(20) {
            eprintln!("{:.0} s: {:?}", begin.elapsed().as_secs_f64(), run.tally);
        }
    }
    for slot in &mut slots {
        run.stop_and_compare(slot)?;
    }
    drop(slots);
    let tally = run.tally;
    drop(run.store);
    if tally.failures.is_empty() {
        Store::destroy(&options.dir, true).map_err(text)?;
        let _ = std::fs::remove_dir_all(&options.dir);
    }
    Ok(tally)
}

fn make_store(dir: &Path) -> Check<Store> {
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
    let devices = vec![
        tier("memory", DeviceKind::SharedMemory, PathBuf::new(), 16 << 20),
        tier("pmem", DeviceKind::PersistentMemory, dir.join("pmem"), 32 << 20),
        tier("disk", DeviceKind::Directory, dir.join("disk"), 512 << 20),
    ];
    let config = StoreConfig { devices, ..StoreConfig::default() };
    let options = OpenOptions { mode: Mode::Daemon, create: true, create_new: true, config, ..OpenOptions::default() };
    let store = Store::open_with(dir, &options).map_err(text)?;
    let shared = store.create_container(SHARED, &ContainerSpec::default()).map_err(text)?;
    let index = shared.create_index(Some(IndexId(1))).map_err(text)?;
    for account in 0..ACCOUNTS {
        index.put(&[(&account.to_be_bytes(), &UNITS.to_be_bytes())]).map_err(text)?;
    }
    Ok(store)
}

struct Run<'a> {
    options: &'a Options,
    rng: Rng,
    store: Store,
    tally: Tally,
}

impl Run<'_> {
    fn kills(&self) -> u64 {
        self.tally.daemon_kills + self.tally.client_kills
    }
    fn new_slot(&mut self, number: u64) -> Check<Slot> {
        let mut containers = Vec::new();
        let mut state = StoreState::default();
        for (part, durability) in [("a", Durability::Async), ("b", Durability::Sync)] {
            let spec = ContainerSpec { durability, ..ContainerSpec::default() };
            let label = format!("slot{number}{part}");
            let container = self.store.create_container(&label, &spec).map_err(text)?;
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
            containers.push(container);
        }
        let (child, log) = self.spawn(number, 0)?;
        Ok(Slot { number, child, log, state, containers, done: 0, begun: None })
    }
    fn spawn(&self, slot: u64, first: u64) -> Check<(Child, Receiver<String>)> {
        let mut child = Command::new(&self.options.program)
            // Daemons started by such a client spill record values to tiers.
            .env(cenote_server::VALUES_VARIABLE, "4KiB")
            .arg("client")
            .arg(&self.options.dir)
            .args([self.options.seed, slot, first, 1 << 17].map(|n| n.to_string()))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(text)?;
        let pipe = child.stdout.take().ok_or("no pipe")?;
        let (send, log) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines() {
                let Ok(line) = line else { return };
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok((child, log))
    }
    fn one_kill(&mut self, slots: &mut [Slot]) -> Check {
        for slot in slots.iter_mut() {
            if let Some(status) = slot.child.try_wait().map_err(text)? {
                self.tally.failures.push(format!("client {} ended by itself: {status}", slot.number));
            }
        }
        if self.rng.chance(550) {
            if let Some(pid) = holder(&self.options.dir) {
                kill(pid);
                self.tally.daemon_kills += 1;
            }
            return Ok(());
        }
        let at = self.rng.index(slots.len());
        let slot = &mut slots[at];
        self.tally.client_kills += 1;
        self.stop_and_compare(slot)?;
        let first = slot.begun.map_or(slot.done, |n| n + 1);
        (slot.child, slot.log) = self.spawn(slot.number, first)?;
        (slot.done, slot.begun) = (first, None);
        Ok(())
    }
    /// Kills a client, reads its log to the end, and compares its containers with the allowed states.
    fn stop_and_compare(&mut self, slot: &mut Slot) -> Check {
        slot.child.kill().map_err(text)?;
        slot.child.wait().map_err(text)?;
        let ids: Vec<ContainerId> = slot.containers.iter().map(Container::id).collect();
        let draw = |n: u64| draw(self.options.seed, slot.number, n, [ids[0], ids[1]]);
        while let Ok(line) = slot.log.recv() {
            let (kind, n) = line.split_once(' ').ok_or("a malformed line")?;
            let n: u64 = n.parse().map_err(text)?;
            if kind == "A" {
                self.tally.acknowledged += 1;
                for change in changes_of(&draw(n)) {
                    slot.state.change(&change, 0);
                }
                slot.begun = None;
                slot.done = n + 1;
            } else {
                slot.begun = Some(n);
            }
        }
        let mut allowed = vec![slot.state.clone()];
        if let Some(n) = slot.begun {
            let op = draw(n);
            let whole = matches!(op, Op::Transaction(_));
            let mut state = slot.state.clone();
            let changes = changes_of(&op);
            for (at, change) in changes.iter().enumerate() {
                state.change(change, 0);
                if !whole || at + 1 == changes.len() {
                    allowed.push(state.clone());
                }
            }
            // Requests left in a dead client's ring may still be carried out.
            std::thread::sleep(Duration::from_millis(300));
        }
        self.tally.comparisons += 1;
        match settle(slot, &allowed) {
            Ok(state) => slot.state = state,
            Err(message) => {
                let pending = slot.begun.map(|n| format!("{:?}", draw(n)));
                self.tally.failures.push(format!(
                    "client {}, {} operations acknowledged, pending {pending:?}: {message}",
                    slot.number, slot.done
                ));
            }
        }
        self.check_sum()
    }
    fn check_sum(&mut self) -> Check {
        let index = self.store.container(SHARED).map_err(text)?.index(IndexId(1));
        let records = index.next(NextFrom::Start, 1000).map_err(text)?;
        let sum: u64 = records.iter().filter_map(|(_, v)| v.try_into().ok().map(u64::from_be_bytes)).sum();
        if sum != ACCOUNTS * UNITS || records.len() as u64 != ACCOUNTS {
            self.tally.failures.push(format!("a torn transfer: {} records sum up to {sum}", records.len()));
        }
        Ok(())
    }
}

/// Finds the allowed state that the slot's containers have.
fn settle(slot: &Slot, allowed: &[StoreState]) -> Check<StoreState> {
    let mut last = String::new();
    let found: Vec<_> = slot.containers.iter().map(|c| read(c).map_err(text)).collect::<Check<_>>()?;
    for state in allowed.iter().rev() {
        let verdict = slot.containers.iter().zip(&found).try_for_each(|(container, found)| {
            let expected = state.containers.get(&container.id()).ok_or("no such container")?;
            compare(found, expected).map_err(|e| format!("container {}: {e}", container.id()))
        });
        match verdict {
            Ok(()) => return Ok(state.clone()),
            Err(message) => last = message,
        }
    }
    Err(last)
}
/// The changes of an operation to the slot's own containers.
fn changes_of(op: &Op) -> Vec<Change> {
    match op {
        Op::Single(change) => vec![change.clone()],
        Op::Transaction(changes) | Op::Launched(changes) => changes.clone(),
        Op::Transfer(..) | Op::Flush => Vec::new(),
    }
}

/// The pid that holds the store's lock: the daemon's.
fn holder(dir: &Path) -> Option<u32> {
    let lock = std::fs::metadata(dir.join(cenote_device::LOCK_FILE)).ok()?;
    let inode = format!(":{}", lock.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let line =
        locks.lines().find(|line| line.contains("FLOCK") && line.split_whitespace().any(|w| w.ends_with(&inode)))?;
    let pid: u32 = line.split_whitespace().nth(4)?.parse().ok()?;
    (pid != std::process::id() && pid > 1).then_some(pid)
}

fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
