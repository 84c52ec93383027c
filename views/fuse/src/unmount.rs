//! Ends a mount, from inside the process that serves it or from outside.
#![allow(unsafe_code, reason = "umount2 has no safe interface here")]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
pub use rustix::process::Pid;

/// Extended attribute of a mount's root with the pid of the serving process. Answered without asking the store.
pub const PID_XATTR: &str = "cenote.mount.pid";

/// The process that serves the mount on `dir`; `None` if that is not ours, or not served any more.
pub fn pid_of(dir: &Path) -> Option<Pid> {
    let mut text = [0; 16];
    let len = rustix::fs::getxattr(dir, PID_XATTR, &mut text).ok()?;
    Pid::from_raw(std::str::from_utf8(text.get(..len)?).ok()?.parse().ok()?)
}

/// How to treat users of the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Fails with `ResourceBusy` if it is in use.
    Unused,
    /// Detaches it; it ends when the last user leaves.
    Lazy,
    /// Makes the users' calls fail from now on.
    Force,
}

/// Unmounts `dir`. Without root this needs `fusermount3`, as for mounting, which supports no force: it is `Lazy`
/// then.
pub fn unmount(dir: &Path, how: How) -> io::Result<()> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    let call = |flags| {
        // SAFETY: the path is a string with a NUL; the call reads nothing else.
        if unsafe { libc::umount2(path.as_ptr(), flags) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let result = match how {
        How::Unused => call(0),
        How::Lazy => call(libc::MNT_DETACH),
        // The kernel abandons pending requests, and is still busy if files are open.
        How::Force => call(libc::MNT_FORCE).or_else(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => call(libc::MNT_DETACH),
            _ => Err(error),
        }),
    };
    match result {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => by_helper(dir, how != How::Unused),
        result => result,
    }
}

fn by_helper(dir: &Path, is_lazy: bool) -> io::Result<()> {
    for helper in ["fusermount3", "fusermount"] {
        let mut command = Command::new(helper);
        command.arg("-u").args(is_lazy.then_some("-z")).arg("--").arg(dir);
        match command.stdin(Stdio::null()).output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                let is_busy = said.contains("busy");
                return Err(if is_busy { io::ErrorKind::ResourceBusy.into() } else { io::Error::other(said) });
            }
        }
    }
    Err(io::Error::from_raw_os_error(libc::EPERM))
}

/// Waits until a process has ended. Returns false if it still runs after `patience`.
pub fn wait_for_end(pid: Pid, patience: Duration) -> io::Result<bool> {
    let process = match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(true),
        process => process?,
    };
    let patience = Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: i64::from(patience.subsec_nanos()) };
    let ready = rustix::event::poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience))?;
    Ok(ready > 0)
}
