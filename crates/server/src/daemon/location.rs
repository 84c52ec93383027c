//! Where the home of a node lies: in the node's directory, until another node had it and gave it back. Then it lies in the
//! copy that the other node sent, in a directory below. There are two of these, so that a further copy can come while one
//! is open.

use std::path::{Path, PathBuf};

use cenote_cluster::Members;
use cenote_device::{Devices, StoreDir, SystemDevices, home, store_dir};
use cenote_host::home::shm_base;
use cenote_model::{Error, ErrorKind, HomeId, Result, StoreId};
use cenote_store::Engine;
use rustix::fs::Mode;

use crate::metadata;

/// Name of the file in a node's directory that names the directory of its home, if that is another one.
const POINTER_FILE: &str = "home-is-in";
/// Name of the file in a home's directory with the term in which this node became its host.
const TERM_FILE: &str = "term";
/// Name of the file that says that a copy is complete; it holds a number that grows with each copy.
const COMPLETE_FILE: &str = "copy-is-complete";
/// Name of the file in a node's directory that says that another node has its home, in the pool that all nodes reach.
const AWAY_FILE: &str = "home-is-away";
/// Name of the file in a node's directory that says that the node's own home was lost with the memory of its machine, until it is
/// served again: the daemon may be started several times before.
pub(super) const LOST_FILE: &str = "home-was-lost";
/// The directories that a home is copied to, in turns.
const TURNS: [&str; 2] = ["", "-again"];

/// The directory of a copy of a home, and of its shared memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CopyPlace {
    /// Files, and tiers that are not memory.
    pub dir: PathBuf,
    /// Base of shared memory.
    pub base: PathBuf,
}

impl CopyPlace {
    /// The place with a name in a node's directory, whose shared memory is in `memory`.
    fn named(dir: &Path, memory: &Path, name: &str) -> Self {
        Self { dir: dir.join(name), base: memory.join(name) }
    }
    /// The places of copies of a home. One that is this node's own may lie in one of them already, which is left out.
    pub fn all(dir: &Path, memory: &Path, home: HomeId) -> Result<Vec<Self>> {
        let now = pointer(dir)?;
        let names = TURNS.iter().map(|turn| format!("copy-{home}{turn}"));
        Ok(names.filter(|name| now.as_ref() != Some(name)).map(|name| Self::named(dir, memory, &name)).collect())
    }
    /// Where a home is opened that lies in a pool.
    pub fn of_shared(dir: &Path, memory: &Path, home: HomeId) -> Self {
        Self::named(dir, memory, &format!("copy-{home}{}", TURNS[0]))
    }
    /// The complete copy of a home, the later one if there are two; `None` if there is none.
    pub fn complete(dir: &Path, memory: &Path, home: HomeId) -> Result<Option<Self>> {
        let all = Self::all(dir, memory, home)?.into_iter();
        Ok(all.filter_map(|place| Some((place.completed()?, place))).max_by_key(|(turn, _)| *turn).map(|(_, it)| it))
    }
    /// Where the next copy of a home goes: a complete one stays until the next one is.
    pub fn spare(dir: &Path, memory: &Path, home: HomeId) -> Result<Self> {
        let complete = Self::complete(dir, memory, home)?;
        let spare = Self::all(dir, memory, home)?.into_iter().find(|place| Some(place) != complete.as_ref());
        // The own home lies in the other one: what came after that, and is not open, is older.
        let spare = spare.or(complete);
        spare.ok_or_else(|| Error::new(ErrorKind::Internal, format!("a place for a copy of home {home}")))
    }
    /// The number of a complete copy, which grows; `None` if it is not complete, or is one no more: nothing of a copy is
    /// synced that was not opened here, so none outlives the memory of the machine.
    fn completed(&self) -> Option<u64> {
        self.was_complete().filter(|_| self.was_opened() || self.base.is_dir())
    }
    fn was_complete(&self) -> Option<u64> {
        std::fs::read_to_string(self.dir.join(COMPLETE_FILE)).ok()?.trim().parse().ok()
    }
    /// Returns true if this node was the home's host here: what its engine synced survives.
    fn was_opened(&self) -> bool {
        self.dir.join(TERM_FILE).exists()
    }
    /// Returns true if there was a complete copy of a home, and some of it went with the memory of the machine.
    pub fn was_lost(dir: &Path, memory: &Path, home: HomeId) -> Result<bool> {
        Ok(Self::all(dir, memory, home)?.iter().any(|place| place.was_complete().is_some() && !place.base.is_dir()))
    }
    /// Makes a copy one that can be opened by the host of its home in a term: from now on what is told to be synced has to be,
    /// so all that was written before is synced, too.
    pub fn prepare(&self, term: u64) -> Result<()> {
        sync_all(&self.dir)?;
        make_dir(&self.base)?;
        note_term(&self.dir, term)
    }
    /// Notes that the copy is complete, and deletes the former one.
    pub fn note_complete(&self, dir: &Path, memory: &Path, home: HomeId) -> Result<()> {
        let former = Self::complete(dir, memory, home)?.filter(|former| former != self);
        let number = former.as_ref().and_then(Self::completed).unwrap_or(0) + 1;
        write(&self.dir.join(COMPLETE_FILE), &number.to_string())?;
        former.map_or(Ok(()), |former| former.remove())
    }
    /// Notes that it is not, or not any more.
    pub fn note_incomplete(&self) -> Result<()> {
        match std::fs::remove_file(self.dir.join(COMPLETE_FILE)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(fail(&self.dir, &error)),
            _ => Ok(()),
        }
    }
    /// Makes it empty.
    pub fn make_anew(&self, store: StoreId) -> Result<()> {
        self.remove()?;
        make_dir(&self.dir)?;
        self.make_memory(store)
    }
    /// Makes the directories for its shared memory, if they are absent: those of a machine that was started anew.
    pub fn make_memory(&self, store: StoreId) -> Result<()> {
        make_dir(&self.base)?;
        home::make_memory_dir(&self.base, store, &StoreDir::open(&self.dir)?)
    }
    /// Deletes it.
    pub fn remove(&self) -> Result<()> {
        self.note_incomplete()?;
        for dir in [&self.dir, &self.base] {
            match std::fs::remove_dir_all(dir) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(dir, &error)),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The place of a node's home; `None` if it is the node's directory itself.
pub(super) fn find(dir: &Path) -> Result<Option<CopyPlace>> {
    let Some(name) = pointer(dir)? else { return Ok(None) };
    let store = Engine::peek(&metadata::look(&dir.join(&name))?)?.id;
    home::make_memory_dir(&shm_base(), store, &StoreDir::open(dir)?)?;
    let memory = home::memory_dir(&shm_base(), store)?.unwrap_or_else(shm_base);
    let place = CopyPlace::named(dir, &memory, &name);
    place.make_memory(store)?;
    Ok(Some(place))
}

/// The directory of a node's home.
pub(super) fn dir_of_home(dir: &Path) -> Result<PathBuf> {
    Ok(pointer(dir)?.map_or_else(|| dir.to_path_buf(), |name| dir.join(name)))
}

/// The term in which this node became the host of the home in a directory; `None` if it never was noted.
pub(super) fn term(home_dir: &Path) -> Result<Option<u64>> {
    let path = home_dir.join(TERM_FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map(Some).map_err(|_| {
            Error::new(ErrorKind::Corrupt, path.display().to_string())
                .because("it holds no number")
                .try_next("`cenote ha` shows which node is the host of this home, and in which term")
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fail(&path, &error)),
    }
}

/// Notes it.
pub(super) fn note_term(home_dir: &Path, term: u64) -> Result<()> {
    write(&home_dir.join(TERM_FILE), &term.to_string())
}

/// Notes whether another node has the home of this one, in the pool that all nodes reach.
pub(super) fn note_away(dir: &Path, is_away: bool) -> Result<()> {
    if is_away {
        return write(&dir.join(AWAY_FILE), "");
    }
    match std::fs::remove_file(dir.join(AWAY_FILE)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(fail(dir, &error)),
        _ => Ok(()),
    }
}

/// Returns true if that was noted.
pub(super) fn is_away(dir: &Path) -> bool {
    dir.join(AWAY_FILE).exists()
}

/// Lets the node's home lie in a complete copy of it from the next start on.
pub(super) fn move_to(dir: &Path, copy: &CopyPlace, term: u64) -> Result<()> {
    copy.prepare(term)?;
    let name = copy.dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    write(&dir.join(POINTER_FILE), name)
}

/// Syncs all files below a directory, and the directories.
fn sync_all(dir: &Path) -> Result<()> {
    let failed = |error: std::io::Error| fail(dir, &error);
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            sync_all(&entry.path())?;
        } else if kind.is_file() {
            let path = entry.path();
            let synced = std::fs::File::open(&path).and_then(|file| file.sync_all());
            match synced {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(&path, &error)),
                _ => {}
            }
        }
    }
    std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)
}

/// Deletes all copies of homes in a node's directory, and the notes about them: its store is being deleted. Their memory
/// goes with that of the store.
pub(crate) fn forget(dir: &Path, members: &Members) -> Result<()> {
    for home in members.homes() {
        for turn in TURNS {
            let copy = dir.join(format!("copy-{home}{turn}"));
            match std::fs::remove_dir_all(&copy) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(&copy, &error)),
                _ => {}
            }
        }
    }
    let _ = [POINTER_FILE, TERM_FILE, AWAY_FILE, LOST_FILE].map(|name| std::fs::remove_file(dir.join(name)));
    Ok(())
}

/// Deletes what lies where the node's home was before. Errors leave it there.
pub(super) fn clear_former(dir: &Path, members: &Members) -> Result<()> {
    let Some(name) = pointer(dir)? else { return Ok(()) };
    let Ok(old) = Engine::peek(&metadata::look(dir)?) else { return Ok(()) };
    let devices = SystemDevices::default();
    for (id, spec) in old.ids.iter().zip(&old.devices).filter(|(_, spec)| !spec.kind.is_object()) {
        devices.remove(old.id, *id, spec)?;
    }
    let memory = home::memory_dir(&shm_base(), old.id)?.unwrap_or_else(shm_base);
    for turn in TURNS {
        let other = format!("copy-{}{turn}", members.home);
        if other != name {
            CopyPlace::named(dir, &memory, &other).remove()?;
        }
    }
    Ok(())
}

fn pointer(dir: &Path) -> Result<Option<String>> {
    let path = dir.join(POINTER_FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let name = text.trim();
            // Only a directory below: the file says no more.
            if name.starts_with("copy-") && !name.contains(['/', '\0']) {
                return Ok(Some(name.to_owned()));
            }
            Err(Error::new(ErrorKind::Corrupt, path.display().to_string())
                .because("it names no copy of the home")
                .try_next("write the name of the directory `copy-…` that has the home, or delete the file"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fail(&path, &error)),
    }
}

fn make_dir(dir: &Path) -> Result<()> {
    store_dir::make_private_dir(dir, Mode::RWXU).map_err(|error| fail(dir, &error))
}

/// Replaces a small file.
fn write(path: &Path, text: &str) -> Result<()> {
    let fresh = path.with_extension("new");
    let written = std::fs::File::create(&fresh).and_then(|mut file| {
        std::io::Write::write_all(&mut file, text.as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| std::fs::rename(&fresh, path)).map_err(|error| fail(path, &error))
}

#[cold]
fn fail(path: &Path, error: &std::io::Error) -> Error {
    Error::io(path.display().to_string(), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_take_turns() {
        let dir = std::env::temp_dir().join(format!("cenote-location-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (home, memory) = (HomeId(2), dir.join("memory"));
        let spare = || CopyPlace::spare(&dir, &memory, home).unwrap();
        let complete = || CopyPlace::complete(&dir, &memory, home).unwrap();
        let first = spare();
        assert!(first.dir.ends_with("copy-n2") && complete().is_none());
        std::fs::create_dir_all(&first.base).unwrap();
        make_dir(&first.dir).unwrap();
        first.note_complete(&dir, &memory, home).unwrap();
        assert_eq!(complete(), Some(first.clone()));
        let second = spare();
        assert!(second.dir.ends_with("copy-n2-again"));
        std::fs::create_dir_all(&second.base).unwrap();
        make_dir(&second.dir).unwrap();
        assert_eq!(complete(), Some(first.clone()), "until the next one is complete");
        second.note_complete(&dir, &memory, home).unwrap();
        assert!(complete() == Some(second.clone()) && !first.dir.exists());
        // A copy ends with the memory of the machine, until this node was the home's host there.
        let was_lost = || CopyPlace::was_lost(&dir, &memory, home).unwrap();
        assert!(!was_lost());
        std::fs::remove_dir(&second.base).unwrap();
        assert!(was_lost() && complete().is_none());
        second.prepare(3).unwrap();
        std::fs::remove_dir(&second.base).unwrap();
        assert!(was_lost() && complete() == Some(second.clone()));
        // The own home lies in it from now on.
        assert_eq!(dir_of_home(&dir).unwrap(), dir);
        move_to(&dir, &second, 5).unwrap();
        assert_eq!((dir_of_home(&dir).unwrap(), term(&second.dir).unwrap()), (second.dir.clone(), Some(5)));
        assert!(complete().is_none() && spare() == first);
        for bad in ["../elsewhere", "", "copy-/x"] {
            std::fs::write(dir.join(POINTER_FILE), bad).unwrap();
            assert_eq!(pointer(&dir).unwrap_err().kind(), ErrorKind::Corrupt, "{bad}");
        }
        std::fs::write(second.dir.join(TERM_FILE), "five").unwrap();
        assert_eq!(term(&second.dir).unwrap_err().kind(), ErrorKind::Corrupt);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
