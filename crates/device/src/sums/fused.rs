//! Copying and summing in one loop, for x86-64 with SSE 4.2 and AVX2.
//!
//! A copy to memory that is not in the caches waits for memory most of the time; the checksum fits into those waits if
//! both are in one loop. Three stretches (lanes) of the source go side by side: the CRC instruction takes three cycles
//! but starts one each cycle, so three chains fill it, and six streams keep more of memory busy than two. Measured on
//! the machine of `docs/performance.md` this is faster than `memcpy` alone at 1 MiB, where summing and copying pieces
//! one after the other reaches 80 to 90% of it. Non-temporal stores were tried and were slower.
#![allow(unsafe_code, reason = "vector instructions on raw pointers")]

use std::arch::x86_64::{__m256i, _mm_crc32_u8, _mm_crc32_u64, _mm256_loadu_si256, _mm256_storeu_si256};
use std::sync::LazyLock;

/// The polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;
const LINE: usize = 64;
/// Lane lengths: three lanes and a rest of 256 bytes make 64 KiB, three and 64 make 16 KiB and 4 KiB. Multiples of a
/// line, and none of them of 4096, which would make loads wait for unrelated stores.
const LANES: [usize; 3] = [21_760, 5_440, 1_344];

/// Maps the CRC state before so many zero bytes to the one after them: linear, so one table for each byte of the state.
struct Shift([[u32; 256]; 4]);

static SHIFTS: LazyLock<[Shift; 3]> = LazyLock::new(|| LANES.map(Shift::over));

/// A linear map of 32 bits, by what it makes of each bit.
type Matrix = [u32; 32];

fn apply(matrix: &Matrix, value: u32) -> u32 {
    (0..32).filter(|bit| value >> bit & 1 == 1).fold(0, |sum, bit| sum ^ matrix[bit])
}

impl Shift {
    fn over(bytes: usize) -> Self {
        let mut square: Matrix = std::array::from_fn(|bit| {
            (0..8).fold(1_u32 << bit, |state, _| (state >> 1) ^ if state & 1 == 1 { POLYNOMIAL } else { 0 })
        });
        let mut all: Matrix = std::array::from_fn(|bit| 1 << bit);
        let mut rest = bytes;
        while rest > 0 {
            if rest & 1 == 1 {
                all = all.map(|column| apply(&square, column));
            }
            square = square.map(|column| apply(&square, column));
            rest >>= 1;
        }
        Self(std::array::from_fn(|byte| std::array::from_fn(|value| apply(&all, (value as u32) << (8 * byte)))))
    }
    #[inline]
    fn of(&self, state: u32) -> u32 {
        let [a, b, c, d] = state.to_le_bytes();
        let table = &self.0;
        table[0][a as usize] ^ table[1][b as usize] ^ table[2][c as usize] ^ table[3][d as usize]
    }
}

/// True if this processor can.
#[inline]
pub(super) fn is_available() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("sse4.2")
}

/// Copies `src` to `dst` and gives the CRC-32C of `src`.
///
/// # Safety
/// [`is_available`] must be true, and `dst` valid for writes of `src.len()` bytes without overlapping `src`.
#[target_feature(enable = "avx2,sse4.2")]
pub(super) unsafe fn copy_and_sum(dst: *mut u8, src: &[u8]) -> u32 {
    let (from, len) = (src.as_ptr(), src.len());
    let mut state = u32::MAX;
    let mut at = 0;
    let shifts = &*SHIFTS;
    for (lane, shift) in LANES.into_iter().zip(shifts) {
        while at + 3 * lane <= len {
            // SAFETY: three lanes from `at` are within the source, and so within the target.
            let [a, b, c] = unsafe { three_lanes(dst.add(at), from.add(at), lane, state) };
            state = shift.of(shift.of(a) ^ b) ^ c;
            at += 3 * lane;
        }
    }
    while at + LINE <= len {
        // SAFETY: a line from `at` is within both.
        unsafe {
            copy_line(dst.add(at), from.add(at));
            state = sum_line(from.add(at), u64::from(state)) as u32;
        }
        at += LINE;
    }
    while at < len {
        // SAFETY: `at` is within both.
        unsafe { dst.add(at).write(src[at]) };
        state = _mm_crc32_u8(state, src[at]);
        at += 1;
    }
    !state
}

/// # Safety
/// Both pointers must be valid for three lanes of `lane` bytes, a multiple of [`LINE`].
#[inline]
#[target_feature(enable = "avx2,sse4.2")]
unsafe fn three_lanes(dst: *mut u8, src: *const u8, lane: usize, state: u32) -> [u32; 3] {
    let (mut a, mut b, mut c) = (u64::from(state), 0, 0);
    let mut i = 0;
    while i < lane {
        // SAFETY: i + LINE <= lane, so all three lines are within the lanes.
        unsafe {
            let (from, to) = (src.add(i), dst.add(i));
            copy_line(to, from);
            copy_line(to.add(lane), from.add(lane));
            copy_line(to.add(2 * lane), from.add(2 * lane));
            for word in (0..LINE).step_by(8) {
                a = _mm_crc32_u64(a, from.add(word).cast::<u64>().read_unaligned());
                b = _mm_crc32_u64(b, from.add(lane + word).cast::<u64>().read_unaligned());
                c = _mm_crc32_u64(c, from.add(2 * lane + word).cast::<u64>().read_unaligned());
            }
        }
        i += LINE;
    }
    [a as u32, b as u32, c as u32]
}

/// # Safety
/// Both pointers must be valid for a line.
#[inline]
#[target_feature(enable = "avx2")]
#[allow(clippy::cast_ptr_alignment, reason = "loadu and storeu take any address")]
unsafe fn copy_line(dst: *mut u8, src: *const u8) {
    // SAFETY: two halves of a line; unaligned accesses are allowed.
    unsafe {
        let low = _mm256_loadu_si256(src.cast::<__m256i>());
        let high = _mm256_loadu_si256(src.add(32).cast::<__m256i>());
        _mm256_storeu_si256(dst.cast::<__m256i>(), low);
        _mm256_storeu_si256(dst.add(32).cast::<__m256i>(), high);
    }
}

/// # Safety
/// The pointer must be valid for a line.
#[inline]
#[target_feature(enable = "sse4.2")]
unsafe fn sum_line(src: *const u8, state: u64) -> u64 {
    // SAFETY: eight words of a line.
    (0..LINE)
        .step_by(8)
        .fold(state, |state, word| unsafe { _mm_crc32_u64(state, src.add(word).cast::<u64>().read_unaligned()) })
}

/// Copies large stretches with three streams side by side; see the module's words on why.
///
/// # Safety
/// [`is_available`] must be true, and the ranges valid for `len` bytes and not overlapping.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn copy_in_lanes(dst: *mut u8, src: *const u8, len: usize) {
    const LANE: usize = LANES[0];
    let mut at = 0;
    while at + 3 * LANE <= len {
        let mut i = 0;
        while i < LANE {
            // SAFETY: i + LINE <= LANE and three lanes from `at` are within `len`.
            unsafe {
                copy_line(dst.add(at + i), src.add(at + i));
                copy_line(dst.add(at + LANE + i), src.add(at + LANE + i));
                copy_line(dst.add(at + 2 * LANE + i), src.add(at + 2 * LANE + i));
            }
            i += LINE;
        }
        at += 3 * LANE;
    }
    // SAFETY: the rest of both ranges.
    unsafe { std::ptr::copy_nonoverlapping(src.add(at), dst.add(at), len - at) };
}
