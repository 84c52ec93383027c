//! Connections between nodes: a protocol without I/O ([`Endpoint`]), and TCP under it ([`TcpConnection`]).
//!
//! Both ends prove that they have the cluster's key before anything else is read. Messages belong to one of three
//! classes, each with credits of its own, so that a receiver that is slow with one class holds up no other: daemons that
//! wait for each other's bulk data still hear each other's control messages. Each frame carries a checksum and the
//! number of the sender's view of the cluster.
//!
//! A file imports only files before it in this order: `tls`; `key`; `frame`; `hello`; `inbound`, `outbound`; `endpoint`; `tcp`.

mod endpoint;
mod frame;
mod hello;
mod inbound;
mod key;
mod outbound;
mod tcp;
#[cfg(test)]
mod tests;
mod tls;

pub use endpoint::{Endpoint, Event};
pub use frame::{Class, NET_VERSION, Unchecked};
pub use hello::Introduction;
pub use inbound::Message;
pub use key::ClusterKey;
pub use tcp::{TcpConnection, TcpListener};
pub use tls::Role;
