//! Hands the store over: a process with the engine listens; when another process comes, it closes the engine, starts a
//! daemon, and both become its clients.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cenote_host::fork::CloseInChild;
use cenote_model::{Error, ErrorKind, Result};
use cenote_rpc::{Connection, Listener};
use cenote_server::daemon::SOCKET;
use cenote_wire::{Greeting, decode_greeting, encode_greeting};

use super::attachment::Attachment;
use super::channel::Channel;
use super::{attach, start};
use crate::sync::lock;

const PATIENCE: Duration = Duration::from_secs(2);
const ACCEPT_EVERY: Duration = Duration::from_millis(100);

/// A bound socket that other processes find, without a thread that answers yet.
pub(crate) struct HandoverSocket {
    // Fields drop in order: the registration goes before the descriptor.
    _close_in_child: Option<CloseInChild>,
    listener: Listener,
}

impl HandoverSocket {
    /// Binds the socket. The caller has the store's lock.
    pub fn new(dir: &Path) -> Result<Self> {
        let listener = Listener::bind(dir, SOCKET)?;
        Ok(Self { _close_in_child: CloseInChild::new(&listener), listener })
    }
}

/// A thread that answers on the socket until its drop.
pub(crate) struct HandoverThread {
    waiting: Arc<HandoverSocket>,
    stop: Arc<AtomicBool>,
}

impl Drop for HandoverThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.waiting.listener.unlink(); // no process finds it any more; the thread closes it soon
    }
}

/// Starts the thread that answers on the socket.
fn listen(channel: &Channel, waiting: HandoverSocket) -> HandoverThread {
    let (waiting, stop) = (Arc::new(waiting), Arc::new(AtomicBool::new(false)));
    let thread = HandoverThread { waiting: waiting.clone(), stop: stop.clone() };
    let weak = channel.myself.clone();
    let answer = move || {
        let mut waiting = waiting;
        while !stop.load(Ordering::SeqCst) {
            let Ok(Some(connection)) = waiting.listener.accept(ACCEPT_EVERY) else { continue };
            let Some(channel) = weak.upgrade() else { return };
            match take_in(&channel, &connection) {
                Ok(None) => {}
                Ok(Some(from)) => {
                    drop(connection);
                    match hand_over(&channel, &from, waiting) {
                        Some(still) => waiting = still,
                        None => return,
                    }
                }
                Err(error) => {
                    let _ = say(&connection, &Greeting::Refused(error));
                }
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("cenote-listen".into()).spawn(answer) {
        tracing::warn!(%error, "no thread to wait for other processes: they will find the store busy");
    }
    thread
}

fn say(connection: &Connection, greeting: &Greeting) -> Result<()> {
    let mut bytes = Vec::new();
    encode_greeting(greeting, &mut bytes);
    connection.send(&[&bytes], &[], PATIENCE)
}

/// Greets a newcomer. Returns the attachment to be handed over to a daemon, if any.
fn take_in(channel: &Channel, connection: &Connection) -> Result<Option<Arc<Attachment>>> {
    let peer = connection.peer()?;
    let Some(frame) = connection.receive(PATIENCE)? else { return Ok(None) };
    if !matches!(decode_greeting(&frame.bytes)?, Greeting::Hello { .. }) {
        return Err(Error::new(ErrorKind::Busy, channel.name()).because("another process has it"));
    }
    let attachment = channel.attachment().clone();
    let Some(host) = attachment.transport.host() else {
        say(connection, &Greeting::Moving)?; // handed over already
        return Ok(None);
    };
    if host.rights(peer.uid).is_none() {
        return Err(Error::new(ErrorKind::PermissionDenied, channel.name())
            .because(format!("user {} is neither its owner nor among its writers and readers", peer.uid)));
    }
    // Before anything is closed: without the daemon's program a handover is impossible.
    start::find_program().map_err(|error| {
        Error::new(ErrorKind::Busy, channel.name())
            .because(format!("process {} has it and cannot pass it on to a daemon: {error}", std::process::id()))
            .try_next("install `cenote` where that process finds it, or wait until it is done")
    })?;
    say(connection, &Greeting::Moving)?;
    Ok(Some(attachment))
}

/// The state of handovers: an engine in this process that may be handed over has a listener.
#[derive(Default)]
pub(super) struct HandoverState {
    listener: Mutex<Option<HandoverThread>>,
    pub newcomers: NewcomerListeners,
}

impl HandoverState {
    /// Starts to listen for other processes.
    pub fn listen(&self, channel: &Channel, waiting: HandoverSocket) {
        // Locked before the thread starts: it may have to remove the value stored here.
        let mut listener = lock(&self.listener);
        *listener = Some(listen(channel, waiting));
    }
    /// Removes the socket.
    pub fn stop_listening(&self) {
        drop(lock(&self.listener).take());
    }
}

/// Listeners for the arrival of other processes in the store.
#[derive(Default)]
pub(crate) struct NewcomerListeners {
    inner: Mutex<NewcomersSeen>,
}

#[derive(Default)]
struct NewcomersSeen {
    /// Other processes have come, or may have.
    has_come: bool,
    listeners: Vec<Box<dyn Fn() + Send + Sync>>,
}

impl NewcomerListeners {
    /// Returns false if other processes have come already. Otherwise calls `tell` when one comes, before it sees or
    /// changes anything.
    pub fn listen(&self, tell: Box<dyn Fn() + Send + Sync>) -> bool {
        let mut inner = lock(&self.inner);
        if !inner.has_come {
            inner.listeners.push(tell);
        }
        !inner.has_come
    }
    /// Notifies the listeners of a newcomer.
    fn announce(&self) {
        let listeners = {
            let mut inner = lock(&self.inner);
            inner.has_come = true;
            std::mem::take(&mut inner.listeners)
        };
        for tell in &listeners {
            tell();
        }
    }
}

/// Closes the engine here and attaches to a daemon. Returns the socket for further use if there was nothing to hand
/// over.
fn hand_over(channel: &Channel, from: &Arc<Attachment>, waiting: Arc<HandoverSocket>) -> Option<Arc<HandoverSocket>> {
    // While requests are still carried out: a listener may wait for some.
    channel.handover.newcomers.announce();
    let _one = lock(&channel.attaching);
    if channel.check_open().is_err() || !Arc::ptr_eq(&channel.attachment(), from) {
        return Some(waiting);
    }
    // New requests wait for the lock held here, and go to the daemon.
    from.transport.retire();
    // The daemon binds a socket of its own, so this one must be gone before, both file and descriptor: a process that
    // has connected in the meantime would wait for an answer, perhaps with the lock for starting daemons.
    channel.handover.stop_listening();
    drop(waiting);
    if let Some(host) = from.transport.host()
        && let Err(error) = host.close()
    {
        tracing::error!(%error, "closing the store to pass it on; its journal has everything that was acknowledged");
    }
    match attach::again(channel, Vec::new(), false) {
        Ok(attachment) => channel.replace_attachment(from, attachment),
        Err(error) => {
            tracing::error!(%error, "handing the store over failed; it stays in this process");
            match attach::back_home(channel) {
                Ok((attachment, waiting)) => {
                    channel.replace_attachment(from, attachment);
                    channel.listen(waiting);
                }
                Err(error) => tracing::error!(%error, "the store could not be opened again"),
            }
        }
    }
    None
}
