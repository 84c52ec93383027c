//! A store mounted for a test.
#![allow(unsafe_code, reason = "system calls that std has no way to")]

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{CommandOutput, TestDir, said};

/// A mounted store with a container `runs`.
pub struct Mounted {
    pub place: TestDir,
    /// Mount point with all containers.
    pub dir: PathBuf,
    more: Vec<PathBuf>,
}

impl Mounted {
    /// Creates a mount for all users; `None`, with a message on standard output, where that is
    /// impossible.
    pub fn new() -> Option<Self> {
        Self::with(&["--allow-other"])
    }
    pub fn with(options: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can mount without a helper");
            return None;
        }
        if let Err(error) = fs::File::open("/dev/fuse") {
            println!("skipped: /dev/fuse: {error}");
            return None;
        }
        let place = TestDir::new();
        place.init("64MiB", "256MiB");
        place.ok(["mk", "runs"]);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cenote"), place.path("program")).unwrap();
        let dir = place.path("mnt");
        let mut mounted = Self { place, dir: dir.clone(), more: Vec::new() };
        mounted.mount(&dir, options);
        Some(mounted)
    }
    /// Mounts the store in another place.
    pub fn mount(&mut self, dir: &Path, options: &[&str]) {
        let said = self.try_mount(dir, options);
        assert_eq!(said.code, 0, "{said:?}");
        self.more.push(dir.to_owned());
    }
    pub fn try_mount(&self, dir: &Path, options: &[&str]) -> CommandOutput {
        let _ = fs::create_dir(dir);
        let mut command = self.place.command(["mount"]);
        command.env("CENOTE_BIN", self.program()).args(options).arg(self.place.store()).arg(dir).stdin(Stdio::null());
        said(&mut command)
    }
    /// Returns the path of the program that starts daemons for the mount; a test may remove it.
    pub fn program(&self) -> PathBuf {
        self.place.path("program")
    }
    /// Mounts where something is or was mounted.
    pub fn try_mount_over(&self) -> CommandOutput {
        self.place.run(["mount".as_ref(), self.place.store().as_os_str(), self.dir.as_os_str()])
    }
    /// Returns a path in the container `runs`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join("runs").join(name)
    }
    /// Unmounts as people do.
    #[track_caller]
    pub fn unmount(&self) {
        self.place.ok(["unmount".as_ref(), self.dir.as_os_str()]);
    }
    /// Returns the process that serves the mount on `dir`.
    pub fn server(dir: &Path) -> u32 {
        let mut text = [0; 16];
        let len = rustix::fs::getxattr(dir, "cenote.mount.pid", &mut text).unwrap();
        std::str::from_utf8(&text[..len]).unwrap().parse().unwrap()
    }
    /// Returns the daemon that serves the store, if there is one.
    pub fn daemon(&self) -> Option<u32> {
        let store = self.place.store();
        processes().into_iter().find_map(|(pid, words)| {
            let serves =
                words.get(1).is_some_and(|word| word == "serve") && words.iter().any(|word| Path::new(word) == store);
            serves.then_some(pid)
        })
    }
    /// Kills the daemon, and waits until it is gone.
    pub fn kill_daemon(&self) {
        let pid = self.daemon().expect("a daemon serves the store");
        kill(pid, rustix::process::Signal::KILL);
        until(Duration::from_secs(5), || !is_alive(pid));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for dir in &self.more {
            if self.place.run(["unmount".as_ref(), dir.as_os_str()]).code != 0 {
                let _ = Command::new("umount").arg("-lf").arg(dir).output();
            }
        }
    }
}

fn processes() -> Vec<(u32, Vec<String>)> {
    let numbers = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let words = |pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some((pid, line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()))
    };
    numbers.filter_map(words).collect()
}

pub fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Returns the children of a living process.
pub fn children_of(pid: u32) -> Vec<u32> {
    let above = |child: u32| {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    processes().into_iter().map(|(child, _)| child).filter(|child| above(*child) == Some(pid)).collect()
}

/// Returns true for the guard of a mount.
pub fn is_guard(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.windows(7).any(|word| word == b"--guard"))
}

/// Returns false if the process has ended, even if nobody has waited for it yet.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Waits until the condition holds.
#[track_caller]
pub fn until(patience: Duration, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < patience, "not within {patience:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the error number with which a call must fail.
#[track_caller]
pub fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

pub fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Converts the result of a system call as std does.
pub fn checked(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Runs a shell command as another user with additional groups.
pub fn as_user(uid: u32, groups: &[u32], line: &str) -> CommandOutput {
    use std::os::unix::process::CommandExt;
    let groups = groups.to_vec();
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).stdin(Stdio::null());
    // SAFETY: three system calls between fork and exec, which use only what the closure owns.
    unsafe {
        command.pre_exec(move || {
            checked(libc::setgroups(groups.len(), groups.as_ptr()).into())?;
            checked(libc::setgid(uid).into())?;
            checked(libc::setuid(uid).into())?;
            Ok(())
        });
    }
    said(&mut command)
}

/// Returns bytes that depend on their position and a seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect()
}
