//! A store directory whose files lie in a pool of Ceph RADOS, so that another node can open the store after this one
//! died, and a holder that was cut off can change nothing any more.
//!
//! One *head* object names the files. Whoever opens the store raises its *term*, then *seals* each log with the new
//! term, and only then reads. Every change of the head or of a log is guarded by the term of who sends it, in the same
//! operation: what an earlier holder sent either took place before the seal, or never will. All other objects have
//! names that nobody uses twice, so those that an earlier holder writes late are named by nothing.
//!
//! A local directory has a copy of all files. Logs are written there first: the death of the process loses nothing. The
//! pool has what was synced, and is the truth when the local copy may not be whole: after a power loss, or when another
//! directory had the store in between.
//!
//! This module must not know what the files are.

mod address;
mod claim;
mod copy;
mod dirty;
mod head;
mod log;
mod parts;
mod proof;
mod tenure;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cenote_model::{Error, ErrorKind, Result};
use cenote_rados::{Change, Pool};
use parking_lot::Mutex;

use crate::meta_dir::check_name;
use crate::sums::sum_of;
use crate::{FsMetaDir, LogFile, MetaDir};
use copy::LocalCopy;
use head::{Kind, Record};
use log::{RadosLog, Shared};
use tenure::Tenure;

pub use address::{ADDRESS_FILE, Address, COPY_ASIDE_DIR, COPY_DIR};
pub use copy::{forget_copy, term_noted};
pub use head::Holder;

/// How long things may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// A holder takes changes for this long after it last asked the pool whether the store is still its own. A
    /// successor waits this long before it changes anything.
    pub trust: Duration,
    /// A holder asks this often.
    pub beat: Duration,
    /// A change without an answer is sent again for this long.
    pub patience: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { trust: Duration::from_millis(1500), beat: Duration::from_millis(400), patience: Duration::from_secs(10) }
    }
}

/// The place of a store in a pool.
#[derive(Clone)]
pub struct RadosPlace {
    /// One namespace of one pool; everything in it belongs to the store.
    pub pool: Arc<dyn Pool>,
    /// For error messages: `rados:POOL/NAME`.
    pub subject: String,
    /// Local directory of the copy. It is made if it is absent.
    pub local: PathBuf,
    /// See [`Timing`].
    pub timing: Timing,
}

/// Whether an opening may take a store that another directory had last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    /// Only if this directory had it last.
    Own,
    /// Whoever had it, who is known to acknowledge nothing by the time at which this holder does: that is not waited for.
    Granted,
    /// Whoever had it.
    Any,
}

/// The files of a store in a pool. Lets the store go when it and all its logs are dropped.
pub struct RadosMetaDir {
    tenure: Arc<Tenure>,
    copy: LocalCopy,
    files: Mutex<BTreeMap<String, File>>,
    /// Names that the head may have, since the change that was to enter them was not answered.
    doubtful: Mutex<BTreeSet<String>>,
    /// Another directory had the store since this one.
    moved: bool,
    /// Who had it before this opening.
    before: Holder,
}

/// A file as the head has it.
struct File {
    record: Record,
    /// Of a log that was opened.
    log: Option<Arc<Shared>>,
}

impl RadosMetaDir {
    /// Makes the head of a new store. `Exists` if the place holds one; what an unfinished creation left is taken over.
    pub fn create(place: &RadosPlace) -> Result<Self> {
        match claim::create(place) {
            Ok(claimed) => Self::fresh(place, claimed),
            Err(error) if error.kind() == ErrorKind::Exists => {
                let found = claim::look(place)?;
                if claim::names_files(place)? {
                    return Err(taken(place, &found));
                }
                Self::open(place, Take::Any)
            }
            Err(error) => Err(error),
        }
    }
    fn fresh(place: &RadosPlace, tenure: Tenure) -> Result<Self> {
        let copy = LocalCopy::fresh(&place.local, &tenure)?;
        copy.note(&tenure)?;
        let tenure = Arc::new(tenure);
        tenure.keep();
        let before = tenure.holder.clone();
        Ok(Self { tenure, copy, files: Mutex::default(), doubtful: Mutex::default(), moved: false, before })
    }
    /// Opens a store: raises the term, seals its logs, and brings the local copy up to date. `NotFound` if there is none;
    /// `InvalidInput` if another directory had it last and `take` does not allow that.
    pub fn open(place: &RadosPlace, take: Take) -> Result<Self> {
        let found = claim::look(place)?;
        let is_own = LocalCopy::belongs_to(&place.local, &found.nonce);
        if !is_own && take == Take::Own {
            return Err(held(place, &found));
        }
        let is_whole = is_own && LocalCopy::is_whole(&place.local, &found.nonce);
        let claimed = claim::raise(place, &found, is_own)?;
        let records = claim::seal(&claimed.tenure)?;
        let named = records.iter().map(|(_, record)| record.object.clone()).collect();
        let copy = if is_whole {
            LocalCopy::again(&place.local)?
        } else {
            LocalCopy::set_aside(&place.local, &place.subject)?;
            LocalCopy::fresh(&place.local, &claimed.tenure)?
        };
        let files = records.into_iter().map(|(name, record)| (name, File { record, log: None })).collect();
        let (tenure, files, doubtful) = (Arc::new(claimed.tenure), Mutex::new(files), Mutex::default());
        let this = Self { tenure, copy, files, doubtful, moved: !is_own, before: found.holder };
        this.bring_up_to_date(is_whole)?;
        this.copy.note(&this.tenure)?;
        if take != Take::Granted {
            claimed.wait.pass();
        }
        this.tenure.keep();
        claim::tidy_later(&this.tenure, named);
        Ok(this)
    }
    /// Makes the local copy the same as the pool, but for what only a whole copy has: synced bytes are in the pool, and
    /// what a dead process wrote since is in the copy.
    fn bring_up_to_date(&self, is_whole: bool) -> Result<()> {
        let mut files = self.files.lock();
        for name in self.copy.files.list()?.iter().filter(|name| !files.contains_key(*name)) {
            self.copy.files.remove(name)?;
        }
        for (name, file) in files.iter_mut() {
            let record = file.record.clone();
            match record.kind {
                Kind::Log => file.log = Some(log::bring(&self.tenure, &self.copy.files, name, &record, is_whole)?),
                Kind::File if self.copy.has(name, &record) => {}
                Kind::File => self.copy.files.write_file(name, &parts::read(&self.tenure, name, &record)?)?,
            }
        }
        Ok(())
    }
    /// Number of the holder, raised with each opening.
    pub fn term(&self) -> u64 {
        self.tenure.term
    }
    /// Returns true if another directory had the store since this one, so that no memory of this node belongs to it.
    pub fn has_moved(&self) -> bool {
        self.moved
    }
    /// Who had the store before this opening; of a new store, this one.
    pub fn taken_from(&self) -> &Holder {
        &self.before
    }
    /// Returns why nothing is acknowledged any more, once another holder has the store.
    pub fn lost(&self) -> Option<Error> {
        self.tenure.lost()
    }
    /// Asks the pool now whether this is still the holder; fails if it is not, or if the pool does not answer.
    pub fn confirm(&self) -> Result<()> {
        self.tenure.confirm()
    }
    /// Returns true if this directory had the store in this place last, or has it.
    pub fn is_own(place: &RadosPlace) -> Result<bool> {
        claim::look(place).map(|found| LocalCopy::belongs_to(&place.local, &found.nonce))
    }
    /// Fails if no store can be made in this place: `Exists` if it holds one; or what the pool answers to a change as stores
    /// make it. Nothing is left there.
    pub fn check_free(place: &RadosPlace) -> Result<()> {
        claim::check_free(place)
    }
    /// Who has the store in this place, or had it last.
    pub fn look(place: &RadosPlace) -> Result<Holder> {
        claim::look(place).map(|found| found.holder)
    }
    /// Removes the head, and with it the store: nothing can be opened in this place any more.
    pub fn destroy(&self) -> Result<()> {
        let names: Vec<String> = self.files.lock().keys().cloned().collect();
        names.iter().try_for_each(|name| self.remove(name))?;
        claim::remove_strays(&self.tenure)?;
        self.tenure.end()?;
        self.copy.destroy()
    }
    fn not_found(&self, name: &str) -> Error {
        Error::new(ErrorKind::NotFound, format!("file `{name}` of {}", self.tenure.subject))
    }
    /// Lets the head name a file. The name's former objects are removed.
    fn enter(&self, name: &str, record: Record, log: Option<Arc<Shared>>) -> Result<()> {
        let text = record.encode();
        self.tenure.change_head(&[Change::SetRecord(name, text.as_bytes())]).inspect_err(|_| {
            self.doubtful.lock().insert(name.to_owned());
        })?;
        self.doubtful.lock().remove(name);
        if let Some(old) = self.files.lock().insert(name.to_owned(), File { record, log }) {
            parts::remove(&self.tenure, &old.record);
        }
        Ok(())
    }
}

/// The place holds a store.
#[cold]
fn taken(place: &RadosPlace, found: &claim::Found) -> Error {
    Error::new(ErrorKind::Exists, place.subject.clone())
        .because(format!("this name holds a store already; {}", found.holder))
        .try_next("choose another name: `--on rados:POOL/NAME`; or open that store: `cenote adopt DIR --from rados:POOL/NAME`")
}

/// Another directory had the store last.
#[cold]
fn held(place: &RadosPlace, found: &claim::Found) -> Error {
    Error::new(ErrorKind::InvalidInput, place.subject.clone())
        .because(format!("another directory has it now: {}", found.holder))
        .try_next(format!(
            "use it there; or take it back, once it is closed there: `cenote adopt DIR --from {}`",
            place.subject
        ))
}

impl MetaDir for RadosMetaDir {
    fn create_log(&self, name: &str, capacity: u64) -> Result<Box<dyn LogFile>> {
        check_name(name)?;
        self.tenure.check()?;
        if self.files.lock().contains_key(name) {
            return Err(Error::new(ErrorKind::Exists, format!("file `{name}` of {}", self.tenure.subject)));
        }
        let local = self.copy.files.create_log(name, capacity)?;
        let record = Record { kind: Kind::Log, object: self.tenure.draw_name(), bytes: capacity, sum: 0 };
        let log = Arc::new(Shared::new(&self.tenure, name, &record, local));
        let made = parts::make(&self.tenure, &record).and_then(|()| self.enter(name, record, Some(Arc::clone(&log))));
        if let Err(error) = made {
            let _ = self.copy.files.remove(name); // nothing names it
            return Err(error);
        }
        Ok(Box::new(RadosLog(log)))
    }
    fn open_log(&self, name: &str) -> Result<Box<dyn LogFile>> {
        let files = self.files.lock();
        let file = files.get(name).ok_or_else(|| self.not_found(name))?;
        let log = file.log.clone().ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, format!("file `{name}` of {}", self.tenure.subject))
                .because("it is no log")
        })?;
        Ok(Box::new(RadosLog(log)))
    }
    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        check_name(name)?;
        self.tenure.check()?;
        let object = self.tenure.draw_name();
        let record = Record { kind: Kind::File, object, bytes: bytes.len() as u64, sum: sum_of(bytes) };
        parts::write(&self.tenure, &record, bytes)?;
        self.enter(name, record, None)?;
        if let Err(error) = self.copy.files.write_file(name, bytes) {
            // The pool has it. A wrong copy is never read: it does not match the record.
            tracing::warn!(%error, file = name, "no local copy could be written");
        }
        Ok(())
    }
    fn read_file(&self, name: &str) -> Result<Vec<u8>> {
        let record = self.files.lock().get(name).map(|file| file.record.clone()).ok_or_else(|| self.not_found(name))?;
        match self.copy.files.read_file(name) {
            Ok(bytes) if record.kind == Kind::Log || record.matches(&bytes) => Ok(bytes),
            Err(error) if record.kind == Kind::Log => Err(error),
            _ => parts::read(&self.tenure, name, &record),
        }
    }
    fn list(&self) -> Result<Vec<String>> {
        Ok(self.files.lock().keys().cloned().collect())
    }
    fn remove(&self, name: &str) -> Result<()> {
        check_name(name)?;
        self.tenure.check()?;
        if !self.files.lock().contains_key(name) && !self.doubtful.lock().contains(name) {
            return Err(self.not_found(name));
        }
        self.tenure.change_head(&[Change::RemoveRecord(name)])?;
        self.doubtful.lock().remove(name);
        if let Some(old) = self.files.lock().remove(name) {
            parts::remove(&self.tenure, &old.record);
        }
        match self.copy.files.remove(name) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(%error, file = name, "its local copy stays");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Returns true if the directory at `local` has a copy of a store's files.
pub fn has_copy(local: &Path) -> bool {
    FsMetaDir::open_to_look(local).and_then(|files| files.list()).is_ok_and(|names| !names.is_empty())
}
