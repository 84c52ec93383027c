//! Jobs: I/O that runs without the engine, on any thread.

use std::sync::Arc;

use cenote_device::aligned::AlignedBuf;
use cenote_device::{Clock, Device, Devices, MetaDir};
use cenote_model::{DeviceId, DeviceSpec, ErrorKind, Result, Seen, StoreId, Timed};

use crate::copying::{Copied, Copy, Part, Unread};
use crate::engine::Carried;
use crate::superblock::Stamp;
use crate::syncs::{Log, Syncs};
use crate::value_io::{Batched, ReadValues, WriteValues};

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
    SyncLog {
        file: Arc<Log>,
    },
    SyncDevices {
        devices: Vec<(Arc<dyn Device>, Arc<Syncs>)>,
    },
    Copy(Copy),
    MakeLog {
        meta: Arc<dyn MetaDir>,
        name: String,
        bytes: u64,
    },
    WriteCheckpoint {
        meta: Arc<dyn MetaDir>,
        name: String,
        bytes: Vec<u8>,
        remove: Vec<String>,
    },
    Check {
        parts: Vec<Part>,
    },
    /// Ranges are read into one answer; what none of them fills are zeros.
    Read {
        parts: Vec<Carried>,
        bytes: usize,
    },
    /// Bytes are written into runs, zeros behind them.
    Deposit {
        device: Arc<dyn Device>,
        runs: Vec<(u64, u64)>,
        bytes: Vec<u8>,
    },
    ReadValues(ReadValues),
    WriteValues(WriteValues),
    Reopen {
        devices: Arc<dyn Devices>,
        store: StoreId,
        id: DeviceId,
        spec: Box<DeviceSpec>,
    },
    /// Makes a device, of that incarnation, or forgets it.
    Change {
        devices: Arc<dyn Devices>,
        store: StoreId,
        id: DeviceId,
        spec: Box<DeviceSpec>,
        incarnation: Option<u64>,
    },
}

/// How it ended.
pub(crate) enum Done {
    SyncLog(Result<()>),
    /// The outcome for each device.
    SyncDevices(Vec<Result<()>>),
    /// The outcome for each part, and whether the target could not be synced.
    Copy(Vec<Copied>, bool),
    MakeLog(Result<Arc<Log>>),
    WriteCheckpoint(Result<()>),
    Read(std::result::Result<Vec<u8>, Unread>),
    Deposit(Result<()>),
    /// What is wrong with each part.
    Check(Vec<Option<String>>),
    /// The bytes of each value.
    ReadValues(Vec<Vec<u8>>, Option<Unread>),
    /// Checksums of the batch and digests of the values in it.
    WriteValues(Result<Batched>),
    /// The device and what its stamp says.
    Reopen(Result<(Arc<dyn Device>, Stamp)>),
    /// The device, if one was to be made.
    Change(Result<Option<Arc<dyn Device>>>),
}

impl Job {
    /// What its time counts as.
    pub fn timed(&self) -> Timed {
        match self.work {
            Work::SyncLog { .. } => Timed::SyncJournal,
            Work::SyncDevices { .. } => Timed::SyncDevices,
            Work::Copy(_) | Work::WriteValues(_) | Work::Read { .. } | Work::Deposit { .. } => Timed::Copy,
            Work::MakeLog { .. } => Timed::MakeJournal,
            Work::WriteCheckpoint { .. } => Timed::Checkpoint,
            Work::Check { .. } | Work::ReadValues(_) => Timed::Verify,
            Work::Reopen { .. } | Work::Change { .. } => Timed::Reopen,
        }
    }
    /// True if it is done soon and others wait for what comes of it: it should not be queued behind copies, which take long.
    pub fn is_brief(&self) -> bool {
        matches!(self.work, Work::SyncLog { .. })
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
            Work::Change { devices, store, id, spec, incarnation } => Done::Change(match incarnation {
                Some(incarnation) => make_stamped(devices.as_ref(), store, id, &spec, incarnation).map(Some),
                None => devices.remove(store, id, &spec).map(|()| None),
            }),
            Work::Read { parts, bytes } => Done::Read(read(&parts, bytes)),
            Work::Deposit { device, runs, bytes } => Done::Deposit(deposit(device.as_ref(), &runs, &bytes)),
            Work::ReadValues(reads) => {
                let (values, unread) = reads.run();
                Done::ReadValues(values, unread)
            }
            Work::WriteValues(write) => Done::WriteValues(write.run()),
            Work::Check { parts } => {
                let mut buffer = Vec::new();
                Done::Check(
                    parts.iter().map(|part| part.check(&mut buffer).err().map(|e| e.cause().to_owned())).collect(),
                )
            }
        };
        JobDone { id: self.id, result, seen }
    }
}

fn read(parts: &[Carried], bytes: usize) -> std::result::Result<Vec<u8>, Unread> {
    let mut all = vec![0; bytes];
    let mut buffer = Vec::new();
    for Carried { part, from, len, to } in parts {
        let read = part.read_range(*from, &mut all[*to..*to + *len as usize], &mut buffer);
        read.map_err(|error| part.unread(error))?;
    }
    Ok(all)
}

fn deposit(device: &dyn Device, runs: &[(u64, u64)], mut bytes: &[u8]) -> Result<()> {
    for (offset, len) in runs {
        let (head, rest) = bytes.split_at(bytes.len().min(*len as usize));
        let mut padded = AlignedBuf::reused(*len as usize);
        padded[..head.len()].copy_from_slice(head);
        padded[head.len()..*len as usize].fill(0);
        device.write_at(*offset, &padded[..*len as usize])?;
        bytes = rest;
    }
    Ok(())
}

/// Makes a device and writes its stamp.
pub(crate) fn make_stamped(
    devices: &dyn Devices,
    store: StoreId,
    id: DeviceId,
    spec: &DeviceSpec,
    incarnation: u64,
) -> Result<Arc<dyn Device>> {
    let device = devices.open(store, id, spec, true)?.device;
    let stamp = Stamp { store, device: id, incarnation };
    device.write_at(0, &stamp.encode()).and_then(|()| device.sync())?;
    Ok(device)
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
