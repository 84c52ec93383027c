//! Updates of a message that is still open.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_model::{Check, Update};

use super::kept::{Encoded, Kept, MESSAGE_BYTES_MAX};
use super::premise::{Grounds, Head};
use super::queue::{Batch, Ticket, Together};
use super::subject::Subject;
use crate::sync::lock;

/// Largest number of updates in a batch: one message and one journal record.
const BATCH_UPDATES_MAX: usize = 64;
/// A batch with this many bytes of data is sent: the cost of its message is then small.
const BATCH_BYTES_MAX: u64 = 512 << 10;

/// Updates that are gathered into a batch until it is sent.
pub(super) struct Building {
    pub batch: Arc<Batch>,
    pub updates: Vec<Update>,
    pub atomic: bool,
    pub premise: Option<Arc<Grounds>>,
    pub checks: Vec<Check>,
    pub is_in_series: bool,
    pub bytes: u64,
    /// Encoded bytes of updates in the redo log; such updates never share a batch with others.
    pub kept_bytes: Option<usize>,
}

impl Building {
    /// Starts a batch.
    pub fn of(batch: Arc<Batch>) -> Self {
        Self {
            batch,
            updates: Vec::with_capacity(BATCH_UPDATES_MAX),
            atomic: false,
            premise: None,
            checks: Vec::new(),
            is_in_series: false,
            bytes: 0,
            kept_bytes: None,
        }
    }
    /// Returns true if such updates may join the batch.
    pub fn may_take(&self, together: &Together, encoded: Option<&Encoded>) -> bool {
        is_same(self.premise.as_ref(), together.premise())
            && self.kept_bytes.is_some() == together.is_kept()
            && self.kept_bytes.unwrap_or(0) + encoded.map_or(0, Encoded::bytes) <= MESSAGE_BYTES_MAX
    }
    /// Returns the additions of these updates to the head of the message.
    pub fn head(&mut self, together: &Together, updates: &[Update]) -> Head {
        let mut head = Head::default();
        if let Some(premise) = together.premise() {
            if self.premise.is_none() {
                self.premise = Some(premise.clone());
                premise.begin(&mut head);
            }
            self.is_in_series = self.is_in_series || premise.is_next_in_series(updates, &mut head);
            self.atomic = true;
        }
        head
    }
    /// Puts the updates into the redo log. Returns false if that is impossible.
    pub fn keep(&mut self, kept: &Kept, head: &Head, encoded: Option<&Encoded>) -> bool {
        let bytes = self.kept_bytes.get_or_insert(0);
        let Some(encoded) = encoded else {
            *bytes = MESSAGE_BYTES_MAX; // nothing else joins this batch
            return false;
        };
        *bytes += encoded.bytes();
        kept.put(self.batch.number, head, encoded, self.atomic).unwrap_or(false)
    }
    pub fn append(&mut self, head: Head, mut updates: Vec<Update>, mut subjects: Vec<Subject>, io: usize) -> Ticket {
        let number = self.batch.number;
        for subject in &subjects {
            if let Subject::Write { object, .. }
            | Subject::Create(object)
            | Subject::Part { object: Some(object), .. } = subject
            {
                object.batch_last.store(number, Ordering::Release);
            }
        }
        let count = updates.len();
        self.batch.io_left.fetch_add(io, Ordering::AcqRel);
        self.bytes += subjects.iter().map(Subject::bytes).sum::<u64>();
        self.checks.extend(head.checks);
        let added = head.updates.iter().map(|_| Subject::Part { object: None, run: None, bytes: 0 });
        let first = {
            let mut inner = lock(&self.batch.state);
            inner.subjects.extend(added);
            let first = inner.subjects.len();
            inner.subjects.append(&mut subjects);
            first
        };
        self.updates.extend(head.updates);
        self.updates.append(&mut updates);
        Ticket { batch: self.batch.clone(), first, count }
    }
    pub fn is_full(&self) -> bool {
        self.updates.len() >= BATCH_UPDATES_MAX
            || self.bytes >= BATCH_BYTES_MAX
            || self.kept_bytes.is_some_and(|bytes| bytes >= MESSAGE_BYTES_MAX)
    }
}

fn is_same(a: Option<&Arc<Grounds>>, b: Option<&Arc<Grounds>>) -> bool {
    a.map(Arc::as_ptr) == b.map(Arc::as_ptr)
}
