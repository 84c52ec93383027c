//! Messages on a connection that one thread has for itself.

use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, Result};
use cenote_rpc::net::{Class, Event, Message, TcpConnection};
use cenote_wire::{NodeMessage, encode_between};

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
    let deadline = Instant::now() + patience;
    loop {
        let is_busy = connection.turn()?;
        if let Some(message) = next(connection, &mut Instant::now())? {
            return Ok(message);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::new(ErrorKind::Disconnected, format!("node at {}", connection.peer()))
                .because("it said nothing in time")
                .try_next("`cenote cluster status` shows which nodes are alive"));
        }
        if !is_busy {
            connection.wait(left)?;
        }
    }
}
