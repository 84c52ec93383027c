//! The checksum of two stretches that become one.
//!
//! `crc-fast` combines checksums by squaring matrices (some 10 µs); extents merge, and frames are made, on hot paths, so this
//! uses one multiplication modulo the polynomial per set bit of the length (some 50 ns).

/// The polynomial of CRC-32C (Castagnoli), in reflected bit order.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Returns the CRC-32C of two consecutive stretches, from theirs and the length of the second.
pub fn combine_sums(first: u32, second: u32, second_len: u32) -> u32 {
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
