//! What the homes that are open here say to other homes about transactions over both: a participant asks what became of
//! one, and the home that has decided tells the participants.
//!
//! Nothing is said that a successor of this host might not know: the mirrors have it first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, HomeId, Request, Response, Result, TransactionId};
use cenote_store::{Engine, Errand, SessionId, SessionInfo};

use super::super::Daemon;
use super::{Gateway, Nodes, loads, weights};
use crate::Host;
use crate::bell::Bell;
use crate::clients::Served;
use crate::host::{draw, this_process};
use crate::service::lock;

/// Interval at which homes are asked what they have to say, without a reason to do so sooner…
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// …and while one of their decisions is not on media, or its mirrors do not have it.
const LOOK_SOON: Duration = Duration::from_millis(5);
/// How long mirrors have for what is to be said.
const MIRRORED: Duration = Duration::from_secs(5);

/// What threads share; see the module.
#[derive(Default)]
pub(super) struct Errands {
    bell: Bell,
    /// The homes to which a thread is speaking.
    busy: Mutex<BTreeSet<HomeId>>,
    /// The sessions of this daemon with other homes.
    sessions: Mutex<BTreeMap<HomeId, SessionId>>,
    who: Mutex<Option<SessionInfo>>,
    asked: AtomicU64,
    /// The weights of users are being taken over from another node.
    weighs: AtomicBool,
}

impl Errands {
    /// What rings for errands.
    pub fn bell(self: &Arc<Self>) -> Box<dyn Fn() + Send + Sync> {
        let errands = self.clone();
        Box::new(move || errands.wake())
    }
    /// Has the thread look at once.
    pub fn wake(&self) {
        self.bell.ring();
    }
    /// Asks another home, in a session of this daemon.
    pub(super) fn ask(&self, gateway: &Gateway, request: Request) -> Result<Response> {
        gateway.reach()?;
        let home = gateway.home();
        let known = lock(&self.sessions).get(&home).copied();
        let session = if let Some(session) = known {
            session
        } else {
            let session = gateway.session_open(&self.who()?)?;
            lock(&self.sessions).insert(home, session);
            session
        };
        // Not a number for exactly-once: what is asked can be repeated.
        let number = 1 << 60 | self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = gateway.carry_out(session, number, request);
        match answer {
            Ok(Some(Response::Failed(error))) if error.kind() != ErrorKind::Disconnected => Err(error),
            Ok(Some(Response::Failed(error))) | Err(error) => {
                lock(&self.sessions).remove(&home);
                Err(error)
            }
            Ok(None) => Err(Error::new(ErrorKind::Disconnected, format!("home {home}"))),
            Ok(Some(response)) => Ok(response),
        }
    }
    /// What says that weights are being taken over.
    pub(super) fn weighs(&self) -> &AtomicBool {
        &self.weighs
    }
    fn who(&self) -> Result<SessionInfo> {
        let mut who = lock(&self.who);
        if who.is_none() {
            *who = Some(this_process(u128::from(draw()?) << 64 | u128::from(draw()?), true));
        }
        who.clone().ok_or_else(|| Error::new(ErrorKind::Internal, "a session of the daemon"))
    }
}

/// Runs the errands of all homes that are open here, until the daemon stops.
pub(super) fn run(nodes: &Arc<Nodes>, daemon: &Arc<Daemon>) {
    while !daemon.is_stopping() {
        let mut patience = LOOK_EVERY;
        let copies = nodes.copies.all_hosted();
        let own = (nodes.home, daemon.host.clone());
        let mut acting = Vec::new();
        for (home, host) in std::iter::once(own).chain(copies).filter(|(_, host)| may_act(host)) {
            if look(nodes, daemon, home, &host) {
                patience = LOOK_SOON;
            }
            acting.push((home, host));
        }
        loads::look(nodes, &acting);
        weights::look(nodes, daemon, acting.into_iter().map(|(_, host)| host).collect());
        nodes.errands.bell.wait(patience);
    }
}

fn may_act(host: &Host) -> bool {
    host.mirroring.as_ref().is_none_or(|mirroring| mirroring.may_act())
}

/// Begins the errands of a home. Returns true if there may be more soon.
fn look(nodes: &Arc<Nodes>, daemon: &Arc<Daemon>, home: HomeId, host: &Arc<Host>) -> bool {
    let Ok((all, has_more)) = host.service.with_engine(|engine| (engine.errands(), engine.has_decisions())) else {
        return false;
    };
    let mut by_home: BTreeMap<HomeId, Vec<Errand>> = BTreeMap::new();
    for errand in all {
        by_home.entry(errand.to()).or_default().push(errand);
    }
    let is_empty = by_home.is_empty();
    for (to, errands) in by_home {
        if !lock(&nodes.errands.busy).insert(to) {
            continue; // it is being spoken to, or does not answer
        }
        let (nodes_too, daemon, host) = (nodes.clone(), daemon.clone(), host.clone());
        let speak = move || {
            let done = errands.into_iter().try_for_each(|errand| say(&nodes_too, &daemon, &host, errand));
            lock(&nodes_too.errands.busy).remove(&to);
            match done {
                Ok(()) => nodes_too.errands.wake(),
                Err(error) => tracing::debug!(%home, %to, %error, "a transaction over both waits"),
            }
        };
        if std::thread::Builder::new().name("cenote-errand".into()).spawn(speak).is_err() {
            lock(&nodes.errands.busy).remove(&to);
        }
    }
    has_more && is_empty
}

fn say(nodes: &Nodes, daemon: &Daemon, host: &Host, errand: Errand) -> Result<()> {
    wait_until_mirrored(daemon, host)?;
    match errand {
        // What it has decided is lost with it: its part was in it, and no part that is held elsewhere may wait for ever.
        Errand::Ask(transaction) if nodes.lost(transaction.home).is_some() => {
            tracing::warn!(%transaction, "a transaction is given up: the home that decides it is lost");
            settle(daemon, host, transaction, false)
        }
        Errand::Ask(transaction) => {
            let asked = Request::Ask { transaction, tell: Vec::new() };
            let answer = match nodes.served(daemon, transaction.home) {
                Some(other) => at(daemon, &other, |engine| engine.ask(transaction, &[]))?,
                None => nodes.errands.ask(&*nodes.gateway(transaction.home)?, asked)?,
            };
            let Response::Decided(commits) = answer else { return Ok(()) };
            tracing::info!(%transaction, commits, "a transaction that its program left behind is settled");
            settle(daemon, host, transaction, commits)
        }
        Errand::Tell { transaction, participant, commits } => {
            if nodes.lost(participant).is_some() {
                tracing::warn!(%transaction, commits, home = %participant, "the part of a home that is lost is lost");
            } else if let Some(other) = nodes.served(daemon, participant) {
                settle(daemon, &other, transaction, commits)?;
            } else {
                let request = Request::Settle { transaction, commits };
                nodes.errands.ask(&*nodes.gateway(participant)?, request)?;
            }
            at(daemon, host, |engine| engine.forget(transaction, participant)).map(drop)
        }
    }
}

fn settle(daemon: &Daemon, host: &Host, transaction: TransactionId, commits: bool) -> Result<()> {
    let answer = at(daemon, host, |engine| engine.settle_part(transaction, commits));
    if let Some(words) = host.service.words.get() {
        words.settled(transaction);
    }
    answer.map(drop)
}

/// Has the engine of a home that is open here do something, and waits until its mirrors have that.
pub(super) fn at(
    daemon: &Daemon,
    host: &Host,
    ask: impl FnOnce(&mut Engine) -> cenote_store::Outcome,
) -> Result<Response> {
    let answer = host.service.at_engine(0, ask).ok_or_else(crate::service::closed)?;
    wait_until_mirrored(daemon, host)?;
    match answer {
        Response::Failed(error) => Err(error),
        other => Ok(other),
    }
}

/// Waits until the mirrors have all that the home has done, and this node may act for it.
fn wait_until_mirrored(daemon: &Daemon, host: &Host) -> Result<()> {
    let Some(mirroring) = &host.mirroring else { return Ok(()) };
    let (after, begin) = (mirroring.stream.end(), Instant::now());
    while !mirroring.may_tell(after) {
        if daemon.is_stopping() || begin.elapsed() >= MIRRORED {
            return Err(
                Error::new(ErrorKind::Busy, format!("home {}", host.summary.home)).because("its mirrors are behind")
            );
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
