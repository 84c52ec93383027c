//! The model of a store's content, and the effect of each change on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_model::{
    BLOCK_SHIFT_MAX, BLOCK_SHIFT_MIN, Check, ContainerId, ContainerSpec, IndexId, IndexKey, KEY_BYTES_MAX, KeyCode,
    OBJECT_BYTES_MAX, ObjectId, ObjectKey, SNAPSHOT_NAME_BYTES_MAX, VALUE_BYTES_MAX,
};

use crate::content::WriteId;

/// One change, as the oracle sees it: writes have an id in place of an extent.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the variants mirror `cenote_model::Update`, which documents them")]
pub enum Change {
    ContainerCreate { id: ContainerId, label: String, spec: ContainerSpec },
    ContainerRename { id: ContainerId, label: String },
    ContainerSet { id: ContainerId, spec: ContainerSpec },
    ContainerDelete { id: ContainerId },
    SnapshotCreate { of: ContainerId, id: ContainerId, name: String, replace: bool },
    SnapshotDelete { of: ContainerId, name: String },
    SnapshotRollback { of: ContainerId, name: String },
    ObjectCreate { key: ObjectKey, block_shift: u8 },
    ObjectDelete { key: ObjectKey },
    Write { key: ObjectKey, offset: u64, len: u64, id: WriteId, from: u64 },
    Punch { key: ObjectKey, offset: u64, len: u64 },
    Truncate { key: ObjectKey, size: u64 },
    IndexCreate { key: IndexKey },
    IndexDelete { key: IndexKey },
    Put { index: IndexKey, key: Vec<u8>, value: Arc<[u8]>, only_new: bool },
    Del { index: IndexKey, key: Vec<u8> },
    Share { to: ObjectKey, at: u64, from: ObjectKey, offset: u64, len: u64 },
}

impl Change {
    /// Returns true if it changes a container itself, not its content.
    pub fn is_about_container(&self) -> bool {
        matches!(
            self,
            Self::ContainerCreate { .. }
                | Self::ContainerRename { .. }
                | Self::ContainerSet { .. }
                | Self::ContainerDelete { .. }
        )
    }
    /// The container that it changes.
    pub fn container(&self) -> ContainerId {
        match self {
            Self::ContainerCreate { id, .. }
            | Self::ContainerRename { id, .. }
            | Self::ContainerSet { id, .. }
            | Self::ContainerDelete { id } => *id,
            Self::SnapshotCreate { of, .. } | Self::SnapshotDelete { of, .. } | Self::SnapshotRollback { of, .. } => {
                *of
            }
            Self::ObjectCreate { key, .. }
            | Self::ObjectDelete { key }
            | Self::Write { key, .. }
            | Self::Punch { key, .. }
            | Self::Truncate { key, .. }
            | Self::Share { to: key, .. } => key.container,
            Self::IndexCreate { key } | Self::IndexDelete { key } => key.container,
            Self::Put { index, .. } | Self::Del { index, .. } => index.container,
        }
    }
}

/// A range of an object with bytes of one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Bytes.
    pub len: u64,
    /// Id of the write.
    pub id: WriteId,
    /// Position of the first byte in that write.
    pub from: u64,
}

/// An object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectState {
    /// Recorded size.
    pub size: u64,
    /// log2 of the block size.
    pub block_shift: u8,
    /// Content by offset; gaps are holes.
    pub map: BTreeMap<u64, Segment>,
    /// Epoch of the last update.
    pub epoch: u64,
}

impl ObjectState {
    /// Makes `[offset, offset + len)` a hole; the size stays.
    pub fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        if let Some((&start, &segment)) = self.map.range(..offset).next_back() {
            let segment_end = start + segment.len;
            if segment_end > offset {
                self.map.insert(start, Segment { len: offset - start, ..segment });
                if segment_end > end {
                    let cut = end - start;
                    self.map.insert(end, Segment { len: segment_end - end, from: segment.from + cut, ..segment });
                }
            }
        }
        while let Some((&start, &segment)) = self.map.range(offset..end).next() {
            self.map.remove(&start);
            let segment_end = start + segment.len;
            if segment_end > end {
                let cut = end - start;
                self.map.insert(end, Segment { len: segment_end - end, from: segment.from + cut, ..segment });
            }
        }
    }
    /// Writes bytes of a write at an offset; grows the size to cover them.
    pub fn write(&mut self, offset: u64, len: u64, id: WriteId, from: u64) {
        self.punch(offset, len);
        if len > 0 {
            self.map.insert(offset, Segment { len, id, from });
        }
        self.size = self.size.max(offset + len);
    }
    /// Sets the size and drops the bytes beyond it.
    pub fn truncate(&mut self, size: u64) {
        self.punch(size, u64::MAX - size);
        self.size = size;
    }
    /// Covered ranges, with adjacent ones joined.
    pub fn coverage(&self) -> Vec<(u64, u64)> {
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (&start, segment) in &self.map {
            match joined.last_mut() {
                Some((_, end)) if *end == start => *end = start + segment.len,
                _ => joined.push((start, start + segment.len)),
            }
        }
        joined
    }
    /// Fills `buf` with the expected result of a read at `offset`: bytes of writes, and zeros
    /// elsewhere.
    pub fn read(&self, offset: u64, buf: &mut [u8]) {
        buf.fill(0);
        let end = offset + buf.len() as u64;
        let first = self.map.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
        for (&start, segment) in self.map.range(first..end) {
            let (low, high) = (start.max(offset), (start + segment.len).min(end));
            if low < high {
                let part = &mut buf[(low - offset) as usize..(high - offset) as usize];
                crate::content::fill(segment.id, segment.from + (low - start), part);
            }
        }
    }
}

/// A record of an index: its value and the epoch of its last change.
pub type Record = (Arc<[u8]>, u64);

/// A container.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ContainerState {
    /// Its label.
    pub label: String,
    /// Its settings.
    pub spec: ContainerSpec,
    /// Its objects.
    pub objects: BTreeMap<ObjectId, ObjectState>,
    /// Its indices.
    pub indices: BTreeMap<IndexId, BTreeMap<Vec<u8>, Record>>,
    /// Its snapshots, by name: id and content of each.
    pub snapshots: BTreeMap<String, (ContainerId, Arc<ContainerState>)>,
}

impl ContainerState {
    /// Restores the content of `kept`. Unchanged objects keep their epoch.
    fn roll_back(&mut self, kept: &Self, epoch: u64) {
        let mut objects = kept.objects.clone();
        for (id, object) in &mut objects {
            if self.objects.get(id).is_none_or(|now| now.epoch != object.epoch) {
                object.epoch = epoch;
            }
        }
        let mut indices = kept.indices.clone();
        for (id, records) in &mut indices {
            let now = self.indices.get(id);
            for (key, record) in records {
                if now.and_then(|now| now.get(key)).is_none_or(|now| now.1 != record.1) {
                    record.1 = epoch;
                }
            }
        }
        (self.objects, self.indices) = (objects, indices);
    }
}

/// The expected answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Applied, with a code for each update (all `Ok` if atomic).
    Applied(Vec<KeyCode>),
    /// Refused as a whole because of the update with this code.
    Refused(KeyCode),
    /// A check does not hold.
    Conflict,
}

/// A whole store. Cheap to clone: containers are copied on write.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreState {
    /// Its containers.
    pub containers: BTreeMap<ContainerId, Arc<ContainerState>>,
}

impl StoreState {
    /// An object, if it exists.
    pub fn object(&self, key: ObjectKey) -> Option<&ObjectState> {
        self.containers.get(&key.container)?.objects.get(&key.object)
    }
    /// An index, if it exists.
    pub fn index(&self, key: IndexKey) -> Option<&BTreeMap<Vec<u8>, Record>> {
        self.containers.get(&key.container)?.indices.get(&key.index)
    }
    fn container_mut(&mut self, id: ContainerId) -> Option<&mut ContainerState> {
        self.containers.get_mut(&id).map(Arc::make_mut)
    }
    pub(super) fn object_mut(&mut self, key: ObjectKey) -> Option<&mut ObjectState> {
        self.container_mut(key.container)?.objects.get_mut(&key.object)
    }
    fn index_mut(&mut self, key: IndexKey) -> Option<&mut BTreeMap<Vec<u8>, Record>> {
        self.container_mut(key.container)?.indices.get_mut(&key.index)
    }
    /// Returns true if the check holds.
    pub fn holds(&self, check: &Check) -> bool {
        if let Check::Value { index, key, value } = check {
            let found = self.index(*index).and_then(|i| i.get(key)).map(|r| &r.0[..]);
            return found == value.as_deref();
        }
        if let Check::NoKeys { index, prefix } = check {
            let Some(records) = self.index(*index) else { return true };
            return records.range(prefix.clone()..).next().is_none_or(|(key, _)| !key.starts_with(prefix));
        }
        if let Check::Size { key, size } = check {
            return self.object(*key).is_some_and(|object| object.size == *size);
        }
        let found = match check {
            Check::Value { .. } | Check::NoKeys { .. } | Check::Size { .. } => None,
            Check::Object { key, .. } => self.object(*key).map(|o| o.epoch),
            Check::Record { index, key, .. } => self.index(*index).and_then(|i| i.get(key)).map(|r| r.1),
        };
        match (check, found) {
            (Check::Object { epoch: 0, .. } | Check::Record { epoch: 0, .. }, found) => found.is_none(),
            (Check::Object { epoch, .. } | Check::Record { epoch, .. }, Some(found)) => found <= *epoch,
            _ => false,
        }
    }
    /// Applies a change if it is valid; otherwise changes nothing.
    pub fn change(&mut self, change: &Change, epoch: u64) -> KeyCode {
        match change {
            Change::ContainerCreate { .. }
            | Change::ContainerRename { .. }
            | Change::ContainerSet { .. }
            | Change::ContainerDelete { .. } => self.change_container(change),
            Change::SnapshotCreate { .. } | Change::SnapshotDelete { .. } | Change::SnapshotRollback { .. } => {
                self.change_snapshot(change, epoch)
            }
            Change::ObjectCreate { .. }
            | Change::ObjectDelete { .. }
            | Change::Write { .. }
            | Change::Punch { .. }
            | Change::Truncate { .. } => self.change_object(change, epoch),
            Change::Share { to, at, from, offset, len } => self.share((*to, *at), (*from, *offset), *len, epoch),
            Change::IndexCreate { .. } | Change::IndexDelete { .. } | Change::Put { .. } | Change::Del { .. } => {
                self.change_index(change, epoch)
            }
        }
    }
    fn change_container(&mut self, change: &Change) -> KeyCode {
        let label_taken = |state: &Self, label: &str| state.containers.values().any(|c| c.label == label);
        match change {
            Change::ContainerCreate { id, label, spec } => {
                if label_taken(self, label) || self.containers.contains_key(id) {
                    return KeyCode::Exists;
                }
                let made = ContainerState { label: label.clone(), spec: spec.clone(), ..ContainerState::default() };
                self.containers.insert(*id, Arc::new(made));
            }
            Change::ContainerRename { id, label } => {
                let own = self.containers.get(id).is_some_and(|c| c.label == *label);
                if !own && label_taken(self, label) && self.containers.contains_key(id) {
                    return KeyCode::Exists;
                }
                let Some(container) = self.container_mut(*id) else { return KeyCode::NotFound };
                container.label.clone_from(label);
            }
            Change::ContainerSet { id, spec } => {
                let Some(container) = self.container_mut(*id) else { return KeyCode::NotFound };
                container.spec = spec.clone();
            }
            Change::ContainerDelete { id } => {
                if self.containers.remove(id).is_none() {
                    return KeyCode::NotFound;
                }
            }
            _ => unreachable!("not about containers"),
        }
        KeyCode::Ok
    }
    fn change_snapshot(&mut self, change: &Change, epoch: u64) -> KeyCode {
        match change {
            Change::SnapshotCreate { of, id, name, replace } => {
                if name.is_empty() || name.len() > SNAPSHOT_NAME_BYTES_MAX {
                    return KeyCode::Invalid;
                }
                let Some(container) = self.container_mut(*of) else { return KeyCode::NotFound };
                if !replace && container.snapshots.contains_key(name) {
                    return KeyCode::Exists;
                }
                let content = ContainerState {
                    objects: container.objects.clone(),
                    indices: container.indices.clone(),
                    ..ContainerState::default()
                };
                container.snapshots.insert(name.clone(), (*id, Arc::new(content)));
            }
            Change::SnapshotDelete { of, name } => {
                if self.container_mut(*of).and_then(|container| container.snapshots.remove(name)).is_none() {
                    return KeyCode::NotFound;
                }
            }
            Change::SnapshotRollback { of, name } => {
                let Some(container) = self.container_mut(*of) else { return KeyCode::NotFound };
                let Some((_, kept)) = container.snapshots.get(name).cloned() else { return KeyCode::NotFound };
                container.roll_back(&kept, epoch);
            }
            _ => unreachable!("not about snapshots"),
        }
        KeyCode::Ok
    }
    fn change_object(&mut self, change: &Change, epoch: u64) -> KeyCode {
        match change {
            Change::ObjectCreate { key, block_shift } => {
                if !(BLOCK_SHIFT_MIN..=BLOCK_SHIFT_MAX).contains(block_shift) {
                    return KeyCode::Invalid;
                }
                let Some(container) = self.container_mut(key.container) else { return KeyCode::NotFound };
                if container.objects.contains_key(&key.object) {
                    return KeyCode::Exists;
                }
                let made = ObjectState { block_shift: *block_shift, epoch, ..ObjectState::default() };
                container.objects.insert(key.object, made);
            }
            Change::ObjectDelete { key } => {
                let gone = self.container_mut(key.container).and_then(|c| c.objects.remove(&key.object));
                if gone.is_none() {
                    return KeyCode::NotFound;
                }
            }
            Change::Write { key, offset, len, id, from } => {
                if offset.checked_add(*len).is_none_or(|end| end > OBJECT_BYTES_MAX) {
                    return KeyCode::Invalid;
                }
                let Some(object) = self.object_mut(*key) else { return KeyCode::NotFound };
                object.write(*offset, *len, *id, *from);
                object.epoch = epoch;
            }
            Change::Punch { key, offset, len } => {
                let Some(object) = self.object_mut(*key) else { return KeyCode::NotFound };
                object.punch(*offset, *len);
                object.epoch = epoch;
            }
            Change::Truncate { key, size } => {
                if *size > OBJECT_BYTES_MAX {
                    return KeyCode::Invalid;
                }
                let Some(object) = self.object_mut(*key) else { return KeyCode::NotFound };
                object.truncate(*size);
                object.epoch = epoch;
            }
            _ => unreachable!("not about objects"),
        }
        KeyCode::Ok
    }
    fn change_index(&mut self, change: &Change, epoch: u64) -> KeyCode {
        match change {
            Change::IndexCreate { key } => {
                let Some(container) = self.container_mut(key.container) else { return KeyCode::NotFound };
                if container.indices.contains_key(&key.index) {
                    return KeyCode::Exists;
                }
                container.indices.insert(key.index, BTreeMap::new());
            }
            Change::IndexDelete { key } => {
                let gone = self.container_mut(key.container).and_then(|c| c.indices.remove(&key.index));
                if gone.is_none() {
                    return KeyCode::NotFound;
                }
            }
            Change::Put { index, key, value, only_new } => {
                if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
                    return KeyCode::Invalid;
                }
                let Some(records) = self.index_mut(*index) else { return KeyCode::NotFound };
                if *only_new && records.contains_key(key) {
                    return KeyCode::Exists;
                }
                records.insert(key.clone(), (value.clone(), epoch));
            }
            Change::Del { index, key } => {
                let Some(records) = self.index_mut(*index) else { return KeyCode::NotFound };
                if records.remove(key).is_none() {
                    return KeyCode::NotFound;
                }
            }
            _ => unreachable!("not about indices"),
        }
        KeyCode::Ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Compares the map of segments with the simplest model: an array of (write, position).
    #[test]
    fn segments_agree_with_an_array_of_bytes() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut object = ObjectState::default();
            let mut plain: Vec<Option<(u64, u64)>> = vec![None; 400];
            let mut size = 0u64;
            for id in 0..60u64 {
                let (offset, len) = (rng.below(200), rng.between(1, 100));
                match rng.below(4) {
                    0 => {
                        object.punch(offset, len);
                        plain[offset as usize..(offset + len) as usize].fill(None);
                    }
                    1 => {
                        object.truncate(offset);
                        plain[offset as usize..].fill(None);
                        size = offset;
                    }
                    _ => {
                        object.write(offset, len, WriteId(id), 3);
                        for i in 0..len {
                            plain[(offset + i) as usize] = Some((id, 3 + i));
                        }
                        size = size.max(offset + len);
                    }
                }
                let mut flat = vec![None; 400];
                for (&start, segment) in &object.map {
                    assert!(segment.len > 0);
                    for i in 0..segment.len {
                        flat[(start + i) as usize] = Some((segment.id.0, segment.from + i));
                    }
                }
                assert_eq!(flat, plain, "CENOTE_SEED={seed}");
                assert_eq!(object.size, size, "CENOTE_SEED={seed}");
                let mut buf = vec![9; 150];
                object.read(offset, &mut buf);
                for (i, byte) in buf.iter().enumerate() {
                    let expected =
                        plain[offset as usize + i].map_or(0, |(id, at)| crate::content::bytes(WriteId(id), at, 1)[0]);
                    assert_eq!(*byte, expected, "CENOTE_SEED={seed}");
                }
            }
        }
    }
}
