//! The identity of a store's directory, which tells a copy of the directory from the store itself.
//!
//! A copy names the same tiers as the original. An engine on it would read and write where the original's engine does,
//! and give out as free what the other one uses. So a file in the directory holds the directory's own inode number and
//! birth time, which no copy has. And shared memory, which is outside of the directory, notes the state of the
//! directory that it agrees with: a directory restored from an older copy must not use what later programs left in
//! memory.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_device::object::ClaimNotes;
use cenote_device::{MetaDir, StoreDir, SystemDevices, sums};
use cenote_model::{Error, ErrorKind, Result, StoreId};
use cenote_store::{Engine, StoreSummary};
use rustix::fs::{AtFlags, Mode, StatxFlags};

use crate::metadata::{self, Metadata};

/// Name of the file in the store's directory.
pub(crate) const IDENTITY_FILE: &str = "identity";
const MAGIC: &str = "cenote-identity 1";
/// Beside the segments in shared memory: the directory's files at the last engine's time.
const MEMORY_FILE: &str = "agrees-with";

/// The identity of a store directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub store: StoreId,
    pub inode: u64,
    /// Birth time of the directory in nanoseconds since 1970; 0 if the file system does not report it.
    pub born_ns: i128,
    /// Set while the directory is being made a store of its own with this id; it is no store until that is complete.
    pub becomes: Option<StoreId>,
    /// The directory's last path. Tiers in the directory move along with it.
    pub path: PathBuf,
}

impl Identity {
    /// The identity of the directory as it is.
    pub fn here(dir: &Path, store: StoreId) -> Result<Self> {
        let path = dir.canonicalize().map_err(|error| Error::io(dir.display().to_string(), &error))?;
        let flags = StatxFlags::INO | StatxFlags::BTIME;
        let stat = rustix::fs::statx(rustix::fs::CWD, &path, AtFlags::empty(), flags)
            .map_err(|errno| Error::io(dir.display().to_string(), &errno.into()))?;
        let born = i128::from(stat.stx_btime.tv_sec) * 1_000_000_000 + i128::from(stat.stx_btime.tv_nsec);
        let known = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        Ok(Self { store, inode: stat.stx_ino, born_ns: if known { born } else { 0 }, becomes: None, path })
    }
    /// Returns true if both are of one directory. Some file systems change inode numbers with each mount; then the path
    /// decides.
    pub fn is_same_directory(&self, other: &Self) -> bool {
        let born_known = self.born_ns != 0 && other.born_ns != 0;
        (self.inode == other.inode || self.path == other.path) && (!born_known || self.born_ns == other.born_ns)
    }
    fn encode(&self) -> Vec<u8> {
        let becomes = self.becomes.map_or(String::new(), |becomes| format!("becomes {becomes}\n"));
        let fields = format!("store {}\ninode {}\nborn {}\n{becomes}", self.store, self.inode, self.born_ns);
        let mut body = fields.into_bytes();
        body.extend_from_slice(b"path ");
        body.extend_from_slice(self.path.as_os_str().as_bytes());
        let mut bytes = format!("{MAGIC}\nsum {:08x}\n", sums::sum_of(&body)).into_bytes();
        bytes.extend_from_slice(&body);
        bytes
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC.as_bytes())?.strip_prefix(b"\nsum ")?;
        let (sum, body) = (std::str::from_utf8(rest.get(..8)?).ok()?, rest.get(8..)?.strip_prefix(b"\n")?);
        if u32::from_str_radix(sum, 16).ok()? != sums::sum_of(body) {
            return None;
        }
        let at = body.windows(6).position(|window| window == b"\npath ")?;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(&body[at + 6..]));
        let fields = std::str::from_utf8(&body[..at]).ok()?;
        let field = |name: &str| fields.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Some(Self {
            store: field("store")?.parse().ok()?,
            inode: field("inode")?.parse().ok()?,
            born_ns: field("born")?.parse().ok()?,
            becomes: field("becomes").map(str::parse).transpose().ok()?,
            path,
        })
    }
    /// Reads the identity file; `None` if there is none, as in directories of earlier versions.
    pub fn read(meta: &dyn MetaDir, dir: &Path) -> Result<Option<Self>> {
        match meta.read_file(IDENTITY_FILE) {
            Ok(bytes) => Self::decode(&bytes).map(Some).ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, dir.join(IDENTITY_FILE).display().to_string())
                    .because("it is damaged, or of a later version")
                    .try_next("if this directory is the only one of its store, delete the file")
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
    pub fn write(&self, meta: &dyn MetaDir) -> Result<()> {
        meta.write_file(IDENTITY_FILE, &self.encode())
    }
}

/// The result of comparing a directory with its identity file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// The store's own directory, perhaps moved.
    Own,
    /// A copy of a directory that still exists.
    CopyOf(PathBuf),
    /// A copy without an existing original: copied, restored, or moved to another file system.
    Lone(PathBuf),
    /// A copy that is being made a store of its own.
    HalfCloned,
}

/// Compares the directory of a store with its identity file; returns that identity, or for lack of one the actual
/// identity.
pub(crate) fn standing(dir: &Path, meta: &dyn MetaDir, summary: &StoreSummary) -> Result<(Standing, Identity)> {
    let here = Identity::here(dir, summary.id)?;
    let Some(said) = Identity::read(meta, dir)? else {
        // Of an earlier version. The last directory that used its shared memory is known, if that memory exists.
        let noted = cenote_device::home::noted(&cenote_host::home::shm_base(), summary.id);
        let standing = match noted {
            Some(path) if is_another(&path, &here) => Standing::CopyOf(path),
            _ => Standing::Own,
        };
        return Ok((standing, here));
    };
    let standing = if said.becomes.is_some() {
        Standing::HalfCloned
    } else if said.store == summary.id && said.is_same_directory(&here) {
        Standing::Own
    } else if is_another(&said.path, &here) {
        Standing::CopyOf(said.path.clone())
    } else {
        Standing::Lone(said.path.clone())
    };
    Ok((standing, said))
}

/// Returns true if the directory at `path` holds the store and is not this directory.
fn is_another(path: &Path, here: &Identity) -> bool {
    let found = metadata::look(path).and_then(|meta| Engine::peek(&meta));
    found.is_ok_and(|found| found.id == here.store)
        && Identity::here(path, here.store).is_ok_and(|there| !there.is_same_directory(here))
}

/// Refuses a copy, and a directory whose shared memory belongs to another state of it. Updates the path of a moved
/// directory.
pub(crate) fn enter(dir: &Path, meta: &Metadata, summary: &StoreSummary) -> Result<()> {
    let (standing, said) = standing(dir, meta.local.as_ref(), summary)?;
    let refuse = |why: String, next: String| {
        Err(Error::new(ErrorKind::InvalidInput, format!("store {}", dir.display())).because(why).try_next(next))
    };
    let (clone, adopt) = (format!("`cenote clone {}`", dir.display()), format!("`cenote adopt {}`", dir.display()));
    let own = match summary.devices.iter().find(|device| device.kind.is_object()) {
        None => format!("{clone} makes a store of its own of the copy"),
        Some(tier) => format!(
            "a store of its own needs tiers of its own (`cenote init`), since `cenote clone` cannot copy tier `{}`, which is \
             in a bucket",
            tier.name
        ),
    };
    match standing {
        Standing::CopyOf(path) => refuse(
            format!("this directory is a copy of the store in {}, and names the same tiers", path.display()),
            format!("open that one; {own}"),
        ),
        Standing::Lone(path) => refuse(
            format!(
                "this directory is not the one that the store was in ({}): it was copied, restored, or moved to \
                 another file system",
                path.display()
            ),
            format!("{adopt} if that one is gone; {own}"),
        ),
        Standing::HalfCloned => refuse(
            "making a store of its own of this copy was interrupted".into(),
            format!("{clone} brings it to its end"),
        ),
        Standing::Own if !memory_agrees(dir, summary.id) => refuse(
            "its memory tier was last used with another state of this directory: it was restored from a copy, or a copy of it \
             was opened"
                .into(),
            format!("{adopt} takes the directory as it is, and gives up what is in memory alone"),
        ),
        Standing::Own => settle(dir, meta, &said),
    }
}

/// The notes of the store's claims in object services.
pub(crate) fn notes(dir: &Path, meta: &Arc<dyn MetaDir>) -> Result<ClaimNotes> {
    let path = dir.canonicalize().map_err(|error| Error::io(dir.display().to_string(), &error))?;
    Ok(ClaimNotes::new(Arc::clone(meta), path))
}

/// Deletes the notes of claims.
pub(crate) fn forget_claims(meta: &dyn MetaDir) -> Result<()> {
    let names = meta.list()?;
    names.iter().filter(|name| ClaimNotes::is_file_name(name)).try_for_each(|name| meta.remove(name))
}

/// Refuses to destroy a store in a copied directory: its tiers may belong to the original.
pub(crate) fn may_destroy(dir: &Path, meta: &Metadata, summary: &StoreSummary) -> Result<()> {
    let (standing, said) = standing(dir, meta.local.as_ref(), summary)?;
    if standing == Standing::Own {
        return settle(dir, meta, &said);
    }
    Err(Error::new(ErrorKind::InvalidInput, format!("store {}", dir.display()))
        .because(format!("this directory is a copy of {}, whose tiers it names", said.path.display()))
        .try_next(
            "to be rid of the copy alone, delete its directory by hand; `cenote adopt DIR` if the original is gone",
        ))
}

/// Makes the directory the store's from now on; tiers in it move along.
pub(crate) fn settle(dir: &Path, meta: &Metadata, said: &Identity) -> Result<()> {
    let here = Identity::here(dir, said.store)?;
    if said.path != here.path {
        Engine::move_devices(meta.files.as_ref(), &said.path, &here.path)?;
    }
    let local = meta.local.as_ref();
    let is_noted = Identity::read(local, dir).is_ok_and(|noted| noted.as_ref() == Some(&here));
    if is_noted { Ok(()) } else { here.write(local) }
}

/// The state of a file: name, inode number, size, and time of its last change.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    name: String,
    inode: u64,
    bytes: u64,
    changed_ns: i128,
}

impl Seen {
    /// The newest of the files whose names consist of this prefix and a number.
    fn newest(dir: &StoreDir, prefix: &str) -> Option<Self> {
        let entries = rustix::fs::Dir::read_from(dir).ok()?.flatten();
        let names = entries.filter_map(|entry| entry.file_name().to_str().ok().map(ToOwned::to_owned));
        Self::of(dir, &names.filter(|name| name.starts_with(prefix)).max_by_key(|name| (name.len(), name.clone()))?)
    }
    fn of(dir: &StoreDir, name: &str) -> Option<Self> {
        let found = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let changed_ns = i128::from(found.st_mtime) * 1_000_000_000 + i128::from(found.st_mtime_nsec);
        let bytes = u64::try_from(found.st_size).ok()?;
        Some(Self { name: name.to_owned(), inode: found.st_ino, bytes, changed_ns })
    }
    fn line(&self) -> String {
        format!("{} {} {} {}\n", self.name, self.inode, self.bytes, self.changed_ns)
    }
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (name, inode, bytes) = (words.next()?.to_owned(), words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { name, inode, bytes, changed_ns: words.next()?.parse().ok()? })
    }
}

/// Notes beside the store's shared memory which state of the directory it agrees with. `closed`: nothing changes any
/// more.
pub(crate) fn note_memory(dir: &Path, store: StoreId, closed: bool) {
    let Ok(dir) = StoreDir::look(dir) else { return };
    let Some(journal) = Seen::newest(&dir, "journal-") else { return };
    let mut text = journal.line();
    if let Some(checkpoint) = Seen::newest(&dir, "checkpoint-").filter(|_| closed) {
        text.push_str(&checkpoint.line());
    }
    let Some(memory) = SystemDevices::default().store_dir(store) else { return };
    let noted =
        StoreDir::open(&memory).and_then(|memory| memory.write_text(MEMORY_FILE, &text, Mode::RUSR | Mode::WUSR));
    if let Err(error) = noted {
        tracing::warn!(%error, "a directory that is restored from a copy will not be told from this one");
    }
}

/// Returns true unless the shared memory of a store is known to belong to another state of the directory.
///
/// A journal's file is created once and never replaced, and is deleted only when there is a later one. A copy has other
/// files, but a copy of a cleanly closed store agrees as long as the last checkpoint is the same.
pub(crate) fn memory_agrees(dir: &Path, store: StoreId) -> bool {
    let Some(memory) = SystemDevices::default().store_dir(store) else { return true };
    let noted = StoreDir::open(&memory).and_then(|memory| memory.read_text(MEMORY_FILE));
    let (Ok(Some(noted)), Ok(dir)) = (noted, StoreDir::look(dir)) else { return true };
    let mut noted = noted.lines().map(Seen::parse);
    let Some(journal) = noted.next().flatten() else { return true };
    if let Some(checkpoint) = noted.next().flatten()
        && let Some(newest) = Seen::newest(&dir, "checkpoint-")
        && (newest.bytes, newest.changed_ns, &newest.name)
            == (checkpoint.bytes, checkpoint.changed_ns, &checkpoint.name)
    {
        return true;
    }
    match Seen::of(&dir, &journal.name) {
        Some(found) => found.inode == journal.inode,
        None => Seen::newest(&dir, "journal-").is_some_and(|newest| newest.name > journal.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_comes_back_as_written_and_damage_is_noticed() {
        let here = Identity::here(&std::env::temp_dir(), StoreId(77)).unwrap();
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(b"/a\npath \xff/b"));
        for identity in [here.clone(), Identity { becomes: Some(StoreId(78)), path, ..here }] {
            let bytes = identity.encode();
            assert_eq!(Identity::decode(&bytes), Some(identity));
            for at in 0..bytes.len() {
                let mut bad = bytes.clone();
                bad[at] ^= 2;
                assert_eq!(Identity::decode(&bad), None, "byte {at}");
            }
        }
    }

    #[test]
    fn directories_are_told_apart_and_known_again() {
        let here = Identity { store: StoreId(1), inode: 5, born_ns: 9, becomes: None, path: "/p".into() };
        let with = |inode, born_ns, path: &str| Identity { inode, born_ns, path: path.into(), ..here.clone() };
        assert!(here.is_same_directory(&with(5, 9, "/moved")));
        assert!(here.is_same_directory(&with(6, 9, "/p")), "numbers change with mounts");
        assert!(here.is_same_directory(&with(6, 0, "/p")));
        assert!(!here.is_same_directory(&with(5, 8, "/p")), "made anew in the same place");
        assert!(!here.is_same_directory(&with(6, 8, "/copy")));
        assert!(!here.is_same_directory(&with(6, 9, "/elsewhere")));
    }
}
