//! Verification: reads and checks what is stored, on request and as a scrub in idle time.

use std::collections::VecDeque;

use cenote_model::{ContainerId, Error, ErrorKind, Finding, FlushTarget, ObjectKey, Response, VerifyReport};

use super::activity::{Activity, Ask, Urgency};
use super::core::{Core, Effect};
use super::failed;
use crate::copying::{Part, is_mismatch};
use crate::map::{DeviceIndex, Ext};
use crate::objects::Presence;
use crate::placing::{Identity, Placing, Target, identity};
use crate::work::{CheckParts, Job, MendDevice};
use crate::{Outcome, Ticket};

const SLICE_BYTES: u64 = 8 << 20;
const SLICE_PARTS: usize = 512;
/// Most objects inspected for one slice.
const SLICE_OBJECTS: u32 = 65_536;
/// Most containers whose tables are checked at a time.
const SLICE_CONTAINERS: usize = 64;
const FINDINGS_MAX: usize = 10_000;
/// Least time between two rounds in which devices check what no read sees.
const MEND_AGAIN_NS: u64 = 60_000_000_000;

/// A walk over all that is stored.
#[derive(Clone, Debug, Default)]
struct Walk {
    /// The request that waits for its report.
    ticket: Option<Ticket>,
    container: Option<ContainerId>,
    object: Option<ObjectKey>,
    /// Next slot, and offset in its object.
    slot: u32,
    offset: u64,
    report: VerifyReport,
    in_flight: u32,
    walked: bool,
    /// Devices that are to check what no read sees, and where each goes on; `None` until the walk has begun.
    mending: Option<VecDeque<(DeviceIndex, Option<String>)>>,
    /// Containers whose indices and tables are still to be checked; `None` until the objects are done.
    containers: Option<VecDeque<ContainerId>>,
}

impl Walk {
    fn is_over(&self) -> bool {
        let is_mended = self.mending.as_ref().is_none_or(VecDeque::is_empty);
        self.walked && is_mended && self.is_audited() && self.in_flight == 0
    }
    /// Returns true if tables and free space were checked. A walk over one object does not check them.
    fn is_audited(&self) -> bool {
        self.object.is_some() || self.containers.as_ref().is_some_and(VecDeque::is_empty)
    }
}

/// Requested walks, and the scrub.
#[derive(Default)]
pub struct Verifying {
    queue: VecDeque<Walk>,
    /// Running check jobs.
    running: u32,
    /// When devices checked what no read sees for the last time.
    mended_ns: Option<u64>,
    scrub: Walk,
    scrub_due_ns: u64,
    pub scrub_findings: u64,
    pub findings: Vec<Finding>,
    /// Findings of the scrub that nobody has taken yet.
    unsaid: Vec<Finding>,
}

impl Activity for Verifying {
    fn next_job(&mut self, core: &mut Core, urgency: Urgency) -> Option<Job> {
        if urgency == Urgency::Idle { self.next_check(core) } else { None }
    }
}

/// A part of a walk that a job checks.
pub struct Slice {
    scrub: bool,
    /// Object, offset, identity of the extent, and the device that was read.
    parts: Vec<(ObjectKey, u64, Identity, DeviceIndex)>,
}

impl Verifying {
    /// Queues a walk over the target. Fails if the object or container does not exist.
    pub fn verify_begin(&mut self, core: &mut Core, target: FlushTarget) -> Outcome {
        let mut walk = Walk::default();
        match target {
            FlushTarget::Store => {}
            FlushTarget::Container(id) => {
                if core.state.containers.get(id).is_none() {
                    return failed(Error::new(ErrorKind::NotFound, format!("container {id}")));
                }
                walk.container = Some(id);
            }
            FlushTarget::Object(key) => match core.object(key) {
                Ok(slot) => (walk.object, walk.slot) = (Some(key), slot),
                Err(error) => return failed(error),
            },
        }
        let ticket = core.ticket();
        walk.ticket = Some(ticket);
        self.queue.push_back(walk);
        Outcome::Wait(ticket)
    }

    /// Returns the next check job: of a requested walk, or of the scrub if the engine is idle.
    pub fn next_check(&mut self, core: &mut Core) -> Option<Job> {
        if self.running >= 2 {
            return None;
        }
        if let Some(mut walk) = self.queue.pop_front() {
            if let Some((dev, from)) = self.next_to_mend(core, &mut walk) {
                walk.in_flight += 1;
                self.queue.push_front(walk);
                return Some(self.mend_job(core, dev, from));
            }
            let mut parts = Vec::new();
            while parts.is_empty() && !walk.walked && walk.slot < core.state.objects.slots() {
                parts = next_parts(core, &mut walk, SLICE_BYTES);
            }
            if parts.is_empty() {
                walk.walked = true;
                let audited = audit_next(core, &mut walk);
                if audited && walk.is_over() {
                    end_walk(core, walk);
                } else {
                    self.queue.push_front(walk);
                }
                return None;
            }
            walk.in_flight += 1;
            self.queue.push_front(walk);
            return Some(self.check_job(core, false, parts));
        }
        let idle = core.jobs.is_idle() && core.settings.scrub_bytes_per_s > 0;
        if !idle || core.state.now.ns < self.scrub_due_ns {
            return None;
        }
        let mut walk = std::mem::take(&mut self.scrub);
        let before = walk.report.bytes;
        let parts = next_parts(core, &mut walk, 1 << 20);
        let read = walk.report.bytes - before;
        // Pause after each slice to keep the rate, and longer after the last object.
        let pause_ns = if parts.is_empty() && walk.slot >= core.state.objects.slots() {
            if audit_next(core, &mut walk) {
                self.scrub_findings += walk.report.contradictions.len() as u64;
                walk = Walk::default();
                60_000_000_000
            } else {
                0
            }
        } else {
            read.saturating_mul(1_000_000_000) / core.settings.scrub_bytes_per_s
        };
        self.scrub = walk;
        self.scrub_due_ns = core.state.now.ns.saturating_add(pause_ns);
        (!parts.is_empty()).then(|| self.check_job(core, true, parts))
    }

    /// The next device of a walk that is to check what no read sees. All are looked at by a walk that begins some time after
    /// the last one did: a command verifies each container by itself.
    fn next_to_mend(&mut self, core: &Core, walk: &mut Walk) -> Option<(DeviceIndex, Option<String>)> {
        if walk.mending.is_none() {
            let now = core.state.now.ns;
            let is_due = self.mended_ns.is_none_or(|last| now >= last.saturating_add(MEND_AGAIN_NS));
            let is_due = is_due && walk.object.is_none();
            let slots = core.state.space.slots.iter().enumerate();
            let open = slots.filter(|(_, slot)| is_due && slot.device.is_some() && slot.spec.kind.is_object());
            walk.mending = Some(open.map(|(dev, _)| (dev as DeviceIndex, None)).collect());
            if is_due {
                self.mended_ns = Some(now);
            }
        }
        walk.mending.as_mut().and_then(VecDeque::pop_front)
    }

    fn mend_job(&mut self, core: &mut Core, dev: DeviceIndex, from: Option<String>) -> Job {
        self.running += 1;
        let device = core.state.space.get(dev).device.clone();
        core.start(Effect::Light, MendDevice { device, from }, move |verifying: &mut Self, core, next| {
            verifying.running = verifying.running.saturating_sub(1);
            let Some(walk) = verifying.queue.front_mut() else { return };
            walk.in_flight = walk.in_flight.saturating_sub(1);
            if let (Some(next), Some(mending)) = (next, &mut walk.mending) {
                mending.push_back((dev, Some(next)));
            }
            verifying.end_if_over(core);
        })
    }

    fn check_job(&mut self, core: &mut Core, scrub: bool, parts: Vec<(ObjectKey, u64, Ext, Option<usize>)>) -> Job {
        let mut work: Vec<Part> = Vec::new();
        let mut about = Vec::new();
        for (key, offset, ext, at_copy) in parts {
            let seen = at_copy.map_or_else(|| ext.clone(), |copy| ext.at_copy(copy));
            let dev = seen.dev;
            if let Some(part) = core.part_of(&seen) {
                work.push(part);
                about.push((key, offset, identity(&ext), dev));
            } else {
                self.add_finding(core, key, offset, ext.len, dev, "the device is not open");
            }
        }
        self.running += 1;
        core.start(Effect::Light, CheckParts(work), move |verifying: &mut Self, core, results| {
            verifying.running = verifying.running.saturating_sub(1);
            verifying.finish_check(core, Slice { scrub, parts: about }, results);
        })
    }

    /// Takes the results of a slice, and ends a requested walk with its last one.
    pub fn finish_check(&mut self, core: &mut Core, slice: Slice, results: Vec<Option<String>>) {
        let mut found = Vec::new();
        for ((key, offset, was, dev), what) in slice.parts.into_iter().zip(results) {
            core.observed.counting.verified(dev, u64::from(was.len));
            let Some(what) = what else { continue };
            let current = core.state.target_mut(Target::Live { key, offset }).filter(|ext| identity(ext) == was);
            let Some(ext) = current.cloned() else { continue };
            if is_mismatch(&what) {
                core.note_damage(dev);
                if let Some(copy) = ext.copy_on(dev) {
                    core.state.space.mark_bad_copy(&ext, copy);
                }
            }
            let device = core.state.space.get(dev).spec.name.clone();
            found.push(Finding { key, offset, len: u64::from(was.len), device, what });
        }
        if slice.scrub {
            for finding in found {
                self.scrub_found(core, finding);
            }
            return;
        }
        if let Some(walk) = self.queue.front_mut() {
            walk.in_flight = walk.in_flight.saturating_sub(1);
            let room = FINDINGS_MAX.saturating_sub(walk.report.findings.len());
            walk.report.findings.extend(found.iter().take(room).cloned());
        }
        self.keep_findings(found);
        self.end_if_over(core);
    }
    fn end_if_over(&mut self, core: &mut Core) {
        if self.queue.front().is_some_and(Walk::is_over)
            && let Some(walk) = self.queue.pop_front()
        {
            end_walk(core, walk);
        }
    }

    /// Repairs what the scrub found bad: an extent falls back to its copy, if that is good; a bad copy is written
    /// again. Reports the rest once.
    fn scrub_found(&mut self, core: &mut Core, mut finding: Finding) {
        let (key, offset) = (finding.key, finding.offset);
        let target = Target::Live { key, offset };
        let Some(ext) = core.state.target_mut(target).cloned() else { return };
        let name = |dev: DeviceIndex| core.state.space.get(dev).spec.name.clone();
        let first_is_bad = name(ext.dev) == finding.device;
        if first_is_bad && ext.has_copy() {
            let placing = Placing { target, was: identity(&ext), action: core.state.space.eviction(&ext) };
            core.asks.push(Ask::Rescue { key, placing, finding });
            return;
        }
        if !first_is_bad {
            // A copy that is gone needs no repair.
            let is_it = |copy: &crate::map::Replica| name(copy.dev) == finding.device;
            if let Some(copy) = ext.copies().iter().position(is_it) {
                core.asks.push(Ask::Mend { target, ext: Box::new(ext), copy, finding });
            }
            return;
        }
        finding.what += "; there is no copy of it: restore the range from elsewhere, or write it again";
        self.not_repaired(finding);
    }

    /// Records damage that the scrub found and could not repair.
    pub fn not_repaired(&mut self, finding: Finding) {
        if self.findings.contains(&finding) {
            return; // reported in an earlier round
        }
        self.scrub_findings += 1;
        self.unsaid.push(finding.clone());
        self.keep_findings(vec![finding]);
    }

    /// Takes the findings of the scrub that could not be repaired and were not taken yet.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.unsaid)
    }

    /// Records that stored bytes are bad.
    pub fn add_finding(
        &mut self,
        core: &mut Core,
        key: ObjectKey,
        offset: u64,
        len: u32,
        dev: DeviceIndex,
        what: &str,
    ) {
        let device = core.state.space.get(dev).spec.name.clone();
        let finding = Finding { key, offset, len: u64::from(len), device, what: what.to_owned() };
        if let Some(walk) = self.queue.front_mut() {
            walk.report.findings.push(finding.clone());
        }
        self.keep_findings(vec![finding]);
    }

    fn keep_findings(&mut self, found: Vec<Finding>) {
        for finding in found {
            if self.findings.len() < FINDINGS_MAX && !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
        }
    }
}

fn end_walk(core: &mut Core, walk: Walk) {
    core.answers.finished.extend(walk.ticket.map(|ticket| (ticket, Response::Verified(walk.report))));
}

/// Checks the indices and tables of some more containers, and free space. Returns true when done.
fn audit_next(core: &mut Core, walk: &mut Walk) -> bool {
    if walk.is_audited() {
        return true;
    }
    let first = walk.containers.is_none();
    let wanted = walk.container;
    let ids = || -> VecDeque<_> { wanted.map_or_else(|| core.state.containers.ids(), |id| vec![id]).into() };
    let containers = walk.containers.get_or_insert_with(ids);
    for id in containers.drain(..containers.len().min(SLICE_CONTAINERS)) {
        walk.report.contradictions.extend(core.state.audit_container(id));
    }
    if first {
        walk.report.contradictions.extend(core.state.audit_space());
    }
    walk.is_audited()
}

/// Returns the next extents of a walk, and whether each is to be read at its copy.
fn next_parts(core: &mut Core, walk: &mut Walk, bytes_max: u64) -> Vec<(ObjectKey, u64, Ext, Option<usize>)> {
    let mut parts = Vec::new();
    let mut bytes = 0;
    let mut looked = 0;
    while walk.slot < core.state.objects.slots() && looked < SLICE_OBJECTS {
        looked += 1;
        let object = core.state.objects.get(walk.slot);
        let visible = object.presence == Presence::Live && core.state.containers.is_taken(object.container);
        let key = if visible { Some(core.state.key_of(walk.slot)) } else { None };
        let wanted = key.filter(|key| {
            walk.object.is_none_or(|object| object == *key)
                && walk.container.is_none_or(|container| container == key.container)
                && core.state.containers.get(key.container).is_some()
        });
        if let Some(key) = wanted {
            if walk.offset == 0 {
                walk.report.objects += 1;
                walk.report.contradictions.extend(core.state.audit_object(walk.slot));
            }
            for (at, ext) in object.map.overlapping(walk.offset, u64::MAX) {
                if bytes >= bytes_max || parts.len() >= SLICE_PARTS {
                    walk.offset = at;
                    walk.report.bytes += bytes;
                    return parts;
                }
                bytes += u64::from(ext.len);
                parts.push((key, at, ext.clone(), None));
                parts.extend((0..ext.copy_count()).map(|copy| (key, at, ext.clone(), Some(copy))));
            }
        }
        walk.offset = 0;
        walk.slot = if walk.object.is_some() { core.state.objects.slots() } else { walk.slot + 1 };
    }
    walk.report.bytes += bytes;
    parts
}

#[cfg(test)]
mod tests {
    use cenote_device::mem::MemClock;
    use cenote_model::{IndexId, IndexKey, ObjectId};

    use super::*;
    use crate::engine::Engine;
    use crate::engine::filled::filled;
    use crate::index::{Disorder, Index, Record, Value};
    use crate::space::{Bitmap, Tag};
    use crate::state::EngineState;

    /// Two containers with an object and an index each.
    fn engine() -> Engine {
        let mut engine = filled(&std::sync::Arc::<MemClock>::default(), 2);
        for id in engine.core.state.containers.ids() {
            let container = engine.core.state.containers.get_mut(id).unwrap();
            let mut index = Index::new(0);
            for n in 0..100u32 {
                index.put(&n.to_be_bytes(), Record { epoch: 1, value: Value::Here(vec![7; 9].into()) });
            }
            container.count_index(&index);
            container.content.indices.insert(IndexId(1), Box::new(index));
        }
        engine
    }

    fn first(state: &mut EngineState) -> &mut crate::container::Container {
        let id = state.containers.ids()[0];
        state.containers.get_mut(id).unwrap()
    }

    fn slot_of_object(state: &mut EngineState) -> u32 {
        first(state).content.objects[&ObjectId(1)]
    }

    /// The audit, which a verify and the scrub run, names each table that contradicts the others.
    #[test]
    fn what_is_wrong_in_memory_is_named() {
        type Harm = fn(&mut EngineState);
        let harms: [(&str, Harm); 15] = [
            ("its space counts as free", |state| {
                let slot = state.space.get_mut(0);
                slot.space.map.clear(0, slot.space.map.units());
            }),
            ("it is on a device that was removed", |state| state.space.get_mut(0).removed = true),
            ("it ends behind its device", |state| state.space.get_mut(0).space.map = Bitmap::new(1, u64::MAX)),
            ("it names no device", |state| state.space.slots.clear()),
            ("it counts 101 records and has 100", |state| first(state).content.records += 1),
            ("bytes of records and has", |state| first(state).content.record_bytes += 1),
            ("bytes of objects and has", |state| first(state).content.stored_bytes += 1),
            ("extents are counted and", |state| state.space.extents += 1),
            ("which does not name it", |state| {
                let slot = slot_of_object(state);
                state.gone.detached.insert(slot, (0, 1));
            }),
            ("it counts its bytes wrongly", |state| {
                first(state).content.indices.get_mut(&IndexId(1)).unwrap().bytes += 1;
            }),
            ("is not in slot", |state| {
                let slot = slot_of_object(state);
                first(state).content.objects.insert(ObjectId(2), slot);
            }),
            ("is not in slot", |state| {
                let slot = slot_of_object(state);
                state.objects.get_mut(slot).presence = Presence::Free;
            }),
            ("is not in slot", |state| {
                let slot = slot_of_object(state);
                state.objects.get_mut(slot).container = 1;
            }),
            ("the retired space of device `memory`", |state| {
                let slot = state.space.get_mut(0);
                let end = slot.space.map.units() * u64::from(slot.space.unit_bytes);
                slot.space.retired.push(Tag::default(), end - 4096, 4096);
            }),
            ("index ", |state| {
                let key = IndexKey { container: first(state).id, index: IndexId(1) };
                state.found_disorder(key, Disorder { misplaced: 1, ..Disorder::default() });
            }),
        ];
        assert_eq!(engine().core.state.audit(), Vec::<String>::new());
        for (said, harm) in harms {
            let mut engine = engine();
            harm(&mut engine.core.state);
            let found = engine.core.state.audit();
            assert!(found.iter().any(|why| why.contains(said)), "{said}: {found:?}");
        }
    }

    /// The scrub read a copy that is gone by now: the rest is good, so nothing is reported.
    #[test]
    fn a_bad_copy_that_is_gone_by_now_is_no_finding() {
        let mut engine = engine();
        let key = ObjectKey { container: engine.core.state.containers.ids()[0], object: ObjectId(1) };
        let finding = |device: &str| Finding { key, offset: 0, len: 10, device: device.into(), what: "bad".into() };
        engine.activities.verifying.scrub_found(&mut engine.core, finding("file"));
        engine.activities.settle(&mut engine.core);
        assert!(engine.take_findings().is_empty() && engine.activities.repairing.next_mend(&mut engine.core).is_none());
        engine.activities.verifying.scrub_found(&mut engine.core, finding("memory"));
        engine.activities.settle(&mut engine.core);
        let found = engine.take_findings();
        assert!(found.len() == 1 && found[0].what.contains("no copy"), "{found:?}");
        assert_eq!(engine.activities.verifying.scrub_findings, 1);
    }
}
