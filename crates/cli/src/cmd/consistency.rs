//! `consistency`: when others see changes in a directory of a store's trees.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cenote::{Error, ErrorKind};
use cenote_posix::{Caller, Consistency, FileSystem, Follow, FsError, Ino, Kind, Options, SetXattr};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::{Access, Context};
use crate::failure::Done;
use crate::out::escaped;

/// The attribute by which programs set it, also through a mount.
const XATTR: &str = "user.cenote.consistency";

/// The consistencies.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConsistencyWord {
    /// As POSIX requires: changes are visible to all when the call returns
    Strict,
    /// New and removed names of files are visible to others at fsync or close, or after some 50 ms
    Commit,
    /// Nothing changes any more, and nothing is asked for twice
    Laminated,
}

/// Arguments of `consistency`.
#[derive(Args, Debug)]
pub struct ConsistencyArgs {
    /// CONTAINER or CONTAINER/DIRECTORY, or a directory of a mounted store
    path: std::ffi::OsString,
    /// New consistency, also for directories created in it later [default: show the current one]
    #[arg(value_enum)]
    word: Option<ConsistencyWord>,
    /// Also for all directories below
    #[arg(short, long, requires = "word")]
    recursive: bool,
}

pub const HELP: &str = "\
  strict      as POSIX has it: what a call did all see when it returns
  commit      new files and removals are seen by others at fsync, close or some 50 ms later; creating is some times faster
  laminated   nothing changes any more (EROFS), not by who had it open either; what is known of it is never asked for again

Directories inherit from the one that they are made in. Its owner can set it. The same by a mount: setfattr -n user.cenote.consistency.

  cenote consistency runs/checkpoints commit
  cenote consistency -r runs/done laminated";

/// A directory, and how to reach it.
enum DirectoryAccess {
    Mounted,
    Here(FileSystem, Ino),
}

fn word_of(consistency: Consistency) -> &'static str {
    match consistency {
        Consistency::Strict => "strict",
        Consistency::Commit => "commit",
        Consistency::Laminated => "laminated",
    }
}

pub fn consistency(context: &mut Context<'_>, args: &ConsistencyArgs) -> Done {
    let place = find(context, args)?;
    let before = show(&place, &args.path)?;
    let now = match args.word {
        None => before,
        Some(word) => {
            let wanted = match word {
                ConsistencyWord::Strict => "strict",
                ConsistencyWord::Commit => "commit",
                ConsistencyWord::Laminated => "laminated",
            };
            set(&place, &args.path, wanted, args.recursive)?;
            show(&place, &args.path)?
        }
    };
    if context.out.json {
        let path = args.path.to_string_lossy();
        return context.out.document(&json!({ "path": path, "consistency": now }));
    }
    if args.word.is_none() { context.out.line(now) } else { Ok(()) }
}

fn find(context: &mut Context<'_>, args: &ConsistencyArgs) -> cenote::Result<DirectoryAccess> {
    if of_mounted(Path::new(&args.path)).is_ok() {
        return Ok(DirectoryAccess::Mounted);
    }
    let store = context.open(if args.word.is_some() { Access::Write } else { Access::Read })?;
    let is_read_only = args.word.is_none();
    let failed = |error| of_path(&args.path, error);
    let fs = FileSystem::new(&store, Options { is_read_only, ..Options::default() }).map_err(failed)?;
    let found = fs.resolve(&caller(), fs.root(), args.path.as_bytes(), Follow::Yes).map_err(failed)?;
    if found.kind != Kind::Directory || found.ino == Ino::TOP {
        return Err(Error::new(ErrorKind::InvalidInput, escaped(args.path.as_bytes()))
            .because("only directories, and containers, have a consistency of their own")
            .try_next("name a container, or a directory in one: CONTAINER/DIRECTORY"));
    }
    Ok(DirectoryAccess::Here(fs, found.ino))
}

fn show(place: &DirectoryAccess, path: &OsStr) -> cenote::Result<String> {
    match place {
        DirectoryAccess::Mounted => of_mounted(Path::new(path)).map_err(|error| of_io(path, error)),
        DirectoryAccess::Here(fs, ino) => {
            let attr = fs.attr(*ino).map_err(|error| of_path(path, error))?;
            Ok(word_of(attr.consistency).to_owned())
        }
    }
}

fn set(place: &DirectoryAccess, path: &OsStr, word: &str, recursive: bool) -> cenote::Result<()> {
    match place {
        DirectoryAccess::Mounted => set_mounted(Path::new(path), word, recursive).map_err(|error| of_io(path, error)),
        DirectoryAccess::Here(fs, ino) => set_here(fs, *ino, word, recursive).map_err(|error| of_path(path, error)),
    }
}

fn set_here(fs: &FileSystem, dir: Ino, word: &str, recursive: bool) -> Result<(), FsError> {
    fs.set_xattr(&caller(), dir, XATTR.as_bytes(), word.as_bytes(), SetXattr::Any)?;
    if recursive {
        let mut cursor = fs.read_dir(&caller(), dir)?;
        while let Some(entry) = cursor.next()? {
            if entry.kind == Kind::Directory && entry.name != b"." && entry.name != b".." {
                set_here(fs, entry.ino, word, true)?;
            }
        }
    }
    Ok(())
}

fn of_mounted(dir: &Path) -> rustix::io::Result<String> {
    let mut value = [0; 16];
    let len = rustix::fs::getxattr(dir, XATTR, &mut value[..])?;
    Ok(String::from_utf8_lossy(&value[..len]).into_owned())
}

fn set_mounted(dir: &Path, word: &str, recursive: bool) -> rustix::io::Result<()> {
    rustix::fs::setxattr(dir, XATTR, word.as_bytes(), rustix::fs::XattrFlags::empty())?;
    if recursive {
        let failed = |error: std::io::Error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                set_mounted(&entry.path(), word, true)?;
            }
        }
    }
    Ok(())
}

/// Returns the user who runs the command.
fn caller() -> Caller {
    let groups = rustix::process::getgroups().unwrap_or_default();
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.into_iter().map(rustix::process::Gid::as_raw).collect(),
        is_checked: false,
    }
}

fn of_path(path: &OsStr, error: FsError) -> Error {
    match error.cause {
        Some(cause) => *cause,
        None => of_io(path, rustix::io::Errno::from_raw_os_error(error.errno)),
    }
}

fn of_io(path: &OsStr, errno: rustix::io::Errno) -> Error {
    let error = Error::io(escaped(path.as_bytes()), &errno.into());
    match errno {
        rustix::io::Errno::NOENT => {
            error.try_next("`cenote ls` lists the containers; directories are made by a mount or by preload")
        }
        rustix::io::Errno::PERM => error.try_next("ask the owner of the directory, or root"),
        _ => error,
    }
}
