//! Transactions over several homes: what this home does for one in each phase. It must not know how homes reach each
//! other: what is to be said to another one is an [`Errand`].

use cenote_model::{
    Check, ContainerId, Durability, Error, ErrorKind, HomeId, Request, Response, Result, TransactionId, Update,
};

use super::{Core, Wait};
use crate::apply::{NO_KEY, Txn, refusal_error, subject_of};
use crate::codec::Encode;
use crate::engine::{failed, ready};
use crate::journal::Kind;
use crate::journal::two_phase::{encode_part, encode_transaction};
use crate::session::Recorded;
use crate::two_phase::{Decision, Prepared};
use crate::{Errand, Outcome, SessionId};

/// A participant asks what became of a transaction whose client is still there after this time.
const ASK_AFTER_NS: u64 = 5_000_000_000;

impl Core {
    /// Returns the error for a request that concerns what a prepared transaction holds.
    pub fn held_error(&self, request: &Request) -> Option<Error> {
        self.state.two_phase.holds.against(request).map(|held| self.held(held))
    }

    #[cold]
    pub fn held(&self, (by, what): (TransactionId, String)) -> Error {
        let (decider, next) = if self.store.home.count > 1 {
            (format!("engine {}", by.home.0), "try again in a moment".to_owned())
        } else {
            let next =
                format!("try again; if that does not help, see whether home {} is there: `cenote ha DIR`", by.home);
            (format!("home {}", by.home), next)
        };
        Error::new(ErrorKind::Busy, what)
            .because(format!("transaction {by} holds it here until {decider} says what became of that"))
            .try_next(next)
    }

    /// Returns true if the request has to wait for a prepared transaction. One that was carried out before does not.
    pub fn is_kept_waiting(&self, session: SessionId, seq: u64, request: &Request) -> bool {
        self.state.two_phase.holds.against(request).is_some() && !self.was_carried_out(session, seq)
    }

    /// Returns true if the answer to a change with this number is known.
    pub fn was_carried_out(&self, session: SessionId, seq: u64) -> bool {
        self.state.sessions.open.get(&session).is_some_and(|open| open.recorded(seq).is_some())
    }

    /// The number of this home among those that transactions name.
    fn own_home(&self) -> HomeId {
        if self.store.home.count > 1 { HomeId(self.store.home.index) } else { self.store.home.of_cluster }
    }

    /// Checks a part of a transaction that another home decides, and holds what it concerns until that is settled.
    pub fn prepare(
        &mut self,
        (session, seq): (SessionId, u64),
        transaction: TransactionId,
        checks: Vec<Check>,
        updates: Vec<Update>,
    ) -> Outcome {
        if self.was_carried_out(session, seq) || self.state.two_phase.prepared.contains_key(&transaction) {
            return self.wait_durable(Vec::new(), Response::Prepared { is_sync: true }, false);
        }
        match self.prepare_new((session, seq), transaction, checks, updates) {
            Ok(is_sync @ true) => self.wait_durable(Vec::new(), Response::Prepared { is_sync }, false),
            Ok(is_sync) => Outcome::Ready(Response::Prepared { is_sync }),
            Err(error) => failed(error),
        }
    }

    fn prepare_new(
        &mut self,
        (session, seq): (SessionId, u64),
        transaction: TransactionId,
        checks: Vec<Check>,
        updates: Vec<Update>,
    ) -> Result<bool> {
        if transaction.home == self.own_home() {
            return Err(Error::new(ErrorKind::InvalidInput, format!("transaction {transaction}"))
                .because(format!("home {} decides it, and prepares nothing", transaction.home)));
        }
        check_parts(&updates)?;
        super::apply::check_shape(&checks, &updates, true)?;
        if let Some(held) = self.state.two_phase.holds.against_updates(&checks, &updates) {
            return Err(self.held(held));
        }
        self.store.home.check_new(&updates)?;
        updates.iter().try_for_each(|update| self.fill(session, update))?;
        self.check_all(&checks)?;
        let updates = self.with_numbers(updates);
        let (updates, is_sync) = self.try_out(session, updates)?;
        self.keep_prepared((session, seq), transaction, checks, updates)?;
        Ok(is_sync)
    }

    /// Gives new snapshots their numbers, so that they have the same ones whenever the transaction is settled.
    fn with_numbers(&self, mut updates: Vec<Update>) -> Vec<Update> {
        let mut next = self.state.containers.next_id;
        for update in &mut updates {
            let Update::SnapshotCreate { id, unix_ms, .. } = update else { continue };
            self.fill_in_snapshot((id, unix_ms), next);
            next = id.0.saturating_add(1);
        }
        updates
    }

    /// Applies updates and takes them back. Returns those that did something, and whether one of them is in a container
    /// whose changes are to survive power loss once they are answered.
    fn try_out(&mut self, session: SessionId, updates: Vec<Update>) -> Result<(Vec<Update>, bool)> {
        let mut txn = Txn { session, epoch: self.state.epoch + 1, ..Txn::default() };
        let mut kept = Vec::with_capacity(updates.len());
        let (mut is_sync, mut rolls_back) = (false, false);
        let mut done = Ok(());
        for update in updates {
            if matches!(update, Update::Fill { .. }) {
                continue;
            }
            let container = self.state.containers.get(update.container());
            rolls_back |= matches!(update, Update::SnapshotRollback { .. });
            is_sync |= container.is_some_and(|container| container.spec.durability == Durability::Sync);
            match self.state.apply(&mut txn, update.clone()) {
                Ok(()) => kept.push(update),
                Err(refusal) if refusal == NO_KEY => {}
                Err(refusal) => {
                    done = Err(refusal_error(refusal, subject_of(&update)));
                    break;
                }
            }
        }
        let done = done.and_then(|()| self.announce_written(&txn));
        if rolls_back && done.is_ok() {
            // Clients that remember what changes have to ask, and wait. Its updates alone do not say what that is.
            self.state.raise_words(&txn, self.seams.control.as_ref());
        }
        self.state.revert(&mut txn);
        done.map(|()| (kept, is_sync))
    }

    fn keep_prepared(
        &mut self,
        (session, seq): (SessionId, u64),
        transaction: TransactionId,
        checks: Vec<Check>,
        updates: Vec<Update>,
    ) -> Result<()> {
        let leases = self.state.take_leases(session, &updates).ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, format!("transaction {transaction}"))
                .because("it writes to space that the session does not lease")
        })?;
        let mut draft = self.journal.draft(Kind::Prepared);
        draft.bytes.put_u64(session.0);
        draft.bytes.put_u64(seq);
        encode_transaction(&mut draft.bytes, transaction);
        encode_part(&mut draft.bytes, &checks, &updates);
        if let Err(error) = self.journal.append(draft, self.state.epoch) {
            self.state.give_leases(session, leases);
            return Err(error);
        }
        self.note_journal_dirty();
        self.raise_words_of_updates(&updates);
        let since_ns = self.seams.clock.now_ns();
        self.state.hold_prepared(transaction, Prepared { session, checks, updates, leases, since_ns });
        let epoch = self.state.epoch;
        if let Some(session) = self.state.sessions.open.get_mut(&session) {
            session.record(Recorded { seq, epoch, detail: None });
        }
        Ok(())
    }

    /// Raises the words of what is held: clients that remember it have to ask, and wait.
    fn raise_words_of_updates(&self, updates: &[Update]) {
        let mut words: Vec<u64> = updates.iter().filter_map(Update::word_hash).collect();
        words.sort_unstable();
        words.dedup();
        for word in words {
            self.seams.control.word_raise(word);
        }
    }

    /// Applies this home's own part of a transaction, and decides with that that all of it is carried out.
    pub fn decide(
        &mut self,
        (session, seq): (SessionId, u64),
        (transaction, participants): (TransactionId, Vec<HomeId>),
        is_sync: bool,
        checks: &[Check],
        updates: Vec<Update>,
    ) -> Outcome {
        if let Some(answer) = self.answer_again(session, seq) {
            return answer;
        }
        if let Err(error) = self.check_decision(session, transaction).and_then(|()| check_parts(&updates)) {
            return failed(error);
        }
        self.txn.decision = Some((transaction, participants));
        let outcome = self.apply(session, seq, checks, updates, true);
        let journal = self.journal.position();
        if let Some(decision) = self.state.two_phase.decided.get_mut(&transaction).filter(|_| is_sync) {
            decision.journal = journal;
        }
        match outcome {
            Outcome::Ready(response @ Response::Applied { .. }) if is_sync => {
                self.wait_durable(Vec::new(), response, false)
            }
            outcome => outcome,
        }
    }

    /// The containers that are to be persisted, with their epochs, before anybody is told of a decision.
    fn to_be_persisted(&self, decision: &Decision) -> Vec<(ContainerId, u64)> {
        let is_sync = |id: &&ContainerId| {
            self.state.containers.get(**id).is_some_and(|it| it.spec.durability == Durability::Sync)
        };
        decision.touched.iter().filter(is_sync).map(|id| (*id, decision.epoch)).collect()
    }

    fn may_be_told(&self, decision: &Decision) -> bool {
        let containers = self.to_be_persisted(decision);
        self.is_over(&Wait::Durable { journal: decision.journal, containers, any: false })
    }

    fn check_decision(&self, session: SessionId, transaction: TransactionId) -> Result<()> {
        let subject = || format!("transaction {transaction}");
        if (transaction.session, transaction.home) != (session.0, self.own_home()) {
            return Err(Error::new(ErrorKind::InvalidInput, subject())
                .because("only the session that it names has it decided, and only at the home that it names"));
        }
        if self.state.two_phase.given_up.contains(&transaction) {
            return Err(Error::new(ErrorKind::Conflict, subject())
                .because("it took so long that one of its homes asked what became of it, and it was given up")
                .try_next("begin the transaction again"));
        }
        Ok(())
    }

    /// Carries out a prepared transaction, or gives it up. Answered, if that is to survive power loss, when it does.
    pub fn settle_part(&mut self, transaction: TransactionId, commits: bool) -> Outcome {
        self.update_clock();
        if !self.state.two_phase.prepared.contains_key(&transaction) {
            return self.when_all_durable(Response::Done); // the answer may have been lost, and not the change
        }
        if !commits {
            return ready(self.give_up_part(transaction, false).map(|()| Response::Done));
        }
        let mut txn = std::mem::take(&mut self.txn);
        let settled = self.settle_new(&mut txn, transaction);
        txn.steps.clear();
        txn.is_settled = false;
        self.txn = txn;
        match settled {
            Ok(()) => self.when_durable(Response::Done),
            Err(error) => failed(error),
        }
    }

    fn settle_new(&mut self, txn: &mut Txn, transaction: TransactionId) -> Result<()> {
        if !self.state.gone.reclaim.is_empty() && self.state.space.shared.is_everywhere() {
            self.reclaim(usize::MAX); // as before each request, so that a replay comes to the same state
        }
        txn.touched.clear();
        (txn.created, txn.ends_sync) = (None, false);
        self.observed.counting.begin_writes();
        let prepared = match self.state.begin_settling(txn, transaction) {
            Ok(prepared) => prepared,
            // A power loss took away what it relies on.
            Err(refusal) => {
                tracing::error!(%transaction, why = refusal.why, "its part here cannot be carried out");
                return self.give_up_part(transaction, false);
            }
        };
        let mut draft = self.journal.draft(Kind::Settled);
        encode_transaction(&mut draft.bytes, transaction);
        if let Err(error) = self.journal.append(draft, txn.epoch) {
            self.state.revert(txn);
            self.state.unsettle(transaction, prepared);
            return Err(error);
        }
        self.commit(txn, 0, Vec::new());
        let rest = self.state.end_settling();
        self.free_leases(rest);
        Ok(())
    }

    /// Gives up a prepared part. `returns`: its session leases the space of its writes again; else that is free.
    pub fn give_up_part(&mut self, transaction: TransactionId, returns: bool) -> Result<()> {
        let Some(prepared) = self.state.two_phase.prepared.get(&transaction) else { return Ok(()) };
        let returns = returns && self.state.sessions.open.contains_key(&prepared.session);
        self.append_given_up(transaction, returns)?;
        let Some(prepared) = self.state.two_phase.let_go(transaction) else { return Ok(()) };
        if returns {
            self.state.give_leases(prepared.session, prepared.leases);
            return Ok(());
        }
        self.free_leases(prepared.leases.leases);
        Ok(())
    }

    fn append_given_up(&mut self, transaction: TransactionId, returns: bool) -> Result<()> {
        let mut draft = self.journal.draft(Kind::GivenUp);
        encode_transaction(&mut draft.bytes, transaction);
        draft.bytes.put_u8(u8::from(returns));
        self.journal.append(draft, self.state.epoch)?;
        self.note_journal_dirty();
        Ok(())
    }

    /// Says whether a transaction was decided here. If not, it never will be. `tell`: see [`Request::Ask`].
    /// `by`: the session of a client that asks.
    pub fn ask(&mut self, by: Option<SessionId>, transaction: TransactionId, tell: &[HomeId]) -> Outcome {
        self.update_clock();
        if let Some(decision) = self.state.two_phase.decided.get(&transaction) {
            let containers = self.to_be_persisted(decision);
            return self.wait_durable(containers, Response::Decided(true), false);
        }
        // Without its session nobody can have it decided, and a client that asks does not any more.
        let is_own = by.is_some_and(|session| session.0 == transaction.session);
        let can_be = !is_own && self.state.sessions.open.contains_key(&SessionId(transaction.session));
        if can_be && !self.state.two_phase.given_up.contains(&transaction) {
            if let Err(error) = self.append_given_up(transaction, false) {
                return failed(error);
            }
            self.state.two_phase.given_up.insert(transaction);
        }
        self.abandoned.extend(tell.iter().map(|participant| (transaction, *participant)));
        Outcome::Ready(Response::Decided(false))
    }

    /// A participant has settled. With the last one the decision is forgotten.
    pub fn forget(&mut self, transaction: TransactionId, participant: HomeId) -> Result<()> {
        self.update_clock();
        self.abandoned.retain(|known| *known != (transaction, participant));
        let decided = self.state.two_phase.decided.get(&transaction);
        if !decided.is_some_and(|decision| decision.participants.contains(&participant)) {
            return Ok(());
        }
        let mut draft = self.journal.draft(Kind::Forgotten);
        encode_transaction(&mut draft.bytes, transaction);
        draft.bytes.put_u16(participant.0);
        self.journal.append(draft, self.state.epoch)?;
        self.note_journal_dirty();
        self.state.two_phase.forget(transaction, participant);
        Ok(())
    }

    /// What is to be said to other homes now.
    pub fn errands(&mut self) -> Vec<Errand> {
        self.update_clock();
        let (now_ns, opened_ns) = (self.state.now.ns, self.store.opened_ns);
        let is_due = |prepared: &Prepared| {
            let is_left = !self.state.sessions.open.contains_key(&prepared.session);
            is_left || now_ns.saturating_sub(prepared.since_ns.max(opened_ns)) >= ASK_AFTER_NS
        };
        let two_phase = &self.state.two_phase;
        let due = two_phase.prepared.iter().filter(|(_, prepared)| is_due(prepared));
        let ask = due.map(|(transaction, _)| Errand::Ask(*transaction));
        let decided = two_phase.decided.iter().filter(|(_, decision)| self.may_be_told(decision)).flat_map(
            |(transaction, decision)| {
                let tell = |participant: &HomeId| (*transaction, *participant);
                decision.participants.iter().map(tell)
            },
        );
        let tell = decided.map(|(transaction, participant)| Errand::Tell { transaction, participant, commits: true });
        let abandoned = self.abandoned.iter().map(|(transaction, participant)| Errand::Tell {
            transaction: *transaction,
            participant: *participant,
            commits: false,
        });
        ask.chain(tell).chain(abandoned).collect()
    }
}

/// Refuses what a transaction over several homes cannot have.
fn check_parts(updates: &[Update]) -> Result<()> {
    let Some(wrong) = updates.iter().find(|update| update.is_about_container()) else { return Ok(()) };
    Err(Error::new(ErrorKind::Unsupported, subject_of(wrong))
        .because("a transaction over several homes changes no containers")
        .try_next("make this change by itself, or on conditions of its own home alone"))
}
