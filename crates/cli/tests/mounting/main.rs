//! `cenote mount` and `cenote unmount`: files on a store through the kernel's own calls.
//!
//! Only root can mount without a helper, and not every container has /dev/fuse: elsewhere each test prints that and is
//! skipped.

mod beside;
mod bytes;
#[path = "../common/mod.rs"]
mod common;
mod lives;
mod locks;
mod mounted;
mod names;
mod passing;
mod together;
mod users;
