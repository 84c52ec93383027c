//! CRC-32C of bytes.

use cenote_model::SUM_UNIT_SHIFT;
pub(crate) use cenote_model::combine_sums as combine;
use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// Bytes that one checksum covers.
pub(crate) const UNIT: u32 = 1 << SUM_UNIT_SHIFT;

/// Returns the CRC-32C of bytes.
pub(crate) fn sum_of(bytes: &[u8]) -> u32 {
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

/// Returns the CRC-32C of two consecutive stretches: for short ones quicker than combining theirs.
pub(crate) fn sum_of_both(first: &[u8], second: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(Crc32Iscsi);
    digest.update(first);
    digest.update(second);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_is_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for cut in [0, 1, 7, 4096, 65_536, 100_001, 199_999, 200_000] {
            let (a, b) = bytes.split_at(cut);
            assert_eq!(combine(sum_of(a), sum_of(b), b.len() as u32), sum_of(&bytes), "cut at {cut}");
            assert_eq!(sum_of_both(a, b), sum_of(&bytes), "cut at {cut}");
        }
        assert_eq!(sum_of(b"123456789"), 0xe306_9283);
    }
}
