//! Writes: a range of an object points at new bytes.

use cenote_model::{Encoding, Extent, KeyCode, OBJECT_BYTES_MAX, ObjectKey, RUN_BYTES_MAX};

use super::{Brought, Merged, NO_OBJECT, PAST_QUOTA, RangeStep, Refusal, Step, Txn, Written, refuse};
use crate::map::{Ext, ExtentMap, Pieces, Splits};
use crate::session::Session;
use crate::space::{DeviceSlot, Shared};
use crate::state::EngineState;
use crate::sums::{UNIT, combine};

impl EngineState {
    pub(super) fn write(&mut self, txn: &mut Txn, key: ObjectKey, offset: u64, extent: &Extent) -> Result<(), Refusal> {
        let len = u64::from(extent.len);
        let to = offset.checked_add(len).filter(|end| *end <= OBJECT_BYTES_MAX);
        let to = to.ok_or(refuse(KeyCode::Invalid, "objects end below 2^63 bytes"))?;
        let dev = self.space.slot_of(extent.device).ok_or(refuse(KeyCode::Invalid, "no such device"))?;
        check_extent(extent, self.space.get(dev))?;
        let slot = self.find_object(key).ok_or(NO_OBJECT)?;
        let container = self.containers.at(self.objects.get(slot).container);
        if container.is_past_quota(len, 0) && !self.space.replaying && !txn.is_settled {
            let replaced = self.objects.get(slot).map.overlapping(offset, to);
            let replaced = replaced.map(|(at, ext)| (at + u64::from(ext.len)).min(to) - at.max(offset)).sum();
            if container.is_past_quota(len, replaced) {
                return Err(PAST_QUOTA);
            }
        }
        let born = container.durable.cuts;
        let padded = self.space.get(dev).padded(u64::from(extent.run_len));
        let leased = self.sessions.open.get_mut(&txn.session);
        if !leased.is_some_and(|session| session.consume(dev, extent.run_offset, padded)) {
            return Err(refuse(KeyCode::Invalid, "the extent is not in space leased by this session"));
        }
        let device = self.space.get_mut(dev);
        device.space.reserved_bytes = device.space.reserved_bytes.saturating_sub(padded);
        device.trust.unsynced |= !device.is_volatile();
        let birth = self.space.births.of_write(txn.epoch);
        let written = Written { dev, run_offset: extent.run_offset, padded, merged: None };
        let epoch_before = self.objects.get(slot).epoch;
        self.point(txn, slot, (offset, to), Ext::from_model(extent, dev, born, birth), written);
        if self.sessions.open.get(&txn.session).is_some_and(Session::is_own) {
            // Densified bytes are the same bytes, so cached reads stay valid and the epoch stays. The object did change
            // since the last cut, as all gathered extents did.
            self.objects.get_mut(slot).epoch = epoch_before;
        }
        Ok(())
    }

    fn point(&mut self, txn: &mut Txn, slot: u32, (from, to): (u64, u64), ext: Ext, mut written: Written) {
        let same_len = |old: &&mut Ext| old.len == ext.len;
        let object = self.objects.get_mut(slot);
        let (pieces, splits) = if let Some(old) = object.map.get_mut(from).filter(same_len) {
            (Pieces::One(from, std::mem::replace(old, ext)), Splits::default())
        } else {
            let segment_bytes = self.space.get(written.dev).space.segment_bytes;
            let (pieces, splits) = self.cut(slot, from, to);
            let object = self.objects.get_mut(slot);
            let before = object.map.extents();
            written.merged = merge_left(&mut object.map, from, &ext, &self.space.shared, segment_bytes);
            if written.merged.is_none() {
                object.map.insert(from, ext);
            }
            self.space.extents = self.space.extents - before + object.map.extents();
            self.containers.at_mut(object.container).content.stored_bytes += to - from;
            (pieces, splits)
        };
        let object = self.objects.get_mut(slot);
        let (size_before, epoch_before) = (object.size, object.epoch);
        object.size = object.size.max(to);
        object.epoch = txn.epoch;
        object.last.touched = self.now.s;
        txn.steps.push(Step::Range(RangeStep {
            slot,
            from,
            to,
            pieces,
            splits,
            size_before,
            resized: to > size_before,
            epoch_before,
            brought: Brought::Written(written),
        }));
    }
}

/// Checks an extent by itself.
fn check_extent(extent: &Extent, device: &DeviceSlot) -> Result<(), Refusal> {
    let invalid = |why| Err(refuse(KeyCode::Invalid, why));
    if extent.node.0 != 0 || extent.encoding != Encoding::Plain {
        return invalid("extents are on node 0 and plain");
    }
    if extent.len == 0 || extent.len > RUN_BYTES_MAX {
        return invalid("an extent has 1 byte to 64 MiB");
    }
    if extent.skip != 0 || extent.len != extent.run_len {
        return invalid("a write covers its run from begin to end");
    }
    if extent.sums.as_slice().len() != Extent::units(extent.run_len) {
        return invalid("a checksum for each unit of 64 KiB is needed");
    }
    if !extent.run_offset.is_multiple_of(u64::from(device.space.unit_bytes)) {
        return invalid("a run begins at a multiple of the device's unit");
    }
    Ok(())
}

/// Extends the left neighbour instead of adding an extent, if the two are neighbours on the device too, of one age, and
/// their checksum units fit together.
fn merge_left(map: &mut ExtentMap, from: u64, ext: &Ext, shared: &Shared, segment_bytes: u64) -> Option<Merged> {
    let (offset, left) = map.before_mut(from)?;
    let run_end = left.run_offset.wrapping_add(u64::from(left.run_len));
    let fits = left.run_len.checked_add(ext.run_len).is_some_and(|len| len <= RUN_BYTES_MAX);
    let in_last_unit = left.run_len & (UNIT - 1);
    let merges = offset + u64::from(left.len) == from
        && left.dev == ext.dev
        && run_end == ext.run_offset
        && left.end() == left.run_len
        && left.born == ext.born
        && !left.has_copy()
        && left.packed().is_none()
        && fits
        && left.run_offset / segment_bytes == ext.run_offset / segment_bytes
        && (in_last_unit == 0 || in_last_unit + ext.run_len <= UNIT)
        && !shared.is_shared(left.dev, left.place().unit_at(left.run_len - 1));
    if !merges {
        return None;
    }
    let units = left.sums().len() as u32;
    let last_sum = *left.sums().last()?;
    let merged = Merged { offset, len: left.len, run_len: left.run_len, units, last_sum };
    map.change_len(offset, |left| {
        if in_last_unit != 0 {
            left.set_last_sum(combine(last_sum, ext.sum, ext.run_len));
        } else {
            left.add_sums(ext.sums());
        }
        left.len += ext.len;
        left.run_len += ext.run_len;
    });
    Some(merged)
}

/// Undoes [`merge_left`].
pub(super) fn unmerge(map: &mut ExtentMap, merged: &Merged) {
    map.change_len(merged.offset, |left| {
        left.len = merged.len;
        left.run_len = merged.run_len;
        left.keep_sums(merged.units as usize);
        left.set_last_sum(merged.last_sum);
    });
}
