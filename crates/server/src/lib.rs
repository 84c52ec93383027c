//! `Service`: an engine with its background threads; and the daemon that serves it to other processes.
//!
//! This room must not know what a view is, nor what is on media.

pub mod daemon;
