//! A transaction that is sent without waiting for its outcome.

use cenote_model::{ObjectKey, Result, Update};

use super::Transaction;
use super::concerns::one_home;
use crate::link::subject::Subject;
use crate::op::Op;
use crate::precondition::Precondition;

impl Transaction {
    /// Sends everything without waiting for the outcome. For changes of pinned indices ([`Index::pin`]), whose cached
    /// records are the ones that the transaction has read: it detects no conflicts but that of the precondition. Reads
    /// of this process see the changes at once (after a broken pin because this call waits for them). If it fails,
    /// [`Op::wait`] returns the error, and the indices are no longer pinned.
    pub fn launch(mut self, precondition: &Precondition) -> Result<Op> {
        let (session, container) = (self.session()?, self.container());
        let updates = std::mem::take(&mut self.updates);
        if updates.is_empty() {
            return Ok(Op::of(&session, container, None));
        }
        let link = one_home(&session, &updates, std::slice::from_ref(precondition.check()))?;
        let mut runs = std::mem::take(&mut self.runs).into_iter().map(|(_, run)| run);
        let object = |key: &ObjectKey| Some(session.object(*key));
        let subjects = updates.iter().map(|update| match update {
            Update::Write { key, extent, .. } => {
                Subject::Part { object: object(key), run: runs.next(), bytes: u64::from(extent.len) }
            }
            // Reads of these objects wait for the batch.
            Update::ObjectCreate { key, .. }
            | Update::ObjectDelete { key }
            | Update::Punch { key, .. }
            | Update::Truncate { key, .. }
            | Update::Share { to: key, .. } => Subject::Part { object: object(key), run: None, bytes: 0 },
            Update::Put { key, value, .. } => {
                Subject::Part { object: None, run: None, bytes: (key.len() + value.len()) as u64 }
            }
            _ => Subject::Part { object: None, run: None, bytes: 0 },
        });
        let subjects = subjects.collect();
        let ticket = link.queue.push(updates, subjects, 0, &precondition.together());
        let mut is_known = true;
        for records in self.indices.values_mut() {
            let Some(cache) = &records.cache else { continue };
            if cache.changed_ahead(records.changed.drain()) {
                ticket.batch.told_ahead(cache);
            } else {
                is_known = false;
            }
        }
        if !is_known {
            // The guard has changed since the start, and the cache filled since then lacks this change: while the
            // change is in flight, the index's word claims that the cache holds.
            link.queue.settle(ticket.batch.number);
        }
        link.keep();
        Ok(Op::of(&session, container, Some(ticket)))
    }
}
