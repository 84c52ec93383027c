//! An operation in flight.

use std::sync::{Arc, Mutex};

use cenote_model::{ContainerId, Error, ErrorKind, ObjectKey, Result};

use crate::data::read;
use crate::link::Link;
use crate::link::queue::Ticket;
use crate::map::cache::ObjectCache;
use crate::object::flush;
use crate::session::Session;
use crate::sync::lock;

/// An operation in flight. A drop does not stop it: the next `wait_all` or `flush` then reports its failure.
pub struct Op {
    session: Arc<Session>,
    /// The container of the operation.
    container: ContainerId,
    kind: Kind,
    /// An object that must survive power loss before this is done.
    durable: Option<ObjectKey>,
}

enum Kind {
    /// Done before the call returned.
    Done,
    Queued(Ticket),
    Read(Arc<PendingRead>),
}

/// A read in flight.
#[derive(Default)]
struct PendingRead {
    state: Mutex<ReadState>,
}

#[derive(Default)]
struct ReadState {
    outcome: Option<Result<Vec<u8>>>,
    callback: Option<Box<dyn FnOnce(Result<()>) + Send>>,
}

impl Op {
    pub(crate) fn of(session: &Arc<Session>, container: ContainerId, ticket: Option<Ticket>) -> Self {
        Self { session: session.clone(), container, kind: ticket.map_or(Kind::Done, Kind::Queued), durable: None }
    }
    /// The same, done only when an object survives power loss.
    pub(crate) fn durable(self, durable: Option<ObjectKey>) -> Self {
        Self { durable, ..self }
    }
    /// Starts a read: at once if it is a copy from memory, otherwise on a worker thread.
    pub(crate) fn read(session: &Arc<Session>, object: &Arc<ObjectCache>, offset: u64, len: usize) -> Self {
        let link = session.home(object.key.container);
        // Before the thread starts: it must see the earlier pipelined writes of this thread.
        read::settle_own_writes(link, object);
        let pending = Arc::new(PendingRead::default());
        if read::is_in_memory(link, object, offset, len) {
            lock(&pending.state).outcome = Some(read_vec(link, object, offset, len));
        } else {
            let (weak, object, pending) = (link.myself(), object.clone(), pending.clone());
            link.run_aside(Box::new(move || {
                let Some(link) = weak.upgrade() else { return };
                let outcome = read_vec(&link, &object, offset, len);
                let callback = {
                    let mut state = lock(&pending.state);
                    state.outcome = Some(outcome);
                    state.callback.take()
                };
                if let Some(callback) = callback {
                    pending.call(&link, callback);
                }
                link.channel.note_arrival();
            }));
        }
        Self { session: session.clone(), container: object.key.container, kind: Kind::Read(pending), durable: None }
    }
    /// Waits for the acknowledgement.
    pub fn wait(self) -> Result<()> {
        match self.kind {
            Kind::Done => {}
            Kind::Queued(ticket) => self.session.home(self.container).queue.wait(&ticket)?,
            Kind::Read(pending) => return pending.wait(self.session.home(self.container)).map(drop),
        }
        self.durable.map_or(Ok(()), |key| flush(self.session.home(self.container), key))
    }
    /// Waits for the bytes of an [`crate::Object::launch_read`]; they are fewer than requested if the object ends
    /// before.
    pub fn wait_read(self) -> Result<Vec<u8>> {
        match self.kind {
            Kind::Read(pending) => pending.wait(self.session.home(self.container)),
            _ => Err(Error::new(ErrorKind::InvalidInput, "operation").because("it is no read")),
        }
    }
    /// Returns the number of the message with the update; `None` if the operation was done before, or is a read. The
    /// numbers of a session rise with time ([`crate::Store::tell_settled`]).
    pub fn message(&self) -> Option<u64> {
        match &self.kind {
            Kind::Queued(ticket) => Some(ticket.batch.number),
            Kind::Done | Kind::Read(_) => None,
        }
    }
    /// Returns true if waiting would not block, except for the durability of a write-through.
    pub fn is_done(&self) -> bool {
        match &self.kind {
            Kind::Done => true,
            Kind::Queued(ticket) => ticket.batch.is_done(),
            Kind::Read(pending) => lock(&pending.state).outcome.is_some(),
        }
    }
    /// Calls `callback` once after the end of the operation, from a thread of the client.
    pub fn on_done(self, callback: impl FnOnce(Result<()>) + Send + 'static) {
        if self.durable.is_some() {
            let session = self.session.clone();
            return session.shared.workers.run(Box::new(move || {
                let session = self.session.clone();
                let outcome = self.wait();
                session.shared.callbacks.call(Box::new(move || callback(outcome)));
            }));
        }
        match self.kind {
            Kind::Done => self.session.shared.callbacks.call(Box::new(move || callback(Ok(())))),
            Kind::Queued(ticket) => {
                let outcome = ticket.clone();
                ticket.when_done(&self.session.shared.callbacks, Box::new(move || callback(outcome.outcome())));
                self.session.home(self.container).keep();
            }
            Kind::Read(pending) => {
                let mut state = lock(&pending.state);
                if state.outcome.is_none() {
                    state.callback = Some(Box::new(callback));
                } else {
                    drop(state);
                    pending.call(self.session.home(self.container), Box::new(callback));
                }
            }
        }
    }
}

impl PendingRead {
    fn call(&self, link: &Link, callback: Box<dyn FnOnce(Result<()>) + Send>) {
        let outcome = match &lock(&self.state).outcome {
            Some(Err(error)) => Err(error.clone()),
            _ => Ok(()),
        };
        link.call_back(Box::new(move || callback(outcome)));
    }
    fn wait(&self, link: &Link) -> Result<Vec<u8>> {
        let mut outcome = None;
        link.channel.wait_until(|| {
            outcome = lock(&self.state).outcome.take();
            outcome.is_some()
        });
        outcome.unwrap_or_else(|| Err(Error::new(ErrorKind::Internal, "read").because("it has no outcome")))
    }
}

fn read_vec(link: &Link, object: &Arc<ObjectCache>, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let done = read::read_at(link, object, offset, &mut bytes)?;
    bytes.truncate(done.bytes);
    Ok(bytes)
}
