//! Opening of a store: checkpoint, journal, and rollback after power loss.

use std::sync::Arc;

use cenote_device::{LogFile, MetaDir};
use cenote_model::{DeviceState, Error, ErrorKind, Result, StoreId};

use super::Engine;
use super::core::{Core, slot_of, slot_of_tenant, slot_with};
use crate::checkpoint::{self, Head, decode};
use crate::home::Home;
use crate::journal::record::decode as decode_record;
use crate::journal::{self, CLOSED, Ended, FILE_BYTES_SHORT, Journal, Kind, Replayed, corrupt, read_all};
use crate::map::DeviceIndex;
use crate::space::{Bitmap, DeviceSlot, Tag};
use crate::state::EngineState;
use crate::superblock::{Stamp, Superblock, SuperblockDevice};
use crate::{RecoveryReport, Seams, Tuning};

/// Length of the first journal file of an opening. A file system in memory clears 64 MiB in 8 ms, for which the first
/// open of a file would wait. The next file has the usual length, and is made by a job.
const LOG_BYTES_FIRST: u64 = 1 << 20;

impl Engine {
    /// Opens the store in `seams.meta`.
    pub fn open(seams: Seams) -> Result<(Engine, RecoveryReport)> {
        Self::open_tuned(seams, Tuning::default())
    }

    /// Opens the store in `seams.meta` with a given tuning. Fails if superblock, checkpoint or journal are corrupt, or
    /// if a volatile device cannot be opened while its bytes may survive, or if the store has several engines.
    #[allow(clippy::needless_pass_by_value, reason = "the seams are the engine's, as in every other way to open one")]
    pub fn open_tuned(seams: Seams, settings: Tuning) -> Result<(Engine, RecoveryReport)> {
        let superblock = Superblock::read(seams.meta.as_ref())?;
        if superblock.homes.len() > 1 {
            return Err(Error::new(ErrorKind::Internal, "store")
                .because(format!("it has {} engines, and one was to be opened", superblock.homes.len())));
        }
        let opened = Self::open_homes(&seams, settings, &superblock)?;
        opened.into_iter().next().ok_or_else(|| Error::new(ErrorKind::Internal, "a store without engines"))
    }

    /// Opens one engine. `before`: those opened so far, the landlord first, which has decided what is lost.
    pub(in crate::engine) fn open_home(
        seams: Seams,
        settings: Tuning,
        superblock: &Superblock,
        home: Home,
        control_survived: bool,
        before: &[(Engine, RecoveryReport)],
    ) -> Result<(Engine, RecoveryReport)> {
        let meta = Arc::clone(&seams.meta);
        let (name, bytes) = newest_checkpoint(meta.as_ref())?;
        let mut report = RecoveryReport::default();
        let mut state = EngineState::default();
        let found = find_devices(&seams, superblock, home, before, &mut state, &mut report)?;
        let (head, beside) = decode(&name, &bytes, &mut state)?;
        if head.store != superblock.id {
            return Err(Error::new(ErrorKind::Corrupt, format!("checkpoint `{name}`"))
                .because("it belongs to another store")
                .try_next("put the right file in its place"));
        }
        report.checkpoint_epoch = head.epoch;
        let lost = check_stamps(&mut state, &found, &beside.incarnations, &mut report);
        let has_volatile = state.space.present().any(DeviceSlot::is_volatile);
        report.power_lost = !lost.is_empty() || (!has_volatile && !control_survived);
        begin_replay(&mut state, &beside.retired);
        let (ended, closed) = replay(meta.as_ref(), superblock, &head, &mut state, &mut report)?;
        report.epoch = state.epoch;
        report.repaired_indices =
            state.containers.disorder.iter().map(|(key, found)| (*key, found.to_string())).collect();
        if report.power_lost {
            go_back(&mut state, &lost, before, closed, &mut report);
        }
        state.space.replaying = false;
        let now_ns = seams.clock.now_ns();
        state.rebuild(now_ns)?;
        let journal = begin_journal(&seams, superblock, &head, &ended, settings)?;
        let mut engine = Self::assemble(seams, superblock, home, settings, state, journal);
        engine.activities.journaling.last.sequence = head.sequence;
        engine.activities.journaling.last.on_media = head.sequence;
        engine.activities.journaling.last.position = head.position;
        engine.activities.journaling.last.bytes = bytes.len();
        engine.activities.journaling.want_checkpoint_after_opening(&engine.core, ended.files);
        engine.core.recall_damage(superblock);
        engine.core.quarantine();
        if report.power_lost {
            engine.settle(&lost, &found)?;
        } else {
            engine.core.suspect_unsynced(!closed);
        }
        engine.core.state.space.present().for_each(DeviceSlot::retain_used);
        Ok((engine, report))
    }

    /// Writes the rolled back state to media, then stamps lost devices with new incarnations. `found`: the stamps on
    /// the devices; a tenant finds those that the landlord has written, and keeps them.
    fn settle(&mut self, lost: &[DeviceIndex], found: &[Option<Stamp>]) -> Result<()> {
        let unix_ms = self.core.seams.clock.unix_ms();
        // Epochs that the power loss took back come again, and with them births.
        let generation = &mut self.core.state.space.births.generation;
        *generation = generation.wrapping_add(1);
        let is_landlord = self.core.store.home.is_landlord();
        for dev in lost {
            let slot = self.core.state.space.get_mut(*dev);
            let stamped = found.get(usize::from(*dev)).copied().flatten().filter(|_| !is_landlord);
            slot.incarnation = stamped.map_or_else(|| unix_ms.max(slot.incarnation + 1), |stamp| stamp.incarnation);
        }
        self.activities.journaling.checkpoint_now(&mut self.core)?;
        if !is_landlord {
            return Ok(());
        }
        for dev in lost {
            let slot = self.core.state.space.get(*dev);
            let stamp = Stamp { store: self.core.store.id, device: slot.id, incarnation: slot.incarnation };
            if let Some(device) = &slot.device {
                stamp.write(device.as_ref())?;
            }
        }
        Ok(())
    }
}

impl Core {
    /// Quarantines space given up before the opening: surviving readers may still look at it.
    fn quarantine(&mut self) {
        let tag = Tag { epoch: self.seams.control.epoch(), journal: 0 };
        for slot in &mut self.state.space.slots {
            slot.quarantine(tag);
        }
        self.seams.control.epoch_raise();
    }
}

fn newest_checkpoint(meta: &dyn MetaDir) -> Result<(String, Arc<Vec<u8>>)> {
    let newest = meta.list()?.iter().filter_map(|name| checkpoint::sequence_of(name)).max();
    let Some(sequence) = newest else {
        return Err(Error::new(ErrorKind::Corrupt, "store")
            .because("the directory has a superblock but no checkpoint")
            .try_next(crate::RESTORE));
    };
    let name = checkpoint::file_name(sequence);
    let bytes = meta.read_file(&name)?;
    Ok((name, Arc::new(bytes)))
}

/// Takes the state back to what survives the loss of these devices. `closed`: the last engine was closed in order.
fn go_back(
    state: &mut EngineState,
    lost: &[DeviceIndex],
    before: &[(Engine, RecoveryReport)],
    closed: bool,
    report: &mut RecoveryReport,
) {
    if report.records_replayed == 0 {
        find_shared(state);
    }
    let mut sessions = std::mem::take(&mut state.sessions.open);
    (report.rolled_back, report.lost_objects) = state.roll_back(lost);
    // If nothing is missing, clients on other nodes go on: their bytes come with each change. Those of this node wrote into
    // memory that is gone.
    if closed && report.rolled_back.is_empty() && report.lost_objects.is_empty() {
        sessions.retain(|_, session| session.info.node.is_some());
        for session in sessions.values_mut() {
            session.pins.clear();
        }
        state.sessions.open = sessions;
    }
    for transaction in state.settle_power_loss() {
        tracing::warn!(%transaction, "its part here is lost, with the bytes that it was to write");
    }
    if !before.is_empty() {
        let has = |engine: &Engine, label: &str| engine.core.state.containers.by_label(label).is_some();
        state.containers.relabel_besides(&|label| before.iter().any(|(engine, _)| has(engine, label)));
    }
}

/// Opens the devices, or takes those that the landlord has opened. Returns their stamps.
fn find_devices(
    seams: &Seams,
    superblock: &Superblock,
    home: Home,
    before: &[(Engine, RecoveryReport)],
    state: &mut EngineState,
    report: &mut RecoveryReport,
) -> Result<Vec<Option<Stamp>>> {
    let mut found = Vec::new();
    match before.first() {
        None => {
            for device in &superblock.devices {
                let (slot, stamp) = open_device(seams, superblock.id, device, report)?;
                state.space.slots.push(slot);
                found.push(stamp);
            }
        }
        Some((landlord, _)) => {
            for slot in &landlord.core.state.space.slots {
                state.space.slots.push(slot_of_tenant(slot));
                let (store, device, incarnation) = (superblock.id, slot.id, slot.incarnation);
                found.push(Some(Stamp { store, device, incarnation }));
            }
        }
    }
    if let Some(loans) = superblock.homes.get(usize::from(home.index)).filter(|_| home.count > 1) {
        state.space.slots.iter_mut().for_each(|slot| slot.restrict(loans));
    }
    Ok(found)
}

/// Opens a device; returns its stamp if its bytes survived. A persistent device that cannot be opened is failed, not
/// fatal. A volatile one is fatal unless its bytes are known to be gone: the store would give them up as after a power
/// loss.
fn open_device(
    seams: &Seams,
    store: StoreId,
    device: &SuperblockDevice,
    report: &mut RecoveryReport,
) -> Result<(DeviceSlot, Option<Stamp>)> {
    let closed = || {
        let units = (device.unit_bytes, device.segment_bytes);
        slot_with(device.id, &device.spec, None, device.spec.capacity_bytes, units, device.incarnation)
    };
    if device.removed {
        return Ok((DeviceSlot { removed: true, ..closed() }, None));
    }
    let opened = seams.devices.open(store, device.id, &device.spec, false);
    let mut stamp = None;
    let persistent = device.spec.kind.is_persistent();
    let failure = match &opened {
        // Another copy of the store's directory uses the same bucket: changes of the two could not be told apart.
        Err(error) if device.spec.kind.is_object() && error.kind() == ErrorKind::Exists => return Err(error.clone()),
        // No room to make it anew.
        Err(error) if persistent || error.kind() == ErrorKind::Full => error.to_string(),
        Err(error) => return Err(volatile_in_doubt(&device.spec.name, error)),
        Ok(opened) if opened.survived && !persistent => {
            stamp = read_volatile_stamp(opened.device.as_ref(), store, device)
                .map_err(|error| volatile_in_doubt(&device.spec.name, &error))?;
            String::new()
        }
        Ok(opened) if opened.survived => match read_stamp(opened.device.as_ref(), store, device) {
            Ok(found) => {
                stamp = Some(found);
                String::new()
            }
            Err(error) => error.to_string(),
        },
        Ok(_) if persistent => "its bytes are gone".to_owned(),
        Ok(_) => String::new(),
    };
    let mut slot = match &opened {
        Ok(opened) => slot_of(device.id, &device.spec, opened, device.incarnation),
        Err(_) => closed(),
    };
    slot.state = if device.draining { DeviceState::Draining } else { DeviceState::Online };
    if !failure.is_empty() && persistent {
        slot.state = DeviceState::Failed;
        slot.device = None;
        slot.failure.clone_from(&failure);
        report.failed_devices.push((device.spec.name.clone(), failure));
    } else if opened.is_err() {
        slot.state = DeviceState::Failed;
        slot.failure.clone_from(&failure);
        report.failed_devices.push((device.spec.name.clone(), failure));
    }
    Ok((slot, stamp))
}

/// Returns the error for a volatile device whose bytes may or may not survive.
#[cold]
fn volatile_in_doubt(name: &str, error: &Error) -> Error {
    Error::new(error.kind(), format!("device `{name}`"))
        .because(format!("{error}; what is only there would be lost if the store were opened without it"))
        .try_next(
            "mend it and open the store again; or, if it is damaged beyond repair, delete its segment files in shared \
             memory: the store then goes back as after a power loss",
        )
}

/// Returns the stamp of a volatile device. `None`: a recovery made the device, and died before it wrote one.
fn read_volatile_stamp(
    device: &dyn cenote_device::Device,
    store: StoreId,
    expected: &SuperblockDevice,
) -> Result<Option<Stamp>> {
    let mut bytes = vec![0; Stamp::LEN];
    device.read_at(0, &mut bytes)?;
    if Stamp::is_missing(&bytes) { Ok(None) } else { read_stamp(device, store, expected).map(Some) }
}

fn read_stamp(device: &dyn cenote_device::Device, store: StoreId, expected: &SuperblockDevice) -> Result<Stamp> {
    Stamp::read(device, store, expected.id)
}

/// Returns the volatile devices that lost their bytes.
fn check_stamps(
    state: &mut EngineState,
    found: &[Option<Stamp>],
    incarnations: &[(cenote_model::DeviceId, u64)],
    report: &mut RecoveryReport,
) -> Vec<DeviceIndex> {
    let mut lost = Vec::new();
    for (i, slot) in state.space.slots.iter_mut().enumerate().filter(|(_, slot)| !slot.removed) {
        if let Some((_, incarnation)) = incarnations.iter().find(|(id, _)| *id == slot.id) {
            slot.incarnation = *incarnation;
        }
        let same = found.get(i).copied().flatten().is_some_and(|stamp| stamp.incarnation == slot.incarnation);
        if same {
            continue;
        }
        if slot.is_volatile() {
            lost.push(i as DeviceIndex);
        } else if slot.state != DeviceState::Failed {
            slot.state = DeviceState::Failed;
            slot.device = None;
            "it holds another life of this device".clone_into(&mut slot.failure);
            report.failed_devices.push((slot.spec.name.clone(), slot.failure.clone()));
        }
    }
    lost
}

/// Prepares a state for the replay; `retired`: space given up before.
pub(in crate::engine) fn begin_replay(state: &mut EngineState, retired: &[(cenote_model::DeviceId, u64, u64)]) {
    state.space.replaying = true;
    for slot in &mut state.space.slots {
        let unit = u64::from(slot.space.unit_bytes);
        let mut map = Bitmap::new(slot.space.map.units(), u64::MAX);
        for (_, offset, len) in retired.iter().filter(|(id, ..)| *id == slot.id) {
            map.mark(offset / unit, len / unit);
        }
        slot.space.replay_retired = Some(map);
    }
}

/// Counts the units that extents of the checkpoint share. A rebuild would do it later, but replay and rollback need the
/// counts before.
pub(in crate::engine) fn find_shared(state: &mut EngineState) {
    state.space.replay_shared(&state.objects, &state.containers);
}

/// Applies a record of the journal. Fails if it is malformed or contradicts the state.
pub(in crate::engine) fn replay_record(state: &mut EngineState, record: &Replayed<'_>) -> Result<()> {
    let entry = decode_record(record.kind, record.payload)
        .map_err(|malformed| corrupt(record.name, record.offset, malformed.0))?;
    state.replay(record.epoch, entry).map_err(|why| corrupt(record.name, record.offset, why))
}

/// Replays the journal. Returns where it ended, and whether its only content is the record of an orderly close.
fn replay(
    meta: &dyn MetaDir,
    superblock: &Superblock,
    head: &Head,
    state: &mut EngineState,
    report: &mut RecoveryReport,
) -> Result<(Ended, bool)> {
    let mut sequences: Vec<u64> = meta.list()?.iter().filter_map(|name| journal::sequence_of(name)).collect();
    sequences.sort_unstable();
    let (mut replayed, mut closed) = (0, false);
    let ended = read_all(meta, superblock.id, &sequences, head.journal_from, report.power_lost, &mut |record| {
        if record.kind == Kind::Synced && record.payload == CLOSED.to_le_bytes() {
            closed = true;
            return Ok(());
        }
        if replayed == 0 {
            find_shared(state);
        }
        replayed += 1;
        replay_record(state, &record)
    })?;
    report.records_replayed = replayed;
    if ended.torn {
        report.torn_tail = Some((journal::file_name(ended.sequence), ended.offset));
    }
    Ok((ended, closed && replayed == 0))
}

/// Continues the journal in a new file. The last file is on media before that, and the new one says where it ends.
fn begin_journal(
    seams: &Seams,
    superblock: &Superblock,
    head: &Head,
    ended: &Ended,
    settings: Tuning,
) -> Result<Journal> {
    let meta = &seams.meta;
    let last = meta.open_log(&journal::file_name(ended.sequence))?;
    // After a power loss too: an earlier opening may have begun this file, and died at its sync.
    write_again(last.as_ref(), 0, journal::HEADER_BYTES)?;
    write_again(last.as_ref(), ended.proven, ended.offset)?;
    last.sync()?;
    let names = meta.list()?;
    for name in &names {
        let useless = journal::sequence_of(name).is_some_and(|n| n > ended.sequence || n < head.journal_from)
            || checkpoint::sequence_of(name).is_some_and(|n| n < head.sequence);
        if useless {
            let _ = meta.remove(name); // harmless; a later checkpoint removes it
        }
    }
    let newest = names.iter().filter_map(|name| journal::sequence_of(name)).max().unwrap_or(0);
    let sequence = newest.max(ended.sequence) + 1;
    let previous = (ended.sequence, ended.offset);
    // After several openings without a checkpoint, make short files: they must not pile up however often an engine is
    // killed.
    let bytes = settings.log_bytes.min(if ended.files > 1 { FILE_BYTES_SHORT } else { LOG_BYTES_FIRST });
    let mut journal = Journal::begin(Arc::clone(meta), superblock.id, sequence, previous, ended.position, bytes)?;
    journal.next.file_bytes = settings.log_bytes;
    journal::write_continued(last.as_ref(), ended.offset, sequence);
    Ok(journal)
}

/// Rewrites the range `[from, to)` of a log. A failed sync of an earlier process may have left pages clean in memory
/// but not on media, and the next sync would not report that.
fn write_again(log: &dyn LogFile, mut from: u64, to: u64) -> Result<()> {
    let mut bytes = vec![0; (1 << 20).min(to.saturating_sub(from)) as usize];
    while from < to {
        let part = &mut bytes[..(1 << 20).min(to - from) as usize];
        log.read(from, part)?;
        log.write(from, part)?;
        from += part.len() as u64;
    }
    Ok(())
}
