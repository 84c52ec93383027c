//! How a session finds its engine: in this process, or behind a daemon's socket.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cenote_model::{Error, ErrorKind, Result};
use cenote_server::{Host, OpenHow, this_process};

use super::local::Local;
use super::readers::Readers;
use super::transport::{Arrivals, Pending};
use super::{Attachment, Session};
use crate::{Mode, OpenOptions};

/// What waits for other processes, so that the store can be handed over to a daemon.
pub(crate) struct Listener;

/// Finds or starts an engine.
pub(crate) fn attach(
    dir: &Path,
    options: &OpenOptions,
    nonce: u128,
    seq: &Arc<AtomicU64>,
    arrivals: &Arc<Arrivals>,
) -> Result<(Attachment, Option<Listener>)> {
    if options.mode == Mode::Daemon {
        return Err(Error::new(ErrorKind::Unsupported, "daemon mode"));
    }
    let how = OpenHow { create: options.create.then_some(&options.config), create_new: options.create_new };
    match Host::open(dir, &how)? {
        Some(host) => Ok((local(host, nonce, options, seq, arrivals)?, None)),
        None => Err(Error::new(ErrorKind::Busy, format!("store {}", dir.display()))
            .because("another process has it for itself")
            .try_next("wait until that process is done, or let it open the store with Mode::Auto")),
    }
}

/// A session with an engine in this process.
fn local(
    host: Host,
    nonce: u128,
    options: &OpenOptions,
    seq: &Arc<AtomicU64>,
    arrivals: &Arc<Arrivals>,
) -> Result<Attachment> {
    let client = host.client(this_process(nonce, !options.read_only), 0)?;
    let readers = Readers::new(host.control.read_only()?, client.file.clone())?;
    let (store, instance) = (host.id(), readers.instance());
    let local = Local::new(Arc::new(host), client, seq.clone(), arrivals.clone());
    Ok(Attachment { store, transport: Arc::new(local), readers, instance, write: !options.read_only })
}

/// Finds the engine that took over.
pub(crate) fn again(_session: &Session, _seen: &Attachment, _pending: Vec<Pending>) -> Result<Attachment> {
    Err(Error::new(ErrorKind::Disconnected, "store").because("its engine is gone"))
}

/// Begins to listen for other processes.
pub(crate) fn listen(_session: &Arc<Session>, _listener: Option<Listener>) {}

/// Asks the daemon of `dir` to leave.
pub(crate) fn stop_daemon(_dir: &Path) -> Result<bool> {
    Ok(false)
}
