//! What a holder knows of whose the store is, and the thread that asks the pool.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, Result};
use cenote_rados::{Pool, RefusalKind};
use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};

use super::head::{HEAD, HOLDER, TERM, decode_holder};
use super::{RadosPlace, Timing};

/// See the module. Apart from the tenure, which the thread does not keep.
pub(super) struct Proof {
    pub pool: Arc<dyn Pool>,
    pub subject: String,
    pub timing: Timing,
    pub term: u64,
    /// When the last look at the pool began that found this holder, by [`now_ms`].
    proved_ms: AtomicU64,
    lost: OnceLock<Error>,
    beat: Mutex<Beat>,
    wake: Condvar,
}

/// What the thread that asks the pool and those that wait for it tell each other.
#[derive(Default)]
struct Beat {
    /// The last look was not answered.
    trouble: Option<String>,
    /// A look is wanted now.
    is_wanted: bool,
    is_over: bool,
}

/// Milliseconds since some point. 8 ns, since every record of the journal asks; it goes on while the process is stopped.
pub(super) fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

impl Proof {
    pub fn new(place: &RadosPlace, term: u64, proved_ms: u64) -> Self {
        Self {
            pool: Arc::clone(&place.pool),
            subject: place.subject.clone(),
            timing: place.timing,
            term,
            proved_ms: AtomicU64::new(proved_ms),
            lost: OnceLock::new(),
            beat: Mutex::default(),
            wake: Condvar::new(),
        }
    }
    /// Why nothing is acknowledged any more.
    pub fn lost(&self) -> Option<Error> {
        self.lost.get().cloned()
    }
    /// Fails if another holder may have the store by now.
    pub fn check(&self) -> Result<()> {
        if let Some(error) = self.lost.get() {
            return Err(error.clone());
        }
        if self.is_trusted() { Ok(()) } else { self.wait_for_proof() }
    }
    fn is_trusted(&self) -> bool {
        let since = now_ms().saturating_sub(self.proved_ms.load(Ordering::Acquire));
        u128::from(since) < self.timing.trust.as_millis()
    }
    /// After a pause of the whole process a look is all that is missing; if the pool does not answer, nobody knows.
    #[cold]
    fn wait_for_proof(&self) -> Result<()> {
        let until = Instant::now() + self.timing.trust;
        let mut beat = self.beat.lock();
        loop {
            if let Some(error) = self.lost.get() {
                return Err(error.clone());
            }
            if self.is_trusted() {
                return Ok(());
            }
            if let Some(cause) = &beat.trouble {
                return Err(self.silent(cause));
            }
            beat.is_wanted = true;
            self.wake.notify_all();
            if self.wake.wait_until(&mut beat, until).timed_out() {
                return Err(self.silent("no answer yet"));
            }
        }
    }
    /// The pool does not answer, so that another node may have taken the store.
    #[cold]
    fn silent(&self, cause: &str) -> Error {
        Error::new(ErrorKind::Io, self.subject.clone())
            .because(format!(
                "the pool has not confirmed for {} ms whose store it is: {cause}",
                self.timing.trust.as_millis()
            ))
            .try_next("check the Ceph cluster and the way to it (`ceph -s`); the store goes on by itself then")
    }
    /// Notes why nothing is acknowledged any more, unless that is known.
    pub fn note_lost(&self, error: Error) {
        let _ = self.lost.set(error);
    }
    /// Notes that another holder has the store.
    #[cold]
    pub fn lose(&self) -> Error {
        if let Some(error) = self.lost.get() {
            return error.clone();
        }
        let error = Error::new(ErrorKind::Disconnected, self.subject.clone())
            .because(self.who())
            .try_next("use it there; this process takes no change any more and its unsynced changes are lost, as after a power loss");
        tracing::error!(%error, "another holder has the store");
        self.lost.get_or_init(|| error).clone()
    }
    fn who(&self) -> String {
        let read = |name| self.pool.attribute(HEAD, name);
        match (read(TERM), read(HOLDER)) {
            (Ok(Some(term)), Ok(Some(holder))) => {
                let term = <[u8; 8]>::try_from(term.as_slice()).map_or(0, u64::from_le_bytes);
                format!("it was taken over: {}", decode_holder(term, &holder).0)
            }
            (Err(refusal), _) if refusal.kind == RefusalKind::NotFound => "it was destroyed".to_owned(),
            _ => "it was taken over".to_owned(),
        }
    }
    /// Looks whether this is still the holder.
    pub fn look(&self) {
        let begin = now_ms();
        let found = self.pool.attribute(HEAD, TERM);
        let trouble = match found {
            Ok(Some(term)) if term == self.term.to_le_bytes() => {
                self.proved_ms.fetch_max(begin, Ordering::AcqRel);
                None
            }
            Ok(_) => {
                self.lose();
                None
            }
            Err(refusal) if refusal.kind == RefusalKind::NotFound => {
                self.lose();
                None
            }
            Err(refusal) => Some(refusal.cause),
        };
        let mut beat = self.beat.lock();
        if let Some(cause) = trouble.as_ref().filter(|_| beat.trouble.is_none()) {
            tracing::warn!(home = %self.subject, %cause, "the pool does not answer");
        }
        (beat.trouble, beat.is_wanted) = (trouble, false);
        self.wake.notify_all();
    }
    /// Starts the thread that asks the pool from time to time, until [`Proof::end`].
    pub fn keep(this: &Arc<Self>) -> Option<thread::JoinHandle<()>> {
        let proof = Arc::clone(this);
        let looks = move || {
            while proof.lost.get().is_none() {
                proof.look();
                if !proof.wait(proof.timing.beat) {
                    break;
                }
            }
        };
        let begun = thread::Builder::new().name("cenote-home".into()).spawn(looks);
        begun
            .inspect_err(|error| {
                tracing::error!(%error, "no thread to ask the pool whose store it is: changes will be refused");
            })
            .ok()
    }
    /// Ends the thread.
    pub fn end(&self) {
        self.beat.lock().is_over = true;
        self.wake.notify_all();
    }
    /// Waits for an interval, or until a look is wanted. Returns false at the end.
    fn wait(&self, interval: Duration) -> bool {
        let until = Instant::now() + interval;
        let mut beat = self.beat.lock();
        while !beat.is_wanted && !beat.is_over {
            if self.wake.wait_until(&mut beat, until).timed_out() {
                break;
            }
        }
        !beat.is_over
    }
}
