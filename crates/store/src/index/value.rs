//! The value of a record: in memory, or in its container's value log.

use std::sync::Arc;

/// Shorter values stay in memory: their place in a log would take as much.
pub(crate) const SPILLED_BYTES_MIN: usize = 64;

/// A value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Here(Box<[u8]>),
    Away(Box<Away>),
}

/// A value in a value log. As long as it exists, its batch is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Away {
    pub batch: Arc<Batch>,
    /// Where in the batch it begins.
    pub at: u32,
    pub len: u32,
    /// [`digest`] of its bytes, which allows comparison without reading them.
    pub digest: u64,
}

/// Values that were written to a value log together.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Batch {
    /// Where in the log it begins.
    pub offset: u64,
    pub len: u32,
}

/// A borrowed [`Value`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ValueRef<'a> {
    Here(&'a [u8]),
    Away(&'a Away),
}

impl Value {
    #[inline]
    pub fn by_ref(&self) -> ValueRef<'_> {
        match self {
            Self::Here(bytes) => ValueRef::Here(bytes),
            Self::Away(away) => ValueRef::Away(away),
        }
    }
    #[inline]
    pub fn len(&self) -> usize {
        self.by_ref().len()
    }
}

impl<'a> ValueRef<'a> {
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Self::Here(bytes) => bytes.len(),
            Self::Away(away) => away.len as usize,
        }
    }
    #[inline]
    pub fn here(self) -> Option<&'a [u8]> {
        match self {
            Self::Here(bytes) => Some(bytes),
            Self::Away(_) => None,
        }
    }
    /// Returns true if it is in memory and long enough to spill.
    #[inline]
    pub fn may_spill(self) -> bool {
        matches!(self, Self::Here(bytes) if bytes.len() >= SPILLED_BYTES_MIN)
    }
    /// Returns true if these are its bytes.
    pub fn is(self, bytes: &[u8]) -> bool {
        match self {
            Self::Here(own) => *own == *bytes,
            Self::Away(away) => away.len as usize == bytes.len() && away.digest == digest(bytes),
        }
    }
    pub fn to_owned(self) -> Value {
        match self {
            Self::Here(bytes) => Value::Here(bytes.into()),
            Self::Away(away) => Value::Away(Box::new(away.clone())),
        }
    }
}

impl Away {
    /// Where in the log it begins.
    pub fn offset(&self) -> u64 {
        self.batch.offset + u64::from(self.at)
    }
}

/// A digest of 64 bits: two values of one length share it only by chance. Part of the format on
/// media.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |state: u64, word: u64| {
        let product = u128::from(state ^ word) * u128::from(FACTOR);
        (product as u64) ^ ((product >> 64) as u64).rotate_left(29)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let mut state = words.iter().fold(FACTOR ^ bytes.len() as u64, |state, word| mix(state, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    state = mix(state, u64::from_le_bytes(last));
    mix(state, FACTOR.rotate_left(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_takes_two_words() {
        assert_eq!(size_of::<Value>(), 16);
        assert_eq!(size_of::<Away>(), 24);
    }

    /// The digest is on media: it must not change.
    #[test]
    fn digests_tell_values_apart() {
        let mut seen = std::collections::HashSet::new();
        for len in 0..70 {
            for flipped in 0..=len * 8 {
                let mut bytes = vec![0x5a; len];
                if let Some(byte) = bytes.get_mut(flipped / 8) {
                    *byte ^= 1 << (flipped % 8);
                }
                let is_new = seen.insert(digest(&bytes));
                assert!(is_new, "{len} bytes, bit {flipped}");
            }
        }
        assert_eq!((digest(b""), digest(b"a value of a record")), (DIGEST_OF_NOTHING, DIGEST_OF_A_VALUE));
    }
    const DIGEST_OF_NOTHING: u64 = 2_318_200_465_153_201_374;
    const DIGEST_OF_A_VALUE: u64 = 5_438_375_097_570_629_697;
}
