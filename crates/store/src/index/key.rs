//! Keys as the ordered map holds them.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

const INLINE: usize = 30;

/// A key with its own memory; short ones are stored inline.
#[derive(Clone)]
pub(crate) enum Key {
    Inline(u8, [u8; INLINE]),
    Heap(Box<[u8]>),
}

impl Key {
    pub fn new(bytes: &[u8]) -> Self {
        if bytes.len() > INLINE {
            return Self::Heap(bytes.into());
        }
        let mut inline = [0; INLINE];
        inline[..bytes.len()].copy_from_slice(bytes);
        Self::Inline(bytes.len() as u8, inline)
    }
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Self::Heap(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.bytes().escape_ascii())
    }
}
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}
impl Eq for Key {}
impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            // A short key is padded with zeros: its words order as they should, and the lengths decide between equal
            // ones.
            (Self::Inline(own_len, own), Self::Inline(other_len, other)) => {
                cmp_words(own, other).then(own_len.cmp(other_len))
            }
            _ => self.bytes().cmp(other.bytes()),
        }
    }
}
impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.bytes()
    }
}

/// Compares eight bytes at a time, without a call.
#[inline]
fn cmp_words(own: &[u8; INLINE], other: &[u8; INLINE]) -> Ordering {
    let word = |bytes: &[u8; INLINE], at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
    for at in [0, 8, 16, INLINE - 8] {
        let (own, other) = (word(own, at), word(other, at));
        if own != other {
            return own.cmp(&other);
        }
    }
    Ordering::Equal
}

/// Returns the entry of a map with the greatest key that is not greater than `key`.
#[inline]
pub(super) fn last_to<'a, V>(map: &'a BTreeMap<Key, V>, key: &[u8]) -> Option<(&'a Key, &'a V)> {
    if key.len() > INLINE {
        return map.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
    }
    map.range(..=Key::new(key)).next_back()
}

/// Returns the value of that entry, to be changed.
#[inline]
pub(super) fn last_to_mut<'a, V>(map: &'a mut BTreeMap<Key, V>, key: &[u8]) -> Option<&'a mut V> {
    let last = if key.len() > INLINE {
        map.range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()
    } else {
        map.range_mut(..=Key::new(key)).next_back()
    };
    last.map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_equal_if_their_bytes_are() {
        for len in [0, 1, INLINE, INLINE + 1, 500] {
            let bytes = vec![7; len];
            assert_eq!(Key::new(&bytes), Key::new(&bytes), "{len} bytes");
            assert_ne!(Key::new(&bytes), Key::new(&[&bytes[..], &[0]].concat()), "{len} bytes");
        }
        assert_ne!(Key::new(b"a"), Key::new(b"b"));
    }

    #[test]
    fn keys_order_like_their_bytes() {
        let mut all: Vec<Vec<u8>> = vec![vec![]];
        for len in [1, 7, 8, 9, 16, 22, 23, INLINE - 1, INLINE, INLINE + 1, 40] {
            for last in [0, 1, 0x7f, 0x80, 0xff] {
                all.push([&vec![0; len - 1][..], &[last]].concat());
                all.push([&vec![b'x'; len - 1][..], &[last]].concat());
            }
        }
        for one in &all {
            for other in &all {
                assert_eq!(Key::new(one).cmp(&Key::new(other)), one.cmp(other), "{one:?} and {other:?}");
            }
        }
        let map: BTreeMap<Key, usize> = all.iter().enumerate().map(|(n, key)| (Key::new(key), n)).collect();
        for key in &all {
            assert_eq!(last_to(&map, key), map.get_key_value(&key[..]));
        }
        let above = [&all[1][..], &[0; 50]].concat();
        assert!(last_to(&map, &above).is_some_and(|(found, _)| found.bytes() < &above[..]));
        assert_eq!(last_to(&map.clone().split_off(&b"x"[..]), b"w"), None);
    }
}
