//! Updates of a message that is still open.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_model::{Check, Run, Update};

use super::precondition::{Head, PreconditionCheck};
use super::queue::{Batch, Ticket, Together};
use super::redo_log::{Encoded, MESSAGE_BYTES_MAX, RedoLog};
use super::subject::Subject;
use crate::sync::lock;

/// Largest number of updates in a batch: one message and one journal record.
const BATCH_UPDATES_MAX: usize = 64;
/// A batch with this many bytes of data is sent: the cost of its message is then small.
const BATCH_BYTES_MAX: u64 = 512 << 10;

/// The same for bytes that travel in the message: it fits a frame of the ring.
const FAR_BATCH_BYTES_MAX: u64 = 120 << 10;

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
    /// The last update that brings bytes with it.
    last_fill: Option<usize>,
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
            last_fill: None,
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
    /// `pieces`: the bytes of updates that bring some, in order.
    pub fn append(
        &mut self,
        head: Head,
        (mut updates, mut subjects): (Vec<Update>, Vec<Subject>),
        pieces: &[&[u8]],
        io: usize,
    ) -> Ticket {
        let number = self.batch.number;
        self.bring(&mut updates, &mut subjects, pieces);
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
        let begin = self.updates.len();
        self.updates.append(&mut updates);
        let is_fill = |update: &Update| matches!(update, Update::Fill { .. });
        self.last_fill = self.updates[begin..].iter().rposition(is_fill).map(|at| begin + at).or(self.last_fill);
        Ticket { batch: self.batch.clone(), first, count }
    }
    /// Gives the updates that bring bytes theirs, in order.
    fn bring(&mut self, updates: &mut Vec<Update>, subjects: &mut Vec<Subject>, pieces: &[&[u8]]) {
        let (mut pieces, mut at) = (pieces.iter(), 0);
        while let Some(update) = updates.get_mut(at) {
            if let Update::Fill { run, bytes, .. } = update
                && let Some(piece) = pieces.next()
            {
                if at == 0 && self.join(*run, piece) {
                    updates.remove(0);
                    subjects.remove(0);
                    continue;
                }
                bytes.extend_from_slice(piece);
            }
            at += 1;
        }
    }
    /// Adds bytes to those that the batch brings already, if they go to the space behind them.
    fn join(&mut self, next: Run, more: &[u8]) -> bool {
        let last = self.last_fill.and_then(|at| self.updates.get_mut(at));
        let Some(Update::Fill { run, bytes, .. }) = last else { return false };
        let is_next = next.device == run.device && next.offset == run.offset + run.len;
        if is_next {
            if bytes.capacity() < run.len as usize + more.len() {
                bytes.reserve(FAR_BATCH_BYTES_MAX as usize); // once a batch
            }
            bytes.resize(run.len as usize, 0);
            bytes.extend_from_slice(more);
            run.len += next.len;
        }
        is_next
    }
    pub fn is_full(&self) -> bool {
        self.last_fill.is_some() && self.bytes >= FAR_BATCH_BYTES_MAX
            || self.updates.len() >= BATCH_UPDATES_MAX
            || self.bytes >= BATCH_BYTES_MAX
            || self.logged_bytes.is_some_and(|bytes| bytes >= MESSAGE_BYTES_MAX)
    }
}

fn is_same(a: Option<&Arc<PreconditionCheck>>, b: Option<&Arc<PreconditionCheck>>) -> bool {
    a.map(Arc::as_ptr) == b.map(Arc::as_ptr)
}
