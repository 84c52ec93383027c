//! Samples from outside how much of large memory objects and mapped files is touched.
//!
//! The kernel marks each page that is read or written. Writing 1 to `/proc/PID/clear_refs` clears the marks; `Referenced` in
//! `/proc/PID/smaps` counts, per mapping, those set since. So a sample tells how many of an object's bytes were touched at
//! least once since the previous one. It does not tell how often, whether by reads or writes, or which pages of a mapping;
//! objects that share a mapping with other memory get a share of its touched bytes in proportion to their size. Huge pages
//! count as a whole.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use cenote_tally::{FileUse, MemoryUse, ProcessTally, Run, file_flag};

/// Minimum time between samples.
const INTERVAL: Duration = Duration::from_millis(100);
/// A sample may take at most one part in this many of the time until the next.
const SHARE: u32 = 30;
/// A mapping that exceeds the object by more than this is shared: the allocator's own bytes, and the edges that the tracer
/// keeps apart, are no more.
const OTHERS_BYTES: u64 = 4 * 4096;

/// Takes samples as often as they are cheap.
pub struct Sampler {
    next: Instant,
    /// Number of samples taken.
    pub samples: u64,
    /// Total time spent on them.
    pub spent: Duration,
}

/// A mapping of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mapping {
    begin: u64,
    end: u64,
    path: String,
    resident_bytes: u64,
    referenced_bytes: u64,
}

impl Sampler {
    pub fn new() -> Self {
        Self { next: Instant::now() + INTERVAL / 2, samples: 0, spent: Duration::ZERO }
    }
    /// Returns the time of the next sample.
    pub fn next(&self) -> Instant {
        self.next
    }
    /// Takes a sample of these processes.
    pub fn sample(&mut self, processes: &[ProcessTally], run: &mut Run) {
        let begin = Instant::now();
        for process in processes {
            let maps_files = process.files.iter().any(|file| file.is(file_flag::MAPPED));
            if process.live.is_empty() && !maps_files {
                continue;
            }
            let dir = format!("/proc/{}", process.pid);
            let Ok(text) = fs::read_to_string(format!("{dir}/smaps")) else { continue };
            let _ = fs::write(format!("{dir}/clear_refs"), "1");
            self.samples += 1;
            take(process, &mappings(&text), run);
        }
        let took = begin.elapsed();
        self.spent += took;
        self.next = Instant::now() + INTERVAL.max(took * SHARE);
    }
}

/// Adds what one process touched.
fn take(process: &ProcessTally, mappings: &[Mapping], run: &mut Run) {
    let mut by_place: BTreeMap<usize, MemoryUse> = BTreeMap::new();
    for object in &process.live {
        let Some(place) = process.memory.get(object.place) else { continue };
        let sum = by_place.entry(object.place).or_insert_with(|| MemoryUse {
            place: place.place.clone(),
            samples: 1,
            ..MemoryUse::default()
        });
        let end = object.address.saturating_add(object.bytes);
        let (mut touched, mut resident) = (0.0, 0.0);
        for mapping in mappings.iter().filter(|mapping| mapping.begin < end && object.address < mapping.end) {
            let common = mapping.end.min(end) - mapping.begin.max(object.address);
            let all = mapping.end - mapping.begin;
            let is_alone = all - common <= OTHERS_BYTES;
            // The last bytes may share a page with the next object's first.
            sum.is_shared_out |= !is_alone && common > OTHERS_BYTES && mapping.referenced_bytes > 0;
            let share = if is_alone { 1.0 } else { common as f64 / all as f64 };
            touched += mapping.referenced_bytes as f64 * share;
            resident += mapping.resident_bytes as f64 * share;
        }
        sum.sampled_bytes += object.bytes;
        let touched_bytes = (touched as u64).min(object.bytes);
        sum.touched_bytes += touched_bytes;
        sum.resident_bytes_max += (resident as u64).min(object.bytes);
        sum.swept_bytes += if touched_bytes >= object.bytes / 2 { touched_bytes } else { 0 };
    }
    for sum in by_place.values() {
        run.add_memory(sum);
    }
    for file in process.files.iter().filter(|file| file.is(file_flag::MAPPED)) {
        let of_file = mappings.iter().filter(|mapping| mapping.path == file.path);
        let touched_bytes = of_file.map(|mapping| mapping.referenced_bytes).sum();
        run.add_file(&FileUse { path: file.path.clone(), touched_bytes, ..FileUse::default() });
    }
}

/// Parses `smaps`, skipping what it does not know.
fn mappings(text: &str) -> Vec<Mapping> {
    let mut found: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        if let Some((field @ ("Rss" | "Referenced"), value)) = line.split_once(':') {
            let kib: u64 = value.trim().trim_end_matches("kB").trim().parse().unwrap_or(0);
            if let Some(last) = found.last_mut() {
                *(if field == "Rss" { &mut last.resident_bytes } else { &mut last.referenced_bytes }) = kib * 1024;
            }
        } else if let Some((range, rest)) = line.split_once(' ')
            && let Some((begin, end)) = range.split_once('-')
            && let (Ok(begin), Ok(end)) = (u64::from_str_radix(begin, 16), u64::from_str_radix(end, 16))
            && begin < end
        {
            // Rights, offset, device, inode, then the path, which may contain spaces.
            let path = rest.splitn(5, ' ').nth(4).unwrap_or_default().trim_start().to_owned();
            found.push(Mapping { begin, end, path, resident_bytes: 0, referenced_bytes: 0 });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_tally::LiveObject;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
Size:               4096 kB
Rss:                4096 kB
Referenced:         1024 kB
VmFlags: rd wr mr mw me ac
7f0000400000-7f0000800000 r--s 00000000 08:01 123                        /data/with space.bin
Referenced:           40 kB
garbage
Referenced: 12 apples
";

    #[test]
    fn what_was_touched_is_divided_by_bytes() {
        let maps = mappings(SMAPS);
        assert_eq!(maps.len(), 2);
        assert_eq!((maps[0].end - maps[0].begin, maps[0].referenced_bytes), (4 << 20, 1 << 20));
        assert_eq!(maps[1].path, "/data/with space.bin");
        let memory = MemoryUse { place: "main".into(), ..MemoryUse::default() };
        let object = |address, bytes| LiveObject { address, bytes, place: 0 };
        let process = |live| ProcessTally {
            pid: 1,
            parent: 0,
            is_forked: false,
            begin_ns: 0,
            end_ns: None,
            command: String::new(),
            missed: 0,
            objects_missed: 0,
            files: vec![FileUse {
                path: "/data/with space.bin".into(),
                flags: file_flag::MAPPED,
                ..FileUse::default()
            }],
            memory: vec![memory.clone()],
            live,
        };
        let taken = |live| {
            let mut run = Run::default();
            take(&process(live), &maps, &mut run);
            run
        };
        let alone = &taken(vec![object(0x7f00_0000_0010, (4 << 20) - 4096)]).memory["main"];
        assert_eq!((alone.touched_bytes, alone.is_shared_out), (1 << 20, false));
        assert_eq!(alone.resident_bytes_max, (4 << 20) - 4096, "no more than it is long");
        let half = &taken(vec![object(0x7f00_0000_0010, 2 << 20)]).memory["main"];
        assert_eq!((half.touched_bytes >> 10, half.is_shared_out, half.samples), (512, true, 1));
        let elsewhere = taken(vec![object(0x1000, 1 << 20)]);
        assert_eq!(elsewhere.memory["main"].touched_bytes, 0);
        assert_eq!(elsewhere.files["/data/with space.bin"].touched_bytes, 0, "the last line that makes no sense");
    }
}
