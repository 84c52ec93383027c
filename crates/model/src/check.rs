//! Preconditions of transactions.

#![allow(missing_docs, reason = "the line above a variant says what its fields are")]

use crate::{ContainerId, IndexKey, ObjectKey};

/// A precondition: something that a transaction read and relies on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Check {
    /// The object was not changed after `epoch` (0: it does not exist).
    Object { key: ObjectKey, epoch: u64 },
    /// The record was not changed after `epoch` (0: it does not exist).
    Record { index: IndexKey, key: Vec<u8>, epoch: u64 },
    /// The record has this value (`None`: it does not exist), whoever set it at whatever time.
    Value { index: IndexKey, key: Vec<u8>, value: Option<Vec<u8>> },
    /// No record has a key that begins with `prefix`. Like every check it applies to the state before the updates of
    /// its request: records that these delete count, records that they put do not. An index that does not exist has no
    /// records.
    NoKeys { index: IndexKey, prefix: Vec<u8> },
    /// The object exists and has this size in bytes.
    Size { key: ObjectKey, size: u64 },
}

impl Check {
    /// The container that it is about.
    pub fn container(&self) -> ContainerId {
        match self {
            Self::Object { key, .. } | Self::Size { key, .. } => key.container,
            Self::Record { index, .. } | Self::Value { index, .. } | Self::NoKeys { index, .. } => index.container,
        }
    }
}
