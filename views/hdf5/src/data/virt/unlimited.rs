//! Arithmetic of selections that are unlimited along one dimension: the number of their slices within an extent, the
//! smallest extent for a number of slices, and the selection of the first slices. Pure.

use crate::ffi::types::H5S_UNLIMITED;
use crate::selection::{Along, Chosen};

/// Slices (selected indices) below `end`.
pub fn slices_below(along: Along, end: u64) -> u64 {
    let room = end.saturating_sub(along.start);
    if room == 0 {
        return 0;
    }
    if along.block == H5S_UNLIMITED {
        return room;
    }
    let stride = along.stride.max(1);
    let whole = (room / stride).min(along.count);
    let rest = if whole < along.count { (room % stride).min(along.block) } else { 0 };
    whole.saturating_mul(along.block).saturating_add(rest)
}

/// The smallest extent that holds the first `slices`; with `trail`, up to where the next one would begin.
pub fn extent_of(along: Along, slices: u64, trail: bool) -> u64 {
    if slices == 0 {
        return if trail { along.start } else { 0 };
    }
    if along.block == H5S_UNLIMITED || along.block == along.stride {
        return along.start.saturating_add(slices);
    }
    let (whole, rest) = (slices / along.block, slices % along.block);
    let at = |blocks: u64| along.start.saturating_add(blocks.saturating_mul(along.stride));
    match (rest, trail) {
        (0, true) => at(whole),
        (0, false) => at(whole - 1).saturating_add(along.block),
        _ => at(whole).saturating_add(rest),
    }
}

/// The first `slices` along dimension `dim`, as selections to be joined: the whole blocks, and a partial last one.
pub fn first_slices(dims: &[Along], dim: usize, slices: u64) -> Vec<Chosen> {
    let with = |along: Along| {
        let mut dims = dims.to_vec();
        dims[dim] = along;
        Chosen::Regular(dims)
    };
    let along = dims[dim];
    if slices == 0 {
        return vec![Chosen::None];
    }
    if along.block == H5S_UNLIMITED {
        return vec![with(Along { stride: slices, count: 1, block: slices, ..along })];
    }
    let (whole, rest) = (slices / along.block, slices % along.block);
    let mut parts = Vec::new();
    if whole > 0 {
        parts.push(with(Along { count: whole, ..along }));
    }
    if rest > 0 {
        let start = along.start.saturating_add(whole.saturating_mul(along.stride));
        parts.push(with(Along { start, count: 1, block: rest, stride: along.stride.max(rest) }));
    }
    parts
}

/// Block number `number` along dimension `dim`.
pub fn block(dims: &[Along], dim: usize, number: u64) -> Vec<Along> {
    let mut dims = dims.to_vec();
    let along = &mut dims[dim];
    along.start = along.start.saturating_add(number.saturating_mul(along.stride));
    along.count = 1;
    dims
}

/// The first block that does not lie wholly below `end`.
pub fn first_incomplete(along: Along, end: u64) -> u64 {
    if along.start >= end {
        return 0;
    }
    let room = end - along.start;
    if room < along.block { 0 } else { (room - along.block) / along.stride.max(1) + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Along = Along { start: 3, stride: 10, count: H5S_UNLIMITED, block: 4 };
    const SOLID: Along = Along { start: 5, stride: 1, count: 1, block: H5S_UNLIMITED };

    fn below_by_hand(along: Along, end: u64) -> u64 {
        (along.start..end).filter(|x| (x - along.start) % along.stride < along.block).count() as u64
    }

    #[test]
    fn slices_and_extents_agree_with_counting() {
        for end in 0..60 {
            assert_eq!(slices_below(OPEN, end), below_by_hand(OPEN, end), "{end}");
            assert_eq!(slices_below(SOLID, end), end.saturating_sub(5));
        }
        for slices in 1..30 {
            let end = extent_of(OPEN, slices, false);
            assert_eq!((slices_below(OPEN, end), slices_below(OPEN, end - 1)), (slices, slices - 1));
            let trail = extent_of(OPEN, slices, true);
            assert_eq!((slices_below(OPEN, trail), slices_below(OPEN, trail + 1)), (slices, slices + 1));
            assert_eq!(extent_of(SOLID, slices, true), 5 + slices);
        }
        assert_eq!((extent_of(OPEN, 0, true), extent_of(OPEN, 0, false)), (3, 0));
    }

    #[test]
    fn blocks_are_counted_by_where_they_end() {
        for end in 0..60 {
            let by_hand = (0u64..60).find(|j| 3 + j * 10 + 4 > end).unwrap();
            assert_eq!(first_incomplete(OPEN, end), by_hand, "{end}");
        }
        assert_eq!(block(&[OPEN], 0, 2), [Along { start: 23, count: 1, ..OPEN }]);
    }

    #[test]
    fn the_first_slices_are_whole_blocks_and_a_part() {
        assert_eq!(first_slices(&[OPEN], 0, 0), [Chosen::None]);
        assert_eq!(first_slices(&[OPEN], 0, 8), [Chosen::Regular(vec![Along { count: 2, ..OPEN }])]);
        let part = Along { start: 13, stride: 10, count: 1, block: 1 };
        let whole = Along { count: 1, ..OPEN };
        assert_eq!(first_slices(&[OPEN], 0, 5), [Chosen::Regular(vec![whole]), Chosen::Regular(vec![part])]);
        let solid = Along { start: 5, stride: 7, count: 1, block: 7 };
        assert_eq!(first_slices(&[SOLID], 0, 7), [Chosen::Regular(vec![solid])]);
    }
}
