//! What the updates of a transaction concern: one home, and the objects whose versions they raise.

use std::sync::Arc;

use cenote_model::{Check, ContainerId, Error, ErrorKind, ObjectKey, Result, Update};

use crate::link::Link;
use crate::session::Session;

/// The containers that a transaction concerns, one for each update and check.
fn containers<'a>(updates: &'a [Update], checks: &'a [Check]) -> impl Iterator<Item = ContainerId> + 'a {
    updates.iter().map(Update::container).chain(checks.iter().map(Check::container))
}

/// Returns true if a transaction concerns containers of more than one home.
pub(super) fn has_several_homes(updates: &[Update], checks: &[Check]) -> bool {
    let mut homes = containers(updates, checks).map(ContainerId::home);
    let first = homes.next();
    homes.any(|other| Some(other) != first)
}

/// The link to the home that has all containers of a transaction that is sent without waiting. `Unsupported` if there are
/// several homes.
pub(super) fn one_home<'a>(session: &'a Session, updates: &[Update], checks: &[Check]) -> Result<&'a Arc<Link>> {
    let mut containers = containers(updates, checks);
    let first = containers.next().unwrap_or_default();
    match containers.find(|other| other.home() != first.home()) {
        None => Ok(session.home(first)),
        Some(other) => {
            Err(Error::new(ErrorKind::Unsupported, format!("a transaction over containers {first} and {other}"))
                .because(format!(
                    "they are on different nodes, {} and {}, and what is sent without waiting has one home",
                    first.home(),
                    other.home()
                ))
                .try_next("commit it and wait"))
        }
    }
}

/// The approximate bytes that an update writes.
pub(super) fn bytes_of(update: &Update) -> u64 {
    match update {
        Update::Write { extent, .. } => u64::from(extent.len),
        Update::Put { key, value, .. } => (key.len() + value.len()) as u64,
        _ => 0,
    }
}

/// The objects whose version words these updates raise, in the order of the engine's answer. Creations raise none.
pub(super) fn changed_objects(updates: &[Update]) -> Vec<ObjectKey> {
    let mut changed: Vec<ObjectKey> = Vec::new();
    for update in updates {
        if let Update::Write { key, .. }
        | Update::Punch { key, .. }
        | Update::Truncate { key, .. }
        | Update::ObjectDelete { key }
        | Update::Share { to: key, .. } = update
            && changed.last() != Some(key)
            && !changed.contains(key)
        {
            changed.push(*key);
        }
    }
    changed
}
