//! Content read from a store, and its comparison with the model.

use std::collections::BTreeMap;

use cenote_model::{ContainerId, ContainerSpec, IndexId, ObjectId};

use super::state::{ContainerState, ObjectState, StoreState};
use crate::content::first_difference;

/// An object as it was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObservedObject {
    /// Recorded size.
    pub size: u64,
    /// log2 of the block size.
    pub block_shift: u8,
    /// Epoch of its last update, as the store reports it.
    pub epoch: u64,
    /// Bytes of each extent, ascending by offset.
    pub pieces: Vec<(u64, Vec<u8>)>,
    /// Ranges (begin, end) that the store refused because their checksum or device is bad. Not in `pieces`.
    pub refused: Vec<(u64, u64)>,
}

/// Records by key: value and epoch of the last change.
pub type ObservedRecords = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// A container as it was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObservedContainer {
    /// Its label.
    pub label: String,
    /// Its settings.
    pub spec: ContainerSpec,
    /// Its objects.
    pub objects: BTreeMap<ObjectId, ObservedObject>,
    /// Its indices, with value and epoch of each record.
    pub indices: BTreeMap<IndexId, ObservedRecords>,
    /// Its snapshots, by name: id and content of each.
    pub snapshots: BTreeMap<String, (ContainerId, ObservedContainer)>,
}

/// A store as it was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// The epoch of its last update; 0 if unknown.
    pub epoch: u64,
    /// Its containers.
    pub containers: BTreeMap<ContainerId, ObservedContainer>,
}

/// Permitted differences in a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lenience {
    /// Objects with content may be missing (scratch objects after power loss).
    pub objects_may_be_gone: bool,
}

impl Observed {
    /// The first difference from a state of the model.
    pub fn compare(&self, state: &StoreState) -> Result<(), String> {
        self.compare_containers(state)?;
        for (id, expected) in &state.containers {
            if let Some(found) = self.containers.get(id) {
                found.compare_content(expected, Lenience::default()).map_err(|e| format!("container {id}: {e}"))?;
            }
        }
        Ok(())
    }
    /// The first difference in the existing containers, their labels and their settings.
    pub fn compare_containers(&self, state: &StoreState) -> Result<(), String> {
        for (id, expected) in &state.containers {
            let Some(found) = self.containers.get(id) else {
                return Err(format!("container {id} `{}` is missing", expected.label));
            };
            found.compare_settings(expected).map_err(|why| format!("container {id} {why}"))?;
        }
        match self.containers.keys().find(|id| !state.containers.contains_key(id)) {
            Some(id) => Err(format!("container {id} should not be there")),
            None => Ok(()),
        }
    }
}

impl ObservedContainer {
    /// The first difference in label and settings.
    pub fn compare_settings(&self, expected: &ContainerState) -> Result<(), String> {
        if self.label != expected.label {
            return Err(format!("has label `{}`, expected `{}`", self.label, expected.label));
        }
        let (a, b) = (&self.spec, &expected.spec);
        if (a.durability, a.block_shift, a.quota_bytes) != (b.durability, b.block_shift, b.quota_bytes) {
            return Err(format!("has settings {a:?}, expected {b:?}"));
        }
        Ok(())
    }
    /// The first difference in content.
    pub fn compare_content(&self, expected: &ContainerState, lenience: Lenience) -> Result<(), String> {
        for (id, object) in &expected.objects {
            match self.objects.get(id) {
                None if lenience.objects_may_be_gone && !object.map.is_empty() => {}
                None => return Err(format!("object {id} is missing")),
                Some(found) => found.compare(object).map_err(|e| format!("object {id}: {e}"))?,
            }
        }
        if let Some(id) = self.objects.keys().find(|id| !expected.objects.contains_key(id)) {
            return Err(format!("object {id} should not be there"));
        }
        for (id, records) in &expected.indices {
            let Some(found) = self.indices.get(id) else { return Err(format!("index {id} is missing")) };
            for (key, (value, _)) in records {
                match found.get(key) {
                    None => return Err(format!("index {id}: record {key:?} is missing")),
                    Some((got, _)) if got[..] != value[..] => {
                        return Err(format!("index {id}: record {key:?} has another value"));
                    }
                    Some(_) => {}
                }
            }
            if let Some(key) = found.keys().find(|key| !records.contains_key(*key)) {
                return Err(format!("index {id}: record {key:?} should not be there"));
            }
        }
        if let Some(id) = self.indices.keys().find(|id| !expected.indices.contains_key(id)) {
            return Err(format!("index {id} should not be there"));
        }
        for (name, (id, content)) in &expected.snapshots {
            match self.snapshots.get(name) {
                Some((found, has)) if found == id => {
                    has.compare_content(content, lenience).map_err(|why| format!("snapshot `{name}`: {why}"))?;
                }
                Some((found, _)) => return Err(format!("snapshot `{name}` is {found}, expected {id}")),
                None => return Err(format!("snapshot `{name}` is missing")),
            }
        }
        match self.snapshots.keys().find(|name| !expected.snapshots.contains_key(*name)) {
            Some(name) => Err(format!("snapshot `{name}` should not be there")),
            None => Ok(()),
        }
    }
    /// Removes from the model the objects that were allowed to be missing, and are.
    pub fn forget_missing(&self, model: &mut ContainerState) {
        model.objects.retain(|id, _| self.objects.contains_key(id));
        for (name, (_, content)) in &mut model.snapshots {
            if let Some((_, found)) = self.snapshots.get(name) {
                found.forget_missing(std::sync::Arc::make_mut(content));
            }
        }
    }
}

impl ObservedObject {
    /// The first difference from the model: size, block size, covered ranges, every byte. Skips refused ranges.
    pub fn compare(&self, expected: &ObjectState) -> Result<(), String> {
        if (self.size, self.block_shift) != (expected.size, expected.block_shift) {
            return Err(format!(
                "size {} shift {}, expected {} shift {}",
                self.size, self.block_shift, expected.size, expected.block_shift
            ));
        }
        let (found, wanted) = (self.coverage(), expected.coverage());
        if found != wanted {
            return Err(format!("covers {found:?}, expected {wanted:?}"));
        }
        for (start, bytes) in &self.pieces {
            compare_piece(*start, bytes, expected)?;
        }
        Ok(())
    }
    /// Covered ranges, including refused ones, with adjacent ones joined.
    fn coverage(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> =
            self.pieces.iter().map(|(at, bytes)| (*at, at + bytes.len() as u64)).collect();
        ranges.extend(&self.refused);
        ranges.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (start, end) in ranges {
            match joined.last_mut() {
                Some((_, last)) if *last == start => *last = end,
                _ => joined.push((start, end)),
            }
        }
        joined
    }
}

/// Compares bytes that lie entirely in covered ranges.
fn compare_piece(start: u64, bytes: &[u8], expected: &ObjectState) -> Result<(), String> {
    let end = start + bytes.len() as u64;
    let first = expected.map.range(..=start).next_back().map_or(start, |(at, _)| *at);
    for (&at, segment) in expected.map.range(first..end) {
        let (low, high) = (at.max(start), (at + segment.len).min(end));
        if low >= high {
            continue;
        }
        let part = &bytes[(low - start) as usize..(high - start) as usize];
        if let Some(bad) = first_difference(segment.id, segment.from + (low - at), part) {
            let around = &part[bad..part.len().min(bad + 8)];
            let zeros = if part[bad..].iter().all(|b| *b == 0) { ", zeros to the end" } else { "" };
            return Err(format!(
                "wrong byte at {}: found {around:02x?}{zeros}, expected write {} at {}",
                low + bad as u64,
                segment.id.0,
                segment.from + (low - at) + bad as u64
            ));
        }
    }
    Ok(())
}
