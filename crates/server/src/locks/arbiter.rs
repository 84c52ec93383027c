//! Decides which node has which locks of the files of a home.
//!
//! A node may get a lock once no other node has one that excludes it. So the arbiter asks those that have to give way, one
//! wish of a file at a time, and each answers at once: it has given way, or a process there holds a lock. Who wanted to wait
//! sleeps then, until a node says that it may be tried again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cenote_model::{LockHolder, LockHow, LockSet, LockWish};
use cenote_wire::NodeLock;

use super::agent::LOCKS_MAX;

/// The arbiter of a home; see the module.
pub(crate) struct Arbiter {
    /// The node on which processes lock files of the home without asking: it has what no other node has.
    resident: Option<u16>,
    files: BTreeMap<u64, FileLocks>,
    /// Nodes with a connection on which they have said what they have.
    present: BTreeSet<u16>,
    /// The view that admitted each node that takes part.
    admitted: BTreeMap<u16, u64>,
    /// Nodes that may still claim what they had of an earlier arbiter of this home.
    awaited: BTreeSet<u16>,
    in_grace: bool,
    next: u64,
    out: Vec<(u16, NodeLock)>,
}

/// The locks of a file.
#[derive(Default)]
struct FileLocks {
    /// What each node has; that of the resident is here once it has not everything.
    has: BTreeMap<u16, LockSet>,
    attempt: Option<Attempt>,
    queue: VecDeque<Asked>,
    /// Those that wait for a lock that a process of another node holds.
    asleep: VecDeque<Asked>,
}

/// What a node asks for.
#[derive(Clone)]
struct Asked {
    node: u16,
    number: u64,
    wish: LockWish,
    how: LockHow,
}

/// A wish for which other nodes are asked to give way.
struct Attempt {
    asked: Asked,
    /// Somebody still waits for the answer. What others give up is noted all the same.
    is_wanted: bool,
    /// The number of the revocation.
    number: u64,
    pending: BTreeSet<u16>,
    holder: Option<LockHolder>,
}

impl Arbiter {
    /// Without locks. `awaited`: nodes that may claim some, until [`Arbiter::end_grace`].
    pub fn new(resident: Option<u16>, awaited: BTreeSet<u16>) -> Self {
        let in_grace = !awaited.is_empty();
        let (files, admitted) = Default::default();
        let present = resident.into_iter().collect();
        Self { resident, files, present, admitted, awaited, in_grace, next: 1, out: Vec::new() }
    }
    /// What is to be told to nodes by now.
    pub fn take_out(&mut self) -> Vec<(u16, NodeLock)> {
        std::mem::take(&mut self.out)
    }
    /// The nodes other than the resident that have something, and what.
    pub fn others(&self) -> BTreeSet<u16> {
        let nodes = self.files.values().flat_map(|file| file.has.keys().copied());
        nodes.filter(|node| Some(*node) != self.resident).chain(self.awaited.iter().copied()).collect()
    }
    /// What a node has of a file.
    #[cfg(test)]
    pub fn has(&self, node: u16, file: u64) -> LockSet {
        let all = if Some(node) == self.resident { LockSet::all() } else { LockSet::default() };
        self.files.get(&file).and_then(|file| file.has.get(&node)).cloned().unwrap_or(all)
    }
    /// The nodes that may still claim what they had.
    #[cfg(test)]
    pub fn awaited(&self) -> BTreeSet<u16> {
        self.awaited.clone()
    }
    /// Returns true while nodes may claim what they had.
    pub fn is_in_grace(&self) -> bool {
        self.in_grace
    }
    /// The nodes that take part, each with the view that admitted it. The locks of others, and of those that were admitted
    /// anew, are to end with [`Arbiter::end`], which the caller does when these nodes know it.
    pub fn note_admitted(&mut self, admitted: BTreeMap<u16, u64>) -> Vec<u16> {
        let gone = |node: &u16| self.admitted.get(node).is_some_and(|before| admitted.get(node) != Some(before));
        let over = self.admitted.keys().copied().filter(gone).collect();
        self.admitted = admitted;
        self.awaited.retain(|node| self.admitted.contains_key(node));
        self.look_at_grace();
        over
    }
    /// The locks of a node end.
    pub fn end(&mut self, node: u16) {
        self.awaited.remove(&node);
        let files: Vec<u64> = self.files.keys().copied().collect();
        for file in files {
            self.end_in(file, node);
        }
        self.look_at_grace();
    }
    fn end_in(&mut self, number: u64, node: u16) {
        let Some(file) = self.files.get_mut(&number) else { return };
        if Some(node) == self.resident || file.has.remove(&node).is_none() {
            return;
        }
        file.wake();
        self.look_at_alone(number);
        self.go_on(number);
    }
    /// The connection of a node has ended: its questions have, too. What it has stays.
    pub fn gone(&mut self, node: u16) {
        self.present.remove(&node);
        let files: Vec<u64> = self.files.keys().copied().collect();
        for number in files {
            let Some(file) = self.files.get_mut(&number) else { continue };
            file.queue.retain(|asked| asked.node != node);
            file.asleep.retain(|asked| asked.node != node);
            if let Some(attempt) = &mut file.attempt {
                // It asks again under the same number, and that is another attempt.
                attempt.is_wanted &= attempt.asked.node != node;
                if attempt.pending.remove(&node) {
                    attempt.holder = attempt.holder.or(Some(unknown(node, attempt.asked.wish)));
                }
            }
            self.finish(number);
            self.go_on(number);
        }
    }
    /// Takes a message of a node.
    pub fn take(&mut self, node: u16, message: NodeLock) {
        match message {
            NodeLock::Reclaim { admitted, locks } => self.reclaim(node, admitted, locks),
            // Of a connection that ended: it says everything again.
            _ if !self.present.contains(&node) => {}
            NodeLock::Want { number, file, wish, how } => self.want(file, Asked { node, number, wish, how }),
            NodeLock::Cancel { number } => self.cancel(node, number),
            NodeLock::Revoked { number, file, holder } => self.revoked(node, number, file, holder),
            NodeLock::MayRetry { file } => {
                if let Some(locks) = self.files.get_mut(&file) {
                    locks.wake();
                    self.go_on(file);
                }
            }
            NodeLock::GaveUp { file } => self.end_in(file, node),
            NodeLock::Granted { .. }
            | NodeLock::Busy { .. }
            | NodeLock::Revoke { .. }
            | NodeLock::Lost { .. }
            | NodeLock::Alone { .. } => {}
        }
    }
    /// Tries all wishes again that sleep: whatever happened to a message that would have woken them.
    pub fn retry_all(&mut self) {
        let files: Vec<u64> = self.files.keys().copied().collect();
        for number in files {
            if let Some(file) = self.files.get_mut(&number) {
                file.wake();
            }
            self.go_on(number);
        }
    }
    /// Who has not claimed anything by now does not.
    pub fn end_grace(&mut self) {
        if std::mem::take(&mut self.in_grace) {
            self.awaited.clear();
            let files: Vec<u64> = self.files.keys().copied().collect();
            for number in files {
                self.look_at_alone(number);
                self.go_on(number);
            }
        }
    }
    fn look_at_grace(&mut self) {
        if self.awaited.is_empty() {
            self.end_grace();
        }
    }
    /// The node says what it has. In the grace that counts unless another node has claimed what excludes it; later only what
    /// is known here.
    fn reclaim(&mut self, node: u16, admitted: u64, locks: Vec<(u64, LockSet)>) {
        if Some(node) == self.resident {
            return self.resident_has(locks);
        }
        self.gone(node);
        self.present.insert(node);
        let known = self.admitted.get(&node);
        let is_known = known.is_none() || known == Some(&admitted);
        let claimed: BTreeMap<u64, LockSet> = locks.into_iter().collect();
        let files: Vec<u64> = self.files.keys().copied().collect();
        let mut lost = Vec::new();
        for (number, set) in &claimed {
            let is_new = self.in_grace && self.awaited.contains(&node);
            let others_agree = is_new && self.may_have(node, *number, set);
            let file = self.files.entry(*number).or_default();
            let had = file.has.get(&node).is_some_and(|had| had.covers_all(set));
            if is_known && (had || others_agree) && set.len() <= LOCKS_MAX {
                file.has.insert(node, set.clone());
                if let Some(resident) = self.resident {
                    let its = file.has.entry(resident).or_insert_with(LockSet::all);
                    for wish in set.locks().filter(|lock| its.conflict(lock).is_some()).collect::<Vec<_>>() {
                        its.give_way(&wish);
                        self.out.push((resident, NodeLock::Revoke { number: 0, file: *number, wish }));
                    }
                }
            } else {
                lost.push(*number);
            }
        }
        for number in files {
            if !claimed.contains_key(&number) || lost.contains(&number) {
                self.end_in(number, node);
            }
        }
        for number in &lost {
            self.tidy(*number);
        }
        if !lost.is_empty() {
            self.out.push((node, NodeLock::Lost { files: lost }));
        }
        self.awaited.remove(&node);
        self.look_at_grace();
    }
    /// The resident says of which files it has not everything.
    fn resident_has(&mut self, locks: Vec<(u64, LockSet)>) {
        let Some(resident) = self.resident else { return };
        for (number, set) in locks {
            self.files.entry(number).or_default().has.insert(resident, set);
            self.look_at_alone(number);
            self.tidy(number);
        }
    }
    fn may_have(&self, node: u16, number: u64, set: &LockSet) -> bool {
        let Some(file) = self.files.get(&number) else { return true };
        let mut others = file.has.iter().filter(|(other, _)| **other != node && Some(**other) != self.resident);
        others.all(|(_, its)| set.locks().all(|lock| its.conflict(&lock).is_none()))
    }
    fn want(&mut self, number: u64, asked: Asked) {
        self.files.entry(number).or_default().queue.push_back(asked);
        self.go_on(number);
    }
    fn cancel(&mut self, node: u16, number: u64) {
        let is_it = |asked: &Asked| asked.node == node && asked.number == number;
        let Some((of, file)) = self.files.iter_mut().find(|(_, file)| file.all().any(is_it)) else { return };
        let of = *of;
        file.queue.retain(|asked| !is_it(asked));
        file.asleep.retain(|asked| !is_it(asked));
        if let Some(attempt) = file.attempt.as_mut().filter(|attempt| is_it(&attempt.asked)) {
            attempt.is_wanted = false;
        }
        self.go_on(of);
    }
    /// Has as many wishes of a file decided as can be.
    fn go_on(&mut self, number: u64) {
        while !self.in_grace {
            let Some(file) = self.files.get_mut(&number).filter(|file| file.attempt.is_none()) else { break };
            let Some(asked) = file.queue.pop_front() else { break };
            self.begin(number, asked);
        }
        self.tidy(number);
    }
    /// Asks those who have to give way to a wish.
    fn begin(&mut self, number: u64, asked: Asked) {
        let Some(file) = self.files.get_mut(&number) else { return };
        let (revocation, mut pending, mut holder) = (self.next, BTreeSet::new(), None);
        self.next += 1;
        let all = LockSet::all();
        let resident = self.resident.filter(|resident| !file.has.contains_key(resident)).map(|node| (node, &all));
        let others = file.has.iter().map(|(node, has)| (*node, has)).chain(resident);
        for (node, has) in others.filter(|(node, _)| *node != asked.node) {
            let Some(conflict) = has.conflict(&asked.wish) else { continue };
            if self.present.contains(&node) || Some(node) == self.resident {
                pending.insert(node);
                let wish = asked.wish;
                self.out.push((node, NodeLock::Revoke { number: revocation, file: number, wish }));
            } else {
                holder = Some(unknown(node, conflict));
            }
        }
        file.attempt = Some(Attempt { asked, is_wanted: true, number: revocation, pending, holder });
        self.finish(number);
    }
    fn revoked(&mut self, node: u16, number: u64, of: u64, holder: Option<LockHolder>) {
        let Some(file) = self.files.get_mut(&of) else { return };
        let Some(attempt) = file.attempt.as_mut().filter(|attempt| attempt.number == number) else { return };
        if !attempt.pending.remove(&node) {
            return;
        }
        let wish = attempt.asked.wish;
        // The first one in the file, whoever answers first.
        let holders = attempt.holder.into_iter().chain(holder);
        attempt.holder = holders.min_by_key(|holder| holder.lock.first);
        if holder.is_none() {
            let is_resident = Some(node) == self.resident;
            let empty = if is_resident { LockSet::all() } else { LockSet::default() };
            let has = file.has.entry(node).or_insert(empty);
            has.give_way(&wish);
            if has.is_empty() && !is_resident {
                file.has.remove(&node);
            }
        }
        self.finish(of);
        self.go_on(of);
    }
    /// Answers a wish once all have been heard.
    fn finish(&mut self, number: u64) {
        let Some(file) = self.files.get_mut(&number) else { return };
        let Some(attempt) = file.attempt.take_if(|attempt| attempt.pending.is_empty()) else { return };
        let Attempt { asked, is_wanted, holder, .. } = attempt;
        let Asked { node, number: question, wish, how } = asked;
        match (how, holder) {
            _ if !is_wanted => {}
            (LockHow::Wait, Some(_)) => file.asleep.push_back(asked),
            (LockHow::Test, _) | (_, Some(_)) => self.out.push((node, NodeLock::Busy { number: question, holder })),
            _ => {
                let is_resident = Some(node) == self.resident;
                let empty = if is_resident { LockSet::all() } else { LockSet::default() };
                let has = file.has.entry(node).or_insert(empty);
                has.raise(&wish);
                self.out.push((node, NodeLock::Granted { number: question }));
            }
        }
        self.look_at_alone(number);
    }
    /// The resident has everything again once no other node has anything.
    fn look_at_alone(&mut self, number: u64) {
        let Some(resident) = self.resident else { return };
        let Some(file) = self.files.get_mut(&number) else { return };
        if file.has.keys().all(|node| *node == resident) && file.attempt.is_none() && !self.in_grace {
            file.has.remove(&resident);
            self.out.push((resident, NodeLock::Alone { file: number }));
        }
    }
    fn tidy(&mut self, number: u64) {
        if self.files.get(&number).is_some_and(FileLocks::is_idle) {
            self.files.remove(&number);
        }
    }
}

impl FileLocks {
    fn wake(&mut self) {
        self.queue.extend(self.asleep.drain(..));
    }
    fn all(&self) -> impl Iterator<Item = &Asked> {
        let attempt = self.attempt.iter().map(|attempt| &attempt.asked);
        attempt.chain(&self.queue).chain(&self.asleep)
    }
    fn is_idle(&self) -> bool {
        self.has.is_empty() && self.all().next().is_none()
    }
}

/// Somebody on a node that cannot be asked.
fn unknown(node: u16, lock: LockWish) -> LockHolder {
    LockHolder { node, pid: 0, lock }
}
