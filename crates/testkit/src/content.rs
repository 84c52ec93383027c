//! Synthetic bytes: each write has an id, and every byte follows from the id and its position in the write. So the
//! oracle stores ids instead of bytes, and any misplaced, stale or torn byte is detected.

use crate::rng::mix;

/// Identifies the bytes of one write. Never reused within a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WriteId(pub u64);

impl WriteId {
    /// Writes with this bit have compressible bytes.
    pub const COMPRESSIBLE: u64 = 1 << 32;
}

/// The eight bytes at word `index` of the write.
#[inline]
fn word(id: WriteId, index: u64) -> [u8; 8] {
    if id.0 & WriteId::COMPRESSIBLE != 0 {
        // The id in the high bytes, the position in the low ones.
        return ((mix(id.0) & !0xFFFF) | (index & 0xFFFF)).to_le_bytes();
    }
    // The id in the high half, the position in the low half, mixed; the low bit is set so that no word is all
    // zeros.
    (mix((id.0 << 40) ^ index.wrapping_mul(0x9E37_79B9_7F4A_7C15)) | 1).to_le_bytes()
}

/// Fills `buf` with the bytes `[from, from + buf.len())` of the write.
pub fn fill(id: WriteId, from: u64, buf: &mut [u8]) {
    let mut at = from;
    let mut rest = buf;
    while !rest.is_empty() {
        let skip = (at % 8) as usize;
        let take = (8 - skip).min(rest.len());
        rest[..take].copy_from_slice(&word(id, at / 8)[skip..skip + take]);
        at += take as u64;
        rest = &mut rest[take..];
    }
}

/// The bytes `[from, from + len)` of the write.
pub fn bytes(id: WriteId, from: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    fill(id, from, &mut buf);
    buf
}

/// Offset of the first difference between `found` and the write's bytes from `from` on.
pub fn first_difference(id: WriteId, from: u64, found: &[u8]) -> Option<usize> {
    let mut at = 0usize;
    while at < found.len() {
        let position = from + at as u64;
        let skip = (position % 8) as usize;
        let take = (8 - skip).min(found.len() - at);
        let expected = word(id, position / 8);
        if found[at..at + take] != expected[skip..skip + take] {
            let inner = (0..take).find(|i| found[at + i] != expected[skip + i]).unwrap_or(0);
            return Some(at + inner);
        }
        at += take;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_agree_with_the_whole_and_differences_show() {
        let whole = bytes(WriteId(9), 0, 100);
        for from in 0..40 {
            assert_eq!(bytes(WriteId(9), from as u64, 50), whole[from..from + 50]);
            assert_eq!(first_difference(WriteId(9), from as u64, &whole[from..]), None);
        }
        let mut bent = whole.clone();
        bent[77] ^= 4;
        assert_eq!(first_difference(WriteId(9), 0, &bent), Some(77));
        assert!(first_difference(WriteId(10), 0, &whole).is_some());
    }
}
