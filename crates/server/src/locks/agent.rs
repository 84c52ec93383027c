//! What this node has of the locks of files, and what its processes want of them.
//!
//! What the node has is written where its processes read it: a lock that it covers costs no message. A process locks in the
//! kernel first, and reads then. So before the kernel is asked whether any process holds a lock that is to be given away, it
//! is written that something changes: who locks later reads that, or what is left, and looks again.

use std::collections::BTreeMap;

use cenote_model::{HomeId, LockAnswer, LockHolder, LockHow, LockMode, LockSet, LockSpace, LockWish};
use cenote_wire::{LockTokens, NodeLock};

/// Rounds after which what nobody asked about is given up, unless a process holds a lock of it.
const IDLE_ROUNDS: u64 = 10;

/// Ranges that a node may have in one file.
pub(super) const LOCKS_MAX: usize = 4096;

/// What the kernel says of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Probe {
    /// No process of this node has a conflicting one.
    Free,
    /// One has, perhaps the process with this id.
    Held(u32, LockWish),
}

/// The files through which the agent and the processes of its node meet.
pub(crate) trait Files {
    /// Replaces what processes read about a file. Returns false if that is impossible.
    fn save(&mut self, file: u64, tokens: &LockTokens) -> bool;
    /// Removes it.
    fn remove(&mut self, file: u64);
    /// Asks the kernel who holds a lock that excludes this one.
    fn probe(&mut self, file: u64, wish: &LockWish) -> Probe;
    /// Of how many files of the own home other nodes may have something.
    fn interest(&mut self, files: u64);
    /// A number that was never returned before, whichever daemon of this node asked.
    fn fresh(&mut self) -> u64;
}

/// The end of a question.
type Outcome = Option<LockAnswer>;

/// The agent of a node; see the module.
pub(crate) struct Agent {
    me: u16,
    /// The home of which this node has everything that no other node has.
    own: HomeId,
    /// The view that admitted this node; 0: it does not take part, or nobody knows.
    admitted: u64,
    has: BTreeMap<u64, Owned>,
    wants: BTreeMap<u64, Wanted>,
    /// Answers that nobody has taken yet, with their file.
    answers: BTreeMap<u64, (u64, Outcome)>,
    /// Files of which processes were told that the node has a lock, and have not yet locked, with their number: nothing of
    /// such a file is given away, or a lock could be given to and fro for ever.
    promised: BTreeMap<u64, u32>,
    /// Locks of processes of this node that keep another node from getting one.
    watches: Vec<(HomeId, u64, LockWish)>,
    next: u64,
    round: u64,
    out: Vec<(HomeId, NodeLock)>,
}

/// What the node has of a file. Of a file of its own home that is not here it has everything.
struct Owned {
    tokens: LockTokens,
    /// The round in which it was last asked about.
    asked_in: u64,
}

struct Wanted {
    home: HomeId,
    file: u64,
    wish: LockWish,
    how: LockHow,
}

impl Agent {
    /// `kept`: what an earlier daemon of this node wrote.
    pub fn new(me: u16, own: HomeId, kept: Vec<(u64, LockTokens)>, files: &mut dyn Files) -> Self {
        let has = kept.into_iter().map(|(file, tokens)| (file, Owned { tokens, asked_in: 0 })).collect();
        let (wants, answers, promised) = Default::default();
        let (admitted, next, round, watches, out) = (0, 1, 0, Vec::new(), Vec::new());
        let mut agent = Self { me, own, admitted, has, wants, answers, promised, watches, next, round, out };
        // It ended in the middle: what it was about to give away is still the node's.
        for (file, owned) in agent.has.iter_mut().filter(|(_, owned)| owned.tokens.is_changing) {
            owned.tokens.version += 1;
            owned.tokens.is_changing = false;
            files.save(*file, &owned.tokens);
        }
        agent.tell_interest(files);
        agent
    }
    /// What is to be told to homes by now.
    pub fn take_out(&mut self) -> Vec<(HomeId, NodeLock)> {
        std::mem::take(&mut self.out)
    }
    /// The other homes of whose files the node has something, or wants it.
    pub fn homes(&self) -> impl Iterator<Item = HomeId> + '_ {
        let has = self.has.values().map(|owned| owned.tokens.home);
        has.chain(self.wants.values().map(|wanted| wanted.home)).filter(|home| *home != self.own)
    }
    /// Returns true if something is to be looked at again soon.
    pub fn is_watching(&self) -> bool {
        !self.watches.is_empty()
    }
    fn covers(&self, home: HomeId, file: u64, wish: &LockWish) -> bool {
        self.has.get(&file).map_or(home == self.own, |owned| owned.tokens.has.covers(wish))
    }
    /// A process wants a lock. Returns the answer, or the number of the question that [`Agent::answer`] will answer. `asks`:
    /// the home is asked whatever the node has.
    pub fn ask(
        &mut self,
        home: HomeId,
        file: u64,
        wish: LockWish,
        how: LockHow,
        asks: bool,
    ) -> Result<LockAnswer, u64> {
        if let Some(owned) = self.has.get_mut(&file) {
            owned.asked_in = self.round;
        }
        if !asks && self.covers(home, file, &wish) {
            if how == LockHow::Test {
                return Ok(LockAnswer::Busy(None));
            }
            self.promise(file);
            return Ok(LockAnswer::Granted);
        }
        let number = self.next;
        self.next += 1;
        self.wants.insert(number, Wanted { home, file, wish, how });
        self.out.push((home, NodeLock::Want { number, file, wish, how }));
        Err(number)
    }
    fn promise(&mut self, file: u64) {
        *self.promised.entry(file).or_default() += 1;
    }
    /// A process that was told that the node has a lock has locked, or does not want to any more.
    pub fn kept(&mut self, file: u64) {
        if let Some(count) = self.promised.get_mut(&file) {
            *count -= 1;
            if *count == 0 {
                self.promised.remove(&file);
            }
        }
    }
    /// The answer to a question, once it is there. `Some(None)`: it could not be written down. After [`LockAnswer::Granted`] the
    /// caller says [`Agent::kept`].
    pub fn answer(&mut self, number: u64) -> Option<Outcome> {
        self.answers.remove(&number).map(|(_, outcome)| outcome)
    }
    /// Nobody waits for an answer any more.
    pub fn cancel(&mut self, number: u64) {
        if let Some((file, Some(LockAnswer::Granted))) = self.answers.remove(&number) {
            self.kept(file);
        }
        if let Some(wanted) = self.wants.remove(&number) {
            self.out.push((wanted.home, NodeLock::Cancel { number }));
        }
    }
    /// There is a new connection to a home, or a new arbiter: says what the node has, and asks again what is not answered.
    pub fn reclaim(&mut self, home: HomeId) {
        let of_home = self.has.iter().filter(|(_, owned)| owned.tokens.home == home);
        let locks = of_home.map(|(file, owned)| (*file, owned.tokens.has.clone())).collect();
        self.out.push((home, NodeLock::Reclaim { admitted: self.admitted, locks }));
        self.watches.retain(|(of, _, _)| *of != home);
        for (number, wanted) in self.wants.iter().filter(|(_, wanted)| wanted.home == home) {
            let Wanted { file, wish, how, .. } = *wanted;
            self.out.push((home, NodeLock::Want { number: *number, file, wish, how }));
        }
    }
    /// The view that admitted this node; 0: it takes no part. What it got of other homes under another admission is gone.
    pub fn set_admitted(&mut self, admitted: u64, files: &mut dyn Files) {
        self.admitted = admitted;
        let own = self.own;
        let of_others = self.has.iter().filter(|(_, owned)| owned.tokens.home != own);
        let mut changed: Vec<(u64, u64)> = of_others.map(|(file, owned)| (*file, owned.tokens.admitted)).collect();
        changed.retain(|(_, its)| *its != admitted);
        for (file, its) in changed {
            match self.has.get_mut(&file) {
                Some(owned) if its == 0 => {
                    owned.tokens.admitted = admitted;
                    files.save(file, &owned.tokens);
                }
                _ => self.lose(file, files),
            }
        }
    }
    /// Takes a message of a home's arbiter.
    pub fn take(&mut self, home: HomeId, message: NodeLock, files: &mut dyn Files) {
        match message {
            NodeLock::Granted { number } => {
                let Some(wanted) = self.wants.remove(&number) else { return };
                let is_added = self.add(&wanted, files);
                if is_added {
                    self.promise(wanted.file);
                }
                self.answers.insert(number, (wanted.file, is_added.then_some(LockAnswer::Granted)));
            }
            NodeLock::Busy { number, holder } => {
                if let Some(wanted) = self.wants.remove(&number) {
                    self.answers.insert(number, (wanted.file, Some(LockAnswer::Busy(holder))));
                }
            }
            NodeLock::Revoke { number, file, wish } => {
                let holder = self.give_way(home, file, wish, number == 0, files);
                self.out.push((home, NodeLock::Revoked { number, file, holder }));
                if holder.is_some() && !self.watches.contains(&(home, file, wish)) {
                    self.watches.push((home, file, wish));
                }
            }
            NodeLock::Lost { files: lost } => lost.into_iter().for_each(|file| self.lose(file, files)),
            NodeLock::Alone { file } if home == self.own => self.lose(file, files),
            _ => {}
        }
    }
    /// Looks whether locks that keep other nodes waiting are gone.
    pub fn look(&mut self, files: &mut dyn Files) {
        for (home, file, wish) in std::mem::take(&mut self.watches) {
            if self.is_free(file, &wish, files) {
                self.out.push((home, NodeLock::MayRetry { file }));
            } else {
                self.watches.push((home, file, wish));
            }
        }
    }
    /// Gives up what nobody has asked about for some rounds, and no process holds a lock of.
    pub fn end_round(&mut self, files: &mut dyn Files) {
        self.round += 1;
        let is_idle = |owned: &Owned| owned.asked_in + IDLE_ROUNDS <= self.round && owned.tokens.home != self.own;
        let idle = self.has.iter().filter(|(_, owned)| is_idle(owned));
        let idle: Vec<(u64, HomeId)> = idle.map(|(file, owned)| (*file, owned.tokens.home)).collect();
        for (file, home) in idle {
            if let Some(owned) = self.has.get_mut(&file) {
                owned.asked_in = self.round;
            }
            if self.wants.values().any(|wanted| wanted.file == file) {
                continue;
            }
            let locks: Vec<LockWish> =
                self.has.get(&file).into_iter().flat_map(|owned| owned.tokens.has.locks()).collect();
            let all = locks.into_iter().map(|lock| LockWish { mode: LockMode::Exclusive, ..lock });
            // One by one: what is in use stays.
            for lock in all {
                let _ = self.give_way(home, file, lock, false, files);
            }
            if !self.has.contains_key(&file) {
                self.out.push((home, NodeLock::GaveUp { file }));
            }
        }
    }
    /// Writes down that the node has a lock. Returns false if that is impossible.
    fn add(&mut self, wanted: &Wanted, files: &mut dyn Files) -> bool {
        if self.covers(wanted.home, wanted.file, &wanted.wish) {
            return true;
        }
        let (admitted, home) = (self.admitted, wanted.home);
        let empty = |era| LockTokens { home, era, version: 0, admitted, is_changing: false, has: LockSet::default() };
        let mut tokens = self.has.get(&wanted.file).map_or_else(|| empty(files.fresh()), |owned| owned.tokens.clone());
        tokens.has.raise(&wanted.wish);
        tokens.version += 1;
        if tokens.has.len() > LOCKS_MAX {
            return false;
        }
        let is_saved = files.save(wanted.file, &tokens);
        if is_saved {
            self.has.insert(wanted.file, Owned { tokens, asked_in: self.round });
        }
        is_saved
    }
    /// Gives up what excludes a lock of another node. Returns who keeps the node from it. `must`: nobody can.
    fn give_way(
        &mut self,
        home: HomeId,
        file: u64,
        wish: LockWish,
        must: bool,
        files: &mut dyn Files,
    ) -> Option<LockHolder> {
        if !self.has.contains_key(&file) {
            if home != self.own {
                return None;
            }
            let (era, admitted) = (files.fresh(), self.admitted);
            let tokens = LockTokens { home, era, version: 0, admitted, is_changing: false, has: LockSet::all() };
            self.has.insert(file, Owned { tokens, asked_in: self.round });
            self.tell_interest(files);
        }
        let owned = self.has.get_mut(&file)?;
        owned.tokens.has.conflict(&wish)?;
        if self.promised.contains_key(&file) && !must {
            return Some(LockHolder { node: self.me, pid: 0, lock: wish });
        }
        owned.tokens.version += 1;
        owned.tokens.is_changing = true;
        if !files.save(file, &owned.tokens) {
            owned.tokens.is_changing = false;
            return Some(LockHolder { node: self.me, pid: 0, lock: wish });
        }
        let held = if must { Probe::Free } else { files.probe(file, &wish) };
        owned.tokens.version += 1;
        owned.tokens.is_changing = false;
        let holder = match held {
            Probe::Free => {
                owned.tokens.has.give_way(&wish);
                None
            }
            Probe::Held(pid, lock) => Some(LockHolder { node: self.me, pid, lock }),
        };
        if owned.tokens.has.is_empty() && home != self.own {
            self.lose(file, files);
        } else {
            files.save(file, &owned.tokens);
        }
        holder
    }
    /// Returns true if no process of this node holds a lock that excludes this one.
    fn is_free(&mut self, file: u64, wish: &LockWish, files: &mut dyn Files) -> bool {
        let Some(owned) = self.has.get_mut(&file) else { return true };
        if self.promised.contains_key(&file) {
            return false;
        }
        if wish.space == LockSpace::Ranges {
            return files.probe(file, wish) == Probe::Free;
        }
        // To see whether a whole file is locked it has to be locked for a moment: who is refused meanwhile looks again.
        owned.tokens.version += 1;
        owned.tokens.is_changing = true;
        files.save(file, &owned.tokens);
        let is_free = files.probe(file, wish) == Probe::Free;
        owned.tokens.version += 1;
        owned.tokens.is_changing = false;
        files.save(file, &owned.tokens);
        is_free
    }
    /// The node has nothing of the file any more; of a file of its own home, it has everything.
    fn lose(&mut self, file: u64, files: &mut dyn Files) {
        if self.has.remove(&file).is_some() {
            files.remove(file);
            self.tell_interest(files);
        }
    }
    fn tell_interest(&self, files: &mut dyn Files) {
        let of_own = self.has.values().filter(|owned| owned.tokens.home == self.own);
        files.interest(of_own.count() as u64);
    }
}
