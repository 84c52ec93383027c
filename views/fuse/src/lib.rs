//! A store's trees as a mounted file system: translates the kernel's FUSE requests to calls of `cenote-posix`, and the
//! results to replies.
//!
//! This room translates numbers, attributes, flags, handles, and how long the kernel may cache what. It must not know
//! what a name, a right or a record is: every judgement about files is in `cenote-posix`. It knows no store, no
//! container and no command line; a mount is given its [`cenote_posix::FileSystem`], and [`Mount::serve`] returns when
//! it is over.

mod alone;
mod answer;
mod backing;
mod convert;
mod gone;
mod handles;
mod io;
mod kernel;
mod locks;
mod lookup_counts;
mod mount;
pub mod mounted;
mod open;
mod pages;
mod privileges;
mod remember;
mod requests;
mod serving;
mod unmount;

pub use mount::{Mount, Options, Stopper};
pub use unmount::{How, Pid, pid_of, unmount, wait_for_end};
