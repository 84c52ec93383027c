//! What an object service owes: whole objects by key, and how it says no.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cenote_model::ErrorKind;
use parking_lot::Mutex;

/// A service of whole, immutable objects by key, all in one bucket.
///
/// Calls may come from many threads at once, and none may take for ever.
pub trait ObjectService: Send + Sync {
    /// Stores an object, its parts one behind the other; on return it survives. With `only_new` it is refused with
    /// `Exists` if the key is taken, as far as the service can tell; else it takes the place of what was there.
    fn put(&self, key: &str, parts: &[Bytes], only_new: bool) -> Answer<()>;
    /// Up to `len` bytes from `from` on; fewer if the object ends before.
    fn get(&self, key: &str, from: u64, len: u64) -> Answer<Bytes>;
    /// Key and bytes of every object whose key begins with `prefix`, which ends with `/` or is empty.
    fn list(&self, prefix: &str) -> Answer<Vec<(String, u64)>>;
    /// Deletes an object; no error if it is gone already.
    fn delete(&self, key: &str) -> Answer<()>;
    /// From now on others wait for what is asked, or no longer: what is not answered is given up sooner, if the service can.
    fn hasten(&self, _is_in_haste: bool) {}
}

/// What a service says.
pub type Answer<T> = std::result::Result<T, Refusal>;

/// Why a service did not do what it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What a program can act on.
    pub kind: ErrorKind,
    /// For a person.
    pub cause: String,
    /// The same may well succeed in a moment: the network, or a service that asks for patience.
    pub again: bool,
}

impl Refusal {
    /// One for good.
    pub fn new(kind: ErrorKind, cause: impl Into<String>) -> Self {
        Self { kind, cause: cause.into(), again: false }
    }
    /// One that may pass.
    pub fn passing(cause: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Io, cause: cause.into(), again: true }
    }
}

/// How long to bear with a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// Tries of one request, the first included.
    pub tries: u32,
    /// Pause before the second; each later one is twice as long, up to [`PAUSE_MAX`].
    pub pause: Duration,
    /// No try begins when so much time has passed since the first.
    pub total: Duration,
}

/// The longest pause between two tries.
pub const PAUSE_MAX: Duration = Duration::from_secs(4);

impl Default for Patience {
    fn default() -> Self {
        Self { tries: 6, pause: Duration::from_millis(100), total: Duration::from_mins(1) }
    }
}

impl Patience {
    /// For a device that is being opened: others wait meanwhile.
    #[must_use]
    pub fn while_opening(self) -> Self {
        Self { total: self.total.min(Duration::from_secs(10)), ..self }
    }
}

impl<S: ObjectService> ObjectService for Arc<S> {
    fn put(&self, key: &str, parts: &[Bytes], only_new: bool) -> Answer<()> {
        self.as_ref().put(key, parts, only_new)
    }
    fn get(&self, key: &str, from: u64, len: u64) -> Answer<Bytes> {
        self.as_ref().get(key, from, len)
    }
    fn list(&self, prefix: &str) -> Answer<Vec<(String, u64)>> {
        self.as_ref().list(prefix)
    }
    fn delete(&self, key: &str) -> Answer<()> {
        self.as_ref().delete(key)
    }
    fn hasten(&self, is_in_haste: bool) {
        self.as_ref().hasten(is_in_haste);
    }
}

/// A service whose passing refusals are met with patience.
///
/// Where a read was in vain for as long as that, others are tried but once for a moment ([`GONE_FOR`]), or not at all if
/// the service let the last try wait: a read of many pieces takes about as long as one until it fails, not as long as
/// all, and a service that is back and answers is found at once.
pub struct Patient<S> {
    inner: S,
    patience: Patience,
    /// The last read that came to nothing; none since one went well.
    gone: Mutex<Option<Gone>>,
}

/// A read that was in vain.
#[derive(Clone)]
struct Gone {
    when: Instant,
    why: Refusal,
    /// The last try was not refused at once: another one would wait as long.
    is_silent: bool,
}

/// So long nobody is patient with a service after one read was in vain.
pub const GONE_FOR: Duration = Duration::from_secs(3);
/// Reads, and tries, that took less are made again each time.
const LONG: Duration = Duration::from_secs(1);

impl<S> Patient<S> {
    /// Wraps.
    pub fn new(inner: S, patience: Patience) -> Self {
        Self { inner, patience, gone: Mutex::new(None) }
    }
    /// The last read, if it was in vain just now.
    fn just_gone(&self) -> Option<Gone> {
        self.gone.lock().clone().filter(|gone| gone.when.elapsed() < GONE_FOR)
    }
    fn bear<T>(&self, mut ask: impl FnMut(u32) -> Answer<T>) -> Answer<T> {
        let begun = Instant::now();
        let mut pause = self.patience.pause;
        let mut tried = 0;
        loop {
            let refusal = match ask(tried) {
                Err(refusal) if refusal.again => refusal,
                answer => return answer,
            };
            tried += 1;
            if tried >= self.patience.tries || begun.elapsed() + pause >= self.patience.total {
                let seconds = begun.elapsed().as_secs_f32();
                let cause = format!("{} (tried {tried} times in {seconds:.1} s)", refusal.cause);
                return Err(Refusal { cause, ..refusal });
            }
            // Not all at the same moment, if several wait for the same service.
            let spread = (begun.elapsed().subsec_nanos() % 1000) as f32 / 2000.0;
            std::thread::sleep(pause.mul_f32(0.75 + spread));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

impl<S: ObjectService> ObjectService for Patient<S> {
    fn put(&self, key: &str, parts: &[Bytes], only_new: bool) -> Answer<()> {
        self.bear(|tried| match self.inner.put(key, parts, only_new) {
            // The try before may have arrived although its answer did not.
            Err(refusal) if tried > 0 && refusal.kind == ErrorKind::Exists => match holds(&self.inner, key, parts) {
                Ok(true) => Ok(()),
                Ok(false) => Err(refusal),
                Err(other) => Err(other),
            },
            answer => answer,
        })
    }
    fn get(&self, key: &str, from: u64, len: u64) -> Answer<Bytes> {
        let mut is_silent = false;
        let mut ask = || {
            let begun = Instant::now();
            let answer = self.inner.get(key, from, len);
            is_silent = begun.elapsed() >= LONG;
            answer
        };
        if let Some(gone) = self.just_gone() {
            if gone.is_silent {
                return Err(gone.why);
            }
            let answer = ask();
            let is_gone = matches!(&answer, Err(refusal) if refusal.again);
            *self.gone.lock() = is_gone.then(|| Gone { is_silent, ..gone.clone() });
            return if is_gone { Err(gone.why) } else { answer };
        }
        let begun = Instant::now();
        let answer = self.bear(|_| ask());
        *self.gone.lock() = match &answer {
            Err(why) if why.again && begun.elapsed() >= LONG => {
                Some(Gone { when: Instant::now(), why: why.clone(), is_silent })
            }
            _ => None,
        };
        answer
    }
    fn list(&self, prefix: &str) -> Answer<Vec<(String, u64)>> {
        self.bear(|_| self.inner.list(prefix))
    }
    fn delete(&self, key: &str) -> Answer<()> {
        self.bear(|_| self.inner.delete(key))
    }
    fn hasten(&self, is_in_haste: bool) {
        self.inner.hasten(is_in_haste);
    }
}

/// True if the object is what `parts` are, as far as its first part, its end and its length tell: the first part has the
/// checksums of all others.
pub(super) fn holds<S: ObjectService + ?Sized>(service: &S, key: &str, parts: &[Bytes]) -> Answer<bool> {
    let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
    let first = parts.first().map_or(0, Bytes::len);
    let begin = service.get(key, 0, first as u64)?;
    let end = service.get(key, bytes.saturating_sub(1), 2)?;
    let last = parts.iter().rev().find_map(|part| part.last());
    Ok(parts.first().is_none_or(|part| *part == begin) && end.len() <= 1 && end.first() == last)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Away {
        asked: AtomicU32,
        is_silent: bool,
        is_back: AtomicBool,
    }

    impl ObjectService for Away {
        fn put(&self, _: &str, _: &[Bytes], _: bool) -> Answer<()> {
            Err(Refusal::passing("away"))
        }
        fn get(&self, _: &str, _: u64, _: u64) -> Answer<Bytes> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if self.is_back.load(Ordering::Relaxed) {
                return Ok(Bytes::new());
            }
            if self.is_silent {
                std::thread::sleep(LONG);
            }
            Err(Refusal::passing("away"))
        }
        fn list(&self, _: &str) -> Answer<Vec<(String, u64)>> {
            Ok(Vec::new())
        }
        fn delete(&self, _: &str) -> Answer<()> {
            Ok(())
        }
    }

    /// The first of many pieces is tried as often as patience says, and what that says is said of all.
    fn reads_in_vain(away: &Arc<Away>, pause: Duration) -> Patient<Arc<Away>> {
        let patience = Patience { tries: 3, pause, total: Duration::from_mins(1) };
        let patient = Patient::new(away.clone(), patience);
        let begun = Instant::now();
        let first = patient.get("k", 0, 1).unwrap_err();
        assert!(first.cause.contains("tried 3 times"), "{}", first.cause);
        assert!(begun.elapsed() >= LONG && away.asked.load(Ordering::Relaxed) == 3);
        let begun = Instant::now();
        for piece in 1..30 {
            assert_eq!(patient.get("k", piece, 1).unwrap_err(), first, "it says what was tried");
        }
        assert!(begun.elapsed() < LONG, "many reads in vain take about as long as one");
        patient
    }

    #[test]
    fn a_service_that_refuses_is_found_as_soon_as_it_is_back() {
        let away = Arc::new(Away::default());
        let patient = reads_in_vain(&away, Duration::from_millis(600));
        assert_eq!(away.asked.load(Ordering::Relaxed), 3 + 29, "once each");
        away.is_back.store(true, Ordering::Relaxed);
        assert!(patient.get("k", 0, 1).is_ok());
        assert!(patient.get("k", 1, 1).is_ok(), "it is not gone any more");
    }

    #[test]
    fn a_service_that_is_silent_is_left_alone_for_a_moment() {
        let away = Arc::new(Away { is_silent: true, ..Away::default() });
        let patient = reads_in_vain(&away, Duration::from_millis(1));
        assert_eq!(away.asked.load(Ordering::Relaxed), 3, "not again");
        away.is_back.store(true, Ordering::Relaxed);
        std::thread::sleep(GONE_FOR);
        assert!(patient.get("k", 0, 1).is_ok());
        assert!(patient.get("k", 1, 1).is_ok(), "it is not gone any more");
    }
}
