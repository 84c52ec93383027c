//! Times of a directory: set by whoever changes its entries, without reading.

use crate::{FsResult, Time};
use cenote_codec::Encode as _;

use super::{PutFields as _, TakeFields as _, VERSION, reader};

/// The record that each change of a directory's entries sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Last change of its entries, or what `utimes` said.
    pub modified: Time,
    /// When that was done. The later of this and the node's counts.
    pub changed: Time,
}

impl Times {
    /// Both the same.
    pub fn at(now: Time) -> Self {
        Self { modified: now, changed: now }
    }
    /// As a record.
    pub fn encode(self) -> Vec<u8> {
        let mut w = Vec::with_capacity(25);
        w.put_u8(VERSION);
        w.put_time(self.modified);
        w.put_time(self.changed);
        w
    }
    /// From a record.
    pub fn decode(record: &[u8]) -> FsResult<Self> {
        let mut r = reader("times of a directory", record)?;
        let times = Self { modified: r.time()?, changed: r.time()? };
        r.end()?;
        Ok(times)
    }
}
