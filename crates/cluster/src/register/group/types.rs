//! What the members of the group agree on: a record, and swaps of it.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::super::Stamp;

openraft::declare_raft_types!(
    /// The group's types.
    pub Types:
        D = Change,
        R = bool,
        NodeId = u64,
        Node = openraft::EmptyNode,
        SnapshotData = State,
);

/// Bytes that are written as base 64.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Blob(pub Vec<u8>);

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// A stamp, written as hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guard(pub Stamp);

impl Serialize for Guard {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{:032x}", self.0.0))
    }
}

impl<'de> Deserialize<'de> for Guard {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        u128::from_str_radix(&text, 16).map(|stamp| Self(Stamp(stamp))).map_err(serde::de::Error::custom)
    }
}

/// An entry of the log: the record is replaced if its stamp is the one that was seen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// The stamp that was seen; `None`: there was no record.
    pub seen: Option<Guard>,
    /// The stamp of the new record.
    pub stamp: Guard,
    /// The new record.
    pub record: Blob,
}

/// What the log makes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// The stamp of the record, and the record; `None` before the first one.
    pub record: Option<(Guard, Blob)>,
}

impl State {
    /// Carries out a change. Returns whether the record is now the one of the change: the same change twice is one.
    pub fn change(&mut self, change: Change) -> bool {
        let present = self.record.as_ref().map(|(stamp, _)| *stamp);
        if present == change.seen {
            self.record = Some((change.stamp, change.record));
        }
        present == change.seen || present == Some(change.stamp)
    }
}
