//! The clients of a home in this process: their files, who takes from their rings, and what dead ones left.
//!
//! This file must not know whether the home is an engine here or the way to one on another node.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use cenote_device::control::{ClientFile, ClientRoom, SharedControl};
use cenote_host::process;
use cenote_model::{Request, Response, Result};
use cenote_store::{SessionId, SessionInfo};

use crate::client_recovery::{self, Gate};
use crate::service::lock;

/// A home, as its clients need it.
pub(crate) trait Served: Send + Sync {
    /// Opens a session, or finds the one with the same nonce.
    fn session_open(&self, who: &SessionInfo) -> Result<SessionId>;
    /// Ends a session whose process left or died.
    fn session_close(&self, session: SessionId);
    /// The sessions of processes of this node, including those of an earlier daemon.
    fn sessions(&self) -> Vec<(SessionId, SessionInfo)>;
    /// Carries out a change that a dead client left. Fails if the home is closed or cannot be reached: what is left
    /// stays for the next one.
    fn carry_out(&self, session: SessionId, seq: u64, request: Request) -> Result<Option<Response>>;
}

/// A client, as its home knows it.
#[derive(Clone)]
pub struct Client {
    /// Its session with the engine.
    pub session: SessionId,
    /// Its reader slots and rings.
    pub file: ClientFile,
    pub(crate) gate: Arc<Gate>,
}

/// See the module.
pub(crate) struct Clients {
    /// The shared control table and the files of clients.
    pub control: Arc<SharedControl>,
    /// The gates, by the numbers of the files: they decide who takes from a client's rings.
    gates: Mutex<HashMap<u64, Arc<Gate>>>,
    /// Held while changes of dead clients are carried out.
    settling: Mutex<()>,
    /// Sessions whose clients have no file yet.
    coming: Mutex<HashSet<SessionId>>,
}

impl Clients {
    /// For the clients whose files this table has.
    pub fn of(control: Arc<SharedControl>) -> Self {
        Self { control, gates: Mutex::default(), settling: Mutex::default(), coming: Mutex::default() }
    }
    /// Admits a client: opens a session (the same one for the same nonce) and creates its file, with the lock by which
    /// its process proves that it lives.
    pub fn admit(&self, home: &dyn Served, who: &SessionInfo, ring_bytes: u64) -> Result<(Client, OwnedFd)> {
        // Until its process holds a file, the session must not be taken for an abandoned one.
        let mut coming = lock(&self.coming);
        let session = home.session_open(who)?;
        coming.insert(session);
        drop(coming);
        let log_bytes = if who.write { client_recovery::log_memory_bytes() } else { 0 };
        let room = ClientRoom { session: session.0, ring_bytes, log_bytes };
        let made = self.control.client_create(who.pid, &room);
        lock(&self.coming).remove(&session);
        let (file, alive) = made?;
        file.counters().set_session(session.0);
        let gate = Arc::<Gate>::default();
        lock(&self.gates).insert(file.number(), gate.clone());
        Ok((Client { session, file, gate }, alive))
    }
    /// Forgets a client's file once nothing of it is needed.
    pub fn remove(&self, number: u64) {
        lock(&self.gates).remove(&number);
        self.control.client_remove(number);
    }
    /// Carries out the pipelined changes of dead processes, closes their sessions, and forgets their files.
    /// `is_closed`: the home is being closed, so the next one handles the file of a session that could not be.
    pub fn reap(&self, home: &dyn Served, is_closed: impl FnOnce() -> bool) {
        // The order matters: a session that is no longer in `coming` has its file.
        let sessions = home.sessions();
        let coming = lock(&self.coming).clone();
        let held = self.control.clients().into_iter().filter(|(_, file)| file.is_held());
        // The file's name holds the session; a client can change the file's content, which counts only without that
        // name.
        let owner = |(session, file): (u64, ClientFile)| if session == 0 { file.counters().session() } else { session };
        let live: BTreeSet<u64> = held.map(owner).collect();
        for (session, who) in sessions {
            // A session of an earlier version has no file: its process decides, if it is visible.
            let is_live = live.contains(&session.0) || process::started_of(who.pid) == Some(who.started);
            if !is_live && !coming.contains(&session) {
                self.settle_dead(home, session);
            }
        }
        if is_closed() {
            return;
        }
        let sessions = home.sessions();
        let clients = self.control.clients();
        for (at, (session, file)) in clients.iter().enumerate() {
            let has_session = sessions.iter().any(|(id, _)| id.0 == *session);
            let is_left = || has_session && clients[at + 1..].iter().any(|(other, _)| other == session);
            if !has_session && !file.is_held() || is_left() && client_recovery::is_spent(file) {
                self.remove(file.number());
            }
        }
    }
    /// Returns true if a process holds a file of this session, or is just coming with it: it attached again.
    pub fn has_held(&self, session: SessionId) -> bool {
        let clients = self.control.clients();
        lock(&self.coming).contains(&session) || clients.iter().any(|(of, file)| *of == session.0 && file.is_held())
    }
    /// Carries out and closes one session whose process is gone. [`Clients::reap`] removes its files.
    pub fn settle_dead(&self, home: &dyn Served, session: SessionId) {
        let _one = lock(&self.settling);
        let Some((_, who)) = home.sessions().into_iter().find(|(id, _)| *id == session) else { return };
        tracing::info!(session = session.0, pid = who.pid, "its process is gone: its leases go back");
        let mut is_done = true;
        for (_, file) in self.control.clients().iter().filter(|(of, _)| who.write && *of == session.0) {
            let gate = lock(&self.gates).get(&file.number()).cloned();
            if let Some(gate) = gate {
                gate.shut();
            }
            is_done &= client_recovery::recover(home, session, file);
        }
        if is_done {
            home.session_close(session); // else its leases stay until the rest is carried out
        }
    }
}
