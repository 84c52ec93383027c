//! The driver: one kind of move after the other, each with a death at each of its steps.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cenote::{Container, ContainerSpec, Durability, Mode, Object, OpenOptions, Store};
use cenote_model::{
    Arrange, ArrangeTarget, DeviceKind, DeviceSpec, DeviceState, ObjectId, SUM_UNIT_SHIFT, StoreConfig, TierOptions,
};

use super::arm_file;
use crate::bucket::Bucket;
use crate::content::{self, WriteId};
use crate::rng::Rng;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Selects bytes and lengths; and the steps, if not every step is tried.
    pub seed: u64,
    /// Tries every `stride`-th step of each move.
    pub stride: u64,
    /// Stops after this time.
    pub limit: Duration,
    /// Directory of the store; created, and removed if no failure was found.
    pub dir: PathBuf,
    /// Prints progress.
    pub verbose: bool,
}

/// Results of a run.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Daemons that died during a move.
    pub deaths: u64,
    /// Kinds of moves of which every step (every `stride`-th) was tried.
    pub kinds: u64,
    /// Comparisons of all bytes and all space.
    pub comparisons: u64,
    /// Longest time from the start of a move with a death to its end.
    pub longest: Duration,
    /// Bytes that were lost or stored twice, and moves that hung.
    pub failures: Vec<String>,
}

type Check<T = ()> = Result<T, String>;

/// Upper bound of a move's time, including deaths and new daemons.
const PATIENCE: Duration = Duration::from_secs(20);
const OBJECTS: u64 = 3;

/// A move, from a state that `prepare` sets up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Flush,
    Promote,
    PromoteTwice,
    Demote,
    Evict,
    Archive,
    Restore,
    Drain,
}

const KINDS: [Kind; 8] = [
    Kind::Flush,
    Kind::Promote,
    Kind::PromoteTwice,
    Kind::Demote,
    Kind::Evict,
    Kind::Archive,
    Kind::Restore,
    Kind::Drain,
];

struct Driver<'a> {
    options: &'a Options,
    rng: Rng,
    store: Store,
    container: Container,
    tally: Tally,
    write: u64,
    /// Content of each object.
    model: Vec<Vec<u8>>,
}

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

fn tier(name: &str, kind: DeviceKind, path: PathBuf, capacity_bytes: u64) -> DeviceSpec {
    DeviceSpec {
        name: name.into(),
        kind,
        path,
        capacity_bytes,
        watermark_high_permille: 950,
        watermark_low_permille: 900,
        options: TierOptions::default(),
    }
}

/// Runs the test.
pub fn run(options: &Options) -> Check<Tally> {
    std::fs::create_dir_all(&options.dir).map_err(text)?;
    let bucket = Bucket::serve().map_err(text)?;
    let secrets = options.dir.with_extension("secrets");
    std::fs::write(&secrets, "[cold]\naccess_key_id = a\nsecret_access_key = b\n").map_err(text)?;
    let mut cold = tier("cold", DeviceKind::S3, "bucket/cold".into(), 64 << 20);
    cold.options.set("endpoint", &bucket.endpoint());
    cold.options.set("credentials", &format!("{}#cold", secrets.display()));
    cold.options.set("pack", "256KiB");
    let devices = vec![
        tier("memory", DeviceKind::SharedMemory, PathBuf::new(), 16 << 20),
        tier("fast", DeviceKind::File, options.dir.join("fast"), 32 << 20),
        tier("slow", DeviceKind::Directory, options.dir.join("slow"), 64 << 20),
        cold,
    ];
    let config = StoreConfig { devices, ..StoreConfig::default() };
    let how = OpenOptions { mode: Mode::Daemon, create: true, create_new: true, config, ..OpenOptions::default() };
    let store = Store::open_with(&options.dir, &how).map_err(text)?;
    let container = store
        .create_container("c", &ContainerSpec { durability: Durability::Async, ..ContainerSpec::default() })
        .map_err(text)?;
    for id in 0..OBJECTS {
        container.create_object(Some(ObjectId(u128::from(id))), None).map_err(text)?;
    }
    let rng = Rng::new(options.seed);
    let model = vec![Vec::new(); OBJECTS as usize];
    let mut driver = Driver { options, rng, store, container, tally: Tally::default(), write: 0, model };
    driver.all();
    let tally = driver.tally;
    drop((driver.container, driver.store));
    if tally.failures.is_empty() {
        Store::destroy(&options.dir, true).map_err(text)?;
        let _ = std::fs::remove_dir_all(&options.dir);
    }
    let _ = std::fs::remove_file(secrets);
    Ok(tally)
}

impl Driver<'_> {
    fn all(&mut self) {
        let begin = Instant::now();
        for kind in KINDS {
            let mut at = if self.options.stride > 1 { self.rng.below(self.options.stride) } else { 0 };
            loop {
                if begin.elapsed() >= self.options.limit {
                    return;
                }
                let died = match self.one(kind, at) {
                    Ok(died) => died,
                    Err(why) => {
                        self.tally.failures.push(format!("{kind:?}, death at step {at}: {why}"));
                        return;
                    }
                };
                if !died {
                    break;
                }
                self.tally.deaths += 1;
                at += self.options.stride;
            }
            self.tally.kinds += 1;
            if self.options.verbose {
                eprintln!("{:.1} s: {kind:?} has {at} steps", begin.elapsed().as_secs_f64());
            }
        }
    }
    /// Runs the move with a death at step `at`; returns false if it has fewer steps.
    fn one(&mut self, kind: Kind, at: u64) -> Check<bool> {
        self.prepare(kind)?;
        let (_, arm) = arm_file(&self.options.dir);
        let partly = arm.with_extension("partly");
        std::fs::write(&partly, at.to_string()).map_err(text)?;
        let begin = Instant::now();
        std::fs::rename(&partly, &arm).map_err(text)?;
        let instance = self.daemon();
        let moved = self.act(kind);
        let died = self.daemon() != instance;
        // An armed death that was not reached must not affect anything else.
        let _ = std::fs::remove_file(&arm);
        self.tally.longest = self.tally.longest.max(begin.elapsed());
        if begin.elapsed() > PATIENCE {
            return Err(format!("it took {:.1} s", begin.elapsed().as_secs_f64()));
        }
        moved.map_err(|why| format!("it cannot be done again: {why}"))?;
        if !died {
            self.disarm()?;
        }
        self.compare()?;
        Ok(died)
    }
    /// The pid of the daemon.
    fn daemon(&self) -> u64 {
        let _ = self.store.stats(); // starts one if there is none
        let pid = std::fs::read_dir("/proc").ok().into_iter().flatten().flatten().find_map(|entry| {
            let pid: u64 = entry.file_name().to_str()?.parse().ok()?;
            let words = std::fs::read(entry.path().join("cmdline")).ok()?;
            let dir = self.options.dir.as_os_str().as_encoded_bytes();
            let mut parts = words.split(|byte| *byte == 0);
            let serves = parts.clone().any(|word| word == b"serve") && parts.any(|word| word == dir);
            serves.then_some(pid)
        });
        pid.unwrap_or(0)
    }
    /// Replaces a daemon whose death is armed for a step after the move's end.
    fn disarm(&mut self) -> Check {
        let pid = self.daemon();
        if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        self.store.stats().map(drop).map_err(text)
    }
    fn object(&self, at: usize) -> Object {
        self.container.object(ObjectId(at as u128))
    }
    fn arrange(&self, what: &Arrange) -> Check {
        let target = ArrangeTarget::Container(self.container.id());
        let result = self.store.arrange(&target, what, false).map_err(text)?;
        // Bytes in the right place already are fine; any other reason means that the move failed.
        let fine = ["", "it is on", "is faster than", "is slower than", "it has no copy"];
        let why = &result.staying_why;
        if why.is_empty() || fine.iter().skip(1).any(|part| why.contains(part)) { Ok(()) } else { Err(why.clone()) }
    }
    fn demote(&self, to: &str) -> Check {
        self.arrange(&Arrange::Demote { to: Some(to.to_owned()) })
    }
    fn promote(&self, to: &str) -> Check {
        self.arrange(&Arrange::Promote { to: Some(to.to_owned()) })
    }
    fn prepare(&mut self, kind: Kind) -> Check {
        match kind {
            Kind::Flush => {
                for at in 0..self.model.len() {
                    self.rewrite(at)?;
                }
                Ok(())
            }
            Kind::Promote | Kind::Drain => self.demote("slow"),
            Kind::PromoteTwice => {
                self.demote("slow")?;
                self.promote("fast")
            }
            Kind::Demote => {
                self.demote("slow")?;
                self.promote("fast")?;
                // So that it exists only there.
                self.rewrite(0)?;
                self.store.flush().map_err(text)
            }
            Kind::Evict => {
                self.demote("slow")?;
                self.promote("memory")
            }
            Kind::Archive => {
                self.rewrite(1)?;
                self.store.flush().map_err(text)
            }
            Kind::Restore => self.demote("cold"),
        }
    }
    fn act(&mut self, kind: Kind) -> Check {
        match kind {
            Kind::Flush => self.store.flush().map_err(text),
            Kind::Promote | Kind::PromoteTwice => self.promote("memory"),
            Kind::Demote => self.demote("slow"),
            Kind::Evict => self.arrange(&Arrange::Evict),
            Kind::Archive => self.demote("cold"),
            // A read moves it.
            Kind::Restore => self.read_all(),
            Kind::Drain => {
                self.store.drain_device("slow").map_err(text)?;
                let spec = self.device("slow")?;
                self.remove("slow")?;
                self.store.add_device(&spec).map_err(text)
            }
        }
    }
    fn device(&self, name: &str) -> Check<DeviceSpec> {
        let devices = self.store.devices().map_err(text)?;
        devices.into_iter().map(|info| info.spec).find(|spec| spec.name == name).ok_or(format!("no `{name}`"))
    }
    /// Removes a device. Readers and leases release it within a moment.
    fn remove(&self, name: &str) -> Check {
        let begin = Instant::now();
        loop {
            match self.store.remove_device(name) {
                Ok(()) => return Ok(()),
                Err(error) if begin.elapsed() > PATIENCE => return Err(text(error)),
                // A daemon that died afterwards had done it.
                Err(error) if error.kind() == cenote::ErrorKind::NotFound => return Ok(()),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
    fn rewrite(&mut self, at: usize) -> Check {
        self.write += 1;
        let len = self.rng.between(300_000, 1_200_000) as usize;
        let offset = self.rng.below(200_000);
        let bytes = content::bytes(WriteId(self.write), 0, len);
        self.object(at).write_at(offset, &bytes).map_err(text)?;
        let model = &mut self.model[at];
        let end = offset as usize + len;
        model.resize(model.len().max(end), 0);
        model[offset as usize..end].copy_from_slice(&bytes);
        Ok(())
    }
    fn read_all(&self) -> Check {
        for (at, model) in self.model.iter().enumerate() {
            let mut found = vec![0; model.len()];
            let n = self.object(at).read_at(0, &mut found).map_err(text)?;
            if n != model.len() {
                return Err(format!("LOST: {n} of {} bytes of object {at}", model.len()));
            }
            if let Some(bad) = (0..n).find(|i| found[*i] != model[*i]) {
                let wrong: Vec<usize> = (0..n).filter(|i| found[*i] != model[*i]).collect();
                let zeros = wrong.iter().filter(|i| found[**i] == 0).count();
                let whole = self.store.explain(self.object(at).key()).map_err(text)?;
                let mut again = vec![0; model.len()];
                let again = self.object(at).read_at(0, &mut again).is_ok() && again == *model;
                return Err(format!(
                    "WRONG: bytes {bad} to {} of object {at}, {} in all, {zeros} of them zeros; right when read again: \
                     {again}; {:?}",
                    wrong[wrong.len() - 1],
                    wrong.len(),
                    whole
                        .ranges
                        .iter()
                        .map(|range| (range.offset, range.extent.len, &range.device))
                        .collect::<Vec<_>>()
                ));
            }
        }
        Ok(())
    }
    /// Compares every byte and every checksum, and checks that no space is used twice.
    fn compare(&mut self) -> Check {
        self.tally.comparisons += 1;
        self.store.flush().map_err(text)?;
        let report = self.store.verify().map_err(text)?;
        if let Some(finding) = report.findings.first() {
            return Err(format!("verify: {finding:?}"));
        }
        let begin = Instant::now();
        loop {
            match self.doubled()? {
                None => break,
                Some(why) if begin.elapsed() > PATIENCE => return Err(format!("DOUBLED: {why}")),
                Some(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        self.read_all()
    }
    /// Used space that belongs to no object.
    fn doubled(&self) -> Check<Option<String>> {
        let devices = self.store.devices().map_err(text)?;
        let mut places: BTreeSet<(String, u64, u64, bool)> = BTreeSet::new();
        let mut copies = std::collections::BTreeMap::<String, u64>::new();
        for at in 0..self.model.len() {
            for range in self.store.explain(self.object(at).key()).map_err(text)?.ranges {
                let (extent, unit) = (&range.extent, 1u64 << SUM_UNIT_SHIFT);
                let (begin, end) = (u64::from(extent.skip), u64::from(extent.skip + extent.len));
                let (begin, end) = (begin / unit * unit, end.next_multiple_of(unit).min(u64::from(extent.run_len)));
                places.insert((range.device.clone(), extent.run_offset + begin, extent.run_offset + end, false));
                if let Some(copy) = crate::sim::copy_of(&range.why, &range.device) {
                    *copies.entry(copy).or_default() += (end - begin).next_multiple_of(4096);
                }
            }
        }
        for info in devices.iter().filter(|info| info.state != DeviceState::Failed) {
            let unit = u64::from(info.unit_bytes);
            let (mut live, mut reached) = (0, 0);
            for (_, begin, end, _) in places.iter().filter(|(device, ..)| *device == info.spec.name) {
                let (begin, end) = ((begin / unit * unit).max(reached), end.next_multiple_of(unit));
                live += end.saturating_sub(begin);
                reached = reached.max(end);
            }
            let most = live + copies.get(&info.spec.name).copied().unwrap_or(0);
            if !(live..=most).contains(&info.used_bytes) {
                return Ok(Some(format!(
                    "`{}` has {} bytes in use, objects have {live} there and copies {}",
                    info.spec.name,
                    info.used_bytes,
                    most - live
                )));
            }
        }
        Ok(None)
    }
}
