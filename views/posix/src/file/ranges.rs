//! Ranges of files: holes, `fallocate`, copies.

use crate::tree::Change;
use crate::{Allocate, FsResult, fail};

use super::live::{FILE_BYTES_MAX, Live, check_end};

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 4 << 20;

/// Ranges of a file that have bytes, ascending and apart, and its size.
fn data(live: &Live) -> FsResult<(Vec<(u64, u64)>, u64)> {
    let Some(object) = live.object()? else { return Ok((Vec::new(), 0)) };
    let explained = live.tree.container.store().explain(object.key())?;
    let size = explained.stat.size;
    let mut all: Vec<(u64, u64)> = Vec::new();
    for range in &explained.ranges {
        let (begin, end) = (range.offset.min(size), (range.offset + u64::from(range.extent.len)).min(size));
        match all.last_mut() {
            Some(last) if last.1 == begin => last.1 = end,
            _ if begin < end => all.push((begin, end)),
            _ => {}
        }
    }
    if explained.ranges.len() as u64 != explained.stat.extents {
        // More than are told: all behind the last counts as data, which is always right.
        let told = all.last().map_or(0, |last| last.1);
        all.push((told, size));
    }
    Ok((all, size))
}

pub fn next_data(live: &Live, offset: u64) -> FsResult<u64> {
    let (data, size) = data(live)?;
    if offset >= size {
        return fail(libc::ENXIO);
    }
    match data.iter().find(|(_, end)| *end > offset) {
        Some((begin, _)) => Ok(offset.max(*begin)),
        None => fail(libc::ENXIO),
    }
}

pub fn next_hole(live: &Live, offset: u64) -> FsResult<u64> {
    let (data, size) = data(live)?;
    if offset >= size {
        return fail(libc::ENXIO);
    }
    let mut at = offset;
    for (begin, end) in data {
        if begin <= at && at < end {
            at = end;
        }
    }
    Ok(at.min(size))
}

pub fn allocate(live: &Live, what: Allocate, offset: u64, len: u64) -> FsResult<()> {
    if len == 0 {
        return fail(libc::EINVAL);
    }
    check_end(offset, len)?;
    match what {
        Allocate::KeepSize => Ok(()),
        Allocate::Extend => live.with_object(|change, object| {
            let size = sized_here(change, live)?;
            if offset + len > size {
                change.txn.truncate(object, offset + len)?;
            }
            Ok(())
        }),
        Allocate::Punch => match live.object()? {
            None => Ok(()),
            Some(_) => live.with_object(|change, object| Ok(change.txn.punch(object, offset, len)?)),
        },
        Allocate::Zero { keep_size } => live.with_object(|change, object| {
            let size = sized_here(change, live)?;
            change.txn.punch(object, offset, len)?;
            if !keep_size && offset + len > size {
                change.txn.truncate(object, offset + len)?;
            }
            Ok(())
        }),
        Allocate::Collapse => collapse(live, offset, len),
        Allocate::Insert => insert(live, offset, len),
    }
}

/// The size; none is asked of an object that this change makes.
fn sized_here(change: &mut Change<'_>, live: &Live) -> FsResult<u64> {
    if live.find()?.node.has_object { Ok(change.txn.rely_on_size(&live.tree.object(live.ino))?) } else { Ok(0) }
}

/// Bytes of a file's block, which collapsing and inserting keep to, as other file systems do.
const BLOCK: u64 = 4096;

fn collapse(live: &Live, offset: u64, len: u64) -> FsResult<()> {
    if !offset.is_multiple_of(BLOCK) || !len.is_multiple_of(BLOCK) {
        return fail(libc::EINVAL);
    }
    live.with_object(|change, object| {
        let size = sized_here(change, live)?;
        if offset + len >= size {
            return fail(libc::EINVAL);
        }
        shift(change, live, offset + len, offset, size)?;
        change.txn.truncate(object, size - len)?;
        Ok(())
    })
}

fn insert(live: &Live, offset: u64, len: u64) -> FsResult<()> {
    if !offset.is_multiple_of(BLOCK) || !len.is_multiple_of(BLOCK) {
        return fail(libc::EINVAL);
    }
    live.with_object(|change, object| {
        let size = sized_here(change, live)?;
        if offset >= size {
            return fail(libc::EINVAL);
        }
        if size.checked_add(len).is_none_or(|end| end > FILE_BYTES_MAX) {
            return fail(libc::EFBIG);
        }
        change.txn.truncate(object, size + len)?;
        shift(change, live, offset, offset + len, size)?;
        change.txn.punch(object, offset, len)?;
        Ok(())
    })
}

/// Writes the bytes of `[from, size)`, as they were before this change, at `to`, holes as holes.
fn shift(change: &mut Change<'_>, live: &Live, from: u64, to: u64, size: u64) -> FsResult<()> {
    let (data, _) = data(live)?;
    let object = live.tree.object(live.ino);
    change.txn.punch(&object, to, size - from)?;
    let mut buf = vec![0; COPY_BYTES];
    for (begin, end) in data {
        let mut at = begin.max(from);
        while at < end {
            let part = &mut buf[..((end - at) as usize).min(COPY_BYTES)];
            let read = object.read_at(at, part)?; // as it was: the change is not committed
            if read == 0 {
                break;
            }
            change.txn.write(&object, at - from + to, &part[..read])?;
            at += read as u64;
        }
    }
    Ok(())
}

/// Copies bytes from one file to another, or within one.
pub fn copy(from: &Live, to: &Live, from_offset: u64, offset: u64, len: u64, keeps_set_ids: bool) -> FsResult<u64> {
    let size = from.size()?;
    let len = len.min(size.saturating_sub(from_offset));
    if len == 0 {
        return Ok(0);
    }
    check_end(offset, len)?;
    let is_same = from.ino == to.ino && from.tree.number == to.tree.number;
    if is_same && from_offset < offset + len && offset < from_offset + len {
        return fail(libc::EINVAL);
    }
    let Some(object) = from.object()? else { return Ok(0) };
    let mut buf = vec![0; COPY_BYTES.min(len as usize)];
    let mut copied = 0;
    while copied < len {
        let part = &mut buf[..((len - copied) as usize).min(COPY_BYTES)];
        let read = object.read_at(from_offset + copied, part)?;
        if read == 0 {
            break;
        }
        to.write(&part[..read], offset + copied, keeps_set_ids)?;
        copied += read as u64;
    }
    Ok(copied)
}
