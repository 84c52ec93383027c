//! Native files that other views have put into the store, as files of the tree that shows HDF5 files. Opening one by its path makes it a
//! file of the store.
//!
//! This module does not know how such trees are kept: the `cenote` program does the work (`cenote images --adopt`).

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
/// A file in every store's directory.
const STORE_FILE: &str = "superblock";
/// Exit code by which the program says that it found nothing.
const NOTHING: i32 = 4;

/// Called when nothing is at `path`. Returns true if a native file was put into the store under that path and is now a file of the store
/// there.
pub fn bring(h5: &'static Api, fapl: hid_t, path: &Path) -> Result<bool> {
    // If nothing is left to bring, another process may have brought it since the look that found nothing.
    Ok(bring_object(h5, fapl, path)? || path.symlink_metadata().is_ok())
}

fn bring_object(h5: &'static Api, fapl: hid_t, path: &Path) -> Result<bool> {
    let dir = info::store_of_fapl(h5, fapl).map_or_else(store_path_default, Ok::<PathBuf, Error>)?;
    // Looking for a missing file must not make a store.
    if !dir.join(STORE_FILE).exists() {
        return Ok(false);
    }
    let (store, dir) = store_for(Some(&dir))?;
    // HDF5 files shown there keep their bytes elsewhere, so an object there is a file that somebody has put there.
    match store.container(SHOWN).and_then(|container| container.objects(None, 1)) {
        Ok(objects) if !objects.is_empty() => {}
        Ok(_) => return Ok(false),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => return Ok(false),
        Err(error) => return Err(error),
    }
    let shown = || format!("unable to open file: name = '{}'", path.display());
    let mut command = Command::new(cenote::program()?);
    command.arg("--store").arg(&dir).args(["--quiet", "images", "--adopt"]).arg(path);
    // The program may have no libhdf5 of its own.
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
            .try_next("see `cenote images --help`")),
    }
}
