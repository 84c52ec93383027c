//! A program's use of its files and its large memory objects, as sums in a file of fixed size: the layout ([`Tally`]),
//! counting ([`FileSlot::access`], ...), and reading and combining tallies afterwards ([`read`]).
//!
//! The watched program maps the file, so that the counts survive however the program ends. The file consists of 64-bit
//! words that are changed atomically: any bytes are a valid tally in memory, and a reader checks its input.
//!
//! This room must not know how calls are intercepted (that is `trace`), what anybody concludes from the sums
//! (`advise`), or that there are stores and tiers. Counting neither allocates nor makes system calls, so it is safe in
//! signal handlers.

mod descriptor;
mod file;
mod layout;
mod memory;
pub mod read;
mod run;
mod text;

pub use descriptor::Descriptor;
pub use file::{Access, FileSlot};
pub use layout::{
    FILES, HeaderField, MAGIC, OBJECTS, ObjectSlot, SITES, SIZES, Tally, VERSION, file_flag, memory_kind, size_class,
};
pub use memory::SiteSlot;
pub use read::{Damage, LiveObject, ProcessTally};
pub use run::{FileUse, MemoryUse, Run};
