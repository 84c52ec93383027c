//! The plugin of a store: a path in a file of its directory, so that every process that opens the store finds it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_device::StoreDir;
use cenote_model::{Error, ErrorKind, Result};
use cenote_store::Engine;
use rustix::fs::Mode;

use super::{PATIENCE, Plugin};

/// Name of the file with the path.
pub const PLUGIN_FILE: &str = "policy-plugin";

/// Sets the plugin for future openings of the store in `dir`; `None` removes it.
pub fn keep(dir: &Path, plugin: Option<&Path>) -> Result<()> {
    let dir = StoreDir::open(dir)?;
    let Some(path) = plugin else { return dir.remove(PLUGIN_FILE) };
    let path = std::path::absolute(path).map_err(|error| Error::io(path.display().to_string(), &error))?;
    dir.write_text(PLUGIN_FILE, &format!("{}\n", path.display()), Mode::RUSR | Mode::WUSR)
}

/// Loads the given plugin, which must work; without one, the plugin stored with the store. If that is missing, the
/// store opens without it and logs that.
pub(crate) fn load(engine: &mut Engine, dir: &Path, named: Option<&Path>) -> Result<()> {
    if let Some(path) = named {
        return engine.add_policy(Arc::new(Plugin::load(path, PATIENCE)?));
    }
    let Some(path) = kept(dir) else { return Ok(()) };
    let loaded = check_owner(&dir.join(PLUGIN_FILE))
        .and_then(|()| check_owner(&path))
        .and_then(|()| Plugin::load(&path, PATIENCE))
        .and_then(|plugin| engine.add_policy(Arc::new(plugin)));
    if let Err(error) = loaded {
        tracing::warn!(%error, "the policy plugin is not loaded; the store is served, and `fast-first` decides instead");
        engine.note_missing_policy(&path.display().to_string(), &error.to_string());
    }
    Ok(())
}

fn kept(dir: &Path) -> Option<PathBuf> {
    let text = StoreDir::open(dir).and_then(|dir| dir.read_text(PLUGIN_FILE)).unwrap_or_else(|error| {
        tracing::warn!(%error, "no policy plugin is looked for");
        None
    })?;
    let path = text.trim_end();
    (!path.is_empty()).then(|| PathBuf::from(path))
}

/// Refuses to run another user's code as this user.
fn check_owner(path: &Path) -> Result<()> {
    let owner = std::fs::metadata(path).map_err(|error| Error::io(path.display().to_string(), &error))?.uid();
    let me = rustix::process::geteuid().as_raw();
    if owner == 0 || owner == me {
        return Ok(());
    }
    Err(Error::new(ErrorKind::PermissionDenied, path.display().to_string())
        .because(format!(
            "it belongs to user {owner}, and this process runs as user {me}: it would run what others wrote"
        ))
        .try_next("name it on the command line: cenote serve --policy-plugin PATH"))
}
