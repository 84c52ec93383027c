//! An extent as it sits in memory: 48 bytes.

use std::sync::Arc;

use cenote_model::{DeviceId, Encoding, Extent, NodeId, SUM_UNIT_SHIFT, Sums};

use crate::sums::UNIT;

/// Stands for "no device" where an extent's copy would be.
pub(crate) const NO_DEVICE: u8 = u8::MAX;

/// A view into a run of bytes on a device, and perhaps into a copy of the run on another.
///
/// A run is divided into checksum units of 64 KiB from its start. An extent *touches* the units that it has bytes of;
/// the space of a unit is in use as long as any extent (in a map or in an undo list) touches it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ext {
    /// Where the run begins on its device.
    pub run_offset: u64,
    /// Where the run would begin on the copy's device. Only units that were touched when the copy was made are there,
    /// so this may lie before the copy's space, even before zero (it wraps).
    pub copy_base: u64,
    /// Checksums of a run of more than one unit.
    pub many: Option<Arc<Vec<u32>>>,
    /// Checksum of a run of one unit.
    pub sum: u32,
    /// Bytes in the run.
    pub run_len: u32,
    /// Where this extent begins in the run.
    pub skip: u32,
    /// Bytes in this extent.
    pub len: u32,
    /// The container's cut count when it was written.
    pub born: u32,
    /// Slot of the run's device.
    pub dev: u8,
    /// Slot of the copy's device, or [`NO_DEVICE`].
    pub copy: u8,
    /// Encoding of the run.
    pub encoding: Encoding,
}

/// Bytes of a run, from `begin` up to `end`, whole checksum units (the last may be short).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hull {
    pub begin: u32,
    pub end: u32,
}

impl Hull {
    /// Bytes.
    pub fn len(self) -> u32 {
        self.end - self.begin
    }
}

impl Ext {
    pub fn from_model(extent: &Extent, dev: u8, born: u32) -> Self {
        let (sum, many) = match extent.sums.as_slice() {
            [one] => (*one, None),
            sums => (0, Some(Arc::new(sums.to_vec()))),
        };
        Self {
            run_offset: extent.run_offset,
            copy_base: 0,
            many,
            sum,
            run_len: extent.run_len,
            skip: extent.skip,
            len: extent.len,
            born,
            dev,
            copy: NO_DEVICE,
            encoding: extent.encoding,
        }
    }
    pub fn to_model(&self, device: DeviceId) -> Extent {
        Extent {
            node: NodeId(0),
            device,
            encoding: self.encoding,
            run_offset: self.run_offset,
            run_len: self.run_len,
            skip: self.skip,
            len: self.len,
            sums: match &self.many {
                None => Sums::One(self.sum),
                Some(many) => Sums::Many(many.as_slice().into()),
            },
        }
    }
    pub fn sums(&self) -> &[u32] {
        match &self.many {
            None => std::slice::from_ref(&self.sum),
            Some(many) => many,
        }
    }
    pub fn set_sums(&mut self, sums: &[u32]) {
        (self.sum, self.many) = if let [one] = sums { (*one, None) } else { (0, Some(Arc::new(sums.to_vec()))) };
    }
    /// End of the extent in its run.
    pub fn end(&self) -> u32 {
        self.skip + self.len
    }
    /// The checksum units that it touches.
    pub fn hull(&self) -> Hull {
        let begin = self.skip & !(UNIT - 1);
        let end = (u64::from(self.end()).next_multiple_of(u64::from(UNIT))).min(u64::from(self.run_len)) as u32;
        Hull { begin, end }
    }
    /// Checksums of the units in `hull`.
    pub fn hull_sums(&self, hull: Hull) -> &[u32] {
        let first = (hull.begin >> SUM_UNIT_SHIFT) as usize;
        let end = (hull.end as usize).div_ceil(UNIT as usize);
        &self.sums()[first..end]
    }
    /// The part from `from` on, `len` bytes long.
    pub fn part(&self, from: u32, len: u32) -> Self {
        debug_assert!(u64::from(from) + u64::from(len) <= u64::from(self.len));
        Self { skip: self.skip + from, len, ..self.clone() }
    }
    /// True if the extent begins inside a checksum unit.
    pub fn begins_inside(&self) -> bool {
        self.skip & (UNIT - 1) != 0
    }
    /// True if it ends inside a checksum unit, before the end of the run.
    pub fn ends_inside(&self) -> bool {
        let end = self.end();
        end != self.run_len && end & (UNIT - 1) != 0
    }
    /// The same bytes at the same places, in a run of no other checksum units.
    pub fn trimmed(&self) -> Self {
        let hull = self.hull();
        if hull.begin == 0 && hull.end == self.run_len {
            return self.clone();
        }
        let base = |base: u64| base.wrapping_add(u64::from(hull.begin));
        let mut trimmed = Self {
            run_offset: base(self.run_offset),
            copy_base: if self.copy == NO_DEVICE { 0 } else { base(self.copy_base) },
            many: None,
            run_len: hull.len(),
            skip: self.skip - hull.begin,
            ..*self
        };
        trimmed.set_sums(self.hull_sums(hull));
        trimmed
    }
    /// The same bytes seen at the copy, which becomes the only place.
    pub fn at_copy(&self) -> Self {
        debug_assert_ne!(self.copy, NO_DEVICE);
        let trimmed = self.trimmed();
        Self { run_offset: trimmed.copy_base, dev: trimmed.copy, copy_base: 0, copy: NO_DEVICE, ..trimmed }
    }
    /// Two parts, the second one from byte `at` on, each in a run of its own: a checksum unit begins there.
    pub fn split_in_two(&self, at: u32) -> (Self, Self) {
        debug_assert!((self.skip + at).is_multiple_of(UNIT) && at > 0 && at < self.len);
        (self.part(0, at).trimmed(), self.part(at, self.len - at).trimmed())
    }
    /// True if `next` goes on in the same run where this one ends, so that the two could be one view.
    pub fn continues(&self, next: &Self) -> bool {
        self.dev == next.dev
            && self.run_offset == next.run_offset
            && self.end() == next.skip
            && self.copy == next.copy
            && self.copy_base == next.copy_base
            && self.born == next.born
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_small() {
        assert_eq!(size_of::<Ext>(), 48);
        assert_eq!(size_of::<Option<Ext>>(), 48);
    }

    #[test]
    fn hulls_are_whole_units() {
        let sums = Sums::from_slice(&[1, 2, 3]);
        let whole = Ext::from_model(&Extent::whole(DeviceId(1), 4096, 150_000, sums), 0, 0);
        assert_eq!(whole.hull(), Hull { begin: 0, end: 150_000 });
        let middle = whole.part(70_000, 10);
        assert_eq!(middle.hull(), Hull { begin: 65_536, end: 131_072 });
        assert_eq!(middle.hull_sums(middle.hull()), [2]);
        assert!(middle.begins_inside() && middle.ends_inside() && !whole.ends_inside());
        let copied = Ext { copy: 3, copy_base: 8192u64.wrapping_sub(65_536), ..middle };
        let moved = copied.at_copy();
        assert_eq!((moved.run_offset, moved.run_len, moved.skip, moved.sum), (8192, 65_536, 70_000 - 65_536, 2));
    }
}
