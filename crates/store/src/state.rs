//! The recoverable state: everything that a replay of the journal must bring back. It must not know how records are
//! read or written.

use std::collections::VecDeque;

use cenote_model::{ContainerId, IndexKey, ObjectKey};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::container::{Container, Containers};
use crate::index::{Disorder, Index};
use crate::objects::Objects;
use crate::persist::Cuts;
use crate::pins::Pins;
use crate::session::Sessions;
use crate::space::Space;
use crate::times::Times;
use crate::two_phase::TwoPhase;
use crate::undo::Undo;

/// The state of a store. Only records of the journal change it, in their order.
#[derive(Default)]
pub(crate) struct EngineState {
    /// Epoch of the last applied request.
    pub epoch: u64,
    pub space: Space,
    pub objects: Objects,
    pub containers: Containers,
    pub sessions: Sessions,
    pub cuts: Cuts,
    pub gone: Gone,
    /// Pins of ranges to tiers.
    pub pins: Pins,
    /// Epochs and times. Kept in checkpoints, not in the journal: unknown data count as young.
    pub times: Times,
    /// Transactions over several homes.
    pub two_phase: TwoPhase,
    pub now: Now,
}

/// Deleted data that still take space.
#[derive(Default)]
pub(crate) struct Gone {
    /// Undo number and epoch of the deletion of each detached object, by slot.
    pub detached: HashMap<u32, (u64, u64), FixedState>,
    /// Data that are given up bit by bit.
    pub reclaim: VecDeque<Reclaim>,
}

/// The moment of the current request. Not kept on media.
#[derive(Default)]
pub(crate) struct Now {
    /// Seconds since the engine was opened.
    pub s: u32,
    /// The clock when the request came.
    pub ns: u64,
    /// Counts requests, for [`crate::objects::LastUse::word_mark`].
    pub request: u32,
}

/// Something deleted whose parts are still to be given up.
pub(crate) enum Reclaim {
    Object(u32),
    Container(u32),
    Index(Box<Index>),
    Undo(VecDeque<Undo>),
}

impl EngineState {
    /// Returns the slot of a live object.
    pub fn find_object(&mut self, key: ObjectKey) -> Option<u32> {
        let container = self.containers.slot_of(key.container)?;
        self.objects.find(container, &self.containers.at(container).content.objects, key)
    }
    /// Notes that an index was out of order.
    pub fn found_disorder(&mut self, key: IndexKey, found: Disorder) {
        if found == Disorder::default() {
            return;
        }
        match self.containers.disorder.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => known.add(found),
            None => self.containers.disorder.push((key, found)),
        }
    }
    /// Frees the checkpoint that was read at opening, once most of its records were read or are gone. The other records
    /// get memory of their own, so that they keep at most twice what they need. Copies about `most` bytes; returns
    /// false if there is more to do.
    pub fn leave_checkpoint(&mut self, most: u64) -> bool {
        let (mut needed, mut kept) = (0, 0);
        for index in self.containers.iter().flat_map(|container| container.content.indices.values()) {
            let (its, all) = index.encoded_bytes();
            (needed, kept) = (needed + its, all.max(kept));
        }
        if kept <= 2 * needed {
            return true;
        }
        let mut left = most;
        for index in self.containers.iter_mut().flat_map(|container| container.content.indices.values_mut()) {
            let (its, all) = index.encoded_bytes();
            if all <= its {
                continue; // it has memory of its own, or none
            }
            if left == 0 {
                return false;
            }
            left = left.saturating_sub(its);
            index.leave_checkpoint();
        }
        true
    }
    /// Drops pins of containers and objects that are gone for good.
    pub fn prune_pins(&mut self) {
        let containers = &self.containers;
        // Power loss may still undo a deletion: until then its pins stay.
        let is_there = |key: ObjectKey| {
            containers
                .get(key.container)
                .is_some_and(|c| c.content.objects.contains_key(&key.object) || !c.back.undo.is_empty())
        };
        self.pins.prune(is_there, |id| containers.get(id).is_some());
    }
    /// Returns the key of the object in a slot.
    pub fn key_of(&self, slot: u32) -> ObjectKey {
        let object = self.objects.get(slot);
        ObjectKey { container: self.containers.at(object.container).id, object: object.id() }
    }
    /// Returns the containers that share transactions after their persisted epoch with `id`, itself included, in order
    /// of ids.
    pub fn linked(&self, id: ContainerId) -> Vec<ContainerId> {
        let mut members = vec![id];
        let mut next = 0;
        while let Some(member) = members.get(next) {
            next += 1;
            let Some(container) = self.containers.get(*member) else { continue };
            for (epoch, other) in &container.unsaved.links {
                if *epoch > container.durable.persisted && !members.contains(other) {
                    members.push(*other);
                }
            }
        }
        members.retain(|id| self.containers.get(*id).is_some_and(Container::is_tracked));
        members.sort_unstable();
        members
    }
}
