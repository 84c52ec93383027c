//! Moves elements between memory and one object, with as few and as large calls to the store as the ranges allow.
//!
//! A large range goes directly between the user's buffer and the store. Small adjacent ranges of the object are gathered
//! in scratch. Small ranges with gaps are read with their gaps; they are written together with the gaps' content under a
//! transaction that fails if anybody changed the object meanwhile, so that writers of disjoint ranges never disturb each
//! other.

use cenote::{ErrorKind, Object, Result};

use super::memory::Memory;
use super::place::DatasetRef;

/// Elements that are consecutive in memory and in the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Byte offset in the object.
    pub offset: u64,
    /// First element in memory.
    pub mem: u64,
    /// Elements; never 0.
    pub count: u64,
}

/// Size from which ranges are not copied an additional time.
const DIRECT_BYTES: u64 = 32 << 10;
/// Largest scratch for one gathered range.
const SPAN_BYTES_MAX: u64 = 1 << 20;
/// Largest gap that is read rather than skipped.
const GAP_BYTES_MAX: u64 = 4 << 10;
/// Most scratch bytes and parts of one vectored call.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_PARTS: usize = 1024;
/// Attempts of a read-modify-write before the ranges are written one by one.
const TRIES_MAX: u32 = 4;

/// Consecutive parts served by one range of the object: `parts[first..end]`, `offset..offset + len`.
#[derive(Debug, PartialEq, Eq)]
struct Span {
    first: usize,
    end: usize,
    offset: u64,
    len: u64,
}

/// Joins parts into spans, including gaps of up to `gap` bytes.
fn spans(parts: &[Part], element_bytes: u64, gap: u64) -> Vec<Span> {
    let mut out: Vec<Span> = Vec::new();
    let mut open = false;
    for (i, part) in parts.iter().enumerate() {
        let len = part.count * element_bytes;
        if open
            && len < DIRECT_BYTES
            && let Some(span) = out.last_mut()
        {
            let end = span.offset + span.len;
            if part.offset >= end && part.offset - end <= gap && part.offset + len - span.offset <= SPAN_BYTES_MAX {
                span.len = part.offset + len - span.offset;
                span.end = i + 1;
                continue;
            }
        }
        out.push(Span { first: i, end: i + 1, offset: part.offset, len });
        open = len < DIRECT_BYTES;
    }
    out
}

/// Reads `parts` into `mem`. Holes and bytes past the object's end are zeros. `apart`: no two parts overlap in memory.
pub fn read(place: &DatasetRef, object: &Object, parts: &[Part], mem: Memory, apart: bool) -> Result<()> {
    let element_bytes = mem.element_bytes() as u64;
    place.wait_for_others_at(object, parts.iter().map(|part| (part.offset, part.count * element_bytes)))?;
    if let [one] = parts {
        return read_range(object, one.offset, mem.get_mut(one.mem, one.count));
    }
    let size = mem.element_bytes() as u64;
    let spans = spans(parts, size, GAP_BYTES_MAX);
    let mut todo = &spans[..];
    while !todo.is_empty() {
        // One vectored call: single parts straight into memory, others into scratch.
        let (mut count, mut scratch_bytes) = (0, 0);
        for span in todo.iter().take(BATCH_PARTS) {
            if count > 0 && scratch_bytes >= BATCH_BYTES {
                break;
            }
            count += 1;
            scratch_bytes += if direct(span, apart) { 0 } else { span.len as usize };
        }
        let (batch, rest) = todo.split_at(count);
        todo = rest;
        let mut scratch = vec![0u8; scratch_bytes];
        let mut calls: Vec<(u64, &mut [u8])> = Vec::with_capacity(count);
        let mut free = &mut scratch[..];
        for span in batch {
            if direct(span, apart) {
                let part = parts[span.first];
                calls.push((part.offset, mem.get_mut(part.mem, part.count)));
            } else {
                let (head, tail) = free.split_at_mut(span.len as usize);
                free = tail;
                calls.push((span.offset, head));
            }
        }
        object.readv(&mut calls)?;
        let mut at = 0;
        for span in batch.iter().filter(|span| !direct(span, apart)) {
            for part in &parts[span.first..span.end] {
                let from = at + (part.offset - span.offset) as usize;
                let to = mem.get_mut(part.mem, part.count);
                to.copy_from_slice(&scratch[from..from + to.len()]);
            }
            at += span.len as usize;
        }
    }
    Ok(())
}

fn direct(span: &Span, apart: bool) -> bool {
    apart && span.end - span.first == 1
}

/// Reads a range; bytes that the object does not have are zeros.
pub fn read_range(object: &Object, offset: u64, to: &mut [u8]) -> Result<()> {
    let got = object.read_at(offset, to)?.min(to.len());
    to[got..].fill(0);
    Ok(())
}

/// Writes `parts` from `mem`. Where parts overlap in the object, the later one wins.
pub fn write(place: &DatasetRef, object: &Object, parts: &[Part], mem: Memory) -> Result<()> {
    if let [one] = parts {
        return place.write(object, &[(one.offset, mem.get(one.mem, one.count))]);
    }
    let size = mem.element_bytes() as u64;
    let touching = spans(parts, size, 0);
    if scattered(&touching) {
        return write_scattered(place, object, parts, mem);
    }
    write_spans(place, object, parts, &touching, mem)
}

/// Returns true for many small ranges, which are worth a read-modify-write, so that the object's map does not fragment.
fn scattered(spans: &[Span]) -> bool {
    let bytes: u64 = spans.iter().map(|span| span.len).sum();
    spans.len() >= 16 && bytes / (spans.len() as u64) < GAP_BYTES_MAX
}

fn write_spans(place: &DatasetRef, object: &Object, parts: &[Part], spans: &[Span], mem: Memory) -> Result<()> {
    let mut todo = spans;
    while !todo.is_empty() {
        let (mut count, mut scratch_bytes) = (0, 0);
        for span in todo.iter().take(BATCH_PARTS) {
            if count > 0 && scratch_bytes >= BATCH_BYTES {
                break;
            }
            count += 1;
            scratch_bytes += if direct(span, true) { 0 } else { span.len as usize };
        }
        let (batch, rest) = todo.split_at(count);
        todo = rest;
        let mut scratch = Vec::with_capacity(scratch_bytes);
        for span in batch.iter().filter(|span| !direct(span, true)) {
            for part in &parts[span.first..span.end] {
                scratch.extend_from_slice(mem.get(part.mem, part.count));
            }
        }
        let mut at = 0;
        let calls: Vec<(u64, &[u8])> = batch
            .iter()
            .map(|span| {
                let bytes = if direct(span, true) {
                    mem.get(parts[span.first].mem, parts[span.first].count)
                } else {
                    at += span.len as usize;
                    &scratch[at - span.len as usize..at]
                };
                (span.offset, bytes)
            })
            .collect();
        place.write(object, &calls)?;
    }
    Ok(())
}

fn write_scattered(place: &DatasetRef, object: &Object, parts: &[Part], mem: Memory) -> Result<()> {
    let size = mem.element_bytes() as u64;
    for span in spans(parts, size, GAP_BYTES_MAX) {
        let inside = &parts[span.first..span.end];
        if inside.len() < 16 || !read_modify_write(place, object, &span, inside, mem)? {
            write_spans(place, object, inside, &spans(inside, size, 0), mem)?;
        }
    }
    Ok(())
}

/// Writes the parts of a span together with the bytes between them. Returns false if others kept changing the object.
fn read_modify_write(place: &DatasetRef, object: &Object, span: &Span, parts: &[Part], mem: Memory) -> Result<bool> {
    let _turn = place.file.shared.ahead().turn(object);
    place.wait_for_others(object, span.offset, span.len)?;
    let mut scratch = vec![0u8; span.len as usize];
    for _ in 0..TRIES_MAX {
        let mut tx = place.store().begin();
        tx.detect_conflicts(true);
        let got = tx.read(object, span.offset, &mut scratch)?.min(scratch.len());
        scratch[got..].fill(0);
        for part in parts {
            let from = mem.get(part.mem, part.count);
            let at = (part.offset - span.offset) as usize;
            scratch[at..at + from.len()].copy_from_slice(from);
        }
        tx.write(object, span.offset, &scratch)?;
        match tx.commit() {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(offset: u64, mem: u64, count: u64) -> Part {
        Part { offset, mem, count }
    }

    #[test]
    fn small_parts_join_and_large_ones_stay_alone() {
        let parts =
            [part(0, 0, 10), part(80, 50, 10), part(200, 60, 5), part(1 << 20, 70, 8 << 10), part(9 << 20, 0, 1)];
        let touching = spans(&parts, 8, 0);
        assert_eq!(touching.len(), 4);
        assert_eq!((touching[0].first, touching[0].end, touching[0].len), (0, 2, 160));
        let gaps = spans(&parts, 8, 4096);
        assert_eq!((gaps[0].end, gaps[0].len), (3, 240));
        assert_eq!(gaps.len(), 3);
    }

    #[test]
    fn parts_that_go_backwards_are_spans_of_their_own() {
        assert_eq!(spans(&[part(80, 0, 1), part(0, 1, 1), part(8, 2, 1)], 8, 4096).len(), 2);
        assert_eq!(spans(&[part(0, 0, 4), part(8, 9, 4)], 8, 4096).len(), 2, "overlapping parts are not joined");
    }
}
