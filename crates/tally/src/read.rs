//! Reads a tally. Its writer may have been killed at any instruction, or may not be a tracer at all.

use std::fmt;

use crate::file::{Field, NAME, READ_SIZES, SEEN_READ, SEEN_SHIFT_LEAST, SEEN_WORDS, SEEN_WRITE, WRITE_SIZES, halved};
use crate::layout::{FILES, HEADER_TEXT, OBJECTS, SITES, SIZES, SLOT_WORDS};
use crate::memory::{Field as SiteField, TEXT};
use crate::{FileUse, HeaderField, MAGIC, MemoryUse, Tally, VERSION, file_flag, memory_kind, text};

/// Why some bytes are not a valid tally.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage(pub String);

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Touched blocks: each bit is a block of `4096 << shift` bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    bits: [u64; SEEN_WORDS],
    shift: u32,
}

impl Seen {
    /// Marks the first `bytes` of a file.
    pub fn first(bytes: u64) -> Self {
        let mut seen = Self::default();
        while bytes.div_ceil(1 << (SEEN_SHIFT_LEAST + seen.shift)) > (SEEN_WORDS * 64) as u64 {
            seen.shift += 1;
        }
        let blocks = bytes.div_ceil(1 << (SEEN_SHIFT_LEAST + seen.shift));
        for at in 0..blocks {
            seen.bits[(at / 64) as usize] |= 1 << (at % 64);
        }
        seen
    }
    /// Bytes in touched blocks.
    pub fn bytes(&self) -> u64 {
        let blocks: u32 = self.bits.iter().map(|bits| bits.count_ones()).sum();
        u64::from(blocks) << (SEEN_SHIFT_LEAST + self.shift)
    }
    /// Adds the blocks that `other` touched.
    pub fn join(&mut self, other: &Self) {
        let mut other = other.clone();
        while self.shift < other.shift {
            (self.bits, self.shift) = (halved(&self.bits), self.shift + 1);
        }
        while other.shift < self.shift {
            (other.bits, other.shift) = (halved(&other.bits), other.shift + 1);
        }
        for (bits, more) in self.bits.iter_mut().zip(other.bits) {
            *bits |= more;
        }
    }
}

/// Reads or writes of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Side {
    /// Number of calls.
    pub accesses: u64,
    /// Total bytes.
    pub bytes: u64,
    /// Nanoseconds inside these calls; of many short calls an eighth was timed.
    pub ns: u64,
    /// Accesses that began where the previous one through the same descriptor had ended.
    pub sequential: u64,
    /// Accesses at the same distance from the previous one as that one from its predecessor.
    pub strided: u64,
    /// Accesses by [`crate::size_class`].
    pub sizes: [u64; SIZES],
    /// Touched bytes.
    pub seen: Seen,
}

impl Side {
    /// Estimated number of distinct bytes: in blocks of 1/1024 to 1/512 of the file, at least 4 KiB.
    pub fn unique_bytes(&self) -> u64 {
        self.seen.bytes().min(self.bytes)
    }
    pub(crate) fn join(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.accesses, other.accesses),
            (&mut self.bytes, other.bytes),
            (&mut self.ns, other.ns),
            (&mut self.sequential, other.sequential),
            (&mut self.strided, other.strided),
        ] {
            *sum = sum.saturating_add(more);
        }
        for (sum, more) in self.sizes.iter_mut().zip(other.sizes) {
            *sum = sum.saturating_add(more);
        }
        self.seen.join(&other.seen);
    }
}

/// A large memory object that was alive when the tally was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveObject {
    /// Address of its first byte.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Index of its allocation site in [`ProcessTally::memory`].
    pub place: usize,
}

/// The counts of one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessTally {
    /// Process id.
    pub pid: u32,
    /// Process id of its parent.
    pub parent: u32,
    /// True if it began by `fork`.
    pub is_forked: bool,
    /// Start time, by the monotonic clock.
    pub begin_ns: u64,
    /// End time; `None` if it did not exit normally, or not yet.
    pub end_ns: Option<u64>,
    /// Its command line, possibly truncated.
    pub command: String,
    /// Accesses without known offset.
    pub missed: u64,
    /// Memory objects that were not counted.
    pub objects_missed: u64,
    /// Its files.
    pub files: Vec<FileUse>,
    /// Its memory objects by allocation site.
    pub memory: Vec<MemoryUse>,
    /// Its live memory objects.
    pub live: Vec<LiveObject>,
}

/// Bytes of the header.
pub const HEADER_BYTES: usize = SLOT_WORDS * 8;

/// Returns true if the header reports memory objects or mapped files, whose use only samples show.
pub fn wants_samples(header: &[u8; HEADER_BYTES]) -> bool {
    let is_set = |field: HeaderField| header[field as usize * 8..][..8].iter().any(|byte| *byte != 0);
    is_set(HeaderField::LiveObjects) || is_set(HeaderField::FilesMapped)
}

/// Reads a tally.
pub fn read(bytes: &[u8]) -> Result<ProcessTally, Damage> {
    if bytes.len() != Tally::BYTES {
        return Err(Damage(format!("{} bytes, where a trace has {}", bytes.len(), Tally::BYTES)));
    }
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
        .collect();
    let head = |field: HeaderField| words[field as usize];
    if head(HeaderField::Magic) != MAGIC {
        return Err(Damage("it does not begin as a trace does".into()));
    }
    if head(HeaderField::Version) != VERSION {
        return Err(Damage(format!("version {} of traces; this reads {VERSION}", head(HeaderField::Version))));
    }
    let pid = |field: HeaderField| u32::try_from(head(field)).map_err(|_| Damage("no number of a process".into()));
    let (_, rest) = words.split_at(SLOT_WORDS);
    let (files, rest) = rest.split_at(FILES * SLOT_WORDS);
    let (sites, objects) = rest.split_at(SITES * SLOT_WORDS);
    let mut places = vec![None; SITES];
    let mut memory = Vec::new();
    for (at, slot) in sites.chunks_exact(SLOT_WORDS).enumerate() {
        if let Some(found) = place(slot)? {
            places[at] = Some(memory.len());
            memory.push(found);
        }
    }
    let files = files.chunks_exact(SLOT_WORDS).filter_map(|slot| file(slot).transpose());
    let live = objects.chunks_exact(4).take(OBJECTS).filter_map(|slot| {
        let place = (*places.get(usize::try_from(slot[2]).ok()?)?)?;
        (slot[0] > 1).then_some(LiveObject { address: slot[0], bytes: slot[1], place })
    });
    let end_ns = head(HeaderField::EndNs);
    Ok(ProcessTally {
        pid: pid(HeaderField::Pid)?,
        parent: pid(HeaderField::Parent)?,
        is_forked: head(HeaderField::Forked) != 0,
        begin_ns: head(HeaderField::BeginNs),
        end_ns: (end_ns != 0).then_some(end_ns),
        command: text::read(&words[HEADER_TEXT..SLOT_WORDS]),
        missed: head(HeaderField::Missed),
        objects_missed: head(HeaderField::ObjectsMissed),
        files: files.collect::<Result<_, _>>()?,
        live: live.collect(),
        memory,
    })
}

/// The bits of a bitmap, if they are valid.
fn seen(words: &[u64], shift: u64) -> Result<Seen, Damage> {
    let mut bits = [0; SEEN_WORDS];
    bits.copy_from_slice(words);
    match u32::try_from(shift) {
        Ok(shift) if shift < 64 - SEEN_SHIFT_LEAST - 10 => Ok(Seen { bits, shift }),
        _ => Err(Damage("a file of more bytes than there are".into())),
    }
}

fn side(slot: &[u64], fields: [Field; 8], sizes: usize, seen_at: usize) -> Result<Side, Damage> {
    let [accesses, bytes, ns, sequential, strided, shift, loose, loose_bytes] =
        fields.map(|field| slot[field as usize]);
    let (accesses, bytes) = (accesses.saturating_add(loose), bytes.saturating_add(loose_bytes));
    let mut by_size = [0; SIZES];
    by_size.copy_from_slice(&slot[sizes..sizes + SIZES]);
    let seen = seen(&slot[seen_at..seen_at + SEEN_WORDS], shift)?;
    Ok(Side { accesses, bytes, ns, sequential, strided, sizes: by_size, seen })
}

/// A file with a name; a file whose name was being written is left out.
fn file(slot: &[u64]) -> Result<Option<FileUse>, Damage> {
    use Field::{LooseReadBytes, LooseReads, LooseWriteBytes, LooseWrites};
    use Field::{ReadBytes, ReadNs, Reads, ReadsSequential, ReadsStrided, SeenReadShift};
    use Field::{SeenWriteShift, WriteBytes, WriteNs, Writes, WritesSequential, WritesStrided};
    let get = |field: Field| slot[field as usize];
    match (get(Field::Key), get(Field::Ready)) {
        (0, _) | (_, 0) => return Ok(None),
        (_, 1) => {}
        (_, other) => return Err(Damage(format!("a file in state {other}"))),
    }
    let path = text::read(&slot[NAME..]);
    if !path.starts_with('/') {
        return Err(Damage("a file without a path".into()));
    }
    if get(Field::Flags) & !file_flag::ALL != 0 {
        return Err(Damage(format!("{path} has marks that are not known")));
    }
    let reads = [Reads, ReadBytes, ReadNs, ReadsSequential, ReadsStrided, SeenReadShift, LooseReads, LooseReadBytes];
    let writes =
        [Writes, WriteBytes, WriteNs, WritesSequential, WritesStrided, SeenWriteShift, LooseWrites, LooseWriteBytes];
    Ok(Some(FileUse {
        path,
        flags: get(Field::Flags),
        opens: get(Field::Opens),
        reads: side(slot, reads, READ_SIZES, SEEN_READ)?,
        writes: side(slot, writes, WRITE_SIZES, SEEN_WRITE)?,
        syncs: get(Field::Syncs),
        sync_ns: get(Field::SyncNs),
        other_ns: get(Field::OtherNs),
        size_bytes: get(Field::EndMax),
        first_ns: get(Field::FirstNs),
        last_ns: get(Field::LastNs),
        bursts: get(Field::Bursts),
        switches: get(Field::Switches),
        mapped_bytes: get(Field::MappedBytes),
        processes: 1,
        ..FileUse::default()
    }))
}

fn place(slot: &[u64]) -> Result<Option<MemoryUse>, Damage> {
    let get = |field: SiteField| slot[field as usize];
    match (get(SiteField::Key), get(SiteField::Ready)) {
        (0, _) | (_, 0) => return Ok(None),
        (_, 1) => {}
        (_, other) => return Err(Damage(format!("a place in state {other}"))),
    }
    if get(SiteField::Kinds) & !memory_kind::ALL != 0 {
        return Err(Damage("memory of a kind that is not known".into()));
    }
    Ok(Some(MemoryUse {
        place: text::read(&slot[TEXT..]),
        kinds: get(SiteField::Kinds),
        made: get(SiteField::Made),
        gone: get(SiteField::Gone),
        made_bytes: get(SiteField::MadeBytes),
        live_bytes_max: get(SiteField::LiveBytesMax),
        object_bytes_max: get(SiteField::ObjectBytesMax),
        life_ns: get(SiteField::LifeNs),
        first_ns: get(SiteField::FirstNs),
        last_ns: get(SiteField::LastNs),
        ..MemoryUse::default()
    }))
}
