//! A store directory whose files are in this process, with the same loss of what was not synced.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_model::{Error, ErrorKind, Result};
use parking_lot::Mutex;

use super::medium::{Keep, Medium, SplitMix, dead};
use crate::meta_dir::check_name;
use crate::{LogFile, MetaDir};

enum Entry {
    Log(Arc<Mutex<Medium>>),
    File(Vec<u8>),
}

#[derive(Default)]
struct Inner {
    entries: BTreeMap<String, Entry>,
    generation: u64,
}

/// A store directory in this process. Cheap to clone; clones are the same directory (but see [`MemMetaDir::kill`]).
#[derive(Clone, Default)]
pub struct MemMetaDir {
    inner: Arc<Mutex<Inner>>,
}

impl MemMetaDir {
    /// Simulates a power loss: of unsynced log writes, `keep` decides what stays. Logs opened before fail from now on.
    pub fn power_loss(&self, keep: Keep) {
        let mut rng = SplitMix::new(if let Keep::Random(seed) = keep { !seed } else { 0 });
        let mut inner = self.inner.lock();
        inner.generation += 1;
        for entry in inner.entries.values() {
            if let Entry::Log(medium) = entry {
                medium.lock().power_loss(keep, &mut rng);
            }
        }
    }
    /// Simulates the death of the process that uses the directory: all bytes stay, logs opened before fail from now on.
    pub fn kill(&self) {
        let mut inner = self.inner.lock();
        inner.generation += 1;
        for entry in inner.entries.values() {
            if let Entry::Log(medium) = entry {
                medium.lock().generation += 1;
            }
        }
    }
    /// Makes all that was written to logs survive a power loss.
    pub fn sync_all(&self) {
        for entry in self.inner.lock().entries.values() {
            if let Entry::Log(medium) = entry {
                medium.lock().sync();
            }
        }
    }
    /// Simulates a failed sync of a log: what was written and not synced stays readable until power loss and is lost
    /// then, whatever later syncs report.
    pub fn forget_unsynced(&self, name: &str) {
        if let Some(Entry::Log(medium)) = self.inner.lock().entries.get(name) {
            medium.lock().forget_unsynced();
        }
    }
    /// Flips the bits of `xor` in one byte of a file or log; returns false if there is no such byte.
    pub fn corrupt(&self, name: &str, offset: u64, xor: u8) -> bool {
        match self.inner.lock().entries.get_mut(name) {
            Some(Entry::File(bytes)) => bytes.get_mut(offset as usize).map(|byte| *byte ^= xor).is_some(),
            Some(Entry::Log(medium)) if offset < medium.lock().capacity() => {
                medium.lock().corrupt(offset, xor);
                true
            }
            _ => false,
        }
    }
    /// Size of a file or log in bytes.
    pub fn size(&self, name: &str) -> Option<u64> {
        match self.inner.lock().entries.get(name)? {
            Entry::File(bytes) => Some(bytes.len() as u64),
            Entry::Log(medium) => Some(medium.lock().capacity()),
        }
    }
}

fn subject(name: &str) -> String {
    format!("file `{name}` in memory")
}

impl MetaDir for MemMetaDir {
    fn create_log(&self, name: &str, capacity: u64) -> Result<Box<dyn LogFile>> {
        check_name(name)?;
        let mut inner = self.inner.lock();
        if inner.entries.contains_key(name) {
            return Err(Error::new(ErrorKind::Exists, subject(name)));
        }
        let medium = Arc::new(Mutex::new(Medium::new(capacity, false, 0)));
        inner.entries.insert(name.to_owned(), Entry::Log(Arc::clone(&medium)));
        Ok(Box::new(MemLog { medium, generation: 0, capacity, subject: subject(name) }))
    }
    fn open_log(&self, name: &str) -> Result<Box<dyn LogFile>> {
        match self.inner.lock().entries.get(name) {
            Some(Entry::Log(medium)) => {
                let (generation, capacity) = {
                    let medium = medium.lock();
                    (medium.generation, medium.capacity())
                };
                Ok(Box::new(MemLog { medium: Arc::clone(medium), generation, capacity, subject: subject(name) }))
            }
            Some(Entry::File(bytes)) => {
                // A real directory does not distinguish files from logs either.
                let mut medium = Medium::new(bytes.len() as u64, false, 0);
                medium.write(0, bytes);
                medium.sync();
                let capacity = medium.capacity();
                Ok(Box::new(MemLog {
                    medium: Arc::new(Mutex::new(medium)),
                    generation: 0,
                    capacity,
                    subject: subject(name),
                }))
            }
            None => Err(Error::new(ErrorKind::NotFound, subject(name))),
        }
    }
    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        check_name(name)?;
        self.inner.lock().entries.insert(name.to_owned(), Entry::File(bytes.to_vec()));
        Ok(())
    }
    fn read_file(&self, name: &str) -> Result<Vec<u8>> {
        match self.inner.lock().entries.get(name) {
            Some(Entry::File(bytes)) => Ok(bytes.clone()),
            Some(Entry::Log(medium)) => {
                let medium = medium.lock();
                let mut bytes = vec![0; medium.capacity() as usize];
                medium.read(0, &mut bytes);
                Ok(bytes)
            }
            None => Err(Error::new(ErrorKind::NotFound, subject(name))),
        }
    }
    fn list(&self) -> Result<Vec<String>> {
        Ok(self.inner.lock().entries.keys().cloned().collect())
    }
    fn remove(&self, name: &str) -> Result<()> {
        match self.inner.lock().entries.remove(name) {
            Some(_) => Ok(()),
            None => Err(Error::new(ErrorKind::NotFound, subject(name))),
        }
    }
}

struct MemLog {
    medium: Arc<Mutex<Medium>>,
    generation: u64,
    capacity: u64,
    subject: String,
}

impl MemLog {
    fn with<T>(&self, act: impl FnOnce(&mut Medium) -> Result<T>) -> Result<T> {
        let mut medium = self.medium.lock();
        if medium.generation == self.generation { act(&mut medium) } else { Err(dead(&self.subject)) }
    }
}

impl LogFile for MemLog {
    fn capacity(&self) -> u64 {
        self.capacity
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.with(|medium| {
            medium.check(&self.subject, offset, bytes.len())?;
            medium.write(offset, bytes);
            Ok(())
        })
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.with(|medium| {
            medium.check(&self.subject, offset, buf.len())?;
            medium.read(offset, buf);
            Ok(())
        })
    }
    fn sync(&self) -> Result<()> {
        self.with(|medium| {
            medium.sync();
            Ok(())
        })
    }
}
