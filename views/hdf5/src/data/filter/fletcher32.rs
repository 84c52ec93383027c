//! Fletcher-32 over big-endian 16-bit words, as HDF5 stores it: four bytes, little-endian, after the
//! data.

use cenote::{Error, ErrorKind, Result};

use super::{Codec, Decode};

pub struct Fletcher32;

/// Number of words after which the sums are folded to stay within 32 bits.
const WORDS_MAX: usize = 360;

fn fold(sum: u32) -> u32 {
    (sum & 0xffff) + (sum >> 16)
}

/// The checksum of `bytes`.
fn checksum(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (0u32, 0u32);
    let mut words = bytes.chunks_exact(2);
    loop {
        let mut any = false;
        for word in words.by_ref().take(WORDS_MAX) {
            a += u32::from(u16::from_be_bytes([word[0], word[1]]));
            b += a;
            any = true;
        }
        if !any {
            break;
        }
        (a, b) = (fold(a), fold(b));
    }
    if let [odd] = words.remainder() {
        a += u32::from(*odd) << 8;
        b += a;
        (a, b) = (fold(a), fold(b));
    }
    (fold(b) << 16) | fold(a)
}

impl Codec for Fletcher32 {
    fn encode(&self, _params: &[u32], raw: &[u8]) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(raw.len() + 4);
        out.extend_from_slice(raw);
        out.extend_from_slice(&checksum(raw).to_le_bytes());
        Ok(out)
    }

    fn decode(&self, _params: &[u32], stored: &[u8], how: Decode) -> Result<Vec<u8>> {
        let damaged = || Error::new(ErrorKind::Corrupt, "a chunk with a fletcher32 checksum");
        let Some((raw, sum)) = stored.split_last_chunk::<4>() else {
            return Err(damaged().because("it is shorter than its checksum"));
        };
        if !how.skip_checksums {
            let (stored, is) = (u32::from_le_bytes(*sum), checksum(raw));
            // Files by HDF5 before 1.6.3 have the bytes of each half swapped.
            let swapped = ((is & 0x00ff_00ff) << 8) | ((is >> 8) & 0x00ff_00ff);
            if stored != is && stored != swapped {
                return Err(damaged().because(format!("the checksum is {is:08x}, stored {stored:08x}")));
            }
        }
        Ok(raw.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        // Computed by hand from the definition: words 0x0102, 0x0304.
        assert_eq!(checksum(&[1, 2, 3, 4]), (0x0508 << 16) | 0x0406);
        assert_eq!(checksum(&[1]), (0x0100 << 16) | 0x0100);
        assert_eq!(checksum(&[0; 1000]), 0);
        assert_eq!(checksum(&[0xff; 2]), 0xffff_ffff);
        // Long input does not overflow.
        assert_eq!(checksum(&vec![0xff; 100_000]) & 0xffff, 0xffff);
    }
}
