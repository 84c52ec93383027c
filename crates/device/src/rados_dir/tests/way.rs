//! A way to a pool that answers late, twice or not at all.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote_rados::{Answer, Change, Check, Pool, Refusal, RefusalKind};
use parking_lot::Mutex;

use crate::mem::SplitMix;

/// An operation that can be carried out later.
#[derive(Clone, Debug)]
struct Sent {
    object: String,
    checks: Vec<Option<(String, Vec<u8>)>>,
    absent: bool,
    changes: Vec<Owned>,
}

#[derive(Clone, Debug)]
enum Owned {
    Create,
    Replace(Vec<u8>),
    Write(u64, Vec<u8>),
    Append(Vec<u8>),
    Remove,
    SetAttribute(String, Vec<u8>),
    SetRecord(String, Vec<u8>),
    RemoveRecord(String),
}

impl Owned {
    fn of(change: &Change<'_>) -> Self {
        match *change {
            Change::Create => Self::Create,
            Change::Replace(bytes) => Self::Replace(bytes.to_vec()),
            Change::Write(at, bytes) => Self::Write(at, bytes.to_vec()),
            Change::Append(bytes) => Self::Append(bytes.to_vec()),
            Change::Remove => Self::Remove,
            Change::SetAttribute(name, value) => Self::SetAttribute(name.into(), value.to_vec()),
            Change::SetRecord(name, value) => Self::SetRecord(name.into(), value.to_vec()),
            Change::RemoveRecord(name) => Self::RemoveRecord(name.into()),
        }
    }
    fn borrowed(&self) -> Change<'_> {
        match self {
            Self::Create => Change::Create,
            Self::Replace(bytes) => Change::Replace(bytes),
            Self::Write(at, bytes) => Change::Write(*at, bytes),
            Self::Append(bytes) => Change::Append(bytes),
            Self::Remove => Change::Remove,
            Self::SetAttribute(name, value) => Change::SetAttribute(name, value),
            Self::SetRecord(name, value) => Change::SetRecord(name, value),
            Self::RemoveRecord(name) => Change::RemoveRecord(name),
        }
    }
}

impl Sent {
    fn of(object: &str, checks: &[Check<'_>], changes: &[Change<'_>]) -> Self {
        let attribute = |check: &Check<'_>| match check {
            Check::Attribute(name, value) => Some(((*name).to_owned(), value.to_vec())),
            Check::Exists | Check::Absent => None,
        };
        Self {
            object: object.to_owned(),
            checks: checks.iter().map(attribute).collect(),
            absent: checks.contains(&Check::Absent),
            changes: changes.iter().map(Owned::of).collect(),
        }
    }
    fn carry_out(&self, pool: &dyn Pool) -> Answer<()> {
        let mut checks: Vec<Check<'_>> =
            self.checks.iter().flatten().map(|(name, value)| Check::Attribute(name, value)).collect();
        checks.extend(self.absent.then_some(Check::Absent));
        let changes: Vec<Change<'_>> = self.changes.iter().map(Owned::borrowed).collect();
        pool.change(&self.object, &checks, &changes)
    }
}

/// One client's way to a pool: some changes are not answered, and of those some take place, at once or much later.
pub(super) struct Way {
    pool: Arc<dyn Pool>,
    rng: Mutex<SplitMix>,
    /// In a thousand changes.
    pub unanswered: AtomicU64,
    pub is_cut: AtomicBool,
    late: Mutex<VecDeque<Sent>>,
}

impl Way {
    pub fn new(pool: &Arc<dyn Pool>, seed: u64, unanswered: u64) -> Arc<Self> {
        Arc::new(Self {
            pool: Arc::clone(pool),
            rng: Mutex::new(SplitMix::new(seed)),
            unanswered: AtomicU64::new(unanswered),
            is_cut: AtomicBool::new(false),
            late: Mutex::default(),
        })
    }
    /// Carries out what was sent long ago, in any order.
    pub fn carry_out_late(&self) {
        let mut late: Vec<Sent> = self.late.lock().drain(..).collect();
        while !late.is_empty() {
            let at = self.rng.lock().below(late.len() as u64) as usize;
            let _ = late.swap_remove(at).carry_out(self.pool.as_ref()); // most are refused
        }
    }
    fn silence<T>() -> Answer<T> {
        Err(Refusal::new(RefusalKind::Unanswered, "no answer"))
    }
    fn is_silent(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }
}

impl Pool for Way {
    fn change(&self, object: &str, checks: &[Check<'_>], changes: &[Change<'_>]) -> Answer<()> {
        if self.is_silent() {
            self.late.lock().push_back(Sent::of(object, checks, changes));
            return Self::silence();
        }
        if self.rng.lock().below(1000) >= self.unanswered.load(Ordering::SeqCst) {
            return self.pool.change(object, checks, changes);
        }
        match self.rng.lock().below(3) {
            0 => {}
            1 => drop(self.pool.change(object, checks, changes)),
            _ => self.late.lock().push_back(Sent::of(object, checks, changes)),
        }
        Self::silence()
    }
    fn read(&self, object: &str, offset: u64, len: usize) -> Answer<Vec<u8>> {
        if self.is_silent() { Self::silence() } else { self.pool.read(object, offset, len) }
    }
    fn size(&self, object: &str) -> Answer<Option<u64>> {
        if self.is_silent() { Self::silence() } else { self.pool.size(object) }
    }
    fn attribute(&self, object: &str, name: &str) -> Answer<Option<Vec<u8>>> {
        if self.is_silent() { Self::silence() } else { self.pool.attribute(object, name) }
    }
    fn records(&self, object: &str, after: &str, most: usize) -> Answer<Vec<(String, Vec<u8>)>> {
        if self.is_silent() { Self::silence() } else { self.pool.records(object, after, most) }
    }
    fn list(&self) -> Answer<Vec<String>> {
        if self.is_silent() { Self::silence() } else { self.pool.list() }
    }
}
