//! Options for opening a store.

use std::path::PathBuf;

use cenote_model::StoreConfig;

/// The way to the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// The daemon that serves the directory, if there is one; otherwise an engine in this process, which hands the
    /// store over to a daemon when a second process comes.
    #[default]
    Auto,
    /// An engine in this process; an error if another process has the store.
    InProcess,
    /// A daemon, started if there is none (it leaves when idle). Its program is the one that the environment variable
    /// `CENOTE_BIN` names, else `cenote` beside this program, else the first `cenote` in `PATH`.
    Daemon,
}

/// Options of a process for opening a store.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The way to the engine.
    pub mode: Mode,
    /// Create a store if the directory has none.
    pub create: bool,
    /// Fail if the directory already has a store (with `create`).
    pub create_new: bool,
    /// Refuse every change.
    pub read_only: bool,
    /// Devices and rights of a new store.
    pub config: StoreConfig,
    /// A shared library with a placement policy, for an engine in this process; otherwise the one that the store keeps
    /// (`cenote serve --policy-plugin`). A process that loads it must trust it.
    pub policy_plugin: Option<PathBuf>,
}
