//! Long extents are split around a range, so that no more is moved than is wanted.

use cenote_model::ObjectKey;

use super::Core;
use crate::map::Ext;
use crate::placing::{Action, Placing, Target, identity};
use crate::sums::UNIT;

/// Extents looked at in one request.
const EXTENTS_MAX: usize = 1024;
/// Of longer extents only the part around what is wanted is brought, in pieces of this size.
const PIECE: u32 = 4 << 20;

impl Core {
    /// Makes the parts of long extents that hold a range extents of their own, so that no more is moved than is wanted.
    pub fn isolate(&mut self, slot: u32, key: ObjectKey, from: u64, to: u64) {
        let is_long = |(_, ext): &(u64, &Ext)| ext.len > 2 * PIECE;
        let long: Vec<(u64, Ext)> = (self.state.objects.get(slot).map.overlapping(from, to))
            .filter(is_long)
            .take(EXTENTS_MAX)
            .map(|(at, ext)| (at, ext.clone()))
            .collect();
        let mut splits = Vec::new();
        for (at, ext) in long {
            // Positions in the run, at whole checksum units around what is wanted.
            let position = |offset: u64| u64::from(ext.skip) + offset.saturating_sub(at);
            let piece = u64::from(PIECE);
            let begin = position(from) / piece * piece;
            let end = position(to).next_multiple_of(piece);
            for cut in [end, begin] {
                let inside = cut.saturating_sub(u64::from(ext.skip));
                if (1..u64::from(ext.len)).contains(&inside) && cut % u64::from(UNIT) == 0 {
                    splits.push((Target::Live { key, offset: at }, inside as u32));
                }
            }
        }
        // The later cut of an extent comes first, so that the extent still begins where it did.
        for (target, at) in splits {
            let Some(was) = self.state.target_mut(target).map(|ext| identity(ext)) else { continue };
            let placing = Placing { target, was, action: Action::Split { at } };
            if self.state.can_place(&placing) && self.place_all(&[placing]).is_err() {
                return;
            }
        }
    }
}
