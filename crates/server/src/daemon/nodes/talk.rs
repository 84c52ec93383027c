//! Messages on a connection that one thread has for itself.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, Result};
use cenote_rpc::net::{Class, Event, Message, TcpConnection};
use cenote_wire::{NodeMessage, encode_between};

use crate::service::lock;

/// Longest wait without a look whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A message that is not about a request, encoded.
pub(super) fn encoded(message: &NodeMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_between(message, &mut bytes);
    bytes
}

/// Queues a message; the next turn of the connection sends it.
pub(super) fn say(connection: &mut TcpConnection, message: &NodeMessage) -> Result<()> {
    connection.endpoint().send(Class::Control, encoded(message))
}

/// The next message that has arrived. Fails if the other daemon has ended. Notes signs of life in `heard_at`.
pub(super) fn next(connection: &mut TcpConnection, heard_at: &mut Instant) -> Result<Option<Message>> {
    while let Some(event) = connection.endpoint().next_event() {
        *heard_at = Instant::now();
        match event {
            Event::Message(message) => return Ok(Some(message)),
            Event::Left => {
                return Err(Error::new(ErrorKind::Disconnected, format!("node at {}", connection.peer()))
                    .because("its daemon has ended"));
            }
            Event::Opened(_) | Event::Beat => {}
        }
    }
    Ok(None)
}

/// Waits for a message. `Disconnected` if none comes in time.
pub(super) fn wait_for_one(connection: &mut TcpConnection, patience: Duration) -> Result<Message> {
    wait_unless(connection, patience, &|| false)?.ok_or_else(|| silent(connection))
}

/// Waits for a message. `None` if it `is_over`, or none comes in time.
pub(super) fn wait_unless(
    connection: &mut TcpConnection,
    patience: Duration,
    is_over: &dyn Fn() -> bool,
) -> Result<Option<Message>> {
    let deadline = Instant::now() + patience;
    loop {
        let is_busy = connection.turn()?;
        if let Some(message) = next(connection, &mut Instant::now())? {
            return Ok(Some(message));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || is_over() {
            return Ok(None);
        }
        if !is_busy {
            connection.wait(left.min(LOOK_EVERY))?;
        }
    }
}

/// The error of a node from which no message came in time.
pub(super) fn silent(connection: &TcpConnection) -> Error {
    Error::new(ErrorKind::Disconnected, format!("node at {}", connection.peer()))
        .because("it said nothing in time")
        .try_next("`cenote cluster status` shows which nodes are alive")
}

/// What an error of a connection says, without whose connection it was.
pub(super) fn cause_of(error: &Error) -> String {
    if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() }
}

/// Connections to one node that wait for the next question.
pub(super) struct Kept {
    most: usize,
    /// One that nobody used for so long is given up.
    patience: Duration,
    /// Since when they wait.
    free: Mutex<Vec<(Instant, TcpConnection)>>,
}

impl Kept {
    pub fn new(most: usize, patience: Duration) -> Self {
        Self { most, patience, free: Mutex::default() }
    }
    /// Takes one of them. The other end may have given it up.
    pub fn take(&self) -> Option<TcpConnection> {
        let mut free = lock(&self.free);
        free.retain(|(since, _)| since.elapsed() < self.patience);
        free.pop().map(|(_, connection)| connection)
    }
    pub fn give_back(&self, connection: TcpConnection) {
        let mut free = lock(&self.free);
        if free.len() < self.most {
            free.push((Instant::now(), connection));
        }
    }
    pub fn clear(&self) {
        lock(&self.free).clear();
    }
}
