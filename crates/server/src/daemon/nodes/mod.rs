//! The other nodes of a cluster: gateways to their homes for the clients of this node, and sessions of their clients with
//! the home of this one.
//!
//! One thread (`thread`) has all connections, and the rings of clients of gateways: a message crosses it once in each
//! direction. `gateway` is what other threads see of a home on another node; `foreign` is what the clients of another
//! node are here; `trust` is about the version words of homes; `listener` accepts connections; `watch` has a connection of
//! its own and holds the view; `weights` has homes follow those that have later weights of users; `locks` is about locks
//! of files, and has a thread for what time brings. A file imports only files before it in this order: `outbox`,
//! `lock_files`, `locks`, `gateway`, `watch`, (`foreign`, `trust`), `direct`, `thread`, `listener`.

mod copies;
mod direct;
mod errands;
mod foreign;
mod gateway;
mod handover;
mod homeless;
mod homes;
mod listener;
mod loads;
mod lock_files;
mod locks;
mod losses;
mod mirrors;
mod outbox;
mod places;
mod roster;
mod talk;
mod thread;
mod trust;
mod twins;
mod watch;
mod weights;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use cenote_cluster::Members;
use cenote_device::Control;
use cenote_device::home::memory_dir;
use cenote_host::home::shm_base;
use cenote_model::{ClusterChange, Error, ErrorKind, HaReport, HomeId, LockAnswer, NodeId, Result};
use cenote_rpc::net::{ClusterKey, Introduction, TcpConnection, TcpListener};
use cenote_wire::{ClusterPlace, LockAsk};

use super::{Daemon, REAP_EVERY};
use crate::Host;
use crate::host::draw;
use copies::Copies;
use direct::Direct;
use errands::Errands;
pub(super) use gateway::Gateway;
pub(super) use homeless::wait_for_home;
use homes::{Acts, Homes};
use locks::Locks;
use losses::Losses;
use outbox::Outbox;
pub use places::PARTS_DIR;
pub(super) use places::Reach;
use places::Reaching;
use roster::Roster;
pub use watch::Known;
use watch::{Keeper, Watch};

/// Interval at which a thread looks whether the daemon stops.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Copies of other homes are synced so often: what is not has to be when one is taken over.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// The nodes of the cluster, seen from this one.
pub(super) struct Nodes {
    /// The directory of this node.
    dir: PathBuf,
    roster: Arc<Roster>,
    /// The home of this node.
    home: HomeId,
    key: ClusterKey,
    who: Introduction,
    /// The directory of this node's shared memory.
    memory: PathBuf,
    /// To every other home.
    gateways: RwLock<BTreeMap<HomeId, Arc<Gateway>>>,
    outbox: Arc<Outbox>,
    listener: TcpListener,
    /// Holds the view.
    watch: Arc<Watch>,
    /// Copies of other nodes' homes.
    copies: Arc<Copies>,
    losses: Arc<Losses>,
    homes: Homes,
    /// What homes that are open here say to others about transactions.
    errands: Arc<Errands>,
    locks: Arc<Locks>,
    /// How loaded this node is.
    measured: loads::Measured,
    direct: Direct,
    /// How places of tiers on other nodes are reached.
    reach: Arc<Reach>,
}

/// What a node has before its home is open: it can tell that it lives.
pub(super) struct Early {
    roster: Arc<Roster>,
    key: ClusterKey,
    who: Introduction,
    losses: Arc<Losses>,
    watch: Arc<Watch>,
    reach: Arc<Reach>,
}

impl Early {
    /// `None` if the store is no part of a cluster. `Busy` if another process has this node's part of the register. `reach`
    /// reaches the other nodes from now on.
    pub fn open(dir: &Path, reach: &Arc<Reach>) -> Result<Option<Self>> {
        let Some(members) = Members::read(dir)? else { return Ok(None) };
        check_address(&members)?;
        let key = members.key(dir)?;
        let who = members.introduction(draw()?);
        let losses = Arc::new(Losses::find(dir, &members)?);
        let roster = Roster::new(dir, members);
        let found = losses.clone();
        let lost = Box::new(move |me, view: Option<&_>| found.to_tell(me, view));
        let watch = Arc::new(Watch::open(dir, &roster, who, &key, lost)?);
        let (dir, reach) = (dir.to_path_buf(), reach.clone());
        reach.begin(Reaching { dir, roster: roster.clone(), who, key: key.clone(), watch: watch.clone() });
        Ok(Some(Self { roster, key, who, losses, watch, reach }))
    }
    /// Tells other nodes that this one lives, until it is over.
    pub fn announce(&self, is_over: &Arc<AtomicBool>) {
        self.watch.announce(is_over);
    }
    /// Fails if this node was given up: it may not serve what lies here any more.
    pub fn check_member(&self) -> Result<()> {
        self.watch.check_member()
    }
}

/// Fails if this host does not have the node's address: before the store is taken, so that a daemon that a program starts on
/// another host of a shared directory, or in another network namespace, is not in the way of the right one.
fn check_address(members: &Members) -> Result<()> {
    let Some(own) = members.of(members.home) else { return Ok(()) };
    TcpListener::bind(SocketAddr::new(own.address.ip(), 0)).map(drop).map_err(|error| {
        Error::new(error.kind(), format!("node `{}`", own.name))
            .because(format!("its address, {}, is none of this host's: {}", own.address.ip(), error.cause()))
            .try_next("start the daemon on the node's own host: `cenote cluster start DIR`")
    })
}

impl Nodes {
    /// The other nodes of a cluster. Listens from now on.
    pub fn open(dir: &Path, host: &Host, early: Early) -> Result<Arc<Self>> {
        let Early { roster, key, who, losses, watch, reach } = early;
        let members = roster.get();
        if members.home != host.summary.home {
            return Err(Error::new(ErrorKind::InvalidInput, format!("store {}", dir.display()))
                .because(format!("it is home {}, and its file `cluster` says {}", host.summary.home, members.home))
                .try_next("copy the right file from where the cluster was made, or start the cluster anew"));
        }
        let outbox = Arc::new(Outbox::new()?);
        // Tables of other homes are kept beside the memory of this one, and go with it.
        let memory = memory_dir(&shm_base(), host.id())?.unwrap_or_else(shm_base);
        let own = members.of(members.home).map(|member| member.address);
        let address = own.ok_or_else(|| Error::new(ErrorKind::Internal, "members of a cluster"))?;
        let listener = TcpListener::bind(address)?;
        let me = (NodeId(who.node), members.home);
        let locks = Locks::open(me, members.homes_move(), &memory, host.control.clone(), outbox.clone())?;
        let copies = Arc::new(Copies::open(dir, &memory, &members, reach.clone(), losses.clone())?);
        let formerly: &[NodeId] = if host.was_elsewhere() { &nodes_of(&members) } else { &[] };
        let errands = Arc::new(Errands::default());
        host.tell_words(outbox.bell().clone(), formerly, errands.bell());
        let homes = Homes::default();
        let (dir, home, gateways) = (dir.to_path_buf(), members.home, RwLock::default());
        let this = Self {
            dir,
            roster,
            home,
            key,
            who,
            memory,
            gateways,
            outbox,
            listener,
            watch,
            copies,
            losses,
            homes,
            errands,
            locks,
            measured: loads::Measured::default(),
            direct: Direct::default(),
            reach,
        };
        this.make_gateways(&members);
        Ok(Arc::new(this))
    }
    /// Makes the gateways that are missing.
    fn make_gateways(&self, members: &Members) {
        let mut gateways = self.gateways.write().unwrap_or_else(PoisonError::into_inner);
        for member in members.all.iter().filter(|member| member.home != self.home) {
            gateways.entry(member.home).or_insert_with(|| {
                let (outbox, locks) = (self.outbox.clone(), self.locks.clone());
                let (key, is_shared) = (self.key.clone(), members.homes_on.is_some());
                Arc::new(Gateway::new(member.clone(), self.who, key, &self.memory, outbox, locks, is_shared))
            });
        }
    }
    /// Changes who takes part, or where homes are. Returns once the register has it; may take seconds.
    pub fn change(&self, change: ClusterChange) -> Result<()> {
        if change == ClusterChange::Reread {
            let members = self.roster.reread()?;
            self.make_gateways(&members);
            return Ok(());
        }
        self.watch.change(change)
    }
    /// Starts the threads.
    pub fn start(self: &Arc<Self>, daemon: &Arc<Daemon>) -> Result<Vec<std::thread::JoinHandle<()>>> {
        let thread = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let failed = |error| Error::io("a thread for the nodes of the cluster", &error);
            std::thread::Builder::new().name(name.into()).spawn(run).map_err(failed)
        };
        let both = || (self.clone(), daemon.clone());
        let (nodes, other, third) = (both(), both(), both());
        let (fourth, fifth, sixth, seventh) = (both(), both(), both(), both());
        let (eighth, ninth, tenth) = (both(), both(), both());
        self.begin_homes(daemon);
        let acts = Acts::new(self.clone(), daemon.clone());
        Ok(vec![
            thread("cenote-nodes", Box::new(move || thread::run(&nodes.0, &nodes.1)))?,
            thread("cenote-accept", Box::new(move || listener::run(&other.0, &other.1)))?,
            thread("cenote-reap", Box::new(move || third.0.reap(&third.1)))?,
            thread("cenote-watch", Box::new(move || fourth.0.watch.run(&acts)))?,
            thread("cenote-register", Box::new(move || fifth.0.keep_register(&fifth.1)))?,
            thread("cenote-board", Box::new(move || sixth.0.keep_board(&sixth.1)))?,
            thread("cenote-errands", Box::new(move || errands::run(&eighth.0, &eighth.1)))?,
            thread("cenote-notices", Box::new(move || seventh.0.answer_beats(&seventh.1)))?,
            thread("cenote-sync", Box::new(move || tenth.0.sync_copies(&tenth.1)))?,
            thread("cenote-locks", Box::new(move || ninth.0.locks.run(&ninth.0, &ninth.1)))?,
        ])
    }
    /// Syncs copies of other homes until the daemon stops; there are none without mirrors.
    fn sync_copies(&self, daemon: &Daemon) {
        if self.roster.get().protect == 0 {
            return;
        }
        let mut synced_at = Instant::now();
        while !daemon.is_stopping() {
            std::thread::sleep(LOOK_EVERY);
            if synced_at.elapsed() >= SYNC_EVERY {
                self.copies.sync();
                synced_at = Instant::now();
            }
        }
    }
    /// Makes the threads look whether the daemon stops.
    pub fn wake(&self) {
        self.outbox.wake();
        self.watch.end();
        self.errands.wake();
    }
    /// Makes the thread look at its clients.
    pub fn ring(&self) {
        self.outbox.wake();
    }
    fn keeper(&self) -> Option<&Arc<Keeper>> {
        self.watch.keeper()
    }
    /// Answers questions about the register until the daemon stops, on a node that keeps it.
    fn keep_register(&self, daemon: &Daemon) {
        if let Some(keeper) = self.keeper() {
            keeper.answer_questions(|| daemon.is_stopping());
        }
    }
    /// Serves the watches of other nodes until the daemon stops, on a node that keeps the register.
    fn keep_board(&self, daemon: &Daemon) {
        if let Some(keeper) = self.keeper() {
            keeper.serve(|| daemon.is_stopping());
        }
    }
    /// Answers beats until the daemon stops, on a node that keeps the register.
    fn answer_beats(&self, daemon: &Daemon) {
        if let Some(keeper) = self.keeper() {
            keeper.answer_beats(|| daemon.is_stopping());
        }
    }
    /// Takes the connection of another node's watch, with its first message.
    fn adopt(&self, node: NodeId, tcp: TcpConnection, first: Vec<u8>) {
        if let Some(keeper) = self.keeper() {
            return keeper.adopt(node, tcp, first);
        }
        let node = node.0;
        tracing::warn!(
            node,
            "it asks this node for the register, which others keep: all nodes need the same file `cluster`"
        );
    }
    /// What people are told of the cluster.
    pub fn report(&self) -> HaReport {
        let report = self.watch.report();
        let troubles = [report.trouble, self.homes.trouble()];
        let trouble = troubles.into_iter().filter(|trouble| !trouble.is_empty()).collect::<Vec<_>>().join("\n  ");
        HaReport { copies: self.homes.copies(), trouble, ..report }
    }
    /// Tells all nodes that all are being stopped.
    pub fn say_closing(&self) {
        self.watch.say_closing();
    }
    /// The gateway to a home.
    pub fn gateway(&self, home: HomeId) -> Result<Arc<Gateway>> {
        let found = self.gateways.read().unwrap_or_else(PoisonError::into_inner).get(&home).cloned();
        found.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("home {home}"))
                .because(format!("the cluster has the homes {}", list(&self.roster.get().homes())))
                .try_next("see `cenote cluster status`")
        })
    }
    /// Searches for dead processes of this node until the daemon stops. A home that hangs holds up only this thread.
    fn reap(self: &Arc<Self>, daemon: &Arc<Daemon>) {
        let mut reaped_at = Instant::now();
        let mut could_act = true;
        while !daemon.is_stopping() {
            std::thread::sleep(LOOK_EVERY);
            let may_act = daemon.host.mirroring.as_ref().is_none_or(|mirroring| mirroring.may_act());
            if could_act && !may_act {
                // What clients remember may be out of date by now: they have to ask.
                daemon.host.control.instance_raise();
            }
            could_act = may_act;
            if reaped_at.elapsed() >= REAP_EVERY {
                let gateways = self.gateways.read().unwrap_or_else(PoisonError::into_inner).clone();
                for gateway in gateways.values() {
                    gateway.reap();
                }
                self.copies.all_hosted().iter().for_each(|(_, host)| host.reap());
                Acts::new(self.clone(), daemon.clone()).reopen_lost();
                reaped_at = Instant::now();
            }
        }
    }
    /// Lets other nodes remember what they see of another node's home, whose host this one is from now on. What the former host
    /// told ended with its lease.
    fn tell_words_of(&self, host: &Host) {
        host.tell_words(self.outbox.bell().clone(), &[], self.errands.bell());
    }
    /// Returns true if the homes of the cluster lie where all nodes reach them.
    pub fn share_homes(&self) -> bool {
        self.roster.get().homes_on.is_some()
    }
    /// The host of a home that this node serves to others.
    fn served(&self, daemon: &Daemon, home: HomeId) -> Option<Arc<Host>> {
        if home == self.home { Some(daemon.host.clone()) } else { self.copies.hosted(home) }
    }
    /// Closes the homes of other nodes that are open here.
    pub fn close(&self) -> Result<()> {
        self.copies.all_hosted().iter().map(|(_, host)| host.close()).fold(Ok(()), Result::and)
    }
    /// Answers a process of this node about a lock of a file, which waits. `is_over`: it does not any more.
    pub fn answer_lock(&self, ask: &LockAsk, is_over: &dyn Fn() -> bool) -> Result<LockAnswer> {
        self.locks.answer(self, ask, is_over)
    }
    /// A process that was told that its node has a lock has locked.
    pub fn lock_is_kept(&self, ask: &LockAsk) {
        self.locks.kept(ask.file);
    }
    /// Why there is nothing in a home any more, if it was lost with a node that was given up.
    pub fn lost(&self, home: HomeId) -> Option<Error> {
        let (_, node) = self.watch.lost_homes().into_iter().find(|(lost, _)| *lost == home)?;
        let members = self.roster.get();
        let name = members.of(HomeId(node.0)).map_or_else(|| node.0.to_string(), |member| format!("`{}`", member.name));
        Some(
            Error::new(ErrorKind::Io, format!("home {home} of the cluster"))
                .because(format!("it was lost with node {name}, which was given up (`cenote cluster give-up`)"))
                .try_next("`cenote ls` names the containers that were lost, and `cenote rm` takes their names away"),
        )
    }
    /// What a client is told of a home.
    pub fn place(&self, home: HomeId) -> ClusterPlace {
        let (far, members) = (home != self.home, self.roster.get());
        let own = members.of(self.home).map(|member| member.address);
        let gateway = if far { self.gateway(home).ok() } else { None };
        let host = gateway.map(|to| to.address()).filter(|address| Some(*address) != own);
        let host = host.map_or_else(String::new, |address| address.to_string());
        let lost = self.watch.lost_homes();
        let mut homes = members.homes();
        homes.retain(|home| !lost.iter().any(|(lost, _)| lost == home));
        ClusterPlace { home, far, leased: members.homes_move(), homes, host }
    }
}

fn nodes_of(members: &Members) -> Vec<NodeId> {
    members.all.iter().map(|member| NodeId(member.home.0)).collect()
}

fn list(homes: &[HomeId]) -> String {
    homes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
