//! Sends the changes of a home to the nodes that have copies of it: a thread for each.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cenote_ha::MirrorState;
use cenote_model::{Error, ErrorKind, HomeId, NodeId, Result, StoreId};
use cenote_rpc::net::{Class, ClusterKey, Introduction, TcpConnection};
use cenote_rpc::{Doorbell, Poller};
use cenote_wire::{Between, NodeMessage, decode_between, encode_changes};
use std::os::fd::AsFd;

use super::talk::{next, say, wait_for_one};
use crate::Service;
use crate::mirroring::Mirroring;
use crate::service::lock;

/// Most bytes that are handed to a connection at once.
const BATCH_BYTES: usize = 4 << 20;
/// Bytes that may wait in a connection.
const QUEUED_MAX: u64 = 8 << 20;
const SLEEP: Duration = Duration::from_millis(100);
const BEAT_EVERY: Duration = Duration::from_secs(1);
const CONNECT: Duration = Duration::from_secs(2);
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// A home of which this node is the host.
#[derive(Clone)]
pub(super) struct Hosted {
    pub home: HomeId,
    pub term: u64,
    pub store: StoreId,
    pub service: Arc<Service>,
    pub mirroring: Arc<Mirroring>,
}

/// Sends the changes of a home to one node, until it is dropped.
pub(super) struct Mirror {
    shared: Arc<Shared>,
}

struct Shared {
    hosted: Hosted,
    node: NodeId,
    address: SocketAddr,
    who: Introduction,
    key: ClusterKey,
    bell: Doorbell,
    is_over: AtomicBool,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// Chunks that are confirmed.
    has: u64,
    /// The chunk with the end of the copy of everything, once it is queued.
    complete_at: Option<u64>,
    /// When the node last confirmed something, or had nothing to confirm.
    answered_at: Option<Instant>,
    /// Bytes of the copy of everything that were queued, and how many there are.
    copied: (u64, u64),
    /// Since when the mirror gets one.
    began_at: Option<Instant>,
}

/// How far a mirror is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Far {
    pub is_caught_up: bool,
    /// How long nothing was confirmed that should have been.
    pub silent_for: Duration,
    pub has: u64,
    pub copied: (u64, u64),
    /// How long its copy of everything has taken so far.
    pub copying_for: Duration,
}

impl Mirror {
    /// Begins to send.
    pub fn start(
        hosted: Hosted,
        node: NodeId,
        address: SocketAddr,
        who: Introduction,
        key: ClusterKey,
    ) -> Result<Self> {
        let (bell, is_over) = (Doorbell::new()?, AtomicBool::new(false));
        let progress = Mutex::new(Progress { answered_at: Some(Instant::now()), ..Progress::default() });
        let shared = Arc::new(Shared { hosted, node, address, who, key, bell, is_over, progress });
        let this = shared.clone();
        std::thread::Builder::new()
            .name("cenote-mirror".into())
            .spawn(move || this.run())
            .map_err(|error| Error::io("a thread for a mirror", &error))?;
        Ok(Self { shared })
    }
    /// How far the node is.
    pub fn far(&self) -> Far {
        let progress = lock(&self.shared.progress);
        let is_caught_up = progress.complete_at.is_some_and(|at| progress.has >= at);
        let silent_for = progress.answered_at.map_or(Duration::ZERO, |at| at.elapsed());
        let copying_for = progress.began_at.filter(|_| !is_caught_up).map_or(Duration::ZERO, |at| at.elapsed());
        Far { is_caught_up, silent_for, has: progress.has, copied: progress.copied, copying_for }
    }
    /// The same for `ha`, under the view of this number. After `patience` a mirror counts as silent, and so does one that is in
    /// the view and gets a new copy of everything: until it has that, nothing could be told.
    pub fn state(&self, patience: Duration, is_in_view: bool, view: u64) -> MirrorState {
        let far = self.far();
        match far {
            Far { silent_for, .. } if silent_for > patience => MirrorState::Unanswered,
            Far { copying_for, .. } if is_in_view && copying_for > patience => MirrorState::Unanswered,
            Far { is_caught_up: true, .. } => MirrorState::CaughtUp { in_view: view },
            Far { has, .. } => MirrorState::Has(has),
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.shared.bell.ring();
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
    fn run(self: &Arc<Self>) {
        while !self.is_over() {
            let result = self.send();
            if let Err(error) = result
                && !self.is_over()
            {
                tracing::debug!(%error, home = %self.hosted.home, node = self.node.0, "a mirror is sent to anew");
            }
            std::thread::sleep(AGAIN_AFTER);
        }
        self.hosted.mirroring.stream.detach(self.node);
    }
    /// Connects, and sends until something fails.
    fn send(self: &Arc<Self>) -> Result<()> {
        let mut connection = TcpConnection::connect(self.address, self.who, &self.key, CONNECT)?;
        let Hosted { home, term, store, mirroring, .. } = &self.hosted;
        let (home, term, store, stream) = (*home, *term, *store, mirroring.number);
        say(&mut connection, &NodeMessage::Mirror { home, term, store, stream })?;
        let message = wait_for_one(&mut connection, CONNECT)?;
        let has = match decode_between(&message.bytes)? {
            Between::Sessions(NodeMessage::Has { chunk }) => chunk,
            Between::Sessions(NodeMessage::Declined { error }) => return Err(error),
            _ => return Err(out_of_turn()),
        };
        connection.endpoint().release(message);
        let bell = self.bell.clone();
        let is_whole = lock(&self.progress).complete_at.is_some();
        if !(is_whole && has > 0 && mirroring.stream.resume(self.node, has, Box::new(move || bell.ring()))) {
            self.copy()?;
        }
        self.stream(&mut connection)
    }
    /// Queues a copy of everything, on a thread of its own.
    fn copy(self: &Arc<Self>) -> Result<()> {
        let bell = self.bell.clone();
        let now = Some(Instant::now());
        *lock(&self.progress) = Progress { answered_at: now, began_at: now, ..Progress::default() };
        self.hosted.mirroring.stream.attach(self.node, Box::new(move || bell.ring()));
        let this = self.clone();
        let run = move || {
            let progress = |done, total| lock(&this.progress).copied = (done, total);
            let stream = &this.hosted.mirroring.stream;
            match this.hosted.mirroring.copy_to(&this.hosted.service, this.node, &progress) {
                Ok(()) => lock(&this.progress).complete_at = Some(stream.complete(this.node)),
                Err(error) => {
                    tracing::warn!(%error, home = %this.hosted.home, node = this.node.0, "a copy of a home failed");
                    stream.detach(this.node);
                }
            }
            this.bell.ring();
        };
        std::thread::Builder::new()
            .name("cenote-copy".into())
            .spawn(run)
            .map(drop)
            .map_err(|error| Error::io("a thread for a copy of a home", &error))
    }
    fn stream(&self, connection: &mut TcpConnection) -> Result<()> {
        let mut poller = Poller::new(self.bell.clone());
        let (mut heard_at, mut beat_at) = (Instant::now(), Instant::now());
        while !self.is_over() {
            let mut is_busy = connection.turn()?;
            while let Some(message) = next(connection, &mut heard_at)? {
                is_busy = true;
                match decode_between(&message.bytes)? {
                    Between::Sessions(NodeMessage::Has { chunk }) => self.confirmed(chunk),
                    Between::Sessions(NodeMessage::Declined { error }) => return Err(error),
                    _ => return Err(out_of_turn()),
                }
                connection.endpoint().release(message);
            }
            is_busy |= self.hand_on(connection)?;
            if beat_at.elapsed() > BEAT_EVERY {
                beat_at = Instant::now();
                connection.endpoint().beat();
            }
            if !is_busy {
                let flags = connection.wanted();
                let ready = poller.wait_also([].iter(), &[(connection.as_fd(), flags)], SLEEP);
                if !ready.is_empty() {
                    connection.set_readable();
                }
            }
        }
        Ok(())
    }
    /// Hands waiting chunks to the connection. Returns true if there were any.
    fn hand_on(&self, connection: &mut TcpConnection) -> Result<bool> {
        if connection.endpoint().queued_bytes(Class::Replication) > QUEUED_MAX {
            return Ok(false);
        }
        let stream = &self.hosted.mirroring.stream;
        let Some(chunks) = stream.take(self.node, BATCH_BYTES) else {
            return Err(Error::new(ErrorKind::Disconnected, format!("node {}", self.node.0))
                .because("it fell too far behind, and gets a new copy"));
        };
        if chunks.is_empty() {
            let mut progress = lock(&self.progress);
            if stream.is_confirmed(self.node) {
                progress.answered_at = Some(Instant::now());
            }
            return Ok(false);
        }
        for chunk in chunks {
            let mut bytes = Vec::with_capacity(chunk.bytes.len() + 16);
            encode_changes(chunk.number, &mut bytes);
            bytes.extend_from_slice(&chunk.bytes);
            connection.endpoint().send(Class::Replication, bytes)?;
        }
        Ok(true)
    }
    fn confirmed(&self, chunk: u64) {
        {
            let mut progress = lock(&self.progress);
            progress.has = chunk;
            progress.answered_at = Some(Instant::now());
        }
        self.hosted.mirroring.stream.confirm(self.node, chunk);
    }
}

#[cold]
fn out_of_turn() -> Error {
    Error::new(ErrorKind::InvalidInput, "message from a mirror").because("it is out of turn")
}
