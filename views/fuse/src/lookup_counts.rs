//! The kernel's lookup counts: until the kernel has forgotten a number as often as it was told it, it may use the
//! number at any time.

use std::collections::HashMap;

use cenote_posix::Ino;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

/// Number of locks, so that threads seldom meet.
const PARTS: usize = 16;

/// Lookup counts by number.
#[derive(Default)]
pub struct LookupCounts {
    parts: [Mutex<HashMap<u64, u64>>; PARTS],
    /// Read-locked during a lookup and its answer: the number must not be forgotten meanwhile.
    telling: RwLock<()>,
}

impl LookupCounts {
    /// Delays forgetting while the guard lives.
    pub fn begin(&self) -> RwLockReadGuard<'_, ()> {
        self.telling.read()
    }
    fn part(&self, ino: Ino) -> &Mutex<HashMap<u64, u64>> {
        // Numbers ascend, so their lowest bits are spread evenly.
        &self.parts[ino.0 as usize % PARTS]
    }
    /// Counts one more lookup.
    pub fn tell(&self, ino: Ino) {
        *self.part(ino).lock().entry(ino.0).or_insert(0) += 1;
    }
    /// Calls `each` with every number that the kernel knows.
    pub fn each(&self, mut each: impl FnMut(Ino)) {
        for part in &self.parts {
            // Not under the lock: `each` may call the kernel, which may forget numbers.
            let numbers: Vec<u64> = part.lock().keys().copied().collect();
            for number in numbers {
                each(Ino(number));
            }
        }
    }
    /// Subtracts `times` from the count of a number; calls `last` when it reaches zero.
    pub fn forget(&self, ino: Ino, times: u64, last: impl FnOnce()) {
        let is_last = |part: &mut HashMap<u64, u64>| {
            let Some(count) = part.get_mut(&ino.0) else { return false };
            *count = count.saturating_sub(times);
            *count == 0
        };
        if !is_last(&mut self.part(ino).lock()) {
            return;
        }
        let _nobody_tells = self.telling.write();
        let mut part = self.part(ino).lock();
        if part.get(&ino.0) == Some(&0) {
            part.remove(&ino.0);
            last();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_as_often_as_it_is_forgotten_is_gone() {
        let (counts, mut gone) = (LookupCounts::default(), 0);
        for _ in 0..3 {
            counts.tell(Ino(7));
        }
        counts.forget(Ino(7), 2, || gone += 1);
        counts.forget(Ino(8), 1, || gone += 1);
        assert_eq!(gone, 0);
        counts.forget(Ino(7), 1, || gone += 1);
        counts.forget(Ino(7), 1, || gone += 1);
        assert_eq!(gone, 1);
    }
}
