//! Transactions over several homes, for those who carry messages between homes.

use cenote_model::{Decision, Error, ErrorKind, HomeId, Request, Response, TransactionId, Update};

use super::{Engine, ready};
use crate::{Errand, Outcome, SessionId};

impl Engine {
    /// Answers a request about a transaction over several homes.
    pub(in crate::engine) fn of_two_phases(&mut self, session: SessionId, seq: u64, request: Request) -> Outcome {
        let Self { core, activities } = self;
        core.update_clock();
        match request {
            Request::Prepare { transaction, checks, updates } => {
                core.prepare((session, seq), transaction, checks, updates)
            }
            Request::Decide { decision, checks, updates } => {
                let Decision { transaction, participants, is_sync } = *decision;
                let outcome = core.decide((session, seq), (transaction, participants), is_sync, &checks, updates);
                activities.values.when_values_fit(core, outcome)
            }
            Request::Settle { transaction, commits } => core.settle_part(transaction, commits),
            Request::Ask { transaction, tell } => core.ask(Some(session), transaction, &tell),
            Request::Forget { transaction, participant } => {
                ready(core.forget(transaction, participant).map(|()| Response::Done))
            }
            _ => ready(Err(Error::new(ErrorKind::Internal, "a request").because("it is about no transaction"))),
        }
    }
    /// Returns true if a prepared transaction keeps this request waiting: handled now, it would fail with `Busy`.
    pub fn is_kept_waiting(&self, session: SessionId, seq: u64, request: &Request) -> bool {
        self.core.is_kept_waiting(session, seq, request)
    }
    /// The number of transactions that are prepared here.
    pub fn prepared_count(&self) -> usize {
        self.core.state.two_phase.prepared.len()
    }
    /// Returns true if a transaction is prepared here.
    pub fn is_prepared(&self, transaction: TransactionId) -> bool {
        self.core.state.two_phase.prepared.contains_key(&transaction)
    }
    /// Returns true if a transaction was decided here, and some participant may not have settled it.
    pub fn is_decided(&self, transaction: TransactionId) -> bool {
        self.core.state.two_phase.decided.contains_key(&transaction)
    }
    /// Returns true while decisions of this home wait for participants: there are, or will be, errands.
    pub fn has_decisions(&self) -> bool {
        !self.core.state.two_phase.decided.is_empty()
    }
    /// Returns true if the answer to a change with this number is known: it was carried out.
    pub fn was_carried_out(&self, session: SessionId, seq: u64) -> bool {
        self.core.was_carried_out(session, seq)
    }
    /// The transactions that are prepared here, with what they change.
    pub fn prepared(&self) -> Vec<(TransactionId, Vec<Update>)> {
        let all = self.core.state.two_phase.prepared.iter();
        all.map(|(transaction, prepared)| (*transaction, prepared.updates.clone())).collect()
    }
    /// What is to be said to other homes now. The same again until it was done.
    pub fn errands(&mut self) -> Vec<Errand> {
        self.core.errands()
    }
    /// Does what [`Request::Settle`] asks for, whoever has made sure of it.
    pub fn settle_part(&mut self, transaction: TransactionId, commits: bool) -> Outcome {
        let outcome = self.core.settle_part(transaction, commits);
        self.activities.settle(&mut self.core);
        outcome
    }
    /// Gives up a prepared part whose session goes on: the space of its writes is that session's again.
    pub fn take_back(&mut self, transaction: TransactionId) -> Outcome {
        ready(self.core.give_up_part(transaction, true).map(|()| Response::Done))
    }
    /// Does what [`Request::Ask`] asks for.
    pub fn ask(&mut self, transaction: TransactionId, tell: &[HomeId]) -> Outcome {
        self.core.ask(None, transaction, tell)
    }
    /// Does what [`Request::Forget`] asks for.
    pub fn forget(&mut self, transaction: TransactionId, participant: HomeId) -> Outcome {
        ready(self.core.forget(transaction, participant).map(|()| Response::Done))
    }
}
