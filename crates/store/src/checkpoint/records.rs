//! Decodes indices, their records, and the value logs of containers.

use std::sync::Arc;

use cenote_model::{IndexId, IndexKey};

use super::decode::Reader;
use crate::codec::{Decoded, Decoder, Malformed};
use crate::index::{Counts, Disorder, Encoded, Index, Key, Record, Value};

/// An index of which not all sections were read.
pub(super) struct Unfinished {
    id: IndexId,
    created: u32,
    /// Its encoded records, while all of them can stay encoded.
    encoded: Option<(Encoded, Counts)>,
    records: Vec<(Key, Record)>,
}

impl Reader<'_> {
    pub(super) fn index(&mut self, from: &mut Decoder<'_>) -> Decoded<()> {
        let begin = from.left();
        let (id, created) = (IndexId(from.u128()?), from.u32()?);
        if self.index.as_ref().is_some_and(|unfinished| unfinished.id != id) {
            self.end_index()?;
        }
        let at = self.container.ok_or(Malformed("an index without a container"))?;
        let count = from.count(16)?;
        let mut unfinished = self.index.take().unwrap_or_else(|| {
            // Older versions encode records differently.
            let encoded = (self.version >= 5).then(|| (Encoded::new(Arc::clone(self.file)), Counts::default()));
            Unfinished { id, created, encoded, records: Vec::new() }
        });
        if let Some((encoded, counts)) = &mut unfinished.encoded {
            let records_at = self.body_at + begin - from.left();
            if !encoded.add(records_at, count, from, counts)? {
                unfinished.records = encoded.decoded().collect();
                unfinished.encoded = None;
            }
        }
        if unfinished.encoded.is_none() {
            for _ in 0..count {
                unfinished.records.push((Key::new(from.bytes()?), self.record(at, from)?));
            }
        }
        unfinished.created = created;
        self.index = Some(unfinished);
        Ok(())
    }

    pub(super) fn end_index(&mut self) -> Decoded<()> {
        let Some(Unfinished { id, created, encoded, records }) = self.index.take() else { return Ok(()) };
        let at = self.container.ok_or(Malformed("an index without a container"))?;
        let (index, disorder) = match encoded {
            Some((encoded, counts)) if counts.records > 0 => {
                (Index::of_encoded(created, encoded, counts), Disorder::default())
            }
            _ => {
                let mut index = Index::new(created);
                let disorder = index.load(records);
                (index, disorder)
            }
        };
        let container = self.state.containers.at_mut(at);
        let key = IndexKey { container: container.id, index: id };
        container.count_index(&index);
        container.content.indices.insert(id, Box::new(index));
        self.state.found_disorder(key, disorder);
        Ok(())
    }

    /// Reads a record of the container in a slot, or of its undo list.
    pub(super) fn record(&mut self, at: u32, from: &mut Decoder<'_>) -> Decoded<Record> {
        let epoch = from.u64()?;
        let is_away = self.version >= 5 && from.flag()?;
        if !is_away {
            return Ok(Record { epoch, value: Value::Here(from.bytes()?.into()) });
        }
        let (offset, len, digest) = (from.u64()?, from.u32()?, from.u64()?);
        let container = self.state.containers.at(at);
        let owner = container.snapshot.as_ref().map_or(container.id, |snapshot| snapshot.of);
        let log = self.state.containers.get_mut(owner).and_then(|container| container.content.values.as_mut());
        let away = log.and_then(|log| log.value(offset, len, digest)).ok_or(Malformed("a value outside of its log"))?;
        Ok(Record { epoch, value: Value::Away(Box::new(away)) })
    }

    pub(super) fn value_log(&mut self, from: &mut Decoder<'_>) -> Decoded<()> {
        let at = self.container.ok_or(Malformed("values without a container"))?;
        let container = self.state.containers.at_mut(at);
        if container.snapshot.is_some() || !container.content.objects.is_empty() {
            return Err(Malformed("a value log that cannot be"));
        }
        let log = container.content.values.get_or_insert_default();
        for _ in 0..from.count(16)? {
            if !log.add(from.u64()?, from.u32()?, from.u32()?) {
                return Err(Malformed("a value log that is out of order"));
            }
        }
        Ok(())
    }
}
