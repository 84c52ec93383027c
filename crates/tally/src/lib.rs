//! What a program did with its files and its large memory objects, as sums in a file of fixed size: how the sums lie in
//! it ([`Tally`]), how they grow ([`FileSlot::access`], ...) and how they are read and put together afterwards ([`read`]).
//!
//! The file is mapped by the program that is watched, so that what was counted is there however the program ended. All of
//! it is 64-bit words that are changed atomically: any bytes are a valid tally in memory, and a reader checks what it is given.
//!
//! This room must not know how calls are seen (that is `trace`), what anybody concludes from them (`advise`), or that
//! there are stores and tiers. Counting neither allocates nor calls the system, so it may be done in signal handlers.

mod file;
mod layout;
mod memory;
pub mod read;
mod run;
mod stream;
mod text;

pub use file::{Access, FileSlot};
pub use layout::{
    FILES, HeaderField, MAGIC, OBJECTS, ObjectSlot, SITES, SIZES, Tally, VERSION, file_flag, memory_kind, size_class,
};
pub use memory::SiteSlot;
pub use read::{Damage, LiveObject, ProcessTally};
pub use run::{FileUse, MemoryUse, Run};
pub use stream::Stream;
