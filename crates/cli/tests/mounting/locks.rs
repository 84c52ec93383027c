//! Advisory locks between all programs on all mounts of a machine.
#![allow(unsafe_code, reason = "record locks have no way in std")]

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::mounted::{Mounted, checked, errno, until};

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// A range for `fcntl`.
fn range(kind: libc::c_int, start: i64, len: i64) -> libc::flock {
    // SAFETY: all fields are numbers.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    (range.l_type, range.l_whence, range.l_start, range.l_len) = (kind as i16, libc::SEEK_SET as i16, start, len);
    range
}

fn lock(file: &File, command: libc::c_int, kind: libc::c_int, start: i64, len: i64) -> std::io::Result<i64> {
    let range = range(kind, start, len);
    // SAFETY: the call reads the structure.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const range) }.into())
}

fn two_mounts() -> Option<(Mounted, std::path::PathBuf)> {
    let mut mounted = Mounted::new()?;
    let second = mounted.place.path("second");
    mounted.mount(&second, &["--allow-other"]);
    Some((mounted, second.join("runs/locked")))
}

#[test]
fn whole_files_and_ranges_are_locked_between_programs() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("locked");
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    let (one, two) = (open(), open());
    one.lock().unwrap();
    assert!(matches!(two.try_lock(), Err(std::fs::TryLockError::WouldBlock)));
    // By another process, which waits for the lock.
    let waiting = Command::new("flock").arg(&path).args(["echo", "mine"]).stdout(std::process::Stdio::piped()).spawn();
    one.unlock().unwrap();
    let said = waiting.unwrap().wait_with_output().unwrap();
    assert_eq!(said.stdout, b"mine\n");

    // Locks of open files (OFD), so that one process can play both sides.
    let lock = |file: &std::fs::File, kind: libc::c_int, start: i64, len: i64| {
        // SAFETY: all fields are numbers.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        (range.l_type, range.l_whence, range.l_start, range.l_len) = (kind as i16, libc::SEEK_SET as i16, start, len);
        // SAFETY: the call reads the structure.
        checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) }.into())
    };
    lock(&one, libc::F_WRLCK, 0, 100).unwrap();
    assert_eq!(errno(lock(&two, libc::F_RDLCK, 99, 1)), libc::EAGAIN);
    lock(&two, libc::F_WRLCK, 100, 0).unwrap();
    // No other lock of this file reports the unlock; the kernel closes the file a moment later.
    drop(one);
    until(Duration::from_secs(5), || lock(&two, libc::F_WRLCK, 0, 100).is_ok());
}

#[test]
fn locks_hold_between_mounts() {
    let Some((mounted, there)) = two_mounts() else { return };
    let (one, two) = (open(&mounted.path("locked")), open(&there));
    one.lock().unwrap();
    assert!(matches!(two.try_lock(), Err(fs::TryLockError::WouldBlock)));
    // Range locks are independent of those.
    lock(&two, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).unwrap();
    assert_eq!(errno(lock(&one, libc::F_OFD_SETLK, libc::F_RDLCK, 5, 1)), libc::EAGAIN);
    lock(&two, libc::F_OFD_SETLK, libc::F_UNLCK, 0, 10).unwrap();
    lock(&one, libc::F_OFD_SETLK, libc::F_RDLCK, 5, 1).unwrap();
    drop(one);
    until(Duration::from_secs(5), || two.try_lock().is_ok());

    // Locks of a process: reported with its pid, and released with any descriptor of the file.
    let (other, path) = (open(&there), mounted.path("locked"));
    lock(&other, libc::F_SETLK, libc::F_WRLCK, 100, 50).unwrap_err();
    lock(&two, libc::F_OFD_SETLK, libc::F_UNLCK, 0, 0).unwrap();
    lock(&other, libc::F_SETLK, libc::F_WRLCK, 100, 50).unwrap();
    let ask = |path: &Path| {
        let script = "import fcntl,struct,sys; f=open(sys.argv[1],'r+b'); \
            q=struct.pack('hhqqi4x',fcntl.F_WRLCK,0,0,0,0); print(*struct.unpack('hhqqi4x',fcntl.fcntl(f,fcntl.F_GETLK,q)))";
        let said = Command::new("python3").args(["-c", script]).arg(path).output().unwrap();
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(ask(&there), format!("1 0 100 50 {}", std::process::id()));
    assert!(ask(&path).starts_with("1 0 100 50 "));
    drop(open(&there));
    assert!(ask(&path).starts_with("2 0 "), "{}", ask(&path));
}

#[test]
fn who_waits_for_a_lock_is_ended_by_signals_and_by_death() {
    extern "C" fn nothing(_: libc::c_int) {}
    let Some((mounted, there)) = two_mounts() else { return };
    let (one, two) = (open(&mounted.path("locked")), open(&there));
    one.lock().unwrap();
    // SAFETY: the handler does nothing, and waiting calls are not restarted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
    }
    let (tell, told) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || {
        // SAFETY: the calls access no memory.
        unsafe {
            tell.send(libc::pthread_self()).unwrap();
            checked(libc::flock(two.as_raw_fd(), libc::LOCK_EX).into())
        }
    });
    let thread = told.recv().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(!waiting.is_finished());
    // SAFETY: the thread is not joined yet.
    unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
    assert_eq!(errno(waiting.join().unwrap()), libc::EINTR);

    let mut killed = Command::new("flock").arg(&there).args(["echo", "never"]).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    // A dead waiter does not get the lock, and a dead owner releases it.
    drop(one);
    let mut has = Command::new("flock");
    let mut has = has.arg(mounted.path("locked")).args(["sleep", "60"]).process_group(0).spawn().unwrap();
    let three = open(&there);
    until(Duration::from_secs(5), || three.try_lock().inspect(|()| three.unlock().unwrap()).is_err());
    // Including the child that it may have just started, which has the descriptor as well.
    let group = rustix::process::Pid::from_raw(has.id().cast_signed()).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    has.wait().unwrap();
    until(Duration::from_secs(5), || three.try_lock().is_ok());
}

/// More waiters than threads that read requests.
#[test]
fn very_many_wait_for_one_lock() {
    const WAITERS: usize = 100;
    let Some((mounted, there)) = two_mounts() else { return };
    fs::write(mounted.path("locked"), 0_u64.to_ne_bytes()).unwrap();
    let first = open(&there);
    first.lock().unwrap();
    std::thread::scope(|scope| {
        for waiter in 0..WAITERS {
            let path = if waiter % 4 == 0 { there.clone() } else { mounted.path("locked") };
            scope.spawn(move || {
                let (file, mut count) = (open(&path), [0; 8]);
                file.lock().unwrap();
                file.read_exact_at(&mut count, 0).unwrap();
                file.write_all_at(&(u64::from_ne_bytes(count) + 1).to_ne_bytes(), 0).unwrap();
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        // The mount still serves others.
        assert!(fs::metadata(mounted.path("locked")).is_ok());
        drop(first);
    });
    assert_eq!(fs::read(&there).unwrap(), (WAITERS as u64).to_ne_bytes());
}
