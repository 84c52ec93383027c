//! `Service`: an engine with its background threads; `Host`: a store that this process has; and the daemon that serves
//! it to others.
//!
//! This room must not know what a view is, nor what is on media.

pub mod daemon;
mod destroy;
mod host;
mod plugin;
mod profile;
mod service;

pub use destroy::{Destroyed, SECRET_FILE, destroy, orphans, sweep};
pub use host::{Client, Host, OpenHow, Wrap, holds_store, this_process};
pub use plugin::{PATIENCE as PLUGIN_PATIENCE, Plugin, keep as keep_plugin};
pub use service::{Handling, Reply, Service};
