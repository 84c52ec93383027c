//! A commit over several homes: each but the last prepares its part, in the order of their numbers, and the last one
//! decides. The homes settle it among themselves; until then others that look wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_model::{
    Check, Decision, Error, ErrorKind, HomeId, ObjectKey, Request, Response, Result, TransactionId, Update,
};

use super::Transaction;
use crate::answer::surprise;
use crate::link::Link;
use crate::object::flush;
use crate::session::Session;

/// The part of one home.
#[derive(Default)]
struct Part {
    checks: Vec<Check>,
    updates: Vec<Update>,
}

impl Transaction {
    /// Commits over several homes.
    pub(super) fn commit_over_homes(
        mut self,
        session: &Session,
        checks: Vec<Check>,
        updates: Vec<Update>,
    ) -> Result<u64> {
        check_updates(&updates)?;
        let mut parts = parts_of(checks, updates);
        let Some((decider, own)) = parts.pop_last() else { return Err(surprise("several homes", &Response::Done)) };
        let link = session.links.to(decider);
        let transaction = name(link, decider)?;
        let mut prepared = Vec::new();
        let mut is_sync = false;
        for (home, Part { checks, updates }) in parts {
            match session.links.to(home).request(Request::Prepare { transaction, checks, updates }) {
                Ok(Response::Prepared { is_sync: this }) => is_sync |= this,
                other => {
                    let error = other.map_or_else(|error| error, |answer| surprise("a prepared part", &answer));
                    self.keep_runs_but_of(&prepared);
                    // The one that failed may have prepared its part, if it is its answer that was lost.
                    prepared.push(home);
                    Self::give_up(link, transaction, prepared);
                    return Err(error);
                }
            }
            prepared.push(home);
        }
        let (participants, Part { checks, updates }) = (prepared.clone(), own);
        let decision = Box::new(Decision { transaction, participants, is_sync });
        let decide = Request::Decide { decision, checks, updates };
        match link.request(decide) {
            Ok(Response::Applied { epoch, .. }) => {
                self.runs.clear();
                let durable: Vec<ObjectKey> = std::mem::take(&mut self.durable);
                durable.iter().try_for_each(|key| flush(session.home(key.container), *key))?;
                Ok(epoch)
            }
            other => {
                let error = other.map_or_else(|error| error, |answer| surprise("an epoch", &answer));
                if is_refusal(&error) {
                    self.keep_runs_but_of(&prepared);
                    Self::give_up(link, transaction, prepared);
                } else {
                    self.runs.clear(); // it may be decided
                }
                Err(error)
            }
        }
    }
    /// Keeps the space that is to be given back. That of prepared parts is their homes' to free.
    fn keep_runs_but_of(&mut self, prepared: &[HomeId]) {
        self.runs.retain(|(container, _)| !prepared.contains(&container.home()));
    }
    /// Has the homes told that the transaction is given up, unless it was decided. If the home that decides cannot be
    /// reached, they ask it themselves.
    fn give_up(link: &Arc<Link>, transaction: TransactionId, tell: Vec<HomeId>) {
        link.channel.tell(Request::Ask { transaction, tell });
        link.keep();
    }
}

/// Returns true for an error that the home itself has given, so that the transaction is not decided and never will be.
/// After others its decision may still be under way: the participants ask in time.
fn is_refusal(error: &Error) -> bool {
    let kinds = [ErrorKind::Conflict, ErrorKind::Exists, ErrorKind::NotFound, ErrorKind::LimitExceeded];
    kinds.contains(&error.kind())
}

/// A name that no other transaction has. Attaches the link, if it is not attached yet.
fn name(link: &Arc<Link>, home: HomeId) -> Result<TransactionId> {
    if !link.channel.attachment().is_somewhere() {
        link.request(Request::Moved)?;
    }
    let session = link.channel.attachment().readers.session();
    Ok(TransactionId { home, session, number: crate::ids::random() as u64 })
}

fn parts_of(checks: Vec<Check>, updates: Vec<Update>) -> BTreeMap<HomeId, Part> {
    let mut parts: BTreeMap<HomeId, Part> = BTreeMap::new();
    for check in checks {
        parts.entry(check.container().home()).or_default().checks.push(check);
    }
    for update in updates {
        parts.entry(update.container().home()).or_default().updates.push(update);
    }
    parts
}

/// Refuses what has one home: the homes would, too.
fn check_updates(updates: &[Update]) -> Result<()> {
    let Some(wrong) = updates.iter().find(|update| update.is_about_container()) else { return Ok(()) };
    Err(Error::new(ErrorKind::Unsupported, format!("a change of container {} in a transaction", wrong.container()))
        .because("the transaction is over several nodes, and changes of containers have one home")
        .try_next("make this change by itself, or on conditions of its own home alone"))
}
