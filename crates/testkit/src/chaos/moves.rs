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

/// How long, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which bytes and lengths; and, if not every step is tried, which.
    pub seed: u64,
    /// Tries every `stride`-th step of each move.
    pub stride: u64,
    /// Stops after so long.
    pub limit: Duration,
    /// Where the store is to be; made, and removed if all went well.
    pub dir: PathBuf,
    /// Say what happens.
    pub verbose: bool,
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Daemons that died within a move.
    pub deaths: u64,
    /// Kinds of moves of which every step (every `stride`-th) was tried.
    pub kinds: u64,
    /// Comparisons of all bytes and of all space.
    pub comparisons: u64,
    /// Longest time in which a move with a death in it came to its end.
    pub longest: Duration,
    /// What was lost, doubled or stuck.
    pub failures: Vec<String>,
}

type Check<T = ()> = Result<T, String>;

/// No move takes longer, deaths and new daemons included.
const PATIENCE: Duration = Duration::from_secs(20);
const OBJECTS: u64 = 3;

/// A move, from a state that `prepare` makes.
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
    /// What each object holds.
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
    /// The move with a death at a step; false if it has fewer.
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
        // What was armed and not met is met by nothing else.
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
    /// The process that serves the store.
    fn daemon(&self) -> u64 {
        let _ = self.store.stats(); // so that there is one
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
    /// A daemon that was told to die later than the move lasted is replaced.
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
        // What is there already has nothing to do; anything else is why a move did not come about.
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
                // So that it is there alone.
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
            // A reader brings it.
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
    /// Readers and leases let go of a device within a moment.
    fn remove(&self, name: &str) -> Check {
        let begin = Instant::now();
        loop {
            match self.store.remove_device(name) {
                Ok(()) => return Ok(()),
                Err(error) if begin.elapsed() > PATIENCE => return Err(text(error)),
                // Done by the daemon that died after it.
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
    /// Every byte, every checksum, and no more space than what is there takes.
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
    /// Space in use that no object has.
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
