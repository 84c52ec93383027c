//! Homes that this node takes over: opened from the copy here, or from the pool that all nodes reach, then served.

use std::time::Instant;

use cenote_model::{Error, ErrorKind, HomeId, Result};

use super::super::handover::AGAIN_AFTER;
use super::{Acts, Arc, Homes, Host, lock};

impl Homes {
    /// Why homes of which this node is the host are not open here; empty if all are.
    pub fn trouble(&self) -> String {
        let state = lock(&self.state);
        let said = state.unopened.iter().map(|(home, why)| format!("home {home} cannot be opened here: {why}"));
        said.collect::<Vec<_>>().join("\n  ")
    }
}

impl Acts {
    /// Opens a home from the copy here, on a thread of its own, and serves it once its former host has stopped by itself.
    pub(super) fn take_over(&self, home: HomeId, term: u64) {
        let (nodes, daemon, told) = (self.nodes.clone(), self.daemon.clone(), Instant::now());
        let acts = Self { nodes, daemon, settings: self.settings };
        let run = move || {
            tracing::info!(%home, term, "this node takes a home over");
            let opened = acts.open_home(home, term);
            acts.nodes.watch.await_leases(home, term);
            let mut state = lock(&acts.nodes.homes.state);
            state.opening.remove(&home);
            match (opened, state.term_of(acts.me(), home)) {
                (Ok(host), Some(now)) if now == term => {
                    state.hosted.extend(Self::hosted(home, term, &host).map(|hosted| (home, hosted)));
                    acts.listen_to(&host);
                    acts.nodes.tell_words_of(&host);
                    acts.nodes.read_twins_of(&host);
                    // Nothing is told before its mirrors count. The lease is one of the node, for all its homes.
                    host.mirroring.iter().for_each(|mirroring| mirroring.set_lease(0));
                    acts.require(&mut state);
                    host.mirroring.iter().for_each(|mirroring| mirroring.set_lease(state.leased_ns));
                    acts.nodes.losses.forget(home);
                    acts.nodes.locks.serve(home, term);
                    acts.nodes.copies.serve(home, host);
                    acts.nodes.outbox.wake(); // connections wait for it
                    let took_ms = told.elapsed().as_millis() as u64;
                    tracing::info!(%home, term, took_ms, "this node is the host of a home");
                }
                // Another node was the host in between: its changes, and its lease, count.
                (Ok(_), Some(now)) => {
                    tracing::warn!(%home, term, now, "another term began while a home was opened");
                    acts.nodes.copies.give_up(home);
                    if state.opening.insert(home) {
                        drop(state);
                        acts.take_over(home, now);
                    }
                }
                (Ok(_), None) => {
                    acts.nodes.copies.give_up(home);
                    tracing::warn!(%home, term, "another view came while a home was opened");
                }
                (Err(error), _) => tracing::error!(%error, %home, term, "a home could not be taken over"),
            }
        };
        if let Err(error) = std::thread::Builder::new().name("cenote-take-over".into()).spawn(run) {
            tracing::error!(%error, %home, "no thread to take a home over");
        }
    }
    /// Opens a home of which this node is the host; tries until it is open, or another node is to have it.
    fn open_home(&self, home: HomeId, term: u64) -> Result<Arc<Host>> {
        loop {
            let opened = self.nodes.copies.open_home(home, term);
            if let Err(error) = &opened
                && !self.share_homes()
                && is_no_copy(error)
            {
                self.nodes.losses.note(home); // whoever has more takes it over
            }
            let is_due = self.opens(home, term);
            let mut state = lock(&self.nodes.homes.state);
            match opened {
                Err(error) if is_due && !self.daemon.is_stopping() => {
                    let why = error.to_string();
                    if state.unopened.insert(home, why.clone()).is_none_or(|before| before != why) {
                        tracing::error!(%error, %home, term, "a home could not be opened, and is tried again");
                    }
                }
                opened => {
                    state.unopened.remove(&home);
                    return opened;
                }
            }
            drop(state);
            std::thread::sleep(AGAIN_AFTER);
        }
    }
    /// Returns true if this node is still to open a home in that term: no mirror has more of it.
    fn opens(&self, home: HomeId, term: u64) -> bool {
        let is_lost = self.nodes.losses.has(home);
        let state = lock(&self.nodes.homes.state);
        state.term_of(self.me(), home) == Some(term) && !(is_lost && state.has_mirrors(home))
    }
}

/// Returns true if what this node has of a home cannot become the home.
fn is_no_copy(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt)
}
