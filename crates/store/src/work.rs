//! Jobs: I/O that runs without the engine, on any thread.

use std::sync::Arc;

use cenote_device::aligned::AlignedBuf;
use cenote_device::{Clock, Device, Devices, MetaDir};
use cenote_model::{DeviceId, DeviceSpec, Error, ErrorKind, Result, Seen, StoreId, Timed};

use crate::sums::{UNIT, sum_of};
use crate::superblock::Stamp;
use crate::syncs::{Log, Syncs};

/// What a copy writes at once, at most; a multiple of the checksum unit.
const GATHERED_BYTES: usize = 4 << 20;

/// I/O to be done without the engine.
pub struct Job {
    pub(crate) id: u64,
    pub(crate) work: Work,
    pub(crate) clock: Arc<dyn Clock>,
}

/// A job that was run, to be given to [`crate::Engine::finish_job`].
pub struct JobDone {
    pub(crate) id: u64,
    pub(crate) result: Done,
    /// What copying showed of the devices.
    pub(crate) seen: Vec<(Arc<dyn Device>, Seen)>,
}

/// What a job does.
pub(crate) enum Work {
    SyncLog { file: Arc<Log> },
    SyncDevices { devices: Vec<(Arc<dyn Device>, Arc<Syncs>)> },
    Copy(Copy),
    MakeLog { meta: Arc<dyn MetaDir>, name: String, bytes: u64 },
    WriteCheckpoint { meta: Arc<dyn MetaDir>, name: String, bytes: Vec<u8>, remove: Vec<String> },
    Check { parts: Vec<Part> },
    Reopen { devices: Arc<dyn Devices>, store: StoreId, id: DeviceId, spec: Box<DeviceSpec> },
}

/// How it ended.
pub(crate) enum Done {
    SyncLog(Result<()>),
    /// The outcome for each device.
    SyncDevices(Vec<Result<()>>),
    /// The outcome for each part, and whether the target could not be synced.
    Copy(Vec<std::result::Result<(), CopyFailure>>, bool),
    MakeLog(Result<Arc<Log>>),
    WriteCheckpoint(Result<()>),
    /// What is wrong with each part.
    Check(Vec<Option<String>>),
    /// The device and what its stamp says.
    Reopen(Result<(Arc<dyn Device>, Stamp)>),
}

/// Whole checksum units of a run.
pub(crate) struct Part {
    pub device: Arc<dyn Device>,
    pub offset: u64,
    pub len: u32,
    pub sums: Vec<u32>,
}

/// Reads parts, checks them and writes them elsewhere.
pub(crate) struct Copy {
    pub parts: Vec<(Part, u64)>,
    pub target: Arc<dyn Device>,
    /// To be synced before it counts.
    pub syncs: Option<Arc<Syncs>>,
    /// To be read back and compared before it counts.
    pub read_back: bool,
}

/// Why a part was not copied.
#[derive(Clone, Debug)]
pub(crate) enum CopyFailure {
    /// The source cannot be read, or its bytes do not match their checksums.
    Source(Error),
    /// The target did not take it.
    Target(Error),
}

impl Job {
    /// What its time counts as.
    pub fn timed(&self) -> Timed {
        match self.work {
            Work::SyncLog { .. } => Timed::SyncJournal,
            Work::SyncDevices { .. } => Timed::SyncDevices,
            Work::Copy(_) => Timed::Copy,
            Work::MakeLog { .. } => Timed::MakeJournal,
            Work::WriteCheckpoint { .. } => Timed::Checkpoint,
            Work::Check { .. } => Timed::Verify,
            Work::Reopen { .. } => Timed::Reopen,
        }
    }
    /// Does the I/O.
    pub fn run(self) -> JobDone {
        let mut seen = Vec::new();
        let result = match self.work {
            Work::SyncLog { file } => Done::SyncLog(file.sync()),
            Work::SyncDevices { devices } => {
                Done::SyncDevices(devices.iter().map(|(device, syncs)| syncs.sync(device.as_ref())).collect())
            }
            Work::Copy(copy) => {
                let (results, sync_failed) = copy.run(&*self.clock, &mut seen);
                Done::Copy(results, sync_failed)
            }
            Work::MakeLog { meta, name, bytes } => Done::MakeLog(make_log(meta.as_ref(), &name, bytes)),
            Work::WriteCheckpoint { meta, name, bytes, remove } => {
                Done::WriteCheckpoint(write_checkpoint(meta.as_ref(), &name, &bytes, &remove))
            }
            Work::Reopen { devices, store, id, spec } => Done::Reopen(reopen(devices.as_ref(), store, id, &spec)),
            Work::Check { parts } => {
                let mut buffer = Vec::new();
                Done::Check(
                    parts.iter().map(|part| part.read(&mut buffer).err().map(|e| e.cause().to_owned())).collect(),
                )
            }
        };
        JobDone { id: self.id, result, seen }
    }
}

/// Opens a device that should be there.
fn reopen(devices: &dyn Devices, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<(Arc<dyn Device>, Stamp)> {
    let device = devices.open(store, id, spec, false)?.device;
    let stamp = Stamp::read(device.as_ref(), store, id)?;
    Ok((device, stamp))
}

fn make_log(meta: &dyn MetaDir, name: &str, bytes: u64) -> Result<Arc<Log>> {
    match meta.remove(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(Arc::new(Log::new(meta.create_log(name, bytes)?))),
    }
}

/// Writes a checkpoint and then removes what it makes superfluous.
pub(crate) fn write_checkpoint(meta: &dyn MetaDir, name: &str, bytes: &[u8], remove: &[String]) -> Result<()> {
    meta.write_file(name, bytes)?;
    for old in remove {
        // What cannot be removed now is removed after the next checkpoint, or at the next opening.
        let _ = meta.remove(old);
    }
    Ok(())
}

impl Part {
    /// Reads the part into `buffer` and checks it.
    pub fn read(&self, buffer: &mut Vec<u8>) -> Result<()> {
        buffer.resize(self.len as usize, 0);
        self.read_units(0, buffer)
    }
    /// Reads what begins at `from`, a multiple of the checksum unit, and checks it.
    fn read_units(&self, from: u32, into: &mut [u8]) -> Result<()> {
        self.device.read_at(self.offset + u64::from(from), into)?;
        let sums = self.sums.get((from / UNIT) as usize..).unwrap_or_default();
        let bad = into.chunks(UNIT as usize).zip(sums).position(|(unit, sum)| sum_of(unit) != *sum);
        match bad {
            None => Ok(()),
            Some(unit) => Err(Error::new(ErrorKind::Corrupt, "stored bytes").because(format!(
                "the checksum of 64 KiB at {} of the device does not match",
                self.offset + u64::from(from) + unit as u64 * u64::from(UNIT)
            ))),
        }
    }
}

/// Bytes on their way: what lies side by side at the target is written at once.
struct Gathered {
    /// Aligned, so that direct I/O takes it as it is.
    buffer: AlignedBuf,
    len: usize,
    /// Where on the target it goes.
    at: u64,
    /// First part with bytes in it.
    first: usize,
}

/// Takes the time of accesses, device by device.
struct Watch<'a> {
    clock: &'a dyn Clock,
    seen: &'a mut Vec<(Arc<dyn Device>, Seen)>,
}

impl Watch<'_> {
    /// Does it; what succeeds counts. A sync is part of writing and no access of its own (`bytes` 0).
    fn see<T>(
        &mut self,
        device: &Arc<dyn Device>,
        is_write: bool,
        bytes: usize,
        access: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let begin = self.clock.now_ns();
        let done = access()?;
        let ns = self.clock.now_ns().saturating_sub(begin);
        let same =
            |(other, seen): &&mut (Arc<dyn Device>, Seen)| Arc::ptr_eq(other, device) && seen.is_write == is_write;
        if let Some((_, seen)) = self.seen.iter_mut().find(same) {
            seen.accesses += u32::from(bytes > 0);
            seen.bytes += bytes as u64;
            seen.ns += ns;
        } else {
            let seen = Seen { is_write, accesses: 1, bytes: bytes as u64, ns, sharing: 1 };
            self.seen.push((Arc::clone(device), seen));
        }
        Ok(done)
    }
}

impl Copy {
    fn run(
        self,
        clock: &dyn Clock,
        seen: &mut Vec<(Arc<dyn Device>, Seen)>,
    ) -> (Vec<std::result::Result<(), CopyFailure>>, bool) {
        let mut results = Vec::with_capacity(self.parts.len());
        let mut gathered = Gathered { buffer: AlignedBuf::reused(GATHERED_BYTES), len: 0, at: 0, first: 0 };
        let mut watch = Watch { clock, seen };
        let failed_before = self.syncs.as_ref().map_or(0, |syncs| syncs.failed());
        for (i, (part, target_at)) in self.parts.iter().enumerate() {
            results.push(Ok(()));
            let mut done = 0;
            while done < part.len {
                let at = target_at + u64::from(done);
                if gathered.at + gathered.len as u64 != at || gathered.len == GATHERED_BYTES {
                    self.write(&mut gathered, &mut results, &mut watch);
                    (gathered.at, gathered.first) = (at, i);
                }
                let room = (GATHERED_BYTES - gathered.len) as u32;
                let n = (part.len - done).min(room);
                // A checksum needs its whole unit.
                let n = if done + n < part.len { n - n % UNIT } else { n };
                if n == 0 {
                    self.write(&mut gathered, &mut results, &mut watch);
                    (gathered.at, gathered.first) = (at, i);
                    continue;
                }
                let end = gathered.len + n as usize;
                let into = &mut gathered.buffer[gathered.len..end];
                if let Err(error) = watch.see(&part.device, false, n as usize, || part.read_units(done, into)) {
                    // Nothing in its place is written: the target may be where the only good bytes are.
                    results[i] = Err(CopyFailure::Source(error));
                    break;
                }
                let padded = end.next_multiple_of(self.target.unit_bytes() as usize).min(GATHERED_BYTES);
                gathered.buffer[end..padded].fill(0);
                gathered.len = padded;
                done += n;
            }
        }
        self.write(&mut gathered, &mut results, &mut watch);
        let Some(syncs) = &self.syncs else {
            self.read_back(&mut results);
            return (results, false);
        };
        let synced = watch.see(&self.target, true, 0, || syncs.sync(self.target.as_ref()));
        // One of another job that failed in between may have dropped these bytes.
        let trusted = syncs.failed() == failed_before;
        if synced.is_err() || !trusted {
            let meanwhile = || Error::new(ErrorKind::Io, "a device").because("a sync of it failed meanwhile");
            fail_all(&mut results, &synced.err().unwrap_or_else(meanwhile));
            return (results, true);
        }
        self.read_back(&mut results);
        (results, false)
    }
    /// Reads at the target what was written there, if that is wanted, and compares its checksums.
    fn read_back(&self, results: &mut [std::result::Result<(), CopyFailure>]) {
        if !self.read_back {
            return;
        }
        let mut buffer = Vec::new();
        for ((part, at), result) in self.parts.iter().zip(results).filter(|(_, result)| result.is_ok()) {
            let device = Arc::clone(&self.target);
            let written = Part { device, offset: *at, len: part.len, sums: part.sums.clone() };
            if let Err(error) = written.read(&mut buffer) {
                *result = Err(CopyFailure::Target(error));
            }
        }
    }
    fn write(
        &self,
        gathered: &mut Gathered,
        results: &mut [std::result::Result<(), CopyFailure>],
        watch: &mut Watch<'_>,
    ) {
        let write = || self.target.write_at(gathered.at, &gathered.buffer[..gathered.len]);
        if gathered.len > 0
            && let Err(error) = watch.see(&self.target, true, gathered.len, write)
        {
            fail_all(&mut results[gathered.first..], &error);
        }
        gathered.len = 0;
    }
}

/// The target failed: so did all that were well so far.
fn fail_all(results: &mut [std::result::Result<(), CopyFailure>], error: &Error) {
    for result in results.iter_mut().filter(|result| result.is_ok()) {
        *result = Err(CopyFailure::Target(error.clone()));
    }
}
