//! Where this user's settings are, and where shared memory is. This file must not know what is kept there.

use std::path::PathBuf;

use cenote_model::{Error, ErrorKind, Result};

/// Where shared memory is, unless `CENOTE_SHM_DIR` says otherwise.
const SHM_DIR: &str = "/dev/shm";

/// The base directory of shared memory files: `CENOTE_SHM_DIR` or `/dev/shm`.
pub fn shm_base() -> PathBuf {
    std::env::var_os("CENOTE_SHM_DIR").filter(|dir| !dir.is_empty()).map_or_else(|| SHM_DIR.into(), PathBuf::from)
}

/// Where this user keeps settings of Cenote's.
pub fn settings_dir() -> Result<PathBuf> {
    let named = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let base = named.or_else(|| Some(std::env::home_dir()?.join(".config"))).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "a directory for this user's settings")
            .because("neither XDG_CONFIG_HOME nor HOME is set")
            .try_next("set HOME")
    })?;
    Ok(base.join("cenote"))
}
