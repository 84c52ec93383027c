//! The thread that answers the requests of all clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_rpc::Poller;

use super::Daemon;
use super::peer::Peer;
use crate::service::lock;

/// Longest sleep: events without a doorbell are noticed after it.
const SLEEP: Duration = Duration::from_millis(500);
/// Sleep while a client does not read its responses: it rings no doorbell when it does.
const SLEEP_BLOCKED: Duration = Duration::from_millis(1);
/// A client counts as active for this long after a request.
const AT_WORK: Duration = Duration::from_millis(5);

pub(super) fn run(daemon: &Arc<Daemon>) {
    let mut peers: Vec<Peer> = Vec::new();
    let mut poller = Poller::new(daemon.bell.clone());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    while !daemon.is_stopping() {
        peers.append(&mut lock(&daemon.fresh));
        let mut busy = false;
        for peer in &mut peers {
            busy |= peer.turn(daemon);
        }
        peers.retain(|peer| !peer.is_gone());
        if !busy {
            let is_blocked = peers.iter().any(Peer::is_blocked);
            tell_crowded(&peers, cores);
            let open = peers.iter().filter(|peer| !peer.is_blocked()).map(Peer::requests);
            poller.wait(open, if is_blocked { SLEEP_BLOCKED } else { SLEEP });
        }
    }
    // Requests sent before the end are answered, as far as the rings have room.
    for peer in &mut peers {
        peer.turn(daemon);
        peer.close();
    }
}

/// Tells all clients whether the active ones and this thread outnumber the cores.
fn tell_crowded(peers: &[Peer], cores: usize) {
    let now = Instant::now();
    let at_work = peers.iter().filter(|peer| now.duration_since(peer.asked_at()) < AT_WORK).count();
    let is_crowded = at_work + 1 > cores;
    for peer in peers {
        peer.requests().set_crowded(is_crowded);
    }
}
