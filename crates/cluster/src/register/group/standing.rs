//! Members that stand for election once the leader's daemon is known to be gone, instead of when its lease is over.
//!
//! `openraft` waits for the leader's lease (`election_timeout_max`) and an election time-out after it. A machine that refuses
//! connections tells sooner that the daemon is down. Votes are refused during the lease, so each member has to find out for
//! itself: standing ends what it grants the former leader. Only liveness depends on it: a leader needs the votes of a majority as
//! ever, and a read is confirmed by a majority. A member that is wrong costs an election.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cenote_model::{NodeId, Result};
use openraft::Raft;
use openraft::raft::{VoteRequest, VoteResponse};
use parking_lot::Mutex;

use super::super::Stamp;
use super::types::Types;

/// Elections after one doubt at most: `openraft` holds more by itself.
const ELECTIONS_MAX: u32 = 4;

/// Carries a message to another node that keeps the register, and brings the answer.
pub trait Carry: Send + Sync {
    /// The answer, within the time. Any error counts as no answer.
    fn carry(&self, to: NodeId, message: Vec<u8>, timeout: Duration) -> Result<Vec<u8>>;
    /// Whether the machine of a node is there and refuses connections: its daemon is down. False if nobody knows.
    fn refuses(&self, node: NodeId) -> bool;
}

/// What a member has noticed of the others. See the module.
pub struct Standing {
    /// How long nothing is heard of a leader that has gone, or of an election that came to nothing.
    quiet: Duration,
    noticed: Mutex<Noticed>,
    /// A doubt is being looked into.
    is_busy: AtomicBool,
}

#[derive(Default)]
struct Noticed {
    /// The leader that was heard last, and when.
    leader: Option<(u64, Instant)>,
    /// When this member voted for another one.
    voted: Option<Instant>,
    /// Another one has entries that this one lacks, so it would not be elected.
    is_behind: bool,
}

impl Standing {
    /// Nothing yet. A leader is heard more often than every `quiet`.
    pub fn new(quiet: Duration) -> Self {
        Self { quiet, noticed: Mutex::default(), is_busy: AtomicBool::new(false) }
    }
    /// A leader has sent something, which was taken.
    pub fn heard(&self, leader: u64) {
        let mut noticed = self.noticed.lock();
        noticed.leader = Some((leader, Instant::now()));
        noticed.is_behind = false;
    }
    /// This member has voted for another one.
    pub fn voted(&self) {
        self.noticed.lock().voted = Some(Instant::now());
    }
    /// Takes in the answer of another member to a request for its vote. Returns true if it may be another one soon: the member
    /// still grants a former leader its lease.
    pub fn is_early(&self, asked: &VoteRequest<u64>, answer: &VoteResponse<u64>) -> bool {
        let is_behind = answer.last_log_id > asked.last_log_id;
        if is_behind {
            self.noticed.lock().is_behind = true;
        }
        !answer.vote_granted && !is_behind && answer.vote < asked.vote
    }
    /// Returns true if a leader was heard a moment ago.
    pub fn hears(&self, leader: u64) -> bool {
        !self.rest(leader).is_zero()
    }
    /// How long it takes until the leader, and whoever stands, has been quiet for long enough.
    fn rest(&self, leader: u64) -> Duration {
        let noticed = self.noticed.lock();
        let heard = noticed.leader.filter(|(heard, _)| *heard == leader).map(|(_, at)| at);
        let last = heard.max(noticed.voted);
        last.map_or(Duration::ZERO, |at| self.quiet.saturating_sub(at.elapsed()))
    }
    /// Looks into a doubt that the leader is there, unless that is being done: until another one leads, this one is heard, or its
    /// machine is not known to refuse connections.
    pub async fn doubt(&self, raft: &Raft<Types>, carry: &Arc<dyn Carry>, leader: u64) {
        if self.is_busy.swap(true, Ordering::SeqCst) {
            return;
        }
        for _ in 0..ELECTIONS_MAX {
            tokio::time::sleep(self.rest(leader)).await;
            let is_replaced = raft.current_leader().await.is_some_and(|leads| leads != leader);
            if is_replaced || !refuses(carry, leader).await {
                break;
            }
            // A member that has meanwhile heard or voted waits for what comes of it.
            let may_stand = self.rest(leader).is_zero() && !self.noticed.lock().is_behind;
            if may_stand && raft.trigger().elect().await.is_err() {
                break; // it has stopped
            }
            tokio::time::sleep(self.pause()).await;
        }
        self.is_busy.store(false, Ordering::SeqCst);
    }
    /// Until the next election: another time each, so that members do not stand against each other again and again.
    fn pause(&self) -> Duration {
        let drawn = Stamp::draw().map_or(0, |stamp| stamp.0 as u32 % 1024);
        self.quiet + self.quiet * drawn / 1024
    }
}

/// Whether a member's machine is there and its daemon is not.
async fn refuses(carry: &Arc<dyn Carry>, member: u64) -> bool {
    let carry = carry.clone();
    tokio::task::spawn_blocking(move || carry.refuses(NodeId(member as u16))).await.unwrap_or(false)
}
