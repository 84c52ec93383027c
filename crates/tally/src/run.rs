//! What all processes of a run did, put together.

use std::collections::BTreeMap;

use crate::read::Side;
use crate::{ProcessTally, file_flag};

/// What was done to a file, or to all files of a directory with one ending.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileUse {
    /// Its path; of a group with `*`.
    pub path: String,
    /// Bits of [`file_flag`].
    pub flags: u64,
    /// How often it was opened.
    pub opens: u64,
    /// Reads.
    pub reads: Side,
    /// Writes.
    pub writes: Side,
    /// Calls of `fsync` and its like.
    pub syncs: u64,
    /// What those took.
    pub sync_ns: u64,
    /// What opening, closing and truncating took.
    pub other_ns: u64,
    /// The most bytes that it had.
    pub size_bytes: u64,
    /// First access, by the monotonic clock; 0: none.
    pub first_ns: u64,
    /// Last access.
    pub last_ns: u64,
    /// Groups of accesses with pauses of at least 0.1 s between them.
    pub bursts: u64,
    /// How often reading turned into writing, or the other way.
    pub switches: u64,
    /// Most bytes that were mapped at once.
    pub mapped_bytes: u64,
    /// Bytes of its mappings that were found touched, a page once for each sample.
    pub touched_bytes: u64,
    /// Processes that used it.
    pub processes: u64,
}

impl FileUse {
    /// True if that is so, of [`file_flag`].
    pub fn is(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }
    /// True if it was made and deleted in the run, and nothing of it had to be on media meanwhile. A file that was
    /// synced is no scratch even if it is deleted in the end: a database's journal is what recovers it if the machine
    /// fails before that.
    pub fn is_temporary(&self) -> bool {
        self.is(file_flag::CREATED) && self.is(file_flag::DELETED) && self.waits_for_media() == 0
    }
    /// How often something had to be on media before the program went on.
    pub fn waits_for_media(&self) -> u64 {
        let each = if self.is(file_flag::SYNCED) { self.writes.accesses } else { 0 };
        self.syncs.saturating_add(each)
    }
    /// Seconds that the program spent in calls on it.
    pub fn seconds(&self) -> f64 {
        let ns = self.reads.ns as f64 + self.writes.ns as f64 + self.sync_ns as f64 + self.other_ns as f64;
        ns / 1e9
    }
    fn join(&mut self, other: &Self) {
        self.flags |= other.flags;
        self.reads.join(&other.reads);
        self.writes.join(&other.writes);
        for (sum, more) in [
            (&mut self.opens, other.opens),
            (&mut self.syncs, other.syncs),
            (&mut self.sync_ns, other.sync_ns),
            (&mut self.other_ns, other.other_ns),
            (&mut self.switches, other.switches),
            (&mut self.touched_bytes, other.touched_bytes),
            (&mut self.processes, other.processes),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.bursts = self.bursts.max(other.bursts);
        self.size_bytes = self.size_bytes.max(other.size_bytes);
        self.mapped_bytes = self.mapped_bytes.max(other.mapped_bytes);
        self.first_ns = earlier(self.first_ns, other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
    }
}

/// What was seen of the large memory objects that one place of the program makes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// Functions that asked for it, innermost first, one a line.
    pub place: String,
    /// Bits of [`crate::memory_kind`].
    pub kinds: u64,
    /// Objects made.
    pub made: u64,
    /// Objects freed.
    pub gone: u64,
    /// Bytes of all that were made.
    pub made_bytes: u64,
    /// Most bytes that lived at a time, in one process.
    pub live_bytes_max: u64,
    /// Bytes of the largest.
    pub object_bytes_max: u64,
    /// Nanoseconds that the freed ones lived, together.
    pub life_ns: u64,
    /// When the first was made.
    pub first_ns: u64,
    /// When one was made or freed last.
    pub last_ns: u64,
    /// How often some of it lived when samples were taken.
    pub samples: u64,
    /// Bytes that lived then, of all samples.
    pub sampled_bytes: u64,
    /// Of those the bytes of pages that had been touched since the sample before.
    pub touched_bytes: u64,
    /// Of those the bytes of samples in which at least half of an object was touched: somebody went all over it.
    pub swept_bytes: u64,
    /// Most bytes that were really in memory in a sample: what nobody touched takes none.
    pub resident_bytes_max: u64,
    /// True if objects shared a mapping with other memory, by whose bytes what was touched was divided.
    pub is_shared_out: bool,
}

impl MemoryUse {
    fn join(&mut self, other: &Self) {
        self.kinds |= other.kinds;
        for (sum, more) in [
            (&mut self.made, other.made),
            (&mut self.gone, other.gone),
            (&mut self.made_bytes, other.made_bytes),
            (&mut self.life_ns, other.life_ns),
            (&mut self.samples, other.samples),
            (&mut self.sampled_bytes, other.sampled_bytes),
            (&mut self.touched_bytes, other.touched_bytes),
            (&mut self.swept_bytes, other.swept_bytes),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.is_shared_out |= other.is_shared_out;
        self.live_bytes_max = self.live_bytes_max.max(other.live_bytes_max);
        self.resident_bytes_max = self.resident_bytes_max.max(other.resident_bytes_max);
        self.object_bytes_max = self.object_bytes_max.max(other.object_bytes_max);
        self.first_ns = earlier(self.first_ns, other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
    }
}

fn earlier(one: u64, other: u64) -> u64 {
    match (one, other) {
        (0, at) | (at, 0) => at,
        (one, other) => one.min(other),
    }
}

/// Everything that was seen of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// Files by path.
    pub files: BTreeMap<String, FileUse>,
    /// Memory by place.
    pub memory: BTreeMap<String, MemoryUse>,
    /// Processes that were watched, of which `exec` makes a new one.
    pub processes: u64,
    /// Accesses of which it is not known where they were: only their number, bytes and time.
    pub missed: u64,
    /// Memory objects that were not counted.
    pub objects_missed: u64,
}

impl Run {
    /// Adds what a process did, once it does nothing more.
    pub fn add(&mut self, process: &ProcessTally) {
        self.processes += 1;
        self.missed = self.missed.saturating_add(process.missed);
        self.objects_missed = self.objects_missed.saturating_add(process.objects_missed);
        for file in &process.files {
            // Opened, looked at, closed: nothing to place.
            let used = file.reads.accesses.max(file.writes.accesses).max(file.mapped_bytes).max(file.syncs);
            if used > 0 || file.is(file_flag::DELETED) {
                self.add_file(file);
            }
        }
        for memory in &process.memory {
            self.add_memory(memory);
        }
    }
    /// Adds what is known of a file.
    pub fn add_file(&mut self, file: &FileUse) {
        let sum = self.files.entry(file.path.clone()).or_default();
        sum.path.clone_from(&file.path);
        sum.join(file);
    }
    /// Adds what is known of memory objects: of a process, or of a sample.
    pub fn add_memory(&mut self, memory: &MemoryUse) {
        let sum = self.memory.entry(memory.place.clone()).or_default();
        sum.place.clone_from(&memory.place);
        sum.join(memory);
    }
}

#[cfg(test)]
mod tests;
