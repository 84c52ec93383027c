//! Stores that are removed during their sessions, daemons that are killed while they start, and daemons that leave.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cenote::{ContainerSpec, ErrorKind, Mode, OpenOptions, Store};
use cenote_device::StoreLock;
use cenote_host::process::started_of;

use crate::tools::{TestDir, daemon_pid, daemon_pid_now, signal};

/// Time limit for the report of a removed store to a session.
const SOON: Duration = Duration::from_millis(1500);

/// Returns the first error of a repeated operation, which must come soon.
fn first_error(what: &str, mut operation: impl FnMut() -> cenote::Result<()>) -> cenote::Error {
    let begin = Instant::now();
    loop {
        if let Err(error) = operation() {
            return error;
        }
        assert!(begin.elapsed() < SOON, "{what} goes on in a store that is gone");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn removed_in_process() {
    for only_files in [false, true] {
        let place = TestDir::new();
        let store = place.make(Mode::InProcess);
        let object = store.create_container("c", &ContainerSpec::default()).unwrap().create_object(None, None).unwrap();
        object.write_at(0, &[1; 100]).unwrap();
        object.read_at(0, &mut [0; 100]).unwrap();
        if only_files {
            for file in std::fs::read_dir(place.dir()).unwrap() {
                std::fs::remove_file(file.unwrap().path()).unwrap();
            }
        } else {
            std::fs::remove_dir_all(place.dir()).unwrap();
        }
        let error = first_error("writing", || object.write_at(0, &[2; 100]).map(drop));
        assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
        let error = first_error("reading", || object.read_at(0, &mut [0; 100]).map(drop));
        assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
        assert!(store.flush().is_err());
        let begin = Instant::now();
        drop((object, store));
        assert!(begin.elapsed() < Duration::from_secs(5), "leaving takes {:?}", begin.elapsed());
    }
}

/// Newcomers are told what happened, and not that the store is busy. Whoever works with it goes on.
pub fn memory_removed_under_its_daemon() {
    let place = TestDir::new();
    let store = place.make(Mode::Daemon);
    let object = store.create_container("c", &ContainerSpec::default()).unwrap().create_object(None, None).unwrap();
    object.write_at(0, b"mine").unwrap();
    let memory = cenote_host::home::shm_base().join(format!("cenote-{}", store.id()));
    std::fs::remove_dir_all(&memory).unwrap();
    let options = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
    let begin = Instant::now();
    let error = Store::open_with(place.dir(), &options).unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("shared memory was deleted"), "{error}");
    let mut bytes = [0; 4];
    object.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"mine");
    signal(daemon_pid(&place.dir()), libc::SIGKILL);
}

pub fn stays_with_its_store() {
    let place = TestDir::new();
    let store = place.make(Mode::Daemon);
    let object = store.create_container("c", &ContainerSpec::default()).unwrap().create_object(None, None).unwrap();
    let index = object.container().create_index(None).unwrap();
    index.put(&[(b"key", b"value")]).unwrap();
    object.write_at(0, b"mine").unwrap();
    // Cached content, which needs no message.
    object.read_at(0, &mut [0; 4]).unwrap();
    index.get_one(b"key").unwrap();
    signal(daemon_pid(&place.dir()), libc::SIGKILL);
    std::fs::remove_dir_all(place.dir()).unwrap();
    std::fs::remove_dir_all(place.dir().with_file_name("disk")).unwrap();
    let begin = Instant::now();
    let error = object.write_at(0, b"lost").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    let read = first_error("reading", || object.read_at(0, &mut [0; 4]).map(drop));
    let got = first_error("looking up", || index.get_one(b"key").map(drop));
    let size = first_error("asking for the size", || object.size().map(drop));
    assert!([read, got, size].iter().all(|error| error.kind() == ErrorKind::Disconnected));
    // Another store in the same place, served or not, does not pass for the opened one.
    for served in [false, true] {
        let other = place.make(if served { Mode::Daemon } else { Mode::InProcess });
        let spec = ContainerSpec::default();
        if !served {
            other.create_container("c", &spec).unwrap();
            other.close().unwrap();
        }
        std::thread::sleep(Duration::from_secs(1)); // attempts are rare
        let error = store.create_container("d", &spec).map(drop).unwrap_err();
        assert!(error.kind() == ErrorKind::Disconnected && error.to_string().contains("another store"), "{error}");
        assert!(object.write_at(0, b"elsewhere").is_err());
        if served {
            assert!(other.container("c").is_ok() && other.container("d").is_err(), "served: {served}");
        }
    }
}

/// A program that replaces the daemon's until its drop.
struct Program {
    was: std::ffi::OsString,
    calls: PathBuf,
}

impl Program {
    /// A script; `$CALLS` in it is a file to which it appends a line each time, `$CENOTE` the real program.
    fn new(place: &Path, script: &str) -> Self {
        let was = std::env::var_os("CENOTE_BIN").expect("set by main");
        let (path, calls) = (place.with_file_name("program"), place.with_file_name("calls"));
        std::fs::write(&calls, "").unwrap();
        let head =
            format!("#!/bin/sh\nCENOTE='{}'\nCALLS='{}'\necho x >> \"$CALLS\"\n", was.display(), calls.display());
        std::fs::write(&path, head + script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        // SAFETY: no other thread of this program reads the environment now.
        unsafe { std::env::set_var("CENOTE_BIN", &path) };
        Self { was, calls }
    }
    fn calls(&self) -> usize {
        std::fs::read_to_string(&self.calls).unwrap().lines().count()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { std::env::set_var("CENOTE_BIN", &self.was) };
    }
}

pub fn attempts_back_off() {
    let place = TestDir::new();
    let store = place.make(Mode::Daemon);
    let container = store.create_container("c", &ContainerSpec::default()).unwrap();
    let program = Program::new(&place.dir(), "exit 7\n");
    signal(daemon_pid(&place.dir()), libc::SIGKILL);
    let (begin, mut failed) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(3) {
        failed += usize::from(container.create_object(None, None).is_err());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(failed > 20, "calls wait for what cannot come: {failed} in 3 s");
    assert!((1..=5).contains(&program.calls()), "{} daemons were started in 3 s", program.calls());
    drop(program);
    std::thread::sleep(Duration::from_secs(1));
    container.create_object(None, None).unwrap();
}

pub fn killed_starting() {
    let place = TestDir::new();
    let store = place.make(Mode::Daemon);
    let object = store.create_container("c", &ContainerSpec::default()).unwrap().create_object(None, None).unwrap();
    let script = "if [ $(wc -l < \"$CALLS\") -le 4 ]; then kill -9 $$; fi\nexec \"$CENOTE\" \"$@\"\n";
    let program = Program::new(&place.dir(), script);
    signal(daemon_pid(&place.dir()), libc::SIGKILL);
    object.write_at(0, b"still there").unwrap();
    assert_eq!(program.calls(), 5);
}

/// Three of four daemons are killed within 60 ms of their start: before they have the store, while they recover it,
/// while they serve. No call fails. `CENOTE_KILL_ROUNDS`: number of further kills (preset 8).
pub fn killed_soon_after_starting() {
    let rounds: u64 = std::env::var("CENOTE_KILL_ROUNDS").map_or(8, |rounds| rounds.parse().unwrap());
    let place = TestDir::new();
    let store = place.make(Mode::Daemon);
    let object = store.create_container("c", &ContainerSpec::default()).unwrap().create_object(None, None).unwrap();
    let script = "n=$(wc -l < \"$CALLS\"); if [ $((n % 4)) -ne 0 ]; then me=$$\n\
        (sleep 0.0$(printf %02d $((n * 7 % 60))); kill -9 $me) > /dev/null 2>&1 &\nfi\nexec \"$CENOTE\" \"$@\"\n";
    let program = Program::new(&place.dir(), script);
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        if let Some(pid) = daemon_pid_now(&place.dir()) {
            signal(pid, libc::SIGKILL);
        }
        let begin = Instant::now();
        object.write_at(round * 8, &round.to_le_bytes()).unwrap();
        longest = longest.max(begin.elapsed());
    }
    for round in 0..rounds {
        let mut bytes = [0; 8];
        assert_eq!(object.read_at(round * 8, &mut bytes).unwrap(), 8);
        assert_eq!(u64::from_le_bytes(bytes), round);
    }
    println!("{rounds} rounds, {} daemons started, longest call {} ms", program.calls(), longest.as_millis());
}

pub fn stopped_has_let_go() {
    let place = TestDir::new();
    drop(place.make(Mode::InProcess));
    for _ in 0..5 {
        let store = place.open(Mode::Daemon);
        let pid = daemon_pid(&place.dir());
        store.close().unwrap();
        assert!(Store::stop_daemon(place.dir()).unwrap());
        assert_eq!(started_of(pid), None, "the daemon is still there");
        assert!(StoreLock::acquire(&place.dir()).unwrap().is_some(), "its lock is held");
    }
}

pub fn holder_is_named() {
    let place = TestDir::new();
    let store = place.make(Mode::InProcess);
    let options = OpenOptions { mode: Mode::InProcess, ..OpenOptions::default() };
    let error = Store::open_with(place.dir(), &options).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.to_string().contains(&format!("process {} (", std::process::id())), "{error}");
    store.close().unwrap();
}
