//! Checksum units that more than one extent touches.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::map::{Ext, Place};
use crate::sums::UNIT;

/// How many extents touch a unit of a run, where it is more than one: extents that were split inside a unit do, and
/// those of snapshots. Keyed by device slot and the device offset at which the unit begins.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    counts: HashMap<(u8, u64), u32, FixedState>,
    /// Extents may share units all over, not at their edges alone: there are snapshots, or were a short while ago.
    everywhere: bool,
}

impl Shared {
    /// `ext` is about to be split at position `at` of its run.
    pub fn split(&mut self, ext: &Ext, at: u32) {
        if at & (UNIT - 1) == 0 {
            return;
        }
        for_places(ext, |place| self.touch_again(place.dev, place.unit_at(at)));
    }
    /// The opposite of [`Shared::split`].
    pub fn join(&mut self, ext: &Ext, at: u32) {
        if at & (UNIT - 1) == 0 {
            return;
        }
        for_places(ext, |place| {
            self.release(place.dev, place.unit_at(at));
        });
    }
    /// One more extent touches a unit that some extent touches already.
    pub fn touch_again(&mut self, dev: u8, unit: u64) {
        *self.counts.entry((dev, unit)).or_insert(1) += 1;
    }
    /// A second extent touches all units that this one does.
    pub fn touch_all(&mut self, ext: &Ext) {
        self.everywhere = true;
        for_units(ext, |dev, unit| self.touch_again(dev, unit));
    }
    /// A second extent touches the units that this one does at one of its places.
    pub fn touch_place(&mut self, ext: &Ext, place: Place<'_>) {
        self.everywhere = true;
        let hull = ext.hull();
        for at in (hull.begin..hull.end).step_by(UNIT as usize) {
            self.touch_again(place.dev, place.unit_at(at));
        }
    }
    /// The opposite of [`Shared::touch_all`], while the other one is still there.
    pub fn leave_all(&mut self, ext: &Ext) {
        for_units(ext, |dev, unit| {
            self.release(dev, unit);
        });
    }
    /// Extents share units that are not at their edges.
    pub fn set_everywhere(&mut self) {
        self.everywhere = true;
    }
    /// True if extents may share units anywhere in them.
    pub fn is_everywhere(&mut self) -> bool {
        self.everywhere = self.everywhere && !self.counts.is_empty();
        self.everywhere
    }
    /// One extent less touches the unit; true if it was the last.
    pub fn release(&mut self, dev: u8, unit: u64) -> bool {
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
    /// True if more than one extent touches the unit.
    pub fn is_shared(&self, dev: u8, unit: u64) -> bool {
        self.counts.contains_key(&(dev, unit))
    }
    /// Units in the table.
    pub fn len(&self) -> usize {
        self.counts.len()
    }
}

/// Calls `each` with device slot and begin of each unit that the extent touches, at both its places.
pub(crate) fn for_units(ext: &Ext, mut each: impl FnMut(u8, u64)) {
    let hull = ext.hull();
    for_places(ext, |place| {
        for at in (hull.begin..hull.end).step_by(UNIT as usize) {
            each(place.dev, place.unit_at(at));
        }
    });
}

/// Calls `each` with the place of the run and with that of its copy, if there is one.
pub(crate) fn for_places<'a>(ext: &'a Ext, mut each: impl FnMut(Place<'a>)) {
    each(ext.place());
    if let Some(copy) = ext.copy_place() {
        each(copy);
    }
}
