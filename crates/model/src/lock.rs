//! Advisory locks of files, as sets of byte ranges with modes. Who holds them, and where, is not known here.

use std::collections::BTreeMap;

/// The last byte that can be locked.
pub const LOCK_END: u64 = i64::MAX as u64 - 1;

/// What a lock excludes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockMode {
    /// Exclusive locks of others.
    Shared,
    /// All locks of others.
    Exclusive,
}

/// The two kinds of locks of a file, which ignore each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockSpace {
    /// The whole file (`flock`): byte 0 stands for it.
    Whole,
    /// Byte ranges (`fcntl`).
    Ranges,
}

/// A lock that somebody wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LockWish {
    /// Its kind.
    pub space: LockSpace,
    /// First byte.
    pub first: u64,
    /// Last byte, at most [`LOCK_END`].
    pub last: u64,
    /// Its mode.
    pub mode: LockMode,
}

impl LockWish {
    /// A lock of the whole file.
    #[must_use]
    pub fn whole(mode: LockMode) -> Self {
        Self { space: LockSpace::Whole, first: 0, last: 0, mode }
    }
    /// Returns true if the range is one.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let last_max = if self.space == LockSpace::Whole { 0 } else { LOCK_END };
        self.first <= self.last && self.last <= last_max
    }
}

/// How a process asks for a lock of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockHow {
    /// Not at all: only whether the locks that it has still stand.
    Settle,
    /// Not at all: only who holds a conflicting one.
    Test,
    /// If it is free.
    Try,
    /// As soon as it is free.
    Wait,
}

/// Somebody's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockHolder {
    /// The node.
    pub node: u16,
    /// The process there; 0 if an open file has the lock, or nobody knows.
    pub pid: u32,
    /// The lock.
    pub lock: LockWish,
}

/// What a process is told of a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockAnswer {
    /// Its node has it, or its locks stand.
    Granted,
    /// Somebody else has it; `None`: nobody has.
    Busy(Option<LockHolder>),
    /// The locks that it had are gone.
    Lost,
}

/// Ranges with modes; adjacent ones of a mode are one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LockMap(BTreeMap<u64, (u64, LockMode)>);

impl LockMap {
    /// Returns true if nothing is locked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Number of ranges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// The ranges, ascending: first and last byte, and mode.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, LockMode)> + '_ {
        self.0.iter().map(|(first, (last, mode))| (*first, *last, *mode))
    }
    /// The ranges that meet bytes `first` to `last`, ascending and cut to them.
    pub fn within(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64, LockMode)> + '_ {
        let before = self.0.range(..first).next_back().filter(|(_, (end, _))| *end >= first);
        let all = before.into_iter().chain(self.0.range(first..=last));
        all.map(move |(from, (to, mode))| ((*from).max(first), (*to).min(last), *mode))
    }
    /// Locks bytes `first` to `last` with this mode whatever they had, or unlocks them.
    pub fn set(&mut self, first: u64, last: u64, mode: Option<LockMode>) {
        let (mut from, mut to) = (first, last);
        // Neighbours are taken out, too, so that ranges of one mode become one.
        let low = first.saturating_sub(1);
        let high = last.saturating_add(1);
        let before = self.0.range(..low).next_back().map(|(at, _)| *at);
        let met: Vec<u64> = before.into_iter().chain(self.0.range(low..=high).map(|(at, _)| *at)).collect();
        for at in met {
            let Some((end, its)) = self.0.remove(&at) else { continue };
            let touches = end >= low;
            if touches && Some(its) == mode {
                (from, to) = (from.min(at), to.max(end));
                continue;
            }
            if at < first {
                self.0.insert(at, (end.min(first - 1), its));
            }
            if end > last {
                self.0.insert(at.max(last + 1), (end, its));
            }
        }
        if let Some(mode) = mode {
            self.0.insert(from, (to, mode));
        }
    }
    /// Returns true if all bytes of the range have this mode or a stronger one.
    #[must_use]
    pub fn covers(&self, first: u64, last: u64, mode: LockMode) -> bool {
        let mut next = first;
        for (from, to, its) in self.within(first, last) {
            if from != next || its < mode {
                return false;
            }
            if to == last {
                return true;
            }
            next = to + 1;
        }
        false
    }
    /// A range that excludes a lock of another holder.
    #[must_use]
    pub fn conflict(&self, first: u64, last: u64, mode: LockMode) -> Option<(u64, u64, LockMode)> {
        let excludes = |its| its == LockMode::Exclusive || mode == LockMode::Exclusive;
        self.within(first, last).find(|(_, _, its)| excludes(*its))
    }
    /// Gives the bytes at least this mode.
    pub fn raise(&mut self, first: u64, last: u64, mode: LockMode) {
        let stronger: Vec<_> = self.within(first, last).filter(|(_, _, its)| *its > mode).collect();
        self.set(first, last, Some(mode));
        for (from, to, its) in stronger {
            self.set(from, to, Some(its));
        }
    }
    /// Takes from the bytes what excludes a lock of this mode of another holder.
    pub fn give_way(&mut self, first: u64, last: u64, mode: LockMode) {
        let met: Vec<_> = self.within(first, last).collect();
        for (from, to, its) in met {
            match (its, mode) {
                (_, LockMode::Exclusive) => self.set(from, to, None),
                (LockMode::Exclusive, LockMode::Shared) => self.set(from, to, Some(LockMode::Shared)),
                (LockMode::Shared, LockMode::Shared) => {}
            }
        }
    }
}

/// Locks of one file, of both kinds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LockSet {
    /// Of the whole file, as byte 0.
    pub whole: LockMap,
    /// Of byte ranges.
    pub ranges: LockMap,
}

impl LockSet {
    /// Everything that can be locked.
    #[must_use]
    pub fn all() -> Self {
        let mut all = Self::default();
        all.whole.set(0, 0, Some(LockMode::Exclusive));
        all.ranges.set(0, LOCK_END, Some(LockMode::Exclusive));
        all
    }
    /// Those of one kind.
    #[must_use]
    pub fn of(&self, space: LockSpace) -> &LockMap {
        if space == LockSpace::Whole { &self.whole } else { &self.ranges }
    }
    /// The same, to change them.
    pub fn of_mut(&mut self, space: LockSpace) -> &mut LockMap {
        if space == LockSpace::Whole { &mut self.whole } else { &mut self.ranges }
    }
    /// Returns true if nothing is locked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.ranges.is_empty()
    }
    /// Number of locks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.whole.len() + self.ranges.len()
    }
    /// Returns true if a lock is within these.
    #[must_use]
    pub fn covers(&self, wish: &LockWish) -> bool {
        self.of(wish.space).covers(wish.first, wish.last, wish.mode)
    }
    /// Returns true if every lock of another set is within these.
    #[must_use]
    pub fn covers_all(&self, other: &Self) -> bool {
        other.locks().all(|lock| self.covers(&lock))
    }
    /// One of these that excludes a lock of another holder.
    #[must_use]
    pub fn conflict(&self, wish: &LockWish) -> Option<LockWish> {
        let found = self.of(wish.space).conflict(wish.first, wish.last, wish.mode)?;
        Some(LockWish { space: wish.space, first: found.0, last: found.1, mode: found.2 })
    }
    /// Adds a lock.
    pub fn raise(&mut self, wish: &LockWish) {
        self.of_mut(wish.space).raise(wish.first, wish.last, wish.mode);
    }
    /// Takes away what excludes a lock of another holder.
    pub fn give_way(&mut self, wish: &LockWish) {
        self.of_mut(wish.space).give_way(wish.first, wish.last, wish.mode);
    }
    /// All locks.
    pub fn locks(&self) -> impl Iterator<Item = LockWish> + '_ {
        let of = |space| self.of(space).iter().map(move |(first, last, mode)| LockWish { space, first, last, mode });
        of(LockSpace::Whole).chain(of(LockSpace::Ranges))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 24;

    /// A number in `0..below`, from a state that it advances.
    fn next(state: &mut u64, below: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % below
    }

    #[test]
    fn ranges_do_what_an_array_of_bytes_does() {
        let (mut state, mut map) = (7, LockMap::default());
        let mut bytes = [None; BYTES as usize];
        for step in 0..20_000 {
            let first = next(&mut state, BYTES);
            let last = first + next(&mut state, BYTES - first);
            let mode = if next(&mut state, 2) == 0 { LockMode::Shared } else { LockMode::Exclusive };
            let range = first as usize..=last as usize;
            match next(&mut state, 4) {
                0 => {
                    map.set(first, last, Some(mode));
                    bytes[range.clone()].fill(Some(mode));
                }
                1 => {
                    map.set(first, last, None);
                    bytes[range.clone()].fill(None);
                }
                2 => {
                    map.raise(first, last, mode);
                    bytes[range.clone()].iter_mut().for_each(|it| *it = (*it).max(Some(mode)));
                }
                _ => {
                    map.give_way(first, last, mode);
                    let left = (mode == LockMode::Shared).then_some(LockMode::Shared);
                    bytes[range.clone()].iter_mut().for_each(|it| *it = (*it).min(left));
                }
            }
            let is = |at: u64| map.within(at, at).next().map(|(_, _, mode)| mode);
            assert!((0..BYTES).all(|at| is(at) == bytes[at as usize]), "step {step}: {map:?} {bytes:?}");
            let list: Vec<_> = map.iter().collect();
            assert!(list.windows(2).all(|two| two[0].1 + 1 < two[1].0 || two[0].2 != two[1].2), "{map:?}");
            assert_eq!(map.covers(first, last, mode), bytes[range.clone()].iter().all(|it| *it >= Some(mode)));
            let excludes = |it: &Option<LockMode>| it.is_some_and(|it| it.max(mode) == LockMode::Exclusive);
            assert_eq!(map.conflict(first, last, mode).is_some(), bytes[range].iter().any(excludes));
        }
    }

    #[test]
    fn all_covers_everything() {
        let mut all = LockSet::all();
        let last = LockWish { space: LockSpace::Ranges, first: 5, last: LOCK_END, mode: LockMode::Exclusive };
        assert!(all.covers(&last) && all.covers(&LockWish::whole(LockMode::Exclusive)) && last.is_valid());
        assert!(!LockWish { last: LOCK_END + 1, ..last }.is_valid());
        all.give_way(&LockWish { mode: LockMode::Shared, ..last });
        assert!(!all.covers(&last) && all.covers(&LockWish { mode: LockMode::Shared, ..last }));
        assert!(LockSet::all().covers_all(&all) && !all.covers_all(&LockSet::all()));
        assert_eq!(all.conflict(&LockWish { mode: LockMode::Shared, ..last }), None);
        assert_eq!(all.locks().count(), 3);
    }
}
