//! Shapes of keys, and sizes of values.

use crate::rng::Rng;

/// How an ordinal becomes a key. Some shapes do not keep the order of the ordinals, as in real programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyShape {
    /// Eight bytes, big-endian.
    BigEndian,
    /// `step-17`: decimal without leading zeros.
    Decimal,
    /// `00000000000000000017`.
    Padded,
    /// This many equal bytes, then eight bytes.
    Prefixed(u16),
    /// One to 64 bytes that encode the ordinal; many keys are prefixes of others.
    Lengths,
    /// Up to this many bytes; some keys have exactly that length.
    Limit(u32),
}

impl KeyShape {
    /// Shapes for keys that may have at most `limit` bytes.
    pub fn all(limit: u32) -> [Self; 7] {
        [
            Self::BigEndian,
            Self::Decimal,
            Self::Padded,
            Self::Prefixed(22),
            Self::Prefixed(200),
            Self::Lengths,
            Self::Limit(limit),
        ]
    }
    /// The key of an ordinal; different ordinals have different keys.
    pub fn key(self, ordinal: u64) -> Vec<u8> {
        match self {
            Self::BigEndian => ordinal.to_be_bytes().into(),
            Self::Decimal => format!("step-{ordinal}").into(),
            Self::Padded => format!("{ordinal:020}").into(),
            Self::Prefixed(len) => {
                let mut key = vec![b'p'; usize::from(len)];
                key.extend_from_slice(&ordinal.to_be_bytes());
                key
            }
            // The ordinal in base 4, highest digit first, after a number of equal bytes that depends on its
            // last digits.
            Self::Lengths => {
                let mut key = vec![b'z'; (ordinal % 29) as usize];
                let digits = (64 - ordinal.leading_zeros()).div_ceil(2).max(1);
                key.extend((0..digits).rev().map(|digit| b'0' + (ordinal >> (2 * digit) & 3) as u8));
                key
            }
            Self::Limit(limit) => {
                let mut key = ordinal.to_be_bytes().to_vec();
                let len = match ordinal % 61 {
                    0 => limit as usize,
                    1 => (limit as usize).saturating_sub(1),
                    n => 8 + n as usize,
                };
                key.resize(len.clamp(8, (limit as usize).max(8)), b'.');
                key
            }
        }
    }
}

/// A size from 0 to `max` that is often at one of `limits`, or off by one.
pub fn size_at_limits(rng: &mut Rng, limits: &[u64], max: u64) -> u64 {
    if limits.is_empty() || rng.chance(600) {
        return rng.below(max.min(200) + 1);
    }
    (*rng.pick(limits) + rng.below(3)).saturating_sub(1).min(max)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_different_and_within_their_limit() {
        for shape in KeyShape::all(300) {
            let keys: HashSet<Vec<u8>> =
                (0..20_000u64).chain((1 << 40)..(1 << 40) + 5000).map(|n| shape.key(n)).collect();
            assert_eq!(keys.len(), 25_000, "{shape:?}");
            assert!(keys.iter().all(|key| key.len() <= 300), "{shape:?}");
        }
    }
}
