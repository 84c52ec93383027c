//! Destroys a store: first asks the process that holds it to let go.

use std::path::Path;
use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, Result};
use cenote_server::Destroyed;

use crate::link::attach::stop_daemon;
use crate::{OpenOptions, Store};

/// Time limit for getting the lock: clients that lost their daemon start another.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for others to leave.
const LEAVING: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) fn destroy(dir: &Path, force: bool) -> Result<Destroyed> {
    let dir = std::path::absolute(dir).map_err(|error| Error::io(format!("store {}", dir.display()), &error))?;
    let begin = Instant::now();
    loop {
        if let Some(destroyed) = cenote_server::destroy(&dir, force)? {
            return Ok(destroyed);
        }
        if !force {
            refuse_if_used(&dir)?;
        }
        let stopped = stop_daemon(&dir, false);
        if begin.elapsed() > PATIENCE {
            return Err(stopped.err().unwrap_or_else(|| {
                let who =
                    cenote_server::holder(&dir).map_or_else(|| "another process".to_owned(), |who| who.to_string());
                in_use(&dir, &format!("{who} has it for itself"))
            }));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Fails if another process has a session with the daemon.
fn refuse_if_used(dir: &Path) -> Result<()> {
    let store = Store::open_with(dir, &OpenOptions { read_only: true, ..OpenOptions::default() })?;
    // The daemon may not have noticed yet that a process has just left.
    let begin = Instant::now();
    // Other nodes of a cluster may be stopped already.
    let others_now = || store.stats_here().map(|stats| stats.sessions.saturating_sub(1));
    let mut others = others_now()?;
    while others > 0 && begin.elapsed() < LEAVING {
        std::thread::sleep(PAUSE);
        others = others_now()?;
    }
    store.close()?;
    if others == 0 {
        return Ok(());
    }
    Err(in_use(dir, &format!("{others} other {} open", if others == 1 { "session is" } else { "sessions are" })))
}

#[cold]
fn in_use(dir: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Busy, format!("store {}", dir.display()))
        .because(why)
        .try_next("end the programs that use it, or force it: they lose the store")
}
