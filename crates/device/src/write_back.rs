//! Bringing what was stored to persistent memory from the processor's caches to it.
//!
//! A store ends in a cache; power loss takes it from there. What has reached the memory controller survives. `clwb`
//! writes a line back and keeps it, `clflushopt` drops it, `clflush` drops it and waits; a fence ends the waiting for
//! the first two. The processor says at run time which of them it has. Where it is none that is known here, no device
//! is taken for persistent memory, and `fdatasync` does it all.
#![allow(unsafe_code, reason = "instructions on cache lines")]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::map::Mapping;

/// Bytes that are written back at once.
pub const LINE_BYTES: usize = 64;

/// How a line is written back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Means {
    WriteBack,
    FlushUnordered,
    Flush,
}

/// Bytes that this process has brought to persistent memory.
static WRITTEN_BACK: AtomicU64 = AtomicU64::new(0);

static MEANS: LazyLock<Option<Means>> = LazyLock::new(machine::best);

/// True if this processor can.
pub fn is_available() -> bool {
    MEANS.is_some()
}

/// The instruction in use, for people.
pub fn word() -> &'static str {
    match *MEANS {
        Some(Means::WriteBack) => "clwb",
        Some(Means::FlushUnordered) => "clflushopt",
        Some(Means::Flush) => "clflush",
        None => "nothing",
    }
}

/// Brings `len` bytes at `offset` of a mapping of persistent memory to it. On return they survive power loss, and no
/// later store does before them. Nothing is done for ranges that are not inside.
pub fn persist(map: &Mapping, offset: u64, len: usize) {
    if let (Some(from), Some(means)) = (map.at(offset, len).filter(|_| len > 0), *MEANS) {
        let first = from as usize & !(LINE_BYTES - 1);
        // SAFETY: the lines that the range touches; it lies in the mapping, which begins and ends between lines, and
        // which lives while it is borrowed. Writing back changes no bytes. `MEANS` is what this processor has.
        unsafe { machine::write_back(first, from as usize + len, means) };
        WRITTEN_BACK.fetch_add(len as u64, Ordering::Relaxed);
    }
}

/// Bytes that this process has brought to persistent memory so far. No emulation loses what was not: this shows it.
pub fn written_back() -> u64 {
    WRITTEN_BACK.load(Ordering::Relaxed)
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_clflush, _mm_sfence};

    use super::{LINE_BYTES, Means};

    /// The best that this processor has; `clflush` is part of x86-64.
    #[allow(clippy::unnecessary_wraps, reason = "other architectures have none")]
    pub fn best() -> Option<Means> {
        const LEAF: u32 = 7;
        let features = if __cpuid(0).eax >= LEAF { __cpuid_count(LEAF, 0).ebx } else { 0 };
        Some(match features {
            bits if bits >> 24 & 1 == 1 => Means::WriteBack,
            bits if bits >> 23 & 1 == 1 => Means::FlushUnordered,
            _ => Means::Flush,
        })
    }

    /// # Safety
    /// All lines from `first`, where one begins, to `end` must be mapped, and the processor have `means`.
    pub unsafe fn write_back(first: usize, end: usize, means: Means) {
        for line in (first..end).step_by(LINE_BYTES) {
            // SAFETY: the caller's promise.
            unsafe {
                match means {
                    Means::WriteBack => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                    Means::FlushUnordered => asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
                    Means::Flush => _mm_clflush(line as *const u8),
                }
            }
        }
        // SAFETY: an instruction of every x86-64.
        unsafe { _mm_sfence() };
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use super::Means;

    pub fn best() -> Option<Means> {
        None
    }

    /// # Safety
    /// None: it is never reached.
    pub unsafe fn write_back(_first: usize, _end: usize, _means: Means) {}
}
