//! The objects of a file: parts of at most [`PART_BYTES`], since RADOS bounds the size of an object.

use cenote_model::{Error, ErrorKind, Result};
use cenote_rados::{Change, Check, RefusalKind};

use super::head::{CHANGE, Record, TERM};
use super::tenure::Tenure;

/// Bytes of a part. `osd_max_object_size` is 128 MiB and `osd_max_write_size` 90 MiB by default.
pub(super) const PART_BYTES: u64 = 16 << 20;
/// Bytes that one operation reads.
pub(super) const READ_BYTES: usize = 4 << 20;

/// Name of a part's object.
pub(super) fn name(object: &str, part: u64) -> String {
    format!("{object}.{part:04}")
}

/// Number of parts of a file.
pub(super) fn count(record: &Record) -> u64 {
    record.bytes.div_ceil(PART_BYTES)
}

/// Makes the empty parts of a log, which have the term from the beginning.
pub(super) fn make(tenure: &Tenure, record: &Record) -> Result<()> {
    let term = tenure.term.to_le_bytes();
    (0..count(record)).try_for_each(|part| {
        let changes = [Change::Create, Change::SetAttribute(TERM, &term), Change::SetAttribute(CHANGE, &term)];
        // Only if it is absent: sent late, this must not take the term back. The name is new, so what exists is this.
        tenure.persist(|pool| match pool.change(&name(&record.object, part), &[Check::Absent], &changes) {
            Err(refusal) if refusal.kind == RefusalKind::Exists => Ok(()),
            answer => answer,
        })
    })
}

/// Writes the parts of a file, which nothing names yet.
pub(super) fn write(tenure: &Tenure, record: &Record, bytes: &[u8]) -> Result<()> {
    for (part, bytes) in (0..).zip(bytes.chunks(PART_BYTES as usize)) {
        tenure.persist(|pool| pool.change(&name(&record.object, part), &[], &[Change::Replace(bytes)]))?;
    }
    Ok(())
}

/// Reads a file and compares it with its record.
pub(super) fn read(tenure: &Tenure, file: &str, record: &Record) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(record.bytes).unwrap_or(0));
    for part in 0..count(record) {
        read_part(tenure, &name(&record.object, part), |piece, _| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
    }
    if record.matches(&bytes) { Ok(bytes) } else { Err(damaged(tenure, file, record)) }
}

/// Calls `each` with the bytes of a part in pieces, and their offsets.
pub(super) fn read_part(tenure: &Tenure, object: &str, mut each: impl FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
    let mut at = 0;
    while at < PART_BYTES {
        let piece = tenure.persist(|pool| pool.read(object, at, READ_BYTES))?;
        each(&piece, at)?;
        if piece.len() < READ_BYTES {
            break;
        }
        at += piece.len() as u64;
    }
    Ok(())
}

/// Removes the objects of a file that nothing names any more. What stays after an error is removed by a later opening.
pub(super) fn remove(tenure: &Tenure, record: &Record) {
    for part in 0..count(record) {
        remove_object(tenure, &name(&record.object, part));
    }
}

/// Removes an object that nothing names.
pub(super) fn remove_object(tenure: &Tenure, object: &str) {
    match tenure.pool.change(object, &[Check::Exists], &[Change::Remove]) {
        Err(refusal) if refusal.kind != RefusalKind::NotFound => {
            tracing::debug!(object, cause = %refusal.cause, "an object that nothing names stays for now");
        }
        _ => {}
    }
}

#[cold]
fn damaged(tenure: &Tenure, file: &str, record: &Record) -> Error {
    Error::new(ErrorKind::Corrupt, format!("file `{file}` of {}", tenure.subject))
        .because(format!("the objects {}.* do not have the bytes that the head object says", record.object))
        .try_next("check the pool with `rados` and `ceph pg repair`, and open the store again")
}
