//! How long the kernel may cache its knowledge, by the consistency of the directory.

use std::time::Duration;

use cenote_posix::{Attr, Consistency};

use crate::kernel::abi::opened;

/// Nobody else changes anything: long, and the kernel is told when that ends.
const ALONE: Duration = Duration::from_hours(24);
/// Nothing changes any more: long, but bounded in case somebody makes the directory writable again.
const LAMINATED: Duration = Duration::from_hours(1);
/// Others see changes of a `commit` directory at `close`. Each `open` requests the attributes again.
const COMMIT: Duration = Duration::from_secs(1);

/// What the kernel may cache.
#[derive(Clone, Copy, Debug)]
pub struct Remember {
    /// Time for `strict` directories; zero means not at all.
    pub strict: Duration,
    /// True if the kernel holds back writes.
    pub is_write_back: bool,
    /// See [`crate::Options::maps_shared`].
    pub maps_shared: bool,
}

impl Remember {
    /// How long names and attributes are valid.
    pub fn time(self, attr: &Attr, is_alone: bool) -> Duration {
        match attr.consistency {
            _ if is_alone => ALONE,
            // With unwritten bytes the kernel knows best.
            Consistency::Strict if self.is_write_back => COMMIT.max(self.strict),
            Consistency::Strict => self.strict,
            Consistency::Commit => COMMIT.max(self.strict),
            Consistency::Laminated => LAMINATED,
        }
    }
    /// How long it is valid that a name does not exist, as long as nobody else creates it.
    pub fn nothing() -> Duration {
        ALONE
    }
    /// The open flags that decide about the kernel's cached pages of a file; `writes`: it is opened for writing.
    pub fn pages(self, attr: &Attr, writes: bool) -> u32 {
        match attr.consistency {
            Consistency::Laminated => opened::KEEP_CACHE,
            // Of files without cached pages the kernel refuses shared mappings, unless it was told at mounting to allow them.
            _ if writes && !self.maps_shared && !self.is_write_back => {
                opened::DIRECT_IO | opened::PARALLEL_DIRECT_WRITES
            }
            // The kernel would have to ask before each read whether its pages are still valid: then it may as well ask
            // for the bytes. Mappings have pages all the same.
            Consistency::Strict if self.strict.is_zero() && !self.is_write_back => {
                opened::DIRECT_IO | opened::PARALLEL_DIRECT_WRITES
            }
            // The kernel discards its pages when the file is opened.
            Consistency::Strict | Consistency::Commit => 0,
        }
    }
    /// Returns true if the kernel must discard its attributes when the file is opened.
    pub fn asks_at_open(self, attr: &Attr, is_alone: bool) -> bool {
        !is_alone
            && attr.consistency != Consistency::Laminated
            && !self.is_write_back
            && !self.time(attr, false).is_zero()
    }
}
