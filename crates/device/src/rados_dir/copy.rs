//! The local copy of a store's files, and the note beside it that says how far it can be trusted.
//!
//! What a process wrote into a log survives its death here, and is in the pool only from the next sync on. So the copy is
//! *whole* if the machine was not restarted since, and nobody else had the store.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cenote_model::{Error, Result};
use rustix::fs::Mode;

use super::head::Record;
use super::tenure::Tenure;
use crate::header::boot_id;
use crate::store_dir::make_private_dir;
use crate::sums::sum_of;
use crate::{FsMetaDir, MetaDir, StoreDir};

const MAGIC: &str = "cenote-copy 1";
/// Added to the name of the copy's directory: its note, and the copy that was set aside last.
const NOTE: &str = "-note";
const ASIDE: &str = "-before";

/// The copy.
pub(super) struct LocalCopy {
    pub files: FsMetaDir,
    local: PathBuf,
}

/// The note beside it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Note {
    /// The boot in which it is whole; empty if it is not.
    boot: String,
    term: u64,
    /// Openings to which it belongs. An opening that does not know yet whether it has the store is among them.
    nonces: Vec<String>,
}

impl Note {
    fn encode(&self) -> String {
        let mut body = format!("boot {}\nterm {}\n", self.boot, self.term);
        for nonce in &self.nonces {
            body.push_str("opening ");
            body.push_str(nonce);
            body.push('\n');
        }
        format!("{MAGIC}\nsum {:08x}\n{body}", sum_of(body.as_bytes()))
    }
    fn decode(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(MAGIC)?.strip_prefix("\nsum ")?;
        let (sum, body) = (rest.get(..8)?, rest.get(8..)?.strip_prefix('\n')?);
        (u32::from_str_radix(sum, 16).ok()? == sum_of(body.as_bytes())).then_some(())?;
        let mut note = Self::default();
        for line in body.lines() {
            match line.split_once(' ')? {
                ("boot", boot) => boot.clone_into(&mut note.boot),
                ("term", term) => note.term = term.parse().ok()?,
                ("opening", nonce) => note.nonces.push(nonce.to_owned()),
                _ => return None,
            }
        }
        Some(note)
    }
    /// Reads it. One that is damaged or absent says that the copy belongs to nobody: the pool has everything synced.
    fn read(local: &Path) -> Self {
        let read = || StoreDir::look(parent(local)).ok()?.read_text(&beside(local, NOTE)).ok()?;
        read().and_then(|text| Self::decode(&text)).unwrap_or_default()
    }
    fn write(&self, local: &Path) -> Result<()> {
        let mode = Mode::RUSR | Mode::WUSR;
        StoreDir::open(parent(local))?.write_text(&beside(local, NOTE), &self.encode(), mode)
    }
}

fn parent(local: &Path) -> &Path {
    local.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Name of a file beside the copy.
fn beside(local: &Path, added: &str) -> String {
    let mut name = local.file_name().map_or_else(OsString::new, ToOwned::to_owned);
    name.push(added);
    name.to_string_lossy().into_owned()
}

fn this_boot() -> String {
    format!("{:032x}", u128::from_be_bytes(boot_id()))
}

/// The term of the last opening by the directory that has a copy at `local`; `None` if there was none.
pub fn term_noted(local: &Path) -> Option<u64> {
    Some(Note::read(local).term).filter(|term| *term > 0)
}

impl LocalCopy {
    /// Returns true if the copy's directory made this opening.
    pub fn belongs_to(local: &Path, nonce: &str) -> bool {
        Note::read(local).nonces.iter().any(|known| known == nonce)
    }
    /// Returns true if the copy has all that the process of this opening wrote.
    pub fn is_whole(local: &Path, nonce: &str) -> bool {
        Self::belongs_to(local, nonce) && Note::read(local).boot == this_boot()
    }
    /// Notes an opening before it is sent to the pool.
    pub fn expect(local: &Path, nonce: &str) -> Result<()> {
        let mut note = Note::read(local);
        note.nonces.push(nonce.to_owned());
        note.write(local)
    }
    /// Begins an empty copy.
    pub fn fresh(local: &Path, tenure: &Tenure) -> Result<Self> {
        let (term, nonces) = (tenure.term, vec![tenure.nonce.clone()]);
        Note { boot: String::new(), term, nonces }.write(local)?;
        make_private_dir(local, Mode::RWXU).map_err(|error| Error::io(local.display().to_string(), &error))?;
        let copy = Self::again(local)?;
        for name in copy.files.list()? {
            copy.files.remove(&name)?;
        }
        Ok(copy)
    }
    /// Opens the copy that is there.
    pub fn again(local: &Path) -> Result<Self> {
        make_private_dir(local, Mode::RWXU).map_err(|error| Error::io(local.display().to_string(), &error))?;
        Ok(Self { files: FsMetaDir::open(local)?, local: local.to_owned() })
    }
    /// Notes that the copy is whole from here on.
    pub fn note(&self, tenure: &Tenure) -> Result<()> {
        Note { boot: this_boot(), term: tenure.term, nonces: vec![tenure.nonce.clone()] }.write(&self.local)
    }
    /// Returns true if the copy has these bytes of a file.
    pub fn has(&self, name: &str, record: &Record) -> bool {
        self.files.read_file(name).is_ok_and(|bytes| record.matches(&bytes))
    }
    /// Moves a copy that is not to be used out of the way; the one that was moved before it is removed.
    pub fn set_aside(local: &Path, subject: &str) -> Result<()> {
        let note = Note::read(local);
        Note { boot: String::new(), ..note }.write(local)?;
        if !super::has_copy(local) {
            return Ok(());
        }
        let aside = local.with_file_name(beside(local, ASIDE));
        let io = |error: std::io::Error| Error::io(aside.display().to_string(), &error);
        match std::fs::remove_dir_all(&aside) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        std::fs::rename(local, &aside).map_err(io)?;
        tracing::warn!(
            home = %subject, aside = %aside.display(),
            "the local copy may lack what the store has by now, or have what it lost: it was moved, and is fetched anew"
        );
        Ok(())
    }
    /// Removes the copy and what is beside it.
    pub fn destroy(&self) -> Result<()> {
        forget_copy(&self.local)
    }
}

/// Removes the copy at `local` and what is beside it, if they are there.
pub fn forget_copy(local: &Path) -> Result<()> {
    for dir in [local, &local.with_file_name(beside(local, ASIDE))] {
        match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(dir.display().to_string(), &error));
            }
            _ => {}
        }
    }
    StoreDir::open(parent(local))?.remove(&beside(local, NOTE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back_and_damage_makes_it_nobodys() {
        let nonces = vec!["aa".to_owned(), "bb".to_owned()];
        let note = Note { boot: this_boot(), term: 7, nonces };
        let text = note.encode();
        assert_eq!(Note::decode(&text), Some(note));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert_eq!(String::from_utf8(bytes).ok().and_then(|bad| Note::decode(&bad)), None, "byte {at}");
        }
    }
}
