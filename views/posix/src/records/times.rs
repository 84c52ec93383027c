//! Times of a directory: set by whoever changes its entries, without reading.

use crate::{FsResult, Time};

use super::{Reader, VERSION, Writer};

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
        let mut w = Writer(Vec::with_capacity(25));
        w.u8(VERSION);
        w.time(self.modified);
        w.time(self.changed);
        w.0
    }
    /// From a record.
    pub fn decode(record: &[u8]) -> FsResult<Self> {
        let mut r = Reader::new("times of a directory", record)?;
        let times = Self { modified: r.time()?, changed: r.time()? };
        r.end()?;
        Ok(times)
    }
}
