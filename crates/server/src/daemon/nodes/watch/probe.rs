//! Whether the machine of a silent node is there: if it refuses a connection, its daemon is down and its memory intact.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cenote_model::NodeId;

use crate::service::lock;

/// Whether a machine is there and refuses connections to this address.
pub(super) fn refuses(address: SocketAddr, patience: Duration) -> bool {
    let tried = TcpStream::connect_timeout(&address, patience.max(Duration::from_millis(1)));
    tried.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// Attempts to connect, each on a thread of its own: a machine that is gone answers late or never.
#[derive(Default)]
pub(super) struct Probes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Nodes that are being tried.
    busy: BTreeSet<NodeId>,
    /// Nodes that have refused.
    refused: Vec<NodeId>,
}

impl Probes {
    /// Tries a node, unless that is under way.
    pub fn begin(self: &Arc<Self>, node: NodeId, address: SocketAddr, patience: Duration) {
        if !lock(&self.state).busy.insert(node) {
            return;
        }
        let this = self.clone();
        let run = move || {
            let is_refused = refuses(address, patience);
            let mut state = lock(&this.state);
            state.busy.remove(&node);
            if is_refused && !state.refused.contains(&node) {
                state.refused.push(node);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("cenote-probe".into()).spawn(run) {
            lock(&self.state).busy.remove(&node);
            tracing::warn!(%error, "no thread to try another node");
        }
    }
    /// Returns true while a node is being tried, or has refused and was not taken yet.
    pub fn is_busy(&self) -> bool {
        let state = lock(&self.state);
        !state.busy.is_empty() || !state.refused.is_empty()
    }
    /// The nodes that have refused since the last call.
    pub fn take_refused(&self) -> Vec<NodeId> {
        std::mem::take(&mut lock(&self.state).refused)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn is_named(address: SocketAddr) -> bool {
        let probes = Arc::new(Probes::default());
        probes.begin(NodeId(3), address, Duration::from_secs(5));
        let begin = Instant::now();
        while !lock(&probes.state).busy.is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
        !probes.take_refused().is_empty()
    }

    #[test]
    fn only_who_refuses_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(!is_named(address));
        drop(listener);
        assert!(is_named(address));
    }
}
