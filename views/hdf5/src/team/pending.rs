//! Launched writes that may not be in the store yet, in memory shared by the ranks of a program.
//!
//! A rank that awaited each row it writes would spend more time waiting than copying. So small writes are launched, dozens
//! in one message, and each rank notes its own in a table that the others see: object, byte range, number of the message.
//! A rank that is about to read or write the same bytes, or to change the whole dataset, waits for that message first. So
//! each rank sees what the others had written when it was called, as if every write were awaited, except that a killed
//! rank loses its writes of the last milliseconds.
//!
//! The memory is a `memfd` of rank 0, which the others open under `/proc`. Until all ranks have opened it, or if one cannot,
//! no rank launches: so ranks on several hosts await each write.

use std::fs;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cenote::{Error, ErrorKind, Settling};
use cenote_host::fork::generation as fork_generation;
use cenote_host::process::started_of as process_started;

use super::wire::Wire;
use crate::Result;
use crate::file::random_u64;
use crate::meta::bytes::{Encode, Reader};

/// Writes of a rank that fit in the table; a session's queue sends them before there are more.
const SLOTS: usize = 128;
/// Time after which a live rank that does not answer is an error.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time for which a waiting rank polls without sleeping: longer than a message takes.
const EAGER: Duration = Duration::from_micros(50);
const NAP: Duration = Duration::from_micros(50);

/// Number of turn words: objects with the same hash share a turn.
const TURNS: usize = 64;
/// Time after which a rank proceeds out of turn: turns save work, transactions keep the data right.
const TURN_PATIENCE: Duration = Duration::from_secs(1);

/// The start of the memory.
#[repr(C, align(128))]
struct Head {
    /// Tells this memory from that of another program, which has the same address on another host.
    token: u64,
    /// Number of ranks that have mapped it.
    joined: AtomicU64,
    /// Nonzero: no rank launches any more.
    off: AtomicU64,
    /// The rank whose turn it is to read and write back, plus 1, by a hash of the object; 0: none.
    turns: [AtomicU64; TURNS],
}

/// The part of the memory that one rank writes.
#[repr(C, align(128))]
struct Lane {
    /// Process id and start time, which tell whether the rank lives.
    pid: AtomicU64,
    started: AtomicU64,
    /// Number of the last message with a write in the table.
    last: AtomicU64,
    /// All messages up to this number are done.
    settled: AtomicU64,
    /// Number of writes noted so far: the next one goes into slot `noted % SLOTS`.
    noted: AtomicU64,
    slots: [Slot; SLOTS],
}

/// A write. Its message number is set to 0 first and written last: a reader that sees the number sees the rest, or
/// something later.
#[repr(C, align(32))]
struct Slot {
    message: AtomicU64,
    object: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
}

/// The table of launched writes.
pub struct Pending {
    base: NonNull<u8>,
    /// Rank 0's descriptor, for the others to open.
    fd: Option<OwnedFd>,
    rank: usize,
    size: usize,
    /// Fork generation whose messages are counted: a forked child has others.
    generation: u64,
}

// SAFETY: the memory behind `base` is nothing but atomics, mapped as long as this lives.
unsafe impl Send for Pending {}
// SAFETY: as above.
unsafe impl Sync for Pending {}

/// Where rank 0's memory is found, on its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    pid: u32,
    fd: u32,
    token: u64,
}

impl Wire for Address {
    fn encode(&self, w: &mut Vec<u8>) {
        w.put_u32(self.pid);
        w.put_u32(self.fd);
        w.put_u64(self.token);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { pid: r.u32()?, fd: r.u32()?, token: r.u64()? })
    }
}

fn bytes_of(size: usize) -> usize {
    size_of::<Head>() + size * size_of::<Lane>()
}

impl Pending {
    /// Makes the table on rank 0. `None` if the system has no such memory.
    pub fn make(size: usize) -> Option<Self> {
        // SAFETY: the name ends in NUL; a valid descriptor is this function's to own.
        let fd = unsafe {
            let fd = libc::memfd_create(c"cenote-ranks".as_ptr(), libc::MFD_CLOEXEC);
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))?
        };
        // SAFETY: a descriptor of this scope.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), bytes_of(size) as libc::off_t) } != 0 {
            return None;
        }
        fs::File::from(fd.try_clone().ok()?).write_all_at(&random_u64().ok()?.to_ne_bytes(), 0).ok()?;
        Self::map(fd, 0, size, true)
    }
    /// Joins the table on another rank.
    pub fn join(at: Address, rank: usize, size: usize) -> Option<Self> {
        let path = format!("/proc/{}/fd/{}", at.pid, at.fd);
        // On another host, whatever is there may be anything: opening it must not wait, and it is not written.
        let file = fs::OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
        let mut token = [0; 8];
        let is_it = file.metadata().is_ok_and(|it| it.is_file() && it.len() == bytes_of(size) as u64)
            && file.read_exact_at(&mut token, 0).is_ok()
            && u64::from_ne_bytes(token) == at.token;
        if !is_it || rank >= size {
            return None;
        }
        Self::map(file.into(), rank, size, false)
    }
    fn map(fd: OwnedFd, rank: usize, size: usize, keeps_fd: bool) -> Option<Self> {
        let (protection, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of the whole file, wherever there is room.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes_of(size), protection, shared, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        let base = NonNull::new(base.cast::<u8>())?;
        let this = Self { base, fd: keeps_fd.then_some(fd), rank, size, generation: fork_generation() };
        let pid = std::process::id();
        let lane = this.lane(rank);
        lane.started.store(process_started(pid).unwrap_or(0), Ordering::Relaxed);
        lane.pid.store(u64::from(pid), Ordering::Relaxed);
        this.head().joined.fetch_add(1, Ordering::AcqRel);
        Some(this)
    }
    /// The address of rank 0's table for the others.
    pub fn address(&self) -> Address {
        let fd = self.fd.as_ref().map_or(0, |fd| fd.as_raw_fd() as u32);
        Address { pid: std::process::id(), fd, token: self.head().token }
    }
    fn head(&self) -> &Head {
        // SAFETY: the memory begins with it, and lives as long as this.
        unsafe { self.base.cast::<Head>().as_ref() }
    }
    fn lane(&self, rank: usize) -> &Lane {
        assert!(rank < self.size);
        // SAFETY: `size` lanes follow the head.
        unsafe { self.base.add(size_of::<Head>() + rank * size_of::<Lane>()).cast::<Lane>().as_ref() }
    }
    /// Returns true if this rank may launch writes: all others see the table.
    pub fn is_on(&self) -> bool {
        let head = self.head();
        head.joined.load(Ordering::Acquire) == self.size as u64
            && head.off.load(Ordering::Acquire) == 0
            && self.generation == fork_generation()
    }
    /// Makes all ranks stop launching.
    pub fn turn_off(&self) {
        self.head().off.store(1, Ordering::Release);
    }
    /// Returns true if `count` more writes can be noted.
    pub fn has_room(&self, count: usize) -> bool {
        let lane = self.lane(self.rank);
        let settled = lane.settled.load(Ordering::Acquire);
        let noted = lane.noted.load(Ordering::Relaxed);
        count <= SLOTS
            && (0..count as u64)
                .all(|i| lane.slots[((noted + i) % SLOTS as u64) as usize].message.load(Ordering::Relaxed) <= settled)
    }
    /// Notes a launched write. There must be room, and only one thread may do this at a time.
    pub fn note(&self, object: u64, bytes: Range<u64>, message: u64) {
        let lane = self.lane(self.rank);
        let noted = lane.noted.load(Ordering::Relaxed);
        let slot = &lane.slots[(noted % SLOTS as u64) as usize];
        slot.message.store(0, Ordering::Release);
        slot.object.store(object, Ordering::Release);
        slot.start.store(bytes.start, Ordering::Release);
        slot.end.store(bytes.end, Ordering::Release);
        slot.message.store(message, Ordering::Release);
        lane.noted.store(noted + 1, Ordering::Release);
        lane.last.store(message, Ordering::Release);
    }
    /// Waits until other ranks' launched writes to these bytes of an object are in the store.
    pub fn wait_for(&self, object: u64, ranges: &(impl Iterator<Item = Range<u64>> + Clone)) -> Result<()> {
        self.wait(|slot| {
            let (start, end) = (slot.start.load(Ordering::Acquire), slot.end.load(Ordering::Acquire));
            slot.object.load(Ordering::Acquire) == object
                && ranges.clone().any(|bytes| start < bytes.end && end > bytes.start)
        })
    }
    /// Waits until all earlier launched writes of other ranks are in the store.
    pub fn wait_for_all(&self) -> Result<()> {
        self.wait(|_| true)
    }
    fn wait(&self, concerns: impl Fn(&Slot) -> bool) -> Result<()> {
        for rank in (0..self.size).filter(|rank| *rank != self.rank) {
            let lane = self.lane(rank);
            let settled = lane.settled.load(Ordering::Acquire);
            if lane.last.load(Ordering::Acquire) <= settled {
                continue;
            }
            // Newest first; message numbers fall, so everything before a settled one is settled.
            let noted = lane.noted.load(Ordering::Acquire);
            let newest = (noted.saturating_sub(SLOTS as u64)..noted)
                .rev()
                .map(|n| &lane.slots[(n % SLOTS as u64) as usize])
                .map(|slot| (slot, slot.message.load(Ordering::Acquire)))
                .take_while(|(_, message)| *message == 0 || *message > settled)
                .find(|(slot, message)| *message > 0 && concerns(slot));
            if let Some((_, message)) = newest {
                self.wait_until(rank, message)?;
            }
        }
        Ok(())
    }
    /// Waits until no other rank does a read-modify-write on this object, so that neither does so in vain.
    pub fn turn(self: &Arc<Self>, object: u64) -> Turn {
        let at = (object % TURNS as u64) as usize;
        let (word, mine) = (&self.head().turns[at], self.rank as u64 + 1);
        let began = Instant::now();
        loop {
            let Err(owner) = word.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Acquire) else {
                return Turn { table: Some(self.clone()), at };
            };
            if began.elapsed() < EAGER {
                std::thread::yield_now();
                continue;
            }
            std::thread::sleep(NAP);
            let is_over = began.elapsed() > Duration::from_millis(20) && !self.lives(owner as usize - 1);
            if is_over && word.compare_exchange(owner, mine, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Turn { table: Some(self.clone()), at };
            }
            if began.elapsed() > TURN_PATIENCE {
                return Turn { table: None, at };
            }
        }
    }
    fn lives(&self, rank: usize) -> bool {
        let lane = self.lane(rank);
        process_started(lane.pid.load(Ordering::Relaxed) as u32) == Some(lane.started.load(Ordering::Relaxed))
    }
    #[cold]
    fn wait_until(&self, rank: usize, message: u64) -> Result<()> {
        let lane = self.lane(rank);
        let began = Instant::now();
        let mut looked = began;
        while lane.settled.load(Ordering::Acquire) < message {
            if began.elapsed() < EAGER {
                std::thread::yield_now();
                continue;
            }
            std::thread::sleep(NAP);
            if looked.elapsed() < Duration::from_millis(20) {
                continue;
            }
            looked = Instant::now();
            let pid = lane.pid.load(Ordering::Relaxed);
            if !self.lives(rank) {
                return Ok(()); // it died: unsent writes are lost with it, the rest has arrived
            }
            if began.elapsed() > PATIENCE {
                return Err(Error::new(ErrorKind::Busy, format!("rank {rank} (process {pid})"))
                    .because("it began a write to the same bytes, and does not complete it")
                    .try_next("check whether that process is stopped or waits for another rank"));
            }
        }
        Ok(())
    }
}

/// A rank's turn, which ends when dropped.
pub struct Turn {
    table: Option<Arc<Pending>>,
    at: usize,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(table) = &self.table {
            let mine = table.rank as u64 + 1;
            // Not if it was taken from a process that seemed dead.
            let _ = table.head().turns[self.at].compare_exchange(mine, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

impl Settling for Pending {
    fn settled(&self, number: u64) {
        if self.generation == fork_generation() {
            self.lane(self.rank).settled.store(number, Ordering::Release);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and nobody has a reference into it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), bytes_of(self.size)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> (Pending, Pending) {
        let first = Pending::make(2).unwrap();
        assert!(!first.is_on(), "the other is not there yet");
        let second = Pending::join(first.address(), 1, 2).unwrap();
        assert!(first.is_on() && second.is_on());
        (first, second)
    }

    #[test]
    fn who_comes_to_bytes_under_way_waits_for_them_and_for_no_others() {
        let (first, second) = two();
        first.note(7, 100..200, 1);
        first.note(7, 300..400, 2);
        // None of these waits.
        second.wait_for(7, &std::iter::once(0..100)).unwrap();
        second.wait_for(7, &std::iter::once(200..300)).unwrap();
        second.wait_for(8, &std::iter::once(0..u64::MAX)).unwrap();
        first.wait_for(7, &std::iter::once(0..u64::MAX)).unwrap();
        let waiting = std::thread::spawn(move || {
            second.wait_for(7, &std::iter::once(150..151)).unwrap();
            second.lane(0).settled.load(Ordering::Acquire)
        });
        std::thread::sleep(Duration::from_millis(5));
        assert!(!waiting.is_finished());
        first.settled(1);
        assert_eq!(waiting.join().unwrap(), 1);
        first.settled(2);
    }

    #[test]
    fn there_is_room_for_what_is_not_settled() {
        let (first, second) = two();
        for n in 1..=SLOTS as u64 {
            assert!(first.has_room(1));
            first.note(n, 0..1, n.div_ceil(10));
        }
        assert!(!first.has_room(1));
        first.settled(1);
        assert!(first.has_room(10) && !first.has_room(11));
        second.wait_for(5, &std::iter::once(0..1)).unwrap();
        first.note(1, 0..1, 20);
        first.settled(20);
        second.wait_for_all().unwrap();
        assert!(!first.has_room(SLOTS + 1));
    }

    #[test]
    fn a_rank_that_cannot_see_the_table_keeps_all_from_launching() {
        let first = Pending::make(3).unwrap();
        let second = Pending::join(first.address(), 1, 3).unwrap();
        assert!(Pending::join(first.address(), 2, 4).is_none(), "of another size");
        assert!(Pending::join(Address { fd: 0, ..first.address() }, 2, 3).is_none());
        assert!(Pending::join(Address { token: first.address().token ^ 1, ..first.address() }, 2, 3).is_none());
        assert!(!first.is_on() && !second.is_on());
        let third = Pending::join(first.address(), 2, 3).unwrap();
        assert!(first.is_on());
        third.turn_off();
        assert!(!first.is_on() && !second.is_on());
    }

    #[test]
    fn turns_are_taken_one_by_one() {
        let (first, second) = two();
        let (first, second) = (Arc::new(first), Arc::new(second));
        let turn = first.turn(5);
        drop(second.turn(6)); // another object's
        let waiting = std::thread::spawn(move || drop(second.turn(5)));
        std::thread::sleep(Duration::from_millis(5));
        assert!(!waiting.is_finished());
        drop(turn);
        waiting.join().unwrap();
        drop(first.turn(5));
    }

    #[test]
    fn the_dead_are_not_waited_for() {
        let (first, second) = two();
        let (first, second) = (Arc::new(first), Arc::new(second));
        std::mem::forget(first.turn(9));
        first.note(1, 0..10, 1);
        first.lane(0).started.store(1, Ordering::Relaxed);
        second.wait_for(1, &std::iter::once(0..1)).unwrap();
        assert!(second.turn(9).table.is_some());
    }
}
