//! An object service in this process, for tests: it forgets nothing and fails on command.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_model::ErrorKind;
use parking_lot::Mutex;

use super::service::{Answer, ObjectService, Refusal};

/// How a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// Not done, and reported as worth another try.
    Passing,
    /// Done, but the answer is lost.
    AnswerLost,
    /// Refused for good.
    Refused(ErrorKind),
    /// A read returns half of the requested bytes; any other call is not done.
    Truncated,
    /// A read returns one flipped bit; any other call is not done.
    Flipped,
    /// Not done yet, but the request is still in flight: it takes effect at [`FakeService::land`]. Reads are not done.
    Late,
    /// Takes this long.
    Slow(Duration),
    /// The process dies before the call: nothing is done from then on.
    Dead,
    /// The process dies right after the call.
    DeadAfter,
}

#[derive(Default)]
struct Inside {
    objects: BTreeMap<String, Bytes>,
    calls: u64,
    troubles: BTreeMap<u64, Trouble>,
    /// Every call fails like this.
    always: Option<Trouble>,
    dead: bool,
    /// Calls are not counted and do not fail.
    quiet: bool,
    /// Ignores `only_new`.
    overwrites: bool,
    /// Puts (with their `only_new`) and deletions that are still in flight.
    late: VecDeque<(String, Option<(Bytes, bool)>)>,
}

/// The service. Cheap to clone; clones share their objects.
#[derive(Clone, Default)]
pub struct FakeService {
    inside: Arc<Mutex<Inside>>,
}

impl FakeService {
    /// Makes call number `call`, counted from the first, fail.
    pub fn trouble_at(&self, call: u64, trouble: Trouble) {
        self.inside.lock().troubles.insert(call, trouble);
    }
    /// Makes all calls fail from now on, or none.
    pub fn trouble_always(&self, trouble: Option<Trouble>) {
        self.inside.lock().always = trouble;
    }
    /// Lets the oldest `count` late requests arrive; returns how many there were.
    pub fn land(&self, count: usize) -> usize {
        let mut inside = self.inside.lock();
        let count = count.min(inside.late.len());
        for _ in 0..count {
            match inside.late.pop_front() {
                Some((key, Some((_, true)))) if !inside.overwrites && inside.objects.contains_key(&key) => {} // `only_new`
                Some((key, Some((bytes, _)))) => drop(inside.objects.insert(key, bytes)),
                Some((key, None)) => drop(inside.objects.remove(&key)),
                None => {}
            }
        }
        count
    }
    /// Starts a new process: no more failures, and calls count from 0.
    pub fn revive(&self) {
        let mut inside = self.inside.lock();
        (inside.calls, inside.dead, inside.always) = (0, false, None);
        inside.troubles.clear();
    }
    /// Turns counting and failures off for the calls of the test itself.
    pub fn quiet(&self, on: bool) {
        self.inside.lock().quiet = on;
    }
    /// Behaves like services that cannot restrict a put to new objects: a put replaces an existing object silently.
    pub fn overwrites(&self, on: bool) {
        self.inside.lock().overwrites = on;
    }
    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.inside.lock().calls
    }
    /// Keys of all objects.
    pub fn keys(&self) -> Vec<String> {
        self.inside.lock().objects.keys().cloned().collect()
    }
    /// Changes, creates or deletes an object on behalf of a third party.
    pub fn meddle(&self, key: &str, change: impl FnOnce(Option<Vec<u8>>) -> Option<Vec<u8>>) {
        let mut inside = self.inside.lock();
        let before = inside.objects.remove(key).map(Vec::from);
        if let Some(after) = change(before) {
            inside.objects.insert(key.to_owned(), after.into());
        }
    }

    fn call<T>(&self, act: impl FnOnce(&mut Inside, Option<Trouble>) -> Answer<T>) -> Answer<T> {
        let mut inside = self.inside.lock();
        if inside.quiet {
            return act(&mut inside, None);
        }
        inside.calls += 1;
        let call = inside.calls - 1;
        let trouble = inside.troubles.get(&call).copied().or(inside.always);
        let dead = || Err(Refusal::new(ErrorKind::Io, "the process is dead"));
        if inside.dead || trouble == Some(Trouble::Dead) {
            inside.dead = true;
            return dead();
        }
        match trouble {
            Some(Trouble::Passing) => Err(Refusal::passing("503 slow down")),
            Some(Trouble::Refused(kind)) => Err(Refusal::new(kind, "refused")),
            Some(Trouble::AnswerLost) => act(&mut inside, None).and(Err(Refusal::passing("connection reset"))),
            Some(Trouble::DeadAfter) => {
                let _ = act(&mut inside, None);
                inside.dead = true;
                dead()
            }
            Some(Trouble::Slow(pause)) => {
                drop(inside);
                std::thread::sleep(pause);
                act(&mut self.inside.lock(), None)
            }
            other => act(&mut inside, other),
        }
    }
}

/// A call that cannot be half done is not done.
fn whole(trouble: Option<Trouble>) -> Answer<()> {
    trouble.map_or(Ok(()), |_| Err(Refusal::passing("broken pipe")))
}

impl ObjectService for FakeService {
    fn put(&self, key: &str, parts: &[Bytes], only_new: bool) -> Answer<()> {
        self.call(|inside, trouble| {
            if trouble == Some(Trouble::Late) {
                inside.late.push_back((key.to_owned(), Some((parts.concat().into(), only_new))));
            }
            whole(trouble)?;
            if only_new && !inside.overwrites && inside.objects.contains_key(key) {
                return Err(Refusal::new(ErrorKind::Exists, "412 precondition failed"));
            }
            inside.objects.insert(key.to_owned(), parts.concat().into());
            Ok(())
        })
    }
    fn get(&self, key: &str, from: u64, len: u64) -> Answer<Bytes> {
        self.call(|inside, trouble| {
            if trouble == Some(Trouble::Late) {
                whole(trouble)?;
            }
            let Some(object) = inside.objects.get(key) else {
                return Err(Refusal::new(ErrorKind::NotFound, "404 not found"));
            };
            let all = object.len() as u64;
            let mut end = from.saturating_add(len).min(all);
            if trouble == Some(Trouble::Truncated) {
                end = end.min(from + len / 2);
            }
            let mut bytes = object[from.min(all) as usize..end.max(from.min(all)) as usize].to_vec();
            if trouble == Some(Trouble::Flipped) {
                let at = bytes.len() / 2;
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 4);
            }
            Ok(bytes.into())
        })
    }
    fn list(&self, prefix: &str) -> Answer<Vec<(String, u64)>> {
        self.call(|inside, trouble| {
            whole(trouble)?;
            let found = inside.objects.iter().filter(|(key, _)| key.starts_with(prefix));
            Ok(found.map(|(key, object)| (key.clone(), object.len() as u64)).collect())
        })
    }
    fn delete(&self, key: &str) -> Answer<()> {
        self.call(|inside, trouble| {
            if trouble == Some(Trouble::Late) {
                inside.late.push_back((key.to_owned(), None));
            }
            whole(trouble)?;
            inside.objects.remove(key);
            Ok(())
        })
    }
}
