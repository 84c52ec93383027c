//! Which job is next.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use cenote_device::Device;
use cenote_model::{ContainerId, Speed};

use super::Engine;
use super::checkpoint::NextFile;
use crate::journal::file_name;
use crate::packing::Packing;
use crate::persist::{Cut, DeviceSet, DrainItem, Stage};
use crate::placing::{Identity, Placing};
use crate::sums::UNIT;
use crate::work::{Job, Work};

/// Bytes of a pack of a tier in an object service that says nothing else.
const PACK_BYTES: u64 = 16 << 20;
/// Larger packs are filled by several jobs: what one of them takes is lost if it fails.
const PACK_JOB_BYTES_MAX: u64 = 64 << 20;

/// Jobs under way.
#[derive(Default)]
pub(super) struct Jobs {
    next_id: u64,
    pub running: BTreeMap<u64, Running>,
}

/// What the engine needs to know when a job comes back.
pub(super) struct Running {
    /// Reader epoch when it began: space retired since then on devices that it uses is not given out before it ends.
    pub epoch: u64,
    /// The slots of devices whose space it reads or writes; `None`: any.
    uses: Option<Vec<u8>>,
    pub what: What,
}

pub(super) enum What {
    SyncLog {
        position: u64,
        sequence: u64,
    },
    SyncDevices {
        /// Each with the number of syncs of it that had failed before.
        slots: Vec<(u8, u64)>,
        cuts: Vec<u64>,
    },
    /// Copies for a cut: what to place, what is reserved for it (device slot, offset, bytes), and what to queue again.
    Copy {
        cut: u64,
        parts: Vec<CopyPart>,
    },
    /// Moves that no cut waits for.
    Move {
        parts: Vec<CopyPart>,
        leaving: u8,
    },
    /// Moves that policies, readers or people want.
    Relocate {
        parts: Vec<CopyPart>,
        relocations: Vec<super::tiering::Relocation>,
        began_ns: u64,
    },
    /// What is compressed where it is.
    Repack {
        parts: Vec<CopyPart>,
    },
    /// What is written again in place for a cut.
    Rewrite {
        cut: u64,
        container: ContainerId,
        targets: Vec<super::rewrite::Suspect>,
    },
    MakeLog {
        sequence: u64,
    },
    Checkpoint,
    /// A device that was away is opened.
    Reopen {
        dev: u8,
    },
    Check(super::verify::Slice),
    /// Copies are looked at, since what they are copies of cannot be read.
    Rescue(Box<super::tiering::Rescue>),
    /// The places that copies are spare besides are looked at.
    Spare(Vec<Placing>),
    /// Bytes are read for who may not map the devices: who waits, of which object, of what size.
    Read {
        ticket: crate::Ticket,
        key: cenote_model::ObjectKey,
        size: u64,
    },
    /// Bytes are written for them.
    Deposit(Box<super::carry::Deposit>),
    /// A bad copy is written again.
    Mend(Box<super::mending::Mend>),
    /// Values are read for those who asked.
    Values(Box<super::values::Reading>),
    /// Values are written to a log.
    Spill(Box<super::values::Spilling>),
    /// A device is made or forgotten.
    Change(Box<super::changes::Change>),
}

pub(super) struct CopyPart {
    pub placing: Placing,
    pub reserved: (u8, u64, u64),
    pub again: Option<DrainItem>,
}

impl Jobs {
    /// The reader epoch at which the oldest job began that uses this device. What moves between slow devices takes long, and must
    /// not keep what is overwritten in memory meanwhile from being given out again.
    pub fn min_epoch(&self, dev: u8) -> u64 {
        let uses = |running: &&Running| running.uses.as_ref().is_none_or(|uses| uses.contains(&dev));
        self.running.values().filter(uses).map(|running| running.epoch).min().unwrap_or(u64::MAX)
    }
    /// The extents that copies for cuts are being made of.
    pub fn copied(&self) -> HashSet<Identity> {
        let parts = self.running.values().filter_map(|running| match &running.what {
            What::Copy { parts, .. } => Some(parts),
            _ => None,
        });
        parts.flatten().map(|part| part.placing.was).collect()
    }
    /// The devices that are being synced for cuts.
    fn syncing(&self) -> DeviceSet {
        let mut all = DeviceSet::default();
        for running in self.running.values() {
            if let What::SyncDevices { slots, .. } = &running.what {
                for (dev, _) in slots {
                    all.add(*dev);
                }
            }
        }
        all
    }
    pub fn count(&self, fits: impl Fn(&What) -> bool) -> usize {
        self.running.values().filter(|running| fits(&running.what)).count()
    }
}

impl Engine {
    /// The next job, to be run on any thread. Several may run at once.
    pub fn next_job(&mut self) -> Option<Job> {
        self.update_clock();
        self.mend_journal_if_due();
        self.next_values()
            .or_else(|| self.next_sync_devices())
            .or_else(|| self.next_sync_log())
            .or_else(|| self.next_carrying())
            .or_else(|| self.next_rewrite())
            .or_else(|| self.next_rescue())
            .or_else(|| self.next_spare())
            .or_else(|| self.next_mend())
            .or_else(|| self.next_relocation())
            .or_else(|| self.next_copy())
            .or_else(|| self.next_move())
            .or_else(|| self.next_spill())
            .or_else(|| self.next_checkpoint())
            .or_else(|| self.next_log())
            .or_else(|| self.next_change())
            .or_else(|| self.next_check())
            .or_else(|| self.next_reopen())
            .or_else(|| self.next_repack())
    }

    /// Bytes of one job that copies to a device: each is synced by itself to an object service, so that it should fill a
    /// pack.
    pub(super) fn job_bytes(&self, dev: u8) -> u64 {
        let slot = self.state.space.get(dev);
        if !slot.forgets_unsynced() {
            return self.settings.copy_bytes;
        }
        let pack = slot.spec.options.get("pack").and_then(|text| cenote_model::size::parse(text).ok());
        let pack = pack.unwrap_or(PACK_BYTES).min(PACK_JOB_BYTES_MAX);
        // What is compressed takes more to fill it.
        let times = slot.unpacked_bytes.checked_div(slot.packed_bytes).unwrap_or(1).clamp(1, 4);
        self.settings.copy_bytes.max(pack * times)
    }

    /// The same for the copies of a cut, as long as their device is not known.
    pub(super) fn cut_job_bytes(&self) -> u64 {
        let dev = self.device_for(self.settings.copy_bytes, None, &[]);
        dev.map_or(self.settings.copy_bytes, |dev| self.job_bytes(dev))
    }

    /// What a copy to a device needs to know in order to compress; `None` if it does not.
    pub(super) fn packing_for(&self, dev: u8) -> Option<Packing> {
        let slot = self.state.space.get(dev);
        let fits = slot.unit_bytes.is_power_of_two() && slot.unit_bytes <= UNIT;
        let wanted = slot.compresses().filter(|_| fits)?;
        Some(Packing {
            wanted,
            speed: slot.speed.unwrap_or_else(|| Speed::usual(slot.spec.kind)),
            grain_bytes: slot.unit_bytes,
            segment_bytes: slot.segment_bytes,
            only_smaller: false,
            rates: Arc::clone(&self.rates),
        })
    }

    pub(super) fn start(&mut self, what: What, work: Work) -> Job {
        self.jobs.next_id += 1;
        let id = self.jobs.next_id;
        let uses = self.used_by(&work);
        self.jobs.running.insert(id, Running { epoch: self.seams.control.epoch(), uses, what });
        Job { id, work, clock: Arc::clone(&self.seams.clock) }
    }

    /// The slots of devices whose space a job reads or writes: where copies come from, and where they go, which may be a place
    /// that is written again. `None` if that is not known. A job that is listed here without devices may take as long as a disk
    /// likes, and what is given up meanwhile is free all the same.
    fn used_by(&self, work: &Work) -> Option<Vec<u8>> {
        let devices: Vec<&Arc<dyn Device>> = match work {
            Work::SyncLog { .. }
            | Work::MakeLog { .. }
            | Work::WriteCheckpoint { .. }
            | Work::Reopen { .. }
            | Work::Change { .. } => Vec::new(),
            Work::SyncDevices { devices } => devices.iter().map(|(device, _)| device).collect(),
            Work::Copy(copy) => copy.pieces.iter().map(|piece| &piece.part.device).chain([&copy.target]).collect(),
            Work::Check { parts } => parts.iter().map(|part| &part.device).collect(),
            Work::Read { parts, .. } => parts.iter().map(|carried| &carried.part.device).collect(),
            Work::Deposit { device, .. } => vec![device],
            Work::ReadValues(reads) => reads.parts.iter().map(|part| &part.device).collect(),
            Work::WriteValues(write) => vec![&write.target],
        };
        let mut uses: Vec<u8> = Vec::new();
        let mut last: Option<&Arc<dyn Device>> = None;
        for device in devices {
            if last.is_some_and(|last| Arc::ptr_eq(last, device)) {
                continue;
            }
            last = Some(device);
            let is_it =
                |slot: &crate::space::DeviceSlot| slot.device.as_ref().is_some_and(|it| Arc::ptr_eq(it, device));
            let slot = self.state.space.slots.iter().position(is_it)? as u8;
            if !uses.contains(&slot) {
                uses.push(slot);
            }
        }
        Some(uses)
    }

    fn next_sync_devices(&mut self) -> Option<Job> {
        self.advance_cuts();
        self.suspect_closed();
        let now = self.state.now_ns;
        let ready = |cut: &&Cut| cut.stage == Stage::Copied && cut.retry_ns <= now && !self.state.has_suspect(cut);
        // What is being synced has to be waited for: what a cut wrote before that began is on media only then.
        let busy = self.jobs.syncing();
        let present = self.state.space.present_set();
        let wrote = |cut: &Cut| cut.wrote.common(present);
        let free = |cut: &&Cut| ready(cut) && !wrote(cut).meets(busy);
        let pending = &self.state.cuts.pending;
        let first = pending.values().filter(free).max_by_key(|cut| (cut.urgent, std::cmp::Reverse(cut.id)))?;
        // A slow device holds up only those who wrote there: each set of devices is synced by itself.
        let set = wrote(first);
        let with = |cut: &&Cut| ready(cut) && wrote(cut).is_within(set);
        let cuts: Vec<u64> = pending.values().filter(with).map(|cut| cut.id).collect();
        for cut in &cuts {
            if let Some(cut) = self.state.cuts.get_mut(*cut) {
                cut.stage = Stage::Syncing;
            }
        }
        let mut slots = Vec::new();
        let mut devices = Vec::new();
        for (i, slot) in self.state.space.slots.iter_mut().enumerate().filter(|(i, _)| set.has(*i as u8)) {
            if let (true, Some(device)) = (std::mem::take(&mut slot.unsynced), &slot.device) {
                slots.push((i as u8, slot.failed_syncs));
                devices.push((Arc::clone(device), Arc::clone(&slot.syncs)));
            }
        }
        Some(self.start(What::SyncDevices { slots, cuts }, Work::SyncDevices { devices }))
    }

    fn next_sync_log(&mut self) -> Option<Job> {
        if self.journal.is_tainted() || self.journal.synced() >= self.journal.position() {
            self.journal_dirty_since_ns = None;
            return None;
        }
        if self.jobs.count(|what| matches!(what, What::SyncLog { .. })) > 0 {
            return None;
        }
        let since = self.journal_dirty_since_ns.unwrap_or(0);
        let due = self.state.now_ns.saturating_sub(since) >= self.settings.group_commit_ns;
        if !due && self.journal_wanted() <= self.journal.synced() {
            return None;
        }
        self.journal_dirty_since_ns = None;
        let (file, position) = self.journal.to_sync();
        let sequence = self.journal.sequence;
        Some(self.start(What::SyncLog { position, sequence }, Work::SyncLog { file }))
    }

    fn next_log(&mut self) -> Option<Job> {
        let sequence = self.journal.make_spare(self.checkpoint.file == NextFile::Wanted)?;
        let work = Work::MakeLog {
            meta: Arc::clone(&self.seams.meta),
            name: file_name(sequence),
            bytes: self.settings.log_bytes,
        };
        Some(self.start(What::MakeLog { sequence }, work))
    }
}

#[cfg(test)]
mod tests {
    use cenote_model::{ObjectId, ObjectKey};

    use super::*;
    use crate::placing::{Action, Target};

    /// What a cut copies is not copied a second time for others that are the same bytes.
    #[test]
    fn the_extents_that_are_being_copied_are_known() {
        let part = |at: u64| {
            let key = ObjectKey { container: ContainerId(1), object: ObjectId(1) };
            let placing =
                Placing { target: Target::Live { key, offset: at }, was: (0, at, 0, 512), action: Action::DropCopy };
            CopyPart { placing, reserved: (1, 0, 4096), again: None }
        };
        let mut jobs = Jobs::default();
        assert!(jobs.copied().is_empty());
        let running = |what| Running { epoch: 1, uses: None, what };
        jobs.running.insert(1, running(What::Copy { cut: 1, parts: vec![part(512), part(1024)] }));
        jobs.running.insert(2, running(What::Move { parts: vec![part(2048)], leaving: 0 }));
        jobs.running.insert(3, running(What::Copy { cut: 2, parts: vec![part(4096)] }));
        assert_eq!(jobs.copied(), [512, 1024, 4096].map(|at| (0, at, 0, 512)).into());
    }
}
