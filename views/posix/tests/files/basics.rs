//! Basic calls in one process.

use cenote::{ErrorKind, Mode};
use cenote_posix::{
    Allocate, Consistency, FileSystem, Follow, Ino, Kind, New, Options, Over, Rename, SetAttr, SetTime, SetXattr, Time,
};

use crate::test_dir::{CREATE, READ_WRITE, TestDir, errno, names, one_tree, root_user, user, what};

pub fn names_and_bytes() {
    let place = TestDir::new();
    let (_store, fs, _) = place.tree();
    let (me, root) = (root_user(), fs.root());
    let (file, attr, made) = fs.open_at(&me, root, b"a", CREATE, 0o640).unwrap();
    assert!(made && attr.mode == 0o640 && attr.size_bytes == 0 && attr.links == 1);
    file.write_at(b"hello", 3).unwrap();
    let mut buf = [9; 16];
    assert_eq!(file.read_at(&mut buf, 0).unwrap(), 8);
    assert_eq!(&buf[..8], b"\0\0\0hello");
    assert_eq!(file.append(b"!").unwrap(), 8);
    assert_eq!(file.attr().unwrap().size_bytes, 9);
    let dir = fs.make(&me, root, b"d", &what(Kind::Directory, 0o755)).unwrap();
    assert_eq!(fs.attr(root).unwrap().links, 3);
    fs.rename(&me, (root, b"a"), (dir.ino, b"b"), Rename::Replace).unwrap();
    assert_eq!(errno(fs.lookup(&me, root, b"a")), libc::ENOENT);
    assert_eq!(fs.lookup(&me, dir.ino, b"b").unwrap().ino, file.ino());
    assert_eq!(fs.attr(file.ino()).unwrap().size_bytes, 9);
    let linked = fs.link(&me, file.ino(), root, b"c").unwrap();
    assert_eq!((linked.links, linked.ino), (2, file.ino()));
    assert_eq!(names(&fs, root), ["c", "d"]);
    assert_eq!(errno(fs.rmdir(&me, root, b"d")), libc::ENOTEMPTY);
    fs.unlink(&me, dir.ino, b"b").unwrap();
    fs.rmdir(&me, root, b"d").unwrap();
    assert_eq!(fs.attr(root).unwrap().links, 2);
    assert_eq!(fs.attr(file.ino()).unwrap().links, 1);
    fs.make(&me, root, b"s", &what(Kind::Symlink, 0o777)).unwrap();
    let target = fs.make(&me, root, b"target", &what(Kind::Directory, 0o700)).unwrap();
    fs.make(&me, target.ino, b"in", &what(Kind::Fifo, 0o600)).unwrap();
    let found = fs.resolve(&me, root, b"/s/../s//./in", Follow::Yes).unwrap();
    assert_eq!(found.kind, Kind::Fifo);
    assert_eq!(fs.resolve(&me, root, b"s", Follow::No).unwrap().kind, Kind::Symlink);
    assert_eq!(fs.resolve(&me, root, b"s/", Follow::No).unwrap().kind, Kind::Directory);
    assert_eq!(fs.resolve_parent(&me, target.ino, b"../s/new//").unwrap(), (target.ino, &b"new"[..]));
    assert_eq!(fs.lookup(&me, target.ino, b"..").unwrap().ino, root);
    fs.rename(&me, (root, b"s"), (root, b"c"), Rename::Exchange).unwrap();
    assert_eq!(fs.lookup(&me, root, b"s").unwrap().ino, file.ino());
    drop(file);
    let file = fs.open(&me, fs.lookup(&me, root, b"s").unwrap().ino, READ_WRITE).unwrap();
    assert_eq!(file.read_at(&mut buf, 4).unwrap(), 5);
    let space = fs.space(root).unwrap();
    assert!(space.total_bytes >= 256 << 20 && space.free_bytes <= space.total_bytes && space.files_free > 1 << 39);
}

pub fn errors() {
    let place = TestDir::new();
    let (store, fs, _) = place.tree();
    let (me, root) = (root_user(), fs.root());
    let long = vec![b'n'; 256];
    let dir = fs.make(&me, root, b"d", &what(Kind::Directory, 0o777)).unwrap().ino;
    let file = fs.make(&me, root, b"f", &what(Kind::File, 0o644)).unwrap().ino;
    assert_eq!(errno(fs.lookup(&me, root, &long)), libc::ENAMETOOLONG);
    assert_eq!(errno(fs.make(&me, root, &long, &what(Kind::File, 0))), libc::ENAMETOOLONG);
    assert!(fs.make(&me, root, &long[1..], &what(Kind::File, 0)).is_ok());
    assert_eq!(errno(fs.make(&me, root, b"d", &what(Kind::File, 0))), libc::EEXIST);
    assert_eq!(errno(fs.make(&me, root, b"..", &what(Kind::Directory, 0))), libc::EEXIST);
    assert_eq!(errno(fs.make(&me, file, b"x", &what(Kind::File, 0))), libc::ENOTDIR);
    assert_eq!(errno(fs.lookup(&me, file, b"x")), libc::ENOTDIR);
    assert_eq!(errno(fs.unlink(&me, root, b"d")), libc::EISDIR);
    assert_eq!(errno(fs.rmdir(&me, root, b"f")), libc::ENOTDIR);
    assert_eq!(errno(fs.rmdir(&me, dir, b".")), libc::EINVAL);
    assert_eq!(errno(fs.unlink(&me, root, b"none")), libc::ENOENT);
    assert_eq!(errno(fs.link(&me, dir, root, b"l")), libc::EPERM);
    assert_eq!(errno(fs.rename(&me, (root, b"d"), (dir, b"x"), Rename::Replace)), libc::EINVAL);
    assert_eq!(errno(fs.rename(&me, (root, b"f"), (root, b"d"), Rename::Replace)), libc::EISDIR);
    assert_eq!(errno(fs.rename(&me, (root, b"d"), (root, b"f"), Rename::Replace)), libc::ENOTDIR);
    fs.make(&me, dir, b"in", &what(Kind::File, 0o644)).unwrap();
    assert_eq!(errno(fs.rename(&me, (dir, b"in"), (root, b"d"), Rename::Replace)), libc::ENOTEMPTY);
    fs.unlink(&me, dir, b"in").unwrap();
    assert_eq!(errno(fs.rename(&me, (root, b"d"), (root, b"f"), Rename::Keep)), libc::EEXIST);
    assert_eq!(errno(fs.open(&me, dir, READ_WRITE)), libc::EISDIR);
    assert_eq!(
        errno(fs.open_at(&me, root, b"f", cenote_posix::OpenFlags { exclusive: true, ..CREATE }, 0)),
        libc::EEXIST
    );
    fs.make(&me, root, b"loop", &cenote_posix::Make { target: b"loop".into(), ..what(Kind::Symlink, 0) }).unwrap();
    assert_eq!(errno(fs.resolve(&me, root, b"loop", Follow::Yes)), libc::ELOOP);
    assert_eq!(errno(fs.resolve(&me, root, b"f/", Follow::Yes)), libc::ENOTDIR);
    assert_eq!(
        errno(fs.resolve(&me, root, &[b"d/".repeat(2048), b"x".into()].concat(), Follow::Yes)),
        libc::ENAMETOOLONG
    );
    let open = fs.open(&me, file, READ_WRITE).unwrap();
    assert_eq!(errno(open.write_at(b"x", i64::MAX as u64)), libc::EFBIG);
    assert_eq!(errno(open.set_attr(&me, &SetAttr { size_bytes: Some(1 << 63), ..SetAttr::default() })), libc::EFBIG);
    assert_eq!(errno(fs.attr(Ino(root.0 + 12_345))), libc::ESTALE);
    let other = user(7, 7, &[]);
    assert_eq!(errno(fs.make(&other, root, b"x", &what(Kind::File, 0))), libc::EACCES);
    assert_eq!(errno(fs.open(&other, file, READ_WRITE)), libc::EACCES);
    assert_eq!(errno(fs.set_attr(&other, file, &SetAttr { mode: Some(0o777), ..SetAttr::default() })), libc::EPERM);
    let now = SetAttr { modified: Some(SetTime::Now), ..SetAttr::default() };
    assert_eq!(errno(fs.set_attr(&other, file, &now)), libc::EACCES);
    let read_only = FileSystem::new(&store, Options { is_read_only: true, ..one_tree() }).unwrap();
    assert_eq!(errno(read_only.make(&me, root, b"x", &what(Kind::File, 0))), libc::EROFS);
    assert_eq!(errno(read_only.open(&me, file, READ_WRITE)), libc::EROFS);
    assert_eq!(read_only.lookup(&me, root, b"f").unwrap().ino, file);
    // Nothing changes any more in a laminated directory.
    let inside = fs.make(&me, dir, b"inside", &what(Kind::File, 0o666)).unwrap().ino;
    fs.set_xattr(&me, dir, b"user.cenote.consistency", b"laminated", SetXattr::Any).unwrap();
    assert_eq!(fs.attr(inside).unwrap().consistency, Consistency::Laminated);
    assert_eq!(errno(fs.unlink(&me, dir, b"inside")), libc::EROFS);
    assert_eq!(errno(fs.open(&me, inside, READ_WRITE)), libc::EROFS);
    assert_eq!(errno(fs.make(&me, dir, b"x", &what(Kind::File, 0))), libc::EROFS);
    assert_eq!(errno(fs.make(&me, dir, b"inside", &what(Kind::File, 0))), libc::EEXIST);
    assert_eq!(errno(fs.set_attr(&me, inside, &now)), libc::EROFS);
    fs.set_xattr(&me, dir, b"user.cenote.consistency", b"strict", SetXattr::Any).unwrap();
    fs.unlink(&me, dir, b"inside").unwrap();
}

pub fn top() {
    let place = TestDir::new();
    let store = place.make(Mode::InProcess);
    store.create_container("/plain/is/not/this", &cenote::ContainerSpec::default()).unwrap();
    store.create_container("made by others", &cenote::ContainerSpec::default()).unwrap();
    let fs = FileSystem::new(&store, Options::default()).unwrap();
    let (me, top) = (root_user(), fs.root());
    assert_eq!(top, Ino::TOP);
    assert_eq!(names(&fs, top), ["made by others"]);
    let found = fs.lookup(&me, top, b"made by others").unwrap();
    assert_eq!((found.kind, found.mode), (Kind::Directory, 0o755));
    assert_eq!(names(&fs, found.ino), [""; 0]);
    let made = fs.make(&user(7, 8, &[]), top, b"results", &what(Kind::Directory, 0o750)).unwrap();
    assert_eq!((made.uid, made.gid, made.mode), (7, 8, 0o750));
    assert_eq!(errno(fs.make(&me, top, b"results", &what(Kind::Directory, 0o750))), libc::EEXIST);
    assert_eq!(errno(fs.make(&me, top, b"file", &what(Kind::File, 0o750))), libc::EPERM);
    assert_eq!(errno(fs.open_at(&me, top, b"file", CREATE, 0o750)), libc::EPERM);
    fs.make(&me, made.ino, b"f", &what(Kind::File, 0o600)).unwrap();
    assert_eq!(errno(fs.rename(&me, (made.ino, b"f"), (found.ino, b"f"), Rename::Replace)), libc::EXDEV);
    assert_eq!(errno(fs.rmdir(&me, top, b"results")), libc::ENOTEMPTY);
    assert_eq!(errno(fs.rename(&user(9, 9, &[]), (top, b"results"), (top, b"r"), Rename::Replace)), libc::EPERM);
    fs.rename(&me, (top, b"results"), (top, b"r"), Rename::Replace).unwrap();
    assert_eq!(fs.resolve(&me, top, b"/r/f", Follow::Yes).unwrap().kind, Kind::File);
    assert_eq!(fs.lookup(&me, made.ino, b"..").unwrap().ino, top);
    fs.unlink(&me, made.ino, b"f").unwrap();
    fs.rmdir(&me, top, b"r").unwrap();
    assert_eq!(errno(fs.attr(made.ino)), libc::ESTALE);
    assert_eq!(names(&fs, top), ["made by others"]);
    let held = store.container("made by others").unwrap();
    held.create_object(None, None).unwrap();
    assert_eq!(errno(fs.rmdir(&me, top, b"made by others")), libc::ENOTEMPTY);
}

pub fn unlinked_while_open() {
    let place = TestDir::new();
    let (store, fs, _) = place.tree();
    let (me, root) = (root_user(), fs.root());
    for bytes in [&b""[..], b"bytes"] {
        let (file, _, _) = fs.open_at(&me, root, b"a", CREATE, 0o600).unwrap();
        file.write_at(bytes, 0).unwrap();
        fs.unlink(&me, root, b"a").unwrap();
        assert_eq!(errno(fs.lookup(&me, root, b"a")), libc::ENOENT);
        file.append(b"more").unwrap();
        let attr = file.attr().unwrap();
        assert_eq!((attr.links, attr.size_bytes), (0, bytes.len() as u64 + 4));
        assert_eq!(errno(fs.link(&me, file.ino(), root, b"b")), libc::ENOENT);
        file.close().unwrap();
        assert_eq!(store.container("tree").unwrap().info().unwrap().objects, 0);
    }
    // The same for a replaced file.
    let (file, _, _) = fs.open_at(&me, root, b"a", CREATE, 0o600).unwrap();
    file.write_at(b"old", 0).unwrap();
    fs.make(&me, root, b"b", &what(Kind::File, 0o600)).unwrap();
    fs.rename(&me, (root, b"b"), (root, b"a"), Rename::Replace).unwrap();
    assert_eq!(file.read_at(&mut [0; 8], 0).unwrap(), 3);
    file.close().unwrap();
    assert_eq!(store.container("tree").unwrap().info().unwrap().objects, 0);
}

pub fn cursors() {
    let place = TestDir::new();
    let (_store, fs, _) = place.tree();
    let (me, root) = (root_user(), fs.root());
    let name = |n: u32| format!("{n:05}").into_bytes();
    for n in 0..1500 {
        fs.make(&me, root, &name(n * 2), &what(Kind::File, 0o600)).unwrap();
    }
    let mut cursor = fs.read_dir(&me, root).unwrap();
    let (mut seen, mut positions) = (Vec::new(), vec![0]);
    while let Some(entry) = cursor.next().unwrap() {
        positions.push(entry.next);
        seen.push(entry.name);
        if seen.len() % 100 == 0 && seen.len() < 1400 {
            let n = seen.len() as u32;
            fs.make(&me, root, &name(n * 2 + 1), &what(Kind::File, 0o600)).unwrap(); // after it
            fs.make(&me, root, &[&name(n - 99), &b"b"[..]].concat(), &what(Kind::File, 0o600)).unwrap(); // before it
            fs.unlink(&me, root, &name(2 * (n - 10))).unwrap();
        }
    }
    let evens: Vec<_> = seen[2..].iter().filter(|name| name[4] % 2 == 0).cloned().collect();
    assert_eq!(evens, (0..1500).map(|n| name(n * 2)).collect::<Vec<_>>());
    let mut sorted = seen[2..].to_vec();
    sorted.dedup();
    assert!(sorted.is_sorted() && sorted.len() == seen.len() - 2, "each once");
    // After a seek back to any position, reading continues with what follows it, if that still exists.
    for at in [0, 1, 2, 3, 700, seen.len() - 1] {
        cursor.seek(positions[at]);
        let next = cursor.next().unwrap().unwrap();
        assert!(next.name == seen[at] || next.name > seen[at - 1], "{at}");
    }
    cursor.seek(positions[seen.len()]);
    assert!(cursor.next().unwrap().is_none());
    let listed = fs.list(root, Some(b"00990"), 7).unwrap();
    assert_eq!(listed.len(), 7);
    assert!(listed[0].0 > b"00990".to_vec() && listed[0].1.kind == Kind::File);
}

pub fn unnamed() {
    let place = TestDir::new();
    let (store, fs, _) = place.tree();
    let (me, root) = (root_user(), fs.root());
    let objects = || store.container("tree").unwrap().info().unwrap().objects;
    let file = fs.open_unnamed(&me, root, READ_WRITE, 0o600).unwrap();
    file.write_at(b"1", 0).unwrap();
    assert_eq!(file.attr().unwrap().links, 0);
    drop(file);
    assert_eq!(objects(), 0);
    let place_one = |over, keep| {
        let file = fs.open_unnamed(&me, root, READ_WRITE, 0o600).unwrap();
        file.write_at(b"2", 0).unwrap();
        fs.place(&me, &file, (root, b"n"), &[(b"user.k", b"v")], over, keep)
    };
    let first = place_one(Over::Nothing, None).unwrap();
    assert_eq!((first.links, first.size_bytes), (1, 1));
    assert_eq!(fs.xattr(&me, first.ino, b"user.k").unwrap(), b"v");
    assert_eq!(errno(place_one(Over::Nothing, None)), libc::EEXIST);
    assert_eq!(errno(place_one(Over::This(root), None)), libc::EBUSY);
    let second = place_one(Over::This(first.ino), None).unwrap();
    assert_eq!(objects(), 1);
    let back = fs.private_dir(root).unwrap();
    let third = place_one(Over::Any, Some((back, b"kept"))).unwrap();
    assert_eq!(fs.lookup(&me, back, b"kept").unwrap().ino, second.ino);
    assert_eq!(fs.lookup(&me, root, b"n").unwrap().ino, third.ino);
    assert_eq!(objects(), 2);
    assert_eq!(names(&fs, root), ["n"]);
}

/// Puts bytes, name and attributes at once: like placing, and without any effect if it is refused.
pub fn put_at_once() {
    let place = TestDir::new();
    let (store, fs, _) = place.tree();
    let (me, root) = (root_user(), fs.root());
    let objects = || store.container("tree").unwrap().info().unwrap().objects;
    let put = |bytes: &[u8], over, keep| {
        let mut describe = |now: Time| vec![(&b"user.at"[..], now.ns.to_string().into_bytes())];
        fs.put(&me, (root, b"n"), New { bytes, mode: 0o640, describe: &mut describe }, over, keep)
    };
    let first = put(b"one", Over::Nothing, None).unwrap();
    assert_eq!((first.links, first.size_bytes, first.mode & 0o777), (1, 3, 0o640));
    assert_eq!(fs.xattr(&me, first.ino, b"user.at").unwrap(), first.modified.ns.to_string().into_bytes());
    assert_eq!(errno(put(b"x", Over::Nothing, None)), libc::EEXIST);
    assert_eq!(errno(put(b"x", Over::This(root), None)), libc::EBUSY);
    assert_eq!(objects(), 1, "what was refused left nothing");
    let back = fs.private_dir(root).unwrap();
    let second = put(b"two!", Over::This(first.ino), Some((back, b"kept"))).unwrap();
    assert_eq!(fs.lookup(&me, back, b"kept").unwrap().ino, first.ino);
    let third = put(b"", Over::Any, None).unwrap();
    assert_ne!(second.ino, third.ino);
    assert_eq!((third.size_bytes, objects()), (0, 1), "only the kept one has bytes");
    assert_eq!(fs.lookup(&me, root, b"n").unwrap().ino, third.ino);
}

/// Threads write files that have no name yet, and name them: each finds its own, whatever the others do.
pub fn unnamed_in_threads() {
    let place = TestDir::new();
    let (_store, fs, _) = place.tree();
    let (me, root) = (root_user(), fs.root());
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let (fs, me) = (&fs, &me);
            scope.spawn(move || {
                for turn in 0..200u32 {
                    let file = fs.open_unnamed(me, root, READ_WRITE, 0o600).unwrap();
                    let name = format!("{thread}-{}", turn % 20);
                    file.write_at(name.as_bytes(), 0).unwrap_or_else(|error| panic!("{name}: {error}"));
                    let to = (root, name.as_bytes());
                    let attr = fs.place(me, &file, to, &[(b"user.k", b"v")], Over::Any, None).unwrap();
                    assert_eq!(attr.size_bytes, name.len() as u64);
                    drop(file);
                    assert_eq!(fs.xattr(me, attr.ino, b"user.k").unwrap(), b"v");
                }
            });
        }
    });
}

pub fn times() {
    let place = TestDir::new();
    let (store, fs, clock) = place.tree();
    let (me, root) = (root_user(), fs.root());
    clock.set(100);
    let (file, attr, _) = fs.open_at(&me, root, b"a", CREATE, 0o600).unwrap();
    assert_eq!((attr.born.s, attr.modified.s, fs.attr(root).unwrap().modified.s), (100, 100, 100));
    clock.set(200);
    file.write_at(b"x", 0).unwrap();
    clock.set(300);
    file.write_at(b"y", 0).unwrap();
    assert_eq!((file.attr().unwrap().modified.s, fs.attr(file.ino()).unwrap().changed.s), (300, 300));
    let past = SetAttr { modified: Some(SetTime::To(Time { s: -7, ns: 1 })), ..SetAttr::default() };
    clock.set(400);
    let attr = file.set_attr(&me, &past).unwrap();
    assert_eq!((attr.modified, attr.changed.s), (Time { s: -7, ns: 1 }, 400));
    file.close().unwrap();
    assert_eq!(fs.lookup(&me, root, b"a").unwrap().modified.s, -7);
    clock.set(500);
    fs.set_attr(&me, root, &past).unwrap();
    assert_eq!((fs.attr(root).unwrap().modified.s, fs.attr(root).unwrap().changed.s), (-7, 500));
    clock.set(600);
    fs.set_attr(&me, root, &SetAttr { mode: Some(0o700), ..SetAttr::default() }).unwrap();
    assert_eq!((fs.attr(root).unwrap().modified.s, fs.attr(root).unwrap().changed.s), (-7, 600));
    clock.set(700);
    fs.unlink(&me, root, b"a").unwrap();
    assert_eq!((fs.attr(root).unwrap().modified.s, fs.attr(root).unwrap().changed.s), (700, 700));
    // Access times by the rules of `relatime`: the first read after a change, then once a day.
    let keeps = Options { keeps_access_times: true, ..one_tree() };
    let fs = FileSystem::with_clock(&store, keeps, clock.clone()).unwrap();
    let (file, _, _) = fs.open_at(&me, root, b"b", CREATE, 0o600).unwrap();
    clock.set(800);
    file.write_at(b"x", 0).unwrap();
    for (now, wanted) in [(900, 900), (1000, 900), (900 + 24 * 3600, 900 + 24 * 3600)] {
        clock.set(now);
        file.read_at(&mut [0], 0).unwrap();
        assert_eq!(file.attr().unwrap().accessed.s, wanted);
    }
    file.close().unwrap();
    assert_eq!(fs.lookup(&me, root, b"b").unwrap().accessed.s, 900 + 24 * 3600);
}

pub fn xattrs() {
    let place = TestDir::new();
    let (_store, fs, _) = place.tree();
    let (me, root) = (root_user(), fs.root());
    let file = fs.make(&me, root, b"f", &what(Kind::File, 0o644)).unwrap().ino;
    for ino in [file, root] {
        assert_eq!(errno(fs.xattr(&me, ino, b"user.a")), libc::ENODATA);
        assert_eq!(errno(fs.set_xattr(&me, ino, b"user.a", b"1", SetXattr::Replace)), libc::ENODATA);
        fs.set_xattr(&me, ino, b"user.a", b"1", SetXattr::New).unwrap();
        assert_eq!(errno(fs.set_xattr(&me, ino, b"user.a", b"2", SetXattr::New)), libc::EEXIST);
        fs.set_xattr(&me, ino, b"trusted.b", b"", SetXattr::Any).unwrap();
        assert_eq!(fs.xattrs(&me, ino).unwrap(), [b"trusted.b".to_vec(), b"user.a".to_vec()]);
        let other = user(5, 5, &[]);
        assert_eq!(fs.xattrs(&other, ino).unwrap(), [b"user.a".to_vec()]);
        assert_eq!(fs.xattr(&other, ino, b"user.a").unwrap(), b"1");
        assert_eq!(errno(fs.xattr(&other, ino, b"trusted.b")), libc::ENODATA);
        assert_eq!(errno(fs.set_xattr(&other, ino, b"user.a", b"", SetXattr::Any)), libc::EACCES);
        assert_eq!(errno(fs.set_xattr(&me, ino, b"system.posix_acl_access", b"", SetXattr::Any)), libc::EOPNOTSUPP);
        fs.remove_xattr(&me, ino, b"user.a").unwrap();
        assert_eq!(errno(fs.remove_xattr(&me, ino, b"user.a")), libc::ENODATA);
    }
    assert_eq!(errno(fs.set_xattr(&me, file, b"user.a", &vec![0; 65_537], SetXattr::Any)), libc::E2BIG);
    assert_eq!(fs.xattr(&me, root, b"user.cenote.consistency").unwrap(), b"strict");
    fs.rename(&me, (root, b"f"), (root, b"g"), Rename::Replace).unwrap();
    assert_eq!(fs.xattr(&me, file, b"trusted.b").unwrap(), b"");
    fs.unlink(&me, root, b"g").unwrap();
}

pub fn ranges() {
    let place = TestDir::new();
    let (_store, fs, _) = place.tree();
    let me = root_user();
    let (file, _, _) = fs.open_at(&me, fs.root(), b"a", CREATE, 0o600).unwrap();
    assert_eq!(errno(file.next_data(0)), libc::ENXIO);
    let block = vec![7; 4096];
    file.write_at(&block, 8192).unwrap();
    file.set_attr(&me, &SetAttr { size_bytes: Some(20_000), ..SetAttr::default() }).unwrap();
    assert_eq!((file.next_data(0).unwrap(), file.next_hole(0).unwrap()), (8192, 0));
    assert_eq!((file.next_data(9000).unwrap(), file.next_hole(9000).unwrap()), (9000, 12_288));
    assert_eq!(errno(file.next_data(12_288)), libc::ENXIO);
    assert_eq!(file.next_hole(19_999).unwrap(), 19_999);
    assert_eq!(errno(file.next_hole(20_000)), libc::ENXIO);
    file.allocate(Allocate::Collapse, 4096, 4096).unwrap();
    assert_eq!((file.next_data(0).unwrap(), file.attr().unwrap().size_bytes), (4096, 15_904));
    file.allocate(Allocate::Insert, 0, 8192).unwrap();
    assert_eq!((file.next_data(0).unwrap(), file.attr().unwrap().size_bytes), (12_288, 24_096));
    file.allocate(Allocate::Punch, 12_288, 100).unwrap();
    let mut buf = [1; 101];
    file.read_at(&mut buf, 12_288).unwrap();
    assert_eq!((buf[99], buf[100]), (0, 7));
    file.allocate(Allocate::Zero { keep_size: false }, 24_000, 200).unwrap();
    assert_eq!(file.attr().unwrap().size_bytes, 24_200);
    file.allocate(Allocate::Extend, 24_000, 1000).unwrap();
    assert_eq!(file.attr().unwrap().size_bytes, 25_000);
    let (other, _, _) = fs.open_at(&me, fs.root(), b"b", CREATE, 0o600).unwrap();
    assert_eq!(other.copy_from(&file, 12_288, 5, 1 << 40).unwrap(), 25_000 - 12_288);
    other.read_at(&mut buf, 5).unwrap();
    assert_eq!((buf[99], buf[100], other.attr().unwrap().size_bytes), (0, 7, 25_000 - 12_288 + 5));
    assert_eq!(errno(file.copy_from(&file, 0, 10, 100)), libc::EINVAL);
}

pub fn synced_in_memory() {
    let place = TestDir::new();
    let store = place.make_of(Mode::InProcess, vec![TestDir::memory()]);
    let fs = FileSystem::new(&store, one_tree()).unwrap();
    let (file, ..) = fs.open_at(&root_user(), fs.root(), b"a", CREATE, 0o644).unwrap();
    file.write_at(b"bytes", 0).unwrap();
    assert_eq!(store.flush().unwrap_err().kind(), ErrorKind::Full, "the store itself says that nothing lasts");
    file.sync(false).unwrap();
    fs.sync_dir(fs.root()).unwrap();
}
