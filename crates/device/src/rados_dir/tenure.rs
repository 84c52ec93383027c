//! The time in which one opening has the store: changes that only its holder can make, and how it learns that it no
//! longer is the holder.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cenote_host::fork;
use cenote_model::{Error, ErrorKind, Result};
use cenote_rados::{Answer, Change, Check, Pool, Refusal, RefusalKind};
use parking_lot::Mutex;

use super::head::{CHANGE, HEAD, HOLDER, Holder, TERM, encode_holder, object_name};
use super::proof::{Proof, now_ms};

/// First pause before something is sent again.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The last change of an object: term and number, which no other change has.
type Stamp = [u8; 16];

/// See the module.
pub(super) struct Tenure {
    proof: Arc<Proof>,
    pub nonce: String,
    pub holder: Holder,
    /// The last change of the head; `None`: not known. Held while it is changed.
    head: Mutex<Option<Vec<u8>>>,
    numbers: AtomicU64,
    /// Asks the pool whose the store is.
    looks: Mutex<Option<thread::JoinHandle<()>>>,
    /// See [`fork::generation`]: the thread is one of the process that has the store.
    generation: u64,
}

impl Deref for Tenure {
    type Target = Proof;
    fn deref(&self) -> &Proof {
        &self.proof
    }
}

impl Tenure {
    /// Begins once the pool has the holder. `proved_ms`: [`Tenure::clock`] from before the operation that raised the term.
    pub fn new(place: &super::RadosPlace, holder: Holder, nonce: String, proved_ms: u64) -> Self {
        Self {
            proof: Arc::new(Proof::new(place, holder.term, proved_ms)),
            nonce,
            holder,
            head: Mutex::new(None),
            numbers: AtomicU64::new(1),
            looks: Mutex::default(),
            generation: fork::generation(),
        }
    }
    pub fn clock() -> u64 {
        now_ms()
    }
    /// Asks the pool from time to time whether this is still the holder, until the tenure is dropped.
    pub fn keep(&self) {
        *self.looks.lock() = Proof::keep(&self.proof);
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
        self.note_lost(Error::new(ErrorKind::NotFound, self.subject.clone()).because("the store was destroyed"));
        gone
    }
    /// Fails if another holder has the store, or the pool does not say who has.
    pub fn confirm(&self) -> Result<()> {
        let term = self.persist(|pool| pool.attribute(HEAD, TERM)).map_err(|error| self.why(error))?;
        if term.is_some_and(|term| term == self.term.to_le_bytes()) { Ok(()) } else { Err(self.lose()) }
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return; // a child of the process that has the store
        }
        self.proof.end();
        // Nobody asks the pool any more, so that it is let go here: a process that ends must not do so in the middle of it.
        if let Some(looks) = self.looks.lock().take() {
            let _ = looks.join();
        }
        if self.lost().is_some() {
            return;
        }
        // A successor need not wait then. Without an answer it does.
        let holder = encode_holder(&Holder { is_released: true, ..self.holder.clone() }, &self.nonce);
        let changes = [Change::SetAttribute(HOLDER, holder.as_bytes())];
        let term = self.term.to_le_bytes();
        let _ = self.pool.change(HEAD, &[Check::Attribute(TERM, &term)], &changes);
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
