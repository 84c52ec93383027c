//! Directories and files on a store, with POSIX semantics.
//!
//! One container holds one tree of names; `docs/files.md` has the records. This crate is the whole logic of names, rights, times, links and
//! open files: mount, preload, S3 and Python call it. It must not know FUSE, file descriptors or HTTP, and it makes no system call about
//! files; what processes of a machine agree on without the store (locks) is behind `cenote_host::meeting::MeetingFile`.

mod attr;
mod cached_paths;
mod caller;
mod check;
mod clock;
mod dir;
mod error;
mod file;
mod gate;
mod images;
mod inner;
mod keeper;
mod layouts;
mod names;
mod numbering;
mod pipe;
mod records;
mod resolve;
mod rights;
mod space;
mod stat;
mod sync;
mod system;
mod top;
mod tree;
mod unnamed;
mod walk;
mod xattr;

pub use attr::{Attr, Consistency, Ino, Kind, SetAttr, SetTime, Time};
pub use caller::Caller;
pub use cenote_host::meeting::LockKind;
pub use clock::{Clock, SystemClock};
pub use dir::DirCursor;
pub(crate) use error::fail;
pub use error::{FsError, FsResult};
pub use file::{Allocate, File, HeldLock, LockOwner, LockRange, LockWait, OpenFlags};
pub use gate::Forking;
pub use images::{IMAGES_CONTAINER, IMAGES_LABELS, ImageFile};
pub use rights::Keeps;
pub use system::{DirEntry, FileSystem, Follow, Make, Options, Over, Rename, SetXattr, Space};
pub use unnamed::New;
pub use walk::{Bounds, Spot, Start, Walked, within};
