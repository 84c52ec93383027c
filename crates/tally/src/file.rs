//! Counts of the accesses to a file.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::compiler_fence;

use crate::layout::{Keyed, SIZES, SLOT_WORDS, Word, size_class};
use crate::{Descriptor, Tally, file_flag, text};

/// The words of a file's slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Field {
    Key,
    Ready,
    Lock,
    Flags,
    Opens,
    Reads,
    ReadBytes,
    ReadNs,
    ReadsSequential,
    ReadsStrided,
    Writes,
    WriteBytes,
    WriteNs,
    WritesSequential,
    WritesStrided,
    Syncs,
    SyncNs,
    OtherNs,
    EndMax,
    FirstNs,
    LastNs,
    Bursts,
    Switches,
    LastDirection,
    MappedBytes,
    SeenReadShift,
    SeenWriteShift,
    /// Accesses without known offset and order, since another thread was counting.
    LooseReads,
    LooseReadBytes,
    LooseWrites,
    LooseWriteBytes,
}

pub(crate) const READ_SIZES: usize = 32;
pub(crate) const WRITE_SIZES: usize = READ_SIZES + SIZES;
pub(crate) const SEEN_READ: usize = WRITE_SIZES + SIZES;
/// Words of a bitmap of touched blocks: each bit is a block of `4096 << shift` bytes.
pub(crate) const SEEN_WORDS: usize = 16;
pub(crate) const SEEN_WRITE: usize = SEEN_READ + SEEN_WORDS;
pub(crate) const NAME: usize = SEEN_WRITE + SEEN_WORDS;
pub(crate) const SEEN_SHIFT_LEAST: u32 = 12;
/// The key of a file that no longer exists: another file may reuse its number.
const GONE: u64 = u64::MAX;
/// A pause of this length ends a burst of accesses.
const PAUSE_NS: u64 = 100_000_000;
/// Spins to wait for another thread that counts the same file. That thread may be this one, interrupted by a signal
/// handler.
const SPINS: u32 = 200;

/// One access.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// True for a write, false for a read.
    pub is_write: bool,
    /// Offset.
    pub offset: u64,
    /// Bytes actually read or written.
    pub bytes: u64,
    /// Duration, times the number of accesses that it stands for.
    pub ns: u64,
    /// The monotonic clock, coarse or fine; 0: not read, as for most of many fast accesses.
    pub now_ns: u64,
    /// Number of consecutive accesses; 1 unless they could not be observed one by one.
    pub count: u64,
}

/// The counts of one file.
#[repr(C)]
pub struct FileSlot {
    pub(crate) words: [Word; SLOT_WORDS],
}

impl Keyed for FileSlot {
    fn key(&self) -> &Word {
        &self.words[Field::Key as usize]
    }
}

impl FileSlot {
    fn word(&self, field: Field) -> &Word {
        &self.words[field as usize]
    }
    fn get(&self, field: Field) -> u64 {
        self.word(field).load(Relaxed)
    }
    /// Adds to a number that only the holder of the lock changes.
    fn bump(&self, field: Field, more: u64) {
        self.words[field as usize].store(self.get(field).wrapping_add(more), Relaxed);
    }
    /// Sets the name of a new slot.
    pub fn set_name(&self, name: &[u8]) {
        text::write(&self.words[NAME..], name);
        self.word(Field::Ready).store(1, Release);
    }
    /// Copies key and name of the same file in another process; counts nothing.
    pub fn name_like(&self, other: &Self) {
        for (word, from) in self.words[NAME..].iter().zip(&other.words[NAME..]) {
            word.store(from.load(Relaxed), Relaxed);
        }
        let group = other.get(Field::Flags) & file_flag::GROUP;
        self.word(Field::Flags).fetch_or(group, Relaxed);
        self.word(Field::EndMax).fetch_max(other.get(Field::EndMax), Relaxed);
        self.word(Field::Ready).store(1, Release);
    }
    /// The file's key.
    pub fn key_value(&self) -> u64 {
        self.get(Field::Key)
    }
    /// Records an opening: `flags` of [`file_flag`], the file's size, the duration.
    pub fn opened(&self, flags: u64, size_bytes: u64, ns: u64) {
        self.word(Field::Opens).fetch_add(1, Relaxed);
        self.word(Field::OtherNs).fetch_add(ns, Relaxed);
        self.flag(flags);
        self.reaches(size_bytes);
    }
    /// Adds flags.
    pub fn flag(&self, flags: u64) {
        if self.get(Field::Flags) & flags != flags {
            self.word(Field::Flags).fetch_or(flags, Relaxed);
        }
    }
    /// Records that the file has at least this many bytes.
    pub fn reaches(&self, size_bytes: u64) {
        if self.get(Field::EndMax) < size_bytes {
            self.word(Field::EndMax).fetch_max(size_bytes, Relaxed);
        }
    }
    /// Records that the name is gone: another file may come with the same key.
    pub fn gone(&self, is_deleted: bool) {
        if is_deleted {
            self.flag(file_flag::DELETED);
        }
        self.word(Field::Key).store(GONE, Release);
    }
    /// Records a mapping of this many bytes.
    pub fn mapped(&self, bytes: u64, is_shared: bool) {
        self.flag(file_flag::MAPPED | if is_shared { file_flag::MAPPED_SHARED } else { 0 });
        self.word(Field::MappedBytes).fetch_max(bytes, Relaxed);
    }
    /// Records a sync.
    pub fn synced(&self, ns: u64) {
        self.word(Field::Syncs).fetch_add(1, Relaxed);
        self.word(Field::SyncNs).fetch_add(ns, Relaxed);
    }
    /// Records the duration of another operation: closing, truncating.
    pub fn took(&self, ns: u64) {
        self.word(Field::OtherNs).fetch_add(ns, Relaxed);
    }

    /// Records the duration of reads or writes that are counted elsewhere.
    pub fn access_time(&self, is_write: bool, ns: u64) {
        self.word(if is_write { Field::WriteNs } else { Field::ReadNs }).fetch_add(ns, Relaxed);
    }

    /// Counts an access through a descriptor. Returns false if only number, bytes and time were counted, not the
    /// offset. `is_alone`: the process has one thread, so that only its own signal handlers can intervene.
    #[inline]
    pub fn access(&self, descriptor: &Descriptor, access: &Access, is_alone: bool) -> bool {
        let lock = self.word(Field::Lock);
        if is_alone {
            if lock.load(Relaxed) != 0 {
                self.count_loosely(access);
                return false;
            }
            lock.store(1, Relaxed);
            compiler_fence(SeqCst);
        } else {
            let mut spins = 0;
            while lock.swap(1, Acquire) != 0 {
                spins += 1;
                if spins > SPINS {
                    self.count_loosely(access);
                    return false;
                }
                std::hint::spin_loop();
            }
        }
        self.count(descriptor, access);
        lock.store(0, Release);
        true
    }

    #[cold]
    fn count_loosely(&self, access: &Access) {
        let (number, bytes) = if access.is_write {
            (Field::LooseWrites, Field::LooseWriteBytes)
        } else {
            (Field::LooseReads, Field::LooseReadBytes)
        };
        self.word(number).fetch_add(access.count, Relaxed);
        self.word(bytes).fetch_add(access.bytes, Relaxed);
        if access.ns != 0 {
            self.access_time(access.is_write, access.ns);
        }
        self.reaches(access.offset.saturating_add(access.bytes));
    }

    fn count(&self, descriptor: &Descriptor, access: &Access) {
        let Access { is_write, offset, bytes, ns, now_ns, count } = *access;
        let end = offset.saturating_add(bytes);
        let fields = if is_write {
            [Field::Writes, Field::WriteBytes, Field::WriteNs, Field::WritesSequential, Field::WritesStrided]
        } else {
            [Field::Reads, Field::ReadBytes, Field::ReadNs, Field::ReadsSequential, Field::ReadsStrided]
        };
        self.bump(fields[0], count);
        self.bump(fields[1], bytes);
        if ns != 0 {
            self.bump(fields[2], ns);
        }
        let size = &self.words[if is_write { WRITE_SIZES } else { READ_SIZES } + size_class(bytes / count.max(1))];
        size.store(size.load(Relaxed).wrapping_add(count), Relaxed);

        let stride = offset.wrapping_sub(descriptor.last_offset.load(Relaxed)) as i64;
        // A reader that starts over continues from there.
        if offset == descriptor.expected.load(Relaxed) || offset == 0 {
            self.bump(fields[3], count);
        } else if stride != 0 && stride == descriptor.stride.load(Relaxed) {
            self.bump(fields[4], count);
        }
        descriptor.stride.store(stride, Relaxed);
        descriptor.last_offset.store(offset, Relaxed);
        descriptor.expected.store(end, Relaxed);

        if now_ns != 0 {
            self.at(now_ns);
        }
        let direction = 1 + u64::from(is_write);
        let before = self.get(Field::LastDirection);
        if before != direction {
            self.word(Field::LastDirection).store(direction, Relaxed);
            self.bump(Field::Switches, u64::from(before != 0));
        }
        self.reaches(end);
        self.see(is_write, offset, end);
    }

    /// Records the time of an access.
    fn at(&self, now_ns: u64) {
        let last = self.get(Field::LastNs);
        if last == 0 {
            self.word(Field::FirstNs).store(now_ns, Relaxed);
        }
        if now_ns.saturating_sub(last) > PAUSE_NS {
            self.bump(Field::Bursts, 1);
        }
        if now_ns > last {
            self.word(Field::LastNs).store(now_ns, Relaxed);
        }
    }

    /// Marks the touched blocks.
    fn see(&self, is_write: bool, offset: u64, end: u64) {
        if end == offset {
            return;
        }
        let (from, shift_at) =
            if is_write { (SEEN_WRITE, Field::SeenWriteShift) } else { (SEEN_READ, Field::SeenReadShift) };
        let seen = &self.words[from..from + SEEN_WORDS];
        let before = self.get(shift_at) as u32;
        let mut shift = before;
        let blocks = (SEEN_WORDS * 64) as u64;
        while (end - 1) >> (SEEN_SHIFT_LEAST + shift) >= blocks {
            halve(seen);
            shift += 1;
        }
        if shift != before {
            self.word(shift_at).store(u64::from(shift), Relaxed);
        }
        let (first, last) = (offset >> (SEEN_SHIFT_LEAST + shift), (end - 1) >> (SEEN_SHIFT_LEAST + shift));
        for at in first / 64..=last / 64 {
            let low = if at == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
            let high = if at == last / 64 { u64::MAX >> (63 - last % 64) } else { u64::MAX };
            let word = &seen[at as usize];
            word.store(word.load(Relaxed) | (low & high), Relaxed);
        }
    }
}

fn halve(seen: &[Word]) {
    let old: [u64; SEEN_WORDS] = std::array::from_fn(|at| seen[at].load(Relaxed));
    for (word, bits) in seen.iter().zip(halved(&old)) {
        word.store(bits, Relaxed);
    }
}

/// The same bitmap with blocks twice as large.
pub(crate) fn halved(old: &[u64; SEEN_WORDS]) -> [u64; SEEN_WORDS] {
    let pair = |at: usize| old.get(at).map_or(0, |bits| every_second(bits | (bits >> 1)));
    std::array::from_fn(|at| pair(at * 2) | (pair(at * 2 + 1) << 32))
}

/// The bits 0, 2, 4, ... as bits 0, 1, 2, ...
fn every_second(bits: u64) -> u64 {
    let mut bits = bits & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        bits = (bits | (bits >> shift)) & mask;
    }
    bits
}

impl Tally {
    /// Counts an access through a descriptor, if its file is counted at all. `is_alone`: by the only thread.
    #[inline]
    pub fn access(&self, descriptor: &Descriptor, access: &Access, is_alone: bool) {
        if let Some(slot) = descriptor.slot().and_then(|slot| self.files.get(slot))
            && !slot.access(descriptor, access, is_alone)
        {
            self.add_header(crate::HeaderField::Missed, 1);
        }
    }
}
