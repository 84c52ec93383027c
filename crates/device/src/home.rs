//! The store directory of files in shared memory, and leftovers of stores that are gone.
//!
//! A store notes the path of its directory beside its segments. The caller decides whether that directory still
//! holds the store: this room does not know what makes a store.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cenote_model::{Error, Result, StoreId};

use crate::ClientFile;
use crate::StoreDir;
use crate::shared_memory::{PREFIX, find_store_dir, give_as, open_store_dir, store_of};

/// Name of the file that holds the path.
const FILE: &str = "home";

/// Shared memory that no process uses, of a store whose directory is gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Orphan {
    /// The store.
    pub store: StoreId,
    /// Its files in shared memory.
    pub path: PathBuf,
    /// Former directory of the store.
    pub home: PathBuf,
    /// Memory that the files take.
    pub bytes: u64,
}

fn io(path: &Path, error: &std::io::Error) -> Error {
    Error::io(path.display().to_string(), error)
}

/// Notes the path of a store's directory beside its segments.
pub fn note_home(base: &Path, store: StoreId, dir: &Path) -> Result<()> {
    let dir = dir.canonicalize().map_err(|error| io(dir, &error))?;
    let (_, memory) = open_store_dir(base, store, None)?;
    let file = memory.join(FILE);
    let noted = dir.as_os_str().as_bytes();
    if std::fs::read(&file).is_ok_and(|found| found == noted) {
        return Ok(());
    }
    let fresh = file.with_file_name(".new-home");
    let mut options = std::fs::OpenOptions::new();
    let write =
        |mut out: std::fs::File| out.write_all(noted).and_then(|()| Ok(give_as(&out, std::fs::File::open(&memory)?)?));
    let made = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh);
    made.and_then(write).and_then(|()| std::fs::rename(&fresh, &file)).map_err(|error| io(&file, &error))
}

/// Creates a store's directory in shared memory, if it has none, with the owner and group of the store: root must
/// not become the owner.
pub fn make_memory_dir(base: &Path, store: StoreId, of: &StoreDir) -> Result<()> {
    open_store_dir(base, store, Some(of.owner_and_group())).map(drop)
}

/// The directory of a store in shared memory, if it has one.
pub fn memory_dir(base: &Path, store: StoreId) -> Result<Option<PathBuf>> {
    Ok(find_store_dir(base, store)?.map(|(_, path)| path))
}

/// Returns true if shared memory has the control table of a store: it was opened since the machine was started.
pub fn has_table(base: &Path, store: StoreId) -> Result<bool> {
    Ok(memory_dir(base, store)?.is_some_and(|memory| memory.join(crate::control::TABLE_FILE).exists()))
}

/// Directory of a store when an engine last had it; `None` if the store's shared memory is gone.
pub fn noted(base: &Path, store: StoreId) -> Option<PathBuf> {
    let (_, memory) = find_store_dir(base, store).ok()??;
    let home = std::fs::read(memory.join(FILE)).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(&home)))
}

/// Deletes all shared memory of a store that is gone or being deleted.
pub fn remove_memory(base: &Path, store: StoreId) -> Result<()> {
    while let Some((_, path)) = find_store_dir(base, store)? {
        std::fs::remove_dir_all(&path).map_err(|error| io(&path, &error))?;
    }
    Ok(())
}

/// This user's stores in shared memory that no process uses and for whose directory `is_there` returns false.
pub fn orphans(base: &Path, is_there: impl Fn(&Path, StoreId) -> bool) -> Result<Vec<Orphan>> {
    let me = rustix::process::geteuid().as_raw();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(base).map_err(|error| io(base, &error))?.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let Some(store) = name.to_str().and_then(store_of) else { continue };
        let is_mine = entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == me);
        // Without a note the store is being created, or comes from an earlier version: it may still be needed.
        let Some(home) = std::fs::read(path.join(FILE)).ok().filter(|_| is_mine) else { continue };
        let home = PathBuf::from(OsStr::from_bytes(&home));
        if !is_there(&home, store) && !is_attached(&path) {
            let files = std::fs::read_dir(&path).into_iter().flatten().flatten();
            let bytes = files.filter_map(|file| file.metadata().ok()).map(|meta| meta.blocks() * 512).sum();
            found.push(Orphan { store, path, home, bytes });
        }
    }
    if !found.is_empty() {
        let used = mapped_below(base);
        found.retain(|orphan| !used.contains(&orphan.path));
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Returns true if a client's file names a live process.
fn is_attached(path: &Path) -> bool {
    let files = std::fs::read_dir(path).into_iter().flatten().flatten();
    files.filter(|file| file.file_name().as_bytes().starts_with(b"client-")).any(|file| {
        let opened = std::fs::OpenOptions::new().read(true).write(true).open(file.path());
        let client = opened.ok().and_then(|file| ClientFile::map(file.into()).ok());
        client.is_some_and(|client| client.is_held())
    })
}

/// Stores below `base` of which a visible process maps a file.
fn mapped_below(base: &Path) -> BTreeSet<PathBuf> {
    let prefix = base.join(PREFIX);
    let prefix = prefix.to_string_lossy().into_owned();
    let mut used = BTreeSet::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let is_process = process.file_name().as_bytes().iter().all(u8::is_ascii_digit);
        let Some(maps) = is_process.then(|| std::fs::read(process.path().join("maps")).ok()).flatten() else {
            continue;
        };
        for line in String::from_utf8_lossy(&maps).lines() {
            if let Some(at) = line.find(&prefix) {
                let file = Path::new(line[at..].trim_end_matches(" (deleted)"));
                used.extend(file.parent().map(Path::to_path_buf));
            }
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Control, SharedControl};

    #[test]
    fn only_what_nobody_needs_is_an_orphan() {
        let base = std::env::temp_dir().join(format!("cenote-home-{}", std::process::id()));
        let home = base.join("store");
        std::fs::create_dir_all(&home).unwrap();
        let control = SharedControl::new(&base);
        let store = StoreId(0x77);
        control.attach(store).unwrap();
        let gone = |_: &Path, _: StoreId| false;
        assert_eq!(orphans(&base, gone).unwrap(), [], "no note yet");
        note_home(&base, store, &home).unwrap();
        assert_eq!(orphans(&base, gone).unwrap(), [], "this process maps its table");
        drop(control);
        assert_eq!(orphans(&base, |_, _| true).unwrap(), []);
        let found = orphans(&base, gone).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].store, &found[0].home), (store, &home.canonicalize().unwrap()));
        assert!(found[0].bytes > 0);
        remove_memory(&base, store).unwrap();
        remove_memory(&base, store).unwrap();
        assert_eq!(orphans(&base, gone).unwrap(), []);
        std::fs::remove_dir_all(&base).unwrap();
    }
}
