//! An extent in memory: 48 bytes.

use std::sync::Arc;

use cenote_model::{DeviceId, Encoding, Extent, NodeId, Packed, SUM_UNIT_SHIFT, Sums};

use crate::sums::UNIT;

/// Stands for "no device" as the copy of an extent.
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
    /// so this may lie before the copy's space, even before zero (it wraps). If either place is compressed, the run has
    /// no other units.
    pub copy_base: u64,
    /// Checksums and compression of a run of more than one unit, or of a compressed one.
    pub many: Option<Arc<Run>>,
    /// Checksum of a plain run of one unit.
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
    /// Either place is compressed: [`Ext::many`] says how.
    pub is_packed: bool,
    /// Compressing it in place was tried and gained nothing. Not kept on media.
    pub is_dense: bool,
}

/// Data common to the views into one run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Run {
    /// Checksums of its units.
    pub sums: Vec<u32>,
    /// How it is compressed at its first place.
    pub packed: Option<Arc<Packed>>,
    /// How its copy is compressed.
    pub copy_packed: Option<Arc<Packed>>,
}

/// One of the places of an extent: which bytes lie where on which device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// Slot of the device.
    pub dev: u8,
    /// Where the run begins on it, or would begin.
    base: u64,
    /// How it is compressed there.
    packed: Option<&'a Packed>,
}

impl Place<'_> {
    /// Returns the device offset of the unit that holds position `at` of the run.
    pub fn unit_at(&self, at: u32) -> u64 {
        let inside = match self.packed {
            None => at & !(UNIT - 1),
            Some(packed) => packed.start((at >> SUM_UNIT_SHIFT) as usize),
        };
        self.base.wrapping_add(u64::from(inside))
    }
    /// Returns the device offset of the end of position `end` of the run, which is the end of a unit or of the run. In
    /// whole units of the device if it is compressed.
    pub fn end_at(&self, end: u32) -> u64 {
        let inside = match self.packed {
            None => end,
            Some(packed) => packed.start(end.div_ceil(UNIT) as usize),
        };
        self.base.wrapping_add(u64::from(inside))
    }
    /// Returns how it is compressed there.
    pub fn packed(&self) -> Option<&Packed> {
        self.packed
    }
}

/// Bytes of a run from `begin` up to `end`, in whole checksum units (the last may be short).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hull {
    pub begin: u32,
    pub end: u32,
}

impl Hull {
    /// Length in bytes.
    pub fn len(self) -> u32 {
        self.end - self.begin
    }
}

impl Ext {
    pub fn from_model(extent: &Extent, dev: u8, born: u32) -> Self {
        let mut ext = Self {
            run_offset: extent.run_offset,
            copy_base: 0,
            many: None,
            sum: 0,
            run_len: extent.run_len,
            skip: extent.skip,
            len: extent.len,
            born,
            dev,
            copy: NO_DEVICE,
            is_packed: false,
            is_dense: false,
        };
        let packed = if let Encoding::Packed(packed) = &extent.encoding { Some(Arc::clone(packed)) } else { None };
        ext.set_run(extent.sums.as_slice(), packed, None);
        ext
    }
    pub fn to_model(&self, device: DeviceId) -> Extent {
        Extent {
            node: NodeId(0),
            device,
            encoding: self.packed().map_or(Encoding::Plain, |packed| Encoding::Packed(Arc::clone(packed))),
            run_offset: self.run_offset,
            run_len: self.run_len,
            skip: self.skip,
            len: self.len,
            sums: match &self.many {
                None => Sums::One(self.sum),
                Some(many) => Sums::from_slice(&many.sums),
            },
        }
    }
    pub fn sums(&self) -> &[u32] {
        match &self.many {
            None => std::slice::from_ref(&self.sum),
            Some(many) => &many.sums,
        }
    }
    /// Sets the checksums and compression of the run.
    pub fn set_run(&mut self, sums: &[u32], packed: Option<Arc<Packed>>, copy_packed: Option<Arc<Packed>>) {
        self.is_packed = packed.is_some() || copy_packed.is_some();
        (self.sum, self.many) = match sums {
            [one] if !self.is_packed => (*one, None),
            _ => (0, Some(Arc::new(Run { sums: sums.to_vec(), packed, copy_packed }))),
        };
    }
    /// Returns how the run is compressed at its first place.
    pub fn packed(&self) -> Option<&Arc<Packed>> {
        self.many.as_ref().filter(|_| self.is_packed)?.packed.as_ref()
    }
    /// Returns how its copy is compressed.
    pub fn copy_packed(&self) -> Option<&Arc<Packed>> {
        self.many.as_ref().filter(|_| self.is_packed)?.copy_packed.as_ref()
    }
    /// The first place, where it is read.
    pub fn place(&self) -> Place<'_> {
        Place { dev: self.dev, base: self.run_offset, packed: self.packed().map(|packed| &**packed) }
    }
    /// The place of its copy.
    pub fn copy_place(&self) -> Option<Place<'_>> {
        let packed = self.copy_packed().map(|packed| &**packed);
        (self.copy != NO_DEVICE).then_some(Place { dev: self.copy, base: self.copy_base, packed })
    }
    /// Returns the extent with a new copy of the units that it touches.
    pub fn with_copy(&self, dev: u8, base: u64, packed: Option<Arc<Packed>>) -> Self {
        let mut ext = if packed.is_some() { self.trimmed() } else { self.clone() };
        if packed.is_some() || self.is_packed {
            let (sums, home) = (ext.sums().to_vec(), ext.packed().cloned());
            ext.set_run(&sums, home, packed);
        }
        Self { copy: dev, copy_base: base, ..ext }
    }
    /// Returns the extent without its copy.
    pub fn without_copy(&self) -> Self {
        let mut ext = Self { copy: NO_DEVICE, copy_base: 0, ..self.clone() };
        if self.is_packed {
            ext.set_run(self.sums(), self.packed().cloned(), None);
        }
        ext
    }
    /// Returns the extent with a new first place for the units that it touches. Its copy is the former first place, or
    /// stays the copy that it had.
    pub fn promoted(&self, dev: u8, base: u64, packed: Option<Arc<Packed>>) -> Self {
        let has_copy = self.copy != NO_DEVICE;
        let hull = self.hull();
        let trimmed = self.trimmed();
        let (copy, copy_base, copy_packed) = if has_copy {
            (trimmed.copy, trimmed.copy_base, trimmed.copy_packed().cloned())
        } else {
            (trimmed.dev, trimmed.run_offset, trimmed.packed().cloned())
        };
        // `base` is where the run would begin, if it is not compressed.
        let run_offset = if packed.is_some() { base } else { base.wrapping_add(u64::from(hull.begin)) };
        let mut ext = Self { run_offset, copy_base, dev, copy, ..trimmed.clone() };
        ext.set_run(trimmed.sums(), packed, copy_packed);
        ext
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
    /// Returns the part from `from` on, `len` bytes long.
    pub fn part(&self, from: u32, len: u32) -> Self {
        debug_assert!(u64::from(from) + u64::from(len) <= u64::from(self.len));
        Self { skip: self.skip + from, len, ..self.clone() }
    }
    /// Returns true if the extent begins inside a checksum unit.
    pub fn begins_inside(&self) -> bool {
        self.skip & (UNIT - 1) != 0
    }
    /// Returns true if it ends inside a checksum unit, before the end of the run.
    pub fn ends_inside(&self) -> bool {
        let end = self.end();
        end != self.run_len && end & (UNIT - 1) != 0
    }
    /// Returns the same bytes at the same places, in a run without other checksum units.
    pub fn trimmed(&self) -> Self {
        let hull = self.hull();
        if hull.begin == 0 && hull.end == self.run_len {
            return self.clone();
        }
        let units = ((hull.begin >> SUM_UNIT_SHIFT) as usize, hull.end.div_ceil(UNIT) as usize);
        let part = |packed: &Arc<Packed>| Arc::new(packed.part(units.0, units.1));
        let mut trimmed = Self {
            run_offset: self.place().unit_at(hull.begin),
            copy_base: self.copy_place().map_or(0, |place| place.unit_at(hull.begin)),
            many: None,
            run_len: hull.len(),
            skip: self.skip - hull.begin,
            ..*self
        };
        trimmed.set_run(self.hull_sums(hull), self.packed().map(part), self.copy_packed().map(part));
        trimmed
    }
    /// Returns the same bytes with the copy as the only place.
    pub fn at_copy(&self) -> Self {
        debug_assert_ne!(self.copy, NO_DEVICE);
        let trimmed = self.trimmed();
        let mut ext =
            Self { run_offset: trimmed.copy_base, dev: trimmed.copy, copy_base: 0, copy: NO_DEVICE, ..trimmed.clone() };
        if trimmed.is_packed {
            ext.set_run(trimmed.sums(), trimmed.copy_packed().cloned(), None);
        }
        ext
    }
    /// Splits it at byte `at`, where a checksum unit must begin. Each part has a run of its own.
    pub fn split_in_two(&self, at: u32) -> (Self, Self) {
        debug_assert!((self.skip + at).is_multiple_of(UNIT) && at > 0 && at < self.len);
        (self.part(0, at).trimmed(), self.part(at, self.len - at).trimmed())
    }
    /// Returns true if `next` goes on in the same run where this one ends, so that the two could be one view.
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

    #[test]
    fn compressed_places_have_units_of_their_own() {
        let packed = |len, lens: &[u32]| Arc::new(Packed::new(cenote_model::Codec::Lz4, 0, 12, len, lens).unwrap());
        let sums = Sums::from_slice(&[1, 2, 3]);
        let whole = Ext::from_model(&Extent::whole(DeviceId(1), 4096, 150_000, sums), 0, 0);
        // The last two units get a compressed copy: the run has no others then.
        let view = whole.part(70_000, 80_000).with_copy(3, 1 << 20, Some(packed(84_464, &[5000, 100])));
        assert_eq!((view.run_offset, view.run_len, view.skip), (4096 + 65_536, 84_464, 70_000 - 65_536));
        let copy = view.copy_place().unwrap();
        let end = (1 << 20) + 8192 + 4096;
        assert_eq!((copy.unit_at(0), copy.unit_at(70_000), copy.end_at(84_464)), (1 << 20, (1 << 20) + 8192, end));
        assert!(view.packed().is_none() && view.place().end_at(65_536) == 4096 + 2 * 65_536);
        let moved = view.part(70_000, 10).at_copy();
        assert_eq!(
            (moved.dev, moved.run_offset, moved.run_len, moved.skip),
            (3, (1 << 20) + 8192, 18_928, 4464 + 70_000 - 65_536)
        );
        assert_eq!((moved.packed().unwrap().len_of(0), moved.sums()), (100, &[3][..]));
        assert!(moved.copy_packed().is_none());
        // Promoted again, it is plain there.
        let promoted = moved.promoted(1, 512, None);
        assert_eq!(
            (promoted.dev, promoted.run_offset, promoted.copy, promoted.copy_base),
            (1, 512, 3, moved.run_offset)
        );
        assert!(promoted.packed().is_none() && promoted.copy_packed().is_some());
        assert_eq!(promoted.with_copy(2, 4096, None).copy_packed(), None);
    }
}
