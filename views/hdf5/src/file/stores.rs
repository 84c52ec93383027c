//! The store that holds a program's files, with one session per process and store.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use cenote::{Error, ErrorKind, Mode, OpenOptions, Store};
use parking_lot::Mutex;

use crate::Result;

/// The environment variable that names the store's directory.
pub const STORE_ENV: &str = "CENOTE_STORE";

/// The environment variable that says what `H5Fflush` waits for: `media`, or nothing (the default).
pub const FLUSH_ENV: &str = "CENOTE_HDF5_FLUSH";

/// Returns true if flushes of files and datasets return only when the data survive power loss.
pub fn flush_waits_for_media() -> bool {
    static WAITS: LazyLock<bool> = LazyLock::new(|| std::env::var_os(FLUSH_ENV).is_some_and(|value| value == "media"));
    *WAITS
}

static STORES: LazyLock<Mutex<HashMap<PathBuf, Store>>> = LazyLock::new(Mutex::default);

/// A directory's device and number, and its absolute path.
type Named = ((u64, u64), PathBuf);

/// Absolute paths of directories by name, valid while the name leads to the same directory.
static NAMED: LazyLock<Mutex<HashMap<PathBuf, Named>>> = LazyLock::new(Mutex::default);

/// The absolute path of a store's directory, cached because it is asked for often.
fn absolute(dir: &Path) -> Result<PathBuf> {
    let place = dir.metadata().ok().filter(|_| dir.is_absolute()).map(|seen| (seen.dev(), seen.ino()));
    let Some(place) = place else { return super::path::absolute(dir) };
    let known = NAMED.lock().get(dir).filter(|(known, _)| *known == place).map(|(_, path)| path.clone());
    if let Some(path) = known
        && (path == dir || super::path::is_same(&path, dir))
    {
        return Ok(path);
    }
    let path = super::path::absolute(dir)?;
    NAMED.lock().insert(dir.to_path_buf(), (place, path.clone()));
    Ok(path)
}

/// `$XDG_DATA_HOME/cenote/default`, or the same below `~/.local/share`.
pub fn store_path_default() -> Result<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    if let Some(path) = var(STORE_ENV) {
        return Ok(PathBuf::from(path));
    }
    if let Some(path) = var("XDG_DATA_HOME") {
        return Ok(PathBuf::from(path).join("cenote/default"));
    }
    if let Some(home) = var("HOME") {
        return Ok(PathBuf::from(home).join(".local/share/cenote/default"));
    }
    Err(Error::new(ErrorKind::NotFound, "the store for HDF5 files")
        .because("neither the connector's info string nor CENOTE_STORE, XDG_DATA_HOME or HOME says where it is")
        .try_next("set HDF5_VOL_CONNECTOR='cenote store=/path' or CENOTE_STORE=/path"))
}

/// The session of this process with the store in `dir` (or the default one), and the directory's absolute path.
pub fn store_for(dir: Option<&Path>) -> Result<(Store, PathBuf)> {
    let dir = match dir {
        Some(dir) => dir.to_path_buf(),
        None => store_path_default()?,
    };
    let dir = absolute(&dir)?;
    let mut stores = STORES.lock();
    if let Some(store) = stores.get(&dir) {
        return Ok((store.clone(), dir));
    }
    // A daemon from the start: HDF5 programs run in many processes, and handing over an engine takes time.
    let options = OpenOptions { mode: Mode::Daemon, create: true, ..OpenOptions::default() };
    let store = Store::open_with(&dir, &options)?;
    stores.insert(dir.clone(), store.clone());
    Ok((store, dir))
}
