//! Compression of checksum units, and the byte shuffle before it. Knows only bytes: other rooms decide what is worth
//! compressing, and the checksums of the plain bytes tell whether it was restored correctly.

use cenote_model::{Codec, Error, ErrorKind, Packed, Result};

use crate::sums::SUM_UNIT_BYTES;

/// Level of Zstandard: higher ones cost several times as much for a few percent.
const ZSTD_LEVEL: i32 = 1;

/// How a unit is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Method {
    /// Compression algorithm.
    pub codec: Codec,
    /// Base-two logarithm of the element size for the byte shuffle; 0 for no shuffle.
    pub stride_shift: u8,
}

/// Compresses and decompresses with buffers that it keeps: one for each thread.
#[derive(Default)]
pub struct Packer {
    shuffled: Vec<u8>,
    /// LZ4 needs space for output that is longer than its input.
    roomy: Vec<u8>,
    zstd_in: Option<zstd::bulk::Compressor<'static>>,
    zstd_out: Option<zstd::bulk::Decompressor<'static>>,
}

impl Packer {
    /// Compresses `plain`, at most one checksum unit, into `out`; returns the compressed length. `None` if that is not
    /// shorter, or if it does not fit `out`.
    pub fn pack(&mut self, method: Method, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let room = out.len().min(plain.len().saturating_sub(1));
        let out = &mut out[..room];
        let bytes = if method.stride_shift == 0 {
            plain
        } else {
            self.shuffled.resize(plain.len(), 0);
            shuffle(method.stride_shift, plain, &mut self.shuffled);
            &self.shuffled
        };
        match method.codec {
            Codec::Lz4 => {
                self.roomy.resize(lz4_flex::block::get_maximum_output_size(bytes.len()), 0);
                let len = lz4_flex::block::compress_into(bytes, &mut self.roomy).ok()?;
                out.get_mut(..len)?.copy_from_slice(&self.roomy[..len]);
                Some(len)
            }
            Codec::Zstd => {
                let context = match &mut self.zstd_in {
                    Some(context) => context,
                    none => none.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()?),
                };
                context.compress_to_buffer(bytes, out).ok()
            }
        }
    }

    /// Decompresses what [`Packer::pack`] produced; `plain` has exactly the original length. Damaged input yields other
    /// bytes or an error; nothing outside of `plain` is touched.
    pub fn unpack(&mut self, method: Method, stored: &[u8], plain: &mut [u8]) -> Result<()> {
        let into = if method.stride_shift == 0 {
            &mut *plain
        } else {
            self.shuffled.resize(plain.len(), 0);
            &mut self.shuffled
        };
        let wanted = into.len();
        let found = match method.codec {
            Codec::Lz4 => lz4_flex::block::decompress_into(stored, into).map_err(|error| error.to_string()),
            Codec::Zstd => {
                let context = match &mut self.zstd_out {
                    Some(context) => context,
                    none => none.insert(zstd::bulk::Decompressor::new().map_err(|error| damaged(&error.to_string()))?),
                };
                context.decompress_to_buffer(stored, into).map_err(|error| error.to_string())
            }
        };
        match found {
            Ok(bytes) if bytes == wanted => {}
            Ok(bytes) => return Err(damaged(&format!("{bytes} bytes come out where {wanted} went in"))),
            Err(why) => return Err(damaged(&why)),
        }
        if method.stride_shift != 0 {
            unshuffle(method.stride_shift, &self.shuffled, plain);
        }
        Ok(())
    }

    /// Decompresses unit `unit` of a run from `stored`, its bytes on the device, into `plain`, which has its full plain
    /// length.
    ///
    /// # Panics
    /// If there is no such unit.
    pub fn unpack_unit(&mut self, packed: &Packed, unit: usize, stored: &[u8], plain: &mut [u8]) -> Result<()> {
        let (len, plain_len) = (packed.len_of(unit) as usize, packed.plain_len_of(unit) as usize);
        let (Some(stored), true) = (stored.get(..len), plain.len() == plain_len) else {
            return Err(damaged("a compressed unit is longer than what was read of it"));
        };
        if len == plain_len {
            plain.copy_from_slice(stored);
            return Ok(());
        }
        self.unpack(Method { codec: packed.codec(), stride_shift: packed.stride_shift() }, stored, plain)
    }
}

fn damaged(why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "compressed bytes").because(format!("they cannot be decompressed: {why}"))
}

/// Groups bytes that have the same position in their element of 2^`shift` bytes; the remainder stays at the end.
fn shuffle(shift: u8, plain: &[u8], out: &mut [u8]) {
    match shift {
        1 => lanes::<2>(plain, out),
        2 => lanes::<4>(plain, out),
        _ => lanes::<8>(plain, out),
    }
}

fn unshuffle(shift: u8, shuffled: &[u8], plain: &mut [u8]) {
    match shift {
        1 => elements::<2>(shuffled, plain),
        2 => elements::<4>(shuffled, plain),
        _ => elements::<8>(shuffled, plain),
    }
}

/// Elements processed at once, so that they stay in registers.
const BLOCK: usize = 16;

fn lanes<const N: usize>(plain: &[u8], out: &mut [u8]) {
    let count = plain.len() / N;
    let (whole, rest) = plain.split_at(count * N);
    let (spread, tail) = out.split_at_mut(count * N);
    tail.copy_from_slice(rest);
    let mut lanes: [&mut [u8]; N] = std::array::from_fn(|_| Default::default());
    spread.chunks_exact_mut(count.max(1)).zip(&mut lanes).for_each(|(lane, at)| *at = lane);
    let blocks = whole.chunks_exact(N * BLOCK);
    let done = blocks.len() * BLOCK;
    for (number, block) in blocks.enumerate() {
        for (place, lane) in lanes.iter_mut().enumerate() {
            let gathered: [u8; BLOCK] = std::array::from_fn(|element| block[element * N + place]);
            lane[number * BLOCK..(number + 1) * BLOCK].copy_from_slice(&gathered);
        }
    }
    for element in done..count {
        for (place, lane) in lanes.iter_mut().enumerate() {
            lane[element] = whole[element * N + place];
        }
    }
}

fn elements<const N: usize>(shuffled: &[u8], plain: &mut [u8]) {
    let count = plain.len() / N;
    let (spread, rest) = shuffled.split_at(count * N);
    let (whole, tail) = plain.split_at_mut(count * N);
    tail.copy_from_slice(rest);
    let mut lanes: [&[u8]; N] = [&[]; N];
    spread.chunks_exact(count.max(1)).zip(&mut lanes).for_each(|(lane, at)| *at = lane);
    let mut blocks = whole.chunks_exact_mut(N * BLOCK);
    let mut done = 0;
    for block in &mut blocks {
        let taken: [[u8; BLOCK]; N] =
            std::array::from_fn(|place| *lanes[place][done..].first_chunk().unwrap_or(&[0; BLOCK]));
        for element in 0..BLOCK {
            for place in 0..N {
                block[element * N + place] = taken[place][element];
            }
        }
        done += BLOCK;
    }
    for (element, bytes) in blocks.into_remainder().chunks_exact_mut(N).enumerate() {
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = lanes[place][done + element];
        }
    }
}

/// All compression methods, plain codecs first.
pub fn methods() -> impl Iterator<Item = Method> {
    Codec::ALL.into_iter().flat_map(|codec| (0..=3).map(move |stride_shift| Method { codec, stride_shift }))
}

/// Upper bound of the bytes that [`Packer`] takes at once.
pub const PACKED_AT_ONCE: usize = SUM_UNIT_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(count: u32) -> Vec<u8> {
        (0..count).flat_map(|i| (300.0 + (f64::from(i) * 0.01).sin()).to_le_bytes()).collect()
    }

    #[test]
    fn what_goes_in_comes_out() {
        let mut packer = Packer::default();
        let data = floats(8192);
        for method in methods() {
            for len in [1, 2, 7, 8, 9, 63, 127, 128, 129, 1000, 4096, 65_535, 65_536] {
                let plain = &data[..len];
                let mut out = vec![0; 65_536];
                let Some(n) = packer.pack(method, plain, &mut out) else {
                    assert!(len < 1000 || method.stride_shift != 3, "{method:?} makes {len} bytes no smaller");
                    continue;
                };
                assert!(n < len);
                let mut back = vec![0; len];
                packer.unpack(method, &out[..n], &mut back).unwrap();
                assert_eq!(back, plain, "{method:?} of {len}");
            }
        }
    }

    #[test]
    fn shuffling_puts_equal_bytes_together() {
        let mut out = [0; 11];
        shuffle(1, b"a1b2c3d4e5x", &mut out);
        assert_eq!(&out, b"abcde12345x");
        let mut back = [0; 11];
        unshuffle(1, &out, &mut back);
        assert_eq!(&back, b"a1b2c3d4e5x");
    }

    #[test]
    fn damage_is_an_error_or_other_bytes_and_never_a_panic() {
        let mut packer = Packer::default();
        let plain = floats(2000);
        let mut random = 88_172_645_463_325_252u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as usize
        };
        for method in methods() {
            let mut out = vec![0; plain.len()];
            let Some(n) = packer.pack(method, &plain, &mut out) else { continue };
            for _ in 0..2000 {
                let mut bent = out[..n].to_vec();
                for _ in 0..=next() % 4 {
                    let at = next() % bent.len();
                    bent[at] = next() as u8;
                }
                bent.truncate(next() % (n + 1));
                let mut back = vec![0; [plain.len(), 100, plain.len() - 1][next() % 3]];
                let _ = packer.unpack(method, &bent, &mut back);
            }
            let mut back = vec![0; plain.len() + 1];
            assert!(packer.unpack(method, &out[..n], &mut back).is_err(), "{method:?}: too few bytes");
        }
    }

    #[test]
    fn a_unit_that_did_not_become_smaller_is_as_it_was() {
        let packed = Packed::new(Codec::Lz4, 0, 9, 600, &[600]).unwrap();
        let mut plain = [0; 600];
        Packer::default().unpack_unit(&packed, 0, &[7; 1024], &mut plain).unwrap();
        assert_eq!(plain, [7; 600]);
        assert!(Packer::default().unpack_unit(&packed, 0, &[7; 599], &mut plain).is_err());
    }
}
