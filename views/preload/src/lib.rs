//! `libcenote_posix.so`: preloaded into an unmodified program, it shows the trees of a store below a path, without a
//! mount.
//!
//! It stands between the C library and the kernel: the places where glibc makes system calls jump here (`sites`, `entry`), so that
//! streams, directory readers, `nftw`, `posix_spawn`, `aio` and all else of the C library work by construction. A call whose descriptor or
//! path is ours becomes one of
//! `cenote-posix` (`calls`); every other goes on as it was.
//!
//! Rules inside somebody else's process:
//! - everything outside of the store stays unchanged: results, registers, numbers of descriptors, signals;
//! - this library's own calls go straight to the kernel, its descriptors lie where the program does not come, its threads get no signals;
//! - its memory is its own (a call in a signal handler may have interrupted `malloc`).
//!
//! This room must not know what names, rights and records are: it has no file-system logic.
#![allow(unsafe_code, reason = "it stands between a program and its C library")]

mod calls;
mod context;
mod description;
mod dispatch;
mod entry;
mod fork;
mod handoff;
mod inside;
mod kernel;
mod limit;
mod memory;
mod pass;
mod paths;
mod probe;
mod shared;
mod signals;
mod sites;
mod start;
mod table;
mod threads;
mod users;

#[global_allocator]
static MEMORY: memory::Memory = memory::Memory;
