//! Records kept as a checkpoint encodes them, until somebody asks for one.
//!
//! The cost of an opening is the memory that it touches, and records in a map take several times the bytes that they
//! have in a checkpoint. So the opening reads them once, to find damage and order and to count them, and leaves them
//! where they are.

use std::sync::Arc;

use super::Record;
use super::key::Key;
use super::value::{SPILLED_BYTES_MIN, Value};
use crate::codec::{Decoded, Decoder};

/// All records of an index, in ascending order, all with their values.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    /// Usually the whole checkpoint, which all indices share.
    bytes: Arc<Vec<u8>>,
    parts: Vec<Part>,
}

/// Records of one section, which lie side by side.
#[derive(Clone, Copy, Debug)]
struct Part {
    at: usize,
    len: usize,
    records: u32,
}

/// What an index counts of its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub records: u64,
    pub bytes: u64,
    pub spillable: u64,
}

/// A record, borrowed from the bytes.
struct Raw<'a> {
    key: &'a [u8],
    epoch: u64,
    value: &'a [u8],
}

/// Takes the next record; `None` if its value is in the value log.
fn take_record<'a>(from: &mut Decoder<'a>) -> Decoded<Option<Raw<'a>>> {
    let (key, epoch) = (from.bytes()?, from.u64()?);
    if from.flag()? {
        return Ok(None);
    }
    Ok(Some(Raw { key, epoch, value: from.bytes()? }))
}

impl Encoded {
    /// Of no records yet.
    pub fn new(bytes: Arc<Vec<u8>>) -> Self {
        // Most indices have one section.
        Self { bytes, parts: Vec::with_capacity(1) }
    }
    /// Adds the `records` at `at` with which `from` begins, and advances `from`. Returns false, and adds nothing, if
    /// they cannot stay encoded: keys are not in ascending order, or values are in the value log.
    pub fn add(&mut self, at: usize, records: usize, from: &mut Decoder<'_>, counts: &mut Counts) -> Decoded<bool> {
        let (mut rest, mut counted) = (*from, *counts);
        let mut last = self.last_key();
        for _ in 0..records {
            let Some(Raw { key, value, .. }) = take_record(&mut rest)? else { return Ok(false) };
            if last.is_some_and(|last| last >= key) {
                return Ok(false);
            }
            last = Some(key);
            counted.add(key, value);
        }
        let len = from.left() - rest.left();
        self.parts.push(Part { at, len, records: records as u32 });
        (*from, *counts) = (rest, counted);
        Ok(true)
    }
    fn last_key(&self) -> Option<&[u8]> {
        let part = self.parts.iter().rev().find(|part| part.records > 0)?;
        let mut from = Decoder::new(self.bytes_of(part));
        let raws = std::iter::from_fn(|| take_record(&mut from).ok().flatten());
        raws.take(part.records as usize).last().map(|raw| raw.key)
    }
    fn bytes_of(&self, part: &Part) -> &[u8] {
        &self.bytes[part.at..part.at + part.len]
    }
    /// The runs of records in sections, each with its number of records.
    pub fn parts(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.parts.iter().map(|part| (part.records, self.bytes_of(part)))
    }
    fn raws(&self) -> impl Iterator<Item = Raw<'_>> {
        self.parts().flat_map(|(_, bytes)| {
            let mut from = Decoder::new(bytes);
            // `add` has checked them.
            std::iter::from_fn(move || (from.left() > 0).then(|| take_record(&mut from).ok().flatten()).flatten())
        })
    }
    /// The records, each with memory of its own.
    pub fn decoded(&self) -> impl Iterator<Item = (Key, Record)> {
        self.raws().map(|Raw { key, epoch, value }| (Key::new(key), Record { epoch, value: Value::Here(value.into()) }))
    }
    /// Counts the records anew. Fails if they are not in ascending order.
    pub fn count(&self) -> Result<Counts, &'static str> {
        let mut counts = Counts::default();
        let mut last = None;
        for Raw { key, value, .. } in self.raws() {
            if last.is_some_and(|last| last >= key) {
                return Err("its records are not in ascending order");
            }
            last = Some(key);
            counts.add(key, value);
        }
        Ok(counts)
    }
    pub fn len(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.records)).sum()
    }
    /// Bytes of the records.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len as u64).sum()
    }
    /// Bytes of the shared memory that this index keeps alive, with others.
    pub fn kept_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
    /// Returns a copy in memory of its own.
    pub fn alone(&self) -> Self {
        let mut alone = Self { bytes: Arc::default(), parts: Vec::with_capacity(self.parts.len()) };
        let mut bytes = Vec::with_capacity(self.bytes() as usize);
        for part in &self.parts {
            alone.parts.push(Part { at: bytes.len(), ..*part });
            bytes.extend_from_slice(self.bytes_of(part));
        }
        alone.bytes = Arc::new(bytes);
        alone
    }
}

impl Counts {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.records += 1;
        self.bytes += (key.len() + value.len()) as u64;
        self.spillable += if value.len() >= SPILLED_BYTES_MIN { value.len() as u64 } else { 0 };
    }
}
