//! The kernel's side of a mount: its requests as they come from `/dev/fuse`, answers, and the threads that read there. What a request means is not
//! known here.
//!
//! `fuser` mounts, agrees with the kernel on what both can, and sends notices. The requests are read here, for four things that it (0.18) does not pass
//! on: files without a name, interrupts, whether a lock is of `flock` or of `fcntl`, and a read that does not wait (see [`crew`]).

pub mod abi;
pub mod crew;
mod device;
mod flight;
mod reply;
mod request;

pub use device::Device;
pub use reply::Fields;
pub use request::{Args, Request};
