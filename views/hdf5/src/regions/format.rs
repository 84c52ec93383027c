//! Structures of native files that HDF5 reads for a region reference: global heap collections and object headers.

use std::collections::BTreeMap;

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::meta::bytes::{Encode, Reader};
use crate::space::Extent;

/// Start of a collection: signature, version 1.
const COLLECTION: u32 = u32::from_le_bytes(*b"GCOL");
const COLLECTION_VERSION: u8 = 1;
/// Bytes before a collection's first object, and before an object's bytes.
const HEAD_BYTES: usize = 16;
/// The smallest collection.
const COLLECTION_BYTES_MIN: usize = 4096;
/// Message number of a dataspace, its version, and its flag for maximum dimensions.
const DATASPACE: u16 = 1;
const DATASPACE_VERSION: u8 = 2;
const HAS_MAXIMA: u8 = 1;

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(8)
}

fn corrupt(why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "heap of region references").because(why)
}

/// The objects in a collection, by their numbers.
pub fn objects_in(collection: &[u8]) -> Result<BTreeMap<u16, Vec<u8>>> {
    let mut r = Reader::of("heap of region references", collection);
    if r.u32()? != COLLECTION || r.u8()? != COLLECTION_VERSION {
        return Err(corrupt("it is no collection"));
    }
    let mut at = HEAD_BYTES;
    let mut found = BTreeMap::new();
    while let Some(head) = collection.get(at..at + HEAD_BYTES) {
        let mut r = Reader::of("object of a heap", head);
        let (number, _, _) = (r.u16()?, r.u16()?, r.u32()?);
        let bytes = r.u64()? as usize;
        if number == 0 {
            break; // free space up to the end
        }
        let begin = at + HEAD_BYTES;
        let object = begin.checked_add(bytes).and_then(|end| collection.get(begin..end));
        found.insert(number, object.ok_or_else(|| corrupt("an object is longer than its collection"))?.to_vec());
        at = begin + aligned(bytes);
    }
    Ok(found)
}

/// Encodes a collection of these objects.
pub fn collection(objects: &BTreeMap<u16, Vec<u8>>) -> Vec<u8> {
    let used: usize = objects.values().map(|object| HEAD_BYTES + aligned(object.len())).sum();
    // Free space follows the last object, if there is room to say so.
    let bytes = (HEAD_BYTES + used).max(COLLECTION_BYTES_MIN);
    let mut w = Vec::new();
    w.put_u32(COLLECTION);
    w.put_u32(u32::from(COLLECTION_VERSION));
    w.put_u64(bytes as u64);
    for (number, object) in objects {
        w.put_u16(*number);
        w.put_u16(1);
        w.put_u32(0);
        w.put_u64(object.len() as u64);
        w.extend_from_slice(object);
        w.resize(aligned(w.len()), 0);
    }
    let free = bytes - w.len();
    if free >= HEAD_BYTES {
        w.put_u64(0);
        w.put_u64(free as u64);
    }
    w.resize(bytes, 0);
    w
}

/// The header of an object with only an extent.
pub fn object_header(extent: &Extent) -> Vec<u8> {
    let mut message = Vec::new();
    message.put_u8(DATASPACE_VERSION);
    message.put_u8(extent.dims().len() as u8);
    message.put_u8(if extent.dims().is_empty() { 0 } else { HAS_MAXIMA });
    message.put_u8(match extent {
        Extent::Scalar => 0,
        Extent::Simple { .. } => 1,
        Extent::Null => 2,
    });
    extent.dims().iter().chain(extent.max_dims()).for_each(|n| message.put_u64(*n));
    message.resize(aligned(message.len()), 0);
    let mut w = Vec::new();
    w.put_u8(1);
    w.put_u8(0);
    w.put_u16(1); // messages
    w.put_u32(1); // links
    w.put_u32(8 + message.len() as u32);
    w.put_u32(0);
    w.put_u16(DATASPACE);
    w.put_u16(message.len() as u16);
    w.put_u32(0);
    w.extend_from_slice(&message);
    w
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_gives_back_its_objects() {
        for sizes in [&[1usize, 8, 31][..], &[5000], &[4096 - 32], &[4096 - 33], &[4096 - 48], &[]] {
            let objects: BTreeMap<_, _> = (1u16..).zip(sizes.iter().map(|n| vec![*n as u8; *n])).collect();
            let bytes = collection(&objects);
            assert!(bytes.len() >= COLLECTION_BYTES_MIN);
            assert_eq!(objects_in(&bytes).unwrap(), objects);
        }
    }

    #[test]
    fn damage_is_an_error() {
        let mut bytes = collection(&BTreeMap::from([(1, vec![7; 100])]));
        bytes[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(objects_in(&bytes).is_err());
        assert!(objects_in(b"GCOM").is_err());
    }
}
