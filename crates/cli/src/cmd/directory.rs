//! Directories of a store's trees and what they pass on to what is made in them: extended attributes, set in the store or by a mount.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cenote::{Error, ErrorKind, Store};
use cenote_posix::{Caller, FileSystem, Follow, FsError, Ino, Kind, Options, SetXattr};
use rustix::io::Errno;

use super::{Access, Context};
use crate::out::escaped;

/// An attribute that every directory of a tree has.
const OF_ALL: &str = "user.cenote.consistency";
/// Longest value.
const VALUE_BYTES_MAX: usize = 256;

/// A directory, and how to reach it.
pub struct Directory {
    path: OsString,
    way: Way,
}

enum Way {
    Mounted,
    Here(Store, FileSystem, Ino),
}

impl Directory {
    /// Finds a directory: of a mounted store, or CONTAINER or CONTAINER/DIRECTORY. `what`: what only directories have.
    pub fn find(context: &mut Context<'_>, path: &OsStr, access: Access, what: &str) -> cenote::Result<Self> {
        let path = path.to_owned();
        if of_mounted(Path::new(&path), OF_ALL).is_ok() {
            return Ok(Self { path, way: Way::Mounted });
        }
        let is_read_only = matches!(access, Access::Read);
        let store = context.open(access)?;
        let failed = |error| of_path(&path, error);
        let fs = FileSystem::new(&store, Options { is_read_only, ..Options::default() }).map_err(failed)?;
        let found = fs.resolve(&caller(), fs.root(), path.as_bytes(), Follow::Yes).map_err(failed)?;
        if found.kind != Kind::Directory || found.ino == Ino::TOP {
            return Err(Error::new(ErrorKind::InvalidInput, escaped(path.as_bytes()))
                .because(format!("only directories, and containers, have a {what} of their own"))
                .try_next("name a container, or a directory in one: CONTAINER/DIRECTORY"));
        }
        Ok(Self { path, way: Way::Here(store, fs, found.ino) })
    }
    /// The store, unless the directory is reached by a mount.
    pub fn store(&self) -> Option<&Store> {
        if let Way::Here(store, ..) = &self.way { Some(store) } else { None }
    }
    /// Returns an attribute, if the directory has it.
    pub fn get(&self, attribute: &str) -> cenote::Result<Option<String>> {
        match &self.way {
            Way::Mounted => match of_mounted(Path::new(&self.path), attribute) {
                Err(Errno::NODATA) => Ok(None),
                found => found.map(Some).map_err(|error| of_io(&self.path, error)),
            },
            Way::Here(_, fs, ino) => match fs.xattr(&caller(), *ino, attribute.as_bytes()) {
                Err(error) if error.errno == libc::ENODATA => Ok(None),
                Err(error) => Err(of_path(&self.path, error)),
                Ok(value) => Ok(Some(String::from_utf8_lossy(&value).into_owned())),
            },
        }
    }
    /// Sets an attribute; `recursive`: of all directories below, too.
    pub fn set(&self, attribute: &str, value: &str, recursive: bool) -> cenote::Result<()> {
        match &self.way {
            Way::Mounted => set_mounted(Path::new(&self.path), attribute, value, recursive)
                .map_err(|error| of_io(&self.path, error)),
            Way::Here(_, fs, ino) => {
                set_here(fs, *ino, attribute, value, recursive).map_err(|error| of_path(&self.path, error))
            }
        }
    }
    /// Calls a function with each file in the directory that has bytes; `recursive`: also below. Only in the store.
    pub fn each_file(
        &self,
        recursive: bool,
        run: &mut dyn FnMut(&cenote::Object) -> cenote::Result<()>,
    ) -> cenote::Result<()> {
        let Way::Here(_, fs, ino) = &self.way else {
            return Err(Error::new(ErrorKind::Unsupported, escaped(self.path.as_bytes()))
                .because("files that are there are not moved by way of a mount")
                .try_next("name the directory as CONTAINER/DIRECTORY, with --store"));
        };
        let (failed, caller) = (|error| of_path(&self.path, error), caller());
        let mut dirs = vec![*ino];
        while let Some(dir) = dirs.pop() {
            let mut cursor = fs.read_dir(&caller, dir).map_err(failed)?;
            while let Some(entry) = cursor.next().map_err(failed)? {
                let is_below = entry.name != b"." && entry.name != b"..";
                if entry.kind == Kind::Directory && is_below && recursive {
                    dirs.push(entry.ino);
                } else if entry.kind == Kind::File {
                    // A file is found by its number once it was found by its name.
                    let object = match fs.lookup(&caller, dir, &entry.name) {
                        Err(error) if error.errno == libc::ENOENT => continue, // removed meanwhile
                        found => fs.object_of(found.map_err(failed)?.ino).map_err(failed)?,
                    };
                    object.map_or(Ok(()), |object| run(&object))?;
                }
            }
        }
        Ok(())
    }
}

fn set_here(fs: &FileSystem, dir: Ino, attribute: &str, value: &str, recursive: bool) -> Result<(), FsError> {
    fs.set_xattr(&caller(), dir, attribute.as_bytes(), value.as_bytes(), SetXattr::Any)?;
    if recursive {
        let mut cursor = fs.read_dir(&caller(), dir)?;
        while let Some(entry) = cursor.next()? {
            if entry.kind == Kind::Directory && entry.name != b"." && entry.name != b".." {
                set_here(fs, entry.ino, attribute, value, true)?;
            }
        }
    }
    Ok(())
}

fn of_mounted(dir: &Path, attribute: &str) -> rustix::io::Result<String> {
    let mut value = [0; VALUE_BYTES_MAX];
    let len = rustix::fs::getxattr(dir, attribute, &mut value[..])?;
    Ok(String::from_utf8_lossy(&value[..len]).into_owned())
}

fn set_mounted(dir: &Path, attribute: &str, value: &str, recursive: bool) -> rustix::io::Result<()> {
    rustix::fs::setxattr(dir, attribute, value.as_bytes(), rustix::fs::XattrFlags::empty())?;
    if recursive {
        let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                set_mounted(&entry.path(), attribute, value, true)?;
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
        None => of_io(path, Errno::from_raw_os_error(error.errno)),
    }
}

fn of_io(path: &OsStr, errno: Errno) -> Error {
    let error = Error::io(escaped(path.as_bytes()), &errno.into());
    match errno {
        Errno::NOENT => {
            error.try_next("`cenote ls` lists the containers; directories are made by a mount or by preload")
        }
        Errno::PERM => error.try_next("ask the owner of the directory, or root"),
        _ => error,
    }
}
