//! The world as the engine and the client see it: devices that keep bytes, a directory for metadata, a clock, and
//! the table in shared memory through which readers and the engine agree without messages.
//!
//! This room must not know what an object, an extent map or a journal record is: it keeps bytes at the given
//! offsets, reports whether they survived, and never invents them. Every trait here has a conformance suite that
//! the real implementation, the one in memory and each wrapper pass.

pub mod ahead;
pub mod aligned;
mod clock;
pub mod conformance;
pub mod control;
mod directory;
pub mod faulty;
mod file;
pub mod header;
mod holder;
pub mod home;
mod io;
pub mod lane;
mod lent;
mod lock;
pub mod map;
pub mod measure;
pub mod mem;
mod meta_dir;
pub mod mirror;
pub mod object;
pub mod packing;
mod persistent_memory;
pub mod rados_dir;
mod seam;
mod segment;
mod segmented;
mod shared_memory;
pub mod store_dir;
pub mod sums;
mod system;
pub mod throttled;
pub mod write_back;

pub use clock::SystemClock;
pub use control::{ClientFile, ControlView, ReaderSlots, SharedControl};
pub use holder::{Holder, holder_of, holder_of_store};
pub use io::SegmentIo;
pub use lent::Lent;
pub use lock::{LOCK_FILE, StartLock, StoreLock};
pub use meta_dir::FsMetaDir;
pub use rados_dir::RadosMetaDir;
pub use seam::{Clock, Control, Device, Devices, LogFile, MetaDir, OpenedDevice};
pub use segment::{SegmentFile, SegmentMode};
pub use store_dir::StoreDir;
pub use system::SystemDevices;
