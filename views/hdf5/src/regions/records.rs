//! Records of the targets of region references: each has the dataset's number and the selection as serialised by HDF5.

use std::collections::BTreeMap;

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::file::File;
use crate::meta::{keys, objects, transact};

use super::format;

/// Size of a region reference in memory and in raw data: the number of a heap, and of an object in it.
pub const REFERENCE_BYTES: usize = 12;

/// Key of a reference's target record.
pub fn key_of(reference: &[u8; REFERENCE_BYTES]) -> Vec<u8> {
    let (heap, number) = parts(reference);
    key(heap, number)
}

fn key(heap: u64, number: u32) -> Vec<u8> {
    let mut key = keys::of(keys::TAG_REGION, heap);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// Numbers of the heap and of the object in it.
pub fn parts(reference: &[u8; REFERENCE_BYTES]) -> (u64, u32) {
    let (mut heap, mut number) = ([0; 8], [0; 4]);
    heap.copy_from_slice(&reference[..8]);
    number.copy_from_slice(&reference[8..]);
    (u64::from_le_bytes(heap), u32::from_le_bytes(number))
}

/// The target record of a reference; `None` for a null reference.
pub fn get(file: &File, reference: &[u8; REFERENCE_BYTES]) -> Result<Option<Vec<u8>>> {
    let (heap, number) = parts(reference);
    if heap == 0 { Ok(None) } else { file.meta.get_one(&key(heap, number)) }
}

/// The dataset to which a reference refers.
pub fn dataset(file: &File, reference: &[u8; REFERENCE_BYTES]) -> Result<Option<u64>> {
    let referred = get(file, reference)?;
    let number = referred.as_ref().and_then(|referred| referred.first_chunk());
    number.map(|number| objects::canonical(file, u64::from_le_bytes(*number))).transpose()
}

/// Makes a new reference with this target record.
pub fn put(file: &File, bytes: &[u8]) -> Result<[u8; REFERENCE_BYTES]> {
    let (heap, number) = (file.new_id()?, 1u32);
    transact(file, |tx| tx.put(&file.meta, &key(heap, number), bytes))?;
    let mut reference = [0; REFERENCE_BYTES];
    reference[..8].copy_from_slice(&heap.to_le_bytes());
    reference[8..].copy_from_slice(&number.to_le_bytes());
    Ok(reference)
}

/// Stores the objects in collections that HDF5 has written.
pub fn store<'a>(file: &File, heaps: impl Iterator<Item = (&'a u64, &'a Vec<u8>)>) -> Result<()> {
    let mut found = Vec::new();
    for (heap, image) in heaps.filter(|(_, image)| !image.is_empty()) {
        for (number, object) in format::objects_in(image)? {
            found.push((key(*heap, u32::from(number)), object));
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    transact(file, |tx| found.iter().try_for_each(|(key, object)| tx.put(&file.meta, key, object)))
}

/// Encodes the collection with that number.
pub fn collection(file: &File, heap: u64) -> Result<Vec<u8>> {
    let mut objects = BTreeMap::new();
    for record in file.meta.iter(&keys::of(keys::TAG_REGION, heap)) {
        let (key, object) = record?;
        if let Ok(number) = <[u8; 4]>::try_from(keys::suffix(&key)) {
            objects.insert(u32::from_be_bytes(number) as u16, object);
        }
    }
    if objects.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, format!("region reference of file {}", file.path))
            .because(format!("the file has no region of its number ({heap:016x})"))
            .try_next("it belongs to another file, or was never written: make it anew with H5Rcreate"));
    }
    Ok(format::collection(&objects))
}
