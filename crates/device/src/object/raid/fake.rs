//! A place in memory for tests: it forgets nothing, and goes away, fails and rots on command.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_model::ErrorKind;
use parking_lot::Mutex;

use super::PlaceId;
use super::place::{Look, Place, away, id_of};
use crate::object::service::{Answer, Refusal};

/// How a place behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mood {
    /// It does what it is asked for.
    #[default]
    Well,
    /// It is away.
    Away,
    /// Something else is there.
    Wrong,
    /// It is read-only.
    ReadOnly,
    /// It has no room.
    Full,
    /// Reads fail.
    Unreadable,
    /// Puts take this long.
    Slow(Duration),
}

#[derive(Default)]
struct Inside {
    files: BTreeMap<String, Bytes>,
    mood: Mood,
    /// After so many more puts the place is away.
    puts_left: Option<u64>,
    leaves: bool,
    calls: u64,
}

/// The place. Cheap to clone; clones share their files.
#[derive(Clone)]
pub struct FakePlace {
    number: u16,
    inside: Arc<Mutex<Inside>>,
}

impl FakePlace {
    /// An empty place with this number.
    pub fn new(number: u16) -> Self {
        Self { number, inside: Arc::default() }
    }
    /// Sets how it behaves from now on.
    pub fn set(&self, mood: Mood) {
        let mut inside = self.inside.lock();
        (inside.mood, inside.puts_left) = (mood, None);
    }
    /// Goes away after so many more puts.
    pub fn set_puts_left(&self, puts: u64) {
        self.inside.lock().puts_left = Some(puts);
    }
    /// Is about to leave its tier, or stays.
    pub fn set_leaves(&self, leaves: bool) {
        self.inside.lock().leaves = leaves;
    }
    /// The names of its files.
    pub fn names(&self) -> Vec<String> {
        self.inside.lock().files.keys().cloned().collect()
    }
    /// The names of its files that begin with `prefix`.
    pub fn names_from(&self, prefix: &str) -> Vec<String> {
        let inside = self.inside.lock();
        let from = inside.files.range(prefix.to_owned()..).map(|(name, _)| name);
        from.take_while(|name| name.starts_with(prefix)).cloned().collect()
    }
    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.inside.lock().calls
    }
    /// Loses all files.
    pub fn wipe(&self) {
        self.inside.lock().files.clear();
    }
    /// Changes, makes or deletes a file.
    pub fn meddle(&self, name: &str, change: impl FnOnce(Option<Vec<u8>>) -> Option<Vec<u8>>) {
        let mut inside = self.inside.lock();
        let before = inside.files.remove(name).map(Vec::from);
        if let Some(after) = change(before) {
            inside.files.insert(name.to_owned(), after.into());
        }
    }
    fn enter(&self) -> Answer<parking_lot::MutexGuard<'_, Inside>> {
        let mut inside = self.inside.lock();
        inside.calls += 1;
        match inside.mood {
            Mood::Away => Err(away("it is away")),
            Mood::Wrong => Err(Refusal::new(ErrorKind::Corrupt, "it is another one")),
            _ => Ok(inside),
        }
    }
}

impl Place for FakePlace {
    fn who(&self) -> String {
        format!("place {}", self.number)
    }
    fn id(&self) -> PlaceId {
        id_of(self.number)
    }
    fn leaves(&self) -> bool {
        self.inside.lock().leaves
    }
    fn look(&self) -> Answer<Look> {
        self.enter().map(|_| Look { free_bytes: 1 << 40, file_system: None })
    }
    fn put(&self, name: &str, pieces: &[Bytes]) -> Answer<()> {
        let mut inside = self.enter()?;
        match (inside.mood, inside.puts_left) {
            (_, Some(0)) => {
                (inside.mood, inside.puts_left) = (Mood::Away, None);
                return Err(away("it went away"));
            }
            (Mood::ReadOnly, _) => return Err(Refusal::new(ErrorKind::PermissionDenied, "it is read-only")),
            (Mood::Full, _) => return Err(Refusal::new(ErrorKind::Full, "it is full")),
            (Mood::Slow(pause), _) => {
                drop(inside);
                std::thread::sleep(pause);
                inside = self.enter()?;
            }
            _ => {}
        }
        inside.puts_left = inside.puts_left.map(|left| left - 1);
        inside.files.insert(name.to_owned(), pieces.concat().into());
        Ok(())
    }
    fn get(&self, name: &str, from: u64, len: u64) -> Answer<Bytes> {
        let inside = self.enter()?;
        if inside.mood == Mood::Unreadable {
            return Err(Refusal::new(ErrorKind::Io, "the medium cannot be read"));
        }
        let file = inside.files.get(name).ok_or_else(|| Refusal::new(ErrorKind::NotFound, "it has no such file"))?;
        let all = file.len() as u64;
        Ok(file.slice(from.min(all) as usize..from.saturating_add(len).min(all) as usize))
    }
    fn list(&self, prefix: &str) -> Answer<Vec<String>> {
        let inside = self.enter()?;
        Ok(inside.files.keys().filter(|name| name.starts_with(prefix)).cloned().collect())
    }
    fn delete(&self, name: &str) -> Answer<()> {
        let mut inside = self.enter()?;
        if inside.mood == Mood::ReadOnly {
            return Err(Refusal::new(ErrorKind::PermissionDenied, "it is read-only"));
        }
        inside.files.remove(name);
        Ok(())
    }
    fn make(&self) -> Answer<()> {
        self.enter().map(drop)
    }
    fn remove(&self) -> Answer<()> {
        self.enter().map(drop)
    }
}
