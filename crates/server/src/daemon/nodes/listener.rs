//! Accepts connections from other nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cenote_model::{HomeId, NodeId};
use cenote_rpc::net::{Introduction, Message, TcpConnection};
use cenote_wire::{Between, NodeMessage, decode_between, is_about_view};

use super::super::Daemon;
use super::Nodes;
use super::copies::Sender;
use super::handover::give;
use super::homes::Acts;
use super::outbox::Order;
use super::talk::{say, wait_for_one};
use super::twins::Wanted;

/// Time limit for the proof that the other end has the key.
const PROOF: Duration = Duration::from_secs(5);
/// Connections that may be proving at the same time: strangers hold no more threads than these.
const PROVING_MAX: usize = 64;
const EVERY: Duration = Duration::from_millis(200);

/// Accepts until the daemon stops.
pub(super) fn run(nodes: &Arc<Nodes>, daemon: &Arc<Daemon>) {
    let proving = Arc::new(AtomicUsize::new(0));
    while !daemon.is_stopping() {
        match nodes.listener.accept(nodes.who, &nodes.key, EVERY) {
            Ok(Some(connection)) if proving.load(Ordering::SeqCst) < PROVING_MAX => {
                prove(nodes, daemon, &proving, connection);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "a connection from another node could not be accepted");
                std::thread::sleep(EVERY);
            }
        }
    }
}

impl Nodes {
    /// Takes a connection by what it wants first: changes for a copy, and a home that is to be given away, keep this
    /// thread; clients of a home go to the common one, a watch to that of the board.
    fn welcome(
        self: &Arc<Self>,
        daemon: &Arc<Daemon>,
        who: Introduction,
        mut connection: TcpConnection,
        first: Message,
    ) {
        let node = NodeId(who.node);
        let is_given_up = self.watch.is_given_up(node);
        if is_given_up && is_about_view(&first.bytes) {
            let bytes = first.bytes.clone();
            connection.endpoint().release(first);
            return self.adopt(node, connection, bytes); // the view tells it why it takes part in nothing else
        }
        if is_given_up || self.roster.get().of(HomeId(who.node)).is_none_or(|member| member.has_left) {
            tracing::warn!(node = node.0, peer = %connection.peer(), "a connection of a node that is no member");
            return;
        }
        if is_about_view(&first.bytes) {
            let bytes = first.bytes.clone();
            connection.endpoint().release(first);
            return self.adopt(node, connection, bytes);
        }
        let (home, done) = match decode_between(&first.bytes) {
            Ok(Between::Sessions(NodeMessage::Mirror { home, term, store, stream })) => {
                connection.endpoint().release(first);
                let from = Sender { home, store, stream };
                let checked = self.homes.check_host(home, node, term);
                (home, checked.and_then(|()| self.copies.keep(&mut connection, from, &|| daemon.is_stopping())))
            }
            Ok(Between::Sessions(NodeMessage::Yield { home })) => {
                connection.endpoint().release(first);
                let acts = Acts::new(self.clone(), daemon.clone());
                (home, give(&acts, &mut connection, home, node))
            }
            Ok(Between::Sessions(NodeMessage::ReadCopy { home, term, stream, device, offset, len })) => {
                connection.endpoint().release(first);
                let wanted = Wanted { home, term, stream, device, offset, len };
                let checked = self.homes.check_host(home, node, term);
                (home, checked.and_then(|()| self.tell_copy(&mut connection, wanted, &|| daemon.is_stopping())))
            }
            Ok(Between::Sessions(NodeMessage::Direct { home, nonce })) => {
                connection.endpoint().release(first);
                (home, self.read_directly(daemon, &mut connection, node, home, nonce))
            }
            Ok(Between::Sessions(NodeMessage::AskPlace { of, ask })) => {
                connection.endpoint().release(first);
                (of.home, self.keep_parts(&mut connection, node, (of, ask), &|| daemon.is_stopping()))
            }
            Ok(Between::Sessions(NodeMessage::Visit { home })) => {
                connection.endpoint().release(first);
                return self.outbox.put(Order::Accepted(who, home, Box::new(connection)));
            }
            _ => {
                tracing::warn!(node = node.0, peer = %connection.peer(), "a connection that begins with another message");
                return;
            }
        };
        if let Err(error) = done {
            tracing::debug!(%error, %home, node = who.node, "no more of a home goes over a connection");
            let declined = say(&mut connection, &NodeMessage::Declined { error });
            let _ = declined.and_then(|()| connection.turn()); // it may be gone
        }
    }
}

/// Has the other end prove that it has the key, on a thread of its own.
fn prove(nodes: &Arc<Nodes>, daemon: &Arc<Daemon>, proving: &Arc<AtomicUsize>, mut connection: TcpConnection) {
    proving.fetch_add(1, Ordering::SeqCst);
    let (nodes, daemon, done) = (nodes.clone(), daemon.clone(), proving.clone());
    let run = move || {
        let proved = connection.open(PROOF).and_then(|who| Ok((who, wait_for_one(&mut connection, PROOF)?)));
        done.fetch_sub(1, Ordering::SeqCst);
        match proved {
            Ok((who, first)) => nodes.welcome(&daemon, who, connection, first),
            Err(error) => tracing::warn!(peer = %connection.peer(), %error, "a connection is refused"),
        }
    };
    if let Err(error) = std::thread::Builder::new().name("cenote-proof".into()).spawn(run) {
        proving.fetch_sub(1, Ordering::SeqCst);
        tracing::warn!(%error, "no thread for another node");
    }
}
