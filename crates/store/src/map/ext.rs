//! An extent in memory: 56 bytes, and what few extents need behind a pointer.

use std::sync::Arc;

use cenote_model::{Birth, DeviceId, Encoding, Extent, NodeId, Packed, SUM_UNIT_SHIFT, Sums};
use smallvec::SmallVec;

use crate::sums::UNIT;

/// Slot of a device in the table of devices ([`crate::space::Space`]), which says on which node it is.
pub(crate) type DeviceIndex = u16;

/// Stands for "no device".
pub(crate) const NO_DEVICE: DeviceIndex = DeviceIndex::MAX;

/// A view into a run of bytes on a device, and perhaps into copies of the run on others.
///
/// A run is divided into checksum units of 64 KiB from its start. An extent *touches* the units that it has bytes of;
/// the space of a unit is in use as long as any extent (in a map or in an undo list) touches it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ext {
    /// Where the run begins on its device.
    pub run_offset: u64,
    /// Where the run would begin on the device of its first copy. See [`Replica::base`].
    pub copy_base: u64,
    /// The number that no other run at any of its places has. An extent that gets a place gets another one.
    pub birth: Birth,
    /// What views into one run have in common and few need: several checksums, compression, more than one copy.
    pub run: Option<Arc<Run>>,
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
    /// The run's device.
    pub dev: DeviceIndex,
    /// The device of its first copy, or [`NO_DEVICE`].
    pub copy_dev: DeviceIndex,
}

/// Data common to the views into one run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Run {
    /// Checksums of its units; empty for a run of one unit, whose checksum is in the extent.
    pub sums: Vec<u32>,
    /// How it is compressed at its first place.
    pub packed: Option<Arc<Packed>>,
    /// How its first copy is compressed.
    pub copy_packed: Option<Arc<Packed>>,
    /// Its copies but the first.
    pub more: Vec<Replica>,
    /// Compressing it in place was tried and gained nothing. Not kept on media.
    pub is_dense: bool,
}

/// A further place of a run. Reads go to the first place; one of these serves when that is gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Replica {
    pub dev: DeviceIndex,
    /// Where the run would begin on the device. Only units that were touched when the copy was made are there, so this
    /// may lie before the copy's space, even before zero (it wraps). If a place is compressed, the run has no other
    /// units.
    pub base: u64,
    /// How it is compressed there.
    pub packed: Option<Arc<Packed>>,
}

/// One of the places of an extent: which bytes lie where on which device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtentPlace<'a> {
    /// Slot of the device.
    pub dev: DeviceIndex,
    /// Where the run begins on it, or would begin.
    base: u64,
    /// How it is compressed there.
    packed: Option<&'a Packed>,
}

/// The place that a copied or moved run gets, and the birth that it has then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewPlace<'a> {
    pub dev: DeviceIndex,
    pub base: u64,
    pub birth: Birth,
    pub packed: Option<&'a Arc<Packed>>,
}

impl NewPlace<'_> {
    fn replica(self) -> Replica {
        Replica { dev: self.dev, base: self.base, packed: self.packed.cloned() }
    }
}

impl Replica {
    fn place(&self) -> ExtentPlace<'_> {
        ExtentPlace { dev: self.dev, base: self.base, packed: self.packed.as_deref() }
    }
}

/// Copies of a run, in order.
pub(crate) type Replicas = SmallVec<[Replica; 1]>;

impl ExtentPlace<'_> {
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
    pub fn from_model(extent: &Extent, dev: DeviceIndex, born: u32, birth: Birth) -> Self {
        let packed = if let Encoding::Packed(packed) = &extent.encoding { Some(Arc::clone(packed)) } else { None };
        let first = Replica { dev, base: extent.run_offset, packed };
        let mut ext =
            Self { run_len: extent.run_len, skip: extent.skip, len: extent.len, born, birth, ..Self::at(&first) };
        ext.set_run(extent.sums.as_slice(), first.packed, SmallVec::new());
        ext
    }
    /// An extent of no bytes, whose run begins at a place.
    pub fn at(first: &Replica) -> Self {
        Self {
            run_offset: first.base,
            copy_base: 0,
            birth: Birth::default(),
            run: None,
            sum: 0,
            run_len: 0,
            skip: 0,
            len: 0,
            born: 0,
            dev: first.dev,
            copy_dev: NO_DEVICE,
        }
    }
    pub fn to_model(&self, (node, device): (NodeId, DeviceId)) -> Extent {
        Extent {
            node,
            device,
            birth: self.birth,
            encoding: self.packed().map_or(Encoding::Plain, |packed| Encoding::Packed(Arc::clone(packed))),
            run_offset: self.run_offset,
            run_len: self.run_len,
            skip: self.skip,
            len: self.len,
            sums: Sums::from_slice(self.sums()),
        }
    }
    pub fn sums(&self) -> &[u32] {
        match &self.run {
            Some(run) if !run.sums.is_empty() => &run.sums,
            _ => std::slice::from_ref(&self.sum),
        }
    }
    /// Changes the checksum of the run's last unit.
    pub fn set_last_sum(&mut self, sum: u32) {
        match &mut self.run {
            Some(run) if !run.sums.is_empty() => {
                if let Some(last) = Arc::make_mut(run).sums.last_mut() {
                    *last = sum;
                }
            }
            _ => self.sum = sum,
        }
    }
    /// Adds checksums of units behind the run's last one.
    pub fn add_sums(&mut self, sums: &[u32]) {
        let run = Arc::make_mut(self.run.get_or_insert_default());
        if run.sums.is_empty() {
            run.sums.push(self.sum);
        }
        run.sums.extend_from_slice(sums);
        self.sum = 0;
    }
    /// Drops the checksums behind the first `units`.
    pub fn keep_sums(&mut self, units: usize) {
        let Some(run) = self.run.as_mut().filter(|run| run.sums.len() > units) else { return };
        let run = Arc::make_mut(run);
        run.sums.truncate(units);
        if units == 1 {
            self.sum = run.sums[0];
            run.sums.clear();
            if *run == Run::default() {
                self.run = None;
            }
        }
    }
    /// Sets the checksums, the compression and the copies of the run.
    pub fn set_run(&mut self, sums: &[u32], packed: Option<Arc<Packed>>, mut copies: Replicas) {
        let (one, sums) = if let [one] = sums { (*one, Vec::new()) } else { (0, sums.to_vec()) };
        self.sum = one;
        let first = if copies.is_empty() { None } else { Some(copies.remove(0)) };
        let (dev, base, copy_packed) =
            first.map_or((NO_DEVICE, 0, None), |first| (first.dev, first.base, first.packed));
        (self.copy_dev, self.copy_base) = (dev, base);
        let is_plain = sums.is_empty() && packed.is_none() && copy_packed.is_none() && copies.is_empty();
        let more = copies.into_vec();
        self.run = (!is_plain).then(|| Arc::new(Run { sums, packed, copy_packed, more, is_dense: false }));
    }
    /// Sets the copies of the run.
    fn set_copies(&mut self, copies: Replicas) {
        if let (None, [] | [Replica { packed: None, .. }]) = (&self.run, &copies[..]) {
            let first = copies.first();
            self.copy_dev = first.map_or(NO_DEVICE, |first| first.dev);
            self.copy_base = first.map_or(0, |first| first.base);
            return;
        }
        let (sums, packed) = (self.sums().to_vec(), self.packed().cloned());
        self.set_run(&sums, packed, copies);
    }
    /// Returns how the run is compressed at its first place.
    pub fn packed(&self) -> Option<&Arc<Packed>> {
        self.run.as_ref()?.packed.as_ref()
    }
    /// Returns true if one of its places is compressed.
    pub fn is_packed(&self) -> bool {
        self.places().any(|place| place.packed.is_some())
    }
    /// Returns true if compressing it in place was tried and gained nothing.
    pub fn is_dense(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_dense)
    }
    /// Notes that compressing it in place gained nothing.
    pub fn set_dense(&mut self) {
        Arc::make_mut(self.run.get_or_insert_default()).is_dense = true;
    }
    /// Its copies, in order.
    pub fn copies(&self) -> Replicas {
        (0..self.copy_count()).filter_map(|copy| self.copy(copy)).collect()
    }
    /// Number of its copies.
    pub fn copy_count(&self) -> usize {
        usize::from(self.has_copy()) + self.run.as_ref().map_or(0, |run| run.more.len())
    }
    /// Returns a copy.
    pub fn copy(&self, copy: usize) -> Option<Replica> {
        if copy > 0 {
            return self.run.as_ref()?.more.get(copy - 1).cloned();
        }
        let packed = self.run.as_ref().and_then(|run| run.copy_packed.clone());
        self.has_copy().then_some(Replica { dev: self.copy_dev, base: self.copy_base, packed })
    }
    /// Returns true if it has a copy.
    pub fn has_copy(&self) -> bool {
        self.copy_dev != NO_DEVICE
    }
    /// Returns the index of its copy on a device.
    pub fn copy_on(&self, dev: DeviceIndex) -> Option<usize> {
        self.places().skip(1).position(|place| place.dev == dev)
    }
    /// Returns the device of a copy.
    pub fn device_of_copy(&self, copy: usize) -> Option<DeviceIndex> {
        self.copy_place(copy).map(|place| place.dev)
    }
    /// The first place, where it is read.
    pub fn place(&self) -> ExtentPlace<'_> {
        ExtentPlace { dev: self.dev, base: self.run_offset, packed: self.packed().map(|packed| &**packed) }
    }
    /// The place of a copy.
    pub fn copy_place(&self, copy: usize) -> Option<ExtentPlace<'_>> {
        self.places().nth(1 + copy)
    }
    /// All places, the first one first.
    pub fn places(&self) -> impl Iterator<Item = ExtentPlace<'_>> {
        let run = self.run.as_deref();
        let packed = run.and_then(|run| run.copy_packed.as_deref());
        let copy = self.has_copy().then_some(ExtentPlace { dev: self.copy_dev, base: self.copy_base, packed });
        let more = run.map_or(&[][..], |run| &run.more);
        std::iter::once(self.place()).chain(copy).chain(more.iter().map(Replica::place))
    }
    /// Returns the extent with a copy of the units that it touches: a further one, or one that replaces another.
    pub fn with_copy(&self, new: NewPlace<'_>, replaces: Option<usize>) -> Self {
        let mut ext = if new.packed.is_some() { self.trimmed() } else { self.clone() };
        let mut copies = ext.copies();
        match replaces.and_then(|at| copies.get_mut(at)) {
            Some(old) => *old = new.replica(),
            None => copies.push(new.replica()),
        }
        ext.set_copies(copies);
        Self { birth: new.birth, ..ext }
    }
    /// Returns the extent without one of its copies.
    pub fn without_copy(&self, copy: usize) -> Self {
        let mut copies = self.copies();
        copies.remove(copy);
        let mut ext = self.clone();
        ext.set_copies(copies);
        ext
    }
    /// Returns the extent with a new first place for the units that it touches, and its copies. If it has none, the
    /// former first place becomes one.
    pub fn promoted(&self, new: NewPlace<'_>) -> Self {
        let hull = self.hull();
        let trimmed = self.trimmed();
        let mut copies = trimmed.copies();
        if copies.is_empty() {
            let packed = trimmed.packed().cloned();
            copies.push(Replica { dev: trimmed.dev, base: trimmed.run_offset, packed });
        }
        // `base` is where the run would begin, if it is not compressed.
        let run_offset = if new.packed.is_some() { new.base } else { new.base.wrapping_add(u64::from(hull.begin)) };
        let mut ext = Self { run_offset, birth: new.birth, dev: new.dev, ..trimmed.clone() };
        ext.set_run(trimmed.sums(), new.packed.cloned(), copies);
        ext
    }
    /// Returns the extent at a new place, its only one.
    pub fn moved(&self, new: NewPlace<'_>) -> Self {
        let mut alone = self.clone();
        alone.set_copies(SmallVec::new());
        alone.with_copy(new, None).at_copy(0)
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
        let copy = |copy: Replica| Replica {
            dev: copy.dev,
            base: copy.place().unit_at(hull.begin),
            packed: copy.packed.as_ref().map(part),
        };
        let mut trimmed = Self {
            run_offset: self.place().unit_at(hull.begin),
            run: None,
            run_len: hull.len(),
            skip: self.skip - hull.begin,
            ..*self
        };
        trimmed.set_run(self.hull_sums(hull), self.packed().map(part), self.copies().into_iter().map(copy).collect());
        trimmed
    }
    /// Returns the same bytes with a copy as the first place, and without the former first place.
    pub fn at_copy(&self, copy: usize) -> Self {
        let trimmed = self.trimmed();
        let mut copies = trimmed.copies();
        let first = copies.remove(copy);
        let mut ext = Self { run_offset: first.base, dev: first.dev, ..trimmed.clone() };
        ext.set_run(trimmed.sums(), first.packed, copies);
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
            && self.birth == next.birth
            && self.end() == next.skip
            && self.has_same_copies(next)
            && self.born == next.born
    }
    /// Returns true if the copies of both are at the same places.
    pub fn has_same_copies(&self, other: &Self) -> bool {
        if self.copy_count() != other.copy_count() {
            return false;
        }
        let mut pairs = self.places().zip(other.places()).skip(1);
        pairs.all(|(one, other)| (one.dev, one.base) == (other.dev, other.base))
    }
}

#[cfg(test)]
mod tests;
