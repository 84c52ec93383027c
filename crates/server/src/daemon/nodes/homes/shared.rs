//! Homes that lie in a pool which all nodes reach: whoever the view names opens them. `docs/nodes.md`, "On RADOS".

use std::time::{Duration, Instant};

use cenote_ha::Home;
use cenote_model::{Error, ErrorKind, FlushTarget, HomeId, NodeId, Request, Response, Result};
use cenote_rpc::net::TcpConnection;
use cenote_wire::NodeMessage;

use super::super::super::location;
use super::super::handover::{AGAIN_AFTER, BEAT_EVERY, LOOK_EVERY};
use super::super::mirrors::Hosted;
use super::super::talk::{next, say};
use super::{Acts, Host, State, Yielding, lock, of_ha};
use crate::host::{draw, this_process};

impl Acts {
    /// Returns true if the homes of the cluster lie where all nodes reach them.
    pub fn share_homes(&self) -> bool {
        self.nodes.share_homes()
    }
    /// Stops answering for a home that has a new term, with this node as its host: others may have had it in between.
    pub(super) fn stop_former(&self, state: &mut State, entry: &Home) {
        let home = of_ha(entry.id);
        let is_former = state.hosted.get(&home).is_some_and(|hosted| hosted.term != entry.term);
        if self.share_homes() && is_former {
            if let Some(hosted) = state.hosted.remove(&home) {
                hosted.mirroring.set_lease(0);
            }
            if home != self.own() {
                self.let_go(home, false);
            }
        }
    }
    /// Another node has the home of this one: the daemon begins anew, and asks for it if this node is to have it.
    pub(super) fn leave_home(&self, wanted_host: NodeId) {
        self.daemon.host.fence();
        if wanted_host != self.me() || self.daemon.is_stopping() {
            return;
        }
        tracing::warn!(home = %self.own(), "another node has the home of this node by now: this daemon begins anew");
        if let Err(error) = location::note_away(&self.nodes.dir, true) {
            tracing::warn!(%error, "the pool will have to say where the home is");
        }
        self.daemon.restart();
    }
    /// Takes the home of this node up once the pool has confirmed, asked from now on, that nobody has opened it since this
    /// process did: between two views that this node saw, others may have been its host.
    pub(super) fn confirm_own(&self, state: &mut State, hosted: Hosted) {
        let home = hosted.home;
        if !state.opening.insert(home) {
            return;
        }
        let acts = Self { nodes: self.nodes.clone(), daemon: self.daemon.clone(), settings: self.settings };
        let run = move || acts.take_up_confirmed(hosted);
        if let Err(error) = std::thread::Builder::new().name("cenote-take-up".into()).spawn(run) {
            tracing::error!(%error, %home, "no thread to ask the pool whose the home is");
        }
    }
    fn take_up_confirmed(&self, mut hosted: Hosted) {
        let home = hosted.home;
        while !self.daemon.is_stopping() {
            if self.daemon.host.was_elsewhere() {
                self.nodes.watch.await_leases(home, hosted.term);
            }
            match self.daemon.host.confirm() {
                Ok(()) => {
                    let mut state = lock(&self.nodes.homes.state);
                    match state.term_of(self.me(), home) {
                        Some(term) if term == hosted.term => {
                            state.opening.remove(&home);
                            hosted.mirroring.set_lease(state.leased_ns);
                            state.hosted.insert(home, hosted);
                            return self.nodes.locks.serve(home, term);
                        }
                        Some(term) => hosted.term = term,
                        None => break, // the view that says so has had its consequences
                    }
                }
                Err(error) if self.daemon.host.lost().is_some() => {
                    tracing::warn!(%error, "this daemon begins anew");
                    self.daemon.restart();
                    break;
                }
                Err(error) => {
                    tracing::warn!(%error, %home, "the pool does not say whose the home is: nothing is answered for it");
                    std::thread::sleep(AGAIN_AFTER);
                }
            }
        }
        lock(&self.nodes.homes.state).opening.remove(&home);
    }
    /// Opens homes again that another process has taken, though the view names this node as their host.
    pub fn reopen_lost(&self) {
        for (home, host) in self.nodes.copies.all_hosted() {
            if let Some(error) = host.lost() {
                tracing::error!(%error, %home, "it is opened again");
                let mut state = lock(&self.nodes.homes.state);
                state.hosted.remove(&home);
                self.let_go(home, false);
                self.open_again(&mut state, home);
            }
        }
    }
    fn open_again(&self, state: &mut State, home: HomeId) {
        if let Some(term) = state.term_of(self.me(), home)
            && state.opening.insert(home)
        {
            self.take_over(home, term);
        }
    }
    /// Gives a home to the node that asks for it on this connection: everything goes into the pool, and into tiers that all
    /// nodes reach, before the view names the other node.
    pub fn give_shared(&self, connection: &mut TcpConnection, home: HomeId, to: NodeId) -> Result<()> {
        let Some(host) = self.nodes.copies.hosted(home) else {
            return Err(Error::new(ErrorKind::Conflict, format!("home {home}"))
                .because("this node does not have it, or it is its own")
                .try_next("see `cenote ha`"));
        };
        let yielding = self.begin_yielding(home, to)?;
        let begin = Instant::now();
        beating(connection, || flush(&host))??;
        // What came since is little. From now on nothing is told.
        yielding.freeze();
        beating(connection, || flush(&host))??;
        // Its bytes are in memory alone, and whoever decides believes that they are kept.
        if host.service.with_engine(|engine| engine.prepared_count())? > 0 {
            return Err(Error::new(ErrorKind::Busy, format!("home {home}"))
                .because("a transaction over several homes is prepared there")
                .try_next("it is tried again by itself"));
        }
        let closed = self.close_and_hand_over(yielding, &host);
        let took_ms = begin.elapsed().as_millis() as u64;
        closed.inspect(|()| tracing::info!(%home, to = to.0, took_ms, "a home is given back"))?;
        say(connection, &NodeMessage::Yielded { home })?;
        connection.turn().map(drop)
    }
    fn close_and_hand_over(&self, yielding: Yielding<'_>, host: &Host) -> Result<()> {
        let (home, to) = (yielding.home, yielding.to);
        {
            let mut state = lock(&self.nodes.homes.state);
            if !state.opening.insert(home) {
                return Err(Error::new(ErrorKind::Busy, format!("home {home}")).because("it is being opened"));
            }
            state.hosted.remove(&home); // no lease any more
            drop(self.nodes.copies.let_go(home, false));
        }
        self.nodes.locks.let_go(home);
        host.fence();
        let given = host.close().and_then(|()| self.hand_over(home, to));
        drop(yielding);
        let mut state = lock(&self.nodes.homes.state);
        state.opening.remove(&home);
        // Unless another node has it by now, it goes on here: its memory is what it was.
        self.open_again(&mut state, home);
        drop(state);
        self.nodes.copies.clear_shared(home);
        given
    }
}

/// Works on another thread while the other end of a connection is told that this one lives. Fails if it has gone.
fn beating<T: Send>(connection: &mut TcpConnection, work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(work);
        let (mut beat_at, mut is_there) = (Instant::now(), Ok(()));
        while !thread.is_finished() {
            if is_there.is_ok() {
                if beat_at.elapsed() > BEAT_EVERY {
                    beat_at = Instant::now();
                    connection.endpoint().beat();
                }
                is_there = connection.turn().and_then(|_| next(connection, &mut Instant::now()).map(drop));
            }
            std::thread::sleep(LOOK_EVERY.min(Duration::from_millis(5)));
        }
        is_there?;
        thread.join().map_err(|_| Error::new(ErrorKind::Internal, "a thread that flushes a home"))
    })
}

/// Has everything that was acknowledged survive the loss of this node's memory.
fn flush(host: &Host) -> Result<()> {
    let service = &host.service;
    let session = service.session_open(&this_process(u128::from(draw()?) << 64 | u128::from(draw()?), true))?;
    let answer = service.call(session, 1, Request::Flush { target: FlushTarget::Store });
    service.session_close(session);
    match answer {
        Response::Failed(error) => Err(error),
        _ => Ok(()),
    }
}
