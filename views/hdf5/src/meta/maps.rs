//! Maps: records of a program's own keys and values.
//!
//! A record's key is the stored form of the program's key: elements, then their variable-length parts. HDF5's conversion
//! produces both, so that equal keys are equal bytes, whatever their type in the program.

use cenote::{Error, ErrorKind, NextFrom, Transaction};

use crate::Result;
use crate::file::Core;
use crate::value::Stored;

use super::bytes::Reader;
use super::{gone, keys};

/// Pairs copied or deleted at a time.
const PAGE: u32 = 1024;

/// A pair in stored form.
pub struct Pair {
    /// The key.
    pub key: Stored,
    /// The value.
    pub value: Stored,
}

impl Pair {
    fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        self.key.encode(&mut w);
        self.value.encode(&mut w);
        w
    }
    fn decode(record: &[u8]) -> Result<Self> {
        let mut r = Reader::of("map record", record);
        Ok(Self { key: Stored::decode(&mut r)?, value: Stored::decode(&mut r)? })
    }
}

/// For [`crate::fuzz`].
pub(crate) fn fuzz(record: &[u8]) {
    if let Ok(pair) = Pair::decode(record) {
        assert!(Pair::decode(&pair.encode()).is_ok());
    }
}

fn record_key(map: u64, key: &Stored) -> Vec<u8> {
    let mut out = keys::named(keys::TAG_MAP, map, &key.elements);
    out.extend_from_slice(&key.heap);
    out
}

/// The pair of a key.
pub fn get(file: &Core, map: u64, key: &Stored) -> Result<Option<Pair>> {
    file.meta.get_one(&record_key(map, key))?.map(|record| Pair::decode(&record)).transpose()
}

/// Sets a pair, replacing the key's previous value.
pub fn put(tx: &mut Transaction, file: &Core, map: u64, pair: &Pair) -> Result<()> {
    // Read through the transaction, which must fail if the map is deleted meanwhile.
    if tx.get(&file.meta, &keys::of(keys::TAG_HEADER, map))?.is_none() {
        return Err(gone(file, map));
    }
    tx.put(&file.meta, &record_key(map, &pair.key), &pair.encode())
}

/// Removes a pair.
pub fn remove(tx: &mut Transaction, file: &Core, map: u64, key: &Stored) -> Result<()> {
    let record = record_key(map, key);
    if tx.get(&file.meta, &record)?.is_none() {
        return Err(missing(file, map));
    }
    tx.del(&file.meta, &record)
}

/// The error for a missing key.
pub fn missing(file: &Core, map: u64) -> Error {
    Error::new(ErrorKind::NotFound, format!("a key of map {map:016x} of file {}", file.path))
        .because("the map has no such key")
}

/// Number of pairs.
pub fn count(file: &Core, map: u64) -> Result<u64> {
    super::count(file, &keys::of(keys::TAG_MAP, map))
}

/// All pairs, in the order of their stored keys.
pub fn list(file: &Core, map: u64) -> Result<Vec<Pair>> {
    let prefix = keys::of(keys::TAG_MAP, map);
    file.meta.iter(&prefix).map(|record| record.and_then(|(_, value)| Pair::decode(&value))).collect()
}

/// Removes all pairs, in the transaction that deletes the map.
pub fn clear(tx: &mut Transaction, file: &Core, map: u64) -> Result<()> {
    for record in file.meta.iter(&keys::of(keys::TAG_MAP, map)) {
        tx.del(&file.meta, &record?.0)?;
    }
    Ok(())
}

/// Copies all pairs to another map of the same types, possibly in another file.
pub fn copy(from: &Core, from_map: u64, to: &Core, to_map: u64) -> Result<()> {
    let (prefix, mut at) = (keys::of(keys::TAG_MAP, from_map), NextFrom::Start);
    loop {
        let page = from.meta.next_with_prefix(&prefix, at, PAGE)?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        at = NextFrom::After(last.to_vec());
        super::transact(to, |tx| {
            page.iter().try_for_each(|(key, value)| {
                tx.put(&to.meta, &keys::named(keys::TAG_MAP, to_map, keys::suffix(key)), value)
            })
        })?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_survives_encoding_and_a_short_one_is_an_error() {
        let stored = |a: &[u8], b: &[u8]| Stored { elements: a.to_vec(), heap: b.to_vec() };
        let pair = Pair { key: stored(b"key", b"more"), value: stored(b"value", b"") };
        let bytes = pair.encode();
        let back = Pair::decode(&bytes).unwrap();
        assert!(back.key == pair.key && back.value == pair.value);
        for n in 0..bytes.len() {
            assert!(Pair::decode(&bytes[..n]).is_err(), "prefix of {n} bytes");
        }
    }
}
