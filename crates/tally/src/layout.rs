//! The layout of a tally file: a header, files, allocation sites of memory, live memory objects.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::text;
use crate::{FileSlot, SiteSlot};

/// The first eight bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"CENTALLY");
/// Version of the layout.
pub const VERSION: u64 = 1;
/// Upper bound of the files of a process that are counted separately; the last third is for groups by directory and
/// extension.
pub const FILES: usize = 768;
/// Upper bound of the allocation sites of a process.
pub const SITES: usize = 192;
/// Upper bound of the live large memory objects of a process.
pub const OBJECTS: usize = 4096;
/// Number of size classes of accesses.
pub const SIZES: usize = 8;
/// Words of a slot of any kind except a memory object's.
pub(crate) const SLOT_WORDS: usize = 128;
/// A memory object is in one of this many slots, from the slot of its address's hash on.
const PROBES: usize = 32;

/// One number.
pub(crate) type Word = AtomicU64;

/// The words of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum HeaderField {
    /// [`MAGIC`]; written last.
    Magic,
    /// [`VERSION`].
    Version,
    /// Process id.
    Pid,
    /// Process id of the parent.
    Parent,
    /// Start time, by the monotonic clock in nanoseconds.
    BeginNs,
    /// Time of a normal exit; 0 without one.
    EndNs,
    /// Time of the last count.
    LastNs,
    /// Accesses without known offset, since another counter did not finish in time.
    Missed,
    /// Memory objects for which there was no slot.
    ObjectsMissed,
    /// Used slots of files.
    FilesUsed,
    /// 1 if the process began by `fork`.
    Forked,
    /// Large memory objects that are alive.
    LiveObjects,
    /// Number of mappings of files.
    FilesMapped,
}

/// Properties of a file, as bits.
pub mod file_flag {
    /// Created by the program.
    pub const CREATED: u64 = 1;
    /// Deleted by the program.
    pub const DELETED: u64 = 2;
    /// Truncated to zero when it was opened.
    pub const TRUNCATED: u64 = 4;
    /// Mapped into memory.
    pub const MAPPED: u64 = 8;
    /// Mapped so that stores change the file.
    pub const MAPPED_SHARED: u64 = 16;
    /// Used through C streams: accesses are those of their buffer of 4 KiB.
    pub const STREAMED: u64 = 32;
    /// Stands for all files of a directory with one extension, since there were too many.
    pub const GROUP: u64 = 64;
    /// Opened for direct I/O.
    pub const DIRECT: u64 = 128;
    /// Opened so that each write is on media before it returns.
    pub const SYNCED: u64 = 256;
    /// All defined bits.
    pub const ALL: u64 = 511;
}

/// The functions that allocated memory, as bits.
pub mod memory_kind {
    /// `malloc`
    pub const MALLOC: u64 = 1;
    /// `calloc`
    pub const CALLOC: u64 = 2;
    /// `realloc`
    pub const REALLOC: u64 = 4;
    /// `posix_memalign`, `aligned_alloc`, `memalign`
    pub const ALIGNED: u64 = 8;
    /// `mmap` without a file
    pub const MMAP: u64 = 16;
    /// All defined bits.
    pub const ALL: u64 = 31;
}

/// Classes by the number of bits of a size.
const CLASSES: [u8; 65] = {
    let mut classes = [0; 65];
    let mut bits = 0;
    while bits <= 64 {
        classes[bits] = match bits {
            0..10 => 0,
            10..13 => 1,
            13 | 14 => 2,
            15 | 16 => 3,
            17 | 18 => 4,
            19 | 20 => 5,
            21 | 22 => 6,
            _ => 7,
        };
        bits += 1;
    }
    classes
};

/// The class of an access size: below 512, 4 KiB, 16 KiB, 64 KiB, 256 KiB, 1 MiB, 4 MiB, and the rest.
#[inline]
pub fn size_class(bytes: u64) -> usize {
    usize::from(CLASSES[64 - bytes.leading_zeros() as usize])
}

/// A live large memory object: its address (0: none, 1: being written), bytes, site, and time of allocation.
#[repr(C)]
pub struct ObjectSlot {
    pub(crate) words: [Word; 4],
}

/// The whole file.
#[repr(C)]
pub struct Tally {
    pub(crate) header: [Word; SLOT_WORDS],
    /// The files.
    pub files: [FileSlot; FILES],
    /// The allocation sites.
    pub sites: [SiteSlot; SITES],
    pub(crate) objects: [ObjectSlot; OBJECTS],
}

/// Words of the header before its text, the command line.
pub(crate) const HEADER_TEXT: usize = 32;

fn mixed(key: u64) -> u64 {
    let key = (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key ^ (key >> 29)
}

/// A slot found by a key that is never 0.
pub(crate) trait Keyed {
    fn key(&self) -> &Word;
}

/// Finds the slot of a key, or takes a free one; true if it is new. Examines at most `most` slots.
pub(crate) fn find_or_take<S: Keyed>(slots: &[S], key: u64, most: usize) -> Option<(usize, bool)> {
    let begin = mixed(key) as usize % slots.len();
    for step in 0..most.min(slots.len()) {
        let at = (begin + step) % slots.len();
        let word = slots[at].key();
        let found = word.load(Acquire);
        if found == key {
            return Some((at, false));
        }
        if found == 0 {
            match word.compare_exchange(0, key, Release, Acquire) {
                Ok(_) => return Some((at, true)),
                Err(other) if other == key => return Some((at, false)),
                Err(_) => {}
            }
        }
    }
    None
}

/// Finds the slot of a key.
fn find<S: Keyed>(slots: &[S], key: u64, most: usize) -> Option<usize> {
    let begin = mixed(key) as usize % slots.len();
    for step in 0..most.min(slots.len()) {
        let at = (begin + step) % slots.len();
        match slots[at].key().load(Acquire) {
            0 => return None,
            found if found == key => return Some(at),
            _ => {}
        }
    }
    None
}

impl Tally {
    /// Bytes of the file.
    pub const BYTES: usize = size_of::<Self>();

    /// A number of the header.
    pub fn header(&self, field: HeaderField) -> u64 {
        self.header[field as usize].load(Relaxed)
    }
    /// Sets a number of the header.
    pub fn set_header(&self, field: HeaderField, value: u64) {
        self.header[field as usize].store(value, Release);
    }
    /// Adds to a number of the header.
    pub fn add_header(&self, field: HeaderField, more: u64) {
        self.header[field as usize].fetch_add(more, Relaxed);
    }
    /// Sets the command line, truncated if it is too long.
    pub fn set_command(&self, command: &[u8]) {
        text::write(&self.header[HEADER_TEXT..], command);
    }
    /// The slot of a file, by a key that is not 0; true if it is new and needs a name. `None` if there is no free slot.
    pub fn file(&self, key: u64) -> Option<(usize, bool)> {
        let found = find_or_take(&self.files, key, 64)?;
        if found.1 {
            self.add_header(HeaderField::FilesUsed, 1);
        }
        Some(found)
    }
    /// The slot of a file, if it has one.
    pub fn known_file(&self, key: u64) -> Option<usize> {
        find(&self.files, key, 64)
    }
    /// Returns true if new files should be counted in groups, by directory and extension.
    pub fn is_crowded(&self) -> bool {
        self.header(HeaderField::FilesUsed) as usize >= FILES * 2 / 3
    }
    /// The allocation site with that key; true if it is new and needs a text.
    pub fn site(&self, key: u64) -> Option<(usize, bool)> {
        find_or_take(&self.sites, key, SITES)
    }
    /// Records a memory object until it is freed.
    pub fn object_made(&self, address: u64, bytes: u64, site: usize, now_ns: u64) {
        for slot in self.probed(address) {
            if slot.words[0].load(Relaxed) == 0 && slot.words[0].compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
                for (word, value) in slot.words[1..].iter().zip([bytes, site as u64, now_ns]) {
                    word.store(value, Relaxed);
                }
                slot.words[0].store(address, Release);
                self.add_header(HeaderField::LiveObjects, 1);
                return;
            }
        }
        self.add_header(HeaderField::ObjectsMissed, 1);
    }
    /// Removes a memory object; returns its bytes, site and time of allocation.
    pub fn object_gone(&self, address: u64) -> Option<(u64, usize, u64)> {
        for slot in self.probed(address) {
            if slot.words[0].load(Acquire) == address
                && slot.words[0].compare_exchange(address, 1, Acquire, Relaxed).is_ok()
            {
                let [bytes, site, begin] = [1, 2, 3].map(|at| slot.words[at].load(Relaxed));
                slot.words[0].store(0, Release);
                self.header[HeaderField::LiveObjects as usize].fetch_sub(1, Relaxed);
                return Some((bytes, (site as usize).min(SITES - 1), begin));
            }
        }
        None
    }
    fn probed(&self, address: u64) -> impl Iterator<Item = &ObjectSlot> {
        let begin = mixed(address >> 4) as usize % OBJECTS;
        (0..PROBES).map(move |step| &self.objects[(begin + step) % OBJECTS])
    }
}
