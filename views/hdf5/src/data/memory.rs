//! Elements in memory: the buffer of a caller of HDF5, or scratch.
//!
//! The only place in this module where addresses become slices.
#![allow(unsafe_code, reason = "HDF5 hands over buffers as addresses without lengths")]

/// Elements of one size, starting at an address.
#[derive(Clone, Copy)]
pub struct Memory {
    base: *mut u8,
    element_bytes: usize,
}

impl Memory {
    /// Elements of `element_bytes` from `base` on.
    ///
    /// # Safety
    /// Every range requested later must be valid memory (for writing, if requested mutably) until the value is
    /// dropped, and nothing else may use it meanwhile.
    pub unsafe fn new(base: *mut u8, element_bytes: usize) -> Self {
        Self { base, element_bytes }
    }

    /// Elements in `scratch`, which must outlive the value.
    pub fn scratch(scratch: &mut [u8], element_bytes: usize) -> Self {
        Self { base: scratch.as_mut_ptr(), element_bytes }
    }

    /// Size of an element.
    pub fn element_bytes(self) -> usize {
        self.element_bytes
    }

    /// The bytes of `count` elements from `at` on.
    pub fn get<'a>(self, at: u64, count: u64) -> &'a [u8] {
        // SAFETY: the caller of `new` promised that requested ranges are valid; HDF5 has checked the selection.
        unsafe {
            std::slice::from_raw_parts(
                self.base.wrapping_add(at as usize * self.element_bytes),
                count as usize * self.element_bytes,
            )
        }
    }

    /// The bytes of `count` elements from `at` on, for writing. No two ranges in use at one time may overlap.
    pub fn get_mut<'a>(self, at: u64, count: u64) -> &'a mut [u8] {
        // SAFETY: as above.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.base.wrapping_add(at as usize * self.element_bytes),
                count as usize * self.element_bytes,
            )
        }
    }
}
