//! Replay: applies the journal to the state again.

use cenote_model::{Check, TransactionId, Update};

use crate::SessionId;
use crate::apply::Txn;
use crate::journal::record::Entry;
use crate::session::{Recorded, Session};
use crate::space::Tag;
use crate::state::EngineState;
use crate::two_phase::Prepared;

type Replayed = Result<(), &'static str>;

impl EngineState {
    /// Applies a record. Fails if the journal contradicts the state.
    pub fn replay(&mut self, epoch: u64, entry: Entry) -> Replayed {
        if matches!(entry, Entry::Synced) {
            return Ok(()); // written before the record that it came with
        }
        let applies = matches!(entry, Entry::Apply { .. } | Entry::Settled { .. });
        if epoch != self.epoch + u64::from(applies) {
            return Err("its epoch does not follow that of the record before");
        }
        match entry {
            Entry::Apply { session, seq, updates, detail, decision } => {
                let mut txn = Txn { epoch, session, ..Txn::default() };
                for update in updates {
                    if self.apply(&mut txn, update).is_err() {
                        return Err("an update cannot be applied");
                    }
                }
                self.commit(&mut txn, Tag::default());
                if let Some((transaction, participants)) = decision {
                    self.two_phase.decide(transaction, &participants, &txn);
                }
                if let Some(session) = self.sessions.open.get_mut(&session) {
                    session.record(Recorded { seq, epoch, detail });
                }
            }
            Entry::SessionOpen { id, info } => {
                self.sessions.next_id = self.sessions.next_id.max(id.0.saturating_add(1));
                self.sessions.open.insert(id, Session::new(info));
            }
            Entry::SessionClose { id } => {
                self.two_phase.session_closed(id);
                let closed = self.sessions.open.remove(&id);
                closed.into_iter().flat_map(|session| session.pins).for_each(|id| self.let_go(id));
            }
            Entry::Pin { session, id, yes } => {
                let owner = self.sessions.open.get_mut(&session).ok_or("a pin of a session that is not open")?;
                if yes && !self.containers.is_snapshot(id) {
                    return Err("a pin of a snapshot that is not there");
                }
                if yes {
                    owner.pins.insert(id);
                } else {
                    owner.pins.remove(&id);
                    self.let_go(id);
                }
            }
            Entry::Lease { session, seq, runs } => {
                let owner = self.sessions.open.get_mut(&session).ok_or("a lease of a session that is not open")?;
                for run in &runs {
                    let dev = self.space.slot_of(run.device).ok_or("a lease on an unknown device")?;
                    if !self.space.get(dev).has_units(run.offset, run.len) {
                        return Err("a lease past the end of its device");
                    }
                    owner.lease(dev, run.offset, run.len);
                }
                if seq != 0 {
                    let detail = Some(Box::new(crate::session::Detail::Leased { runs }));
                    owner.record(Recorded { seq, epoch, detail });
                }
            }
            Entry::Unlease { session, runs } => {
                let owner = self.sessions.open.get_mut(&session).ok_or("a lease of a session that is not open")?;
                for run in runs {
                    let dev = self.space.slot_of(run.device).ok_or("a lease on an unknown device")?;
                    if !self.space.get(dev).has_units(run.offset, run.len) {
                        return Err("it gives back parts of allocation units");
                    }
                    if !owner.consume(dev, run.offset, run.len) {
                        return Err("it gives back what was not leased");
                    }
                }
            }
            Entry::Cut { epoch: at, .. } | Entry::Mark { epoch: at, .. } if at > epoch => {
                return Err("a cut of what is yet to come");
            }
            Entry::Cut { id, epoch, members, later } => self.begin_cut(id, epoch, &members, &later),
            Entry::Mark { id, epoch, members } => self.mark(id, epoch, &members, 0),
            Entry::Place(places) => {
                for placed in places {
                    let has_copy = self.target_mut(placed.target).is_some_and(|ext| ext.has_copy());
                    let placing = placed.placing(|id| self.space.slot_of(id), has_copy);
                    let placing = placing.ok_or("a move to an unknown device, or to a copy that is not there")?;
                    if !self.can_place(&placing) {
                        return Err("it moves an extent that is not there");
                    }
                    let twins = self.twins(&placing);
                    self.place(&placing, &twins, placed.shares, Tag::default());
                }
            }
            Entry::Keep(changes) => changes.into_iter().for_each(|change| self.pins.change(change)),
            Entry::Spill(spill) => self.spill(&spill)?,
            Entry::GiveUp { container, offsets } => self.give_up_batches(container, &offsets, Tag::default())?,
            Entry::Prepared { session, seq, transaction, checks, updates } => {
                let part = (checks, updates);
                self.replay_prepared((session, seq), transaction, part)?;
            }
            Entry::Settled { transaction } => {
                self.replay_settled(transaction)?;
            }
            Entry::GivenUp { transaction, returns } => self.replay_given_up(transaction, returns),
            Entry::Forgotten { transaction, participant } => {
                self.two_phase.forget(transaction, participant);
            }
            Entry::Synced => {}
        }
        while !self.reclaim(usize::MAX, Tag::default(), &mut |_| {}) {}
        Ok(())
    }

    fn replay_prepared(
        &mut self,
        (session, seq): (SessionId, u64),
        transaction: TransactionId,
        (checks, updates): (Vec<Check>, Vec<Update>),
    ) -> Replayed {
        let leases = self.take_leases(session, &updates).ok_or("a prepared transaction writes to space of others")?;
        if self.two_phase.prepared.contains_key(&transaction) {
            return Err("a transaction is prepared twice");
        }
        self.hold_prepared(transaction, Prepared { session, checks, updates, leases, since_ns: 0 });
        let epoch = self.epoch;
        if let Some(session) = self.sessions.open.get_mut(&session) {
            session.record(Recorded { seq, epoch, detail: None });
        }
        Ok(())
    }
    fn replay_settled(&mut self, transaction: TransactionId) -> Replayed {
        let mut txn = Txn::default();
        if self.begin_settling(&mut txn, transaction).is_err() {
            return Err("a transaction over several homes cannot be settled");
        }
        self.commit(&mut txn, Tag::default());
        self.end_settling();
        Ok(())
    }
    /// The home that has prepared a transaction is never the one that decides it.
    fn replay_given_up(&mut self, transaction: TransactionId, returns: bool) {
        match self.two_phase.let_go(transaction) {
            None => _ = self.two_phase.given_up.insert(transaction),
            Some(prepared) if returns => self.give_leases(prepared.session, prepared.leases),
            Some(_) => {}
        }
    }
}
