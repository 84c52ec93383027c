//! Byte ranges: holes, `fallocate`, copies.

use crate::rights::Keeps;
use crate::tree::Change;
use crate::{Allocate, FsResult, fail, space};

use super::live::{FILE_BYTES_MAX, Live, check_end};
use super::page_cache::PageCache;

/// Returns the next data in units of blocks, as other file systems do: a block with one byte of data is data. (In the store, data and holes end at
/// any byte.)
pub fn next_data(live: &Live, offset: u64) -> FsResult<u64> {
    match data_from(live, offset)? {
        Some(at) => Ok(offset.max(at - at % BLOCK)),
        None => fail(libc::ENXIO),
    }
}

pub fn next_hole(live: &Live, offset: u64) -> FsResult<u64> {
    let size = live.size()?;
    if offset >= size {
        return fail(libc::ENXIO);
    }
    let mut block = offset - offset % BLOCK;
    loop {
        let Some(data) = data_from(live, block)?.filter(|data| *data < block + BLOCK) else {
            return Ok(offset.max(block));
        };
        block = hole_from(live, data)?.unwrap_or(size).next_multiple_of(BLOCK);
        if block >= size {
            return Ok(size);
        }
    }
}

/// Returns the first byte of data at or after an offset.
fn data_from(live: &Live, offset: u64) -> FsResult<Option<u64>> {
    match (live.page_cache()?, live.object()?) {
        (Some(page_cache), _) => page_cache.next_data(offset),
        (None, Some(object)) => Ok(object.next_data(offset)?),
        (None, None) => Ok(None),
    }
}

/// Returns the first byte of a hole at or after an offset; the end is a hole.
fn hole_from(live: &Live, offset: u64) -> FsResult<Option<u64>> {
    match (live.page_cache()?, live.object()?) {
        (Some(page_cache), _) => page_cache.next_hole(offset),
        (None, Some(object)) => Ok(object.next_hole(offset)?),
        (None, None) => Ok(None),
    }
}

/// Returns an error if no file can have such a range.
pub fn check(offset: u64, len: u64) -> FsResult<()> {
    if len == 0 { fail(libc::EINVAL) } else { check_end(offset, len) }
}

/// Reserves space for the holes in a range. `ENOSPC` unless they could be written now.
fn keep_room(live: &Live, offset: u64, len: u64) -> FsResult<()> {
    let container = &live.tree.container;
    let free = space::space(container.store(), Some(&container.info()?))?.free_bytes;
    let (mut at, end, mut missing) = (offset, offset + len, 0);
    let mut holes = Vec::new();
    while at < end {
        let data = data_from(live, at)?.unwrap_or(end).min(end);
        missing += data - at;
        if missing > free.saturating_add(live.reserved.bytes()) {
            return fail(libc::ENOSPC);
        }
        if data > at {
            // A partial block counts as a whole one: a write there takes an allocation unit of its own.
            holes.push((at - at % BLOCK, data.next_multiple_of(BLOCK)));
        }
        at = if data < end { hole_from(live, data)?.unwrap_or(end) } else { end };
    }
    live.reserve(&holes)
}

pub fn allocate(live: &Live, what: Allocate, offset: u64, len: u64) -> FsResult<()> {
    match what {
        // Space of zeroed data becomes free soon and is not reserved.
        Allocate::Extend | Allocate::KeepSize | Allocate::Zero { .. } => keep_room(live, offset, len)?,
        Allocate::Punch => live.reserved.give_up(offset, offset + len),
        Allocate::Collapse | Allocate::Insert => live.reserved.give_up(0, u64::MAX),
    }
    match live.page_cache()? {
        Some(page_cache) => allocate_in(live, &page_cache, what, offset, len),
        None => allocate_object(live, what, offset, len),
    }
}

/// Allocates or changes a range of a page cache.
fn allocate_in(live: &Live, page_cache: &PageCache, what: Allocate, offset: u64, len: u64) -> FsResult<()> {
    live.check_changes()?;
    let (size, end) = (page_cache.usage()?.0, offset + len);
    match what {
        Allocate::KeepSize => return Ok(()),
        Allocate::Collapse | Allocate::Insert => {
            return live.around_page_cache(offset, || allocate_object(live, what, offset, len));
        }
        Allocate::Extend => {}
        Allocate::Punch | Allocate::Zero { .. } => page_cache.punch(offset, len)?,
    }
    if matches!(what, Allocate::Extend | Allocate::Zero { keep_size: false }) && end > size {
        page_cache.set_size(end)?;
    }
    live.note();
    Ok(())
}

fn allocate_object(live: &Live, what: Allocate, offset: u64, len: u64) -> FsResult<()> {
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

/// Returns the size, on which the change relies; an object that this change creates is not asked.
fn sized_here(change: &mut Change<'_>, live: &Live) -> FsResult<u64> {
    if !live.find()?.node.has_object {
        return Ok(0);
    }
    let size = live.handle().size()?;
    change.txn.expect_size(live.handle(), size)?;
    Ok(size)
}

/// Block size for collapsing and inserting, the same as in other file systems.
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

/// Moves the content of `[from, size)` to `to`, holes included, without copying bytes. Both ranges may overlap, so it goes by way of an object that
/// the same change creates and deletes.
fn shift(change: &mut Change<'_>, live: &Live, from: u64, to: u64, size: u64) -> FsResult<()> {
    let (object, txn) = (live.handle(), &mut change.txn);
    let between = txn.create_object(&live.tree.container, None, None)?;
    txn.share(&between, 0, object, from, size - from)?;
    txn.share(object, to, &between, 0, size - from)?;
    txn.delete_object(&between)?;
    Ok(())
}

/// Replaces a range of a file by a range of another or of the same file, without copying bytes if both are in one container.
pub fn copy(from: &Live, to: &Live, from_offset: u64, offset: u64, len: u64, keeps: Keeps) -> FsResult<u64> {
    let len = len.min(from.size()?.saturating_sub(from_offset));
    if len == 0 {
        return Ok(0);
    }
    check_end(offset, len)?;
    let is_same = from.ino == to.ino && from.tree.number == to.tree.number;
    if is_same && from_offset < offset + len && offset < from_offset + len {
        return fail(libc::EINVAL);
    }
    let Some(source) = from.object()? else { return Ok(0) };
    to.copy_from(source, from_offset, offset, len, keeps)
}
