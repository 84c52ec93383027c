//! Text in words: up to eight bytes in each, the first in the lowest byte; ends with a zero byte or
//! with the words.

use std::sync::atomic::Ordering::Relaxed;

use crate::layout::Word;

/// Writes as much as fits.
pub(crate) fn write(words: &[Word], bytes: &[u8]) {
    for (at, word) in words.iter().enumerate() {
        let mut piece = [0; 8];
        let rest = bytes.get(at * 8..).unwrap_or_default();
        let len = rest.len().min(8);
        piece[..len].copy_from_slice(&rest[..len]);
        word.store(u64::from_le_bytes(piece), Relaxed);
    }
}

/// Reads a text; bytes that are not UTF-8 are replaced.
pub(crate) fn read(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
