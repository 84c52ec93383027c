//! What `fallocate` keeps: writes to it find space though somebody fills the store meanwhile; and it comes back.

use std::time::{Duration, Instant};

use cenote::{Mode, Store};
use cenote_posix::{Allocate, File, FileSystem, SetAttr};

use crate::place::{Place, client, errno, made, root_user};

const BYTES: u64 = 8 << 20;

/// Appends until there is no room, not even for little; how many bytes that were.
fn fill(file: &File) -> u64 {
    let mut written = 0;
    for bytes in [1_usize << 20, 64 << 10, 4096] {
        while file.append(&vec![1; bytes]).map_err(|error| assert_eq!(error.errno, libc::ENOSPC)).is_ok() {
            written += bytes as u64;
        }
    }
    written
}

fn two_sessions(place: &Place, tiers: Vec<cenote::DeviceSpec>) -> [(Store, FileSystem); 2] {
    drop(place.make_of(Mode::InProcess, tiers));
    [client(&place.dir()), client(&place.dir())]
}

pub fn written() {
    for what in [Allocate::Extend, Allocate::KeepSize] {
        for is_memory_alone in [false, true] {
            let place = Place::new();
            let disk = (!is_memory_alone).then(|| place.disk(48 << 20));
            let [(_a, a), (_b, b)] = two_sessions(&place, [Place::memory()].into_iter().chain(disk).collect());
            let (kept, filler) = (made(&a, b"kept"), made(&b, b"filler"));
            kept.allocate(what, 0, BYTES).unwrap();
            assert!(kept.attr().unwrap().blocks * 512 >= BYTES, "{what:?}");
            fill(&filler);
            // What is kept outlives the daemon.
            Store::stop_daemon(place.dir()).unwrap();
            // In no order, and each byte once.
            for at in (0..BYTES >> 17).rev().map(|number| number << 17) {
                kept.write_at(&vec![7; 64 << 10], at).unwrap();
                kept.write_at(&vec![8; 64 << 10], at + (64 << 10)).unwrap();
            }
            assert_eq!(errno(kept.write_at(&vec![9; 1 << 20], 2 * BYTES)), libc::ENOSPC);
            let mut all = vec![0; BYTES as usize];
            assert_eq!(kept.read_at(&mut all, 0).unwrap(), all.len());
            let is_right = |(at, part): (usize, &[u8])| part.iter().all(|byte| *byte == 7 + (at % 2) as u8);
            assert!(all.chunks(64 << 10).enumerate().all(is_right));
        }
    }
}

pub fn given_back() {
    let place = Place::new();
    let [(_a, a), (_b, b)] = two_sessions(&place, vec![Place::memory()]);
    let give_back: [fn(&FileSystem, File); 4] = [
        |_, file| file.close().unwrap(),
        |_, file| file.allocate(Allocate::Punch, 0, 2 * BYTES).unwrap(),
        |fs, file| {
            let size = SetAttr { size_bytes: Some(0), ..SetAttr::default() };
            fs.set_attr(&root_user(), file.ino(), &size).unwrap();
        },
        |_, file| {
            file.allocate(Allocate::Extend, 0, BYTES).unwrap(); // again: nothing more is kept
            (0..BYTES).step_by(1 << 20).for_each(|at| file.write_at(&vec![7; 1 << 20], at).unwrap());
            file.allocate(Allocate::Punch, 0, BYTES).unwrap();
        },
    ];
    for (number, give_back) in give_back.into_iter().enumerate() {
        let (kept, filler) = (made(&a, b"kept"), made(&b, b"filler"));
        // What was deleted is free some time later.
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

/// What does not fit is refused, and leaves nothing kept.
pub fn refused() {
    let place = Place::new();
    let [(_a, a), (_b, b)] = two_sessions(&place, vec![Place::memory()]);
    let (kept, other) = (made(&a, b"kept"), made(&b, b"other"));
    kept.allocate(Allocate::Extend, 0, 40 << 20).unwrap();
    assert_eq!(errno(other.allocate(Allocate::Extend, 0, 40 << 20)), libc::ENOSPC);
    other.allocate(Allocate::Extend, 0, 8 << 20).unwrap();
    kept.close().unwrap();
    other.allocate(Allocate::Extend, 0, 40 << 20).unwrap();
}
