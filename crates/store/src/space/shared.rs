//! Reference counts of checksum units that more than one extent touches.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::map::{DeviceIndex, Ext, ExtentPlace};
use crate::sums::UNIT;

/// Number of extents that touch a unit, where it is more than one: extents that were split inside a unit, and those
/// of snapshots. Keyed by device slot and the device offset at which the unit begins.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    counts: HashMap<(DeviceIndex, u64), u32, FixedState>,
    /// Extents may share units anywhere, not only at their edges: there are snapshots, or were a short while ago.
    everywhere: bool,
}

impl Shared {
    /// Counts a split of `ext` at position `at` of its run.
    pub fn split(&mut self, ext: &Ext, at: u32) {
        if at & (UNIT - 1) == 0 {
            return;
        }
        for_places(ext, |place| self.touch_again(place.dev, place.unit_at(at)));
    }
    /// Takes back [`Shared::split`].
    pub fn join(&mut self, ext: &Ext, at: u32) {
        if at & (UNIT - 1) == 0 {
            return;
        }
        for_places(ext, |place| {
            self.release(place.dev, place.unit_at(at));
        });
    }
    /// Counts one more extent on a unit that some extent touches already.
    pub fn touch_again(&mut self, dev: DeviceIndex, unit: u64) {
        *self.counts.entry((dev, unit)).or_insert(1) += 1;
    }
    /// Counts a second extent on all units that this one touches.
    pub fn touch_all(&mut self, ext: &Ext) {
        self.everywhere = true;
        for_units(ext, |dev, unit| self.touch_again(dev, unit));
    }
    /// Counts a second extent on the units that this one touches at one of its places.
    pub fn touch_place(&mut self, ext: &Ext, place: ExtentPlace<'_>) {
        self.everywhere = true;
        let hull = ext.hull();
        for at in (hull.begin..hull.end).step_by(UNIT as usize) {
            self.touch_again(place.dev, place.unit_at(at));
        }
    }
    /// Takes back [`Shared::touch_all`], while the other extent still exists.
    pub fn leave_all(&mut self, ext: &Ext) {
        for_units(ext, |dev, unit| {
            self.release(dev, unit);
        });
    }
    /// Notes that extents share units that are not at their edges.
    pub fn set_everywhere(&mut self) {
        self.everywhere = true;
    }
    /// Returns true if extents may share units anywhere in them.
    pub fn is_everywhere(&mut self) -> bool {
        self.everywhere = self.everywhere && !self.counts.is_empty();
        self.everywhere
    }
    /// Counts one extent less on the unit. Returns true if it was the last.
    pub fn release(&mut self, dev: DeviceIndex, unit: u64) -> bool {
        match self.counts.entry((dev, unit)) {
            Entry::Vacant(_) => true,
            Entry::Occupied(mut entry) => {
                *entry.get_mut() -= 1;
                if *entry.get() <= 1 {
                    entry.remove();
                }
                false
            }
        }
    }
    /// Returns true if more than one extent touches the unit.
    pub fn is_shared(&self, dev: DeviceIndex, unit: u64) -> bool {
        self.counts.contains_key(&(dev, unit))
    }
    /// Units in the table.
    pub fn len(&self) -> usize {
        self.counts.len()
    }
}

/// Calls `each` with device slot and begin of each unit that the extent touches, at all its places.
pub(crate) fn for_units(ext: &Ext, mut each: impl FnMut(DeviceIndex, u64)) {
    let hull = ext.hull();
    for_places(ext, |place| {
        for at in (hull.begin..hull.end).step_by(UNIT as usize) {
            each(place.dev, place.unit_at(at));
        }
    });
}

/// Calls `each` with all places of the run.
pub(crate) fn for_places<'a>(ext: &'a Ext, each: impl FnMut(ExtentPlace<'a>)) {
    ext.places().for_each(each);
}
