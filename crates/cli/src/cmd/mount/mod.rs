//! `mount` and `unmount`: a store as directories and files that every program can use.

pub(super) mod background;
mod guard;
mod options;
mod serve;
mod signals;
mod unmount;

pub use unmount::{UnmountArgs, unmount};

use std::io;
use std::path::{Path, PathBuf};

use cenote::{Error, ErrorKind};
use cenote_fuse::mounted;
use clap::{Args, ValueEnum};

use super::Context;
use crate::config;
use crate::failure::Done;

pub const MOUNT_HELP: &str = "\
Containers are the directories at the top. The command returns when files can be used, and a process goes on in the background; what it has to say
is in mount.log in the store's directory. It needs /dev/fuse, and fusermount3 unless it is root (Debian: fuse3).

  cenote mount /data/store /mnt                     all containers
  cenote mount /data/store /mnt --container runs    the files of one
  cenote unmount /mnt                               returns when everything is on media

As mount.cenote (a link to this program in /sbin), `mount -t cenote /data/store /mnt -o ro` and lines in /etc/fstab work as well.

docs/mount.md says what is seen by others when, how long calls take at most when the store is away, and what locks are worth.";

/// Arguments of `mount`.
#[derive(Args, Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct MountArgs {
    /// The store [default: as for every command], and the directory to mount it on
    #[arg(required = true, num_args = 1..=2, value_names = ["STORE", "DIR"])]
    places: Vec<PathBuf>,
    /// Mount the files of this container, created if it does not exist [default: all containers]
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// Mount read-only
    #[arg(short, long)]
    read_only: bool,
    /// Let other users use it, each with their own rights (for non-root users this needs user_allow_other in /etc/fuse.conf)
    #[arg(short, long)]
    allow_other: bool,
    /// Stay in the foreground until the directory is unmounted or a signal arrives
    #[arg(short, long)]
    foreground: bool,
    /// Consistency of new containers: when others see changes
    #[arg(long, value_enum, default_value_t = ConsistencyArg::Strict, value_name = "CONSISTENCY")]
    consistency: ConsistencyArg,
    /// Maximum age in milliseconds of cached names and attributes in strict directories that others change
    #[arg(long, default_value_t = 0, value_name = "MS")]
    remember_ms: u64,
    /// Assume that nobody else changes files while this is mounted: writes stay in the kernel until fsync, close or half a minute
    #[arg(long)]
    write_back: bool,
    /// Maximum number of concurrent requests [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Let the kernel read and write bytes itself, in shared memory: the whole file is loaded at open, and goes to the store at fsync and close
    #[arg(long, conflicts_with = "write_back")]
    passthrough: bool,
    /// Do not keep access times
    #[arg(long)]
    no_access_times: bool,
    /// No program can be started from the mount
    #[arg(long)]
    no_exec: bool,
    /// The same options in the form of `mount`: ro, allow_other, write_back, passthrough, noatime, noexec, container=, consistency=, remember_ms=,
    /// threads=
    #[arg(short = 'o', long = "options", value_name = "LIST")]
    options: Vec<String>,
}

/// When others see changes.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConsistencyArg {
    /// At once, as POSIX requires
    Strict,
    /// At fsync or close
    Commit,
}

impl ConsistencyArg {
    /// Returns the word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Commit => "commit",
        }
    }
}

/// Both paths, independent of the working directory.
struct Places {
    store: PathBuf,
    dir: PathBuf,
}

impl Places {
    fn of(context: &Context<'_>, args: &MountArgs) -> cenote::Result<Self> {
        let (store, dir) = match &args.places[..] {
            [store, dir] => (config::store_dir(Some(store))?.0, dir),
            [dir] => (context.dir()?, dir),
            _ => unreachable!("the command line has one or two places"),
        };
        let store = std::path::absolute(&store).map_err(|error| Error::io(store.display().to_string(), &error))?;
        Ok(Self { store, dir: usable(dir)? })
    }
}

fn subject(dir: &Path) -> String {
    format!("directory {}", dir.display())
}

/// Returns the directory, if something can be mounted on it.
fn usable(dir: &Path) -> cenote::Result<PathBuf> {
    let failed = |error: &io::Error| Error::io(subject(dir), error);
    if let Some(mount) = mounted::on(dir).map_err(|error| failed(&error))?.first()
        && mount.kind == mounted::TYPE
    {
        return Err(Error::new(ErrorKind::Exists, subject(dir))
            .because(format!("{} is mounted on it", mount.source))
            .try_next(format!("`cenote unmount {}`, also if nobody serves it any more", dir.display())));
    }
    let found = dir.canonicalize().map_err(|error| failed(&error))?;
    if !found.is_dir() {
        return Err(failed(&io::Error::from(io::ErrorKind::NotADirectory)));
    }
    Ok(found)
}

pub fn mount(context: &mut Context<'_>, args: &MountArgs) -> Done {
    let args = &args.clone().with_options()?;
    let places = Places::of(context, args)?;
    if args.foreground || background::is_child() {
        return serve::serve(context, args, &places);
    }
    let pid = background::start()?;
    if context.out.json {
        let (store, dir) = (places.store.display().to_string(), places.dir.display().to_string());
        return context.out.document(&serde_json::json!({ "store": store, "dir": dir, "pid": pid }));
    }
    context.out.line(format!("{} is mounted on {} (process {pid})", places.store.display(), places.dir.display()))
}
