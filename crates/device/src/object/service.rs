//! The contract of an object service: whole objects by key, and how it refuses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cenote_model::ErrorKind;
use parking_lot::Mutex;

/// A service of whole, immutable objects by key, all in one bucket.
///
/// Calls may come from many threads at once, and each must return in bounded time.
pub trait ObjectService: Send + Sync {
    /// Stores an object made of consecutive parts; it is durable on return. With `only_new` a taken key is refused with
    /// `Exists`, as far as the service can tell; without, the object replaces an existing one.
    fn put(&self, key: &str, parts: &[Bytes], only_new: bool) -> Answer<()>;
    /// Up to `len` bytes from `from` on; fewer if the object ends before.
    fn get(&self, key: &str, from: u64, len: u64) -> Answer<Bytes>;
    /// Key and size of every object whose key begins with `prefix`, which ends with `/` or is empty.
    fn list(&self, prefix: &str) -> Answer<Vec<(String, u64)>>;
    /// Deletes an object; no error if it does not exist.
    fn delete(&self, key: &str) -> Answer<()>;
    /// Upper bound of the bytes of one object.
    fn object_bytes_max(&self) -> u64 {
        u64::MAX
    }
    /// Sets whether others wait for the requests from now on: if so, unanswered ones are abandoned sooner, if the
    /// service can.
    fn hasten(&self, _is_in_haste: bool) {}
    /// A few words for a person about how it works now; empty if there is nothing to say.
    fn note(&self) -> String {
        String::new()
    }
    /// As [`crate::Device::mend`].
    fn mend(&self, from: Option<&str>) -> Answer<Option<String>> {
        let _ = from;
        Ok(None)
    }
}

/// The answer of a service.
pub type Answer<T> = std::result::Result<T, Refusal>;

/// Why a service refused a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What a program can act on.
    pub kind: ErrorKind,
    /// For error messages.
    pub cause: String,
    /// The same request may well succeed in a moment: the network failed, or the service asks for patience.
    pub again: bool,
}

impl Refusal {
    /// A permanent refusal.
    pub fn new(kind: ErrorKind, cause: impl Into<String>) -> Self {
        Self { kind, cause: cause.into(), again: false }
    }
    /// A transient refusal.
    pub fn passing(cause: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Io, cause: cause.into(), again: true }
    }
}

/// Retry limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// Tries of one request, including the first.
    pub tries: u32,
    /// Pause before the second try; each later one is twice as long, up to [`PAUSE_MAX`].
    pub pause: Duration,
    /// No try begins later than this after the first.
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
    /// The limits for a device that is being opened, since others wait meanwhile.
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
    fn object_bytes_max(&self) -> u64 {
        self.as_ref().object_bytes_max()
    }
    fn hasten(&self, is_in_haste: bool) {
        self.as_ref().hasten(is_in_haste);
    }
    fn note(&self) -> String {
        self.as_ref().note()
    }
    fn mend(&self, from: Option<&str>) -> Answer<Option<String>> {
        self.as_ref().mend(from)
    }
}

/// Retries requests that a service refuses for the moment.
///
/// When all tries of a long read have failed, other reads are tried only once for a while ([`GONE_FOR`]), or not at all
/// if the service left the last try unanswered. So a failing read of many pieces takes about as long as one piece, not
/// as long as all, and a service that answers again is found at once.
pub struct Patient<S> {
    inner: S,
    patience: Patience,
    /// The last failed read; `None` after a read has succeeded.
    gone: Mutex<Option<Gone>>,
}

/// A read whose tries all failed.
#[derive(Clone)]
struct Gone {
    when: Instant,
    why: Refusal,
    /// The last try was not refused at once: another one would wait as long.
    is_silent: bool,
}

/// How long reads are not retried after one has failed.
pub const GONE_FOR: Duration = Duration::from_secs(3);
/// Reads, and tries, shorter than this are always repeated.
const LONG: Duration = Duration::from_secs(1);

impl<S> Patient<S> {
    /// Wraps `inner`.
    pub fn new(inner: S, patience: Patience) -> Self {
        Self { inner, patience, gone: Mutex::new(None) }
    }
    /// The last read, if it failed just now.
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
            // Jitter, since several threads may wait for the same service.
            let spread = (begun.elapsed().subsec_nanos() % 1000) as f32 / 2000.0;
            std::thread::sleep(pause.mul_f32(0.75 + spread));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

impl<S: ObjectService> ObjectService for Patient<S> {
    fn put(&self, key: &str, parts: &[Bytes], only_new: bool) -> Answer<()> {
        self.bear(|tried| match self.inner.put(key, parts, only_new) {
            // The previous try may have stored the object although its answer was lost.
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
    fn object_bytes_max(&self) -> u64 {
        self.inner.object_bytes_max()
    }
    fn hasten(&self, is_in_haste: bool) {
        self.inner.hasten(is_in_haste);
    }
    fn note(&self) -> String {
        self.inner.note()
    }
    fn mend(&self, from: Option<&str>) -> Answer<Option<String>> {
        self.inner.mend(from)
    }
}

/// Returns true if the object matches `parts` by its first part, its end and its length: the first part holds the
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

    /// The first of many pieces gets all tries, and its failure stands for all pieces.
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
