//! Hints to where this process last saw a file: the name that leads to a number. Each use checks the hint. A file
//! that has several names, or was renamed, is found by its number, so only changes by others make a hint wrong.

use std::mem;
use std::sync::Arc;

use crate::sync::Mutex;

use super::NumberMap;

/// Hints per generation. Two generations are kept.
const GENERATION: usize = 1 << 18;

/// A directory, and a name in it.
pub type Hint = (u64, Arc<[u8]>);

#[derive(Debug)]
pub struct Places {
    state: Mutex<Hints>,
    /// Hints are dropped only by an explicit `forget`.
    keeps_all: bool,
}

#[derive(Debug, Default)]
struct Hints {
    young: NumberMap<Hint>,
    old: NumberMap<Hint>,
}

impl Places {
    pub fn new(keeps_all: bool) -> Self {
        Self { state: Mutex::default(), keeps_all }
    }
    /// Returns where a file was last seen.
    pub fn get(&self, ino: u64) -> Option<Hint> {
        let mut state = self.state.lock();
        if let Some(hint) = state.young.get(&ino) {
            return Some(hint.clone());
        }
        let hint = state.old.remove(&ino)?;
        state.young.insert(ino, hint.clone());
        Some(hint)
    }
    /// Records where a file was seen.
    pub fn set(&self, ino: u64, dir: u64, name: &[u8]) {
        let mut state = self.state.lock();
        if state.young.get(&ino).is_some_and(|(d, n)| *d == dir && **n == *name) {
            return;
        }
        if state.young.len() >= GENERATION && !self.keeps_all {
            state.old = mem::take(&mut state.young);
        }
        state.young.insert(ino, (dir, name.into()));
    }
    /// Forgets a number that nobody will use again.
    pub fn forget(&self, ino: u64) {
        let mut state = self.state.lock();
        state.young.remove(&ino);
        state.old.remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let places = Places::new(false);
        places.set(1, 7, b"a");
        for ino in 2..3 * GENERATION as u64 {
            places.set(ino, 7, b"b");
            if ino % 1000 == 0 {
                assert!(places.get(1).is_some());
            }
        }
        assert!(places.get(2).is_none());
        places.forget(1);
        assert!(places.get(1).is_none());
    }
}
