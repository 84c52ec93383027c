//! Processes that may have something open, by a name that is never reused.

use crate::FsResult;
use cenote_codec::Encode as _;

use super::{VERSION, reader};

/// A file system in a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Claimant {
    /// Process id.
    pub pid: u32,
    /// Start time of the process, in ticks since boot: pids are reused.
    pub started: u64,
    /// Distinguishes file systems of one process.
    pub nonce: u64,
}

/// Encodes a record.
pub fn encode(all: &[Claimant]) -> Vec<u8> {
    let mut w = Vec::with_capacity(1 + all.len() * 20);
    w.put_u8(VERSION);
    for one in all {
        w.put_u32(one.pid);
        w.put_u64(one.started);
        w.put_u64(one.nonce);
    }
    w
}

/// Decodes a record; `None`: an empty list.
pub fn decode(record: Option<&[u8]>) -> FsResult<Vec<Claimant>> {
    let Some(record) = record else { return Ok(Vec::new()) };
    let mut r = reader("list of who has something open", record)?;
    let mut all = Vec::new();
    while !r.is_empty() {
        all.push(Claimant { pid: r.u32()?, started: r.u64()?, nonce: r.u64()? });
    }
    Ok(all)
}
