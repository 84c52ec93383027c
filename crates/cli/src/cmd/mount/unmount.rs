//! `unmount`: ends a mount, and returns when everything written through it is on media.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use cenote::{Error, ErrorKind};
use cenote_fuse::{How, mounted, pid_of, wait_for_end};
use clap::Args;

use super::{guard, subject};
use crate::cmd::Context;
use crate::failure::Done;

/// Arguments of `unmount`.
#[derive(Args, Debug)]
pub struct UnmountArgs {
    /// The mounted directory
    dir: PathBuf,
    /// Detach it at once; it ends when the last program that uses it is done
    #[arg(short, long)]
    lazy: bool,
    /// How long to wait for outstanding writes, in seconds
    #[arg(long, default_value_t = 300, value_name = "S")]
    wait: u64,
    /// Run as a mount's guard: unmount when standard input ends and nobody serves the mount any more
    #[arg(long, hide = true)]
    guard: bool,
}

pub fn unmount(context: &mut Context<'_>, args: &UnmountArgs) -> Done {
    let failed = |error: &io::Error| Error::io(subject(&args.dir), error);
    if args.guard {
        return Ok(guard::watch(&args.dir).map_err(|error| failed(&error))?);
    }
    let dir = mounted::unlinked(&args.dir).map_err(|error| failed(&error))?;
    let ours = mounted::on(&dir).map_err(|error| failed(&error))?;
    let Some(mount) = ours.first().filter(|mount| mount.kind == mounted::TYPE) else {
        return Err(Error::new(ErrorKind::NotFound, subject(&dir))
            .because("no store is mounted on it")
            .try_next("`findmnt -t fuse.cenote` lists all of them")
            .into());
    };
    // `None`: the server was killed, so there is nothing to wait for; the store has what was acknowledged.
    let server = pid_of(&dir);
    let how = if args.lazy { How::Lazy } else { How::Unused };
    cenote_fuse::unmount(&dir, how).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => Error::new(ErrorKind::Busy, subject(&dir))
            .because("programs have files open on it, or use a directory of it as their working directory")
            .try_next(format!("`fuser -vm {}` lists them; --lazy leaves it to them", dir.display())),
        _ => failed(&error),
    })?;
    if let Some(pid) = server.filter(|_| !args.lazy)
        && !wait_for_end(pid, Duration::from_secs(args.wait)).map_err(|error| failed(&error))?
    {
        return Err(Error::new(ErrorKind::Busy, subject(&dir))
            .because(format!(
                "it is unmounted, and process {} still writes after {} s",
                pid.as_raw_nonzero(),
                args.wait
            ))
            .try_next("`cenote status` shows how much; see mount.log in the store's directory")
            .into());
    }
    if context.out.json {
        let dir = dir.display().to_string();
        return context
            .out
            .document(&serde_json::json!({ "dir": dir, "source": mount.source, "served": server.is_some() }));
    }
    Ok(())
}
