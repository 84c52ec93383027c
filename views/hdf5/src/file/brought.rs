//! Native files that other views have put into the store, as files of the tree that shows HDF5 files: who opens one by its path makes it
//! a file of the store.
//!
//! How such trees are kept, this room does not know: the `cenote` program does it (`cenote streams --adopt`).

use std::path::{Path, PathBuf};
use std::process::Command;

use cenote::{Error, ErrorKind};

use super::{store_for, store_path_default};
use crate::Result;
use crate::ffi::Api;
use crate::ffi::entry;
use crate::ffi::load::LIBRARY_ENV;
use crate::ffi::types::hid_t;
use crate::vol::info;

/// The container whose tree shows HDF5 files.
const SHOWN: &str = "hdf5";
/// A file that every store has in its directory.
const STORE_FILE: &str = "superblock";
/// How the program says that nothing is there.
const NOTHING: i32 = 4;

/// Where nothing was at `path`: true if a native file was put into the store under that path, and is a file of the store there now.
pub fn bring(h5: &'static Api, fapl: hid_t, path: &Path) -> Result<bool> {
    // Where nothing is left to be brought, another process may have done so since the look that found nothing.
    Ok(bring_object(h5, fapl, path)? || path.symlink_metadata().is_ok())
}

fn bring_object(h5: &'static Api, fapl: hid_t, path: &Path) -> Result<bool> {
    let dir = info::store_of_fapl(h5, fapl).map_or_else(store_path_default, Ok::<PathBuf, Error>)?;
    // Looking for a file that is not there must not make a store.
    if !dir.join(STORE_FILE).exists() {
        return Ok(false);
    }
    let (store, dir) = store_for(Some(&dir))?;
    // What is shown there of HDF5 files has its bytes elsewhere: an object there is a file that somebody has put there.
    match store.container(SHOWN).and_then(|container| container.objects(None, 1)) {
        Ok(objects) if !objects.is_empty() => {}
        Ok(_) => return Ok(false),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => return Ok(false),
        Err(error) => return Err(error),
    }
    let shown = || format!("unable to open file: name = '{}'", path.display());
    let mut command = Command::new(cenote::program()?);
    command.arg("--store").arg(&dir).args(["--quiet", "streams", "--adopt"]).arg(path);
    // It may have none of its own.
    if let Some(library) = entry::file_of(h5).filter(|_| std::env::var_os(LIBRARY_ENV).is_none()) {
        command.env(LIBRARY_ENV, library);
    }
    for name in ["LD_PRELOAD", "HDF5_VOL_CONNECTOR"] {
        command.env_remove(name);
    }
    let done = command.output().map_err(|e| Error::io("the program `cenote`", &e))?;
    match done.status.code() {
        Some(0) => Ok(true),
        Some(NOTHING) => Ok(false),
        _ => Err(Error::new(ErrorKind::Io, shown())
            .because(String::from_utf8_lossy(&done.stderr).trim().to_owned())
            .try_next("see `cenote streams --help`")),
    }
}
