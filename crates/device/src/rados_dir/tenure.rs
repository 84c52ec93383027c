//! The time in which one opening has the store: changes that only its holder can make, and how it learns that it no
//! longer is the holder.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, Result};
use cenote_rados::{Answer, Change, Check, Pool, Refusal, RefusalKind};
use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};

use super::Timing;
use super::head::{CHANGE, HEAD, HOLDER, Holder, TERM, decode_holder, encode_holder, object_name};

/// First pause before something is sent again.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The last change of an object: term and number, which no other change has.
type Stamp = [u8; 16];

/// See the module.
pub(super) struct Tenure {
    pub pool: Arc<dyn Pool>,
    pub subject: String,
    pub timing: Timing,
    pub term: u64,
    pub nonce: String,
    pub holder: Holder,
    /// The last change of the head; `None`: not known. Held while it is changed.
    head: Mutex<Option<Vec<u8>>>,
    numbers: AtomicU64,
    /// When the last look at the pool began that found this holder, by [`now_ms`].
    proved_ms: AtomicU64,
    lost: OnceLock<Error>,
    pulse: Arc<Pulse>,
}

/// Apart from the tenure, so that the thread that waits here does not keep the store.
#[derive(Default)]
struct Pulse {
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
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

impl Tenure {
    /// Begins once the pool has the holder. `proved_ms`: [`Tenure::clock`] from before the operation that raised the term.
    pub fn new(place: &super::RadosPlace, holder: Holder, nonce: String, proved_ms: u64) -> Self {
        Self {
            pool: Arc::clone(&place.pool),
            subject: place.subject.clone(),
            timing: place.timing,
            term: holder.term,
            nonce,
            holder,
            head: Mutex::new(None),
            numbers: AtomicU64::new(1),
            proved_ms: AtomicU64::new(proved_ms),
            lost: OnceLock::new(),
            pulse: Arc::default(),
        }
    }
    pub fn clock() -> u64 {
        now_ms()
    }
    fn draw(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
    fn stamp(&self) -> Stamp {
        let mut stamp = [0; 16];
        stamp[..8].copy_from_slice(&self.term.to_le_bytes());
        stamp[8..].copy_from_slice(&self.draw().to_le_bytes());
        stamp
    }
    /// A name for objects that no object ever had.
    pub fn draw_name(&self) -> String {
        object_name(self.term, self.draw())
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
        let mut beat = self.pulse.beat.lock();
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
            self.pulse.wake.notify_all();
            if self.pulse.wake.wait_until(&mut beat, until).timed_out() {
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
    /// Sends something that may happen twice, until it is answered or [`Timing::patience`] is over.
    pub fn persist<T>(&self, send: impl FnMut(&dyn Pool) -> Answer<T>) -> Result<T> {
        until_answered(self.pool.as_ref(), &self.subject, self.timing.patience, send)
    }
    /// Changes an object as its holder, exactly once. `last`: the object's last change, if it is known; it is the new one
    /// on success. After an error without an answer the change may or may not take place, but never after a later one
    /// that succeeded.
    pub fn change(&self, object: &str, last: &mut Option<Vec<u8>>, changes: &[Change<'_>]) -> Result<()> {
        let mine = self.stamp();
        let term = self.term.to_le_bytes();
        let mut retry = Retry::new(self.timing.patience);
        let mut all = changes.to_vec();
        all.push(Change::SetAttribute(CHANGE, &mine));
        loop {
            let before = match last.take() {
                Some(before) => before,
                None => self.last_change(object).map_err(|error| self.why(error))?,
            };
            let checks = [Check::Attribute(TERM, &term), Check::Attribute(CHANGE, &before)];
            let answer = if before == mine { Ok(()) } else { self.pool.change(object, &checks, &all) };
            match answer {
                Ok(()) => {
                    *last = Some(mine.to_vec());
                    return Ok(());
                }
                // Another holder, or an earlier attempt or change that took place without an answer: the next turn reads
                // which.
                Err(refusal) if refusal.kind == RefusalKind::Refused && retry.again() => {}
                Err(refusal) if refusal.kind == RefusalKind::Unanswered && retry.again() => *last = Some(before),
                Err(refusal) => return Err(self.why(failed(&self.subject, &refusal))),
            }
        }
    }
    /// The reason of a failed change: a successor removes objects that it does not need.
    #[cold]
    fn why(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::NotFound {
            self.look();
        }
        self.lost().unwrap_or(error)
    }
    /// Reads an object's last change. Fails, for good, if the object has another holder.
    fn last_change(&self, object: &str) -> Result<Vec<u8>> {
        let term = self.persist(|pool| pool.attribute(object, TERM))?.unwrap_or_default();
        if term != self.term.to_le_bytes() {
            return Err(self.lose());
        }
        Ok(self.persist(|pool| pool.attribute(object, CHANGE))?.unwrap_or_default())
    }
    /// Changes the head.
    pub fn change_head(&self, changes: &[Change<'_>]) -> Result<()> {
        let mut last = self.head.lock();
        self.change(HEAD, &mut last, changes)
    }
    /// Removes the head.
    pub fn end(&self) -> Result<()> {
        let _last = self.head.lock();
        let term = self.term.to_le_bytes();
        let gone = self.persist(|pool| match pool.change(HEAD, &[Check::Attribute(TERM, &term)], &[Change::Remove]) {
            Err(refusal) if refusal.kind == RefusalKind::NotFound => Ok(()),
            other => other,
        });
        let _ = self.lost.set(Error::new(ErrorKind::NotFound, self.subject.clone()).because("the store was destroyed"));
        gone
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
    fn look(&self) {
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
        let mut beat = self.pulse.beat.lock();
        if let Some(cause) = trouble.as_ref().filter(|_| beat.trouble.is_none()) {
            tracing::warn!(home = %self.subject, %cause, "the pool does not answer");
        }
        (beat.trouble, beat.is_wanted) = (trouble, false);
        self.pulse.wake.notify_all();
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        self.pulse.beat.lock().is_over = true;
        self.pulse.wake.notify_all();
        if self.lost.get().is_some() {
            return;
        }
        // A successor need not wait then. Without an answer it does.
        let holder = encode_holder(&Holder { is_released: true, ..self.holder.clone() }, &self.nonce);
        let changes = [Change::SetAttribute(HOLDER, holder.as_bytes())];
        let term = self.term.to_le_bytes();
        let _ = self.pool.change(HEAD, &[Check::Attribute(TERM, &term)], &changes);
    }
}

/// Asks the pool from time to time whether this is still the holder, until the tenure is dropped.
pub(super) fn keep(tenure: &Arc<Tenure>) {
    let (weak, pulse, interval) = (Arc::downgrade(tenure), Arc::clone(&tenure.pulse), tenure.timing.beat);
    let looks = move || {
        while look_once(&weak) && pulse.wait(interval) {}
    };
    if let Err(error) = thread::Builder::new().name("cenote-home".into()).spawn(looks) {
        tracing::error!(%error, "no thread to ask the pool whose store it is: changes will be refused");
    }
}

/// Returns false once nobody needs it.
fn look_once(tenure: &Weak<Tenure>) -> bool {
    let Some(tenure) = tenure.upgrade() else { return false };
    if tenure.lost.get().is_none() {
        tenure.look();
    }
    tenure.lost.get().is_none()
}

impl Pulse {
    /// Waits for an interval, or until a look is wanted. Returns false at the end of the tenure.
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

/// Pauses between attempts, each twice as long as the one before.
pub(super) struct Retry {
    until: Instant,
    pause: Duration,
}

impl Retry {
    pub fn new(patience: Duration) -> Self {
        Self { until: Instant::now() + patience, pause: PAUSE }
    }
    /// Pauses; false if the time is over.
    pub fn again(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        thread::sleep(self.pause.min(self.until.saturating_duration_since(Instant::now())));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}

/// Sends something that may happen twice, until it is answered or the patience is over.
pub(super) fn until_answered<T>(
    pool: &dyn Pool,
    subject: &str,
    patience: Duration,
    mut send: impl FnMut(&dyn Pool) -> Answer<T>,
) -> Result<T> {
    let mut retry = Retry::new(patience);
    loop {
        match send(pool) {
            Ok(answer) => return Ok(answer),
            Err(refusal) if refusal.kind == RefusalKind::Unanswered && retry.again() => {}
            Err(refusal) => return Err(failed(subject, &refusal)),
        }
    }
}

/// The error for a refusal.
#[cold]
pub(super) fn failed(subject: &str, refusal: &Refusal) -> Error {
    let (kind, next) = match refusal.kind {
        RefusalKind::NotFound => (ErrorKind::NotFound, "check the names of pool and store: `ceph osd pool ls`"),
        RefusalKind::Exists => (ErrorKind::Exists, "choose another name"),
        RefusalKind::Refused => (ErrorKind::Busy, "look who has the store, and try again"),
        RefusalKind::Full => (ErrorKind::Full, "free space in the pool, or raise its quota: `ceph df`"),
        RefusalKind::Denied => (
            ErrorKind::PermissionDenied,
            "give the key these rights: `ceph auth caps client.NAME mon 'allow r' osd 'allow rwx pool=POOL'`",
        ),
        RefusalKind::Unsupported => {
            (ErrorKind::Unsupported, "journals need a replicated pool: `ceph osd pool create POOL replicated`")
        }
        RefusalKind::Unanswered => (ErrorKind::Io, "check the Ceph cluster and the way to it: `ceph -s`"),
        RefusalKind::Failed => (ErrorKind::Io, "check the Ceph cluster: `ceph -s`"),
    };
    Error::new(kind, subject).because(refusal.cause.clone()).try_next(next)
}
