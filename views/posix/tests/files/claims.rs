//! Files that others may have open when they lose their last names.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cenote::Mode;
use cenote_posix::{FileSystem, New, Over, Rename};

use crate::test_dir::{CREATE, READ, READ_WRITE, TestDir, client, root_user};

/// More than one transaction deletes.
const FILES: usize = 600;

fn two(place: &TestDir) -> [FileSystem; 2] {
    drop(place.make(Mode::InProcess));
    [client(&place.dir()).1, client(&place.dir()).1]
}

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Another process has opened all of them once, and has one still open.
pub fn many_go_at_once() {
    let place = TestDir::new();
    let [a, b] = two(&place);
    let (me, root) = (root_user(), a.root());
    let name = |n: usize| format!("f{n}").into_bytes();
    for n in 0..FILES {
        let (file, attr, _) = a.open_at(&me, root, &name(n), CREATE, 0o600).unwrap();
        if n % 100 == 0 {
            file.write_at(b"bytes", 0).unwrap();
        }
        file.close().unwrap();
        b.open(&me, b.lookup(&me, root, &name(n)).unwrap().ino, READ).unwrap().close().unwrap();
        assert_eq!(attr.ino, a.lookup(&me, root, &name(n)).unwrap().ino);
    }
    let kept = b.open_at(&me, root, &name(100), READ, 0).unwrap().0;
    for n in 0..FILES {
        a.unlink(&me, root, &name(n)).unwrap();
    }
    until("all but one go", || a.orphans(root).unwrap() == 1);
    let mut bytes = [0; 8];
    assert_eq!((kept.read_at(&mut bytes, 0).unwrap(), &bytes[..5]), (5, &b"bytes"[..]));
    assert_eq!(kept.attr().unwrap().links, 0);
    kept.close().unwrap();
    until("the last one goes", || a.orphans(root).unwrap() == 0);
    assert_eq!(a.check(root).unwrap(), [""; 0]);
}

/// A process that no longer uses a directory stops being asked about its files, and is asked again when it comes back.
pub fn claims_are_given_up() {
    let place = TestDir::new();
    let [a, b] = two(&place);
    let (me, root) = (root_user(), a.root());
    let make = |name: &[u8]| {
        a.open_at(&me, root, name, CREATE, 0o600).unwrap().0.close().unwrap();
    };
    make(b"seen");
    b.open_at(&me, root, b"seen", READ, 0).unwrap().0.close().unwrap();
    until("a file goes at once", || {
        make(b"f");
        b.lookup(&me, root, b"f").unwrap();
        a.unlink(&me, root, b"f").unwrap();
        a.orphans(root).unwrap() == 0
    });
    for _ in 0..3 {
        make(b"f");
        let file = b.open_at(&me, root, b"f", READ_WRITE, 0).unwrap().0;
        a.unlink(&me, root, b"f").unwrap();
        file.write_at(b"x", 0).unwrap();
        std::thread::sleep(Duration::from_millis(120)); // rounds during which the file must stay
        assert_eq!((file.attr().unwrap().links, file.read_at(&mut [0; 2], 0).unwrap()), (0, 1));
    }
    until("nothing stays", || a.orphans(root).unwrap() == 0);
    assert_eq!(a.check(root).unwrap(), [""; 0]);
}

/// A file that gets a name while it is open behaves as if it had been opened by that name.
pub fn placed_while_open() {
    let place = TestDir::new();
    let [a, b] = two(&place);
    let (me, root) = (root_user(), a.root());
    let file = b.open_unnamed(&me, root, READ_WRITE, 0o600).unwrap();
    file.write_at(b"x", 0).unwrap();
    b.place(&me, &file, (root, b"f"), &[], Over::Nothing, None).unwrap();
    a.unlink(&me, root, b"f").unwrap();
    std::thread::sleep(Duration::from_millis(120));
    assert_eq!((file.attr().unwrap().links, file.read_at(&mut [0; 2], 0).unwrap()), (0, 1));
    drop(file);
    until("it goes", || a.orphans(root).unwrap() == 0);
    assert_eq!(a.check(root).unwrap(), [""; 0]);
}

/// Two processes that put a file, rename one, or name one over an existing one, do not fail because of each other.
pub fn put_over_one_another() {
    const ROUNDS: usize = 300;
    let place = TestDir::new();
    let both = two(&place);
    let root = both[0].root();
    let start = Barrier::new(2);
    let round = |fs: &FileSystem, who: usize, n: usize| -> cenote_posix::FsResult<()> {
        let me = root_user();
        let (name, own) = (format!("f{n}").into_bytes(), format!("own{who}").into_bytes());
        let file = match (n + who) % 3 {
            0 => fs.open_unnamed(&me, root, READ_WRITE, 0o600).map(Some),
            1 => fs.open_at(&me, root, &own, CREATE, 0o600).and_then(|(file, ..)| file.close()).map(|()| None),
            _ => Ok(None),
        };
        start.wait(); // whatever happens, since the other waits
        match (file?, (n + who) % 3) {
            (Some(file), _) => {
                fs.place(&me, &file, (root, &name), &[], Over::Any, None)?;
                file.close()
            }
            (None, 1) => fs.rename(&me, (root, &own), (root, &name), Rename::Replace),
            _ => {
                let new = New { bytes: b"put", mode: 0o600, describe: &mut |_| Vec::new() };
                fs.put(&me, (root, &name), new, Over::Any, None).map(drop)
            }
        }
    };
    let failed: Vec<String> = std::thread::scope(|scope| {
        let run = |who: usize| {
            let (fs, round, start) = (&both[who], &round, &start);
            move || {
                let mut failed = Vec::new();
                for n in 0..ROUNDS {
                    // Go on whatever happens: the other waits for this one in each round.
                    if let Err(error) = round(fs, who, n) {
                        failed.push(format!("{who} in round {n}: {error}"));
                    }
                    start.wait();
                }
                failed
            }
        };
        let racers = [0, 1].map(|who| scope.spawn(run(who)));
        racers.into_iter().flat_map(|racer| racer.join().unwrap()).collect()
    });
    assert_eq!(failed, [""; 0]);
    let me = root_user();
    for n in 0..ROUNDS {
        assert_eq!(both[n % 2].lookup(&me, root, format!("f{n}").as_bytes()).unwrap().links, 1);
    }
    until("who was put over goes", || both[0].orphans(root).unwrap() == 0);
    assert_eq!(both[0].check(root).unwrap(), [""; 0]);
}

/// A reader of the attributes of a file that is being deleted sees all of them, or that the file is gone.
pub fn attributes_go_with_their_file() {
    const ROUNDS: usize = 3000;
    let place = TestDir::new();
    let both = two(&place);
    let (me, root) = (root_user(), both[0].root());
    let put = || {
        let new = New { bytes: b"put", mode: 0o600, describe: &mut |_| vec![(b"user.k", b"v".to_vec())] };
        both[0].put(&me, (root, b"f"), new, Over::Any, None).unwrap()
    };
    let is_done = AtomicBool::new(false);
    put();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut seen, me) = (0, root_user());
            while !is_done.load(Ordering::Relaxed) {
                let attr = both[1].lookup(&me, root, b"f").unwrap();
                match both[1].xattr(&me, attr.ino, b"user.k") {
                    Ok(value) => assert_eq!(value, b"v"),
                    Err(error) => assert_eq!(error.errno, libc::ESTALE, "{error}"),
                }
                match both[1].xattrs(&me, attr.ino) {
                    Ok(names) => assert_eq!(names, [b"user.k"]),
                    Err(error) => assert_eq!(error.errno, libc::ESTALE, "{error}"),
                }
                seen += 1;
            }
            seen
        });
        for _ in 0..ROUNDS {
            put();
        }
        is_done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}
