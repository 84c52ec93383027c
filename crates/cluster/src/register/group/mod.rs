//! A register that some nodes of the cluster keep together: it lasts as long as most of them are there.
//!
//! They agree by Raft (Ongaro and Ousterhout 2014), which is `openraft`'s: an odd number of members, each with a file of its own
//! ([`disk`]). The log has swaps, and the state is the record. Reads ask the leader, which makes sure first that it still is
//! one: a majority has answered since the read began.
//!
//! A member that has lost its file takes no part any more: it could vote twice. A file imports only files before it in this
//! order: `types`, `disk`, `storage`, `rounds`, `standing`, `messages`, this.

mod disk;
mod messages;
mod rounds;
mod standing;
mod storage;
#[cfg(test)]
mod tests;
mod types;

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, NodeId, Result};
use openraft::error::{CheckIsLeaderError, Fatal, RaftError};
use openraft::raft::AppendEntriesResponse;
use openraft::{Config, Raft, Snapshot, SnapshotPolicy};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::cell::{Cell, Stored};
use super::{Stamp, away};
use disk::Disk;
pub use disk::{GROUP_FILE, GROUP_LOCK_FILE};
use messages::{Message, Told, Ways, ask, decode, encode};
use rounds::Rounds;
pub use standing::Carry;
use standing::Standing;
use storage::{Machine, over};
use types::{Blob, Change, Guard, Types};

/// A leader tells the others this many times in the shortest election time-out that it is one; a call waits as long.
const BEATS: u32 = 2;
/// A leader that has said nothing is left alone for so many hundredths of the shortest election time-out; then members stand
/// after a time-out that is random between one and so many hundredths of the shortest one. A vote that is split costs little: of
/// two candidates of one term the one with the greater number wins.
const LEASE_PERCENT: u32 = 120;
/// Entries after which a snapshot replaces the log, and entries that are kept for members that are late.
const SNAPSHOT_AFTER: u64 = 32;
const ENTRIES_KEPT: u64 = 8;
/// How long a member waits for the leader that it asks for another one.
const RELAY: Duration = Duration::from_secs(1);
/// Pause before a leader is looked for again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Threads that wait for other members at most.
const WAITING_MAX: usize = 32;

/// Times of the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupTimes {
    /// The shortest election time-out. A member that has heard nothing of a leader for some more than twice as long stands for
    /// election; sooner, if the leader's machine refuses connections.
    pub silence: Duration,
    /// How long a call takes at most.
    pub patience: Duration,
}

/// A member of the group. See the module.
pub struct GroupRegister {
    me: NodeId,
    others: Vec<NodeId>,
    part: Part,
    patience: Duration,
    subject: String,
    /// True once the node stops: reads are not waited for any more.
    over: watch::Sender<bool>,
    /// Last: what runs on it ends before.
    runtime: Option<Runtime>,
}

/// What a member answers from; clones are the same one.
#[derive(Clone)]
struct Part {
    raft: Raft<Types>,
    machine: Machine,
    standing: Arc<Standing>,
    carry: Arc<dyn Carry>,
    /// Confirmations that this member still leads, of which several reads share one.
    confirmed: Arc<Rounds<Result<bool>>>,
}

/// Why there is no answer yet.
enum Hitch {
    /// No leader is known, or the one that was asked is none, or does not answer. True: it may have carried out what was asked.
    NoLeader(bool),
    Failed(Error),
}

impl GroupRegister {
    /// Prepares the directory of a node that is to be a member. Only when the cluster is made; a second call changes nothing.
    pub fn make(dir: &Path) -> Result<()> {
        Disk::make(dir)
    }
    /// The member `me` of a group, with its file in this directory. `NotFound` if that is lost.
    pub fn open(dir: &Path, me: NodeId, group: &[NodeId], times: GroupTimes, carry: Arc<dyn Carry>) -> Result<Self> {
        let names: Vec<String> = group.iter().map(|node| node.0.to_string()).collect();
        let subject = format!("the register that nodes {} keep", names.join(", "));
        let (log, machine) = over(Disk::open(dir)?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(WAITING_MAX)
            .thread_name("cenote-group")
            .enable_time()
            .build()
            .map_err(|error| Error::io("threads for the register", &error))?;
        let config = Arc::new(config(times).map_err(|error| internal(&subject, error.as_ref()))?);
        let members: BTreeSet<u64> = group.iter().map(|node| u64::from(node.0)).collect();
        let standing = Arc::new(Standing::new(times.silence * 3 / 5));
        let begin = async {
            let ways = Ways(carry.clone(), standing.clone());
            let raft = Raft::new(u64::from(me.0), config, ways, log, machine.clone()).await?;
            // If all began at once, they would stand against each other.
            if group.first() == Some(&me) {
                initialize(&raft, members).await?;
            } else {
                let (raft, patience) = (raft.clone(), times.silence);
                tokio::spawn(async move {
                    tokio::time::sleep(patience).await;
                    let _ = initialize(&raft, members).await; // a member that has stopped says so with each call
                });
            }
            Ok(raft)
        };
        let raft = runtime.block_on(begin).map_err(|error: Fatal<u64>| internal(&subject, &error))?;
        let part = Part { raft, machine, standing, carry, confirmed: Arc::default() };
        let others = group.iter().copied().filter(|node| *node != me).collect();
        Ok(Self {
            me,
            others,
            part,
            patience: times.patience,
            subject,
            over: watch::Sender::new(false),
            runtime: Some(runtime),
        })
    }
    /// The node stops: reads that wait for an answer fail, as do those to come. The members may be stopped all at once, so that
    /// nobody would answer.
    pub fn end(&self) {
        self.over.send_replace(true);
    }
    /// Answers a message of another member; `done` gets the answer, on another thread.
    pub fn answer(&self, message: Vec<u8>, done: impl FnOnce(Vec<u8>) + Send + 'static) {
        let part = self.part.clone();
        if let Some(runtime) = &self.runtime {
            runtime.spawn(async move {
                let answer = match decode(&message) {
                    Ok(message) => part.answer_to(message).await,
                    Err(error) => Err(error),
                };
                let said = answer.or_else(|error| encode(&Err::<(), String>(error.to_string())));
                done(said.unwrap_or_default());
            });
        }
    }
    /// Asks the leader, by itself or by way of another member, until it has answered or patience ends. Fails with whether the
    /// request may have been, or may yet be, carried out.
    fn until_told(&self, message: &Message) -> Result<Told, (bool, Error)> {
        let Some(runtime) = &self.runtime else { return Err((false, self.away("it has ended"))) };
        let until = Instant::now() + self.patience;
        let mut may_happen = false;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let asked = async {
                let mut over = self.over.subscribe();
                let asked = self.ask_leader_or_others(message, left);
                if matches!(message, Message::Read) {
                    unless(asked, over.wait_for(|over| *over)).await
                } else {
                    Some(asked.await)
                }
            };
            let Some(told) = runtime.block_on(asked) else { return Err((false, self.away("this node stops"))) };
            match told {
                Ok(told) => return Ok(told),
                // A member that stops may have passed it on before.
                Err(Hitch::Failed(error)) => return Err((true, error)),
                Err(Hitch::NoLeader(may)) => may_happen |= may,
            }
            if until.saturating_duration_since(Instant::now()) <= AGAIN_AFTER {
                return Err((may_happen, self.away("most of them do not answer each other")));
            }
            std::thread::sleep(AGAIN_AFTER);
        }
    }
    /// Asks the leader; if it cannot be reached from here, the other members ask it for this one. A link that is cut between two
    /// nodes keeps neither of them from the register.
    async fn ask_leader_or_others(&self, message: &Message, left: Duration) -> Result<Told, Hitch> {
        let mut may_happen = match self.ask_leader(message, left).await {
            Err(Hitch::NoLeader(may)) => may,
            told => return told,
        };
        let relayed = Message::Relay(Box::new(message.clone()));
        let leader = self.part.raft.current_leader().await;
        for other in self.others.iter().filter(|other| Some(u64::from(other.0)) != leader) {
            match ask(&self.part.carry, *other, &relayed, left / 4).await {
                Ok(Told::Elsewhere) => {}
                Ok(told) => return Ok(told),
                Err(_) => may_happen = true,
            }
        }
        Err(Hitch::NoLeader(may_happen))
    }
    async fn ask_leader(&self, message: &Message, left: Duration) -> Result<Told, Hitch> {
        let Some(leader) = self.part.raft.current_leader().await else { return Err(Hitch::NoLeader(false)) };
        let told = if leader == u64::from(self.me.0) {
            let served = tokio::time::timeout(left, self.part.serve(message)).await;
            served.map_err(|_| Hitch::NoLeader(true))?.map_err(Hitch::Failed)?
        } else {
            // One that has died must not take all the time.
            let asked = ask(&self.part.carry, NodeId(leader as u16), message, left / 3).await;
            asked.map_err(|_| {
                self.doubt(leader);
                Hitch::NoLeader(true)
            })?
        };
        if matches!(told, Told::Elsewhere) { Err(Hitch::NoLeader(true)) } else { Ok(told) }
    }
    /// Looks into it, meanwhile, whether a leader that has not answered is gone.
    fn doubt(&self, leader: u64) {
        let part = self.part.clone();
        if let Some(runtime) = &self.runtime {
            runtime.spawn(async move { part.standing.doubt(&part.raft, &part.carry, leader).await });
        }
    }
    #[cold]
    fn away(&self, why: &str) -> Error {
        away(self.subject.clone(), why, "bring most of these nodes back; the register works again by itself then")
    }
}

impl Drop for GroupRegister {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            let _ = runtime.block_on(async { tokio::time::timeout(self.patience, self.part.raft.shutdown()).await });
            runtime.shutdown_background();
        }
    }
}

/// What comes of the first, unless the second ends before.
async fn unless<T>(first: impl Future<Output = T>, second: impl Future) -> Option<T> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|context| {
        if second.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        first.as_mut().poll(context).map(Some)
    })
    .await
}

/// Begins the group, unless it has begun.
async fn initialize(raft: &Raft<Types>, members: BTreeSet<u64>) -> Result<(), Fatal<u64>> {
    match raft.initialize(members).await {
        Ok(()) | Err(RaftError::APIError(_)) => Ok(()),
        Err(RaftError::Fatal(fatal)) => Err(fatal),
    }
}

fn config(times: GroupTimes) -> Result<Config, Box<openraft::ConfigError>> {
    let silence = times.silence.as_millis() as u64;
    let config = Config {
        cluster_name: "register".into(),
        heartbeat_interval: silence / u64::from(BEATS),
        election_timeout_min: silence,
        election_timeout_max: silence * u64::from(LEASE_PERCENT) / 100,
        install_snapshot_timeout: times.patience.as_millis() as u64,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_AFTER),
        max_in_snapshot_log_to_keep: ENTRIES_KEPT,
        max_payload_entries: ENTRIES_KEPT,
        ..Config::default()
    };
    config.validate().map_err(Box::new)
}

#[cold]
fn internal(subject: &str, error: &dyn std::error::Error) -> Error {
    Error::new(ErrorKind::Io, subject)
        .because(error.to_string())
        .try_next("restart this node's daemon; the other nodes go on without it meanwhile")
}

#[cold]
fn stopped(fatal: &Fatal<u64>) -> Error {
    internal("the register on this node", fatal)
}

impl Part {
    /// What a client gets of a leader, if this member is one.
    async fn serve(&self, message: &Message) -> Result<Told> {
        match message {
            Message::Read => {
                let is_leader = self.confirmed.ask(|| self.confirm()).await?;
                let record = || self.machine.record().map(|(_, record)| record);
                Ok(if is_leader { Told::Record(record()) } else { Told::Elsewhere })
            }
            Message::Change(change) => match self.raft.client_write(change.clone()).await {
                Ok(written) => Ok(Told::Changed(written.data)),
                // It may be in the log all the same: another leader then decides.
                Err(RaftError::APIError(_)) => Ok(Told::Elsewhere),
                Err(RaftError::Fatal(fatal)) => Err(stopped(&fatal)),
            },
            Message::Append(_) | Message::Vote(_) | Message::Snapshot(..) | Message::Relay(_) => Ok(Told::Elsewhere),
        }
    }
    /// What the leader that this member knows says to a member that does not reach it. Fails if it does not answer: it may have
    /// done what was asked.
    async fn relay(&self, message: &Message) -> Result<Told> {
        match self.raft.current_leader().await {
            Some(leader) if leader == self.raft.metrics().borrow().id => self.serve(message).await,
            Some(leader) if self.standing.hears(leader) => {
                ask(&self.carry, NodeId(leader as u16), message, RELAY).await
            }
            _ => Ok(Told::Elsewhere),
        }
    }
    /// Makes sure that this member leads, and has what was committed before. False if it does not lead, or most others do not
    /// answer it.
    async fn confirm(&self) -> Result<bool> {
        match self.raft.ensure_linearizable().await {
            Ok(_) => Ok(true),
            Err(RaftError::APIError(
                CheckIsLeaderError::ForwardToLeader(_) | CheckIsLeaderError::QuorumNotEnough(_),
            )) => Ok(false),
            Err(RaftError::Fatal(fatal)) => Err(stopped(&fatal)),
        }
    }
    /// The answer to a message of another member.
    async fn answer_to(&self, message: Message) -> Result<Vec<u8>> {
        let said = |error: &dyn std::fmt::Display| error.to_string();
        match message {
            Message::Append(rpc) => {
                let leader = rpc.vote.leader_id().node_id;
                let answer = self.raft.append_entries(rpc).await;
                if !matches!(answer, Err(_) | Ok(AppendEntriesResponse::HigherVote(_))) {
                    self.standing.heard(leader);
                }
                encode(&answer.map_err(|error| said(&error)))
            }
            Message::Vote(rpc) => {
                let answer = self.raft.vote(rpc).await;
                if answer.as_ref().is_ok_and(|answer| answer.vote_granted) {
                    self.standing.voted();
                }
                encode(&answer.map_err(|error| said(&error)))
            }
            Message::Snapshot(vote, meta, state) => {
                let snapshot = Snapshot { meta, snapshot: Box::new(state) };
                encode(&self.raft.install_full_snapshot(vote, snapshot).await.map_err(|error| said(&error)))
            }
            Message::Relay(message) => encode(&self.relay(&message).await.map_err(|error| said(&error))),
            message @ (Message::Read | Message::Change(_)) => {
                encode(&self.serve(&message).await.map_err(|error| said(&error)))
            }
        }
    }
}

impl Cell for GroupRegister {
    fn subject(&self) -> String {
        self.subject.clone()
    }
    fn load(&self) -> Result<Option<Vec<u8>>> {
        match self.until_told(&Message::Read) {
            Ok(Told::Record(record)) => Ok(record.map(|Blob(bytes)| bytes)),
            Ok(_) => Err(self.away("the answer is to another question")),
            Err((_, error)) => Err(error),
        }
    }
    fn store(&self, seen: Option<Stamp>, stamp: Stamp, bytes: &[u8]) -> Stored {
        let change = Change { seen: seen.map(Guard), stamp: Guard(stamp), record: Blob(bytes.to_vec()) };
        match self.until_told(&Message::Change(change)) {
            Ok(Told::Changed(true)) => Stored::Done,
            Ok(Told::Changed(false)) => Stored::Other,
            Ok(_) => Stored::Unknown(self.away("the answer is to another question")),
            Err((true, error)) => Stored::Unknown(error),
            Err((false, error)) => Stored::Failed(error),
        }
    }
}
