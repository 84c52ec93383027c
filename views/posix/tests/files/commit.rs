//! `commit` directories: what others see, and when.

use cenote::Mode;
use cenote_posix::{FileSystem, Kind, Rename, SetXattr};

use crate::test_dir::{CREATE, READ_WRITE, TestDir, client, errno, names, root_user, what};

fn two(place: &TestDir) -> [FileSystem; 2] {
    drop(place.make(Mode::InProcess));
    let both = [client(&place.dir()).1, client(&place.dir()).1];
    let root = both[0].root();
    both[0].set_xattr(&root_user(), root, b"user.cenote.consistency", b"commit", SetXattr::Any).unwrap();
    both
}

pub fn seen_when_published() {
    let place = TestDir::new();
    let [a, b] = two(&place);
    let (me, root) = (root_user(), a.root());
    let (file, attr, _) = a.open_at(&me, root, b"f", CREATE, 0o600).unwrap();
    assert_eq!((names(&a, root), a.attr(attr.ino).unwrap().ino), (vec!["f".to_owned()], attr.ino));
    file.write_at(b"x", 0).unwrap(); // the first byte publishes the name
    assert_eq!(b.lookup(&me, root, b"f").unwrap().size_bytes, 1);
    a.open_at(&me, root, b"g", CREATE, 0o600).unwrap().0.close().unwrap();
    a.sync_dir(root).unwrap();
    assert_eq!(names(&b, root), ["f", "g"]);
    a.unlink(&me, root, b"g").unwrap();
    assert_eq!(names(&a, root), ["f"]);
    assert_eq!(errno(a.lookup(&me, root, b"g")), libc::ENOENT);
    a.sync_dir(root).unwrap();
    assert_eq!(names(&b, root), ["f"]);
    // Without any further call, the name is visible after some rounds of the keeper.
    a.open_at(&me, root, b"h", CREATE, 0o600).unwrap();
    let begun = std::time::Instant::now();
    while b.lookup(&me, root, b"h").is_err() {
        assert!(begun.elapsed().as_secs() < 5);
    }
    assert_eq!(a.check(root).unwrap(), [""; 0]);
}

pub fn one_file_made_twice() {
    let place = TestDir::new();
    let [a, b] = two(&place);
    let (me, root) = (root_user(), a.root());
    for round in 0..20 {
        let name = format!("shared{round}");
        let one = a.open_at(&me, root, name.as_bytes(), CREATE, 0o600).unwrap().0;
        let other = b.open_at(&me, root, name.as_bytes(), CREATE, 0o600).unwrap().0;
        let write = |first: bool| if first { one.write_at(b"1", 0) } else { other.write_at(b"2", 1) };
        write(round % 2 == 0).unwrap();
        write(round % 2 == 1).unwrap();
        let found = a.lookup(&me, root, name.as_bytes()).unwrap();
        assert_eq!((one.ino(), other.ino(), found.size_bytes), (found.ino, found.ino, 2));
        one.close().unwrap();
        other.close().unwrap();
        let mut buf = [0; 3];
        let file = b.open(&me, found.ino, READ_WRITE).unwrap();
        assert_eq!((file.read_at(&mut buf, 0).unwrap(), &buf[..2]), (2, &b"12"[..]));
    }
    a.sync_dir(root).unwrap();
    b.sync_dir(root).unwrap();
    assert_eq!(a.check(root).unwrap(), [""; 0]);
}

/// Entries that another process removed and has not published do not block.
pub fn emptied_by_another() {
    let place = TestDir::new();
    let [a, b] = two(&place);
    let (me, root) = (root_user(), a.root());
    let dir = |name: &[u8]| a.make(&me, root, name, &what(Kind::Directory, 0o755)).unwrap().ino;
    for round in 0..10 {
        let (full, other) = (dir(b"full"), dir(b"other"));
        for n in 0..3 {
            a.open_at(&me, full, format!("f{n}").as_bytes(), CREATE, 0o600).unwrap().0.close().unwrap();
        }
        a.sync_dir(full).unwrap();
        for n in 0..3 {
            b.unlink(&me, full, format!("f{n}").as_bytes()).unwrap();
        }
        if round % 2 == 0 {
            a.rmdir(&me, root, b"full").unwrap();
            a.rmdir(&me, root, b"other").unwrap();
        } else {
            a.rename(&me, (root, b"other"), (root, b"full"), Rename::Replace).unwrap();
            assert_eq!(a.lookup(&me, root, b"full").unwrap().ino, other);
            a.rmdir(&me, root, b"full").unwrap();
        }
    }
    let full = dir(b"full");
    a.open_at(&me, full, b"mine", CREATE, 0o600).unwrap().0.close().unwrap();
    // Nobody else has claims there: the answer comes at once.
    let quickest = (0..10).map(|_| {
        let begun = std::time::Instant::now();
        assert_eq!(errno(a.rmdir(&me, root, b"full")), libc::ENOTEMPTY);
        begun.elapsed()
    });
    assert!(quickest.min().unwrap().as_millis() < 100);
    // Waiting for a process that no longer uses the directory has a limit.
    b.open_at(&me, full, b"mine", CREATE, 0o600).unwrap().0.close().unwrap();
    assert_eq!(errno(a.rmdir(&me, root, b"full")), libc::ENOTEMPTY);
    assert_eq!(a.check(root).unwrap(), [""; 0]);
}

/// Names are created and removed while earlier ones are being published.
pub fn gathered_while_published() {
    let place = TestDir::new();
    let [a, b] = two(&place);
    let (me, root) = (root_user(), a.root());
    let name = |n: usize| format!("f{n:05}");
    let mut there = std::collections::BTreeSet::new();
    for n in 0..6000 {
        a.open_at(&me, root, name(n).as_bytes(), CREATE, 0o600).unwrap().0.close().unwrap();
        there.insert(name(n));
        // One that was published, one that may be in progress, and one that nobody else knows.
        for before in [3000, 900, 1] {
            if n % 7 == 0 && n >= before && there.remove(&name(n - before)) {
                a.unlink(&me, root, name(n - before).as_bytes()).unwrap();
                assert_eq!(errno(a.lookup(&me, root, name(n - before).as_bytes())), libc::ENOENT);
            }
        }
        assert_eq!(a.lookup(&me, root, name(n).as_bytes()).unwrap().size_bytes, 0);
    }
    let there: Vec<String> = there.into_iter().collect();
    assert_eq!(names(&a, root), there);
    a.sync_dir(root).unwrap();
    assert_eq!(names(&b, root), there);
    assert_eq!(a.check(root).unwrap(), [""; 0]);
}
