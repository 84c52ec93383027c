//! The daemon: one process per node that serves a store directory to every other.

use std::path::Path;
use std::time::Duration;

use cenote_model::{Error, ErrorKind, Result};

/// How a daemon is to run.
#[derive(Clone, Debug, Default)]
pub struct DaemonOptions {
    /// Leave when no client has been there for so long. `None`: stay until told to leave.
    pub idle_exit: Option<Duration>,
    /// Go on in a process of its own session; this call returns once that one serves, or with its start-up error.
    pub background: bool,
    /// Make the store if the directory holds none.
    pub create: bool,
}

/// Serves the store in `dir` until told to leave (`Request::Shutdown`, SIGTERM, SIGINT) or idle for too long.
pub fn run(dir: &Path, _options: &DaemonOptions) -> Result<()> {
    Err(Error::new(ErrorKind::Unsupported, format!("serving {}", dir.display())).because("not built yet"))
}
