//! A client's socket: the greeting, requests for segments, and the end of the connection.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cenote_host::process;
use cenote_model::{DeviceId, Error, ErrorKind, HomeId, LockAnswer, LockHow, Result, StoreId};
use cenote_rpc::{Connection, Credentials, Doorbell};
use cenote_store::SessionInfo;
use cenote_wire::{ClusterPlace, Greeting, LockAsk, decode_greeting, encode_greeting};

use super::nodes::Gateway;
use super::peer::{Peer, Standing};
use super::{Daemon, FAR_RING_BYTES, RING_BYTES};
use crate::Client;
use crate::clients::{Clients, Served};
use crate::service::lock;

/// Time limit of a client's greeting; a client that hangs costs a thread, nothing else.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same while the daemon lets go of the store: the others wait meanwhile.
const MOVING: Duration = Duration::from_millis(100);
/// How long the thread of a lost client waits for the process's end before it leaves the rest to the reaper.
const DYING: Duration = Duration::from_millis(500);
/// A process that is told that its node has a lock locks within this time, or may have to ask again.
const LOCKING: Duration = Duration::from_millis(250);

/// Serves a connection on a thread of its own.
pub(super) fn start(daemon: &Arc<Daemon>, connection: Connection) {
    let daemon = daemon.clone();
    let serve = move || {
        if let Err(error) = converse(&daemon, &connection) {
            tracing::debug!(%error, "a connection ended");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("cenote-client".into()).spawn(serve) {
        tracing::warn!(%error, "no thread for a client");
    }
}

pub(super) fn say(connection: &Connection, greeting: &Greeting, fds: &[std::os::fd::BorrowedFd<'_>]) -> Result<()> {
    let mut bytes = Vec::new();
    encode_greeting(greeting, &mut bytes);
    connection.send(&[&bytes], fds, PATIENCE)
}

/// Asks a newcomer to come again, while the daemon lets go of the store.
pub(super) fn send_on(connection: &Connection) {
    // What it says is read before: if unread bytes are left in a socket that is closed, the other end gets an error instead
    // of the answer, takes the daemon for dead, and starts another one.
    let _ = connection.receive(MOVING);
    let _ = say(connection, &Greeting::Moving, &[]);
}

fn converse(daemon: &Arc<Daemon>, connection: &Connection) -> Result<()> {
    let peer = connection.peer()?;
    let Some(frame) = connection.receive(PATIENCE)? else { return Ok(()) };
    let (nonce, read_only, home) = match decode_greeting(&frame.bytes) {
        Ok(Greeting::Hello { nonce, read_only, home }) => (nonce, read_only, home),
        Ok(Greeting::Lock { ask }) => return about_lock(daemon, connection, peer, &ask),
        Ok(_) => return say(connection, &Greeting::Refused(out_of_turn()), &[]),
        Err(error) => return say(connection, &Greeting::Refused(error), &[]),
    };
    if let Some(error) = daemon.nodes.as_ref().and_then(|nodes| nodes.lost(home)) {
        return say(connection, &Greeting::Lost(error), &[]);
    }
    let admitted = door(daemon, home).and_then(|door| {
        // A new client sees the pipelined changes of dead clients.
        door.reap(daemon);
        admit(daemon, &door, connection, peer, nonce, read_only).map(|admitted| (door, admitted))
    });
    let (door, ((client, alive), who)) = match admitted {
        Ok(admitted) => admitted,
        // Another node has the home by now: this daemon begins anew, and asks for it.
        Err(_) if daemon.begins_anew() => return say(connection, &Greeting::Moving, &[]),
        Err(error) => return say(connection, &Greeting::Refused(error), &[]),
    };
    daemon.connected.fetch_add(1, Ordering::SeqCst);
    let result = serve(daemon, &door, connection, &client, alive, &who);
    daemon.connected.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Answers a process about a lock of a file. Whoever may not enter the store's directory in shared memory has no locks.
fn about_lock(daemon: &Daemon, connection: &Connection, peer: Credentials, ask: &LockAsk) -> Result<()> {
    let is_over = || daemon.is_stopping() || connection.is_peer_gone();
    let answer = match &daemon.nodes {
        Some(nodes) if daemon.host.is_owner(peer.uid) => nodes.answer_lock(ask, &is_over),
        Some(_) => {
            Err(Error::new(ErrorKind::PermissionDenied, "locks of files").because("they are the store's owner's"))
        }
        None => Ok(LockAnswer::Granted),
    };
    let is_kept = matches!(answer, Ok(LockAnswer::Granted)) && ask.how != LockHow::Settle;
    let greeting = match answer {
        Ok(answer) => Greeting::LockIs { answer },
        Err(error) => Greeting::Refused(error),
    };
    // While a daemon stops, nothing is said: the next one is asked.
    let said = if daemon.is_stopping() { Ok(()) } else { say(connection, &greeting, &[]) };
    if let Some(nodes) = daemon.nodes.as_ref().filter(|_| is_kept) {
        // It ends the connection when it has locked.
        connection.is_readable_within(LOCKING);
        nodes.lock_is_kept(ask);
    }
    said
}

/// Where a client goes: to the home of this daemon, or to one on another node.
enum Door {
    Here,
    Away(Arc<Gateway>),
}

/// The door to a home; 0 is that of this daemon. `Disconnected` if its node cannot be reached.
fn door(daemon: &Daemon, home: HomeId) -> Result<Door> {
    if home == HomeId(0) || home == daemon.host.summary.home {
        return Ok(Door::Here);
    }
    let nodes = daemon.nodes.as_ref().ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("home {home}"))
            .because("the store is no part of a cluster")
            .try_next("start the cluster with `cenote cluster start`, which writes the file `cluster`")
    })?;
    let gateway = nodes.gateway(home)?;
    gateway.reach()?;
    Ok(Door::Away(gateway))
}

impl Door {
    fn reap(&self, daemon: &Daemon) {
        match self {
            Self::Here => daemon.host.reap(),
            Self::Away(gateway) => gateway.reap(),
        }
    }
    /// The home, its store, and its clients here.
    fn inside<'a>(&'a self, daemon: &'a Daemon) -> Result<(&'a dyn Served, StoreId, &'a Clients)> {
        match self {
            Self::Here => Ok((daemon.host.service.as_ref(), daemon.host.id(), &daemon.host.clients)),
            Self::Away(gateway) => gateway.reach().map(|(store, clients)| (gateway.as_ref() as _, *store, clients)),
        }
    }
}

/// Serves an admitted client until it leaves or is lost.
fn serve(
    daemon: &Arc<Daemon>,
    door: &Door,
    connection: &Connection,
    client: &Client,
    alive: OwnedFd,
    who: &SessionInfo,
) -> Result<()> {
    let at = daemon.loop_for_next();
    let bell = match door {
        Door::Here => &at.bell,
        Door::Away(gateway) => gateway.bell(),
    };
    let standing = Arc::new(Standing::new(client.session, bell.clone()));
    let access = Access { write: who.write, bound: who.bound.is_some() || matches!(door, Door::Away(_)) };
    let mirroring = daemon.host.mirroring.clone().filter(|_| matches!(door, Door::Here));
    let peer = Peer::new(client, standing.clone(), daemon.host.summary.home, mirroring)?;
    match door {
        Door::Here => {
            lock(&at.fresh).push(peer);
            at.bell.ring();
        }
        Door::Away(gateway) => gateway.serve(peer),
    }
    let welcomed = welcome(daemon, door, connection, client, alive, access, bell);
    let result = welcomed.and_then(|()| attend(daemon, connection, access));
    standing.leave();
    bell.ring();
    let is_done = result.as_ref().is_ok_and(|bye| *bye);
    part(daemon, door, client, is_done);
    result.map(drop)
}

/// A client's access to segments.
#[derive(Clone, Copy)]
struct Access {
    write: bool,
    bound: bool,
}

/// Judges a client by the credentials from the kernel, and opens a session.
fn admit(
    daemon: &Daemon,
    door: &Door,
    connection: &Connection,
    peer: Credentials,
    nonce: u128,
    read_only: bool,
) -> Result<((Client, OwnedFd), SessionInfo)> {
    let subject = || format!("store {}", daemon.host.dir().display());
    let Some(may_write) = daemon.host.rights(peer.uid) else {
        return Err(Error::new(ErrorKind::PermissionDenied, subject())
            .because(format!("user {} is neither its owner nor among its writers and readers", peer.uid))
            .try_next("its owner can name users who may, when the store is made"));
    };
    let started = process::started_of(peer.pid).unwrap_or(0); // 0: not visible from here
    let write = may_write && !read_only;
    let bound = if daemon.host.is_owner(peer.uid) { None } else { Some(connection.peer_groups()?.into()) };
    let who = SessionInfo { nonce, pid: peer.pid, started, uid: peer.uid, gid: peer.gid, write, bound, node: None };
    // A process has another pid when seen from another container, so only a pid that is visible here and differs proves
    // another process.
    let is_other = |known: &SessionInfo| {
        known.uid != who.uid
            || known.pid != who.pid && started != 0 && process::started_of(known.pid) == Some(known.started)
    };
    let stranger = |(_, known): &(_, SessionInfo)| known.nonce == nonce && is_other(known);
    let (home, _, clients) = door.inside(daemon)?;
    if home.sessions().iter().any(stranger) {
        return Err(Error::new(ErrorKind::PermissionDenied, subject()).because("that session is another process's"));
    }
    let ring_bytes = if matches!(door, Door::Here) { RING_BYTES } else { FAR_RING_BYTES };
    Ok((clients.admit(home, &who, ring_bytes)?, who))
}

/// Sends a client what it needs. From then on only the client holds the lock on its file.
fn welcome(
    daemon: &Daemon,
    door: &Door,
    connection: &Connection,
    client: &Client,
    alive: OwnedFd,
    access: Access,
    bell: &Doorbell,
) -> Result<()> {
    let (_, store, clients) = door.inside(daemon)?;
    let table = clients.control.read_only()?;
    // Not that of the opening: it is raised, too, when what clients remember may be out of date.
    let own = (daemon.host.control.instance(), daemon.host.summary.engines, daemon.host.summary.home);
    let (instance, engines, home) = match door {
        Door::Here => own,
        Door::Away(gateway) => (clients.control.instance(), 1, gateway.home()),
    };
    let place = daemon.nodes.as_ref().map_or_else(ClusterPlace::default, |nodes| nodes.place(home));
    let (write, bound) = (access.write, access.bound);
    let greeting = Greeting::Welcome { store, instance, write, bound, engines, place };
    let fds = [table.as_fd(), client.file.fd().as_fd(), bell.as_fd(), alive.as_fd()];
    let said = say(connection, &greeting, &fds);
    drop(alive);
    said
}

/// Hands out segments until the client leaves (true) or is lost (false).
fn attend(daemon: &Daemon, connection: &Connection, access: Access) -> Result<bool> {
    while !daemon.is_stopping() {
        let Some(frame) = connection.receive(Duration::from_millis(250))? else { continue };
        match decode_greeting(&frame.bytes)? {
            Greeting::Segment { device, number } => match segment(daemon, connection, device, number, access) {
                Err(error) if error.kind() != ErrorKind::Disconnected => {
                    say(connection, &Greeting::Refused(error), &[])?;
                }
                result => result?,
            },
            Greeting::Bye => return Ok(true),
            _ => return Err(out_of_turn()),
        }
    }
    Ok(false)
}

fn segment(
    daemon: &Daemon,
    connection: &Connection,
    device: DeviceId,
    number: u64,
    Access { write, bound }: Access,
) -> Result<()> {
    let subject = || format!("segment {number} of device {device}");
    if bound {
        // A segment also holds other clients' data, and a mapping cannot be revoked.
        return Err(Error::new(ErrorKind::PermissionDenied, subject())
            .because("only the store's owner and root map its devices")
            .try_next("ask the daemon for the bytes"));
    }
    let found = daemon.host.service.device(device).ok_or_else(|| Error::new(ErrorKind::NotFound, subject()))?;
    let file = found.segment(number)?.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, subject()).because("its device cannot be shared with clients")
    })?;
    let greeting = Greeting::SegmentIs { data_offset: file.data_offset, len: file.len, mode: file.mode as u8, write };
    if write {
        say(connection, &greeting, &[file.fd.as_fd()])
    } else {
        say(connection, &greeting, &[file.read_only()?.as_fd()])
    }
}

/// After a client's end: releases what it held once its process cannot use it any more.
fn part(daemon: &Daemon, door: &Door, client: &Client, is_done: bool) {
    let is_dead = || !client.file.is_held();
    let begin = Instant::now();
    while !is_done && !is_dead() && begin.elapsed() < DYING && !daemon.is_stopping() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let Ok((home, _, clients)) = door.inside(daemon) else { return }; // the reaper does the rest
    if is_done {
        home.session_close(client.session);
        // Views may outlive a session, and a session its connection: slots count, and leases stay, until the client
        // releases its file.
        if is_dead() || client.file.slots().min() == u64::MAX {
            clients.remove(client.file.number());
        }
    } else if is_dead() {
        // Its process may live on: it was the session that released the file. Or the session lives on, too, with the file
        // of another connection.
        if !clients.has_held(client.session) {
            clients.settle_dead(home, client.session);
        }
        door.reap(daemon);
    }
}

#[cold]
fn out_of_turn() -> Error {
    Error::new(ErrorKind::InvalidInput, "connection").because("a greeting out of turn")
}

#[cfg(test)]
mod tests {
    use cenote_rpc::Listener;

    use super::*;

    #[test]
    fn who_speaks_late_is_sent_on_too() {
        let dir = std::env::temp_dir().join(format!("cenote-sent-on-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let listener = Listener::bind(&dir, "socket").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| send_on(&listener.accept(Duration::from_secs(20)).unwrap().unwrap()));
            let connection = Connection::connect(&dir, "socket", PATIENCE).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            say(&connection, &Greeting::Bye, &[]).unwrap();
            let heard = connection.receive(PATIENCE).unwrap().unwrap();
            assert!(matches!(decode_greeting(&heard.bytes), Ok(Greeting::Moving)));
        });
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
