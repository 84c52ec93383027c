//! A thread that answers the requests of clients.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cenote_rpc::Poller;

use super::peer::{FromEngines, Peer};
use super::{Daemon, Loop};
use crate::service::lock;

/// Longest sleep: events without a doorbell are noticed after it.
const SLEEP: Duration = Duration::from_millis(500);
/// A client counts as active for this long after a request.
const AT_WORK: Duration = Duration::from_millis(5);

/// Serves the clients of the loop with this number.
pub(super) fn run(daemon: &Arc<Daemon>, number: usize) {
    let this = &daemon.loops[number];
    let mut peers: Vec<Peer> = Vec::new();
    let mut poller = Poller::new(this.bell.clone());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    while !daemon.is_stopping() {
        peers.append(&mut lock(&this.fresh));
        let mut busy = false;
        for peer in &mut peers {
            busy |= peer.turn(FromEngines::of(daemon));
        }
        peers.retain(|peer| !peer.is_gone());
        if !busy {
            let pause = peers.iter().filter_map(Peer::pause).min();
            tell_crowded(&peers, cores, daemon, this);
            let open = peers.iter().filter(|peer| !peer.is_blocked()).map(Peer::requests);
            poller.wait(open, pause.unwrap_or(SLEEP));
        }
    }
    // Requests sent before the end are answered, as far as the rings have room.
    for peer in &mut peers {
        peer.turn(FromEngines::of(daemon));
        peer.close();
    }
}

/// Tells its clients whether the active ones of all loops and their threads outnumber the cores.
fn tell_crowded(peers: &[Peer], cores: usize, daemon: &Daemon, this: &Loop) {
    let now = Instant::now();
    let at_work = peers.iter().filter(|peer| now.duration_since(peer.asked_at()) < AT_WORK).count();
    this.at_work.store(at_work, Ordering::Relaxed);
    let of_all = daemon.loops.iter().map(|at| at.at_work.load(Ordering::Relaxed));
    let (at_work, threads) = of_all.fold((0, 0), |(sum, busy), count| (sum + count, busy + usize::from(count > 0)));
    let is_crowded = at_work + threads.max(1) > cores;
    for peer in peers {
        peer.requests().set_crowded(is_crowded);
    }
}
