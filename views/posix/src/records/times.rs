//! Times of a directory: every change of its entries sets them, without
//! reading.

use crate::{FsResult, Time};
use cenote_codec::Encode as _;

use super::{PutFields as _, TakeFields as _, VERSION, reader};

/// The record that each change of a directory's entries writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Last change of its entries, or the time set by `utimes`.
    pub modified: Time,
    /// When that was set. The later of this and the node's time counts.
    pub changed: Time,
}

impl Times {
    /// Sets both to the same time.
    pub fn at(now: Time) -> Self {
        Self { modified: now, changed: now }
    }
    /// Encodes a record.
    pub fn encode(self) -> Vec<u8> {
        let mut w = Vec::with_capacity(25);
        w.put_u8(VERSION);
        w.put_time(self.modified);
        w.put_time(self.changed);
        w
    }
    /// Decodes a record.
    pub fn decode(record: &[u8]) -> FsResult<Self> {
        let mut r = reader("times of a directory", record)?;
        let times = Self { modified: r.time()?, changed: r.time()? };
        r.end()?;
        Ok(times)
    }
}
