//! Transactions over several homes, as the journal and checkpoints of one home know them: those that it has prepared,
//! those that it has decided, and those that it will never decide. This module must not know other homes.

use std::collections::{BTreeMap, BTreeSet};

use cenote_model::{Check, ContainerId, Durability, HomeId, TransactionId, Update};

use crate::SessionId;
use crate::apply::{NO_KEY, Refusal, Txn};
use crate::codec::ORDINALS_END;
use crate::holds::Holds;
use crate::map::DeviceIndex;
use crate::session::Session;
use crate::state::EngineState;

/// The session that has the space of a transaction's writes while it is settled. No client gets this number.
const SETTLER: SessionId = SessionId(u64::MAX);

/// A transaction whose part here was checked, and that waits for its decision elsewhere.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The session that prepared it.
    pub session: SessionId,
    pub checks: Vec<Check>,
    pub updates: Vec<Update>,
    /// Has the space that its writes name, so that this outlives the session that leased it.
    pub leases: Session,
    /// When this engine came to know it. Not on media.
    pub since_ns: u64,
}

/// A transaction that was decided here, and that some participants may not have settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Decision {
    /// Those that have not said that they have.
    pub participants: BTreeSet<HomeId>,
    /// Its epoch here, and the containers that it changed here.
    pub epoch: u64,
    pub touched: Vec<ContainerId>,
    /// The journal is to be on media up to here before anybody is told. Not on media: an opening has synced the journal.
    pub journal: u64,
}

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct TwoPhase {
    pub prepared: BTreeMap<TransactionId, Prepared>,
    pub decided: BTreeMap<TransactionId, Decision>,
    /// Transactions that a participant asked about before they were decided. Only an open session has any decided.
    pub given_up: BTreeSet<TransactionId>,
    pub holds: Holds,
}

impl TwoPhase {
    /// Returns true if there is nothing to be kept.
    pub fn is_empty(&self) -> bool {
        self.prepared.is_empty() && self.decided.is_empty() && self.given_up.is_empty()
    }
    /// Adds a prepared transaction, and holds what it concerns.
    pub fn prepare(&mut self, transaction: TransactionId, prepared: Prepared) {
        self.holds.add(transaction, &prepared.checks, &prepared.updates);
        self.prepared.insert(transaction, prepared);
    }
    /// Removes a prepared transaction, and lets go of what it concerns.
    pub fn let_go(&mut self, transaction: TransactionId) -> Option<Prepared> {
        let prepared = self.prepared.remove(&transaction)?;
        self.holds.remove(transaction, &prepared.checks, &prepared.updates);
        Some(prepared)
    }
    /// A session has ended: nothing of it can be decided any more.
    pub fn session_closed(&mut self, session: SessionId) {
        self.given_up.retain(|transaction| transaction.session != session.0);
    }
    /// A participant has settled. Returns false if that was known.
    pub fn forget(&mut self, transaction: TransactionId, participant: HomeId) -> bool {
        let Some(decision) = self.decided.get_mut(&transaction) else { return false };
        let is_new = decision.participants.remove(&participant);
        if decision.participants.is_empty() {
            self.decided.remove(&transaction);
        }
        is_new
    }
    /// Notes a decision. One without participants is not needed again.
    pub fn decide(&mut self, transaction: TransactionId, participants: &[HomeId], txn: &Txn) {
        let participants: BTreeSet<HomeId> = participants.iter().copied().collect();
        if !participants.is_empty() {
            let decision = Decision { participants, epoch: txn.epoch, touched: txn.touched.clone(), journal: 0 };
            self.decided.insert(transaction, decision);
        }
    }
}

impl EngineState {
    /// Takes the space of writes out of a session's leases. `None`, and nothing is taken, if it does not lease all of it.
    pub fn take_leases(&mut self, session: SessionId, updates: &[Update]) -> Option<Session> {
        let mut leases = Session::default();
        for update in updates {
            let Update::Write { extent, .. } = update else { continue };
            let taken = self.space.slot_of(extent.device).and_then(|dev| {
                let padded = self.space.get(dev).padded(u64::from(extent.run_len));
                let is_whole = self.space.get(dev).has_units(extent.run_offset, padded);
                let owner = self.sessions.open.get_mut(&session).filter(|_| is_whole)?;
                owner.consume(dev, extent.run_offset, padded).then_some((dev, padded))
            });
            let Some((dev, padded)) = taken else {
                self.give_leases(session, leases);
                return None;
            };
            leases.lease(dev, extent.run_offset, padded);
        }
        Some(leases)
    }
    /// The reverse.
    pub fn give_leases(&mut self, session: SessionId, leases: Session) {
        if let Some(owner) = self.sessions.open.get_mut(&session) {
            for ((dev, offset), len) in leases.leases {
                owner.lease(dev, offset, len);
            }
        }
    }
    /// Applies the updates of a prepared transaction, which can be reverted until [`EngineState::commit`]. Changes nothing
    /// if one of them is refused.
    pub fn begin_settling(&mut self, txn: &mut Txn, transaction: TransactionId) -> Result<Prepared, Refusal> {
        let missing = crate::apply::refuse(cenote_model::KeyCode::NotFound, "no such transaction is prepared");
        let mut prepared = self.two_phase.let_go(transaction).ok_or(missing)?;
        self.sessions.open.insert(SETTLER, std::mem::take(&mut prepared.leases));
        (txn.session, txn.epoch, txn.is_settled) = (SETTLER, self.epoch + 1, true);
        for update in prepared.updates.clone() {
            match self.apply(txn, update) {
                Ok(()) => {}
                Err(refusal) if refusal == NO_KEY => {}
                Err(refusal) => {
                    self.revert(txn);
                    self.unsettle(transaction, prepared);
                    return Err(refusal);
                }
            }
        }
        Ok(prepared)
    }
    /// Adds a prepared transaction, holds what it concerns, and keeps the numbers of its new snapshots for it.
    pub fn hold_prepared(&mut self, transaction: TransactionId, prepared: Prepared) {
        for update in &prepared.updates {
            if let Update::SnapshotCreate { id, .. } = update
                && id.0 < ORDINALS_END / 2
            {
                self.containers.next_id = self.containers.next_id.max(id.0 + 1);
            }
        }
        self.two_phase.prepare(transaction, prepared);
    }
    /// After [`EngineState::revert`]: the transaction is prepared again.
    pub fn unsettle(&mut self, transaction: TransactionId, mut prepared: Prepared) {
        prepared.leases = self.sessions.open.remove(&SETTLER).unwrap_or_default();
        self.two_phase.prepare(transaction, prepared);
    }
    /// After [`EngineState::commit`]. Returns space that the updates did not use.
    pub fn end_settling(&mut self) -> BTreeMap<(DeviceIndex, u64), u64> {
        self.sessions.open.remove(&SETTLER).unwrap_or_default().leases
    }
    /// After a power loss, when containers have gone back: forgets decisions whose part here was lost, so that no home
    /// carries them out any more, and prepared transactions that write bytes, which may be lost, or that make a snapshot
    /// of what may be lost.
    pub fn settle_power_loss(&mut self) -> Vec<TransactionId> {
        let containers = &self.containers;
        let is_there = |decision: &Decision| {
            let reached =
                |id: &ContainerId| containers.get(*id).is_none_or(|it| !it.is_tracked() || it.epoch >= decision.epoch);
            decision.touched.iter().all(reached)
        };
        self.two_phase.decided.retain(|_, decision| is_there(decision));
        self.two_phase.given_up.clear(); // their sessions are over
        let is_sync = |id: &ContainerId| containers.get(*id).is_some_and(|it| it.spec.durability == Durability::Sync);
        let loses = |it: &Prepared| {
            it.updates.iter().any(|update| match update {
                Update::Write { .. } => true,
                Update::SnapshotCreate { of, .. } => !is_sync(of),
                _ => false,
            })
        };
        let lost = self.two_phase.prepared.iter().filter(|(_, prepared)| loses(prepared));
        let lost: Vec<TransactionId> = lost.map(|(id, _)| *id).collect();
        for transaction in &lost {
            self.two_phase.let_go(*transaction);
        }
        lost
    }
}
