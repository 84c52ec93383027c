//! A process that does nothing until the one that serves a mount has ended. If that was not as it should be, the mount is cleared away: no calls fail on
//! a directory that nobody serves, and nobody has to come and do it.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

use cenote_fuse::{How, mounted};

/// Held by whoever is looked after: its end is noticed by that of the pipe.
pub struct Guarded(#[allow(dead_code, reason = "it is held, and nothing else")] ChildStdin);

/// Starts it, before anything is mounted.
pub fn start(dir: &Path) -> io::Result<Guarded> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["unmount", "--guard"]).arg(dir).current_dir("/").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    child.stdin.take().map(Guarded).ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))
}

/// In that process: waits, and unmounts what nobody serves any more.
pub fn watch(dir: &Path) -> io::Result<()> {
    let mut nothing = Vec::new();
    let _ = io::stdin().read_to_end(&mut nothing);
    // Somebody who mounts it anew has cleared it away before.
    let is_dead = mounted::on(dir)?.first().is_some_and(|mount| mount.kind == mounted::TYPE)
        && cenote_fuse::pid_of(dir).is_none();
    if is_dead { cenote_fuse::unmount(dir, How::Lazy) } else { Ok(()) }
}
