//! A background mount: a process in its own session that reports when files can be used, or on its standard error why not.
#![allow(unsafe_code, reason = "no safe interface marks all descriptors at once")]

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use cenote::{Error, ErrorKind};
use cenote_device::StoreDir;
use cenote_server::daemon::{MOUNT_LOG_FILE, MOUNT_LOG_FILE_BEFORE};

use crate::failure::{Done, Failure};

/// Set in the environment of the process that becomes the background mount.
const CHILD_VARIABLE: &str = "CENOTE_MOUNT_CHILD";
const READY: &str = "ready";
const LOG_BYTES_MAX: u64 = 1 << 20;

/// Returns true in the process that is to serve.
pub fn is_child() -> bool {
    std::env::var_os(CHILD_VARIABLE).is_some()
}

/// Starts this command again in the background, and returns its process once it serves.
pub fn start() -> Done<u32> {
    let failed = |error: &std::io::Error| Error::io("a process for the mount", error);
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    let mut command = Command::new(program);
    command.args(crate::words().into_iter().skip(1)).env(CHILD_VARIABLE, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    keep_descriptors_from_child();
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        let _ = BufReader::new(output).read_line(&mut line);
    }
    if line.trim() == READY {
        return Ok(child.id());
    }
    // The child has reported the reason on the standard error that it shares with us.
    let status = child.wait().map_err(|error| failed(&error))?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) if code != 0 => Err(Failure::Program(code)),
        _ => Err(Error::new(ErrorKind::Io, "the process for the mount").because(format!("{status}")).into()),
    }
}

/// Marks inherited descriptors for closing at exec, so that the process that stays does not keep them.
pub fn keep_descriptors_from_child() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: marks descriptors to be closed by exec; closes none here. Kernels before 5.11 keep them open, which only hurts processes that wait
    // for their end.
    unsafe {
        libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_uint)
    };
}

/// In the child: reports to its parent that files can be used, and leaves the parent's session, terminal and directory.
pub fn ready(store: &Path) {
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    let log = StoreDir::open(store).and_then(|dir| dir.log(MOUNT_LOG_FILE, MOUNT_LOG_FILE_BEFORE, LOG_BYTES_MAX));
    if let Err(error) = &log {
        tracing::warn!(%error, "what this mount notices is written nowhere");
    }
    let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") else { return };
    let _ = rustix::stdio::dup2_stderr(log.as_ref().unwrap_or(&null));
    let mut output = std::io::stdout();
    let _ = writeln!(output, "{READY}");
    let _ = output.flush();
    // The reader sees the end of the pipe only when nobody holds the writing end.
    let _ = rustix::stdio::dup2_stdout(&null);
}
