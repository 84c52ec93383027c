//! The holder of an advisory lock (`flock`), and the lease that an engine takes of each device.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use cenote_host::fork::CloseInChild;
use cenote_host::process::{program_of, started_of};
use cenote_model::{Error, ErrorKind, Result};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// How long an engine that has just closed, or a process that is being killed, may still hold a device.
const PATIENCE: Duration = Duration::from_secs(1);

/// A process that holds a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Program name.
    pub program: String,
    started: u64,
}

impl Holder {
    /// Returns true until the process has ended.
    pub fn is_alive(&self) -> bool {
        started_of(self.pid) == Some(self.started)
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} ({})", self.pid, self.program)
    }
}

/// The holder of the lock on a file, if the system reports it: `/proc/locks` lists processes of this PID namespace.
pub fn holder_of(file: impl AsFd) -> Option<Holder> {
    let stat = rustix::fs::fstat(file).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = pid_in(&locks, stat.st_ino, (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev)))?;
    let program = program_of(pid).unwrap_or_else(|| "unknown program".to_owned());
    Some(Holder { pid, program, started: started_of(pid)? })
}

/// The holder of the lock of the store in `dir`.
pub fn holder_of_store(dir: &Path) -> Option<Holder> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    holder_of(rustix::fs::open(dir.join(crate::LOCK_FILE), flags, Mode::empty()).ok()?)
}

/// Lines look like `1: FLOCK  ADVISORY  WRITE 4711 08:01:131077 0 EOF`. For some file systems the device there differs
/// from that of `stat`: then the inode number decides.
fn pid_in(locks: &str, inode: u64, device: (u32, u32)) -> Option<u32> {
    let mut by_number = None;
    for line in locks.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, place, ..] = words[..] else { continue };
        let (Ok(pid), Some((at, number))) = (pid.parse::<u32>(), place.rsplit_once(':')) else { continue };
        if pid == 0 || number.parse() != Ok(inode) {
            continue;
        }
        let hex = |text: &str| u32::from_str_radix(text, 16).ok();
        if at.split_once(':').is_some_and(|(major, minor)| (hex(major), hex(minor)) == (Some(device.0), Some(device.1)))
        {
            return Some(pid);
        }
        by_number = Some(pid);
    }
    by_number
}

/// Held by the one engine that has a device, from whatever store directory: two directories of the same device (one is
/// a copy of the other) never have two engines. Not on a descriptor that clients get, since theirs outlive the engine.
#[derive(Debug)]
pub(crate) struct Lease {
    _in_child: Option<CloseInChild>, // before the descriptor: fields drop in order
    _file: OwnedFd,
}

impl Lease {
    /// Takes the lease of the device in the file or directory at `path`. `None` on a file system without locks.
    pub fn acquire(path: &Path, subject: &str) -> Result<Option<Self>> {
        let fail = |errno: Errno| Error::io(subject, &errno.into());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(fail)?;
        let begin = Instant::now();
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(Self { _in_child: CloseInChild::new(&file), _file: file })),
                Err(Errno::WOULDBLOCK) if begin.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
                Err(Errno::WOULDBLOCK) => {
                    let who = holder_of(&file).map_or_else(|| "another process".to_owned(), |who| who.to_string());
                    return Err(Error::new(ErrorKind::Busy, subject)
                        .because(format!("{who} has it open: for a copy of the store's directory, or since it is just leaving"))
                        .try_next("end that process; if this directory is the copy, `cenote clone DIR` makes a store of its own of it"));
                }
                Err(Errno::NOTSUP | Errno::NOLCK | Errno::INVAL) => return Ok(None),
                Err(errno) => return Err(fail(errno)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_named() {
        let dir = std::env::temp_dir().join(format!("cenote-holder-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(holder_of_store(&dir), None);
        let lock = crate::StoreLock::acquire(&dir).unwrap().unwrap();
        let holder = holder_of_store(&dir).unwrap();
        assert_eq!(holder.pid, std::process::id());
        assert!(!holder.program.is_empty());
        drop(lock);
        assert_eq!(holder_of_store(&dir), None);
        let lease = Lease::acquire(&dir, "a device").unwrap();
        let error = Lease::acquire(&dir, "a device").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        drop(lease);
        assert!(Lease::acquire(&dir, "a device").unwrap().is_some());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn lines_of_other_locks_are_passed_over() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 08:01:5 0 EOF\n2: FLOCK  ADVISORY  WRITE 8 08:02:5 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 08:01:5 0 EOF\n3: FLOCK  ADVISORY  WRITE 10 08:01:5 0 EOF\n";
        assert_eq!(pid_in(locks, 5, (8, 1)), Some(10));
        assert_eq!(pid_in(locks, 5, (9, 9)), Some(10));
        assert_eq!(pid_in(locks, 6, (8, 1)), None);
    }
}
