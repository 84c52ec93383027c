//! Indices, their records, and the value logs that these may be in.

use cenote_model::{IndexId, IndexKey};

use super::decode::Reader;
use crate::codec::{Decoded, Decoder, Malformed};
use crate::index::{Index, Key, Record, Value};

impl Reader<'_> {
    pub(super) fn index(&mut self, from: &mut Decoder<'_>) -> Decoded<()> {
        let (id, created) = (IndexId(from.u128()?), from.u32()?);
        if self.index.as_ref().is_some_and(|(last, ..)| *last != id) {
            self.end_index()?;
        }
        let at = self.container.ok_or(Malformed("an index without a container"))?;
        let mut records = self.index.take().map_or_else(Vec::new, |(_, _, records)| records);
        for _ in 0..from.count(16)? {
            records.push((Key::new(from.bytes()?), self.record(at, from)?));
        }
        self.index = Some((id, created, records));
        Ok(())
    }

    pub(super) fn end_index(&mut self) -> Decoded<()> {
        let Some((id, created, records)) = self.index.take() else { return Ok(()) };
        let at = self.container.ok_or(Malformed("an index without a container"))?;
        let mut index = Index::new(created);
        let disorder = index.load(records);
        let container = self.state.containers.at_mut(at);
        let key = IndexKey { container: container.id, index: id };
        container.count_index(&index);
        container.indices.insert(id, index);
        self.state.found_disorder(key, disorder);
        Ok(())
    }

    /// A record of the container in a slot, or of its undo list.
    pub(super) fn record(&mut self, at: u32, from: &mut Decoder<'_>) -> Decoded<Record> {
        let epoch = from.u64()?;
        let is_away = self.version >= 5 && from.flag()?;
        if !is_away {
            return Ok(Record { epoch, value: Value::Here(from.bytes()?.into()) });
        }
        let (offset, len, digest) = (from.u64()?, from.u32()?, from.u64()?);
        let container = self.state.containers.at(at);
        let owner = container.snapshot.as_ref().map_or(container.id, |snapshot| snapshot.of);
        let log = self.state.containers.get_mut(owner).and_then(|container| container.values.as_mut());
        let away = log.and_then(|log| log.value(offset, len, digest)).ok_or(Malformed("a value outside of its log"))?;
        Ok(Record { epoch, value: Value::Away(Box::new(away)) })
    }

    pub(super) fn value_log(&mut self, from: &mut Decoder<'_>) -> Decoded<()> {
        let at = self.container.ok_or(Malformed("values without a container"))?;
        let container = self.state.containers.at_mut(at);
        if container.snapshot.is_some() || !container.objects.is_empty() {
            return Err(Malformed("a value log that cannot be"));
        }
        let log = container.values.get_or_insert_default();
        for _ in 0..from.count(16)? {
            if !log.add(from.u64()?, from.u32()?, from.u32()?) {
                return Err(Malformed("a value log that is out of order"));
            }
        }
        Ok(())
    }
}
