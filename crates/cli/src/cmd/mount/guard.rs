//! A process that waits until the process that serves a mount has ended. If the mount is left behind, it unmounts: no calls fail on a directory that
//! nobody serves, and nobody has to clean up.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

use cenote_fuse::{How, mounted};

/// Held by the guarded process: the guard notices its end by the end of the pipe.
pub struct Guarded(#[allow(dead_code, reason = "it is held, and nothing else")] ChildStdin);

/// Starts the guard, before anything is mounted.
pub fn start(dir: &Path) -> io::Result<Guarded> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["unmount", "--guard"]).arg(dir).current_dir("/").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    child.stdin.take().map(Guarded).ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))
}

/// In the guard: waits, and unmounts what nobody serves any more.
pub fn watch(dir: &Path) -> io::Result<()> {
    let mut nothing = Vec::new();
    let _ = io::stdin().read_to_end(&mut nothing);
    // A new mount replaces the dead one first; its server lives, so it is left alone.
    let is_dead = mounted::on(dir)?.first().is_some_and(|mount| mount.kind == mounted::TYPE)
        && cenote_fuse::pid_of(dir).is_none();
    if is_dead { cenote_fuse::unmount(dir, How::Lazy) } else { Ok(()) }
}
