//! `Service`: the engines of a store with their background threads; `Host`: a store open in this process; and the daemon that serves
//! it to other processes.
//!
//! This room must not know what a view is, nor what is on media.

mod across;
mod bell;
mod client_recovery;
mod clients;
mod copied;
pub mod daemon;
mod destroy;
mod handling;
mod host;
mod identity;
mod locks;
mod memory;
mod merging;
mod metadata;
mod mirroring;
mod plugin;
mod profile;
mod routing;
mod service;
mod words;

/// What the simulation of clusters shares with the daemon; no part of the interface.
#[doc(hidden)]
pub mod simulated {
    pub use crate::daemon::Known;
}

pub use cenote_device::Holder;
pub use client_recovery::log_memory;
pub use clients::Client;
pub use copied::{Copied, adopt, adopt_from, clone_copy};
pub use destroy::{Destroyed, SECRET_FILE, destroy, orphans, sweep};
pub use handling::Handling;
pub use host::{Host, OpenHow, Wrap, holder, holds_store, home_number, is_locked, store_in, this_process};
pub use memory::VALUES_VARIABLE;
pub use merging::Merge;
pub use metadata::{forget_home, home_of, set_home};
pub use plugin::{PATIENCE as PLUGIN_PATIENCE, Plugin, keep as keep_plugin};
pub use service::{Reply, Service};
