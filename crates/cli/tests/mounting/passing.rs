//! `--passthrough`: the kernel reads and writes files' bytes itself, in shared page caches that all others see.
#![allow(unsafe_code, reason = "mappings have no way in std")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::mounted::{Mounted, errno, is_alive, kill, pattern, until};

const SOON: Duration = Duration::from_secs(15);

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn passing() -> Option<Mounted> {
    Mounted::with(&["--allow-other", "--passthrough"])
}

/// The same store through a second, ordinary mount.
fn and_beside() -> Option<(Mounted, PathBuf)> {
    let mut mounted = passing()?;
    let second = mounted.place.path("second");
    mounted.mount(&second, &["--allow-other"]);
    Some((mounted, second.join("runs")))
}

fn is_stopped(pid: u32) -> bool {
    let mut threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    threads.all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}

/// Does something while nobody serves the mount; returns whether it finished. The caller must close the files: the server is notified of
/// that.
fn is_done_without_server(mounted: &Mounted, doing: impl FnOnce() + Send + 'static) -> bool {
    let server = Mounted::server(&mounted.dir);
    kill(server, Signal::STOP);
    until(SOON, || is_stopped(server));
    let working = std::thread::spawn(doing);
    let begin = Instant::now();
    while !working.is_finished() && begin.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let is_done = working.is_finished();
    kill(server, Signal::CONT);
    working.join().unwrap();
    is_done
}

#[test]
fn bytes_are_read_and_written_while_nobody_serves() {
    let Some(mounted) = passing() else { return };
    let file = Arc::new(open(&mounted.path("file")));
    let two = file.clone();
    // At the first write the kernel asks whether a privilege must be removed.
    file.write_all_at(b"first", 0).unwrap();
    let write_and_read = move || {
        two.write_all_at(&pattern(1, 3 << 20), 0).unwrap();
        let mut got = vec![0; 3 << 20];
        two.read_exact_at(&mut got, 0).unwrap();
        assert!(got == pattern(1, 3 << 20));
    };
    assert!(is_done_without_server(&mounted, write_and_read), "the kernel asks the mount's process");
    // Not so for files that go to media with each write.
    let synced = OpenOptions::new().write(true).custom_flags(libc::O_DSYNC).open(mounted.path("file"));
    let synced = Arc::new(synced.unwrap());
    let two = synced.clone();
    assert!(!is_done_without_server(&mounted, move || two.write_all_at(b"synced", 0).unwrap()));
    drop(synced);
    let mut got = [0; 6];
    file.read_exact_at(&mut got, 0).unwrap();
    assert_eq!(&got, b"synced");
    drop(file);
    // Nobody has it open, and the kernel still finds it.
    let file = Arc::new(File::open(mounted.path("file")).unwrap());
    let two = file.clone();
    assert!(is_done_without_server(&mounted, move || two.read_exact_at(&mut [0; 4096], 1 << 20).unwrap()));
    drop(file);
    mounted.unmount();
    assert_eq!(mounted.try_mount(&mounted.dir, &[]).code, 0);
    let bytes = fs::read(mounted.path("file")).unwrap();
    assert!(&bytes[..6] == b"synced" && bytes[6..] == pattern(1, 3 << 20)[6..]);
}

#[test]
fn others_see_at_once_what_the_kernel_writes() {
    let Some((mounted, there)) = and_beside() else { return };
    let (file, other) = (open(&mounted.path("file")), open(&there.join("file")));
    let mut got = vec![0; 5000];
    for round in 0..100_u64 {
        let bytes = pattern(round, 5000);
        let (from, to) = if round % 2 == 0 { (&file, &other) } else { (&other, &file) };
        from.write_all_at(&bytes, 100).unwrap();
        to.read_exact_at(&mut got, 100).unwrap();
        assert!(got == bytes, "round {round}");
        from.write_all_at(&[7], 6000 + round).unwrap();
        assert_eq!(to.metadata().unwrap().len(), 6001 + round);
        assert_eq!(from.metadata().unwrap().modified().unwrap(), to.metadata().unwrap().modified().unwrap());
    }
    other.set_len(50).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 50);
    // Appends from both sides.
    let append = |path: PathBuf| OpenOptions::new().append(true).open(path).unwrap();
    let mut ends = [append(mounted.path("file")), append(there.join("file"))];
    for round in 0..100_u8 {
        ends[usize::from(round % 2)].write_all(&[round; 10]).unwrap();
    }
    let bytes = fs::read(mounted.path("file")).unwrap();
    assert_eq!(bytes.len(), 1050);
    assert!(bytes[50..].chunks(10).zip(0..).all(|(chunk, round)| chunk == [round; 10]));
    // Removed on the other side, it stays for those who have it open.
    fs::remove_file(there.join("file")).unwrap();
    assert_eq!(errno(fs::metadata(mounted.path("file"))), libc::ENOENT);
    file.write_all_at(b"still", 0).unwrap();
    other.read_exact_at(&mut got[..5], 0).unwrap();
    assert_eq!(&got[..5], b"still");
}

#[test]
fn mappings_and_holes_are_those_of_the_page_cache() {
    let Some((mounted, there)) = and_beside() else { return };
    let file = open(&mounted.path("mapped"));
    file.set_len(1 << 20).unwrap();
    // SAFETY: a new mapping of an open file, unmapped below.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            1 << 20,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: within the mapping.
    unsafe { at.cast::<u8>().add(500_000).write(42) };
    let mut got = [0];
    File::open(there.join("mapped")).unwrap().read_exact_at(&mut got, 500_000).unwrap();
    assert_eq!(got, [42]);
    // SAFETY: the call takes numbers.
    let data = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_DATA) };
    assert_eq!(data, 500_000 / 4096 * 4096);
    // SAFETY: what was mapped.
    unsafe { libc::munmap(at, 1 << 20) };
    drop(file);
    mounted.unmount();
    assert_eq!(fs::read(there.join("mapped")).unwrap()[500_000], 42);
}

#[test]
fn times_are_those_of_writes_and_not_of_putting_back() {
    let Some(mounted) = passing() else { return };
    let path = mounted.path("file");
    let file = open(&path);
    let made = file.metadata().unwrap().modified().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    file.write_all_at(&pattern(1, 100_000), 0).unwrap();
    let written = file.metadata().unwrap().modified().unwrap();
    assert!(written > made);
    std::thread::sleep(Duration::from_millis(50));
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().modified().unwrap(), written);
    // As `cp -p` and `tar` do.
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.write_all_at(b"last", 0).unwrap();
    file.set_modified(old).unwrap();
    assert_eq!(file.metadata().unwrap().modified().unwrap(), old);
    drop(file);
    mounted.unmount();
    assert_eq!(mounted.try_mount(&mounted.dir, &[]).code, 0);
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.modified().unwrap(), found.len()), (old, 100_000));
}

#[test]
fn what_the_kernel_wrote_outlives_the_mounts_process() {
    let Some(mounted) = passing() else { return };
    let server = Mounted::server(&mounted.dir);
    let file = open(&mounted.path("file"));
    file.write_all_at(&pattern(3, 1 << 20), 0).unwrap();
    kill(server, Signal::KILL);
    until(SOON, || !is_alive(server));
    drop(file);
    until(SOON, || mounted.try_mount(&mounted.dir, &[]).code == 0);
    assert!(fs::read(mounted.path("file")).unwrap() == pattern(3, 1 << 20));
}

#[test]
fn who_only_looks_loads_nothing() {
    let Some(mounted) = passing() else { return };
    File::create(mounted.path("large")).unwrap().set_len(100 << 20).unwrap();
    mounted.unmount();
    assert_eq!(mounted.try_mount(&mounted.dir, &["--passthrough"]).code, 0);
    let begin = Arc::new(open(&mounted.path("large")));
    let two = begin.clone();
    assert!(!is_done_without_server(&mounted, move || two.read_exact_at(&mut [0; 100], 0).unwrap()));
    // All openers use it in the same way.
    let second = open(&mounted.path("large"));
    second.write_all_at(b"x", 1).unwrap();
    assert_eq!(fs::read(mounted.path("large")).unwrap()[1], b'x');
    assert_eq!(second.metadata().unwrap().size(), 100 << 20);
}

#[test]
fn it_is_refused_with_a_reason() {
    let Some(mounted) = Mounted::new() else { return };
    let other = mounted.place.path("other");
    let said = mounted.try_mount(&other, &["-o", "passthrough,write_back"]);
    assert!(said.code != 0 && said.err.contains("not both"), "{said:?}");
    assert!(!other.join("runs").exists());
}
