//! Reads a slot's containers through the client and compares them with the model, with holes as zeros.

use cenote::Container;
use cenote_model::{IndexId, ObjectId};

use crate::oracle::ContainerState;

/// A container's content, read through the client.
#[derive(Debug, PartialEq, Eq)]
pub struct ContainerContent {
    objects: Vec<(ObjectId, u64, Vec<u8>)>,
    records: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Reads a whole container.
pub fn read(container: &Container) -> cenote::Result<ContainerContent> {
    let mut objects = Vec::new();
    for id in container.objects(None, 1000)? {
        let object = container.object(id);
        let size = object.stat()?.size;
        let mut bytes = vec![0; size as usize];
        let got = object.read_at(0, &mut bytes)?;
        bytes.truncate(got);
        objects.push((id, size, bytes));
    }
    let records = container.index(IndexId(1)).iter(&[]).collect::<cenote::Result<_>>()?;
    Ok(ContainerContent { objects, records })
}

/// The first difference from the model.
pub fn compare(found: &ContainerContent, expected: &ContainerState) -> Result<(), String> {
    let ids: Vec<ObjectId> = found.objects.iter().map(|(id, ..)| *id).collect();
    let wanted: Vec<ObjectId> = expected.objects.keys().copied().collect();
    if ids != wanted {
        return Err(format!("objects {ids:?}, expected {wanted:?}"));
    }
    for (id, size, bytes) in &found.objects {
        let object = &expected.objects[id];
        if *size != object.size || bytes.len() as u64 != object.size {
            return Err(format!("object {id}: size {size}, {} bytes read, expected {}", bytes.len(), object.size));
        }
        let mut model = vec![0; bytes.len()];
        object.read(0, &mut model);
        if let Some(bad) = (0..bytes.len()).find(|at| bytes[*at] != model[*at]) {
            let wrong = (bad..bytes.len()).filter(|at| bytes[*at] != model[*at]).count();
            return Err(format!(
                "object {id}: wrong byte at {bad} ({wrong} wrong in all): {:02x}, expected {:02x}",
                bytes[bad], model[bad]
            ));
        }
    }
    let model: Vec<(Vec<u8>, Vec<u8>)> = expected
        .indices
        .get(&IndexId(1))
        .map(|records| records.iter().map(|(key, (value, _))| (key.clone(), value.to_vec())).collect())
        .unwrap_or_default();
    if found.records != model {
        let surplus = found.records.iter().find(|record| !model.contains(record)).map(|(key, _)| key);
        let missing = model.iter().find(|record| !found.records.contains(record)).map(|(key, _)| key);
        return Err(format!(
            "{} records, expected {}; found and not expected: {surplus:?}, expected and not found: {missing:?}",
            found.records.len(),
            model.len()
        ));
    }
    Ok(())
}
