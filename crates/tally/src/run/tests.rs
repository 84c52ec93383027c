//! Counts are read back as they were counted, whatever the bytes.

use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::{Access, Descriptor, HeaderField, MAGIC, Tally, VERSION, memory_kind, read};

/// A tally in memory, all zeros, as the kernel provides it.
fn fresh() -> Box<Tally> {
    // Too large for a test's stack, and there is no faster safe way to construct arrays of atomics on the heap.
    std::thread::Builder::new()
        .stack_size(16 << 20)
        .spawn(|| {
            let words = |n: usize| (0..n).map(|_| crate::layout::Word::new(0)).collect::<Vec<_>>();
            let slot = || -> [crate::layout::Word; crate::layout::SLOT_WORDS] {
                words(crate::layout::SLOT_WORDS).try_into().unwrap()
            };
            Box::new(Tally {
                header: slot(),
                files: std::array::from_fn(|_| crate::FileSlot { words: slot() }),
                sites: std::array::from_fn(|_| crate::SiteSlot { words: slot() }),
                objects: std::array::from_fn(|_| crate::ObjectSlot { words: words(4).try_into().unwrap() }),
            })
        })
        .unwrap()
        .join()
        .unwrap()
}

fn bytes(tally: &Tally) -> Vec<u8> {
    let files = tally.files.iter().flat_map(|slot| &slot.words);
    let sites = tally.sites.iter().flat_map(|slot| &slot.words);
    let objects = tally.objects.iter().flat_map(|slot| &slot.words);
    let all = tally.header.iter().chain(files).chain(sites).chain(objects);
    all.flat_map(|word| word.load(Relaxed).to_le_bytes()).collect()
}

fn begun() -> Box<Tally> {
    let tally = fresh();
    tally.set_header(HeaderField::Version, VERSION);
    tally.set_header(HeaderField::Pid, 7);
    tally.set_command(b"prog -x");
    tally.set_header(HeaderField::Magic, MAGIC);
    tally
}

fn open(tally: &Tally, key: u64, name: &str) -> (usize, Descriptor) {
    let (slot, is_new) = tally.file(key).unwrap();
    assert!(is_new);
    tally.files[slot].set_name(name.as_bytes());
    let descriptor = Descriptor::new();
    descriptor.set(Some(slot));
    (slot, descriptor)
}

fn access(is_write: bool, offset: u64, bytes: u64, now_ms: u64) -> Access {
    Access { is_write, offset, bytes, ns: 10, now_ns: now_ms * 1_000_000, count: 1 }
}

#[test]
fn what_is_counted_is_read() {
    let tally = begun();
    let (slot, descriptor) = open(&tally, 5, "/data/a");
    tally.files[slot].opened(file_flag::CREATED, 100, 3);
    for at in 0..4 {
        tally.access(&descriptor, &access(true, at * 4096, 4096, 1000 + at), false);
    }
    // A pause, then every third block, then random offsets.
    for at in 0..4 {
        tally.access(&descriptor, &access(false, at * 3 * 4096, 4096, 2000 + at), false);
    }
    for at in [900, 5, 333] {
        tally.access(&descriptor, &access(false, at * 4096, 100, 2010), false);
    }
    let (site, _) = tally.site(77).unwrap();
    tally.sites[site].set_text(b"main\n_start");
    tally.memory_made(site, memory_kind::MALLOC, 0x7000_0010, 1 << 20, 100);
    tally.memory_made(site, memory_kind::CALLOC, 0x9000_0010, 1 << 21, 200);
    assert_eq!(tally.memory_gone(0x7000_0010, 400), Some((1 << 20, site)));
    assert_eq!(tally.memory_gone(0x7000_0010, 400), None);

    let process = read::read(&bytes(&tally)).unwrap();
    assert_eq!((process.pid, process.command.as_str(), process.end_ns), (7, "prog -x", None));
    let file = &process.files[0];
    assert_eq!((file.path.as_str(), file.size_bytes), ("/data/a", 900 * 4096 + 100));
    assert_eq!((file.writes.accesses, file.writes.bytes, file.writes.sequential), (4, 16_384, 4));
    assert_eq!((file.reads.accesses, file.reads.strided, file.reads.sequential), (7, 2, 1));
    assert_eq!((file.bursts, file.switches), (2, 1));
    assert_eq!(file.writes.unique_bytes(), 16_384);
    assert_eq!(process.memory[0].live_bytes_max, 3 << 20);
    assert_eq!(process.memory[0].life_ns, 300);
    assert_eq!(process.live.len(), 1);
    assert_eq!((process.live[0].address, process.live[0].bytes), (0x9000_0010, 1 << 21));

    let mut run = Run::default();
    run.add(&process);
    run.add(&process);
    assert_eq!(run.processes, 2);
    assert_eq!(run.files["/data/a"].writes.bytes, 32_768);
    assert_eq!(run.files["/data/a"].writes.unique_bytes(), 16_384, "the same blocks");
}

/// Repeated reads are recognised, at any size of the file.
#[test]
fn blocks_that_were_seen_are_told_from_those_that_were_not() {
    for blocks in [1_u64, 100, 1024, 1025, 50_000, 3_000_000] {
        let tally = begun();
        let (_, descriptor) = open(&tally, 9, "/x");
        for _ in 0..3 {
            for piece in 0..8 {
                let (from, to) = (blocks * piece / 8, blocks * (piece + 1) / 8);
                tally.access(&descriptor, &access(false, from * 4096, (to - from) * 4096, 5), false);
            }
        }
        let reads = &read::read(&bytes(&tally)).unwrap().files[0].reads;
        let (whole, unique) = (blocks * 4096, reads.unique_bytes());
        assert_eq!(reads.bytes, 3 * whole);
        assert!(unique >= whole && unique <= whole + whole / 500 + 4096, "{unique} of {whole}");
    }
}

#[test]
fn a_deleted_file_makes_room_for_another_with_its_number() {
    let tally = begun();
    let (slot, _) = open(&tally, 5, "/tmp/a");
    tally.files[slot].gone(true);
    let (other, is_new) = tally.file(5).unwrap();
    assert!(is_new && other != slot);
}

#[test]
fn many_files_and_objects_do_not_overflow() {
    let tally = begun();
    let mut slots = std::collections::BTreeSet::new();
    for key in 1..5000_u64 {
        if let Some((slot, is_new)) = tally.file(key * 0x1234_5678_9abc) {
            assert_eq!(is_new, slots.insert(slot));
        }
    }
    assert!(slots.len() > crate::FILES * 9 / 10 && tally.is_crowded());
    let (site, _) = tally.site(1).unwrap();
    for at in 1..10_000_u64 {
        tally.memory_made(site, memory_kind::MMAP, at << 20, 1 << 20, 1);
    }
    let (live, missed) = (tally.header(HeaderField::LiveObjects), tally.header(HeaderField::ObjectsMissed));
    assert_eq!(live + missed, 9999);
    assert!(live > crate::OBJECTS as u64 * 9 / 10);
    let known = (1..10_000_u64).filter(|at| tally.memory_gone(at << 20, 2).is_some()).count() as u64;
    assert_eq!((known, tally.header(HeaderField::LiveObjects)), (live, 0));
}

/// Sixteen threads on one descriptor: no access is lost, and accesses without known offset are counted as such.
#[test]
fn threads_count_together() {
    let tally = begun();
    let (_, descriptor) = open(&tally, 5, "/x");
    std::thread::scope(|scope| {
        for thread in 0..16_u64 {
            let (tally, descriptor) = (&tally, &descriptor);
            scope.spawn(move || {
                for at in 0..2000 {
                    tally.access(descriptor, &access(false, (thread * 2000 + at) * 512, 512, 1), false);
                }
            });
        }
    });
    let process = read::read(&bytes(&tally)).unwrap();
    let reads = &process.files[0].reads;
    assert_eq!((reads.accesses, reads.bytes), (32_000, 32_000 * 512));
    assert_eq!(reads.sizes.iter().sum::<u64>() + process.missed, 32_000, "the rest has no place and order");
}

#[test]
fn sizes_have_classes() {
    let bounds = [512, 4096, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22];
    for (class, bound) in bounds.iter().enumerate() {
        assert_eq!((crate::size_class(bound - 1), crate::size_class(*bound)), (class, class + 1), "{bound}");
    }
    assert_eq!((crate::size_class(0), crate::size_class(u64::MAX)), (0, crate::SIZES - 1));
}

#[test]
fn garbage_is_refused() {
    let good = {
        let tally = begun();
        open(&tally, 5, "/x");
        bytes(&tally)
    };
    assert!(read::read(&good).is_ok());
    assert!(read::read(&[]).is_err() && read::read(&good[1..]).is_err());
    assert!(read::read(&vec![0; Tally::BYTES]).unwrap_err().to_string().contains("begin"));
    let mut other = good.clone();
    other[8] = 9;
    assert!(read::read(&other).unwrap_err().to_string().contains("version 9"));
    // Noise is refused, or read as some numbers; never a panic, here or when it is summed up.
    let seed = std::env::var("CENOTE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
    });
    println!("CENOTE_SEED={seed}");
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut refused = 0;
    for _ in 0..200 {
        let mut noisy = good.clone();
        for _ in 0..=next() % 40_000 {
            let at = 16 + next() as usize % (noisy.len() - 16);
            noisy[at] = next() as u8;
        }
        match read::read(&noisy) {
            Err(_) => refused += 1,
            Ok(process) => {
                let mut run = Run::default();
                run.add(&process);
                run.add(&process);
                let _ = run.files.values().map(|file| file.seconds() + file.reads.unique_bytes() as f64).sum::<f64>();
            }
        }
    }
    assert!(refused > 100, "seed {seed}: {refused} of 200");
}
