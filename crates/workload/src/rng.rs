//! The only source of randomness of these tests: a seed always gives the same stream.

/// A small generator (`SplitMix64`, Steele et al. 2014): fast, seedable, good enough to choose test actions.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x5EED_CE40_7E00_0001))
    }
    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }
    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
    /// An index into a sequence of that length.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
    /// True in `permille` of 1000 cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }
    /// Picks one of the items.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }
    /// An index drawn with these weights.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        let mut at = self.below(total);
        for (index, weight) in weights.iter().enumerate() {
            if at < u64::from(*weight) {
                return index;
            }
            at -= u64::from(*weight);
        }
        weights.len() - 1
    }
    /// A size that is often small, often near a power of two, sometimes anything up to `max`. At least 1.
    pub fn size(&mut self, max: u64) -> u64 {
        let size = match self.below(4) {
            0 => self.between(1, 64),
            1 => (1 << self.below(u64::from(max.max(2).ilog2()) + 1)) + self.below(3),
            2 => (1u64 << self.below(u64::from(max.max(2).ilog2()) + 1)).saturating_sub(self.below(3)),
            _ => self.between(1, max),
        };
        size.clamp(1, max)
    }
    /// An independent stream.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(mix(self.next_u64()))
    }
}

/// Mixes the bits of a number.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_stream_and_bounds_hold() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for _ in 0..1000 {
            assert_eq!(a.next_u64(), b.next_u64());
            assert!((1..=100).contains(&a.size(100)));
            b.size(100);
            assert!((3..=5).contains(&a.between(3, 5)));
            b.between(3, 5);
            assert_ne!(a.weighted(&[1, 0, 2]), 1);
            b.weighted(&[1, 0, 2]);
        }
    }
}
