//! MD5, which ETags are made of. Each of its steps needs the one before, so one body's sum cannot be spread over processors, and bounds how fast it can be
//! put. A step is four instructions deep where the processor has AVX-512: one for any function of three words, one for a rotation. Without it some steps
//! are five or six deep (the `md-5` crate; 570 against 790 MB/s on the machine of `docs/performance.md`).

/// Bytes that are taken at a time.
const BLOCK_BYTES: usize = 64;
/// The state before the first byte.
const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// The sum of bytes as they come.
pub struct Md5 {
    state: [u32; 4],
    /// Less than a block.
    rest: Vec<u8>,
    bytes: u64,
}

impl Md5 {
    /// Of nothing yet.
    pub fn new() -> Self {
        Self { state: START, rest: Vec::with_capacity(BLOCK_BYTES), bytes: 0 }
    }
    /// More bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.bytes = self.bytes.wrapping_add(bytes.len() as u64);
        if !self.rest.is_empty() {
            let (first, after) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.rest.len()));
            self.rest.extend_from_slice(first);
            bytes = after;
            if self.rest.len() < BLOCK_BYTES {
                return;
            }
            compress(&mut self.state, self.rest.as_chunks().0);
            self.rest.clear();
        }
        let (blocks, rest) = bytes.as_chunks();
        compress(&mut self.state, blocks);
        self.rest.extend_from_slice(rest);
    }
    /// All bytes were there.
    pub fn finish(mut self) -> [u8; 16] {
        let bits = self.bytes.wrapping_mul(8);
        self.rest.push(0x80);
        let used = (self.rest.len() + size_of_val(&bits)).next_multiple_of(BLOCK_BYTES);
        self.rest.resize(used - size_of_val(&bits), 0);
        self.rest.extend_from_slice(&bits.to_le_bytes());
        compress(&mut self.state, self.rest.as_chunks().0);
        let mut sum = [0; 16];
        for (bytes, word) in sum.as_chunks_mut().0.iter_mut().zip(self.state) {
            *bytes = word.to_le_bytes();
        }
        sum
    }
}

fn compress(state: &mut [u32; 4], blocks: &[[u8; BLOCK_BYTES]]) {
    #[cfg(target_arch = "x86_64")]
    if wide::is_available() {
        #[allow(unsafe_code, reason = "instructions that not every processor has")]
        // SAFETY: this one has them.
        return unsafe { wide::compress(state, blocks) };
    }
    md5::block_api::compress(state, blocks);
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_cvtsi32_si128, _mm_cvtsi128_si32, _mm_rol_epi32, _mm_ternarylogic_epi32,
    };

    use super::BLOCK_BYTES;

    /// What is added in each step: 2^32 times the sine of its number.
    const ADDED: [u32; 64] = [
        0xd76a_a478,
        0xe8c7_b756,
        0x2420_70db,
        0xc1bd_ceee,
        0xf57c_0faf,
        0x4787_c62a,
        0xa830_4613,
        0xfd46_9501,
        0x6980_98d8,
        0x8b44_f7af,
        0xffff_5bb1,
        0x895c_d7be,
        0x6b90_1122,
        0xfd98_7193,
        0xa679_438e,
        0x49b4_0821,
        0xf61e_2562,
        0xc040_b340,
        0x265e_5a51,
        0xe9b6_c7aa,
        0xd62f_105d,
        0x0244_1453,
        0xd8a1_e681,
        0xe7d3_fbc8,
        0x21e1_cde6,
        0xc337_07d6,
        0xf4d5_0d87,
        0x455a_14ed,
        0xa9e3_e905,
        0xfcef_a3f8,
        0x676f_02d9,
        0x8d2a_4c8a,
        0xfffa_3942,
        0x8771_f681,
        0x6d9d_6122,
        0xfde5_380c,
        0xa4be_ea44,
        0x4bde_cfa9,
        0xf6bb_4b60,
        0xbebf_bc70,
        0x289b_7ec6,
        0xeaa1_27fa,
        0xd4ef_3085,
        0x0488_1d05,
        0xd9d4_d039,
        0xe6db_99e5,
        0x1fa2_7cf8,
        0xc4ac_5665,
        0xf429_2244,
        0x432a_ff97,
        0xab94_23a7,
        0xfc93_a039,
        0x655b_59c3,
        0x8f0c_cc92,
        0xffef_f47d,
        0x8584_5dd1,
        0x6fa8_7e4f,
        0xfe2c_e6e0,
        0xa301_4314,
        0x4e08_11a1,
        0xf753_7e82,
        0xbd3a_f235,
        0x2ad7_d2bb,
        0xeb86_d391,
    ];
    /// The functions of the four rounds, as the processor has them: bit `4x + 2y + z` is what they make of bits `x`, `y` and `z`.
    const CHOOSE: i32 = 0xca;
    const CHOOSE_BY_LAST: i32 = 0xe4;
    const PARITY: i32 = 0x96;
    const BEND: i32 = 0x39;

    pub fn is_available() -> bool {
        std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512vl")
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    pub fn compress(state: &mut [u32; 4], blocks: &[[u8; BLOCK_BYTES]]) {
        let mut now = state.map(|word| _mm_cvtsi32_si128(word as i32));
        for block in blocks {
            let mut words = [0; 16];
            for (word, bytes) in words.iter_mut().zip(block.as_chunks().0) {
                *word = u32::from_le_bytes(*bytes);
            }
            let before = now;
            now = round::<CHOOSE, 7, 12, 17, 22>(now, &words, 0, |step| step);
            now = round::<CHOOSE_BY_LAST, 5, 9, 14, 20>(now, &words, 16, |step| 5 * step + 1);
            now = round::<PARITY, 4, 11, 16, 23>(now, &words, 32, |step| 3 * step + 5);
            now = round::<BEND, 6, 10, 15, 21>(now, &words, 48, |step| 7 * step);
            for (word, before) in now.iter_mut().zip(before) {
                *word = _mm_add_epi32(*word, before);
            }
        }
        *state = now.map(|word| _mm_cvtsi128_si32(word) as u32);
    }

    /// Sixteen steps. `of` says which word each takes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn round<const LOGIC: i32, const A: i32, const B: i32, const C: i32, const D: i32>(
        [mut a, mut b, mut c, mut d]: [__m128i; 4],
        words: &[u32; 16],
        first: usize,
        of: impl Fn(usize) -> usize,
    ) -> [__m128i; 4] {
        let added = |step: usize| words[of(step) % 16].wrapping_add(ADDED[first + step]);
        for four in (0..16).step_by(4) {
            a = step::<LOGIC, A>([a, b, c, d], added(four));
            d = step::<LOGIC, B>([d, a, b, c], added(four + 1));
            c = step::<LOGIC, C>([c, d, a, b], added(four + 2));
            b = step::<LOGIC, D>([b, c, d, a], added(four + 3));
        }
        [a, b, c, d]
    }

    /// One step: what `a` becomes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn step<const LOGIC: i32, const TURN: i32>([a, b, c, d]: [__m128i; 4], added: u32) -> __m128i {
        let sum = _mm_add_epi32(a, _mm_cvtsi32_si128(added as i32));
        let sum = _mm_add_epi32(sum, _mm_ternarylogic_epi32::<LOGIC>(b, c, d));
        _mm_add_epi32(_mm_rol_epi32::<TURN>(sum), b)
    }
}

#[cfg(test)]
mod tests {
    use md5::Digest as _;

    use super::*;
    use crate::meta::hex;

    fn sum_of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> [u8; 16] {
        let mut sum = Md5::new();
        pieces.into_iter().for_each(|piece| sum.update(piece));
        sum.finish()
    }

    #[test]
    fn sums_are_those_of_the_standard() {
        for (text, sum) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
        ] {
            assert_eq!(hex(&sum_of([text.as_bytes()])), sum);
        }
    }

    #[test]
    fn sums_are_those_of_another_program_however_the_bytes_come() {
        let bytes: Vec<u8> = (0..1000_u32).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
        for len in (0..300).chain([511, 512, 513, 1000]) {
            let wanted: [u8; 16] = md5::Md5::digest(&bytes[..len]).into();
            for piece in [1, 7, 55, 56, 63, 64, 65, 128, 1000] {
                assert_eq!(sum_of(bytes[..len].chunks(piece)), wanted, "{len} bytes by {piece}");
            }
        }
    }
}
