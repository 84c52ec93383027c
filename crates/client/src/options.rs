//! How a store is opened.

use std::path::PathBuf;

use cenote_model::StoreConfig;

/// How to reach the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// The daemon that serves the directory if there is one; else an engine in this process, which hands the store
    /// over to a daemon as soon as a second process comes.
    #[default]
    Auto,
    /// An engine in this process; an error if another process has the store.
    InProcess,
    /// A daemon, started if there is none (it leaves when idle). Its program is what the environment variable
    /// `CENOTE_BIN` names, else `cenote` beside this program, else the first `cenote` in `PATH`.
    Daemon,
}

/// How to open a store: what can differ from process to process.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// How to reach the engine.
    pub mode: Mode,
    /// Make the store if the directory holds none.
    pub create: bool,
    /// Fail if the directory holds a store already (with `create`).
    pub create_new: bool,
    /// Refuse every change.
    pub read_only: bool,
    /// Devices and rights of a store that is to be made.
    pub config: StoreConfig,
    /// A shared library with a placement policy, if the engine comes to be in this process; else the one that is kept with
    /// the store (`cenote serve --policy-plugin`). Loading it is trusting it.
    pub policy_plugin: Option<PathBuf>,
}
