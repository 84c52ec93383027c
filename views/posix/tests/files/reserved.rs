//! Reservations of `fallocate`: writes to them find space although somebody fills the store meanwhile; and they are returned.

use std::time::{Duration, Instant};

use cenote::{Mode, Store};
use cenote_posix::{Allocate, File, FileSystem, SetAttr};

use crate::test_dir::{READ_WRITE, TestDir, client, errno, made, root_user};

const BYTES: u64 = 8 << 20;

/// Appends until there is no space, not even for a few bytes; returns how many bytes.
fn fill(file: &File) -> u64 {
    let mut written = 0;
    for bytes in [1_usize << 20, 64 << 10, 4096] {
        while file.append(&vec![1; bytes]).map_err(|error| assert_eq!(error.errno, libc::ENOSPC)).is_ok() {
            written += bytes as u64;
        }
    }
    written
}

fn two_sessions(place: &TestDir, tiers: Vec<cenote::DeviceSpec>) -> [(Store, FileSystem); 2] {
    drop(place.make_of(Mode::InProcess, tiers));
    [client(&place.dir()), client(&place.dir())]
}

pub fn written() {
    for what in [Allocate::Extend, Allocate::KeepSize] {
        for is_memory_alone in [false, true] {
            let place = TestDir::new();
            let disk = (!is_memory_alone).then(|| place.disk(48 << 20));
            let [(_a, a), (_b, b)] = two_sessions(&place, [TestDir::memory()].into_iter().chain(disk).collect());
            let (kept, filler) = (made(&a, b"kept"), made(&b, b"filler"));
            kept.allocate(what, 0, BYTES).unwrap();
            assert!(kept.attr().unwrap().blocks * 512 >= BYTES, "{what:?}");
            fill(&filler);
            // The reservation outlives the daemon.
            Store::stop_daemon(place.dir()).unwrap();
            // In no order, and each byte once.
            for at in (0..BYTES >> 17).rev().map(|number| number << 17) {
                kept.write_at(&vec![7; 64 << 10], at).unwrap();
                kept.write_at(&vec![8; 64 << 10], at + (64 << 10)).unwrap();
            }
            // The store was full. Where memory drains slowly, that settles later than the filler waits.
            let beyond = || kept.write_at(&vec![9; 1 << 20], 2 * BYTES).err().map(|error| error.errno);
            let mut tries = 0;
            while beyond() != Some(libc::ENOSPC) {
                tries += 1;
                assert!(tries < 10, "{what:?}, memory alone: {is_memory_alone}: it is not full");
                fill(&filler);
            }
            let mut all = vec![0; BYTES as usize];
            assert_eq!(kept.read_at(&mut all, 0).unwrap(), all.len());
            let is_right = |(at, part): (usize, &[u8])| part.iter().all(|byte| *byte == 7 + (at % 2) as u8);
            assert!(all.chunks(64 << 10).enumerate().all(is_right));
        }
    }
}

pub fn given_back() {
    let place = TestDir::new();
    let [(_a, a), (_b, b)] = two_sessions(&place, vec![TestDir::memory()]);
    let give_back: [fn(&FileSystem, File); 4] = [
        |fs, file| {
            file.close().unwrap();
            fs.unlink(&root_user(), fs.root(), b"kept").unwrap();
            made(fs, b"kept").close().unwrap();
        },
        |_, file| file.allocate(Allocate::Punch, 0, 2 * BYTES).unwrap(),
        |fs, file| {
            let size = SetAttr { size_bytes: Some(0), ..SetAttr::default() };
            fs.set_attr(&root_user(), file.ino(), &size).unwrap();
        },
        |_, file| {
            file.allocate(Allocate::Extend, 0, BYTES).unwrap(); // again: reserves nothing more
            (0..BYTES).step_by(1 << 20).for_each(|at| file.write_at(&vec![7; 1 << 20], at).unwrap());
            file.allocate(Allocate::Punch, 0, BYTES).unwrap();
        },
    ];
    for (number, give_back) in give_back.into_iter().enumerate() {
        let (kept, filler) = (made(&a, b"kept"), made(&b, b"filler"));
        // Deleted data become free some time later.
        let begin = Instant::now();
        while let Err(error) = kept.allocate(Allocate::Extend, 0, BYTES) {
            assert!(error.errno == libc::ENOSPC && begin.elapsed().as_secs() < 10, "{number}: {error:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let left = fill(&filler);
        give_back(&a, kept);
        let more = fill(&filler);
        assert!(more > BYTES / 2, "{number}: {more} bytes after {left}");
        filler.close().unwrap();
        b.unlink(&root_user(), b.root(), b"filler").unwrap();
        a.unlink(&root_user(), a.root(), b"kept").unwrap();
    }
}

/// A reservation that does not fit is refused, and reserves nothing.
pub fn refused() {
    let place = TestDir::new();
    let [(_a, a), (_b, b)] = two_sessions(&place, vec![TestDir::memory()]);
    let (kept, other) = (made(&a, b"kept"), made(&b, b"other"));
    kept.allocate(Allocate::Extend, 0, 40 << 20).unwrap();
    assert_eq!(errno(other.allocate(Allocate::Extend, 0, 40 << 20)), libc::ENOSPC);
    other.allocate(Allocate::Extend, 0, 8 << 20).unwrap();
    // Asking again for what the file has succeeds although nothing is left.
    kept.allocate(Allocate::Extend, 0, 40 << 20).unwrap();
    kept.close().unwrap();
    assert_eq!(errno(other.allocate(Allocate::Extend, 0, 40 << 20)), libc::ENOSPC);
    a.unlink(&root_user(), a.root(), b"kept").unwrap();
    other.allocate(Allocate::Extend, 0, 40 << 20).unwrap();
}

/// Reserved space is not free to others, and counts as the file's until it is written, also when the file is closed meanwhile.
pub fn counted() {
    let place = TestDir::new();
    let [(store, a), (_b, b)] = two_sessions(&place, vec![TestDir::memory()]);
    let free = |fs: &FileSystem| fs.space(fs.root()).unwrap().free_bytes;
    let (kept, before) = (made(&a, b"kept"), free(&b));
    kept.allocate(Allocate::KeepSize, 0, BYTES).unwrap();
    assert!(before - free(&b) >= BYTES, "{before} {}", free(&b));
    let leased: u64 = store.devices().unwrap().iter().map(|device| device.leased_bytes).sum();
    assert!(leased >= BYTES, "{leased}");
    kept.close().unwrap();
    assert!(before - free(&b) >= BYTES, "closed: {before} {}", free(&b));
    // A range that begins and ends within blocks reserves whole blocks, and writes there take no more.
    let blocks = |fs: &FileSystem| fs.lookup(&root_user(), fs.root(), b"edge").unwrap().blocks;
    let edge = made(&a, b"edge");
    edge.allocate(Allocate::Extend, 4095, 2).unwrap();
    edge.close().unwrap();
    let allocated = blocks(&a);
    assert_eq!(allocated * 512, 8192);
    let edge = a.open_at(&root_user(), a.root(), b"edge", READ_WRITE, 0).unwrap().0;
    edge.write_at(b"xy", 4095).unwrap();
    edge.close().unwrap();
    assert!((1..=allocated).contains(&blocks(&a)), "{} blocks, {allocated} before", blocks(&a));
    // Removed by somebody else: returned shortly after.
    b.unlink(&root_user(), b.root(), b"kept").unwrap();
    let begin = Instant::now();
    while before - free(&b) >= BYTES {
        assert!(begin.elapsed().as_secs() < 10, "{before} {}", free(&b));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reservations can be cut anywhere, and one larger than the free space is refused.
pub fn cut() {
    const LEN: u64 = 64 << 20;
    let place = TestDir::new();
    let [(_a, a), (_b, _other)] = two_sessions(&place, vec![TestDir::memory(), place.disk(256 << 20)]);
    let free = a.space(a.root()).unwrap().free_bytes;
    for cut in [100, LEN, 2 * LEN, 3 * LEN] {
        let file = made(&a, b"ouch");
        file.allocate(Allocate::Extend, 0, LEN).unwrap();
        if cut == 3 * LEN {
            file.allocate(Allocate::Extend, 2 * LEN, 1 << 20).unwrap();
        }
        let set = SetAttr { size_bytes: Some(cut), ..SetAttr::default() };
        a.set_attr(&root_user(), file.ino(), &set).unwrap();
        let attr = file.attr().unwrap();
        assert_eq!(attr.size_bytes, cut);
        let kept = LEN.min(cut / 4096 * 4096) + if cut == 3 * LEN { 1 << 20 } else { 0 };
        assert_eq!(attr.blocks * 512, kept, "cut at {cut}");
        file.close().unwrap();
        a.unlink(&root_user(), a.root(), b"ouch").unwrap();
    }
    let file = made(&a, b"ouch");
    assert_eq!(errno(file.allocate(Allocate::Extend, 0, 2 * free)), libc::ENOSPC);
    assert_eq!(file.attr().unwrap().blocks, 0);
    file.close().unwrap();
    let begin = Instant::now();
    while a.space(a.root()).unwrap().free_bytes < free {
        assert!(begin.elapsed().as_secs() < 10, "{free} {}", a.space(a.root()).unwrap().free_bytes);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A tier that holds nothing but reserved space can be drained and removed: the reservation moves to another tier, or shrinks if
/// none has space.
pub fn left() {
    for (memory_bytes, kept_bytes, is_lost) in [(64_u64 << 20, BYTES, false), (16 << 20, 40 << 20, true)] {
        let place = TestDir::new();
        let memory = cenote::DeviceSpec { capacity_bytes: memory_bytes, ..TestDir::memory() };
        let [(store, a), (_b, b)] = two_sessions(&place, vec![memory, place.disk(64 << 20)]);
        let kept = made(&a, b"kept");
        kept.allocate(Allocate::KeepSize, 0, kept_bytes).unwrap();
        let leased = |name: &str| {
            let devices = store.devices().unwrap();
            devices.iter().find(|device| device.spec.name == name).map(|device| device.leased_bytes)
        };
        assert!(leased("disk") >= Some(kept_bytes));
        // No call concerns the file: its process notices by itself.
        let other = Store::open(place.dir()).unwrap();
        other.drain_device("disk").unwrap();
        other.remove_device("disk").unwrap();
        assert_eq!(leased("disk"), None);
        let left = kept.attr().unwrap().blocks * 512;
        assert_eq!(left < kept_bytes, is_lost, "{left} of {kept_bytes}");
        if !is_lost {
            fill(&made(&b, b"filler"));
            (0..kept_bytes).step_by(1 << 20).for_each(|at| kept.write_at(&vec![7; 1 << 20], at).unwrap());
        }
    }
}
