//! How containers become persistent: cuts, marks (commit records), and what undo lists give up when a mark passes them.
//!
//! A *cut* fixes an epoch E for a group of containers. Volatile data at E are copied to persistent devices, the devices
//! are synced, and then a *mark* says that the containers survive power loss up to E. Rollback leads only to states at
//! cuts, so data written after a cut need no undo when they are overwritten before the next one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cenote_model::{ContainerId, Error};

use crate::container::Fresh;
use crate::map::{DeviceIndex, Pieces};
use crate::space::Tag;
use crate::state::{EngineState, Reclaim};
use crate::undo::{Change, Undo};

/// Bytes that a pending cut has to copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DrainItem {
    /// A range of an object.
    Fresh(Fresh),
    /// A piece in an undo entry.
    Undo { container: ContainerId, number: u64, piece: usize },
}

/// A set of device slots. Slots beyond 64 share bits, so that the set may name more devices than were added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct DeviceSet(u64);

impl DeviceSet {
    /// All devices.
    pub const ALL: Self = Self(u64::MAX);
    pub fn add(&mut self, dev: DeviceIndex) {
        self.0 |= 1 << (dev % 64);
    }
    pub fn add_all(&mut self, others: Self) {
        self.0 |= others.0;
    }
    pub fn remove_all(&mut self, others: Self) {
        self.0 &= !others.0;
    }
    pub fn has(self, dev: DeviceIndex) -> bool {
        self.0 & 1 << (dev % 64) != 0
    }
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
    /// Returns true if the other set has all of these.
    pub fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
    /// Returns those that are in the other set, too.
    pub fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Phase of a cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum CutPhase {
    /// Copies are made.
    #[default]
    Drain,
    /// Waits for a device sync to begin.
    Copied,
    /// Waits for a device sync to end.
    Syncing,
}

/// A cut that has no mark yet.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    pub id: u64,
    pub epoch: u64,
    pub members: Vec<ContainerId>,
    pub queue: VecDeque<DrainItem>,
    pub in_flight: u32,
    pub phase: CutPhase,
    pub sync: SyncNeed,
    /// Something as it was at the cut cannot be read any more: a later cut replaces it.
    pub renew: bool,
    /// A response waits for it.
    pub urgent: bool,
    pub tries: Tries,
}

/// What has to be synced before a cut is marked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SyncNeed {
    /// Bytes were written to persistent devices that may not be on media yet.
    pub is_needed: bool,
    /// The devices to which they were written: no others need a sync.
    pub wrote: DeviceSet,
}

/// The attempts of a cut so far.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    /// When it was made; 0 if by an earlier engine.
    pub begun_ns: u64,
    /// The last error.
    pub error: Option<Error>,
    /// When that was, and the number of failures.
    pub failed_ns: u64,
    pub failures: u32,
    /// Not to be tried again before.
    pub retry_ns: u64,
    /// Since when there is no room for a copy.
    pub short_since_ns: Option<u64>,
    /// Number of earlier cuts that failed and were replaced, one by the next.
    pub renewals: u32,
}

/// All pending cuts.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    pub pending: BTreeMap<u64, Cut>,
    pub next_id: u64,
    /// Containers that may have changed after their persisted epoch; some may be gone.
    pub dirty: BTreeSet<ContainerId>,
    /// Containers that somebody waits for.
    pub wanted: BTreeSet<ContainerId>,
}

impl Cuts {
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Cut> {
        self.pending.get_mut(&id)
    }
}

impl EngineState {
    /// Makes a cut at the current epoch. It replaces any cut that is pending for a member.
    ///
    /// `later`, if not empty: for each member, the number of cuts from which on everything was born after its persisted
    /// epoch. Undo entries that keep such data did so for the replaced cuts, and are given up.
    pub fn begin_cut(&mut self, id: u64, epoch: u64, members: &[ContainerId], later: &[u32]) {
        for (member, later) in members.iter().zip(later) {
            self.forget_later(*member, *later);
        }
        let mut cut = Cut { id, epoch, members: members.to_vec(), ..Cut::default() };
        for member in members {
            let pending = self.containers.get(*member).and_then(|container| container.durable.pending_cut);
            if let Some(earlier) = pending.and_then(|earlier| self.cuts.pending.remove(&earlier)) {
                // All of its members are in the new cut, except those that have no persisted epoch any more.
                for other in earlier.members.iter().filter(|other| !members.contains(other)) {
                    let Some(container) = self.containers.get_mut(*other) else { continue };
                    debug_assert!(!container.is_tracked(), "container {other} lost its cut");
                    container.durable.pending_cut = None;
                }
                // Overwritten data need no copy any more: nobody goes back to the earlier cut.
                cut.queue.extend(earlier.queue.into_iter().filter(|item| matches!(item, DrainItem::Fresh(_))));
                cut.sync.is_needed = true;
                cut.sync.wrote.add_all(earlier.sync.wrote);
                cut.tries.renewals = cut.tries.renewals.max(earlier.tries.renewals + 1);
            }
        }
        for member in members {
            let Some(container) = self.containers.get_mut(*member) else { continue };
            cut.sync.is_needed |=
                container.unsaved.data_epoch > container.durable.persisted || !container.unsaved.fresh.is_empty();
            cut.sync.wrote.add_all(std::mem::take(&mut container.unsaved.wrote));
            if container.family().is_some() {
                cut.sync.wrote = DeviceSet::ALL; // copies that another member of the family has made count for this one, too
            }
            container.durable.cuts += 1;
            container.durable.cut_epoch = epoch;
            container.durable.pending_cut = Some(id);
            cut.queue.extend(std::mem::take(&mut container.unsaved.fresh).into_iter().map(DrainItem::Fresh));
        }
        self.cuts.next_id = self.cuts.next_id.max(id + 1);
        self.cuts.pending.insert(id, cut);
    }

    /// Marks the containers of a cut as persisted up to its epoch, once the journal is on media up to `journal`.
    pub fn mark(&mut self, id: u64, epoch: u64, members: &[ContainerId], journal: u64) {
        self.cuts.pending.remove(&id);
        for member in members {
            let Some(container) = self.containers.get_mut(*member) else { continue };
            container.durable.persisted = epoch;
            container.durable.persisted_at = journal;
            container.durable.marked_cuts = container.durable.cuts;
            container.durable.later = container.durable.cuts;
            container.durable.pending_cut = None;
            container.unsaved.links.retain(|(linked, _)| *linked > epoch);
            let count = container.back.undo.partition_point(|undo| undo.epoch <= epoch);
            let later = container.back.undo.split_off(count);
            let done = std::mem::replace(&mut container.back.undo, later);
            container.back.undo_first += count as u64;
            if container.epoch <= epoch {
                self.cuts.dirty.remove(member);
            }
            if !done.is_empty() {
                for undo in &done {
                    match undo.change {
                        Change::ObjectDeleted { slot, .. } => drop(self.gone.detached.remove(&slot)),
                        // At once: the journal must not name its extents any more.
                        Change::SnapshotDeleted { id } => self.forget_snapshot(id),
                        _ => {}
                    }
                }
                self.gone.reclaim.push_back(Reclaim::Undo(done));
            }
        }
    }

    /// Gives up data born at `later` cuts or after, and deleted or overwritten since, with the undo entries that hold
    /// nothing else.
    ///
    /// A rollback to the persisted epoch undoes all entries, the newest first. What such an entry would bring back, an
    /// older one would take away again: the entry of the change that created it.
    fn forget_later(&mut self, id: ContainerId, later: u32) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let undo = std::mem::take(&mut container.back.undo);
        let first = container.back.undo_first;
        let mut given_up = VecDeque::new();
        let mut kept = VecDeque::with_capacity(undo.len());
        for Undo { epoch, change } in undo {
            let change = match change {
                Change::Range { object, from, to, pieces, size } => {
                    let is_covered = Self::bytes_of(&pieces) == to - from;
                    let (mut old, mut new) = (Pieces::None, Pieces::None);
                    for (offset, ext) in pieces {
                        if ext.born >= later { new.push(offset, ext) } else { old.push(offset, ext) }
                    }
                    let is_over = is_covered && old.is_empty();
                    if !new.is_empty() {
                        given_up
                            .push_back(Undo { epoch, change: Change::Range { object, from, to, pieces: new, size } });
                    }
                    if is_over {
                        continue;
                    }
                    Change::Range { object, from, to, pieces: old, size }
                }
                Change::ObjectDeleted { slot } if self.objects.get(slot).created >= later => {
                    self.gone.detached.remove(&slot);
                    given_up.push_back(Undo { epoch, change });
                    continue;
                }
                Change::IndexDeleted { was, .. } if was.created >= later => {
                    self.gone.reclaim.push_back(Reclaim::Index(was));
                    continue;
                }
                Change::SnapshotDeleted { id } if self.made_later(id, later) => {
                    self.forget_snapshot(id);
                    continue;
                }
                other => other,
            };
            if let Change::ObjectDeleted { slot } = change {
                self.gone.detached.insert(slot, (first + kept.len() as u64, epoch));
            }
            kept.push_back(Undo { epoch, change });
        }
        if let Some(container) = self.containers.get_mut(id) {
            container.back.undo = kept;
        }
        if !given_up.is_empty() {
            self.gone.reclaim.push_back(Reclaim::Undo(given_up));
        }
    }

    fn made_later(&self, snapshot: ContainerId, later: u32) -> bool {
        let snapshot = self.containers.get(snapshot).and_then(|container| container.snapshot.as_ref());
        snapshot.is_none_or(|snapshot| snapshot.made >= later)
    }

    /// Gives up what an undo entry kept.
    pub(crate) fn drop_undo(&mut self, undo: Undo, tag: Tag) {
        match undo.change {
            Change::Range { pieces, .. } => {
                for (_, ext) in pieces {
                    self.space.drop_ext(&ext, tag);
                }
            }
            Change::ObjectDeleted { slot, .. } => self.gone.reclaim.push_back(Reclaim::Object(slot)),
            Change::IndexDeleted { was, .. } => self.gone.reclaim.push_back(Reclaim::Index(was)),
            Change::SnapshotDeleted { id } => self.forget_snapshot(id),
            Change::ObjectCreated { .. }
            | Change::IndexCreated { .. }
            | Change::Record { .. }
            | Change::SnapshotMade { .. }
            | Change::Renamed { .. }
            | Change::Set { .. }
            | Change::Made => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_devices_name_at_least_those_that_were_added() {
        let mut set = DeviceSet::default();
        set.add(3);
        set.add(70);
        assert!(set.has(3) && set.has(70) && set.has(6), "slots beyond 64 share a place");
        assert!(!set.has(4) && set.is_within(DeviceSet::ALL) && !DeviceSet::ALL.is_within(set));
        let mut other = DeviceSet::default();
        other.add(4);
        assert!(!set.meets(other) && set.common(other) == DeviceSet::default());
        other.add_all(set);
        assert!(set.meets(other) && set.is_within(other));
    }
}
