//! Write-back of stores to persistent memory from the processor's caches.
//!
//! A store ends in a cache, whose content power loss destroys; what has reached the memory controller survives.
//! `clwb` writes a line back and keeps it, `clflushopt` evicts it, `clflush` evicts it and waits; the first two need
//! a fence to wait. The processor reports at run time which of them it has. If it has none known here, no device
//! counts as persistent memory, and `fdatasync` does all the work.
#![allow(unsafe_code, reason = "instructions on cache lines")]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::map::Mapping;

/// Bytes of a cache line, the unit of write-back.
pub const LINE_BYTES: usize = 64;

/// The instruction that writes a line back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Means {
    WriteBack,
    FlushUnordered,
    Flush,
}

/// Bytes that this process has written back.
static WRITTEN_BACK: AtomicU64 = AtomicU64::new(0);

static MEANS: LazyLock<Option<Means>> = LazyLock::new(machine::best);

/// Returns true if this processor can write lines back.
pub fn is_available() -> bool {
    MEANS.is_some()
}

/// The name of the instruction in use.
pub fn word() -> &'static str {
    match *MEANS {
        Some(Means::WriteBack) => "clwb",
        Some(Means::FlushUnordered) => "clflushopt",
        Some(Means::Flush) => "clflush",
        None => "nothing",
    }
}

/// Writes back `len` bytes at `offset` of a mapping of persistent memory. On return they survive power loss, and no
/// later store becomes durable before them. Does nothing for ranges that are not inside.
pub fn persist(map: &Mapping, offset: u64, len: usize) {
    if let (Some(from), Some(means)) = (map.at(offset, len).filter(|_| len > 0), *MEANS) {
        let first = from as usize & !(LINE_BYTES - 1);
        // SAFETY: the lines that the range touches; it lies in the mapping, which begins and ends at line boundaries
        // and lives while borrowed. Writing back changes no bytes. This processor has `MEANS`.
        unsafe { machine::write_back(first, from as usize + len, means) };
        WRITTEN_BACK.fetch_add(len as u64, Ordering::Relaxed);
    }
}

/// Bytes that this process has written back so far. No emulation loses the other bytes: this count shows the work.
pub fn written_back() -> u64 {
    WRITTEN_BACK.load(Ordering::Relaxed)
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_clflush, _mm_sfence};

    use super::{LINE_BYTES, Means};

    /// The best instruction that this processor has; `clflush` is part of x86-64.
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
    /// All lines from `first`, a line boundary, to `end` must be mapped, and the processor must have `means`.
    pub unsafe fn write_back(first: usize, end: usize, means: Means) {
        for line in (first..end).step_by(LINE_BYTES) {
            // SAFETY: the caller guarantees it.
            unsafe {
                match means {
                    Means::WriteBack => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                    Means::FlushUnordered => asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
                    Means::Flush => _mm_clflush(line as *const u8),
                }
            }
        }
        // SAFETY: every x86-64 has this instruction.
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
