//! Repacking: compresses plain bytes on tiers that compress, where programs wrote them directly. It runs when the bytes
//! were not used for a while and the store is idle, and moves them to another place on the same tier.

use std::sync::Arc;

use cenote_model::DeviceState;

use super::activity::{Activity, Urgency};
use super::core::{CopyPart, Core, Purpose, Reserved};
use crate::copying::{Copied, Copy, Piece};
use crate::map::{DeviceIndex, Ext};
use crate::objects::Presence;
use crate::placing::{Action, Placing, Target, identity};
use crate::work::Job;

/// Objects used within this many seconds are left alone.
const IDLE_S: u32 = 5;
/// Most objects, and most extents, inspected for one job.
const OBJECTS_MAX: u32 = 4096;
const PARTS_MAX: usize = 256;
/// Pause after a pass over all objects that found nothing.
const REST_NS: u64 = 10_000_000_000;

/// Position of the walk.
#[derive(Default)]
pub struct Repacking {
    /// Next slot, and offset in its object.
    slot: u32,
    offset: u64,
    /// Objects inspected since something was found.
    fruitless: u32,
    not_before_ns: u64,
}

impl Activity for Repacking {
    fn next_job(&mut self, core: &mut Core, urgency: Urgency) -> Option<Job> {
        if urgency == Urgency::Idle { self.next_repack(core) } else { None }
    }
}

impl Repacking {
    /// Returns a job that compresses the next batch in its tier.
    pub fn next_repack(&mut self, core: &mut Core) -> Option<Job> {
        let now = core.state.now.ns;
        let compresses = core.state.space.present().any(|slot| slot.compresses().is_some());
        if !compresses || self.not_before_ns > now || !core.jobs.is_nearly_idle() || !core.may_copy(now) {
            return None;
        }
        let (dev, batch) = self.gather_repack(core)?;
        let lens: Vec<u32> = batch.iter().map(|(_, ext)| ext.hull().len()).collect();
        let places = core.take_each(dev, &lens);
        let device = core.state.space.get(dev).device.clone()?;
        let (mut parts, mut pieces) = (Vec::new(), Vec::new());
        for ((target, ext), at) in batch.into_iter().zip(places) {
            let hull = ext.hull();
            let padded = core.state.space.get(dev).padded(u64::from(hull.len()));
            let Some(part) = core.part_of(&ext) else {
                core.state.space.get_mut(dev).unreserve(at, padded);
                continue;
            };
            let action = Action::Move { dev, base: at.wrapping_sub(u64::from(hull.begin)), packed: None };
            let placing = Placing { target, was: identity(&ext), action };
            parts.push(CopyPart { placing, reserved: Reserved { dev, offset: at, bytes: padded }, again: None });
            pieces.push(Piece { part, at, like: None });
        }
        if parts.is_empty() {
            self.not_before_ns = now + REST_NS; // no room for the result
            return None;
        }
        let syncs = Some(Arc::clone(&core.state.space.get(dev).trust.syncs));
        let packing = core.packing_for(dev).map(|packing| crate::packing::Packing { only_smaller: true, ..packing });
        let copy = Copy { pieces, target: device, syncs, packing, read_back: false };
        let finish = |_: &mut Self, core: &mut Core, parts, results| finish_repack(core, parts, results);
        Some(core.start_copies(Purpose::Compress, parts, copy, finish))
    }

    /// Finds extents of one device that could be compressed there.
    fn gather_repack(&mut self, core: &mut Core) -> Option<(DeviceIndex, Vec<(Target, Ext)>)> {
        let slots = core.state.objects.slots();
        let mut batch: Vec<(Target, Ext)> = Vec::new();
        let (mut dev, mut bytes, mut looked) = (None, 0, 0);
        while looked < OBJECTS_MAX && self.fruitless < slots {
            if self.slot >= slots {
                (self.slot, self.offset) = (0, 0);
            }
            looked += 1;
            let slot = self.slot;
            let object = core.state.objects.get(slot);
            let is_idle = core.state.now.s.saturating_sub(object.last.touched) >= IDLE_S;
            if is_idle && object.presence == Presence::Live && core.is_visible(object.container) {
                let key = core.state.key_of(slot);
                for (offset, ext) in object.map.overlapping(self.offset, u64::MAX) {
                    if dev.is_some_and(|dev| dev != ext.dev) || !could_repack(core, ext) {
                        continue;
                    }
                    if bytes >= core.settings.copy_bytes || batch.len() >= PARTS_MAX {
                        self.offset = offset;
                        self.fruitless = 0;
                        return dev.map(|dev| (dev, batch));
                    }
                    dev = Some(ext.dev);
                    bytes += u64::from(ext.len);
                    batch.push((Target::Live { key, offset }, ext.clone()));
                }
            }
            self.slot += 1;
            self.offset = 0;
            self.fruitless = if batch.is_empty() { self.fruitless + 1 } else { 0 };
        }
        if batch.is_empty() && self.fruitless >= slots {
            self.fruitless = 0;
            self.not_before_ns = core.state.now.ns + REST_NS;
        }
        dev.map(|dev| (dev, batch))
    }
}

/// Returns true if an extent is plain on a tier that compresses, and nobody tried to compress it yet. Bytes in an
/// object service are not fetched for that.
fn could_repack(core: &Core, ext: &Ext) -> bool {
    let slot = core.state.space.get(ext.dev);
    let fits = slot.compresses().is_some() && slot.state == DeviceState::Online && slot.spec.kind.is_shareable();
    fits && !ext.is_packed() && !ext.is_dense() && !ext.has_copy() && ext.hull().len() > slot.space.unit_bytes
}

/// Places the results. Extents that became no smaller are not tried again.
fn finish_repack(core: &mut Core, parts: Vec<CopyPart>, results: Vec<Copied>) {
    for (part, _) in parts.iter().zip(&results).filter(|(_, result)| result.is_err()) {
        let found = core.state.target_mut(part.placing.target).filter(|ext| identity(ext) == part.placing.was);
        if let Some(ext) = found {
            ext.set_dense();
        }
    }
    core.finish_copy(Purpose::Compress, parts, results);
}
