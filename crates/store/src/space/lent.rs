//! The part of a device's space that is one engine's. This file must not know who lends it.

use super::{Bitmap, DeviceSlot};
use crate::superblock::Loan;

impl DeviceSlot {
    /// Makes all space free but what is withheld.
    pub fn clear_space(&mut self) {
        let unit = u64::from(self.space.unit_bytes);
        let mut map = Bitmap::new(self.space.map.units(), (self.space.segment_bytes / unit).max(1));
        for (offset, bytes) in &self.space.withheld {
            map.mark(offset / unit, bytes.div_ceil(unit));
        }
        self.space.map = map;
    }
    /// Makes only these loans free: the engine is one of several.
    pub fn restrict(&mut self, loans: &[Loan]) {
        let mut mine: Vec<Loan> = loans.iter().filter(|loan| loan.device == self.id).copied().collect();
        mine.sort_unstable_by_key(|loan| loan.offset);
        let end = self.space.map.units() * u64::from(self.space.unit_bytes);
        let mut at = 0;
        self.space.withheld.clear();
        for loan in mine {
            if loan.offset > at {
                self.space.withheld.push((at, loan.offset - at));
            }
            at = loan.offset + loan.bytes;
        }
        if at < end {
            self.space.withheld.push((at, end - at));
        }
        self.clear_space();
    }
}
