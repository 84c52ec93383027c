//! LZF, h5py's fast filter (32000): literal runs and references to at most 8 KiB back, without a header or a checksum.
//!
//! A control byte below 32 is followed by that many literals plus one. Otherwise its upper three bits are the length of a
//! reference minus two (7: add the next byte); its lower five bits, with one more byte, are its distance minus one.

use cenote::{Error, ErrorKind, Result};

use super::{Codec, Decode};

pub struct Lzf;

const DISTANCE_MAX: usize = 1 << 13;
const LITERALS_MAX: usize = 32;
const REFERENCE_MIN: usize = 3;
const REFERENCE_MAX: usize = 2 + 7 + 255;
const HASH_BITS: u32 = 14;

/// The position of three bytes in the hash table.
fn slot(bytes: &[u8]) -> usize {
    let word = u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2]);
    (word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}

fn put_literals(out: &mut Vec<u8>, literals: &[u8]) {
    for run in literals.chunks(LITERALS_MAX) {
        out.push((run.len() - 1) as u8);
        out.extend_from_slice(run);
    }
}

fn put_reference(out: &mut Vec<u8>, back: usize, len: usize) {
    let (high, low, len) = (((back - 1) >> 8) as u8, (back - 1) as u8, len - 2);
    if len < 7 {
        out.extend_from_slice(&[(len as u8) << 5 | high, low]);
    } else {
        out.extend_from_slice(&[7 << 5 | high, (len - 7) as u8, low]);
    }
}

impl Codec for Lzf {
    /// Compresses. As in h5py, output that is not smaller is an error: the filter, which is optional, is left out of the
    /// chunk.
    fn encode(&self, _params: &[u32], raw: &[u8]) -> Result<Vec<u8>> {
        let larger = || Error::new(ErrorKind::LimitExceeded, "filter lzf").because("the bytes do not get fewer");
        let mut out = Vec::with_capacity(raw.len());
        let mut seen = vec![usize::MAX; 1 << HASH_BITS];
        let (mut at, mut literal) = (0, 0);
        while at + REFERENCE_MIN <= raw.len() {
            let before = std::mem::replace(&mut seen[slot(&raw[at..])], at);
            let near = before < at && at - before <= DISTANCE_MAX;
            if !near || raw[before..before + REFERENCE_MIN] != raw[at..at + REFERENCE_MIN] {
                at += 1;
                continue;
            }
            let most = REFERENCE_MAX.min(raw.len() - at);
            let len = (REFERENCE_MIN..most).find(|i| raw[before + i] != raw[at + i]).unwrap_or(most);
            put_literals(&mut out, &raw[literal..at]);
            put_reference(&mut out, at - before, len);
            if out.len() >= raw.len() {
                return Err(larger());
            }
            // Two positions inside the match are enough to find repetitions.
            for inside in [at + len - 2, at + len - 1] {
                if inside + REFERENCE_MIN <= raw.len() {
                    seen[slot(&raw[inside..])] = inside;
                }
            }
            at += len;
            literal = at;
        }
        put_literals(&mut out, &raw[literal..]);
        if out.len() < raw.len() { Ok(out) } else { Err(larger()) }
    }

    fn decode(&self, _params: &[u32], stored: &[u8], how: Decode) -> Result<Vec<u8>> {
        let damaged = |why: &str| Error::new(ErrorKind::Corrupt, "a chunk compressed with lzf").because(why.to_owned());
        let mut out: Vec<u8> = Vec::new();
        let mut rest = stored.iter();
        let mut next = || rest.next().copied().ok_or_else(|| damaged("it ends too early"));
        let mut left = stored.len();
        while left > 0 {
            let control = usize::from(next()?);
            left -= 1;
            if control < LITERALS_MAX {
                for _ in 0..=control {
                    out.push(next()?);
                }
                left -= control + 1;
            } else {
                let mut len = (control >> 5) + 2;
                if len == 9 {
                    len += usize::from(next()?);
                    left -= 1;
                }
                let back = ((control & 31) << 8) + usize::from(next()?) + 1;
                left -= 1;
                let from =
                    out.len().checked_sub(back).ok_or_else(|| damaged("it refers to what is before its begin"))?;
                if back >= len {
                    out.extend_from_within(from..from + len);
                } else {
                    // The reference overlaps its own output: a repeating pattern.
                    for i in from..from + len {
                        out.push(out[i]);
                    }
                }
            }
            if out.len() > how.bytes_max {
                return Err(damaged("it holds far more than a chunk"));
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOW: Decode = Decode { bytes_max: 1 << 20, skip_checksums: false };

    #[test]
    fn known_bytes() {
        // By hand from the format: "abc", then six more from three back, then "x".
        assert_eq!(Lzf.decode(&[], &[2, b'a', b'b', b'c', 4 << 5, 2, 0, b'x'], HOW).unwrap(), b"abcabcabcx");
        // A long reference: nine and sixteen more, of the byte before.
        assert_eq!(Lzf.decode(&[], &[0, 7, 7 << 5, 16, 0], HOW).unwrap(), [7; 26]);
    }

    #[test]
    fn what_repeats_gets_smaller_and_comes_back() {
        let mut random = 1u64;
        for len in [4, 5, 33, 300, 5000, 70_000, 300_000] {
            for alphabet in [1u64, 2, 5, 40] {
                let raw: Vec<u8> = (0..len)
                    .map(|i| {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (if i % 100 < 60 { i as u64 / 8 } else { random >> 40 } % alphabet) as u8
                    })
                    .collect();
                if let Ok(stored) = Lzf.encode(&[], &raw) {
                    assert!(stored.len() < raw.len());
                    assert_eq!(Lzf.decode(&[], &stored, HOW).unwrap(), raw);
                } else {
                    assert!(alphabet > 2 || len < 40, "{len} bytes of {alphabet} values were not compressed");
                }
            }
        }
        assert!(Lzf.encode(&[], &(0..=255).collect::<Vec<u8>>()).is_err());
        assert!(Lzf.encode(&[], &[1]).is_err());
    }

    #[test]
    fn damage_and_bombs_are_errors() {
        for bad in [&[3u8, 1, 2][..], &[32], &[32, 0], &[0, 1, 7 << 5], &[0, 1, 7 << 5, 9], &[0, 1, 1 << 5, 1], &[31]] {
            assert_eq!(Lzf.decode(&[], bad, HOW).unwrap_err().kind(), ErrorKind::Corrupt, "{bad:?}");
        }
        let stored = Lzf.encode(&[], &vec![5; 100_000]).unwrap();
        let how = Decode { bytes_max: 1000, ..HOW };
        assert_eq!(Lzf.decode(&[], &stored, how).unwrap_err().kind(), ErrorKind::Corrupt);
        let mut random = 7u64;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..20)
                .map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (random >> 56) as u8
                })
                .collect();
            let _ = Lzf.decode(&[], &bytes, HOW); // must not panic, whatever the bytes are
        }
    }
}
