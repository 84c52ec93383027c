//! Who may have something open: processes by what names them for good.

use crate::FsResult;
use cenote_codec::Encode as _;

use super::{VERSION, reader};

/// A file system in a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Claimant {
    /// Its process.
    pub pid: u32,
    /// When that was started, in ticks since boot: pids are used again.
    pub started: u64,
    /// Tells file systems of one process apart.
    pub nonce: u64,
}

/// As a record.
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

/// From a record; none: an empty list.
pub fn decode(record: Option<&[u8]>) -> FsResult<Vec<Claimant>> {
    let Some(record) = record else { return Ok(Vec::new()) };
    let mut r = reader("list of who has something open", record)?;
    let mut all = Vec::new();
    while !r.is_empty() {
        all.push(Claimant { pid: r.u32()?, started: r.u64()?, nonce: r.u64()? });
    }
    Ok(all)
}
