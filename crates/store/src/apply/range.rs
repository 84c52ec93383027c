//! Punch and truncate: ranges of objects become holes.

use cenote_model::{KeyCode, OBJECT_BYTES_MAX, ObjectKey};

use super::{Brought, NO_OBJECT, RangeStep, Refusal, Step, Txn, refuse};
use crate::map::{Pieces, Splits};
use crate::state::EngineState;

impl EngineState {
    pub(super) fn punch(&mut self, txn: &mut Txn, key: ObjectKey, offset: u64, len: u64) -> Result<(), Refusal> {
        let to = offset.checked_add(len).filter(|end| *end <= OBJECT_BYTES_MAX);
        let to = to.ok_or(refuse(KeyCode::Invalid, "objects end below 2^63 bytes"))?;
        let slot = self.find_object(key).ok_or(NO_OBJECT)?;
        self.make_hole(txn, slot, offset, to, None);
        Ok(())
    }

    pub(super) fn truncate(&mut self, txn: &mut Txn, key: ObjectKey, size: u64) -> Result<(), Refusal> {
        if size > OBJECT_BYTES_MAX {
            return Err(refuse(KeyCode::Invalid, "objects end below 2^63 bytes"));
        }
        let slot = self.find_object(key).ok_or(NO_OBJECT)?;
        self.make_hole(txn, slot, size, OBJECT_BYTES_MAX, Some(size));
        Ok(())
    }

    fn make_hole(&mut self, txn: &mut Txn, slot: u32, from: u64, to: u64, size: Option<u64>) {
        let (pieces, splits) = self.cut(slot, from, to);
        let object = self.objects.get_mut(slot);
        let (size_before, epoch_before) = (object.size, object.epoch);
        object.size = size.unwrap_or(object.size);
        object.epoch = txn.epoch;
        object.last.touched = self.now.s;
        txn.steps.push(Step::Range(RangeStep {
            slot,
            from,
            to,
            pieces,
            splits,
            size_before,
            resized: size.is_some_and(|size| size != size_before),
            epoch_before,
            brought: Brought::Nothing,
        }));
    }

    /// Takes a range out of an object's map, and keeps the counters up to date.
    pub(super) fn cut(&mut self, slot: u32, from: u64, to: u64) -> (Pieces, Splits) {
        let object = self.objects.get_mut(slot);
        let (extents, mapped) = (object.map.extents(), object.map.mapped_bytes());
        let mut pieces = Pieces::None;
        let splits = object.map.cut_out(from, to, &mut self.space.shared, &mut pieces);
        self.space.extents = self.space.extents - extents + object.map.extents();
        let gone = mapped - object.map.mapped_bytes();
        let container = object.container;
        self.containers.at_mut(container).content.stored_bytes -= gone;
        (pieces, splits)
    }
}
