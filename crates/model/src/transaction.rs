//! Names of transactions over several homes.

use std::fmt;

use crate::HomeId;

/// Names a transaction over several homes, or over several engines of one store. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct TransactionId {
    /// The home that decides: the last one of the transaction. Among engines of one store, the number of the engine.
    pub home: HomeId,
    /// The session with that home which may have it decided.
    pub session: u64,
    /// Its number among those of the session.
    pub number: u64,
}

/// What the last home decides about with its own part of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The transaction.
    pub transaction: TransactionId,
    /// The homes that have prepared it.
    pub participants: Vec<HomeId>,
    /// One of them has a part in a container whose changes survive power loss once they are answered, so the decision is to
    /// survive it, too.
    pub is_sync: bool,
}

impl fmt::Display for TransactionId {
    /// `t5.17`: session and number at the home that decides.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}.{}", self.session, self.number)
    }
}
