//! Moves that people ask for.

use std::collections::BTreeMap;
use std::ops::Bound;

use cenote_model::{
    Arrange, ArrangeMove, ArrangeTarget, Arrangement, ContainerId, DeviceState, Error, ErrorKind, ObjectId, ObjectKey,
    Response, Result,
};
use cenote_policy::tier_order;

use super::super::{Engine, failed};
use super::relocate::{How, Relocation};
use crate::map::{Ext, NO_DEVICE};
use crate::placing::{Action, Placing, Target, identity};
use crate::{Outcome, Ticket};

/// Extents moved between looks at who else wants something.
const STEP_EXTENTS: usize = 512;
/// Moves listed in a dry run.
const LISTED_MAX: usize = 10_000;

/// Arrangements that are being carried out, by the number that their current moves wait under.
#[derive(Default)]
pub(in super::super) struct Arrangements(BTreeMap<u64, Running>);

struct Running {
    ticket: Ticket,
    what: Arrange,
    walk: Walk,
    result: Arrangement,
}

/// Where it is among the objects.
struct Walk {
    container: ContainerId,
    /// Objects of the container from here on; none: the one object only.
    after: Option<ObjectId>,
    one: Option<ObjectId>,
    from: u64,
    to: u64,
    is_done: bool,
}

/// What is to become of an extent.
enum Fate {
    Go(How, u8),
    Leave,
    Stay(String),
}

impl Engine {
    pub(in super::super) fn arrange(&mut self, target: &ArrangeTarget, what: Arrange, dry_run: bool) -> Outcome {
        self.update_clock();
        let begun = self.check_arrange(&what).and_then(|()| self.walk_of(target));
        let walk = match begun {
            Ok(walk) => walk,
            Err(error) => return failed(error),
        };
        let ticket = self.ticket();
        let mut running = Running { ticket, what, walk, result: Arrangement::default() };
        if dry_run {
            while !running.walk.is_done {
                self.arrange_step(&mut running, None);
            }
            return Outcome::Ready(Response::Arranged(Box::new(running.result)));
        }
        self.arrange_on(running);
        Outcome::Wait(ticket)
    }

    fn check_arrange(&self, what: &Arrange) -> Result<()> {
        let (Arrange::Promote { to: Some(name) } | Arrange::Demote { to: Some(name) }) = what else { return Ok(()) };
        let slot = self.state.space.get(self.named(name)?);
        if slot.state != DeviceState::Online {
            return Err(Error::new(ErrorKind::InvalidInput, format!("tier `{name}`"))
                .because("it takes no new data: it is being emptied, or failed")
                .try_next("choose another tier"));
        }
        Ok(())
    }

    fn walk_of(&mut self, target: &ArrangeTarget) -> Result<Walk> {
        let whole = |container| Walk { container, after: None, one: None, from: 0, to: u64::MAX, is_done: false };
        match target {
            ArrangeTarget::Container(id) => {
                self.container(*id)?;
                Ok(whole(*id))
            }
            ArrangeTarget::Object(key) => {
                self.object(*key)?;
                Ok(Walk { one: Some(key.object), ..whole(key.container) })
            }
            ArrangeTarget::Range { key, offset, len } => {
                let slot = self.object(*key)?;
                let to = offset.saturating_add(*len);
                self.isolate(slot, *key, *offset, to);
                Ok(Walk { one: Some(key.object), from: *offset, to, ..whole(key.container) })
            }
        }
    }

    /// Goes on until there is something to wait for, or nothing left.
    fn arrange_on(&mut self, mut running: Running) {
        while !running.walk.is_done {
            let waiter = self.tiering.waits.number();
            let queued = self.arrange_step(&mut running, Some(waiter));
            if queued > 0 {
                self.wait_for(waiter, queued);
                self.tiering.arrangements.0.insert(waiter, running);
                return;
            }
        }
        self.finished.push((running.ticket, Response::Arranged(Box::new(running.result))));
    }

    /// The moves under a number are over.
    pub(super) fn arrangement_over(&mut self, waiter: u64, error: Option<Error>) {
        let Some(mut running) = self.tiering.arrangements.0.remove(&waiter) else { return };
        if let (Some(error), true) = (error, running.result.staying_why.is_empty()) {
            running.result.staying_why = error.to_string();
        }
        self.arrange_on(running);
    }

    /// Queues the moves of some extents (with a waiter), or tells what they would be. Gives how many were queued.
    fn arrange_step(&mut self, running: &mut Running, waiter: Option<u64>) -> usize {
        let mut queued = 0;
        let mut looked = 0;
        let mut evictions = Vec::new();
        while looked < STEP_EXTENTS && !running.walk.is_done {
            let Some(key) = self.next_object(&mut running.walk) else { break };
            let Some(slot) = self.state.find_object(key) else { continue };
            let (from, to) = (running.walk.from, running.walk.to);
            let extents: Vec<(u64, Ext)> =
                self.state.objects.get(slot).map.overlapping(from, to).map(|(at, ext)| (at, ext.clone())).collect();
            looked += extents.len().max(1);
            for (offset, ext) in extents {
                let fate = self.fate(&ext, &running.what);
                self.tell(running, key, offset, &ext, &fate, waiter.is_none());
                let target = Target::Live { key, offset };
                match (fate, waiter) {
                    (Fate::Go(how, dev), Some(_)) => {
                        let relocation = Relocation { target, dev, how, waiter, ahead: false, short_since_ns: None };
                        queued += usize::from(self.tiering.relocations.push(relocation));
                    }
                    (Fate::Leave, Some(_)) => {
                        evictions.push(Placing { target, was: identity(&ext), action: Action::Evict });
                    }
                    _ => {}
                }
            }
        }
        let mut twins = std::collections::HashSet::new();
        evictions.retain(|placing| twins.insert(placing.was));
        if !evictions.is_empty()
            && let Err(error) = self.place_all(&evictions)
        {
            running.result.staying_why = error.to_string();
        }
        queued
    }

    fn next_object(&self, walk: &mut Walk) -> Option<ObjectKey> {
        let container = walk.container;
        if let Some(object) = walk.one {
            walk.is_done = true;
            return Some(ObjectKey { container, object });
        }
        let from = walk.after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.container(container).ok().and_then(|c| c.objects.range((from, Bound::Unbounded)).next());
        let Some((object, _)) = found else {
            walk.is_done = true;
            return None;
        };
        walk.after = Some(*object);
        Some(ObjectKey { container, object: *object })
    }

    /// What an arrangement makes of an extent.
    fn fate(&self, ext: &Ext, what: &Arrange) -> Fate {
        let mut views: Vec<_> = self.state.space.present().map(crate::space::DeviceSlot::view).collect();
        views.sort_by(tier_order);
        let here = self.state.space.get(ext.dev).id;
        let Some(at) = views.iter().position(|view| view.id == here) else {
            return Fate::Stay("its device is gone".to_owned());
        };
        let named = |name: &str| views.iter().position(|view| &*view.name == name);
        let is_volatile = |at: usize| !views[at].kind.is_persistent();
        let bytes = u64::from(ext.len);
        let to = match what {
            Arrange::Evict if self.state.space.has_readable_copy(ext) => return Fate::Leave,
            Arrange::Evict if ext.copy != NO_DEVICE => {
                return Fate::Stay(format!(
                    "`{}`, where its copy is, is away",
                    self.state.space.get(ext.copy).spec.name
                ));
            }
            Arrange::Evict => return Fate::Stay("it has no copy on another tier".to_owned()),
            Arrange::Promote { to: Some(name) } | Arrange::Demote { to: Some(name) } => named(name),
            Arrange::Promote { to: None } => (0..at).find(|i| views[*i].is_online() && views[*i].room_bytes() >= bytes),
            Arrange::Demote { to: None } => {
                (at + 1..views.len()).find(|i| views[*i].is_online() && views[*i].room_bytes() >= bytes)
            }
        };
        let Some(to) = to else { return Fate::Stay(format!("no tier beyond `{}` has room for it", views[at].name)) };
        let Some(dev) = self.state.space.slot_of(views[to].id) else {
            return Fate::Stay("that device is gone".to_owned());
        };
        if to == at {
            return Fate::Stay(format!("it is on `{}` already", views[at].name));
        }
        match what {
            Arrange::Promote { .. } if to > at => {
                Fate::Stay(format!("`{}` is slower than `{}`, where it is", views[to].name, views[at].name))
            }
            Arrange::Promote { .. } if ext.copy == NO_DEVICE && is_volatile(at) => {
                Fate::Stay("it has no copy that survives power loss yet: flush first".to_owned())
            }
            Arrange::Promote { .. } => Fate::Go(How::Promote, dev),
            _ if to < at => {
                Fate::Stay(format!("`{}` is faster than `{}`, where it is", views[to].name, views[at].name))
            }
            // Its copy is there: nothing has to be moved.
            _ if ext.copy == dev && self.state.space.has_readable_copy(ext) => Fate::Leave,
            _ if is_volatile(to) => Fate::Stay(format!("`{}` does not survive power loss", views[to].name)),
            _ => Fate::Go(How::Move, dev),
        }
    }

    fn tell(&self, running: &mut Running, key: ObjectKey, offset: u64, ext: &Ext, fate: &Fate, is_listed: bool) {
        let result = &mut running.result;
        let bytes = u64::from(ext.len);
        let from = self.state.space.get(ext.dev);
        let name = |dev: u8| self.state.space.get(dev).spec.name.clone();
        let (to, cost_ns, why) = match fate {
            Fate::Stay(why) => {
                result.staying_bytes += bytes;
                if result.staying_why.is_empty() {
                    result.staying_why.clone_from(why);
                }
                return;
            }
            Fate::Leave => (name(ext.copy), 0, "it has a copy there: it leaves without I/O".to_owned()),
            Fate::Go(how, dev) => {
                result.moved_bytes += bytes;
                let cost = from.view().speed.read_ns(bytes) + self.state.space.get(*dev).view().speed.write_ns(bytes);
                let why = if *how == How::Promote { "it stays where it is, too" } else { "as you said" };
                (name(*dev), cost as u64, why.to_owned())
            }
        };
        result.ranges += 1;
        result.bytes += bytes;
        result.cost_ns += cost_ns;
        if is_listed && result.moves.len() < LISTED_MAX {
            let from = from.spec.name.clone();
            result.moves.push(ArrangeMove { key, offset, bytes, from, to, cost_ns, why });
        }
    }
}
