//! How long the kernel may remember what it was told, by the consistency of the directory.

use std::time::Duration;

use cenote_posix::{Attr, Consistency};

use crate::kernel::abi::opened;

/// Nobody else changes anything; long, and the kernel is told when that ends.
const ALONE: Duration = Duration::from_hours(24);
/// Nothing changes any more; long, and still an end to it if somebody makes the directory writable again.
const LAMINATED: Duration = Duration::from_hours(1);
/// Others see changes of a `commit` directory at `close`. Attributes are asked for anew at each `open`.
const COMMIT: Duration = Duration::from_secs(1);

/// What the kernel may remember.
#[derive(Clone, Copy, Debug)]
pub struct Remember {
    /// Of `strict` directories, in place of nothing.
    pub strict: Duration,
    /// The kernel holds back what is written.
    pub is_write_back: bool,
}

impl Remember {
    /// How long names and attributes are good for.
    pub fn time(self, attr: &Attr, is_alone: bool) -> Duration {
        match attr.consistency {
            _ if is_alone => ALONE,
            // With bytes of its own the kernel is who knows.
            Consistency::Strict if self.is_write_back => COMMIT.max(self.strict),
            Consistency::Strict => self.strict,
            Consistency::Commit => COMMIT.max(self.strict),
            Consistency::Laminated => LAMINATED,
        }
    }
    /// How long it is good for that a name leads to nothing, as long as nobody else makes one.
    pub fn nothing() -> Duration {
        ALONE
    }
    /// What becomes of pages that the kernel has, or would have, of a file that is opened.
    pub fn pages(self, attr: &Attr) -> u32 {
        match attr.consistency {
            Consistency::Laminated => opened::KEEP_CACHE,
            // The kernel would have to ask before each read whether its pages are still good: then it may as well ask for the bytes.
            // Mappings have pages all the same.
            Consistency::Strict if self.strict.is_zero() && !self.is_write_back => {
                opened::DIRECT_IO | opened::PARALLEL_DIRECT_WRITES
            }
            // Thrown away by the kernel when the file is opened.
            Consistency::Strict | Consistency::Commit => 0,
        }
    }
    /// True if attributes that the kernel has are to be thrown away when the file is opened.
    pub fn asks_at_open(self, attr: &Attr, is_alone: bool) -> bool {
        !is_alone
            && attr.consistency != Consistency::Laminated
            && !self.is_write_back
            && !self.time(attr, false).is_zero()
    }
}
