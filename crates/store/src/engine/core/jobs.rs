//! Running jobs: their epochs, effects, purposes and reserved space.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use cenote_device::Device;
use cenote_model::Speed;

use super::Core;
use crate::copying::{Copied, Copy};
use crate::engine::activity::Registered;
use crate::map::DeviceIndex;
use crate::packing::{Packing, Rates};
use crate::persist::DrainItem;
use crate::placing::{Identity, Placing};
use crate::space::DeviceSlot;
use crate::sums::UNIT;
use crate::work::{Finish, Job, JobId, Work};

/// Pack size of an object service tier that sets none.
const PACK_BYTES: u64 = 16 << 20;
/// Larger packs are filled by several jobs, because a failed job loses all its work.
const PACK_JOB_BYTES_MAX: u64 = 64 << 20;

/// The running jobs.
pub struct Jobs {
    /// Tells this engine's jobs from those of other engines in the process.
    engine: u64,
    next_number: u64,
    running: BTreeMap<u64, Running>,
    /// Bytes that are read outside of the engine: their device, the reader epoch at which they were lent, and whether they
    /// still are.
    lent: Vec<(DeviceIndex, u64, Weak<()>)>,
    /// Measured compression speeds.
    pub rates: Arc<Rates>,
}

/// What the engine keeps about a running job.
struct Running {
    /// Reader epoch at the job's start. Space retired since then on devices that the job uses is not reused before it
    /// ends.
    epoch: u64,
    /// The slots of devices whose space it reads or writes; `None`: any.
    uses: Option<Vec<DeviceIndex>>,
    effect: Effect,
    copies: Option<Copies>,
}

/// Space that somebody outside of the engine reads. It is not reused while this value lives.
#[derive(Debug)]
pub struct SpaceHold(#[allow(dead_code, reason = "the engine counts who has it")] Arc<()>);

/// Effect of a job on free space, sooner or later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// None, and the job waits for nothing and holds up nothing: a new journal file, a verification.
    Light,
    /// None.
    Other,
    /// The job frees space, or makes an eviction possible.
    FreesSpace,
    /// The job frees retired space, if there is any.
    FreesRetired,
}

/// Purpose of copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// For a cut.
    Cut(u64),
    /// To empty this device.
    Leave(DeviceIndex),
    /// For relocations: moves, promotions and copies to another tier.
    Relocate,
    /// To compress them where they are.
    Compress,
}

/// The copies that a job makes.
struct Copies {
    purpose: Purpose,
    /// Identity of each extent, and the space reserved for its copy.
    parts: Vec<(Identity, Reserved)>,
}

/// Space on a device that is taken for bytes to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// Slot of the device.
    pub dev: DeviceIndex,
    /// Where it begins, in bytes.
    pub offset: u64,
    pub bytes: u64,
}

/// One copy: its placing, the space reserved for it, and the item that a cut queues again if the copy fails.
pub struct CopyPart {
    pub placing: Placing,
    pub reserved: Reserved,
    pub again: Option<DrainItem>,
}

impl Default for Jobs {
    fn default() -> Self {
        static ENGINES: AtomicU64 = AtomicU64::new(1);
        Self {
            engine: ENGINES.fetch_add(1, Ordering::Relaxed),
            next_number: 0,
            running: BTreeMap::new(),
            lent: Vec::new(),
            rates: Arc::default(),
        }
    }
}

impl Jobs {
    /// Keeps the space of a device from reuse that is in use at this reader epoch, until the returned value is dropped.
    pub fn lend(&mut self, dev: DeviceIndex, epoch: u64) -> SpaceHold {
        let hold = Arc::new(());
        self.lent.retain(|(.., held)| held.strong_count() > 0);
        self.lent.push((dev, epoch, Arc::downgrade(&hold)));
        SpaceHold(hold)
    }
    /// Returns the reader epoch at which the oldest job that uses this device began. The epoch is per device because a
    /// move between slow devices takes long, and must not keep overwritten memory from reuse meanwhile.
    pub fn min_epoch(&self, dev: DeviceIndex) -> u64 {
        let uses = |running: &&Running| running.uses.as_ref().is_none_or(|uses| uses.contains(&dev));
        let is_lent = |(of, _, held): &&(DeviceIndex, u64, Weak<()>)| *of == dev && held.strong_count() > 0;
        let lent = self.lent.iter().filter(is_lent).map(|(_, epoch, _)| *epoch);
        self.running.values().filter(uses).map(|running| running.epoch).chain(lent).min().unwrap_or(u64::MAX)
    }
    /// Returns the extents that are being copied for cuts.
    pub fn copied(&self) -> HashSet<Identity> {
        let for_cuts = self.copies().filter(|copies| matches!(copies.purpose, Purpose::Cut(_)));
        for_cuts.flat_map(|copies| copies.parts.iter().map(|(was, _)| *was)).collect()
    }
    /// Returns the number of jobs that copy for a fitting purpose.
    pub fn copying(&self, fits: impl Fn(Purpose) -> bool) -> usize {
        self.copies().filter(|copies| fits(copies.purpose)).count()
    }
    /// Returns the number of jobs with this effect.
    pub fn with_effect(&self, effect: Effect) -> usize {
        self.running.values().filter(|running| running.effect == effect).count()
    }
    /// Returns true if no job runs.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }
    /// Returns true if only `Light` and `FreesRetired` jobs run.
    pub fn is_nearly_idle(&self) -> bool {
        self.with_effect(Effect::Light) + self.with_effect(Effect::FreesRetired) == self.running.len()
    }
    /// Bytes that moves and copies for cuts are about to read and to write, by device slot.
    pub fn queued_bytes(&self, slots: usize) -> (Vec<u64>, Vec<u64>) {
        let (mut reads, mut writes) = (vec![0; slots], vec![0; slots]);
        for copies in self.copies().filter(|copies| copies.purpose != Purpose::Compress) {
            for (was, to) in &copies.parts {
                reads[was.dev as usize] += u64::from(was.len);
                writes[to.dev as usize] += to.bytes;
            }
        }
        (reads, writes)
    }
    /// Removes a job that has come back.
    ///
    /// # Panics
    /// If the job belongs to another engine.
    pub fn end(&mut self, id: JobId) {
        assert_eq!(id.engine, self.engine, "a job came back to another engine than that which began it");
        self.running.remove(&id.number);
    }
    fn copies(&self) -> impl Iterator<Item = &Copies> {
        self.running.values().filter_map(|running| running.copies.as_ref())
    }
}

impl Core {
    /// Bytes of one copy job to a device. An object service syncs each job by itself, so a job should fill a pack.
    pub fn job_bytes(&self, dev: DeviceIndex) -> u64 {
        let slot = self.state.space.get(dev);
        if !slot.forgets_unsynced() {
            return self.settings.copy_bytes;
        }
        let pack = slot.spec.options.get("pack").and_then(|text| cenote_model::size::parse(text).ok());
        let pack = pack.unwrap_or(PACK_BYTES).min(PACK_JOB_BYTES_MAX);
        // Compressed bytes: it takes more of them to fill a pack.
        let times = slot.space.unpacked_bytes.checked_div(slot.space.packed_bytes).unwrap_or(1).clamp(1, 4);
        self.settings.copy_bytes.max(pack * times)
    }

    /// Bytes of one copy job of a cut before its device is known.
    pub fn cut_job_bytes(&self) -> u64 {
        let dev = self.device_for(self.settings.copy_bytes, None, &[]);
        dev.map_or(self.settings.copy_bytes, |dev| self.job_bytes(dev))
    }

    /// Compression parameters for copies to a device; `None` if it does not compress.
    pub fn packing_for(&self, dev: DeviceIndex) -> Option<Packing> {
        let slot = self.state.space.get(dev);
        let fits = slot.space.unit_bytes.is_power_of_two() && slot.space.unit_bytes <= UNIT;
        let wanted = slot.compresses().filter(|_| fits)?;
        Some(Packing {
            wanted,
            speed: slot.pace.speed.unwrap_or_else(|| Speed::usual(slot.spec.kind)),
            grain_bytes: slot.space.unit_bytes,
            segment_bytes: slot.space.segment_bytes,
            only_smaller: false,
            rates: Arc::clone(&self.jobs.rates),
        })
    }

    /// Starts a job. `finish` hands the job's output to its activity.
    pub fn start<A: Registered, W: Work>(
        &mut self,
        effect: Effect,
        work: W,
        finish: impl FnOnce(&mut A, &mut Self, W::Output) + Send + 'static,
    ) -> Job {
        self.jobs.next_number += 1;
        let number = self.jobs.next_number;
        let running =
            Running { epoch: self.seams.control.epoch(), uses: self.slots_of(&work.devices()), effect, copies: None };
        self.jobs.running.insert(number, running);
        Job {
            id: JobId { engine: self.jobs.engine, number },
            timed: W::TIMED,
            is_brief: W::IS_BRIEF,
            is_large: work.is_large(),
            clock: Arc::clone(&self.seams.clock),
            run: Box::new(move |io| {
                let output = work.run(io);
                let finish: Finish = Box::new(move |activities, core| finish(A::of(activities), core, output));
                finish
            }),
        }
    }

    /// Starts a job that makes copies. `finish` receives the parts with the result of each.
    pub fn start_copies<A: Registered>(
        &mut self,
        purpose: Purpose,
        parts: Vec<CopyPart>,
        copy: Copy,
        finish: impl FnOnce(&mut A, &mut Self, Vec<CopyPart>, Vec<Copied>) + Send + 'static,
    ) -> Job {
        let effect = match purpose {
            Purpose::Cut(_) | Purpose::Leave(_) => Effect::FreesSpace,
            Purpose::Relocate | Purpose::Compress => Effect::Other,
        };
        let brief = parts.iter().map(|part| (part.placing.was, part.reserved)).collect();
        let job = self.start(effect, copy, move |activity: &mut A, core, (results, sync_failed)| {
            core.look_at_target(sync_failed, &parts);
            finish(activity, core, parts, results);
        });
        if let Some(running) = self.jobs.running.get_mut(&job.id.number) {
            running.copies = Some(Copies { purpose, parts: brief });
        }
        job
    }

    /// Returns the slots of these devices; `None` if one of them has no slot any more.
    fn slots_of(&self, devices: &[&Arc<dyn Device>]) -> Option<Vec<DeviceIndex>> {
        let mut uses: Vec<DeviceIndex> = Vec::new();
        let mut last: Option<&Arc<dyn Device>> = None;
        for device in devices {
            if last.is_some_and(|last| Arc::ptr_eq(last, device)) {
                continue;
            }
            last = Some(device);
            let is_it = |slot: &DeviceSlot| slot.device.as_ref().is_some_and(|it| Arc::ptr_eq(it, device));
            let slot = self.state.space.slots.iter().position(is_it)? as DeviceIndex;
            if !uses.contains(&slot) {
                uses.push(slot);
            }
        }
        Some(uses)
    }
}

#[cfg(test)]
mod tests {
    use cenote_model::{ContainerId, ObjectId, ObjectKey};

    use super::*;
    use crate::placing::{Action, Target};

    /// An extent that a cut is copying is not copied a second time for another extent with the same bytes.
    #[test]
    fn the_extents_that_are_being_copied_are_known() {
        let of = |at: u64| Identity { dev: 0, run_offset: at, skip: 0, len: 512 };
        let part = |at: u64| {
            let key = ObjectKey { container: ContainerId(1), object: ObjectId(1) };
            let action = Action::DropCopy { copy: 0 };
            let placing = Placing { target: Target::Live { key, offset: at }, was: of(at), action };
            CopyPart { placing, reserved: Reserved { dev: 1, offset: 0, bytes: 4096 }, again: None }
        };
        let mut jobs = Jobs::default();
        assert!(jobs.copied().is_empty());
        let running = |purpose, part: CopyPart| Running {
            epoch: 1,
            uses: None,
            effect: Effect::FreesSpace,
            copies: Some(Copies { purpose, parts: vec![(part.placing.was, part.reserved)] }),
        };
        jobs.running.insert(1, running(Purpose::Cut(1), part(512)));
        jobs.running.insert(2, running(Purpose::Leave(0), part(2048)));
        jobs.running.insert(3, running(Purpose::Cut(2), part(4096)));
        assert_eq!(jobs.copied(), [512, 4096].map(of).into());
    }

    #[test]
    fn lent_space_is_not_reused_before_it_is_given_back() {
        let mut jobs = Jobs::default();
        let (first, second) = (jobs.lend(1, 7), jobs.lend(1, 9));
        assert_eq!((jobs.min_epoch(1), jobs.min_epoch(0)), (7, u64::MAX));
        drop(first);
        assert_eq!(jobs.min_epoch(1), 9);
        drop(second);
        assert_eq!(jobs.min_epoch(1), u64::MAX);
        let _third = jobs.lend(2, 11);
        assert_eq!(jobs.lent.len(), 1, "those that were given back are forgotten");
    }
}
