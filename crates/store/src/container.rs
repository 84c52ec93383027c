//! Containers: their content, and how far they are persistent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cenote_model::{ContainerId, ContainerInfo, ContainerSpec, Durability, IndexId, IndexKey, ObjectId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::index::{Disorder, Index, Key, Record};
use crate::labels::Labels;
use crate::map::DeviceIndex;
use crate::persist::DeviceSet;
use crate::small_map::SmallMap;
use crate::undo::Undo;
use crate::value_log::ValueLog;

/// Bytes of an object that were written to a volatile device and have no copy yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fresh {
    pub slot: u32,
    pub generation: u32,
    pub offset: u64,
    pub len: u64,
}

/// What makes a container a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The original.
    pub of: ContainerId,
    pub name: String,
    /// Epoch at which it was made.
    pub epoch: u64,
    /// Milliseconds since 1970 at that time.
    pub unix_ms: u64,
    /// Number of cuts of the original at that time.
    pub made: u32,
    /// It has no name any more, and waits for undo entries and sessions that may need it.
    pub deleted: bool,
    /// An undo entry of the original may bring it back.
    pub in_undo: bool,
}

/// A container.
#[derive(Debug)]
pub(crate) struct Container {
    pub id: ContainerId,
    pub label: String,
    pub spec: ContainerSpec,
    pub content: Content,
    /// Epoch of its last update.
    pub epoch: u64,
    pub durable: Durable,
    pub back: Back,
    pub unsaved: Unsaved,
    /// It is a snapshot, and never changes.
    pub snapshot: Option<Box<Snapshot>>,
    /// There are or were snapshots of it: its extents may share whole checksum units with others of its family.
    pub shares: bool,
}

/// The content of a container.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub objects: SmallMap<ObjectId, u32>,
    pub indices: SmallMap<IndexId, Box<Index>>,
    pub records: u64,
    /// Bytes of their keys and values.
    pub record_bytes: u64,
    pub stored_bytes: u64,
    /// The log of values that are not in memory; `None` if it has none yet, or is a snapshot.
    pub values: Option<Box<ValueLog>>,
}

/// How far a container survives power loss, and its cuts.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    /// Epoch up to which it survives power loss: that of its last mark (commit record).
    pub persisted: u64,
    /// End of that mark in the journal.
    pub persisted_at: u64,
    /// Epoch of the last cut: updates after it need no undo of each other.
    pub cut_epoch: u64,
    /// Number of cuts made; extents carry it.
    pub cuts: u32,
    /// Number of cuts at the last mark: data written before it need no sync any more.
    pub marked_cuts: u32,
    /// Extents born at this number of cuts or later are certainly newer than the persisted epoch.
    pub later: u32,
    /// The cut that waits for copies and syncs.
    pub pending_cut: Option<u64>,
    /// Devices with a failed sync, on which data that no mark covers must be written again (see
    /// `engine/cuts/rewriting.rs`).
    pub suspect: Vec<DeviceIndex>,
    /// All suspects were listed, and none were added since.
    pub suspects_listed: bool,
}

/// The way back to the persisted epoch.
#[derive(Debug, Default)]
pub(crate) struct Back {
    pub undo: VecDeque<Undo>,
    /// Number of the first entry in `undo`.
    pub undo_first: u64,
}

/// Changes since the last cut.
#[derive(Debug, Default)]
pub(crate) struct Unsaved {
    /// What the next cut has to copy.
    pub fresh: Vec<Fresh>,
    /// When the first update came.
    pub dirty_since_ns: u64,
    /// Epoch of the last update that brought bytes on a persistent device.
    pub data_epoch: u64,
    /// The devices that updates brought bytes on.
    pub wrote: DeviceSet,
    /// Transactions after `persisted` that other containers took part in.
    pub links: Vec<(u64, ContainerId)>,
}

impl Container {
    pub fn new(id: ContainerId, label: String, spec: ContainerSpec, epoch: u64) -> Self {
        Self {
            id,
            label,
            spec,
            content: Content::default(),
            epoch,
            durable: Durable { persisted: epoch, cut_epoch: epoch, ..Durable::default() },
            back: Back::default(),
            unsaved: Unsaved::default(),
            snapshot: None,
            shares: false,
        }
    }
    /// Returns the original of the containers that may share space with this one.
    pub fn family(&self) -> Option<ContainerId> {
        match &self.snapshot {
            Some(snapshot) => Some(snapshot.of),
            None => self.shares.then_some(self.id),
        }
    }
    pub fn info(&self) -> ContainerInfo {
        ContainerInfo {
            id: self.id,
            label: self.label.clone(),
            spec: self.spec.clone(),
            objects: self.objects_seen(),
            indices: self.content.indices.len() as u64,
            records: self.content.records,
            stored_bytes: self.content.stored_bytes,
        }
    }
    /// Returns true if `more` bytes (of objects, keys and values) would pass the quota. `replaced` bytes are given up
    /// for them.
    pub fn is_past_quota(&self, more: u64, replaced: u64) -> bool {
        let quota = self.spec.quota_bytes;
        let held = self.content.stored_bytes + self.content.record_bytes;
        quota != 0 && more > replaced && held.saturating_add(more - replaced) > quota
    }
    /// Counts a change of a record: bytes of key and value before and after, or `None` without a record.
    pub fn count_record(&mut self, before: Option<usize>, after: Option<usize>) {
        self.content.records = self.content.records + u64::from(after.is_some()) - u64::from(before.is_some());
        self.content.record_bytes = self.content.record_bytes + after.unwrap_or(0) as u64 - before.unwrap_or(0) as u64;
    }
    /// Restores a record as it was before a change; `None`: it did not exist.
    pub fn put_back_record(&mut self, index: IndexId, key: &Key, was: Option<Record>) {
        let Some(records) = self.content.indices.get_mut(&index) else { return };
        let bytes = key.bytes().len();
        let after = was.as_ref().map(|record| bytes + record.value.len());
        let before = match was {
            Some(record) => records.put(key.bytes(), record),
            None => records.del(key.bytes()),
        };
        self.count_record(before.map(|record| bytes + record.value.len()), after);
    }
    /// Counts all records of an index that was added.
    pub fn count_index(&mut self, index: &Index) {
        self.content.records += index.len();
        self.content.record_bytes += index.bytes;
    }
    /// Discounts all records of an index that was removed.
    pub fn discount_index(&mut self, index: &Index) {
        self.content.records -= index.len();
        self.content.record_bytes -= index.bytes;
    }
    /// Returns true if the container goes back to a persisted epoch after power loss.
    pub fn is_tracked(&self) -> bool {
        self.spec.durability != Durability::Scratch
    }
    /// Returns true if there are updates that would not survive power loss.
    pub fn is_dirty(&self) -> bool {
        self.is_tracked() && self.epoch > self.durable.persisted
    }
    /// Returns true if it has suspects to be written again before it can be marked.
    pub fn is_suspect(&self) -> bool {
        !self.durable.suspect.is_empty()
    }
    /// Adds bytes that the next cut has to copy.
    pub fn add_fresh(&mut self, fresh: Fresh) {
        if let Some(last) = self.unsaved.fresh.last_mut() {
            let same = last.slot == fresh.slot && last.generation == fresh.generation;
            if same && last.offset + last.len == fresh.offset {
                last.len += fresh.len;
                return;
            }
        }
        self.unsaved.fresh.push(fresh);
    }
    /// Returns true if the next cut has this many bytes to inspect, or very many ranges.
    pub fn has_fresh(&self, bytes: u64) -> bool {
        const RANGES_MANY: usize = 4096;
        let mut left = bytes;
        let mut ranges = self.unsaved.fresh.iter().take(RANGES_MANY);
        ranges.any(|fresh| {
            left = left.saturating_sub(fresh.len);
            left == 0
        }) || self.unsaved.fresh.len() >= RANGES_MANY
    }
    /// Number that the next undo entry will have.
    pub fn undo_next(&self) -> u64 {
        self.back.undo_first + self.back.undo.len() as u64
    }
    /// Returns the undo entry with that number, if it still exists.
    pub fn undo_at(&self, number: u64) -> Option<&Undo> {
        self.back.undo.get(usize::try_from(number.checked_sub(self.back.undo_first)?).ok()?)
    }
    /// Returns the undo entry with that number, to be changed.
    pub fn undo_mut(&mut self, number: u64) -> Option<&mut Undo> {
        self.back.undo.get_mut(usize::try_from(number.checked_sub(self.back.undo_first)?).ok()?)
    }
}

/// All containers, by slot, id and label.
#[derive(Debug)]
pub(crate) struct Containers {
    slots: Vec<Option<Box<Container>>>,
    free: Vec<u32>,
    by_id: HashMap<ContainerId, u32, FixedState>,
    by_label: Labels,
    last: (ContainerId, u32),
    pub next_id: u64,
    /// Snapshots of each container that has any, oldest first, including deleted ones that wait.
    families: BTreeMap<ContainerId, Vec<ContainerId>>,
    given_up: GivenUp,
    /// Policies that containers may choose besides Cenote's own; not kept on media.
    pub policies: BTreeSet<String>,
    /// Indices that were out of order when the store was opened. Not kept on media.
    pub disorder: Vec<(IndexKey, Disorder)>,
}

/// Labels that containers had, with the epochs of the renames: power loss may bring some of them back.
#[derive(Debug, Default)]
struct GivenUp {
    labels: BTreeMap<String, Vec<(ContainerId, u64)>>,
    /// Number of labels at which outdated ones are dropped.
    bound: usize,
}

impl Default for Containers {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::default(),
            by_label: Labels::default(),
            last: (ContainerId(0), 0),
            next_id: 1,
            families: BTreeMap::new(),
            given_up: GivenUp::default(),
            policies: BTreeSet::new(),
            disorder: Vec::new(),
        }
    }
}

impl Containers {
    pub fn len(&self) -> usize {
        self.by_id.len()
    }
    pub fn slot_of(&mut self, id: ContainerId) -> Option<u32> {
        if self.last.0 == id && id.0 != 0 {
            return Some(self.last.1);
        }
        let slot = *self.by_id.get(&id)?;
        self.last = (id, slot);
        Some(slot)
    }
    /// Returns true if there is a container in the slot, even a hidden one.
    pub fn is_taken(&self, slot: u32) -> bool {
        self.slots.get(slot as usize).is_some_and(Option::is_some)
    }
    /// Returns the container in a slot that is known to be taken.
    pub fn at(&self, slot: u32) -> &Container {
        self.slots[slot as usize].as_deref().expect("a slot in use")
    }
    pub fn at_mut(&mut self, slot: u32) -> &mut Container {
        self.slots[slot as usize].as_deref_mut().expect("a slot in use")
    }
    pub fn get(&self, id: ContainerId) -> Option<&Container> {
        self.by_id.get(&id).map(|slot| self.at(*slot))
    }
    pub fn get_mut(&mut self, id: ContainerId) -> Option<&mut Container> {
        let slot = self.slot_of(id)?;
        Some(self.at_mut(slot))
    }
    fn label_slot(&self, label: &str) -> Option<u32> {
        let label_of = |slot: u32| self.slots.get(slot as usize)?.as_deref().map(|container| container.label.as_str());
        self.by_label.find(label, |slot| label_of(slot) == Some(label))
    }
    pub fn by_label(&self, label: &str) -> Option<&Container> {
        self.label_slot(label).map(|slot| self.at(slot))
    }
    /// Containers whose label is greater than `after`, in label order.
    pub fn after_label(&self, after: Option<&str>) -> impl Iterator<Item = &Container> {
        let ordered = self.by_label.ordered(|slot| &self.at(slot).label);
        ordered.after(after).map(|slot| self.at(slot))
    }
    pub fn iter(&self) -> impl Iterator<Item = &Container> {
        self.by_id.values().map(|slot| self.at(*slot))
    }
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Container> {
        let by_id = &self.by_id;
        // A hidden container is in its slot, but has no id.
        let seen = move |container: &&mut Box<Container>| by_id.contains_key(&container.id);
        self.slots.iter_mut().flatten().filter(seen).map(Box::as_mut)
    }
    /// Ids in order.
    pub fn ids(&self) -> Vec<ContainerId> {
        let mut ids: Vec<_> = self.by_id.keys().copied().collect();
        ids.sort_unstable();
        ids
    }
    /// Ids, in order, of the containers that match.
    pub fn ids_of(&self, is_so: impl Fn(&&Container) -> bool) -> Vec<ContainerId> {
        let mut ids: Vec<_> = self.iter().filter(is_so).map(|container| container.id).collect();
        ids.sort_unstable();
        ids
    }
    /// Adds a container whose id and label are free.
    pub fn add(&mut self, container: Container) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.next_id = self.next_id.max(container.id.0.saturating_add(1));
        self.by_id.insert(container.id, slot);
        match &container.snapshot {
            None => self.by_label.insert(&container.label, slot),
            Some(snapshot) => self.families.entry(snapshot.of).or_default().push(container.id),
        }
        self.slots[slot as usize] = Some(Box::new(container));
        slot
    }
    /// Returns true if there is no snapshot at all, not even a deleted one.
    #[inline]
    pub fn has_no_snapshots(&self) -> bool {
        self.families.is_empty()
    }
    /// Number of snapshots, including deleted ones that wait.
    pub fn snapshots(&self) -> usize {
        self.families.values().map(Vec::len).sum()
    }
    /// All snapshots of a container, including deleted ones that wait.
    pub fn snapshots_of(&self, of: ContainerId) -> &[ContainerId] {
        self.families.get(&of).map_or(&[], Vec::as_slice)
    }
    /// Returns the slot of a snapshot by its name.
    pub fn snapshot_slot(&self, of: ContainerId, name: &str) -> Option<u32> {
        let named = |container: &Container| {
            container.snapshot.as_ref().is_some_and(|snapshot| !snapshot.deleted && snapshot.name == name)
        };
        let slots = self.snapshots_of(of).iter().filter_map(|id| self.by_id.get(id).copied());
        slots.into_iter().find(|slot| named(self.at(*slot)))
    }
    /// Returns true if it is a snapshot.
    pub fn is_snapshot(&self, id: ContainerId) -> bool {
        !self.has_no_snapshots() && self.get(id).is_some_and(|container| container.snapshot.is_some())
    }
    /// Returns true if it is a snapshot that was deleted.
    pub fn is_deleted_snapshot(&self, id: ContainerId) -> bool {
        let deleted = |container: &Container| container.snapshot.as_ref().is_some_and(|snapshot| snapshot.deleted);
        !self.has_no_snapshots() && self.get(id).is_some_and(deleted)
    }
    pub fn rename(&mut self, slot: u32, label: String) -> String {
        self.by_label.insert(&label, slot);
        let old = std::mem::replace(&mut self.at_mut(slot).label, label);
        self.by_label.remove(&old, slot);
        old
    }
    /// Notes that a container gave its label up at an epoch.
    pub fn give_up(&mut self, label: &str, id: ContainerId, epoch: u64) {
        const LABELS_FEW: usize = 64;
        if self.given_up.labels.len() >= self.given_up.bound.max(LABELS_FEW) {
            let mut labels = std::mem::take(&mut self.given_up.labels);
            labels.retain(|_, givers| {
                givers.retain(|giver| self.may_go_back(*giver));
                !givers.is_empty()
            });
            self.given_up.bound = 2 * labels.len();
            self.given_up.labels = labels;
        }
        self.given_up.labels.entry(label.to_owned()).or_default().push((id, epoch));
    }
    /// Returns the containers that power loss may give this label back to.
    pub fn givers(&self, label: &str) -> Vec<ContainerId> {
        let givers = self.given_up.labels.get(label).map_or(&[][..], Vec::as_slice);
        givers.iter().filter(|giver| self.may_go_back(**giver)).map(|(id, _)| *id).collect()
    }
    fn may_go_back(&self, (id, epoch): (ContainerId, u64)) -> bool {
        self.get(id).is_some_and(|container| container.is_tracked() && container.durable.persisted < epoch)
    }
    /// Builds the table of labels after a rollback; no label can go back any more. If two containers have the same
    /// label, which only a scratch container can cause, the scratch container gets its id appended to the label.
    pub fn relabel(&mut self) {
        self.given_up = GivenUp::default();
        self.by_label = Labels::default();
        let mut ids = self.ids();
        ids.retain(|id| self.get(*id).is_some_and(|container| container.snapshot.is_none()));
        ids.sort_by_key(|id| self.get(*id).is_some_and(|container| !container.is_tracked()));
        for id in ids {
            let Some(slot) = self.slot_of(id) else { continue };
            while self.label_slot(&self.at(slot).label).is_some() {
                let label = format!("{}~{id}", self.at(slot).label);
                self.at_mut(slot).label = label;
            }
            self.by_label.insert(&self.slots[slot as usize].as_ref().expect("a slot in use").label, slot);
        }
    }
    /// Gives containers whose label another engine of the store has (`is_taken`) one with their id at its end.
    pub fn relabel_besides(&mut self, is_taken: &dyn Fn(&str) -> bool) {
        let taken = |id: &ContainerId| self.get(*id).is_some_and(|it| it.snapshot.is_none() && is_taken(&it.label));
        for id in self.ids().into_iter().filter(taken).collect::<Vec<_>>() {
            let Some(slot) = self.slot_of(id) else { continue };
            let mut label = format!("{}~{id}", self.at(slot).label);
            while is_taken(&label) || self.by_label(&label).is_some() {
                label = format!("{label}~{id}");
            }
            self.rename(slot, label);
        }
    }
    /// Removes a container's id and label from the tables; the container stays in its slot until
    /// [`Containers::vacate`].
    pub fn hide(&mut self, slot: u32) {
        let (id, label) = (self.at(slot).id, self.at(slot).label.clone());
        self.by_id.remove(&id);
        let of = self.at(slot).snapshot.as_ref().map(|snapshot| snapshot.of);
        match of {
            None => self.by_label.remove(&label, slot),
            Some(of) => {
                if let Some(family) = self.families.get_mut(&of) {
                    family.retain(|member| *member != id);
                    if family.is_empty() {
                        self.families.remove(&of);
                    }
                }
            }
        }
        self.last = (ContainerId(0), 0);
    }
    /// Takes back [`Containers::hide`], for a container that is no snapshot.
    pub fn show(&mut self, slot: u32) {
        let (id, label) = (self.at(slot).id, self.at(slot).label.clone());
        self.by_id.insert(id, slot);
        self.by_label.insert(&label, slot);
    }
    /// Empties a slot.
    pub fn vacate(&mut self, slot: u32) -> Option<Box<Container>> {
        self.free.push(slot);
        self.slots[slot as usize].take()
    }
}
