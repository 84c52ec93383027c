//! Updates of a message that is still open.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_model::{Check, Update};

use super::precondition::{Head, PreconditionCheck};
use super::queue::{Batch, Ticket, Together};
use super::redo_log::{Encoded, MESSAGE_BYTES_MAX, RedoLog};
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
    pub precondition: Option<Arc<PreconditionCheck>>,
    pub checks: Vec<Check>,
    pub is_in_series: bool,
    pub bytes: u64,
    /// Encoded bytes of updates in the redo log; such updates never share a batch with others.
    pub logged_bytes: Option<usize>,
}

impl Building {
    /// Starts a batch.
    pub fn of(batch: Arc<Batch>) -> Self {
        Self {
            batch,
            updates: Vec::with_capacity(BATCH_UPDATES_MAX),
            atomic: false,
            precondition: None,
            checks: Vec::new(),
            is_in_series: false,
            bytes: 0,
            logged_bytes: None,
        }
    }
    /// Returns true if such updates may join the batch.
    pub fn may_take(&self, together: &Together, encoded: Option<&Encoded>) -> bool {
        is_same(self.precondition.as_ref(), together.precondition())
            && self.logged_bytes.is_some() == together.is_logged()
            && self.logged_bytes.unwrap_or(0) + encoded.map_or(0, Encoded::bytes) <= MESSAGE_BYTES_MAX
    }
    /// Returns the additions of these updates to the head of the message.
    pub fn head(&mut self, together: &Together, updates: &[Update]) -> Head {
        let mut head = Head::default();
        if let Some(precondition) = together.precondition() {
            if self.precondition.is_none() {
                self.precondition = Some(precondition.clone());
                precondition.begin(&mut head);
            }
            self.is_in_series = self.is_in_series || precondition.is_next_in_series(updates, &mut head);
            self.atomic = true;
        }
        head
    }
    /// Puts the updates into the redo log. Returns false if that is impossible.
    pub fn log(&mut self, redo_log: &RedoLog, head: &Head, encoded: Option<&Encoded>) -> bool {
        let bytes = self.logged_bytes.get_or_insert(0);
        let Some(encoded) = encoded else {
            *bytes = MESSAGE_BYTES_MAX; // nothing else joins this batch
            return false;
        };
        *bytes += encoded.bytes();
        redo_log.put(self.batch.number, head, encoded, self.atomic).unwrap_or(false)
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
            || self.logged_bytes.is_some_and(|bytes| bytes >= MESSAGE_BYTES_MAX)
    }
}

fn is_same(a: Option<&Arc<PreconditionCheck>>, b: Option<&Arc<PreconditionCheck>>) -> bool {
    a.map(Arc::as_ptr) == b.map(Arc::as_ptr)
}
