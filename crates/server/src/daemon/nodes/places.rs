//! Places of tiers with a layout (`kind=raid`) on nodes: the hosts of homes on this node ask other nodes for the parts that
//! lie there, and this node keeps parts in its own directory for other hosts.
//!
//! A node answers who is the host of the home in the view that it knows, so a host that another one has replaced changes
//! nothing. It also stops by itself: it asks nothing once its lease is over, and nobody replaces it before.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use cenote_cluster::{Member, Members};
use cenote_device::control::boot_ns;
use cenote_device::object::raid::place::{away, id_of};
use cenote_device::object::raid::{DirectoryPlace, Look, Owner, Place, PlaceId, PlaceMaker};
use cenote_device::object::service::{Answer, Refusal};
use cenote_model::{Error, ErrorKind, HomeId, NodeId, Result};
use cenote_rpc::net::{Class, ClusterKey, Introduction, TcpConnection};
use cenote_wire::{Between, NodeMessage, PlaceAnswer, PlaceAsk, PlaceOf, decode_between, encode_piece};

use super::Nodes;
use super::roster::Roster;
use super::talk::{Kept, cause_of, encoded, say, silent, wait_for_one, wait_unless};
use super::watch::Watch;

/// The directory, in that of a node, with what it keeps for tiers.
pub const PARTS_DIR: &str = "parts";
/// Bytes of a piece: others get their turn in between.
const PIECE_BYTES: usize = 1 << 20;
/// A larger part than any tier has: whoever announces one is no host.
const PART_BYTES_MAX: u64 = 4 << 30;
const CONNECT: Duration = Duration::from_secs(2);
/// Time limit for an answer, and for the bytes that come with it.
const ANSWER: Duration = Duration::from_secs(10);
/// No disk is so slow: bytes that are stored in a second.
const SLOWEST: u64 = 8 << 20;
/// A connection that nobody uses ends after this.
const IDLE: Duration = Duration::from_secs(30);
/// Connections to a node that wait for the next question.
const FREE_MAX: usize = 8;

/// How places on nodes are reached, for the homes whose host this node is.
#[derive(Default)]
pub(in crate::daemon) struct Reach {
    node: OnceLock<Reaching>,
    /// Until when this node may act as a host.
    lease_ns: AtomicU64,
}

/// The node that asks.
pub(super) struct Reaching {
    pub dir: PathBuf,
    pub roster: Arc<Roster>,
    pub who: Introduction,
    pub key: ClusterKey,
    pub watch: Arc<Watch>,
}

impl Reach {
    /// Before this, all places are away.
    pub(super) fn begin(&self, node: Reaching) {
        let _ = self.node.set(node); // the same one
    }
    /// This node may act as a host until then.
    pub(super) fn lease(&self, until_ns: u64) {
        self.lease_ns.store(until_ns, Ordering::SeqCst);
    }
    /// Makes the places of the tiers of a home.
    pub fn maker(self: &Arc<Self>, home: HomeId) -> PlaceMaker {
        let reach = self.clone();
        PlaceMaker::new(move |owner, name, number| {
            let Some(node) = reach.node.get() else {
                return Err(Error::new(ErrorKind::Disconnected, format!("node `{name}`"))
                    .because("this node does not take part in its cluster yet")
                    .try_next("it is tried again by itself"));
            };
            let members = node.roster.get();
            let Some(to) = member_named(&members, name) else {
                let names: Vec<&str> = members.all.iter().map(|member| member.name.as_str()).collect();
                return Err(Error::new(ErrorKind::NotFound, format!("node `{name}`"))
                    .because(format!("the cluster has the nodes {}", names.join(", ")))
                    .try_next("name its nodes: `cenote cluster status DIR` shows them"));
            };
            let here = (to.home == members.home).then(|| kept_at(&node.dir, owner, number));
            let (reach, name) = (reach.clone(), name.to_owned());
            let kept = Kept::new(FREE_MAX, IDLE / 2);
            Ok(Arc::new(NodePlace { reach, home, name, owner, number, here, kept }))
        })
    }
}

/// The node of this name: one that takes part, if there is one. A host may have left and have joined again.
fn member_named<'a>(members: &'a Members, name: &str) -> Option<&'a Member> {
    let named = || members.all.iter().filter(|member| member.name == name);
    named().find(|member| !member.has_left).or_else(|| named().next())
}

/// The answer in the name of a node that has left: its parts are on other places, or lost.
fn of_left(ask: &PlaceAsk) -> PlaceAnswer {
    let refuse = |kind| PlaceAnswer::Refused {
        error: Error::new(kind, "a node").because("it has left the cluster"),
        again: false,
    };
    match ask {
        PlaceAsk::Look => PlaceAnswer::Looked { free_bytes: 0 },
        PlaceAsk::List { .. } => PlaceAnswer::Names { names: Vec::new() },
        PlaceAsk::Delete { .. } | PlaceAsk::Remove => PlaceAnswer::Done,
        PlaceAsk::Get { .. } => refuse(ErrorKind::NotFound),
        PlaceAsk::Put { .. } | PlaceAsk::Make => refuse(ErrorKind::Disconnected),
    }
}

/// A place that this node keeps.
fn kept_at(dir: &Path, owner: Owner, number: u16) -> DirectoryPlace {
    let name = format!("{}-{}-{number}", owner.store, owner.device.0);
    DirectoryPlace::new(dir.join(PARTS_DIR).join(name), owner, number)
}

/// A place on a node of the cluster.
struct NodePlace {
    reach: Arc<Reach>,
    home: HomeId,
    /// The node's name.
    name: String,
    owner: Owner,
    /// Its number in the tier, from 1.
    number: u16,
    /// If it is on this node.
    here: Option<DirectoryPlace>,
    kept: Kept,
}

impl NodePlace {
    fn ask(&self, ask: PlaceAsk, content: &[Bytes]) -> Answer<(PlaceAnswer, Bytes)> {
        let node = self.reach.node.get().ok_or_else(|| away("this node does not take part in its cluster yet"))?;
        let Some(term) = node.watch.term_of(self.home) else {
            return Err(away(format!("this node is not known to be the host of home {} now", self.home)));
        };
        let members = node.roster.get();
        if members.homes_move() && self.reach.lease_ns.load(Ordering::SeqCst) <= boot_ns() {
            return Err(away("this node has no lease: it may be cut off"));
        }
        let to = member_named(&members, &self.name).ok_or_else(|| away("it is no member any more"))?;
        let answer = match &self.here {
            Some(place) => carry_out(place, &ask, content),
            None if to.has_left => (of_left(&ask), Bytes::new()),
            None => self.ask_over_network(node, to, term, ask, content)?,
        };
        match answer {
            (PlaceAnswer::Refused { error, again }, _) => {
                let cause = format!("{}: {}", error.subject(), error.cause());
                Err(Refusal { kind: error.kind(), cause, again })
            }
            answer => Ok(answer),
        }
    }
    fn ask_over_network(
        &self,
        node: &Reaching,
        to: &Member,
        term: u64,
        ask: PlaceAsk,
        content: &[Bytes],
    ) -> Answer<(PlaceAnswer, Bytes)> {
        let is_over = || !node.watch.is_live(NodeId(to.home.0));
        if is_over() {
            return Err(away("the cluster goes on without this node (`cenote ha`)"));
        }
        let Owner { store, device } = self.owner;
        let of = PlaceOf { home: self.home, term, store, device, place: self.number };
        let question = encoded(&NodeMessage::AskPlace { of, ask });
        // One that was kept may have ended meanwhile. What was asked may be asked twice.
        if let Some(mut kept) = self.kept.take()
            && let Ok(answer) = converse(&mut kept, &question, content, &is_over)
        {
            self.kept.give_back(kept);
            return Ok(answer);
        }
        let lost = |error: Error| away(cause_of(&error));
        let mut connection = TcpConnection::connect(to.address, node.who, &node.key, CONNECT).map_err(lost)?;
        let answer = converse(&mut connection, &question, content, &is_over).map_err(lost)?;
        self.kept.give_back(connection);
        Ok(answer)
    }
    /// Returns true if a node of this name has left, and another one takes part.
    fn is_back(&self) -> bool {
        self.reach.node.get().is_some_and(|node| {
            let members = node.roster.get();
            let has = |left: bool| members.all.iter().any(|it| it.name == self.name && it.has_left == left);
            has(true) && has(false)
        })
    }
    fn done(&self, ask: PlaceAsk, content: &[Bytes]) -> Answer<()> {
        match self.ask(ask, content)? {
            (PlaceAnswer::Done, _) => Ok(()),
            _ => Err(out_of_turn()),
        }
    }
}

fn out_of_turn() -> Refusal {
    away("it gave another answer than was asked for")
}

impl Place for NodePlace {
    fn who(&self) -> String {
        format!("node `{}`", self.name)
    }
    fn id(&self) -> PlaceId {
        id_of(self.number)
    }
    fn leaves(&self) -> bool {
        self.reach.node.get().is_some_and(|node| {
            let members = node.roster.get();
            let to = member_named(&members, &self.name);
            to.is_some_and(|to| to.has_left || node.watch.is_leaving(NodeId(to.home.0)))
        })
    }
    fn look(&self) -> Answer<Look> {
        let looked = self.ask(PlaceAsk::Look, &[]).or_else(|why| {
            // A host that has left and joined again has an empty place.
            self.is_back().then(|| self.done(PlaceAsk::Make, &[])).ok_or(why)??;
            self.ask(PlaceAsk::Look, &[])
        })?;
        match looked {
            // File systems of other hosts cannot be told apart by their numbers.
            (PlaceAnswer::Looked { free_bytes }, _) => Ok(Look { free_bytes, file_system: None }),
            _ => Err(out_of_turn()),
        }
    }
    fn put(&self, name: &str, pieces: &[Bytes]) -> Answer<()> {
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.done(PlaceAsk::Put { name: name.to_owned(), len }, pieces)
    }
    fn get(&self, name: &str, from: u64, len: u64) -> Answer<Bytes> {
        match self.ask(PlaceAsk::Get { name: name.to_owned(), from, len }, &[])? {
            (PlaceAnswer::Bytes { .. }, bytes) if bytes.len() as u64 <= len => Ok(bytes),
            _ => Err(out_of_turn()),
        }
    }
    fn list(&self, prefix: &str) -> Answer<Vec<String>> {
        match self.ask(PlaceAsk::List { prefix: prefix.to_owned() }, &[])? {
            (PlaceAnswer::Names { names }, _) => Ok(names),
            _ => Err(out_of_turn()),
        }
    }
    fn delete(&self, name: &str) -> Answer<()> {
        self.done(PlaceAsk::Delete { name: name.to_owned() }, &[])
    }
    fn make(&self) -> Answer<()> {
        self.done(PlaceAsk::Make, &[])
    }
    fn remove(&self) -> Answer<()> {
        self.done(PlaceAsk::Remove, &[])
    }
}

/// Does what a place on this node is asked.
fn carry_out(place: &DirectoryPlace, ask: &PlaceAsk, content: &[Bytes]) -> (PlaceAnswer, Bytes) {
    let nothing = Bytes::new();
    let done = |answer: Answer<()>| answer.map(|()| (PlaceAnswer::Done, nothing.clone()));
    let answer = match ask {
        PlaceAsk::Look => {
            place.look().map(|look| (PlaceAnswer::Looked { free_bytes: look.free_bytes }, nothing.clone()))
        }
        PlaceAsk::Put { name, .. } => done(place.put(name, content)),
        PlaceAsk::Get { name, from, len } => {
            place.get(name, *from, *len).map(|bytes| (PlaceAnswer::Bytes { len: bytes.len() as u64 }, bytes))
        }
        PlaceAsk::List { prefix } => place.list(prefix).map(|names| (PlaceAnswer::Names { names }, nothing.clone())),
        PlaceAsk::Delete { name } => done(place.delete(name)),
        PlaceAsk::Make => done(make(place)),
        PlaceAsk::Remove => done(place.remove()),
    };
    answer.unwrap_or_else(|Refusal { kind, cause, again }| {
        (PlaceAnswer::Refused { error: Error::new(kind, place.who()).because(cause), again }, nothing)
    })
}

/// Makes a place, and the directory that all of them are in.
fn make(place: &DirectoryPlace) -> Answer<()> {
    let dir = PathBuf::from(place.who());
    if let Some(all) = dir.parent()
        && let Err(error) = std::fs::create_dir(all)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(Refusal::new(ErrorKind::Io, format!("{}: {error}", all.display())));
    }
    place.make()
}

/// Sends bytes in pieces behind a message that announced them.
fn send_pieces(connection: &mut TcpConnection, content: &[Bytes]) -> Result<()> {
    let mut offset = 0;
    for bytes in content {
        for from in (0..bytes.len()).step_by(PIECE_BYTES) {
            let piece = bytes.slice(from..bytes.len().min(from + PIECE_BYTES));
            let mut head = Vec::new();
            encode_piece(offset, &mut head);
            offset += piece.len() as u64;
            connection.endpoint().send_parts(Class::Bulk, head, piece)?;
        }
    }
    Ok(())
}

/// Receives so many bytes in pieces.
fn receive_pieces(connection: &mut TcpConnection, len: u64) -> Result<Vec<Bytes>> {
    let refuse = |why: &str| Err(Error::new(ErrorKind::InvalidInput, "bytes from another node").because(why));
    if len > PART_BYTES_MAX {
        return refuse("more are announced than a part has");
    }
    let (mut all, mut has) = (Vec::new(), 0);
    while has < len {
        let mut message = wait_for_one(connection, ANSWER)?;
        let bytes = Bytes::from(std::mem::take(&mut message.bytes));
        connection.endpoint().release(message);
        let Between::Piece { offset, bytes: piece } = decode_between(&bytes)? else {
            return refuse("another message came instead");
        };
        if offset != has || piece.is_empty() || piece.len() as u64 > len - has {
            return refuse("they are others than were announced");
        }
        has += piece.len() as u64;
        all.push(bytes.slice_ref(piece));
    }
    Ok(all)
}

/// Asks on a connection, and waits for the answer, unless it `is_over` with the node meanwhile.
fn converse(
    connection: &mut TcpConnection,
    first: &[u8],
    content: &[Bytes],
    is_over: &dyn Fn() -> bool,
) -> Result<(PlaceAnswer, Bytes)> {
    connection.endpoint().send(Class::Control, first.to_vec())?;
    send_pieces(connection, content)?;
    let bytes: u64 = content.iter().map(|piece| piece.len() as u64).sum();
    let message = wait_unless(connection, ANSWER + Duration::from_secs(bytes / SLOWEST), is_over)?;
    let message = message.ok_or_else(|| silent(connection))?;
    let answer = match decode_between(&message.bytes)? {
        Between::Sessions(NodeMessage::PlaceSays { answer }) => answer,
        Between::Sessions(NodeMessage::Declined { error }) => return Err(error),
        _ => return Err(Error::new(ErrorKind::InvalidInput, "message from a place").because("it is out of turn")),
    };
    connection.endpoint().release(message);
    let PlaceAnswer::Bytes { len } = answer else { return Ok((answer, Bytes::new())) };
    let mut pieces = receive_pieces(connection, len)?;
    let bytes = if pieces.len() == 1 { pieces.remove(0) } else { pieces.concat().into() };
    Ok((answer, bytes))
}

impl Nodes {
    /// Keeps parts for the host of a home, until it closes the connection or asks nothing for a while.
    pub(super) fn keep_parts(
        &self,
        connection: &mut TcpConnection,
        node: NodeId,
        first: (PlaceOf, PlaceAsk),
        is_over: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut known: Option<(PlaceOf, DirectoryPlace)> = None;
        let (mut of, mut ask) = first;
        loop {
            let is_known = known.as_ref().is_some_and(|(known, _)| PlaceOf { term: of.term, ..*known } == of);
            if !is_known {
                let owner = Owner { store: of.store, device: of.device };
                known = Some((of, kept_at(&self.dir, owner, of.place)));
            }
            let Some((_, place)) = &known else { return Ok(()) };
            let content = match &ask {
                PlaceAsk::Put { len, .. } => receive_pieces(connection, *len)?,
                _ => Vec::new(),
            };
            // Right before it is done: another node may have become the host while bytes came.
            self.homes.check_host(of.home, node, of.term)?;
            let (answer, bytes) = carry_out(place, &ask, &content);
            say(connection, &NodeMessage::PlaceSays { answer })?;
            send_pieces(connection, &[bytes])?;
            match next_ask(connection, is_over)? {
                Some(next) => (of, ask) = next,
                None => return Ok(()),
            }
        }
    }
}

/// The next question of a host; `None` if no more comes.
fn next_ask(connection: &mut TcpConnection, is_over: &dyn Fn() -> bool) -> Result<Option<(PlaceOf, PlaceAsk)>> {
    // A host that closes its connection has no more questions.
    let Ok(Some(message)) = wait_unless(connection, IDLE, is_over) else { return Ok(None) };
    let asked = match decode_between(&message.bytes)? {
        Between::Sessions(NodeMessage::AskPlace { of, ask }) => Ok(Some((of, ask))),
        _ => Err(Error::new(ErrorKind::InvalidInput, "message from a host").because("it is out of turn")),
    };
    connection.endpoint().release(message);
    asked
}
