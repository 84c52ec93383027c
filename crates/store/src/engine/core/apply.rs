//! `Apply`: checks and updates, each request exactly once.

use std::collections::BTreeSet;
use std::ops::Bound;

use cenote_model::{
    Check, ContainerId, DeviceKind, Durability, Error, ErrorKind, IndexKey, KeyCode, Response, Result,
    TRANSACTION_UPDATES_MAX, Update,
};

use super::Core;
use crate::apply::{Brought, NO_KEY, RangeStep, Step, Txn, refusal_error, shortened_bytes, subject_of};
use crate::codec::Decoder;
use crate::engine::failed;
use crate::index::Index;
use crate::journal::Kind;
use crate::journal::record::{begin_apply, decode_update, encode_update, finish_apply};
use crate::journal::two_phase::{encode_homes, encode_transaction};
use crate::session::{Detail, Recorded, Session};
use crate::state::EngineState;
use crate::{Outcome, SessionId};

impl Core {
    /// Applies updates. A repeated request gets its recorded response.
    pub fn apply(
        &mut self,
        session: SessionId,
        seq: u64,
        checks: &[Check],
        updates: Vec<Update>,
        atomic: bool,
    ) -> Outcome {
        if let Some(answer) = self.answer_again(session, seq) {
            return answer;
        }
        if let Some(held) = self.state.two_phase.holds.against_updates(checks, &updates) {
            self.txn.decision = None;
            return failed(self.held(held));
        }
        if let Err(error) = updates.iter().try_for_each(|update| self.fill(session, update)) {
            self.txn.decision = None;
            return failed(error);
        }
        let mut txn = std::mem::take(&mut self.txn);
        let outcome = self.apply_new(&mut txn, session, seq, checks, updates, atomic);
        txn.steps.clear();
        if txn.steps.capacity() > 65_536 {
            txn.steps = Vec::new();
        }
        self.txn = txn;
        match outcome {
            Ok(response) => self.when_durable(response),
            Err(error) => failed(error),
        }
    }

    /// Writes the bytes of an [`Update::Fill`] into space that the session leases; nothing for any other update. Nobody
    /// reads that space before a write of the same request names it.
    pub fn fill(&self, session: SessionId, update: &Update) -> Result<()> {
        let Update::Fill { run, bytes, .. } = update else { return Ok(()) };
        let slot = self.state.space.slot_of(run.device);
        let len = bytes.len() as u64;
        let leases = |dev| {
            let open = self.state.sessions.open.get(&session);
            open.is_some_and(|open| open.leases_all(dev, run.offset, run.len))
        };
        let refuse = |why: &str| Error::new(ErrorKind::InvalidInput, subject_of(update)).because(why);
        let Some(dev) = slot.filter(|dev| len <= run.len && leases(*dev)) else {
            return Err(refuse("the session does not lease this space"));
        };
        let slot = self.state.space.get(dev);
        let device = slot.device.as_ref().filter(|_| slot.spec.kind == DeviceKind::SharedMemory);
        device.ok_or_else(|| refuse("only memory is filled so"))?.copy_in(run.offset, bytes)
    }

    /// Applies writes of the engine itself, one by one, without a sequence number.
    pub fn apply_own(&mut self, session: SessionId, updates: Vec<Update>) -> Result<()> {
        let mut txn = std::mem::take(&mut self.txn);
        let done = self.apply_new(&mut txn, session, 0, &[], updates, false);
        txn.steps.clear();
        self.txn = txn;
        done.map(drop)
    }

    /// Checks and applies updates, and appends their journal record. Fails if a check does not hold, if an atomic
    /// request is refused, or if the journal does not take the record; nothing is changed then.
    pub fn apply_new(
        &mut self,
        txn: &mut Txn,
        session: SessionId,
        seq: u64,
        checks: &[Check],
        updates: Vec<Update>,
        atomic: bool,
    ) -> Result<Response> {
        let decision = txn.decision.take();
        check_shape(checks, &updates, atomic)?;
        self.store.home.check_new(&updates)?;
        self.check_all(checks)?;
        txn.touched.clear();
        txn.created = None;
        txn.ends_sync = false;
        txn.session = session;
        txn.epoch = self.state.epoch + 1;
        if updates.is_empty() && decision.is_none() {
            let epoch = self.state.epoch;
            return Ok(Response::Applied { epoch, codes: Vec::new(), words: Vec::new(), created: None });
        }
        if !self.state.gone.reclaim.is_empty() && self.state.space.shared.is_everywhere() {
            // With a snapshot of the same bytes, a write extends its neighbour or does not. A replay of the journal
            // gives up deleted objects at once, so do the same here to reach the same state.
            self.reclaim(usize::MAX);
        }
        let mut draft = self.journal.draft(if decision.is_some() { Kind::Decided } else { Kind::Apply });
        begin_apply(&mut draft, session, seq);
        self.observed.counting.begin_writes();
        let mut codes = Vec::new();
        let mut applied = 0;
        let count = updates.len();
        self.state.touch(&updates);
        for (i, mut update) in updates.into_iter().enumerate() {
            match &mut update {
                Update::ContainerCreate { id, spec, .. } => {
                    id.0 = if id.0 == 0 { self.store.home.next_container(self.state.containers.next_id) } else { id.0 };
                    self.fill_in_owners(session, spec);
                }
                Update::IndexCreate { key } | Update::Put { index: key, .. } if key.container.0 == 0 => {
                    key.container = txn.created.unwrap_or(key.container);
                }
                Update::SnapshotCreate { id, unix_ms, .. } => {
                    self.fill_in_snapshot((id, unix_ms), self.state.containers.next_id);
                }
                Update::Fill { .. } => {
                    if !codes.is_empty() {
                        codes.push(KeyCode::Ok);
                    }
                    continue;
                }
                _ => {}
            }
            let put_bytes = if let Update::Put { value, .. } = &update { value.len() as u64 } else { 0 };
            if let Update::Write { key, offset, extent } = &update {
                self.observed.pace.note(u64::from(extent.len));
                self.note_written(*key, *offset, extent.len);
                self.observed.counting.write(*key, extent.device, extent.len);
            }
            let mark = draft.bytes.len();
            encode_update(&mut draft.bytes, &update);
            let Err(refusal) = self.state.apply(txn, update) else {
                applied += 1;
                self.observed.pace.values_put_bytes += put_bytes;
                if !codes.is_empty() {
                    codes.push(KeyCode::Ok);
                }
                continue;
            };
            // In a transaction, deleting a key that does not exist is not a failure.
            let nothing_to_delete = refusal == NO_KEY;
            if atomic && !nothing_to_delete {
                let subject = decode_update(&mut Decoder::new(&draft.bytes[mark..])).map(|update| subject_of(&update));
                self.state.revert(txn);
                self.journal.discard(draft);
                return Err(refusal_error(refusal, subject.unwrap_or_default()));
            }
            draft.bytes.truncate(mark);
            if !atomic {
                if codes.is_empty() {
                    codes.reserve(count);
                    codes.resize(i, KeyCode::Ok);
                }
                codes.push(refusal.code);
            }
        }
        finish_apply(&mut draft, applied, &codes);
        if let Some((transaction, participants)) = &decision {
            encode_transaction(&mut draft.bytes, *transaction);
            encode_homes(&mut draft.bytes, participants.iter());
        }
        if let Err(error) = self.announce_written(txn).and_then(|()| self.journal.append(draft, txn.epoch)) {
            self.state.revert(txn);
            return Err(error);
        }
        let response = self.commit(txn, seq, codes);
        if let Some((transaction, participants)) = decision {
            self.state.two_phase.decide(transaction, &participants, txn);
        }
        Ok(response)
    }

    /// Gives a new snapshot its number and its time, unless it has them. `next`: all numbers below are given.
    pub fn fill_in_snapshot(&self, (id, unix_ms): (&mut ContainerId, &mut u64), next: u64) {
        id.0 = if id.0 == 0 { self.store.home.next_container(next) } else { id.0 };
        *unix_ms = if *unix_ms == 0 { self.seams.clock.unix_ms() } else { *unix_ms };
    }

    /// Tells the devices what a client that maps them has written there itself.
    pub fn announce_written(&self, txn: &Txn) -> Result<()> {
        if !self.state.sessions.open.get(&txn.session).is_some_and(Session::maps_segments) {
            return Ok(());
        }
        txn.steps.iter().try_for_each(|step| match step {
            Step::Range(RangeStep { from, to, brought: Brought::Written(written), .. }) => {
                let device = self.state.space.get(written.dev).device.as_ref();
                device.map_or(Ok(()), |device| device.committed(written.run_offset, to - from))
            }
            _ => Ok(()),
        })
    }

    /// Publishes applied updates: raises version words, retires replaced space, records the outcome under the session's
    /// sequence number.
    pub fn commit(&mut self, txn: &mut Txn, seq: u64, codes: Vec<KeyCode>) -> Response {
        let mut words = self.state.raise_words(txn, self.seams.control.as_ref());
        if matches!(txn.steps.last(), Some(Step::RolledBack { .. })) {
            words.clear(); // a rollback wrote nothing that the client knows of
        }
        let tag = self.tag();
        for step in &txn.steps {
            let durability = match step {
                Step::ContainerDeleted { slot } => {
                    self.answers.container_deleted_at = self.journal.position();
                    self.state.containers.at(*slot).spec.durability
                }
                Step::ContainerSet { slot, was } => {
                    let now = self.state.containers.at(*slot);
                    if now.spec.durability == Durability::Sync && was.durability != Durability::Sync {
                        let id = now.id;
                        self.became_sync(id);
                    }
                    was.durability
                }
                Step::Range(RangeStep { slot, brought: Brought::Shared, .. }) => {
                    let id = self.state.key_of(*slot).container;
                    if let Some(container) = self.state.containers.get_mut(id) {
                        container.durable.suspects_listed = false; // more of it may have to be written again
                    }
                    continue;
                }
                _ => continue,
            };
            txn.ends_sync |= durability == Durability::Sync;
        }
        self.state.commit(txn, tag);
        self.seams.control.epoch_raise();
        self.note_journal_dirty();
        let (epoch, created) = (txn.epoch, txn.created);
        if let Some(session) = self.state.sessions.open.get_mut(&txn.session) {
            let plain = codes.is_empty() && created.is_none();
            let detail = (!plain).then(|| Box::new(Detail::Applied { codes: codes.clone(), created }));
            session.record(Recorded { seq, epoch, detail });
            self.observed.counting.end_writes(session, self.state.now.s);
        }
        Response::Applied { epoch, codes, words, created }
    }

    /// Returns the recorded response to a change, or `None` if it is new. Fails if a lease had the same sequence
    /// number.
    pub fn answer_again(&mut self, session: SessionId, seq: u64) -> Option<Outcome> {
        let recorded = self.state.sessions.open.get(&session)?.recorded(seq)?;
        let epoch = recorded.epoch;
        let (codes, created) = match recorded.detail.as_deref() {
            None => (Vec::new(), None),
            Some(Detail::Applied { codes, created }) => (codes.clone(), *created),
            Some(Detail::Leased { .. }) => {
                return Some(failed(
                    Error::new(ErrorKind::InvalidInput, format!("request {seq}"))
                        .because("a request of another kind had this number"),
                ));
            }
        };
        let response = Response::Applied { epoch, codes, words: Vec::new(), created };
        Some(self.when_all_durable(response))
    }

    /// Fails with `Conflict` at the first check that does not hold.
    pub fn check_all(&mut self, checks: &[Check]) -> Result<()> {
        for check in checks {
            match self.state.broken(check) {
                None => {}
                Some((subject, why)) => {
                    return Err(Error::new(ErrorKind::Conflict, subject)
                        .because(why)
                        .try_next("begin the transaction again"));
                }
            }
        }
        Ok(())
    }
}

impl EngineState {
    /// Returns the subject of a check and why it does not hold; `None` if it holds.
    pub fn broken(&mut self, check: &Check) -> Option<(String, String)> {
        let (now, expected, subject) = match check {
            Check::Object { key, epoch } => {
                let slot = self.find_object(*key);
                (slot.map_or(0, |slot| self.objects.get(slot).epoch), *epoch, format!("object {key}"))
            }
            Check::Record { index, key, epoch } => {
                let record = self.index_of(*index).and_then(|records| records.get(key));
                (record.map_or(0, |record| record.epoch), *epoch, format!("a record of index {index}"))
            }
            Check::Value { index, key, value } => {
                let record = self.index_of(*index).and_then(|records| records.get(key));
                let holds = match (record, value) {
                    (Some(record), Some(value)) => record.value.is(value),
                    (record, value) => record.is_none() && value.is_none(),
                };
                let why = || "it has another value than the transaction had read".to_owned();
                return (!holds).then(|| (format!("a record of index {index}"), why()));
            }
            Check::NoKeys { index, prefix } => {
                let mut from = self.index_of(*index)?.range(Bound::Included(prefix));
                let (key, _) = from.next().filter(|(key, _)| key.starts_with(prefix))?;
                let why = format!("there is a record, `{}`, where none was to be", shortened_bytes(key));
                return Some((format!("index {index}"), why));
            }
            Check::Size { key, size } => {
                let found = self.find_object(*key).map(|slot| self.objects.get(slot).size);
                let why = match found {
                    Some(found) if found == *size => return None,
                    Some(found) => format!("it has {found} bytes, not {size}"),
                    None => "it does not exist, or no longer".to_owned(),
                };
                return Some((format!("object {key}"), why));
            }
        };
        // An object is unchanged after an epoch if its last update is not later. Existence must agree too.
        let is_changed = now > expected || (now == 0) != (expected == 0);
        let why = || format!("it was changed at epoch {now}, the transaction had read epoch {expected}");
        is_changed.then(|| (subject, why()))
    }

    /// Returns an index, or `None` if it or its container does not exist.
    pub fn index_of(&self, key: IndexKey) -> Option<&Index> {
        self.containers.get(key.container)?.content.indices.get(&key.index).map(|index| &**index)
    }
}

/// Returns true for a new container with its first indices and records, and no bytes. Like the creation itself these
/// are in the journal alone, so all of it survives power loss, or none.
fn makes_container_whole(updates: &[Update]) -> bool {
    let [Update::ContainerCreate { id, .. }, content @ ..] = updates else { return false };
    content.iter().all(|update| match update {
        Update::IndexCreate { key } | Update::Put { index: key, .. } => key.container == *id,
        _ => false,
    })
}

/// Refuses what the request alone shows to be invalid.
pub(super) fn check_shape(checks: &[Check], updates: &[Update], atomic: bool) -> Result<()> {
    if updates.len() > TRANSACTION_UPDATES_MAX || checks.len() > TRANSACTION_UPDATES_MAX {
        return Err(Error::new(ErrorKind::LimitExceeded, "a transaction")
            .because(format!("{} updates, the limit is {TRANSACTION_UPDATES_MAX}", updates.len().max(checks.len())))
            .try_next("split it"));
    }
    if updates.len() > 1 && updates.iter().any(Update::is_about_snapshot) && !(atomic && are_of_snapshots(updates)) {
        return Err(Error::new(ErrorKind::InvalidInput, "a request")
            .because("changes of snapshots stand alone: one of each container, and nothing else")
            .try_next("make them one by one"));
    }
    if atomic && updates.len() > 1 && updates.iter().any(Update::is_about_container) && !makes_container_whole(updates)
    {
        return Err(Error::new(ErrorKind::InvalidInput, "a transaction")
            .because("changes of containers stand alone, but for the first indices and records of a new one")
            .try_next("make them one by one, before the transaction"));
    }
    Ok(())
}

/// Returns true if all are about snapshots, each of another container.
fn are_of_snapshots(updates: &[Update]) -> bool {
    let containers: BTreeSet<ContainerId> = updates.iter().map(Update::container).collect();
    containers.len() == updates.len() && updates.iter().all(Update::is_about_snapshot)
}
