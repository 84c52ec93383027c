//! Shuffle: the first bytes of all elements, then the second ones, and so on; remaining bytes stay at the end.

use cenote::{Error, ErrorKind, Result};

use super::{Codec, Decode};

pub struct Shuffle;

/// Elements handled together, so that the touched memory stays in the nearest cache.
const TILE: usize = 512;

fn width(params: &[u32]) -> Result<usize> {
    match params {
        [width] if *width > 0 => Ok(*width as usize),
        _ => Err(Error::new(ErrorKind::InvalidInput, "filter shuffle")
            .because(format!("it needs the size of an element, not {params:?}"))),
    }
}

impl Codec for Shuffle {
    fn encode(&self, params: &[u32], raw: &[u8]) -> Result<Vec<u8>> {
        let width = width(params)?;
        let count = raw.len() / width;
        if width == 1 || count < 2 {
            return Ok(raw.to_vec());
        }
        let mut out = raw.to_vec();
        for tile in (0..count).step_by(TILE) {
            let end = count.min(tile + TILE);
            for byte in 0..width {
                let plane = &mut out[byte * count + tile..byte * count + end];
                let elements = raw[tile * width..end * width].chunks_exact(width);
                for (to, element) in plane.iter_mut().zip(elements) {
                    *to = element[byte];
                }
            }
        }
        Ok(out)
    }

    fn decode(&self, params: &[u32], stored: &[u8], _how: Decode) -> Result<Vec<u8>> {
        let width = width(params)?;
        let count = stored.len() / width;
        if width == 1 || count < 2 {
            return Ok(stored.to_vec());
        }
        let mut out = stored.to_vec();
        for tile in (0..count).step_by(TILE) {
            let end = count.min(tile + TILE);
            for byte in 0..width {
                let plane = &stored[byte * count + tile..byte * count + end];
                let elements = out[tile * width..end * width].chunks_exact_mut(width);
                for (from, element) in plane.iter().zip(elements) {
                    element[byte] = *from;
                }
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_and_left_over_bytes() {
        let raw = [1, 2, 3, 11, 12, 13, 21, 22, 23, 99, 98];
        let stored = Shuffle.encode(&[3], &raw).unwrap();
        assert_eq!(stored, [1, 11, 21, 2, 12, 22, 3, 13, 23, 99, 98]);
        let how = Decode { bytes_max: 100, skip_checksums: false };
        assert_eq!(Shuffle.decode(&[3], &stored, how).unwrap(), raw);
        assert!(Shuffle.encode(&[0], &raw).is_err());
        assert!(Shuffle.encode(&[], &raw).is_err());
    }
}
