//! Splits long extents around a range, so that moves carry only the bytes wanted.

use cenote_model::ObjectKey;

use super::Core;
use crate::map::Ext;
use crate::placing::{Action, Placing, Target, identity};
use crate::sums::UNIT;

/// Most extents inspected in one request.
const EXTENTS_MAX: usize = 1024;
/// Long extents are split at multiples of this size around the wanted range.
const PIECE: u32 = 4 << 20;

impl Core {
    /// Splits long extents so that a range lies in extents of its own, and a move carries no more than that.
    pub fn isolate(&mut self, slot: u32, key: ObjectKey, from: u64, to: u64) {
        let is_long = |(_, ext): &(u64, &Ext)| ext.len > 2 * PIECE;
        let long: Vec<(u64, Ext)> = (self.state.objects.get(slot).map.overlapping(from, to))
            .filter(is_long)
            .take(EXTENTS_MAX)
            .map(|(at, ext)| (at, ext.clone()))
            .collect();
        let mut splits = Vec::new();
        for (at, ext) in long {
            // Positions in the run: piece boundaries, which are checksum unit boundaries, around the wanted range.
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
        // Do the later split of an extent first: its begin must still be where it was.
        for (target, at) in splits {
            let Some(was) = self.state.target_mut(target).map(|ext| identity(ext)) else { continue };
            let placing = Placing { target, was, action: Action::Split { at } };
            if self.state.can_place(&placing) && self.place_all(&[placing]).is_err() {
                return;
            }
        }
    }
}
