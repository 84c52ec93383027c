//! Fault sweeps: every I/O of a workload fails in turn, or is the last one before the death of the process or a power
//! loss; and every class of byte that a store keeps is changed in turn. The result must always be an error or a repair:
//! never a panic, a hang, a wrong byte, or the silent loss of something acknowledged.

mod segments;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cenote_device::{Control as _, Devices as _, MetaDir as _};
use cenote_model::{ErrorKind, Result as ModelResult};
use cenote_store::{Engine, SessionInfo};

use crate::rng::Rng;
use crate::sim::{Inject, Prepared, prepare, run_injected};
use crate::survey::survey;
use crate::world::World;

pub use segments::{segments_dir, sweep_segments};

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
}

/// Results of a sweep.
#[derive(Debug, Default)]
pub struct Report {
    /// Cases tried.
    pub cases: u64,
    /// Cases in which the store reported the fault.
    pub errors: u64,
    /// Cases in which the store continued with correct content.
    pub repaired: u64,
    /// Panics, hangs, wrong bytes, silent losses.
    pub failures: Vec<String>,
}

impl Report {
    fn add(&mut self, other: Report) {
        self.cases += other.cases;
        self.errors += other.errors;
        self.repaired += other.repaired;
        self.failures.extend(other.failures);
    }
}

/// Aborts the process, with a message, if no progress is reported for too long.
pub struct Watchdog {
    begin: Instant,
    beat_ms: AtomicU64,
    what: Mutex<String>,
}

impl Watchdog {
    /// Starts watching, on its own thread.
    pub fn start(limit: Duration) -> std::sync::Arc<Self> {
        let dog = std::sync::Arc::new(Self {
            begin: Instant::now(),
            beat_ms: AtomicU64::new(0),
            what: Mutex::new("nothing yet".into()),
        });
        let watched = std::sync::Arc::clone(&dog);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(200));
                // Nobody else holds it: the watched work is done.
                if std::sync::Arc::strong_count(&watched) == 1 {
                    return;
                }
                let silent = watched.begin.elapsed().as_millis() as u64 - watched.beat_ms.load(Ordering::Relaxed);
                if silent > limit.as_millis() as u64 {
                    let what = watched.what.lock().map(|what| what.clone()).unwrap_or_default();
                    eprintln!("HANG: {what} takes longer than {limit:?}");
                    std::process::exit(3);
                }
            }
        });
        dog
    }
    /// Reports progress: `what` begins now.
    pub fn beat(&self, what: impl FnOnce() -> String) {
        if let Ok(mut text) = self.what.lock() {
            *text = what();
        }
        self.beat_ms.store(self.begin.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}

/// For every `stride`-th I/O of a seed's workload: an error there, the death of the process there, a power loss there.
pub fn sweep_io(seed: u64, stride: u64, dog: &Watchdog) -> Report {
    let mut report = Report::default();
    dog.beat(|| format!("seed {seed} without faults"));
    let ios = match run_injected(seed, Inject::Calm) {
        Ok(summary) => summary.ios,
        Err(failure) => {
            report.failures.push(failure.to_string());
            return report;
        }
    };
    for at in (0..ios).step_by(stride.max(1) as usize) {
        for inject in [Inject::Fail(at, 1), Inject::Fail(at, 20), Inject::Die(at), Inject::Power(at)] {
            dog.beat(|| format!("seed {seed} {inject:?}"));
            report.cases += 1;
            match run_injected(seed, inject) {
                Ok(_) => report.repaired += 1,
                Err(failure) => report.failures.push(format!("{inject:?}: {failure}")),
            }
        }
    }
    report
}

/// A copy of a store at rest, from which any number of worlds can be created.
pub struct Snapshot {
    prepared: Prepared,
    files: Vec<(String, u64, Vec<u8>)>,
    devices: Vec<Vec<u8>>,
}

impl Snapshot {
    /// Takes the copy.
    pub fn take(prepared: Prepared) -> ModelResult<Self> {
        let mut files = Vec::new();
        for name in prepared.world.meta.list()? {
            let mut bytes = prepared.world.meta.read_file(&name)?;
            let size = bytes.len() as u64;
            let content = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            bytes.truncate(content);
            files.push((name, size, bytes));
        }
        let mut devices = Vec::new();
        for info in &prepared.devices {
            let opened = prepared.world.devices.open(prepared.id, info.id, &info.spec, false)?;
            let mut bytes = vec![0; opened.device.capacity_bytes() as usize];
            opened.device.read_at(0, &mut bytes)?;
            devices.push(bytes);
        }
        Ok(Self { prepared, files, devices })
    }
    /// The files of the store directory, with size, and content up to the last byte that is not zero.
    pub fn files(&self) -> &[(String, u64, Vec<u8>)] {
        &self.files
    }
    /// A world with the same store, without any loss; its control table is as after a restart of the machine's
    /// programs, not of the machine.
    fn world(&self) -> ModelResult<World> {
        let world = World::new(self.prepared.world.segment_bytes, 64);
        for (name, size, bytes) in &self.files {
            let log = world.meta.create_log(name, *size)?;
            log.write(0, bytes)?;
            log.sync()?;
        }
        for (info, bytes) in self.prepared.devices.iter().zip(&self.devices) {
            let opened = world.devices.open(self.prepared.id, info.id, &info.spec, true)?;
            for (at, page) in bytes.chunks(4096).enumerate() {
                if page.iter().any(|byte| *byte != 0) {
                    opened.device.write_at(at as u64 * 4096, page)?;
                }
            }
            opened.device.sync()?;
        }
        world.control.attach(self.prepared.id)?;
        world.control.instance_raise();
        Ok(world)
    }
    /// Opens a copy that `bend` has changed, and judges the result.
    fn case(&self, what: &str, bend: impl FnOnce(&World)) -> Result<bool, String> {
        let world = self.world().map_err(|e| format!("{what}: copy: {e:?}"))?;
        bend(&world);
        let attempt = catch_unwind(AssertUnwindSafe(|| self.open_and_look(&world)));
        match attempt {
            Ok(verdict) => verdict.map_err(|e| format!("{what}: {e}")),
            Err(panic) => Err(format!("{what}: PANIC {}", panic_text(panic.as_ref()))),
        }
    }
    /// `true`: the store reported a fault. `false`: all content is correct.
    fn open_and_look(&self, world: &World) -> Result<bool, String> {
        let (mut engine, report) = match Engine::open_tuned(world.seams(), self.prepared.tuning) {
            Ok(opened) => opened,
            Err(error) if error.kind() == ErrorKind::Internal => return Err(format!("{error:?}")),
            Err(_) => return Ok(true),
        };
        let info = SessionInfo { nonce: u128::MAX, pid: 1, started: 1, uid: 0, write: false, ..SessionInfo::default() };
        let session = engine.session_open(info).map_err(|e| format!("session: {e:?}"))?;
        let found = survey(&mut engine, session, 1000)?;
        let mut oracle = self.prepared.oracle.clone();
        let entries = oracle.len();
        match found.observed.compare(oracle.current()) {
            Ok(()) => Ok(!found.refusals.is_empty()),
            // The very last record cannot be told from one that was being written when the process died.
            Err(_) if report.torn_tail.is_some() && oracle.forget_last_answer() => {
                let survived = oracle.after_process_death(&found.observed)?;
                if survived + 1 >= entries { Ok(true) } else { Err(format!("{survived} of {entries} entries left")) }
            }
            Err(difference) => Err(format!("opened as if all were well, but {difference} ({report:?})")),
        }
    }
}

/// Changes bytes of the store directory and of the devices, one at a time.
///
/// Of each file, the first `dense` bytes are all tried and of the rest every `stride`-th; of the data every
/// `stride`-th.
pub fn sweep_bytes(seed: u64, clean: bool, dense: usize, stride: usize, dog: &Watchdog) -> Report {
    let mut report = Report::default();
    dog.beat(|| format!("seed {seed}: preparation"));
    let snapshot = match prepare(seed, 120, clean).and_then(|p| Snapshot::take(p).map_err(|e| format!("{e:?}"))) {
        Ok(snapshot) => snapshot,
        Err(message) => {
            report.failures.push(format!("seed {seed}: {message}"));
            return report;
        }
    };
    let mut rng = Rng::new(seed);
    let mut note = |verdict: Result<bool, String>| {
        report.cases += 1;
        match verdict {
            Ok(true) => report.errors += 1,
            Ok(false) => report.repaired += 1,
            Err(message) => report.failures.push(format!("seed {seed} clean {clean}: {message}")),
        }
    };
    for (name, _, bytes) in &snapshot.files {
        let places = (0..bytes.len().min(dense)).chain((dense..bytes.len()).step_by(stride.max(1)));
        for at in places {
            let xor = *rng.pick(&[1u8, 0x80, 0xFF, 0x10]);
            let what = format!("byte {at} of file {name} xor {xor:#x}");
            dog.beat(|| format!("seed {seed}: {what}"));
            note(snapshot.case(&what, |world| {
                world.meta.corrupt(name, at as u64, xor);
            }));
        }
        let what = format!("file {name} missing");
        dog.beat(|| format!("seed {seed}: {what}"));
        note(snapshot.case(&what, |world| {
            let _ = world.meta.remove(name);
        }));
        for keep in [0, bytes.len() / 2, bytes.len().saturating_sub(1)] {
            let what = format!("file {name} cut to {keep} of {} bytes", bytes.len());
            dog.beat(|| format!("seed {seed}: {what}"));
            note(snapshot.case(&what, |world| {
                let _ = world.meta.write_file(name, &bytes[..keep]);
            }));
        }
    }
    for used in &snapshot.prepared.used {
        for at in (0..used.len).step_by(stride.max(1) * 7) {
            let what = format!("byte {} of device {}", used.offset + at, used.device);
            dog.beat(|| format!("seed {seed}: {what}"));
            note(snapshot.case(&what, |world| {
                world.devices.corrupt(snapshot.prepared.id, used.device, used.offset + at, 4);
            }));
        }
    }
    report
}

/// All sweeps over several seeds.
pub fn sweep(seeds: std::ops::Range<u64>, io_stride: u64, byte_stride: usize, dog: &Watchdog) -> Report {
    let mut report = Report::default();
    for seed in seeds {
        report.add(sweep_io(seed, io_stride, dog));
        let dense = if byte_stride == 1 { usize::MAX } else { 64 };
        for clean in [true, false] {
            report.add(sweep_bytes(seed, clean, dense, byte_stride, dog));
        }
    }
    report
}
