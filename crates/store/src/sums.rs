//! CRC-32C arithmetic: of bytes, and of two stretches that become one.
//!
//! `crc-fast` combines checksums by squaring matrices (some 10 µs); extents merge on the hot path, so this uses one
//! multiplication modulo the polynomial per set bit of the length (some 50 ns).

use cenote_model::SUM_UNIT_SHIFT;
use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// Bytes that one checksum covers.
pub(crate) const UNIT: u32 = 1 << SUM_UNIT_SHIFT;
const POLYNOMIAL: u32 = 0x82f6_3b78;

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

/// Returns the CRC-32C of two consecutive stretches, from theirs and the length of the second.
pub(crate) fn combine(first: u32, second: u32, second_len: u32) -> u32 {
    let mut product = 1 << 31; // x^0 in reflected order
    let mut rest = second_len;
    let mut power = 3; // 2^3 bits to a byte
    while rest != 0 {
        if rest & 1 != 0 {
            product = multiply(X_POWERS[power], product);
        }
        rest >>= 1;
        power += 1;
    }
    multiply(product, first) ^ second
}

/// x^(2^n) modulo the polynomial.
const X_POWERS: [u32; 40] = {
    let mut table = [0; 40];
    table[0] = 1 << 30;
    let mut n = 1;
    while n < 40 {
        table[n] = multiply(table[n - 1], table[n - 1]);
        n += 1;
    }
    table
};

/// Product of two polynomials modulo the CRC's, all in reflected bit order.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut mask = 1 << 31;
    let mut product = 0;
    loop {
        if a & mask != 0 {
            product ^= b;
            if a & (mask - 1) == 0 {
                return product;
            }
        }
        mask >>= 1;
        if mask == 0 {
            return product;
        }
        b = if b & 1 != 0 { (b >> 1) ^ POLYNOMIAL } else { b >> 1 };
    }
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
