//! Space that `fallocate` reserves for file ranges not written since. A reservation lasts as long as this process has the
//! store open and the file exists, whether or not the file is open.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use cenote::Reserve;

use super::live::Live;
use crate::FsResult;
use crate::sync::Mutex;
use crate::tree::{NumberMap, Tree};

/// Step in which reserved space is returned, since each return is a message.
const STEP_BYTES: u64 = 1 << 20;
/// After a write found no other space, later writes use the reservation at once for this long.
const SHORT: Duration = Duration::from_secs(10);
/// Unit of ranges: the largest allocation unit of tiers that programs write to.
const BLOCK: u64 = 4096;

/// Files of a tree with reserved space.
#[derive(Default, Debug)]
pub struct ReservedFiles {
    all: Mutex<NumberMap<Arc<Reserved>>>,
    /// Some exist; otherwise `stat`, open, close and removal take no lock.
    any: AtomicBool,
}

impl ReservedFiles {
    /// Returns all of them, if any.
    fn some(&self) -> Option<MutexGuard<'_, NumberMap<Arc<Reserved>>>> {
        self.any.load(Ordering::Acquire).then(|| self.all.lock())
    }
    fn find(&self, ino: u64) -> Option<Arc<Reserved>> {
        self.some()?.get(&ino).cloned()
    }
    /// Returns a file's reservation, which may be empty.
    pub fn of(&self, ino: u64) -> Arc<Reserved> {
        self.find(ino).unwrap_or_default()
    }
    /// Returns the reserved bytes that `stat` counts in addition to the file's own.
    pub fn bytes(&self, ino: u64) -> u64 {
        self.find(ino).map_or(0, |reserved| reserved.bytes())
    }
    /// Releases what is reserved beyond the end of a file.
    pub fn cut(&self, ino: u64, size: u64) {
        if let Some(reserved) = self.find(ino) {
            reserved.give_up(size, u64::MAX);
            self.tidy(ino);
        }
    }
    /// Releases the reservation of a removed file.
    pub fn forget(&self, ino: u64) {
        self.remove_if(ino, |_| true);
    }
    /// Drops a file's entry if nothing is reserved for it.
    pub fn tidy(&self, ino: u64) {
        self.remove_if(ino, |reserved| !reserved.is_some.load(Ordering::Acquire));
    }
    fn remove_if(&self, ino: u64, is_to_go: impl Fn(&Reserved) -> bool) {
        let Some(mut all) = self.some() else { return };
        let gone = if all.get(&ino).is_some_and(|reserved| is_to_go(reserved)) { all.remove(&ino) } else { None };
        self.any.store(!all.is_empty(), Ordering::Release);
        drop(all);
        drop(gone); // sends a message
    }
    fn note(&self, ino: u64, reserved: &Arc<Reserved>) {
        let mut all = self.all.lock();
        all.insert(ino, reserved.clone());
        self.any.store(true, Ordering::Release);
    }
    /// Forgets files that others have removed.
    pub fn sweep(&self, tree: &Tree) {
        let all: Vec<u64> = self.some().map_or_else(Vec::new, |all| all.keys().copied().collect());
        for ino in all {
            let is_gone = || matches!(tree.find(ino), Err(error) if error.errno == libc::ESTALE);
            if tree.live(ino).is_none() && is_gone() {
                self.forget(ino);
            }
        }
    }
}

/// Space reserved for one file.
#[derive(Default, Debug)]
pub struct Reserved {
    /// There may be some; if false, the lock is not taken.
    is_some: AtomicBool,
    kept: Mutex<Option<Kept>>,
}

#[derive(Debug)]
struct Kept {
    space: Reserve,
    /// Whole blocks not written since: begin and end of each.
    ranges: Ranges,
    /// Until then, writes do not look for other space first: there was none, and finding that out takes time.
    short_until: Option<Instant>,
}

/// Disjoint ranges: begin and end of each.
#[derive(Default, PartialEq, Eq, Debug)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn bytes(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }
    /// Extends the range to whole blocks: a partial write of a block uses up the block's reservation.
    fn whole_blocks(&self) -> u64 {
        let whole = |(from, to): (&u64, &u64)| (to - to % BLOCK).saturating_sub(from.next_multiple_of(BLOCK));
        self.0.iter().map(whole).sum()
    }
    fn add(&mut self, from: u64, to: u64) {
        self.subtract(from, to);
        self.0.insert(from, to);
    }
    fn subtract(&mut self, from: u64, to: u64) {
        let met: Vec<(u64, u64)> = self.meeting(from, to).collect();
        for (begin, end) in met {
            self.0.remove(&begin);
            if begin < from {
                self.0.insert(begin, from);
            }
            if end > to {
                self.0.insert(to, end);
            }
        }
    }
    fn meeting(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        let before = self.0.range(..to).rev().map(|(begin, end)| (*begin, *end));
        before.take_while(move |(_, end)| *end > from)
    }
}

impl Reserved {
    /// Returns the bytes reserved for blocks without data.
    pub fn bytes(&self) -> u64 {
        if !self.is_some.load(Ordering::Acquire) {
            return 0;
        }
        self.kept.lock().as_ref().map_or(0, |kept| kept.space.bytes().min(kept.ranges.whole_blocks()))
    }
    /// Releases what is reserved in a range.
    pub fn give_up(&self, from: u64, to: u64) {
        if !self.is_some.load(Ordering::Acquire) {
            return;
        }
        let mut all = self.kept.lock();
        let Some(kept) = all.as_mut() else { return };
        kept.ranges.subtract(from, to);
        let left = kept.ranges.bytes();
        if left == 0 {
            self.is_some.store(false, Ordering::Release);
            *all = None;
            return;
        }
        let surplus = kept.space.bytes().saturating_sub(left);
        if surplus >= STEP_BYTES {
            kept.space.release(surplus);
        }
    }
    fn note_short(&self) {
        if let Some(kept) = self.kept.lock().as_mut() {
            kept.short_until = Some(Instant::now() + SHORT);
        }
    }
    /// Returns true if there was recently no space besides what is reserved.
    fn is_short(&self) -> bool {
        let all = self.kept.lock();
        all.as_ref().and_then(|kept| kept.short_until).is_some_and(|until| Instant::now() < until)
    }
    /// Lets a write of these ranges that finds no space use the reservation; returns false if there is none.
    fn open(&self, ranges: &[(u64, u64)]) -> FsResult<bool> {
        let all = self.kept.lock();
        let Some(kept) = all.as_ref() else { return Ok(false) };
        let is_meant = ranges.iter().any(|(from, to)| kept.ranges.meeting(*from, *to).next().is_some());
        let bytes = ranges.iter().map(|(from, to)| (to - from).next_multiple_of(BLOCK)).sum();
        Ok(is_meant && kept.space.open(bytes)?)
    }
}

impl Live {
    /// Reserves space for the holes of a range, in whole blocks. `ENOSPC` if there is none.
    pub fn reserve(&self, holes: &[(u64, u64)]) -> FsResult<()> {
        let mut all = self.reserved.kept.lock();
        all.take_if(|kept| !kept.space.is_mine());
        let mut ranges = Ranges::default();
        for (from, to) in holes {
            ranges.add(*from, *to);
        }
        if let Some(kept) = all.as_ref() {
            kept.ranges.0.iter().for_each(|(from, to)| ranges.subtract(*from, *to));
        }
        let bytes = ranges.bytes();
        if bytes == 0 {
            return Ok(());
        }
        if let Some(kept) = all.as_mut() {
            kept.space.add(bytes)?;
            ranges.0.iter().for_each(|(from, to)| kept.ranges.add(*from, *to));
            return Ok(());
        }
        *all = self.handle().reserve(bytes)?.map(|space| Kept { space, ranges, short_until: None });
        self.reserved.is_some.store(all.is_some(), Ordering::Release);
        drop(all);
        self.tree.reserved.note(self.ino, &self.reserved);
        self.tree.reserved.tidy(self.ino);
        Ok(())
    }

    /// Writes these ranges, with reserved space if there is no other.
    pub fn with_reserved<T>(
        &self,
        ranges: impl FnOnce() -> Vec<(u64, u64)>,
        mut write: impl FnMut() -> FsResult<T>,
    ) -> FsResult<T> {
        if !self.reserved.is_some.load(Ordering::Acquire) {
            return write();
        }
        let ranges = ranges();
        if self.reserved.is_short() {
            self.reserved.open(&ranges)?;
        }
        loop {
            match write() {
                Err(error) if error.errno == libc::ENOSPC && self.reserved.open(&ranges)? => self.reserved.note_short(),
                done => {
                    if done.is_ok() {
                        for (from, to) in &ranges {
                            self.reserved.give_up(*from, *to);
                        }
                    }
                    return done;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_added_once_and_cut_anywhere() {
        let mut ranges = Ranges::default();
        ranges.add(0, 100);
        ranges.add(50, 150);
        ranges.add(300, 400);
        assert_eq!(ranges.bytes(), 250);
        ranges.subtract(10, 20);
        ranges.subtract(390, 1000);
        assert_eq!(ranges.bytes(), 230);
        assert_eq!(ranges.whole_blocks(), 0);
        ranges.add(4095, 12_289);
        assert_eq!(ranges.whole_blocks(), 8192);
        ranges.subtract(4095, 12_289);
        assert!(ranges.meeting(10, 20).next().is_none() && ranges.meeting(0, 11).next().is_some());
        ranges.subtract(0, u64::MAX);
        assert_eq!(ranges, Ranges::default());
    }
}
