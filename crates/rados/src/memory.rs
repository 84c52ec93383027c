//! A pool in memory, for tests and simulations.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::pool::{Answer, Change, Check, Pool, Refusal, RefusalKind};

/// A pool whose objects are in this process.
#[derive(Default)]
pub struct MemoryPool {
    objects: Mutex<BTreeMap<String, Object>>,
}

#[derive(Clone, Default)]
struct Object {
    bytes: Vec<u8>,
    attributes: BTreeMap<String, Vec<u8>>,
    records: BTreeMap<String, Vec<u8>>,
}

fn not_found(object: &str) -> Refusal {
    Refusal::new(RefusalKind::NotFound, format!("there is no object `{object}`"))
}

impl Check<'_> {
    fn look(self, name: &str, object: Option<&Object>) -> Answer<()> {
        match (self, object) {
            (Self::Exists, None) => Err(not_found(name)),
            (Self::Absent, Some(_)) => Err(Refusal::new(RefusalKind::Exists, format!("`{name}` exists"))),
            (Self::Attribute(attribute, expected), object) => {
                let found = object.and_then(|object| object.attributes.get(attribute)).map_or(&[][..], Vec::as_slice);
                if found == expected {
                    return Ok(());
                }
                Err(Refusal::new(RefusalKind::Refused, format!("attribute `{attribute}` of `{name}` is another")))
            }
            _ => Ok(()),
        }
    }
}

impl Object {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (begin, end) = (offset as usize, offset as usize + bytes.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[begin..end].copy_from_slice(bytes);
    }
}

/// Applies a change; `None` stands for an absent object.
fn apply(name: &str, object: &mut Option<Object>, change: Change<'_>) -> Answer<()> {
    if change == Change::Remove {
        return object.take().map(drop).ok_or_else(|| not_found(name));
    }
    let object = object.get_or_insert_default();
    match change {
        Change::Create | Change::Remove => {}
        Change::Replace(bytes) => object.bytes = bytes.to_vec(),
        Change::Write(offset, bytes) => object.write(offset, bytes),
        Change::Append(bytes) => object.bytes.extend_from_slice(bytes),
        Change::SetAttribute(attribute, value) => drop(object.attributes.insert(attribute.to_owned(), value.to_vec())),
        Change::SetRecord(key, value) => drop(object.records.insert(key.to_owned(), value.to_vec())),
        Change::RemoveRecord(key) => drop(object.records.remove(key)),
    }
    Ok(())
}

impl Pool for MemoryPool {
    fn change(&self, object: &str, checks: &[Check<'_>], changes: &[Change<'_>]) -> Answer<()> {
        let mut objects = self.objects.lock();
        let mut changed = objects.get(object).cloned();
        checks.iter().try_for_each(|check| check.look(object, changed.as_ref()))?;
        changes.iter().try_for_each(|change| apply(object, &mut changed, *change))?;
        match changed {
            Some(changed) => drop(objects.insert(object.to_owned(), changed)),
            None => drop(objects.remove(object)),
        }
        Ok(())
    }
    fn read(&self, object: &str, offset: u64, len: usize) -> Answer<Vec<u8>> {
        let objects = self.objects.lock();
        let bytes = &objects.get(object).ok_or_else(|| not_found(object))?.bytes;
        let begin = usize::try_from(offset).map_or(bytes.len(), |offset| offset.min(bytes.len()));
        Ok(bytes[begin..bytes.len().min(begin.saturating_add(len))].to_vec())
    }
    fn size(&self, object: &str) -> Answer<Option<u64>> {
        Ok(self.objects.lock().get(object).map(|object| object.bytes.len() as u64))
    }
    fn attribute(&self, object: &str, name: &str) -> Answer<Option<Vec<u8>>> {
        let objects = self.objects.lock();
        Ok(objects.get(object).ok_or_else(|| not_found(object))?.attributes.get(name).cloned())
    }
    fn records(&self, object: &str, after: &str, most: usize) -> Answer<Vec<(String, Vec<u8>)>> {
        let objects = self.objects.lock();
        let records = &objects.get(object).ok_or_else(|| not_found(object))?.records;
        let behind = records.range::<str, _>((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded));
        Ok(behind.take(most).map(|(key, value)| (key.clone(), value.clone())).collect())
    }
    fn list(&self) -> Answer<Vec<String>> {
        Ok(self.objects.lock().keys().cloned().collect())
    }
}
