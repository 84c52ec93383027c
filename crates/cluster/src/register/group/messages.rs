//! What members of the group say to each other. Whoever carries the bytes knows nothing of them.

use std::sync::Arc;
use std::time::Duration;

use cenote_model::{Error, ErrorKind, NodeId, Result};
use openraft::error::{Fatal, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::{EmptyNode, OptionalSend, Snapshot, SnapshotMeta, Vote};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::standing::{Carry, Standing};
use super::types::{Blob, Change, State, Types};

/// First byte of each message.
const VERSION: u8 = 5;
/// How long after a failure a member is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// A message to a member.
#[derive(Serialize, Deserialize)]
pub enum Message {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<u64>),
    Snapshot(Vote<u64>, SnapshotMeta<u64, EmptyNode>, State),
    /// To the leader: the record.
    Read,
    /// To the leader.
    Change(Change),
}

/// What the leader answers to a client.
#[derive(Serialize, Deserialize)]
pub enum Told {
    /// The record.
    Record(Option<Blob>),
    /// Whether the record is now the one of the change.
    Changed(bool),
    /// It is not the leader, or no longer.
    Elsewhere,
}

/// The bytes of a message or an answer.
pub fn encode<T: Serialize>(what: &T) -> Result<Vec<u8>> {
    let mut out = vec![VERSION];
    serde_json::to_writer(&mut out, what).map_err(|error| wrong(error.to_string()))?;
    Ok(out)
}

/// Reads the bytes of a message or an answer.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match bytes.split_first() {
        Some((&VERSION, body)) => serde_json::from_slice(body).map_err(|error| wrong(error.to_string())),
        Some((version, _)) => Err(Error::new(ErrorKind::VersionMismatch, SUBJECT)
            .because(format!("it has version {version}, this program reads {VERSION}"))
            .try_next("run the same version of Cenote on all nodes")),
        None => Err(wrong("it is empty".into())),
    }
}

const SUBJECT: &str = "a message about the register";

#[cold]
fn wrong(why: String) -> Error {
    Error::new(ErrorKind::InvalidInput, SUBJECT).because(why)
}

/// Makes the ways to the other members.
pub struct Ways(pub Arc<dyn Carry>, pub Arc<Standing>);

/// The way to one of them.
pub struct Peer {
    carry: Arc<dyn Carry>,
    standing: Arc<Standing>,
    to: NodeId,
}

impl RaftNetworkFactory<Types> for Ways {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, _: &EmptyNode) -> Peer {
        Peer { carry: self.0.clone(), standing: self.1.clone(), to: NodeId(target as u16) }
    }
}

impl Peer {
    async fn ask<T: DeserializeOwned>(&self, message: Message, option: &RPCOption) -> Result<T, Unreachable> {
        ask(&self.carry, self.to, &message, option.hard_ttl()).await.map_err(|error| Unreachable::new(&error))
    }
}

/// Asks another member, on a thread that may wait.
pub async fn ask<T: DeserializeOwned>(
    carry: &Arc<dyn Carry>,
    to: NodeId,
    message: &Message,
    timeout: Duration,
) -> Result<T> {
    let (carry, bytes) = (carry.clone(), encode(message)?);
    let carried = tokio::task::spawn_blocking(move || carry.carry(to, bytes, timeout)).await;
    let answer = carried.map_err(|error| Error::new(ErrorKind::Internal, SUBJECT).because(error.to_string()))??;
    decode::<Result<T, String>>(&answer)?
        .map_err(|why| Error::new(ErrorKind::Disconnected, format!("node {}", to.0)).because(why))
}

type Call<T> = std::result::Result<T, RPCError<u64, EmptyNode, RaftError<u64>>>;

impl RaftNetwork<Types> for Peer {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Call<AppendEntriesResponse<u64>> {
        Ok(self.ask(Message::Append(rpc), &option).await?)
    }
    async fn vote(&mut self, rpc: VoteRequest<u64>, option: RPCOption) -> Call<VoteResponse<u64>> {
        // Others may be starting, or about to find out that the leader is gone: the next election is far.
        let until = tokio::time::Instant::now() + option.hard_ttl();
        loop {
            let answer: std::result::Result<VoteResponse<u64>, _> = self.ask(Message::Vote(rpc.clone()), &option).await;
            let may_change = answer.as_ref().map_or(true, |answer| self.standing.is_early(&rpc, answer));
            if !may_change || tokio::time::Instant::now() + AGAIN_AFTER >= until {
                return Ok(answer?);
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }
    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<Types>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> std::result::Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        // It is one message, which takes as long as another: nothing to cancel.
        Ok(self.ask(Message::Snapshot(vote, snapshot.meta, *snapshot.snapshot), &option).await?)
    }
    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(AGAIN_AFTER))
    }
}
