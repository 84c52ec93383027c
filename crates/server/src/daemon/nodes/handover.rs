//! A home goes from one host to another on purpose: the node that wants it asks, gets a copy as every mirror does, and is
//! named its host in the view. So a node that was away gets its home back, and one that leaves gives its homes away.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, HomeId, NodeId, Result};
use cenote_rpc::net::{ClusterKey, Introduction, TcpConnection};
use cenote_wire::{Between, NodeMessage, decode_between};

use super::super::Daemon;
use super::super::location;
use super::Nodes;
use super::homes::Acts;
use super::talk::{next, say};

/// How long a home answers nothing while its last changes go to its next host; then it stays.
const FROZEN: Duration = Duration::from_secs(1);
/// How long a copy of a home may take before whoever asked has to ask again.
const COPY: Duration = Duration::from_hours(1);
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);
pub(super) const AGAIN_AFTER: Duration = Duration::from_millis(500);
pub(super) const BEAT_EVERY: Duration = Duration::from_secs(1);
/// A connection without any sign of life for this long has ended.
const SILENCE: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(2);

/// Gives a home to the node that asked for it on this connection.
pub(super) fn give(acts: &Acts, connection: &mut TcpConnection, home: HomeId, to: NodeId) -> Result<()> {
    if acts.share_homes() {
        return acts.give_shared(connection, home, to);
    }
    let yielding = acts.begin_yielding(home, to)?;
    let late = |why: &str| Err(Error::new(ErrorKind::Disconnected, format!("home {home}")).because(why));
    let (begin, mut beat_at) = (Instant::now(), Instant::now());
    while !yielding.is_caught_up()? {
        if acts.is_stopping() || begin.elapsed() > COPY {
            return late("its copy did not become complete in time");
        }
        connection.turn()?;
        next(connection, &mut Instant::now())?;
        if beat_at.elapsed() > BEAT_EVERY {
            beat_at = Instant::now();
            connection.endpoint().beat();
        }
        std::thread::sleep(LOOK_EVERY);
    }
    // From now on nothing is told. What was told before has to be there: until now a mirror could be dropped, and told without.
    let told = yielding.freeze();
    let frozen = Instant::now();
    while !yielding.has(told) {
        if acts.is_stopping() || frozen.elapsed() > FROZEN {
            return late("the last changes were not confirmed in time");
        }
        std::thread::sleep(LOOK_EVERY / 10);
    }
    acts.hand_over(home, to)?;
    drop(yielding);
    say(connection, &NodeMessage::Yielded { home })?;
    connection.turn().map(drop)
}

/// Asks for a home of which this node is to be the host, until the view says that it is.
pub(super) fn ask_for(nodes: &Nodes, daemon: &Daemon, home: HomeId) {
    tracing::info!(%home, "another node has a home that this one is to have: it is asked for");
    while !daemon.is_stopping() && nodes.homes.is_due(home, NodeId(nodes.who.node)) {
        if let Err(error) = ask(nodes, daemon, home) {
            tracing::debug!(%error, %home, "a home is asked for again");
        }
        std::thread::sleep(AGAIN_AFTER);
    }
}

fn ask(nodes: &Nodes, daemon: &Daemon, home: HomeId) -> Result<()> {
    let host = nodes.homes.host_of(home)?;
    ask_host((nodes.who, &nodes.key), host, home, &|| daemon.is_stopping())
}

/// Asks the host of a home, with its address, to give it to the node that introduces itself so. Returns once the host says that
/// it has, or it `is_over`.
pub(super) fn ask_host(
    (who, key): (Introduction, &ClusterKey),
    (host, address): (NodeId, SocketAddr),
    home: HomeId,
    is_over: &dyn Fn() -> bool,
) -> Result<()> {
    let mut connection = TcpConnection::connect(address, who, key, CONNECT)?;
    say(&mut connection, &NodeMessage::Yield { home })?;
    let (mut heard_at, mut beat_at) = (Instant::now(), Instant::now());
    while !is_over() {
        let is_busy = connection.turn()?;
        while let Some(message) = next(&mut connection, &mut heard_at)? {
            match decode_between(&message.bytes)? {
                Between::Sessions(NodeMessage::Yielded { .. }) => return Ok(()),
                Between::Sessions(NodeMessage::Declined { error }) => return Err(error),
                _ => {}
            }
            connection.endpoint().release(message);
        }
        if beat_at.elapsed() > BEAT_EVERY {
            beat_at = Instant::now();
            connection.endpoint().beat();
        }
        if heard_at.elapsed() > SILENCE {
            return Err(Error::new(ErrorKind::Disconnected, format!("node {}", host.0)).because("it fell silent"));
        }
        if !is_busy {
            connection.wait(Duration::from_millis(250))?;
        }
    }
    Ok(())
}

/// The view names this node as the host of its own home. Returns true if the home lies where it was when this node last
/// was its host. Else the daemon begins anew with the copy that came, or says that there is none.
pub(super) fn is_in_place(nodes: &Nodes, daemon: &Arc<Daemon>, term: u64) -> Result<bool> {
    let home = nodes.home;
    let here = location::dir_of_home(&nodes.dir)?;
    let noted = location::term(&here)?;
    if noted == Some(term) || (noted.is_none() && term == 1) {
        if noted.is_none() {
            location::note_term(&here, term)?;
        }
        return Ok(true);
    }
    let Some(place) = nodes.copies.complete(home)? else {
        return Err(Error::new(ErrorKind::Corrupt, format!("home {home}"))
            .because(format!(
                "the view names this node as its host in term {term}, and what lies in {} is older",
                here.display()
            ))
            .try_next("see `cenote ha`; a copy of the home may be on the node that was its host before"));
    };
    tracing::info!(%home, term, "the home is back: this daemon begins anew with it");
    location::move_to(&nodes.dir, &place, term)?;
    daemon.restart();
    Ok(false)
}
