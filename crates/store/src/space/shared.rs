//! Checksum units that more than one extent touches.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::map::{Ext, NO_DEVICE};
use crate::sums::UNIT;

/// How many extents touch a unit of a run, where it is more than one: only extents that were split inside a unit do.
/// Keyed by device slot and the device offset at which the unit begins.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    counts: HashMap<(u8, u64), u32, FixedState>,
}

impl Shared {
    /// `ext` is about to be split at position `at` of its run.
    pub fn split(&mut self, ext: &Ext, at: u32) {
        if at & (UNIT - 1) == 0 {
            return;
        }
        for_places(ext, |dev, base| self.touch_again(dev, unit_at(base, at)));
    }
    /// The opposite of [`Shared::split`].
    pub fn join(&mut self, ext: &Ext, at: u32) {
        if at & (UNIT - 1) == 0 {
            return;
        }
        for_places(ext, |dev, base| {
            self.release(dev, unit_at(base, at));
        });
    }
    /// One more extent touches a unit that some extent touches already.
    pub fn touch_again(&mut self, dev: u8, unit: u64) {
        *self.counts.entry((dev, unit)).or_insert(1) += 1;
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

/// Where the unit that holds position `at` of a run based at `base` begins.
pub(crate) fn unit_at(base: u64, at: u32) -> u64 {
    base.wrapping_add(u64::from(at & !(UNIT - 1)))
}

/// Calls `each` with device slot and base of the run and of its copy, if there is one.
pub(crate) fn for_places(ext: &Ext, mut each: impl FnMut(u8, u64)) {
    each(ext.dev, ext.run_offset);
    if ext.copy != NO_DEVICE {
        each(ext.copy, ext.copy_base);
    }
}
