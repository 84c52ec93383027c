//! Holds the view of the cluster and watches the other nodes: threads that tell the nodes with the register that this one
//! lives and learn who else does, one for each, and one that has `ha` decide. What is decided is put into the register, if
//! nobody was faster, and given to [`Acting`].
//!
//! A file imports only files before it in this order: `acting`, `times`, `desk`, `cached`, `looks`, `keeper`, `probe`, `way`,
//! `opening`, `known`, `report`, this, `gone`.

mod acting;
mod cached;
mod desk;
mod gone;
mod keeper;
mod known;
mod looks;
mod opening;
mod probe;
mod report;
#[cfg(test)]
mod tests;
mod times;
mod way;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use cenote_cluster::register::Register;
use cenote_cluster::{Beat, NodeFile, Notice, changed};
use cenote_ha::{ClusterId, Hello, History, Report, Settings, View, acts_from_us, decide, lease_until_us};
use cenote_model::{ClusterChange, Error, ErrorKind, HaReport, HomeId, NodeId, Result};
use cenote_rpc::net::{ClusterKey, Introduction};

use super::roster::Roster;
use crate::service::lock;
pub(super) use acting::Acting;
pub(super) use keeper::Keeper;
pub use known::Known;
use opening::{Board, Opened};
use probe::Probes;
use times::now_us;
pub(super) use times::settings;
use times::{until_next, wall};

/// A node says who it is with so many of its first beats to each board.
const HELLOS: u64 = 4;
/// How long a change that a person asks for may take.
const CHANGE: Duration = Duration::from_secs(10);
/// Pause until the next look while nodes are being tried, and the shortest one before what a decision waits for.
const PROBING: Duration = Duration::from_millis(10);
const SOONEST: Duration = Duration::from_millis(1);
/// Decisions in a row, if others change the view meanwhile.
const DECISIONS: usize = 4;

/// A board to which this node tells that it lives.
struct Told {
    board: Board,
    /// Beats so far.
    beats: AtomicU64,
}

/// Tells of which homes a node has lost what it had, as far as that concerns others in the view that it knows.
pub(super) type Lost = Box<dyn Fn(NodeId, Option<&View>) -> Vec<HomeId> + Send + Sync>;

/// See the module.
pub(super) struct Watch {
    me: NodeId,
    roster: Arc<Roster>,
    settings: Settings,
    incarnation: u64,
    begun_us: u64,
    file: Mutex<NodeFile>,
    /// The last view on its disks when the process began.
    left_in_view: u64,
    register: Arc<dyn Register>,
    boards: Vec<Told>,
    probes: Arc<Probes>,
    lost: Lost,
    /// Never held while anything is waited for.
    known: Mutex<Known>,
    /// A board has answered.
    learnt: Condvar,
    /// All nodes are being stopped.
    is_closing: AtomicBool,
    /// The version of the weights of users that all homes have of which this node is host.
    weights: AtomicU64,
    /// How loaded this node is.
    loads: Mutex<Vec<Report>>,
    /// The number of the view that [`Acting`] was told last; held while it is told anything, so that no lease comes between a
    /// view and its consequences.
    followed: Mutex<u64>,
    is_over: Mutex<bool>,
    /// The daemon stops.
    over: Condvar,
}

impl Watch {
    /// The watch of a node; opens its part of the register, if it has one.
    pub fn open(dir: &Path, roster: &Arc<Roster>, who: Introduction, key: &ClusterKey, lost: Lost) -> Result<Self> {
        let settings = settings();
        let opened = opening::open(dir, roster, who, key, &settings)?;
        let this = Self::with(dir, roster, settings, who.incarnation, opened)?;
        Ok(Self { lost, ..this })
    }
    /// A watch with these times that reaches the register in this way, of a node that has lost nothing.
    fn with(dir: &Path, roster: &Arc<Roster>, settings: Settings, incarnation: u64, opened: Opened) -> Result<Self> {
        let file = NodeFile::open(dir)?;
        let told = |board| Told { board, beats: AtomicU64::new(0) };
        let me = NodeId(roster.get().home.0);
        let boards = opened.boards.iter().map(|board| board.node(me)).collect();
        Ok(Self {
            me,
            roster: roster.clone(),
            settings,
            incarnation,
            begun_us: now_us(),
            left_in_view: file.view(),
            file: Mutex::new(file),
            register: opened.register,
            boards: opened.boards.into_iter().map(told).collect(),
            probes: Arc::default(),
            lost: Box::new(|_, _| Vec::new()),
            known: Mutex::new(Known::new(me, boards)),
            learnt: Condvar::new(),
            is_closing: AtomicBool::new(false),
            weights: AtomicU64::new(0),
            loads: Mutex::default(),
            followed: Mutex::new(0),
            is_over: Mutex::new(false),
            over: Condvar::new(),
        })
    }
    /// The board, if this node has one.
    pub fn keeper(&self) -> Option<&Arc<Keeper>> {
        self.boards.iter().find_map(|told| match &told.board {
            Board::Here(keeper) => Some(keeper),
            Board::There(_) => None,
        })
    }
    /// Makes [`Watch::run`] return soon.
    pub fn end(&self) {
        for told in &self.boards {
            match &told.board {
                Board::Here(keeper) => keeper.end(),
                Board::There(way) => way.end(),
            }
        }
        *lock(&self.is_over) = true;
        self.over.notify_all();
        self.learnt.notify_all();
    }
    /// Tells all nodes that all are being stopped, so that nobody takes over what others have. Returns when a board knows it,
    /// or none has answered in time.
    pub fn say_closing(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        let begin = Instant::now();
        let patience = Duration::from_micros(self.settings.silence_us_min);
        for told in self.boards.iter().take_while(|_| begin.elapsed() < patience) {
            let _ = told.board.beat(self.next_beat(told)); // others hear of it by their next beat
        }
        std::thread::sleep(Duration::from_micros(2 * self.settings.beat_us));
    }
    /// What people are told.
    pub fn report(&self) -> HaReport {
        let known = lock(&self.known);
        report::report(&self.roster.get(), &known.history, &known.proposal, known.trouble(), now_us())
    }
    /// The term under which this node is the host of a home in the view that it knows; `None` if it is not.
    pub fn term_of(&self, home: HomeId) -> Option<u64> {
        let known = lock(&self.known);
        let entry = known.view()?.home(cenote_ha::HomeId(home.0))?;
        (entry.host == self.me).then_some(entry.term)
    }
    /// Waits until the leases of all former hosts of a home are over, of which this node is the host under this term. Returns
    /// at once if this node knows another term, and if the daemon stops.
    pub fn await_leases(&self, home: HomeId, term: u64) {
        let home = cenote_ha::HomeId(home.0);
        let mut known = lock(&self.known);
        while !*lock(&self.is_over) {
            let from = acts_from_us(home, term, &known.history, &self.settings).unwrap_or(0);
            let rest = Duration::from_micros(from.saturating_sub(now_us()));
            if rest.is_zero() {
                return;
            }
            // What boards say makes it shorter.
            let waited = self.learnt.wait_timeout(known, rest);
            known = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
    /// Tells other nodes from now on that all homes of which this node is host have this version of the weights of users.
    pub fn tell_weights(&self, version: u64) {
        self.weights.store(version, Ordering::Relaxed);
    }
    /// Tells other nodes from now on how loaded this one is.
    pub fn tell_loads(&self, loads: Vec<Report>) {
        *lock(&self.loads) = loads;
    }
    /// A home of another node that has a later version of the weights of users than this one; the one with the latest.
    pub fn home_with_weights_after(&self, version: u64) -> Option<HomeId> {
        lock(&self.known).home_with_weights_after(version, self.me)
    }
    /// Returns false for a node without which the cluster goes on, in the view that this node knows.
    pub fn is_live(&self, node: NodeId) -> bool {
        lock(&self.known).view().is_none_or(|view| view.is_live(node))
    }
    /// Returns true for a node that is about to leave, in the view that this node knows.
    pub fn is_leaving(&self, node: NodeId) -> bool {
        let known = lock(&self.known);
        known.view().and_then(|view| view.member(node)).is_some_and(|member| member.is_leaving)
    }
    /// Watches until [`Watch::end`].
    pub fn run(&self, acting: &dyn Acting) {
        std::thread::scope(|scope| {
            for at in 0..self.boards.len() {
                let beat = move || self.at_each_beat(|| self.beat(at, acting));
                if let Err(error) = std::thread::Builder::new().name("cenote-beat".into()).spawn_scoped(scope, beat) {
                    tracing::error!(%error, "no thread that tells that this node lives");
                }
            }
            self.watch(acting);
        });
    }
    /// Looks, tries silent nodes and decides at each beat; decides sooner when a probe may have ended, and when a decision
    /// says so.
    fn watch(&self, acting: &dyn Acting) {
        let every = Duration::from_micros(self.settings.beat_us);
        let mut probed: Option<Instant> = None;
        loop {
            let begin = Instant::now();
            self.look(acting);
            if probed.is_none_or(|at| begin.duration_since(at) >= every) {
                self.probe();
                probed = Some(begin);
            }
            self.decide(acting);
            let rest = every.saturating_sub(probed.map_or(every, |at| at.elapsed()));
            let probing = if self.probes.is_busy() { PROBING } else { every };
            let due = lock(&self.known).due_us().map_or(every, |at| Duration::from_micros(at.saturating_sub(now_us())));
            if self.pause(rest.min(probing).min(due.max(SOONEST))) {
                return;
            }
        }
    }
    /// Tells the boards of other nodes that this one lives, without a look at what they answer: while its home is being opened.
    pub fn announce(self: &Arc<Self>, is_over: &Arc<AtomicBool>) {
        for at in 0..self.boards.len() {
            let (watch, is_over) = (self.clone(), is_over.clone());
            let beats = move || {
                let every = Duration::from_micros(watch.settings.beat_us);
                let told = &watch.boards[at];
                let Board::There(way) = &told.board else { return };
                while !is_over.load(Ordering::SeqCst) {
                    let _ = way.beat(&watch.next_beat(told)); // a board that is away is told later
                    std::thread::sleep(until_next(every, wall()));
                }
            };
            if let Err(error) = std::thread::Builder::new().name("cenote-beat".into()).spawn(beats) {
                tracing::warn!(%error, "no thread that tells that this node starts");
            }
        }
    }
    fn at_each_beat(&self, act: impl Fn()) {
        let every = Duration::from_micros(self.settings.beat_us);
        loop {
            act();
            if self.pause(until_next(every, wall())) {
                return;
            }
        }
    }
    /// Waits. Returns true if the daemon stops.
    fn pause(&self, pause: Duration) -> bool {
        let waited = self.over.wait_timeout_while(lock(&self.is_over), pause, |over| !*over);
        *waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
    }
    /// Takes in what this node has seen itself.
    fn look(&self, acting: &dyn Acting) {
        let seen = {
            let _followed = lock(&self.followed);
            acting.seen()
        };
        let mut known = lock(&self.known);
        for seen in seen {
            known.see(now_us(), seen, &self.settings);
        }
        for node in self.probes.take_refused() {
            known.see(now_us(), cenote_ha::Seen::Refused(node), &self.settings);
        }
    }
    /// Tells a board that this node lives, and learns who else does.
    fn beat(&self, at: usize, acting: &dyn Acting) {
        let told = &self.boards[at];
        let beat = self.next_beat(told);
        let (held, asked_us) = (beat.holds_view, now_us());
        let answer = told.board.beat(beat);
        if let (Ok(notice), Board::There(_), Some(keeper)) = (&answer, &told.board, self.keeper()) {
            keeper.heard_elsewhere(&notice.heard);
        }
        let board = told.board.node(self.me);
        let learnt = answer.and_then(|notice| self.learn((board, notice), held, asked_us, acting));
        let trouble = learnt.and_then(|()| self.expect_view(&told.board)).err();
        lock(&self.known).note_trouble(at, trouble);
    }
    /// Fails if the nodes of the register have made no view yet.
    fn expect_view(&self, board: &Board) -> Result<()> {
        let Board::There(way) = board else { return Ok(()) };
        if lock(&self.known).number() > 0 {
            return Ok(());
        }
        let name = way.name();
        Err(Error::new(ErrorKind::Busy, "the first view of the cluster")
            .because(format!("node `{name}` makes it once all nodes have said who they are"))
            .try_next(format!("`cenote ha` on node `{name}` names those that have not")))
    }
    fn next_beat(&self, told: &Told) -> Beat {
        let (identity, members) = (lock(&self.file).identity(), self.roster.get());
        let number = told.beats.fetch_add(1, Ordering::Relaxed) + 1;
        let mut known = lock(&self.known);
        let holds_view = known.number();
        let is_live = known.view().is_some_and(|view| view.is_live(self.me));
        let hello = (!is_live || number <= HELLOS).then(|| Hello {
            cluster: ClusterId(members.cluster.0),
            identity,
            address: members.of(members.home).map(|member| member.address.to_string()).unwrap_or_default(),
            left_in_view: self.left_in_view,
            holds_view,
            devices: Vec::new(),
            lost_devices: Vec::new(),
        });
        let lost = (self.lost)(self.me, known.view().map(AsRef::as_ref));
        let mut reports = known.reports(now_us(), self.me, &lost, &self.settings);
        reports.extend_from_slice(&lock(&self.loads));
        if self.is_closing.load(Ordering::SeqCst) {
            reports.push(Report::Closing);
        }
        let weights = self.weights.load(Ordering::Relaxed);
        Beat { node: self.me, incarnation: self.incarnation, number, holds_view, reports, weights, hello }
    }
    /// Takes in an answer of a node's board. `held`: the number of the view that this node held when it asked; fails if the
    /// board knows less.
    fn learn(&self, (board, notice): (NodeId, Notice), held: u64, asked_us: u64, acting: &dyn Acting) -> Result<()> {
        if notice.view < held {
            return Err(Error::new(ErrorKind::Corrupt, "the register of the cluster")
                .because(format!("it has view {}, and had view {held} before", notice.view))
                .try_next(
                    "it is an old copy: put the last one back, where `docs/cluster.md` says that the register is",
                ));
        }
        lock(&self.known).learn(now_us(), (board, notice), asked_us, self.me, &self.settings);
        self.learnt.notify_all();
        let mut followed = lock(&self.followed);
        self.follow(&mut followed, acting);
        let is_leased = {
            let known = lock(&self.known);
            known.history.gives_lease(board) && known.view().is_some_and(|view| view.is_live(self.me))
        };
        if is_leased {
            acting.lease(lease_until_us(asked_us, &self.settings));
        }
        Ok(())
    }
    /// Notes the latest view, and tells of it, if that was not done.
    fn follow(&self, followed: &mut u64, acting: &dyn Acting) {
        let latest = lock(&self.known).view().cloned();
        let Some(view) = latest.filter(|view| view.number > *followed) else { return };
        *followed = view.number;
        if let Err(error) = lock(&self.file).note_view(view.number) {
            tracing::warn!(%error, "the number of the view could not be noted");
        }
        let live = view.live().count();
        tracing::info!(view = view.number, live, of = view.members.len(), "a new view of the cluster");
        acting.view(&view);
    }
    /// Tries to connect to nodes that have been silent for some beats.
    fn probe(&self) {
        let patience = Duration::from_micros(self.settings.silence_us_min);
        let silent = lock(&self.known).silent((2 * self.settings.beat_us).max(self.settings.silence_us_min / 2));
        let members = self.roster.get();
        for node in silent.into_iter().filter(|node| *node != self.me) {
            if let Some(member) = members.of(HomeId(node.0)) {
                self.probes.begin(node, member.address, patience);
            }
        }
    }
    /// Decides, has it acted on, and proposes what has to be agreed on; anew, if somebody else was faster.
    fn decide(&self, acting: &dyn Acting) {
        for _ in 0..DECISIONS {
            let (decided, view) = {
                let mut known = lock(&self.known);
                let proposal = decide(self.me, &known.history, &self.settings, now_us());
                let told = (proposal.decided.clone(), proposal.view.clone());
                known.note(now_us(), proposal);
                told
            };
            {
                let _followed = lock(&self.followed);
                acting.act(&decided);
            }
            match view {
                Some(view) if self.propose(&view, acting) => {}
                _ => return,
            }
        }
    }
    /// Makes another node, which has all of it, the host of a home of which this node is the host. Tries until the register
    /// has answered, or the daemon stops.
    pub fn hand_over(&self, home: HomeId, to: NodeId, acting: &dyn Acting) -> Result<()> {
        let id = cenote_ha::HomeId(home.0);
        let next = |view: &View, _: &History| match view.home(id) {
            Some(entry) if entry.host == to => Ok(None),
            Some(entry) if entry.host == self.me && view.is_live(to) => {
                let mut next = View { number: view.number + 1, ..view.clone() };
                for entry in next.homes.iter_mut().filter(|entry| entry.id == id) {
                    // What other mirrors have of this host's changes does not fit those of the next one. This node has all
                    // of it until the next one tells anything: it takes the home back if that is lost at once.
                    let stays = view.stays(self.me) && !entry.is_shared;
                    let mirrors = if stays { vec![self.me] } else { Vec::new() };
                    (entry.host, entry.term, entry.mirrors) = (to, entry.term + 1, mirrors);
                }
                next.drop_old_moves();
                Ok(Some(next))
            }
            _ => Err(Error::new(ErrorKind::Conflict, format!("home {home}"))
                .because("this node is not its host, or the other one does not take part")
                .try_next("see `cenote ha`")),
        };
        self.swap_until(&format!("home {home}"), next, || false)?;
        self.follow(&mut lock(&self.followed), acting);
        Ok(())
    }
    /// Changes who takes part, or where homes are to be, as a person asks. Returns once the register has it. Whoever is
    /// concerned learns of it by its next beat.
    pub fn change(&self, change: ClusterChange) -> Result<()> {
        let (begin, members) = (Instant::now(), self.roster.get());
        let next = |view: &View, history: &History| changed(view, &members, change, self.heard(change, history));
        if let ClusterChange::GiveUp { dry_run, .. } = change {
            self.check_register()?; // what it last said of a node's silence says nothing of now
            let known = lock(&self.known);
            let possible = known.view().map_or(Ok(None), |view| next(view, &known.history));
            if dry_run || possible.is_err() {
                return possible.map(drop);
            }
        }
        self.swap_until("the view of the cluster", next, || begin.elapsed() > CHANGE)
    }
    /// Puts the view that `next` makes of the present one into the register, anew whenever another one was faster, until there is
    /// nothing to change, `next` fails, the daemon stops, or `is_late`.
    fn swap_until(
        &self,
        subject: &str,
        next: impl Fn(&View, &History) -> Result<Option<View>>,
        is_late: impl Fn() -> bool,
    ) -> Result<()> {
        let refuse = |why: &str| {
            Err(Error::new(ErrorKind::Busy, subject).because(why).try_next("see `cenote ha`, and try again"))
        };
        loop {
            let (made, seen) = {
                let known = lock(&self.known);
                let Some(view) = known.view() else { return refuse("there is no view of the cluster yet") };
                (next(view, &known.history)?, known.token())
            };
            let (Some(made), Some(seen)) = (made, seen) else { return Ok(()) };
            let asked_us = now_us();
            let held = match self.register.swap(Some(&seen), &made) {
                Ok(swapped) => swapped.held(&made),
                Err(error) => {
                    tracing::warn!(%error, subject, "whether the view is changed is not known yet");
                    None
                }
            };
            if let Some(held) = held {
                lock(&self.known).hold(now_us(), held, asked_us, &self.settings);
            } else if *lock(&self.is_over) || is_late() {
                return refuse("the register did not answer in time, or this daemon ends");
            } else {
                std::thread::sleep(Duration::from_micros(self.settings.beat_us));
            }
        }
    }
    /// Puts a view into the register. Returns true if something is to be decided anew: it was taken, or another one was
    /// there before.
    fn propose(&self, view: &View, acting: &dyn Acting) -> bool {
        let Some(seen) = lock(&self.known).token() else { return false };
        let asked_us = now_us();
        let held = match self.register.swap(Some(&seen), view) {
            Ok(swapped) => swapped.held(view),
            Err(error) => {
                // Whatever became of it, the next answer of the register tells.
                tracing::warn!(%error, view = view.number, "a view could not be proposed");
                None
            }
        };
        let is_newer = held.is_some_and(|held| lock(&self.known).hold(now_us(), held, asked_us, &self.settings));
        if is_newer {
            self.follow(&mut lock(&self.followed), acting);
        }
        is_newer
    }
}
