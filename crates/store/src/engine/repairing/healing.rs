//! Bytes without a copy in the home, on devices of which another node has a copy: the job that checks them writes bad ones
//! again from there.

use cenote_model::{ObjectKey, Response};

use super::Repairing;
use super::rescue::{EXTENTS_MAX, nowhere_else};
use crate::Ticket;
use crate::copying::Part;
use crate::engine::core::{Core, Effect};
use crate::map::Ext;
use crate::placing::{Identity, Target, identity};
use crate::work::{CheckParts, Job};

/// A reader waits for these extents to be good again.
pub struct Heal {
    ticket: Ticket,
    key: ObjectKey,
    extents: Vec<(u64, Identity)>,
}

impl Repairing {
    /// Queues the repair of ranges that a reader cannot read. `None` if no other copy of their devices can be read.
    pub fn heal(&mut self, core: &mut Core, key: ObjectKey, ranges: &[(u64, u64)]) -> Option<Ticket> {
        let slot = core.object(key).ok()?;
        let map = &core.state.objects.get(slot).map;
        let has_twin = |ext: &Ext| core.state.space.get(ext.dev).device.as_ref().is_some_and(|it| it.has_twin());
        let overlapping = ranges.iter().flat_map(|(offset, len)| map.overlapping(*offset, offset.saturating_add(*len)));
        let extents = overlapping.take(EXTENTS_MAX).filter(|(_, ext)| has_twin(ext));
        let extents: Vec<(u64, Identity)> = extents.map(|(offset, ext)| (offset, identity(ext))).collect();
        if extents.is_empty() {
            return None;
        }
        let ticket = core.ticket();
        self.heals.push_back(Heal { ticket, key, extents });
        Some(ticket)
    }

    /// Returns a job that checks the extents of the next repair, and writes bad ones again.
    pub fn next_heal(&mut self, core: &mut Core) -> Option<Job> {
        while let Some(Heal { ticket, key, extents }) = self.heals.pop_front() {
            let part = |(offset, was): &(u64, Identity)| -> Option<Part> {
                let ext = core.state.target_mut(Target::Live { key, offset: *offset }).cloned()?;
                if identity(&ext) == *was { core.part_of(&ext) } else { None }
            };
            let mut part = part;
            let parts: Vec<Part> = extents.iter().filter_map(&mut part).collect();
            if parts.is_empty() {
                // Moved or overwritten meanwhile: the reader looks again.
                core.answers.finished.push((ticket, Response::Done));
                continue;
            }
            return Some(core.start(Effect::Other, CheckParts(parts), move |_: &mut Self, core, results| {
                let bad = results.into_iter().flatten().next();
                let response = bad.map_or(Response::Done, |why| {
                    let why = format!("it has no copy on another tier, and no mirror of the home has it good: {why}");
                    Response::Failed(nowhere_else(key, &why))
                });
                core.answers.finished.push((ticket, response));
            }));
        }
        None
    }
}
