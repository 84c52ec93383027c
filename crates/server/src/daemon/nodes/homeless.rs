//! A daemon whose home another node has, in the pool that all nodes reach. It opens no engine and serves no client: it keeps its
//! board and its part of the register, takes part in the view, and asks for the home until the view names it as the host.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cenote_device::control::boot_ns;
use cenote_ha::{Decided, Seen, View};
use cenote_model::{Error, ErrorKind, NodeId, Result};
use cenote_rpc::net::{TcpConnection, TcpListener};
use cenote_wire::is_about_view;

use super::handover::{AGAIN_AFTER, LOOK_EVERY, ask_host};
use super::talk::wait_for_one;
use super::watch::Acting;
use super::{Early, Reach};
use crate::daemon::{DYING, STORE_PAUSE};
use crate::service::lock;

const ACCEPT_EVERY: Duration = Duration::from_millis(200);
/// Time limit for the proof that the other end has the key, and for its first message.
const PROOF: Duration = Duration::from_secs(5);

/// What the register says of the home.
struct Waiting {
    me: NodeId,
    home: cenote_ha::HomeId,
    said: Mutex<(Option<Arc<View>>, u64)>,
}

impl Acting for Waiting {
    fn view(&self, view: &Arc<View>) {
        lock(&self.said).0 = Some(view.clone());
    }
    fn act(&self, _: &[Decided]) {}
    fn seen(&self) -> Vec<Seen> {
        Vec::new()
    }
    fn lease(&self, until_us: u64) {
        lock(&self.said).1 = until_us * 1000;
    }
}

impl Waiting {
    /// Returns true if the view names this node as the host, and that counts now.
    fn is_granted(&self) -> bool {
        let said = lock(&self.said);
        let is_host =
            |view: &Arc<View>| view.is_live(self.me) && view.home(self.home).is_some_and(|home| home.host == self.me);
        said.0.as_ref().is_some_and(is_host) && boot_ns() < said.1
    }
    /// The host that may be asked for the home, and where it listens; `None` as long as this node does not take part.
    fn host(&self) -> Option<(NodeId, SocketAddr)> {
        let view = lock(&self.said).0.clone()?;
        let home = view.home(self.home)?;
        let may_ask = view.is_live(self.me) && home.wanted_host == self.me && home.host != self.me;
        let address = view.member(home.host)?.address.parse().ok()?;
        may_ask.then_some((home.host, address))
    }
}

/// Takes part without a home until the view names this node as the host of its own. Returns false if it `is_stopping` before.
pub(in super::super) fn wait_for_home(dir: &Path, is_stopping: &(dyn Fn() -> bool + Sync)) -> Result<bool> {
    let early = open(dir)?;
    let members = early.roster.get();
    let me = members.of(members.home).ok_or_else(|| Error::new(ErrorKind::Internal, "members of a cluster"))?;
    let listener = TcpListener::bind(me.address)?;
    let waiting =
        Waiting { me: NodeId(members.home.0), home: cenote_ha::HomeId(members.home.0), said: Mutex::default() };
    tracing::info!(home = %members.home, "another node has the home of this one: it is asked for");
    let is_over = AtomicBool::new(false);
    let over = || is_over.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        if let Some(keeper) = early.watch.keeper() {
            scope.spawn(|| keeper.answer_questions(over));
            scope.spawn(|| keeper.serve(over));
            scope.spawn(|| keeper.answer_beats(over));
        }
        scope.spawn(|| early.watch.run(&waiting));
        scope.spawn(|| accept(&early, &listener, &over));
        let is_done = || is_stopping() || waiting.is_granted();
        let mut asked_at: Option<Instant> = None;
        while !is_done() {
            if let Some(host) = waiting.host().filter(|_| asked_at.is_none_or(|at| at.elapsed() >= AGAIN_AFTER)) {
                asked_at = Some(Instant::now());
                if let Err(error) = ask_host((early.who, &early.key), host, members.home, &is_done) {
                    tracing::debug!(%error, home = %members.home, "a home is asked for again");
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
        is_over.store(true, Ordering::SeqCst);
        early.watch.end();
    });
    Ok(waiting.is_granted())
}

/// Opens this node's part of the register; the system frees the locks of a process that died one after the other.
fn open(dir: &Path) -> Result<Early> {
    let begin = Instant::now();
    loop {
        match Early::open(dir, &Arc::new(Reach::default())) {
            Err(error) if error.kind() == ErrorKind::Busy && begin.elapsed() < DYING => std::thread::sleep(STORE_PAUSE),
            opened => return opened?.ok_or_else(|| Error::new(ErrorKind::NotFound, "members of a cluster")),
        }
    }
}

/// Accepts connections about the view, and ends others.
fn accept(early: &Early, listener: &TcpListener, is_over: &(dyn Fn() -> bool + Sync)) {
    std::thread::scope(|scope| {
        while !is_over() {
            match listener.accept(early.who, &early.key, ACCEPT_EVERY) {
                Ok(Some(connection)) => drop(scope.spawn(|| welcome(early, connection))),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection from another node could not be accepted");
                    std::thread::sleep(ACCEPT_EVERY);
                }
            }
        }
    });
}

fn welcome(early: &Early, mut connection: TcpConnection) {
    let opened = connection.open(PROOF).and_then(|who| Ok((who, wait_for_one(&mut connection, PROOF)?)));
    let Ok((who, first)) = opened else { return };
    if let Some(keeper) = early.watch.keeper().filter(|_| is_about_view(&first.bytes)) {
        let bytes = first.bytes.clone();
        connection.endpoint().release(first);
        keeper.adopt(NodeId(who.node), connection, bytes);
    }
    // Others see a daemon that is not there yet: whoever wants the home tries again, and is sent to its host.
}
