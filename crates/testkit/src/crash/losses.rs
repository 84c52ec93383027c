//! Nodes that are lost for good, away for a while, or hang: each home has mirrors on other nodes, and one of them takes it
//! over. A node that comes back gets its home back.
//!
//! A lost node is one whose programs and daemon are killed, and whose directory and shared memory are gone before anything
//! of it could be started again. No node is taken without which most of those that keep the register would be gone. When
//! two nodes are left, the world is made anew.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use cenote::{HaReport, HomeId};
use cenote_cluster::RegisterPlace;
use cenote_device::home::remove_memory;
use cenote_host::home::shm_base;
use rustix::process::Signal;

use super::hangs;
use super::nodes;
use super::parent::{Check, Options, Run, Tally, holder, make_shared, signal, text};
use super::slot::Slot;
use crate::rng::Rng;

/// Time limit until all homes have their mirrors again.
const WHOLE: Duration = Duration::from_mins(1);
/// The view stays the same for so long before the next node is taken.
const STEADY: Duration = Duration::from_millis(1500);
const PAUSE: Duration = Duration::from_millis(20);

/// Runs the test, in one world after the other.
pub(super) fn run(options: &Options) -> Check<Tally> {
    let begin = Instant::now();
    let (mut tally, mut rng) = (Tally::default(), Rng::new(options.seed));
    for number in 0_u64.. {
        let is_over = tally.kills() >= options.kills || begin.elapsed() >= options.limit;
        if is_over || !tally.failures.is_empty() {
            break;
        }
        let dir = options.dir.join(format!("w{number}"));
        let stores = nodes::make(&dir, &options.program, options.nodes, options.protect)?;
        make_shared(&stores[rng.index(stores.len())])?;
        let run = Run { rng: rng.clone(), tally, ..Run::new(options, stores) };
        tally = world(run, begin + options.limit, &dir)?;
        rng = Rng::new(options.seed.wrapping_add(number + 1));
        if options.verbose {
            eprintln!("{:.0} s: {tally:?}", begin.elapsed().as_secs_f64());
        }
    }
    if tally.failures.is_empty() {
        let _ = std::fs::remove_dir_all(&options.dir);
    }
    Ok(tally)
}

/// One world, until two nodes are left, the time is over, or something is wrong.
fn world(mut run: Run<'_>, until: Instant, dir: &Path) -> Check<Tally> {
    let mut slots = run.new_slots()?;
    let played = run.play(&mut slots, until);
    run.tally.failures.extend(played.err());
    for slot in &mut slots {
        run.stop(slot)?;
    }
    drop(slots);
    let homes: Vec<_> = run.stores.iter().map(|store| (store.dir().to_path_buf(), store.id())).collect();
    let tally = run.end();
    homes.iter().filter_map(|(dir, _)| holder(dir)).for_each(|pid| signal(pid, Signal::KILL));
    if tally.failures.is_empty() {
        for (_, id) in homes {
            remove_memory(&shm_base(), id).map_err(text)?;
        }
        std::fs::remove_dir_all(dir).map_err(text)?;
    }
    Ok(tally)
}

/// The longest time that an operation of a living node may take when another node is lost: until that is noticed, until the
/// former host's lease is over, and 5 s for all else.
fn longest_stall() -> Duration {
    let settings = cenote_ha::Settings::default();
    let factor = std::env::var("CENOTE_HA_FACTOR").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let noticed_us = settings.restart_us_max.max(settings.silence_us_max);
    Duration::from_micros(noticed_us + settings.lease_us).mul_f64(factor) + Duration::from_secs(5)
}

/// What is still in the way of losing another node of these; `None` if nothing is.
fn lacks(report: &HaReport, nodes: &[u16]) -> Option<String> {
    for node in &report.nodes {
        let is_here = nodes.contains(&node.node.0);
        if node.owed || node.live != is_here || !node.doubt.is_empty() {
            return Some(format!("node {}: live {}, owed {}, {}", node.node.0, node.live, node.owed, node.doubt));
        }
    }
    for home in &report.homes {
        let wanted = usize::try_from(home.mirrors_wanted).unwrap_or(0).min(nodes.len() - 1);
        let is_home = home.host.0 == home.home.0 || !nodes.contains(&home.home.0);
        if home.mirrors.len() < wanted || !is_home {
            return Some(format!("home {} on node {} has {} mirrors", home.home, home.host.0, home.mirrors.len()));
        }
    }
    if report.homes.is_empty() { Some("no view".into()) } else { None }
}

impl Run<'_> {
    /// What the first node's daemon tells.
    pub fn report(&self) -> Check<HaReport> {
        self.stores[0].ha_report().map_err(text)
    }
    fn play(&mut self, slots: &mut [Slot], until: Instant) -> Check {
        self.wait_until_whole()?;
        while self.stores.len() > 2 && Instant::now() < until && self.tally.failures.is_empty() {
            for _ in 0..self.rng.between(2, 8) {
                std::thread::sleep(Duration::from_millis(self.rng.between(5, 120)));
                self.one_kill(slots)?;
            }
            if !self.options.early {
                self.wait_until_whole()?;
            }
            let begin = Instant::now();
            self.take_one(slots)?;
            self.wait_until_whole()?;
            self.tally.whole = self.tally.whole.max(begin.elapsed());
            self.compare_all(slots)?;
        }
        Ok(())
    }
    /// Has a node hang, or takes it away for a while or for good.
    fn take_one(&mut self, slots: &mut [Slot]) -> Check {
        let victims = self.victims();
        let Some(victim) = victims.get(self.rng.index(victims.len().max(1))).copied() else { return Ok(()) };
        match self.rng.below(10) {
            0..=3 => {
                self.tally.hangs += 1;
                hangs::hang(self, victim)
            }
            4..=6 => {
                self.tally.absences += 1;
                self.be_away(victim, slots)
            }
            _ => {
                self.tally.losses += 1;
                self.lose(victim, slots)
            }
        }
    }
    /// The nodes that may be taken.
    fn victims(&self) -> Vec<usize> {
        let nodes = self.options.nodes;
        let keepers = RegisterPlace::usual(nodes, self.options.protect).keepers(nodes, self.options.protect);
        let keeps = |store: &cenote::Store| usize::from(store.home().0) <= keepers;
        let left = self.stores.iter().filter(|store| keeps(store)).count();
        let is_spare = |store: &cenote::Store| !keeps(store) || left > keepers / 2 + 1;
        (0..self.stores.len()).filter(|at| is_spare(&self.stores[*at])).collect()
    }
    /// Waits until each home is on its node, if that lives, and has its mirrors.
    pub fn wait_until_whole(&mut self) -> Check {
        let nodes: Vec<u16> = self.stores.iter().map(|store| store.home().0).collect();
        // A mirror that does not get on after the start of a daemon is dropped a moment later.
        let since = Cell::new((0, Instant::now()));
        self.until("all homes have their mirrors", |run, report| {
            let losses = u32::from(run.options.protect).min(nodes.len() as u32 - 1);
            let lacks = lacks(report, &nodes);
            let lacks = lacks.or_else(|| run.stores[0].protect(losses, Duration::ZERO).err().map(text));
            if lacks.is_some() || since.get().0 != report.view {
                since.set((report.view, Instant::now()));
            }
            lacks.or_else(|| (since.get().1.elapsed() < STEADY).then(|| "for some time".to_owned()))
        })?;
        self.open_again().map(drop)
    }
    /// Waits until nothing is lacking any more.
    fn until(&self, what: &str, lacks: impl Fn(&Self, &HaReport) -> Option<String>) -> Check {
        let begin = Instant::now();
        loop {
            let report = self.report()?;
            let Some(lacks) = lacks(self, &report) else { return Ok(()) };
            if begin.elapsed() > WHOLE {
                return Err(format!("not within {WHOLE:?}: {what}: {lacks}; {report:?}"));
            }
            std::thread::sleep(PAUSE);
        }
    }
    /// Opens the store anew at nodes that were excluded meanwhile and are back: what handles there hold is void. Returns
    /// true if there were any.
    pub fn open_again(&mut self) -> Check<bool> {
        let admitted = |report: &HaReport| -> BTreeMap<u16, u64> {
            report.nodes.iter().map(|node| (node.node.0, node.since_view)).collect()
        };
        let mut any = false;
        for at in 0..self.stores.len() {
            let (home, dir) = (self.stores[at].home(), self.stores[at].dir().to_path_buf());
            let before = self.admitted.get(&home.0).copied();
            let now = admitted(&self.report()?).get(&home.0).copied();
            if before.is_none() || before == now {
                continue;
            }
            any = true;
            self.tally.surprises += 1;
            self.excluded.insert(dir.clone(), Instant::now());
            self.until("a node is back", |_, report| {
                let is_back = report.homes.iter().any(|it| it.home == home && it.host.0 == home.0);
                (!is_back).then(|| format!("node {}", home.0))
            })?;
            drop(self.stores.remove(at));
            self.take_in(at, &dir)?;
        }
        self.admitted = admitted(&self.report()?);
        Ok(any)
    }
    /// Kills all processes of a node.
    fn kill_all(dir: &Path, slots: &[Slot]) {
        let there = slots.iter().filter(|slot| slot.process.place == dir);
        let clients: Vec<u32> = there.map(|slot| slot.process.pid()).collect();
        let daemon = holder(dir);
        // First stopped: a client starts a daemon when it loses one.
        for pid in &clients {
            signal(*pid, Signal::STOP);
        }
        if let Some(pid) = daemon {
            signal(pid, Signal::KILL);
        }
        for pid in &clients {
            signal(*pid, Signal::KILL);
        }
    }
    /// Has other nodes run the clients of a node that is gone.
    fn move_clients(&mut self, dir: &Path, slots: &mut [Slot]) -> Check {
        for slot in slots.iter_mut().filter(|slot| slot.process.place == dir) {
            self.stop(slot)?;
            self.compare(slot)?;
            self.restart(slot)?;
        }
        Ok(())
    }
    /// Loses a node for good.
    fn lose(&mut self, at: usize, slots: &mut [Slot]) -> Check {
        let store = self.stores.remove(at);
        let dir = store.dir().to_path_buf();
        Self::kill_all(&dir, slots);
        nodes::take_away(&dir, store.id())?;
        drop(store);
        self.move_clients(&dir, slots)
    }
    /// Stops a node as a power loss does, and starts its daemon again once another node has its home.
    fn be_away(&mut self, at: usize, slots: &mut [Slot]) -> Check {
        let store = self.stores.remove(at);
        let (dir, home, id) = (store.dir().to_path_buf(), store.home(), store.id());
        drop(store);
        Self::kill_all(&dir, slots);
        remove_memory(&shm_base(), id).map_err(text)?;
        self.move_clients(&dir, slots)?;
        self.wait_until_taken_over(home)?;
        nodes::begin(&dir, &self.options.program)?;
        self.take_back(at, home, &dir)
    }
    /// Waits until another node has a home.
    pub fn wait_until_taken_over(&self, home: HomeId) -> Check {
        self.until("a home is taken over", |_, report| {
            let is_taken = report.homes.iter().any(|it| it.home == home && it.host.0 != home.0);
            (!is_taken).then(|| format!("home {home}"))
        })
    }
    /// Waits until a home is back, and takes its node into the world again.
    pub fn take_back(&mut self, at: usize, home: HomeId, dir: &Path) -> Check {
        self.until("a home is back", |_, report| {
            let is_back = report.homes.iter().any(|it| it.home == home && it.host.0 == home.0);
            (!is_back).then(|| format!("home {home}"))
        })?;
        self.excluded.insert(dir.to_path_buf(), Instant::now());
        self.take_in(at, dir)?;
        let report = self.report()?;
        self.admitted = report.nodes.iter().map(|node| (node.node.0, node.since_view)).collect();
        Ok(())
    }
    /// Opens the store at a node.
    fn take_in(&mut self, at: usize, dir: &Path) -> Check {
        let begin = Instant::now();
        let store = loop {
            match nodes::open(dir) {
                Err(_) if begin.elapsed() < WHOLE => std::thread::sleep(PAUSE),
                opened => break opened?,
            }
        };
        self.stores.insert(at, store);
        Ok(())
    }
    /// Compares all, and how long they were kept waiting.
    fn compare_all(&mut self, slots: &mut [Slot]) -> Check {
        for slot in slots.iter_mut() {
            self.note_ended(slot)?;
            self.note_wait_and_stop(slot)?;
        }
        self.settle();
        for slot in slots {
            self.compare_settled(slot)?;
            self.restart(slot)?;
        }
        if self.tally.stall > longest_stall() {
            let (stall, longest) = (self.tally.stall, longest_stall());
            self.tally.failures.push(format!("an operation took {stall:?}, longer than {longest:?}"));
        }
        Ok(())
    }
}
