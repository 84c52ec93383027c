//! Keys as an ordered map has them.

use std::borrow::Borrow;
use std::cmp::Ordering;

const INLINE: usize = 30;

/// A key that stands alone; short ones need no memory of their own.
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
    fn cmp(&self, other: &Self) -> Ordering {
        self.bytes().cmp(other.bytes())
    }
}
impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.bytes()
    }
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
}
