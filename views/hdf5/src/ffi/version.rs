//! The version of a libhdf5.

use std::fmt;

/// Version of a libhdf5; ordered from older to newer.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LibraryVersion {
    /// Major number: 1, or 2 since 2025.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Release number.
    pub release: u32,
}

impl LibraryVersion {
    /// The first release with these numbers.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor, release: 0 }
    }
}

impl fmt::Display for LibraryVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.release)
    }
}
