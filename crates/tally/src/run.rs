//! The combined tallies of all processes of a run.

use std::collections::BTreeMap;

use crate::read::Side;
use crate::{ProcessTally, file_flag};

/// The use of a file, or of all files of a directory with one extension.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileUse {
    /// Its path; for a group with `*`.
    pub path: String,
    /// Bits of [`file_flag`].
    pub flags: u64,
    /// Number of openings.
    pub opens: u64,
    /// Reads.
    pub reads: Side,
    /// Writes.
    pub writes: Side,
    /// Number of calls of `fsync` and similar functions.
    pub syncs: u64,
    /// Duration of those calls.
    pub sync_ns: u64,
    /// Duration of opening, closing and truncating.
    pub other_ns: u64,
    /// Largest size of the file.
    pub size_bytes: u64,
    /// First access, by the monotonic clock; 0: none.
    pub first_ns: u64,
    /// Last access.
    pub last_ns: u64,
    /// Number of groups of accesses separated by pauses of at least 0.1 s.
    pub bursts: u64,
    /// Number of changes from reading to writing, or the other way.
    pub switches: u64,
    /// Largest number of bytes mapped at once.
    pub mapped_bytes: u64,
    /// Bytes of its mappings found touched, a page once for each sample.
    pub touched_bytes: u64,
    /// Number of processes that used it.
    pub processes: u64,
}

impl FileUse {
    /// Returns true if it has this flag of [`file_flag`].
    pub fn is(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }
    /// Returns true if it was created and deleted in the run, and never had to be on media meanwhile. A file that was
    /// synced is not scratch even if it is deleted in the end: a database's journal recovers the database if the
    /// machine fails before that.
    pub fn is_temporary(&self) -> bool {
        self.is(file_flag::CREATED) && self.is(file_flag::DELETED) && self.waits_for_media() == 0
    }
    /// Number of times that the program waited until something was on media.
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

/// The use of the large memory objects of one allocation site.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// Functions on the stack at the allocation, innermost first, one a line.
    pub place: String,
    /// Bits of [`crate::memory_kind`].
    pub kinds: u64,
    /// Number of objects allocated.
    pub made: u64,
    /// Number of objects freed.
    pub gone: u64,
    /// Total bytes allocated.
    pub made_bytes: u64,
    /// Largest number of bytes alive at a time, in one process.
    pub live_bytes_max: u64,
    /// Bytes of the largest object.
    pub object_bytes_max: u64,
    /// Total lifetime of the freed objects, in nanoseconds.
    pub life_ns: u64,
    /// Time of the first allocation.
    pub first_ns: u64,
    /// Time of the last allocation or release.
    pub last_ns: u64,
    /// Number of samples in which objects of it were alive.
    pub samples: u64,
    /// Live bytes, summed over all samples.
    pub sampled_bytes: u64,
    /// Sampled bytes in pages that were touched since the previous sample.
    pub touched_bytes: u64,
    /// Touched bytes in samples in which at least half of an object was touched, as by a sweep.
    pub swept_bytes: u64,
    /// Largest number of resident bytes in a sample: untouched pages take none.
    pub resident_bytes_max: u64,
    /// True if objects shared a mapping with other memory; touched bytes were then divided in proportion to the
    /// sizes.
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

/// The observations of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// Files by path.
    pub files: BTreeMap<String, FileUse>,
    /// Memory objects by allocation site.
    pub memory: BTreeMap<String, MemoryUse>,
    /// Number of watched processes; an `exec` counts as a new one.
    pub processes: u64,
    /// Accesses without known offset: only their number, bytes and time are known.
    pub missed: u64,
    /// Memory objects that were not counted.
    pub objects_missed: u64,
}

impl Run {
    /// Adds the tally of a process that has ended.
    pub fn add(&mut self, process: &ProcessTally) {
        self.processes += 1;
        self.missed = self.missed.saturating_add(process.missed);
        self.objects_missed = self.objects_missed.saturating_add(process.objects_missed);
        for file in &process.files {
            // Files that were only opened and closed need no placement.
            let used = file.reads.accesses.max(file.writes.accesses).max(file.mapped_bytes).max(file.syncs);
            if used > 0 || file.is(file_flag::DELETED) {
                self.add_file(file);
            }
        }
        for memory in &process.memory {
            self.add_memory(memory);
        }
    }
    /// Adds the use of a file.
    pub fn add_file(&mut self, file: &FileUse) {
        let sum = self.files.entry(file.path.clone()).or_default();
        sum.path.clone_from(&file.path);
        sum.join(file);
    }
    /// Adds the use of memory objects: of a process, or of a sample.
    pub fn add_memory(&mut self, memory: &MemoryUse) {
        let sum = self.memory.entry(memory.place.clone()).or_default();
        sum.place.clone_from(&memory.place);
        sum.join(memory);
    }
}

#[cfg(test)]
mod tests;
