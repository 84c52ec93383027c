//! The kernel's side of a mount: requests from `/dev/fuse`, answers, and the threads that read. This module does not
//! know what a request means.
//!
//! `fuser` mounts, negotiates capabilities with the kernel, and sends notices. The requests are read here, for four
//! things that it (0.18) does not pass on: files without a name, interrupts, whether a lock is of `flock` or of
//! `fcntl`, and a non-blocking read (see [`workers`]).

pub mod abi;
mod device;
mod in_flight;
mod reply;
mod request;
pub mod workers;

pub use device::Device;
pub use reply::Fields;
pub use request::{Args, Request};
