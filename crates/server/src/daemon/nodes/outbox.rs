//! What other threads give to the thread that has the connections.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_model::{HomeId, Result};
use cenote_rpc::Doorbell;
use cenote_rpc::net::{Class, Introduction, TcpConnection};

use super::super::peer::Peer;
use super::foreign::Outgoing;
use crate::service::lock;

/// The number of a connection: a new one has another, though the node be the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ConnectionId(u64);

impl ConnectionId {
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Something for the thread to do.
pub(super) enum Order {
    /// Have this connection to a home.
    Connected(HomeId, ConnectionId, Box<TcpConnection>),
    /// Have this connection from another node, whose clients want this home.
    Accepted(Introduction, HomeId, Box<TcpConnection>),
    /// A home has another host: the connection to the former one ends.
    Moved(HomeId),
    /// Send this on the connection to a home, unless that has ended.
    ToHome(HomeId, Class, Vec<u8>),
    /// Send this on a connection, unless it has ended.
    Answer(ConnectionId, Outgoing),
    /// Serve this client of a home.
    Serve(HomeId, Box<Peer>),
}

/// See the module.
pub(super) struct Outbox {
    orders: Mutex<Vec<Order>>,
    bell: Doorbell,
    connections: AtomicU64,
}

impl Outbox {
    pub fn new() -> Result<Self> {
        Ok(Self { orders: Mutex::default(), bell: Doorbell::new()?, connections: AtomicU64::new(1) })
    }
    /// The doorbell that wakes the thread.
    pub fn bell(&self) -> &Doorbell {
        &self.bell
    }
    pub fn wake(&self) {
        self.bell.ring();
    }
    pub fn put(&self, order: Order) {
        lock(&self.orders).push(order);
        self.wake();
    }
    pub fn take_all(&self) -> Vec<Order> {
        std::mem::take(&mut *lock(&self.orders))
    }
    /// A number for a new connection.
    pub fn number(&self) -> ConnectionId {
        ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed))
    }
}
