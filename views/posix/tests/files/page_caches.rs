//! Page caches: bytes that processes map and share, and their write-back.
#![allow(unsafe_code, reason = "files are mapped")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cenote::{Mode, Store};
use cenote_posix::{Allocate, FileSystem, SetAttr, SetTime, SetXattr, Time};

use crate::rng::{Rng, seed};
use crate::test_dir::{READ_WRITE, TestDir, client, errno, made, one_tree, root_user};

fn left(store: &Store) -> usize {
    std::fs::read_dir(store.meeting_dir("windows").unwrap()).unwrap().count()
}

/// A shared mapping of a whole page cache.
struct Map(*mut u8, usize);

impl Map {
    fn of(fd: &OwnedFd, len: usize) -> Self {
        let (read, write) = (libc::PROT_READ, libc::PROT_WRITE);
        // SAFETY: maps new addresses of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, read | write, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast(), len)
    }
    fn store(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.1);
        // SAFETY: within the mapping; the tests' processes write in turns.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.add(at), bytes.len()) };
    }
    fn load(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.1);
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.0.add(at), len) }.to_vec()
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and not used any more.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// Returns the bytes in the object, as read by a client that does not know the page cache.
fn stored(fs: &FileSystem, name: &[u8]) -> Vec<u8> {
    let attr = fs.lookup(&root_user(), fs.root(), name).unwrap();
    let file = fs.open(&root_user(), attr.ino, READ_WRITE).unwrap();
    let mut all = vec![0; attr.size_bytes as usize];
    assert_eq!(file.read_at(&mut all, 0).unwrap(), all.len());
    all
}

pub fn shared() {
    let place = TestDir::new();
    drop(place.make(Mode::InProcess));
    let ((store, a), (_, b)) = (client(&place.dir()), client(&place.dir()));
    let me = root_user();
    a.set_xattr(&me, a.root(), b"user.cenote.consistency", b"commit", SetXattr::Any).unwrap();
    let one = made(&a, b"f");
    one.write_at(&[1; 10_000], 0).unwrap();
    let other = made(&b, b"f");
    let mut buf = [0; 3];
    assert_eq!(other.read_at(&mut buf, 9_998).unwrap(), 2);
    let fd = one.page_cache().unwrap();
    let mut map = Map::of(&fd, 10_000);
    assert_eq!(map.load(9_990, 10), [1; 10]);
    // Others read at once what is stored, and what they write can be loaded at once.
    map.store(5_000, b"mapped");
    assert!(other.has_page_cache().unwrap());
    let mut read = [0; 6];
    assert_eq!((other.read_at(&mut read, 5_000).unwrap(), &read), (6, b"mapped"));
    other.write_at(b"written", 7_000).unwrap();
    assert_eq!(map.load(7_000, 7), b"written");
    let again = Map::of(&other.page_cache().unwrap(), 10_000);
    map.store(0, b"both");
    assert_eq!(again.load(0, 4), b"both");
    // Sizes agree as well: by appending, by setting it, and in `stat`.
    assert_eq!(other.append(b"end").unwrap(), 10_000);
    assert_eq!(one.attr().unwrap().size_bytes, 10_003);
    b.set_attr(&me, other.ino(), &SetAttr { size_bytes: Some(20_000), ..SetAttr::default() }).unwrap();
    assert_eq!(one.attr().unwrap().size_bytes, 20_000);
    one.allocate(Allocate::Punch, 4096, 100).unwrap();
    one.allocate(Allocate::Insert, 8192, 4096).unwrap();
    let mut expected = vec![1; 10_000];
    expected[5_000..5_006].copy_from_slice(b"mapped");
    expected[7_000..7_007].copy_from_slice(b"written");
    expected[..4].copy_from_slice(b"both");
    expected.extend_from_slice(b"end");
    expected.resize(20_000, 0);
    expected[4096..4196].fill(0);
    expected.splice(8192..8192, [0; 4096]);
    assert!(stored(&b, b"f") == expected);
    // A client outside the page cache sees what was synced.
    map.store(100, b"later");
    expected[100..105].copy_from_slice(b"later");
    one.sync(false).unwrap();
    let object = {
        let container = store.container("tree").unwrap();
        container.object(*container.objects(None, 10).unwrap().first().unwrap())
    };
    let mut all = vec![0; expected.len()];
    assert_eq!((object.size().unwrap(), object.read_at(0, &mut all).unwrap()), (24_096, 24_096));
    assert!(all == expected);
    // The last process to leave writes back.
    map.store(200, b"last");
    expected[200..204].copy_from_slice(b"last");
    drop(map);
    one.close().unwrap();
    assert_eq!(left(&store), 1);
    drop(again);
    other.close().unwrap();
    assert_eq!(left(&store), 0);
    assert!(stored(&a, b"f") == expected);
    // Nothing is kept of a file that has no name any more.
    let gone = made(&a, b"g");
    drop(gone.page_cache().unwrap());
    gone.write_at(b"x", 3).unwrap();
    a.unlink(&me, a.root(), b"g").unwrap();
    gone.close().unwrap();
    assert_eq!(left(&store), 0);
    let read_only = fs_of(&store, true);
    let reader = read_only.open_at(&me, read_only.root(), b"f", crate::test_dir::READ, 0).unwrap().0;
    assert_eq!(errno(reader.page_cache()), libc::EROFS);
    assert_eq!(a.check(a.root()).unwrap(), [""; 0]);
}

/// If the store has no space for what another process left in a page cache, the last `close` reports that, and nothing is lost.
pub fn no_room() {
    const BYTES: usize = 4 << 20;
    let place = TestDir::new();
    drop(place.make_of(Mode::InProcess, vec![TestDir::memory()]));
    let ((_store, a), (_, b)) = (client(&place.dir()), client(&place.dir()));
    let me = root_user();
    let (made, filler) = (made(&a, b"f"), made(&b, b"filler"));
    let size = SetAttr { size_bytes: Some(BYTES as u64), ..SetAttr::default() };
    a.set_attr(&me, made.ino(), &size).unwrap();
    made.close().unwrap();
    // A reader's flush writes nothing back. The kernel, which was given the page cache, writes for a process that is gone.
    let one = a.open_at(&me, a.root(), b"f", crate::test_dir::READ, 0).unwrap().0;
    let kernel = std::fs::File::from(one.page_cache_for_kernel().unwrap());
    std::os::unix::fs::FileExt::write_all_at(&kernel, &vec![7; BYTES], 0).unwrap();
    drop(kernel);
    let full = (0_u64..).find_map(|at| filler.write_at(&vec![1; 1 << 20], at << 20).err()).unwrap();
    assert_eq!(full.errno, libc::ENOSPC);
    assert_eq!(errno(one.close()), libc::ENOSPC);
    filler.close().unwrap();
    b.unlink(&me, b.root(), b"filler").unwrap();
    assert!(stored(&b, b"f") == vec![7; BYTES]);
}

/// A time set during write-back becomes the file's time, not that of the earlier writes.
pub fn times() {
    let place = TestDir::new();
    let (_store, fs, _) = place.tree();
    let me = root_user();
    let file = made(&fs, b"f");
    file.write_at(&vec![1; 100_000], 0).unwrap();
    let kernel = std::fs::File::from(file.page_cache_for_kernel().unwrap());
    for round in 0..200_u8 {
        std::os::unix::fs::FileExt::write_all_at(&kernel, &vec![round; 50_000], u64::from(round) * 500).unwrap();
        let past = Time { s: 1_000_000 + i64::from(round), ns: 7 };
        std::thread::scope(|scope| {
            scope.spawn(|| file.sync(true).unwrap());
            let set = SetAttr { modified: Some(SetTime::To(past)), ..SetAttr::default() };
            fs.set_attr(&me, file.ino(), &set).unwrap();
            for _ in 0..20 {
                assert_eq!(file.attr().unwrap().modified, past, "round {round}, while it may be put back");
            }
        });
        file.sync(false).unwrap();
        assert_eq!(file.attr().unwrap().modified, past, "round {round}");
    }
}

fn fs_of(store: &Store, is_read_only: bool) -> FileSystem {
    FileSystem::new(store, cenote_posix::Options { is_read_only, ..one_tree() }).unwrap()
}

/// Entry point of a child (`DIR`): stores into a mapping, syncs, stores again, reports, and waits to be ended.
pub fn child(args: &[String]) {
    let dir: &Path = args[0].as_ref();
    let (_store, fs) = client(dir);
    let file = made(&fs, b"f");
    let mut map = Map::of(&file.page_cache().unwrap(), 50_000);
    map.store(10_000, b"synced");
    file.sync(true).unwrap();
    map.store(20_000, b"not synced");
    std::fs::write(dir.join("../stored"), b"").unwrap();
    std::thread::sleep(Duration::from_secs(30));
}

/// Runs a process that stores to `f`, and kills it when it has; returns when it began.
fn kill_one_that_stored(place: &TestDir) -> Instant {
    let said = place.dir().join("../stored");
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut child = command.arg("child").arg("page-cache").arg(place.dir()).spawn().unwrap();
    let begun = Instant::now();
    while !said.exists() {
        assert!(begun.elapsed().as_secs() < 20);
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    begun
}

/// What a killed process had stored survives, whether or not anybody else has the file open.
pub fn killed() {
    for is_shared in [false, true] {
        let place = TestDir::new();
        drop(place.make(Mode::InProcess));
        let (store, fs) = client(&place.dir());
        let first = made(&fs, b"f");
        first.write_at(&vec![7; 50_000], 0).unwrap();
        let mut other = Some(first).filter(|_| is_shared);
        let begun = kill_one_that_stored(&place);
        let check = |at: usize, bytes: &[u8]| assert_eq!(&stored(&fs, b"f")[at..at + bytes.len()], bytes);
        check(10_000, b"synced");
        check(20_000, b"not synced");
        assert!(other.as_ref().is_none_or(|other| other.has_page_cache().unwrap()));
        drop(other.take());
        // Somebody has any file open: within some seconds the page cache is gone, and the object has everything.
        let _keeper = made(&fs, b"g");
        while left(&store) > 0 {
            assert!(begun.elapsed().as_secs() < 20);
            std::thread::sleep(Duration::from_millis(20));
        }
        check(20_000, b"not synced");
        assert_eq!(fs.check(fs.root()).unwrap(), [""; 0]);
    }
}

/// What a killed process had stored survives where nobody who is left has ever seen the file.
pub fn killed_unseen() {
    let place = TestDir::new();
    drop(place.make(Mode::InProcess));
    let store = {
        let (store, fs) = client(&place.dir());
        made(&fs, b"f").write_at(&vec![7; 50_000], 0).unwrap();
        store
    };
    let begun = kill_one_that_stored(&place);
    let fs = fs_of(&store, false);
    let _keeper = made(&fs, b"g");
    while left(&store) > 0 {
        assert!(begun.elapsed().as_secs() < 20);
        std::thread::sleep(Duration::from_millis(20));
    }
    let bytes = stored(&fs, b"f");
    assert_eq!((&bytes[10_000..10_006], &bytes[20_000..20_010]), (&b"synced"[..], &b"not synced"[..]));
    assert_eq!(fs.check(fs.root()).unwrap(), [""; 0]);
}

/// Random changes, by mapping and by calls, in the sessions of two processes, compared with plain bytes.
pub fn random() {
    let seed = seed("page caches");
    let mut rng = Rng::new(seed);
    let place = TestDir::new();
    drop(place.make(Mode::InProcess));
    let both = [client(&place.dir()).1, client(&place.dir()).1];
    let mut files = [Some(made(&both[0], b"f")), Some(made(&both[1], b"f"))];
    let mut model: Vec<u8> = Vec::new();
    for step in 0..600 {
        let who = rng.below(2);
        let file = files[who].get_or_insert_with(|| made(&both[who], b"f"));
        let (at, len) = (rng.below(60_000), 1 + rng.below(9_000));
        let byte = 1 + (step % 250) as u8;
        match rng.below(9) {
            0 | 1 => {
                file.write_at(&vec![byte; len], at as u64).unwrap();
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].fill(byte);
            }
            2 if !model.is_empty() => {
                let len = model.len();
                let mut map = Map::of(&file.page_cache().unwrap(), len);
                let (at, some) = (rng.below(len), 1 + rng.below(3_000));
                let some = some.min(len - at);
                map.store(at, &vec![byte; some]);
                model[at..at + some].fill(byte);
            }
            3 => {
                assert_eq!(file.append(&[byte; 77]).unwrap(), model.len() as u64, "seed {seed} step {step}");
                model.extend_from_slice(&[byte; 77]);
            }
            4 => {
                let set = SetAttr { size_bytes: Some(at as u64), ..SetAttr::default() };
                file.set_attr(&root_user(), &set).unwrap();
                model.resize(at, 0);
            }
            5 => {
                file.allocate(Allocate::Punch, at as u64, len as u64).unwrap();
                let end = (at + len).min(model.len());
                model[at.min(end)..end].fill(0);
            }
            6 => file.sync(false).unwrap(),
            7 => files[who].take().unwrap().close().unwrap(),
            _ => {
                let mut all = vec![0; len];
                let read = file.read_at(&mut all, at as u64).unwrap();
                let end = (at + len).min(model.len());
                assert!(all[..read] == model[at.min(end)..end], "seed {seed} step {step}");
            }
        }
        if step % 50 == 0 {
            assert!(stored(&both[1 - who], b"f") == model, "seed {seed} step {step}");
        }
    }
    drop(files);
    assert!(stored(&both[0], b"f") == model, "seed {seed}");
    assert_eq!(both[0].check(both[0].root()).unwrap(), [""; 0]);
}
