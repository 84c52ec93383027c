//! CRC-32C per checksum unit, alone and in one pass with the copy.
#![allow(unsafe_code, reason = "copies to mapped memory go through raw pointers")]

#[cfg(target_arch = "x86_64")]
mod fused;

use cenote_model::SUM_UNIT_SHIFT;
use crc_fast::{CrcAlgorithm::Crc32Iscsi, Digest};

/// Bytes covered by one checksum.
pub const SUM_UNIT_BYTES: usize = 1 << SUM_UNIT_SHIFT;
/// Bytes summed and copied at a time in the fallback: source and target of a piece fit the first level cache together.
const PIECE_BYTES: usize = 8 << 10;

/// The CRC-32C of bytes.
#[inline]
pub fn sum_of(bytes: &[u8]) -> u32 {
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

/// The checksum of each unit, in order; the last may be short. Empty for no bytes.
pub fn sums_of(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(SUM_UNIT_BYTES).map(sum_of).collect()
}

/// The first unit whose checksum does not match, or `None` if all match. `bytes` and `sums` begin at the same unit. A
/// wrong number of checksums is a mismatch.
pub fn verify(bytes: &[u8], sums: &[u32]) -> Option<usize> {
    let units = bytes.len().div_ceil(SUM_UNIT_BYTES);
    if units != sums.len() {
        return Some(units.min(sums.len()));
    }
    bytes.chunks(SUM_UNIT_BYTES).zip(sums).position(|(unit, sum)| sum_of(unit) != *sum)
}

/// Copies `src` to `dst` (of the same length) and appends the checksum of each unit of `src` to `sums`, in one pass.
///
/// # Panics
/// If the lengths differ.
pub fn copy_and_sum(dst: &mut [u8], src: &[u8], sums: &mut Vec<u32>) {
    assert_eq!(dst.len(), src.len(), "lengths of target and source");
    // SAFETY: lengths are equal, and a `&mut` overlaps nothing.
    unsafe { copy_and_sum_raw(dst.as_mut_ptr(), src, sums) }
}

/// [`copy_and_sum`] to memory that others may read meanwhile.
///
/// The checksum and the copy read `src` separately: if `src` changes meanwhile (it should not), the checksum may not
/// match the copy, and later reads report that.
///
/// # Safety
/// `dst` must be valid for writes of `src.len()` bytes and must not overlap `src`.
pub unsafe fn copy_and_sum_raw(dst: *mut u8, src: &[u8], sums: &mut Vec<u32>) {
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if fused::is_available() {
        for unit in src.chunks(SUM_UNIT_BYTES) {
            // SAFETY: available, and the units tile `src`, whose length `dst` is valid for.
            sums.push(unsafe { fused::copy_and_sum(dst.add(done), unit) });
            done += unit.len();
        }
        return;
    }
    for unit in src.chunks(SUM_UNIT_BYTES) {
        let mut digest = Digest::new(Crc32Iscsi);
        for piece in unit.chunks(PIECE_BYTES) {
            digest.update(piece);
            // SAFETY: the pieces tile `src`, whose length `dst` is valid for; the caller guarantees no overlap.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), dst.add(done), piece.len()) };
            done += piece.len();
        }
        sums.push(digest.finalize() as u32);
    }
}

/// Like `copy_nonoverlapping`, but faster for uncached stretches.
///
/// # Safety
/// Both must be valid for `len` bytes and must not overlap.
#[inline]
pub unsafe fn copy_raw(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= fused::COPY_MIN && fused::is_available() {
        // SAFETY: available; the caller guarantees the rest.
        unsafe { fused::copy_in_lanes(dst, src, len) };
        return;
    }
    // SAFETY: the caller guarantees it.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        let mut rng = crate::mem::SplitMix::new(len as u64);
        (0..len).map(|_| rng.next_u64() as u8).collect()
    }

    #[test]
    fn the_check_value_of_the_standard() {
        assert_eq!(sum_of(b"123456789"), 0xe306_9283);
        assert_eq!(sum_of(b""), 0);
    }

    #[test]
    fn copying_sums_like_summing() {
        let small = [0, 1, 7, 63, 64, 200, 4031, 4096, 8191, 16_384, 32_767, 32_768, 36_864, 47_008];
        let large = [65_279, 65_535, 65_536, 65_537, 200_000, 261_695, 261_696, 294_463, 294_464, 1 << 20];
        for len in small.into_iter().chain(large) {
            let src = bytes(len);
            let (mut dst, mut sums) = (vec![0; len], Vec::new());
            copy_and_sum(&mut dst, &src, &mut sums);
            assert_eq!(dst, src);
            assert_eq!(sums, sums_of(&src), "{len} bytes");
            assert_eq!(verify(&dst, &sums), None);
            dst.fill(1);
            // SAFETY: two buffers of that length.
            unsafe { copy_raw(dst.as_mut_ptr(), src.as_ptr(), len) };
            assert_eq!(dst, src);
        }
    }

    #[test]
    fn copying_sums_at_every_alignment() {
        let src = bytes(70_000);
        for skew in 0..70 {
            let part = &src[skew..skew + 66_000 - skew * 13];
            let (mut dst, mut sums) = (vec![0; part.len() + skew], Vec::new());
            copy_and_sum(&mut dst[skew / 2..skew / 2 + part.len()], part, &mut sums);
            assert_eq!(&dst[skew / 2..skew / 2 + part.len()], part);
            assert_eq!(sums, sums_of(part), "skew {skew}");
        }
    }

    #[test]
    fn verify_names_the_unit() {
        let mut data = bytes(200_000);
        let sums = sums_of(&data);
        data[70_000] ^= 1;
        assert_eq!(verify(&data, &sums), Some(1));
        assert_eq!(verify(&data[..65_536], &sums), Some(1));
    }

    #[test]
    fn combining_equals_summing_the_whole() {
        let data = bytes(10_000);
        let (first, second) = data.split_at(3_333);
        assert_eq!(cenote_model::combine_sums(sum_of(first), sum_of(second), second.len() as u32), sum_of(&data));
    }
}
