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

impl fmt::Display for TransactionId {
    /// `t5.17`: session and number at the home that decides.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}.{}", self.session, self.number)
    }
}
