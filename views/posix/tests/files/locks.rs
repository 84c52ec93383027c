//! Advisory locks: among sessions, among processes, and of killed processes.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use cenote::{Mode, Store};
use cenote_posix::{File, FileSystem, LockKind, LockOwner, LockRange, LockWait, OpenFlags};

use crate::test_dir::{CREATE, READ_WRITE, TestDir, client, errno, root_user};

const ALL: LockRange = LockRange { start: 0, len: 0 };

fn file(fs: &FileSystem, flags: OpenFlags) -> File {
    fs.open_at(&root_user(), fs.root(), b"f", flags, 0o600).unwrap().0
}

fn range(start: u64, len: u64) -> LockRange {
    LockRange { start, len }
}

/// Counts the meeting files.
fn left(store: &Store) -> usize {
    std::fs::read_dir(store.meeting_dir("locks").unwrap()).unwrap().count()
}

fn try_lock(file: &File, owner: LockOwner, kind: LockKind, range: LockRange) -> Result<(), i32> {
    file.lock(owner, Some(kind), range, LockWait::No).map_err(|error| error.errno)
}

pub fn owners() {
    let place = TestDir::new();
    drop(place.make(Mode::InProcess));
    let ((store, a), (_, b)) = (client(&place.dir()), client(&place.dir()));
    let (one, other) = (file(&a, CREATE), file(&b, READ_WRITE));
    let (mine, exclusive, shared) = (LockOwner::File, LockKind::Exclusive, LockKind::Shared);
    try_lock(&one, mine, exclusive, range(10, 10)).unwrap();
    assert_eq!(try_lock(&other, mine, shared, range(19, 1)), Err(libc::EAGAIN));
    try_lock(&other, mine, shared, range(20, 0)).unwrap();
    let held = one.lock_in_the_way(mine, exclusive, ALL).unwrap().unwrap();
    assert_eq!((held.kind, held.range, held.pid), (shared, range(20, 0), None));
    // Numbered owners of one file conflict; their locks end when they close it.
    let numbers = [LockOwner::Number(7), LockOwner::Number(8)];
    try_lock(&one, numbers[0], exclusive, range(0, 5)).unwrap();
    assert_eq!(try_lock(&one, numbers[1], exclusive, range(4, 1)), Err(libc::EAGAIN));
    one.closed_by(numbers[1]);
    assert_eq!(try_lock(&one, numbers[1], exclusive, range(4, 1)), Err(libc::EAGAIN));
    one.closed_by(numbers[0]);
    try_lock(&one, numbers[1], exclusive, range(4, 1)).unwrap();
    // Whole-file locks and range locks ignore each other.
    other.flock(mine, Some(exclusive), LockWait::No).unwrap();
    assert_eq!(errno(one.flock(mine, Some(shared), LockWait::No)), libc::EAGAIN);
    assert_eq!(errno(one.flock(numbers[0], Some(shared), LockWait::While(&|| false))), libc::EINTR);
    // An exclusive lock needs a file open for writing.
    let reader = file(&a, OpenFlags { write: false, ..READ_WRITE });
    assert_eq!(try_lock(&reader, mine, exclusive, ALL), Err(libc::EBADF));
    // A thread waits until the other owner unlocks.
    let waits = std::thread::spawn(move || one.flock(mine, Some(exclusive), LockWait::Yes).map(|()| one));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!waits.is_finished());
    drop(other);
    let one = waits.join().unwrap().unwrap();
    assert_eq!(left(&store), 1);
    one.close().unwrap();
    reader.close().unwrap();
    assert_eq!(left(&store), 0);
}

/// Entry point of a child (`DIR KIND`): locks, reports, and waits to be ended.
pub fn child(args: &[String]) {
    let dir: &Path = args[0].as_ref();
    let (_store, fs) = client(dir);
    let file = file(&fs, READ_WRITE);
    match args[1].as_str() {
        "process" => file.lock(LockOwner::Process, Some(LockKind::Exclusive), range(5, 5), LockWait::Yes).unwrap(),
        _ => file.flock(LockOwner::File, Some(LockKind::Exclusive), LockWait::Yes).unwrap(),
    }
    std::fs::write(dir.join("../locked"), b"").unwrap();
    std::thread::sleep(Duration::from_secs(30));
}

fn start(place: &TestDir, kind: &str) -> Child {
    let said = place.dir().join("../locked");
    let _ = std::fs::remove_file(&said);
    let mut command = Command::new(std::env::current_exe().unwrap());
    let child = command.arg("child").arg("lock").arg(place.dir()).arg(kind).spawn().unwrap();
    let begun = Instant::now();
    while !said.exists() {
        assert!(begun.elapsed().as_secs() < 20);
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

pub fn killed() {
    let place = TestDir::new();
    drop(place.make(Mode::InProcess));
    let (store, fs) = client(&place.dir());
    let one = file(&fs, CREATE);
    for kind in ["process", "file"] {
        let mut child = start(&place, kind);
        if kind == "process" {
            assert_eq!(try_lock(&one, LockOwner::Process, LockKind::Shared, ALL), Err(libc::EAGAIN));
            try_lock(&one, LockOwner::Process, LockKind::Exclusive, range(0, 5)).unwrap();
            let held = one.lock_in_the_way(LockOwner::Process, LockKind::Shared, ALL).unwrap().unwrap();
            assert_eq!((held.range, held.pid), (range(5, 5), Some(child.id())));
        } else {
            assert_eq!(errno(one.flock(LockOwner::File, Some(LockKind::Shared), LockWait::No)), libc::EAGAIN);
        }
        child.kill().unwrap();
        let begun = Instant::now();
        let waits = || begun.elapsed().as_secs() < 10;
        one.flock(LockOwner::File, Some(LockKind::Exclusive), LockWait::While(&waits)).unwrap();
        one.lock(LockOwner::Process, Some(LockKind::Exclusive), ALL, LockWait::While(&waits)).unwrap();
        child.wait().unwrap();
        one.flock(LockOwner::File, None, LockWait::No).unwrap();
        one.lock(LockOwner::Process, None, ALL, LockWait::No).unwrap();
    }
    // Closing any descriptor releases a process's locks, as POSIX requires.
    let other = file(&fs, READ_WRITE);
    try_lock(&one, LockOwner::Process, LockKind::Exclusive, ALL).unwrap();
    assert_eq!(try_lock(&other, LockOwner::File, LockKind::Shared, ALL), Err(libc::EAGAIN));
    assert_eq!(try_lock(&one, LockOwner::Process, LockKind::Exclusive, ALL), Ok(())); // still there
    other.closed_by(LockOwner::Process);
    try_lock(&other, LockOwner::File, LockKind::Shared, ALL).unwrap();
    drop((one, other));
    assert_eq!(left(&store), 0);
}
