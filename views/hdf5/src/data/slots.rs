//! The slot of a chunk in the dataset's object, where it follows from the chunk's place in the grid, and the offsets
//! of slots.

/// What determines the slots.
#[derive(Clone, Copy)]
pub struct Slots<'a> {
    /// Dimensions of a chunk.
    pub chunk: &'a [u64],
    /// Greatest dimensions of the dataset; `u64::MAX` is unlimited.
    pub max_dims: &'a [u64],
    /// Bytes of a whole chunk without filters.
    pub chunk_bytes: u64,
    /// True if filters change the length.
    pub is_filtered: bool,
}

impl Slots<'_> {
    /// Bytes of a slot: the chunk, or room for the output of filters.
    pub fn bytes(&self) -> u64 {
        if self.is_filtered { (self.chunk_bytes * 2 + (64 << 10)).next_multiple_of(4096) } else { self.chunk_bytes }
    }
    /// Offset of a slot in bytes; `None` past 2^63 bytes.
    pub fn offset(&self, slot: u64) -> Option<u64> {
        slot.checked_mul(self.bytes()).filter(|at| *at <= (1 << 63) - self.bytes())
    }
    /// The row-major number in the grid of the maximum extent, if only the slowest dimension is unlimited and the
    /// object has room. `None`: slots are leased.
    pub fn fixed(&self, coords: &[u64]) -> Option<u64> {
        let mut slot = 0u64;
        for (i, (x, chunk)) in coords.iter().zip(self.chunk).enumerate() {
            let max = self.max_dims[i];
            if i > 0 && max == u64::MAX {
                return None;
            }
            slot = if i == 0 { *x } else { slot.checked_mul(max.div_ceil(*chunk))?.checked_add(*x)? };
        }
        // Decided for the whole grid where it is bounded, so that fixed and leased slots never mix.
        let all = self.max_dims.iter().zip(self.chunk).enumerate().try_fold(1u64, |all, (i, (max, c))| {
            let grid = if *max == u64::MAX { 1 << 20 } else { max.div_ceil(*c) };
            if i == 0 && *max == u64::MAX { Some(grid) } else { all.checked_mul(grid) }
        });
        let room = ((1u64 << 63) - 1) / self.bytes();
        (all? <= room).then_some(slot)
    }
}
