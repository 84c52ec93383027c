//! `libcenote_trace.so`: preloaded into an unmodified program, it intercepts the C library's functions for files and
//! memory, calls them, and counts what they did in a file that outlives the program (`cenote-tally`).
//!
//! Rules inside somebody else's process:
//! - every call does what it would have done, with the same result and `errno`; if nothing can be counted (no directory to
//!   write to, no space), only the counts are missing;
//! - nothing here allocates, locks or prints. A word in the file guards related counts; waiting for it is bounded, so that
//!   calls in signal handlers cannot hang;
//! - its own system calls are made directly, not through the intercepted functions;
//! - a child of `fork` gets a file of its own when it first does something that counts; a child of `vfork`, which has its
//!   parent's memory, counts nothing.
//!
//! This room must not know stores, tiers or the conclusions from the sums.
#![allow(unsafe_code, reason = "it stands between a program and its C library")]
#![allow(unused_unsafe, reason = "`real!` is used inside of unsafe blocks and outside")]
#![allow(clippy::missing_safety_doc, reason = "each hook asks for what the C function of its name asks for")]

#[macro_use]
mod real;
mod files;
mod hooks;
mod kernel;
mod place;
mod start;
mod tracer;
