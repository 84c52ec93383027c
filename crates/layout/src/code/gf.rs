//! GF(2^8): single elements for matrices, slices for bytes. Only here does this room see the library that multiplies
//! slices: another one changes no byte, since the field is fixed.

/// `x^8 + x^4 + x^3 + x^2 + 1` without its first term; 2 generates the field.
const POLYNOMIAL: u16 = 0x11d;

/// Powers of 2, twice, and the logarithms.
const TABLES: ([u8; 510], [u8; 256]) = {
    let (mut powers, mut logarithms) = ([0; 510], [0; 256]);
    let (mut value, mut exponent) = (1_u16, 0);
    while exponent < 255 {
        powers[exponent] = value as u8;
        powers[exponent + 255] = value as u8;
        logarithms[value as usize] = exponent as u8;
        value <<= 1;
        if value > 255 {
            value ^= POLYNOMIAL;
        }
        exponent += 1;
    }
    (powers, logarithms)
};

fn logarithm(value: u8) -> usize {
    usize::from(TABLES.1[usize::from(value)])
}

/// The product.
pub fn mul(one: u8, other: u8) -> u8 {
    if one == 0 || other == 0 { 0 } else { TABLES.0[logarithm(one) + logarithm(other)] }
}

/// The quotient. The divisor must not be 0.
pub fn div(value: u8, by: u8) -> u8 {
    debug_assert_ne!(by, 0);
    if value == 0 { 0 } else { TABLES.0[logarithm(value) + 255 - logarithm(by)] }
}

/// `output = factor * input`, of the same length.
pub fn set_times(factor: u8, input: &[u8], output: &mut [u8]) {
    fec_rs::galois::mul_slice(factor, input, output);
}

/// `output += factor * input`, of the same length.
pub fn add_times(factor: u8, input: &[u8], output: &mut [u8]) {
    fec_rs::galois::mul_slice_xor(factor, input, output);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        for value in 1..=255 {
            assert_eq!((mul(value, div(1, value)), mul(value, 1), mul(value, 0), div(0, value)), (1, value, 0, 0));
        }
        // x^7 times x is the polynomial's rest.
        assert_eq!(mul(0x80, 2), 0x1d);
    }

    #[test]
    fn slices_are_multiplied_as_elements_are() {
        // Whichever instructions this machine has: lengths around their widths, and any alignment.
        let input: Vec<u8> = (0..200).map(|at: u32| (at * 151 + 7) as u8).collect();
        for factor in 0..=255 {
            for len in (0..70).chain([96, 127, 128, 129]) {
                let input = &input[usize::from(factor) % 33..][..len];
                let before: Vec<u8> = input.iter().map(|byte| byte.rotate_left(3) ^ 0x5a).collect();
                let (mut set, mut added) = (before.clone(), before.clone());
                set_times(factor, input, &mut set);
                add_times(factor, input, &mut added);
                for at in 0..len {
                    let product = mul(factor, input[at]);
                    assert_eq!((set[at], added[at]), (product, before[at] ^ product), "{factor} {len} {at}");
                }
            }
        }
    }
}
