//! What a member of the group keeps on its disk: one file, which each change replaces.
//!
//! It is small: votes are rare, and so are views. A snapshot replaces the entries after some of them.

use std::path::Path;

use cenote_device::{StoreDir, StoreLock, sums};
use cenote_model::{Error, ErrorKind, Result};
use openraft::{Entry, LogId, SnapshotMeta, Vote};
use serde::{Deserialize, Serialize};

use super::types::{State, Types};

/// Name of the file, in the directory of a node's store.
pub const GROUP_FILE: &str = "register";
/// Name of the file whose lock says which process is the member.
pub const GROUP_LOCK_FILE: &str = "register.lock";

const MAGIC: [u8; 8] = *b"CNTGROUP";
const VERSION: u16 = 5;
/// Magic, version, checksum of what follows.
const HEAD_BYTES: usize = 8 + 2 + 4;
/// Longest file: some records of the greatest length.
const BYTES_MAX: usize = 128 << 20;

/// The member's memory of the group, and a snapshot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    pub vote: Option<Vote<u64>>,
    pub committed: Option<LogId<u64>>,
    pub purged: Option<LogId<u64>>,
    pub entries: Vec<Entry<Types>>,
    pub snapshot: Option<(SnapshotMeta<u64, openraft::EmptyNode>, State)>,
}

/// The file.
pub struct Disk {
    dir: StoreDir,
    _lock: StoreLock,
    pub kept: Kept,
}

impl Disk {
    /// Makes the file of a member that knows nothing, unless it is there. Only when a cluster is made: a member that has lost
    /// its file would vote a second time, so it is never made anew.
    pub fn make(dir: &Path) -> Result<()> {
        let store = StoreDir::open(dir)?;
        if store.read_bytes(GROUP_FILE, BYTES_MAX)?.is_some() {
            return Ok(());
        }
        write(&store, &Kept::default())
    }
    /// Opens the file. `Busy` if another process has it, `NotFound` if there is none.
    pub fn open(dir: &Path) -> Result<Self> {
        let Some(lock) = StoreLock::acquire_file(dir, GROUP_LOCK_FILE)? else {
            return Err(Error::new(ErrorKind::Busy, subject(dir))
                .because("another process has it")
                .try_next("ask that process: the daemon of this node"));
        };
        let store = StoreDir::open(dir)?;
        let Some(bytes) = store.read_bytes(GROUP_FILE, BYTES_MAX)? else {
            return Err(Error::new(ErrorKind::NotFound, subject(dir))
                .because("it was lost, or the node was made after the cluster")
                .try_next(
                    "the other nodes that keep the register go on without this one, as long as most of them are there",
                ));
        };
        let kept = decode(&subject(dir), &bytes)?;
        // A power failure could take back what is there, if the former process died between its two steps.
        write(&store, &kept)?;
        Ok(Self { dir: store, _lock: lock, kept })
    }
    /// Changes what is kept, durably. After an error nothing is to be promised any more.
    pub fn change(&mut self, change: impl FnOnce(&mut Kept)) -> Result<()> {
        change(&mut self.kept);
        write(&self.dir, &self.kept)
    }
}

fn write(dir: &StoreDir, kept: &Kept) -> Result<()> {
    dir.prepare(GROUP_FILE, &encode(&subject(dir.path()), kept)?)?;
    dir.put_in_place(GROUP_FILE)
}

fn subject(dir: &Path) -> String {
    format!("this node's part of the register, {}", dir.join(GROUP_FILE).display())
}

fn encode(subject: &str, kept: &Kept) -> Result<Vec<u8>> {
    let mut out = vec![0; HEAD_BYTES];
    serde_json::to_writer(&mut out, kept)
        .map_err(|error| Error::new(ErrorKind::Internal, subject).because(error.to_string()))?;
    let sum = sums::sum_of(&out[HEAD_BYTES..]);
    out[..8].copy_from_slice(&MAGIC);
    out[8..10].copy_from_slice(&VERSION.to_le_bytes());
    out[10..HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
    Ok(out)
}

fn decode(subject: &str, bytes: &[u8]) -> Result<Kept> {
    let wrong = |why: String| {
        Error::new(ErrorKind::Corrupt, subject)
            .because(why)
            .try_next("remove the file: the other nodes that keep the register go on without this one")
    };
    if bytes.len() < HEAD_BYTES || bytes[..8] != MAGIC {
        return Err(wrong("it does not begin as one".into()));
    }
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    if version != VERSION {
        return Err(Error::new(ErrorKind::VersionMismatch, subject)
            .because(format!("it has version {version}, this program reads {VERSION}"))
            .try_next("run the same version of Cenote on all nodes"));
    }
    let (head, body) = bytes.split_at(HEAD_BYTES);
    if head[10..] != sums::sum_of(body).to_le_bytes() {
        return Err(wrong("it does not match its checksum".into()));
    }
    serde_json::from_slice(body).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("cenote-group-disk-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn what_is_kept_comes_back() {
        let dir = fresh("back");
        assert_eq!(Disk::open(&dir).err().unwrap().kind(), ErrorKind::NotFound);
        Disk::make(&dir).unwrap();
        let mut disk = Disk::open(&dir).unwrap();
        assert_eq!(Disk::open(&dir).err().unwrap().kind(), ErrorKind::Busy);
        disk.change(|kept| kept.vote = Some(Vote::new(7, 2))).unwrap();
        drop(disk);
        // A second start does not forget the vote.
        Disk::make(&dir).unwrap();
        assert_eq!(Disk::open(&dir).unwrap().kept.vote, Some(Vote::new(7, 2)));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn damage_and_later_versions_are_named() {
        let dir = fresh("damage");
        Disk::make(&dir).unwrap();
        let good = std::fs::read(dir.join(GROUP_FILE)).unwrap();
        for at in [0, 10, HEAD_BYTES, good.len() - 1] {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            std::fs::write(dir.join(GROUP_FILE), &bytes).unwrap();
            assert_eq!(Disk::open(&dir).err().unwrap().kind(), ErrorKind::Corrupt, "byte {at}");
        }
        for len in [0, 5, HEAD_BYTES, good.len() - 1] {
            std::fs::write(dir.join(GROUP_FILE), &good[..len]).unwrap();
            assert_eq!(Disk::open(&dir).err().unwrap().kind(), ErrorKind::Corrupt, "{len} bytes");
        }
        let mut later = good;
        later[8] = 9;
        std::fs::write(dir.join(GROUP_FILE), &later).unwrap();
        assert_eq!(Disk::open(&dir).err().unwrap().kind(), ErrorKind::VersionMismatch);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
