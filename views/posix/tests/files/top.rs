//! Directories at the top (containers), laminated directories, and ranges shared by files.

use std::sync::atomic::{AtomicBool, Ordering};

use cenote::{ContainerSpec, Mode, OpenOptions, Store};
use cenote_posix::{Allocate, FileSystem, Ino, Kind, Options, SetAttr, SetXattr};

use crate::test_dir::{CREATE, READ_WRITE, TestDir, errno, names, root_user, user, what};

/// Two clients of one store, which show its top.
fn two(place: &TestDir) -> [(Store, FileSystem); 2] {
    drop(place.make(Mode::InProcess));
    [(), ()].map(|()| {
        let options = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
        let store = Store::open_with(place.dir(), &options).unwrap();
        let fs = FileSystem::new(&store, Options::default()).unwrap();
        (store, fs)
    })
}

/// An empty directory at the top can be removed even while a file that had its name there is being closed.
pub fn goes_while_a_file_is_closed() {
    let place = TestDir::new();
    let [(_, a), (_, b)] = two(&place);
    let me = root_user();
    for n in 0..100 {
        let name = format!("d{n}").into_bytes();
        let dir = a.make(&me, Ino::TOP, &name, &what(Kind::Directory, 0o700)).unwrap().ino;
        let files = [&a, &b].map(|fs| {
            let open = || {
                let file = fs.open_at(&me, dir, b"f", CREATE, 0o600).unwrap().0;
                file.write_at(b"x", 0).unwrap();
                fs.unlink(&me, dir, b"f").unwrap();
                file
            };
            (0..20).map(|_| open()).collect::<Vec<_>>()
        });
        std::thread::scope(|scope| {
            for files in files {
                scope.spawn(|| {
                    for file in files {
                        let _ = file.close(); // it may have gone with its directory
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_micros(n * 10));
            a.rmdir(&me, Ino::TOP, &name).unwrap_or_else(|error| panic!("round {n}: {error}"));
        });
    }
}

/// A process that sees a directory at the top can work in it, with its creator's rights, from the first moment to the
/// last.
pub fn seen_whole() {
    let place = TestDir::new();
    let [(store, a), (_, b)] = two(&place);
    let alice = user(1000, 1000, &[]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..60 {
                let name = format!("d{n}").into_bytes();
                let dir = a.make(&alice, Ino::TOP, &name, &what(Kind::Directory, 0o700)).unwrap().ino;
                // The other one creates a file in it at any moment, and removes it again.
                loop {
                    match a.rmdir(&alice, Ino::TOP, &name) {
                        Ok(()) => break,
                        Err(error) => assert_eq!(error.errno, libc::ENOTEMPTY, "{error}"),
                    }
                }
                assert_eq!(errno(a.attr(dir)), libc::ESTALE);
            }
            is_over.store(true, Ordering::SeqCst);
        });
        let mut met = 0;
        while !is_over.load(Ordering::SeqCst) {
            for n in 0..60 {
                let name = format!("d{n}").into_bytes();
                let Ok(dir) = b.lookup(&alice, Ino::TOP, &name) else { continue };
                assert_eq!((dir.uid, dir.mode), (1000, 0o700));
                match b.open_at(&alice, dir.ino, b"f", CREATE, 0o600) {
                    Ok((file, ..)) => {
                        met += 1;
                        file.write_at(b"x", 0).unwrap();
                        b.unlink(&alice, dir.ino, b"f").unwrap();
                        file.close().unwrap();
                    }
                    // Removed since.
                    Err(error) => assert!(matches!(error.errno, libc::ENOENT | libc::ESTALE), "{error}"),
                }
            }
        }
        println!("  {met} directories met before they went");
    });
    assert_eq!(errno(a.make(&alice, Ino::TOP, b"made", &what(Kind::File, 0o600))), libc::EPERM);
    store.create_container("made", &ContainerSpec::default()).unwrap();
    assert_eq!(errno(a.make(&alice, Ino::TOP, b"made", &what(Kind::Directory, 0o700))), libc::EEXIST);
    a.rmdir(&root_user(), Ino::TOP, b"made").unwrap();
    // The next creator sweeps what a dead process left half made.
    let left = format!("/making/{}-{}-0-0", u32::MAX, 7);
    store.create_container(&left, &ContainerSpec::default()).unwrap();
    assert_eq!(names(&b, Ino::TOP), [""; 0]);
    b.make(&alice, Ino::TOP, b"last", &what(Kind::Directory, 0o700)).unwrap();
    let labels: Vec<String> = store.containers("").unwrap().into_iter().map(|info| info.label).collect();
    assert_eq!(labels, ["last"]);
}

/// Lamination also refuses writers that already have a file open.
pub fn laminated() {
    let place = TestDir::new();
    let [(_, a), (_, b)] = two(&place);
    let me = root_user();
    let top = a.make(&me, Ino::TOP, b"c", &what(Kind::Directory, 0o755)).unwrap().ino;
    for before in ["strict", "commit"] {
        let dir = a.make(&me, top, before.as_bytes(), &what(Kind::Directory, 0o755)).unwrap().ino;
        let set = |fs: &FileSystem, to: &str| {
            fs.set_xattr(&me, dir, b"user.cenote.consistency", to.as_bytes(), SetXattr::Any).unwrap();
        };
        set(&a, before);
        let file = b.open_at(&me, dir, b"f", CREATE, 0o644).unwrap().0;
        let empty = b.open_at(&me, dir, b"g", CREATE, 0o644).unwrap().0;
        file.write_at(b"before", 0).unwrap();
        b.sync_dir(dir).unwrap();
        let unknown = b.open_at(&me, dir, b"h", CREATE, 0o644).unwrap().0;
        set(&a, "laminated");
        for file in [&file, &empty] {
            assert_eq!(errno(file.write_at(b"after", 0)), libc::EROFS);
            assert_eq!(errno(file.append(b"after")), libc::EROFS);
            assert_eq!(errno(file.set_attr(&me, &SetAttr { size_bytes: Some(1), ..SetAttr::default() })), libc::EROFS);
            assert_eq!(errno(file.allocate(Allocate::Extend, 0, 100)), libc::EROFS);
        }
        assert_eq!(errno(unknown.write_at(b"after", 0)), libc::EROFS);
        // In a `commit` directory nobody else had seen it, unless some 50 ms had passed.
        if names(&a, dir) == ["f", "g"] {
            assert_eq!((before, errno(unknown.sync(false))), ("commit", libc::EROFS));
        }
        let mut buf = [0; 10];
        assert_eq!((file.read_at(&mut buf, 0).unwrap(), &buf[..6]), (6, &b"before"[..]));
        set(&a, "strict");
        file.write_at(b"after!", 0).unwrap();
        file.close().unwrap();
    }
    assert_eq!(a.check(top).unwrap(), [""; 0]);
}

/// Copied, collapsed and inserted ranges have the right bytes, holes included, and take no space of their own.
pub fn shared_ranges() {
    const KIB: u64 = 1024;
    let place = TestDir::new();
    let (store, fs, _) = place.tree();
    let (me, root) = (root_user(), fs.root());
    let open = |name: &[u8]| fs.open_at(&me, root, name, CREATE, 0o600).unwrap().0;
    let (from, to) = (open(b"from"), open(b"to"));
    let bytes: Vec<u8> = (0..256 * KIB).map(|n| (n / 7) as u8).collect();
    from.write_at(&bytes, 128 * KIB).unwrap();
    let used = || {
        let devices = store.devices().unwrap();
        devices.iter().find(|device| device.spec.kind == cenote::DeviceKind::SharedMemory).unwrap().used_bytes
    };
    let before = used();
    assert_eq!(to.copy_from(&from, 0, 0, u64::MAX >> 1).unwrap(), 384 * KIB);
    assert_eq!(to.copy_from(&from, 200 * KIB, 384 * KIB, 10 * KIB).unwrap(), 10 * KIB);
    let model = |file: &cenote_posix::File| {
        let mut all = vec![0; file.attr().unwrap().size_bytes as usize];
        assert_eq!(file.read_at(&mut all, 0).unwrap(), all.len());
        all
    };
    let mut expected = vec![0; 128 * KIB as usize];
    expected.extend_from_slice(&bytes);
    expected.extend_from_within(200 * KIB as usize..210 * KIB as usize);
    assert!(model(&to) == expected);
    assert_eq!((to.next_data(0).unwrap(), to.next_hole(128 * KIB).unwrap()), (128 * KIB, 394 * KIB));
    assert_eq!(to.attr().unwrap().blocks, 266 * KIB / 512);
    to.allocate(Allocate::Collapse, 130 * KIB + 2 * KIB, 4 * KIB).unwrap();
    expected.drain(132 * KIB as usize..136 * KIB as usize);
    assert!(model(&to) == expected);
    to.allocate(Allocate::Insert, 8 * KIB, 200 * KIB).unwrap();
    expected.splice(8 * KIB as usize..8 * KIB as usize, std::iter::repeat_n(0, 200 * KIB as usize));
    assert!(model(&to) == expected);
    assert!(used() < before + 64 * KIB, "nothing was copied: {} bytes more", used() - before);
    to.append(b"end").unwrap();
    expected.extend_from_slice(b"end");
    fs.unlink(&me, root, b"from").unwrap();
    from.close().unwrap();
    assert!(model(&to) == expected);
    let read = fs.open_at(&me, root, b"to", READ_WRITE, 0).unwrap().0;
    assert_eq!(errno(read.next_data(expected.len() as u64)), libc::ENXIO);
    assert_eq!(fs.check(root).unwrap(), [""; 0]);
}
