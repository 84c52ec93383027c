//! Turns extents into sources, and sources into bytes. No other file does either.
//!
//! A source tells how this process gets the bytes of a piece: from a mapped segment, from a file that it may read, or
//! through the link. Bytes that come through the link are either brought to a device of the first two kinds
//! (`tiering::restore`), or carried in the engine's answers, for a session that may map nothing (`carried`). Bytes of
//! another node will come through the link too. This file must not know the cache, nor when to look up.
#![allow(unsafe_code, reason = "copies out of mapped segments that other processes write")]

use std::sync::Arc;

use cenote_device::lane;
use cenote_device::sums::{SUM_UNIT_BYTES, copy_and_sum, copy_raw, sum_of};
use cenote_model::{Encoding, Error, ErrorKind, Extent, Lookup, Result};

use super::packed;
use crate::link::Link;
use crate::map::cache::ObjectCache;
use crate::map::pieces::{Part, Source};

/// The sources of the extents in an answer.
pub(crate) fn resolve(link: &Link, found: &Lookup) -> Result<Vec<(u64, u64, Source)>> {
    found
        .extents
        .iter()
        .map(|(offset, extent)| Ok((*offset, u64::from(extent.len), source_of(link, extent)?)))
        .collect()
}

/// The source of an extent.
fn source_of(link: &Link, extent: &Extent) -> Result<Source> {
    if link.channel.is_bound() || !link.space.segments.shape(extent.device)?.kind.is_shareable() {
        return Ok(Source::ThroughLink);
    }
    if extent.node.0 != 0 {
        return Err(Error::new(ErrorKind::Unsupported, "an extent").because("it is on another node"));
    }
    if extent.encoding != Encoding::Plain {
        return Ok(Source::File { extent: Arc::new(extent.clone()), skip: 0 });
    }
    let (io, inside) = link.space.segments.locate(extent.device, extent.device_offset()).map_err(|error| {
        let name = link.space.segments.shape(extent.device).map_or_else(|_| String::new(), |s| s.name.to_string());
        let cause = if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() };
        Error::new(error.kind(), format!("device `{name}`")).because(cause)
    })?;
    let address = io.map().map(|map| map.at(inside, extent.len as usize));
    match address {
        Some(Some(address)) => Ok(Source::Mapped(address as usize, extent.device)),
        Some(None) => Err(Error::new(ErrorKind::Corrupt, "an extent").because("it reaches past its segment")),
        None => Ok(Source::File { extent: Arc::new(extent.clone()), skip: 0 }),
    }
}

/// Fills the buffer from parts that an announced reader may use.
pub(crate) fn copy_parts(link: &Link, object: &ObjectCache, offset: u64, parts: &[Part], buf: &mut [u8]) -> Result<()> {
    for part in parts {
        let target = &mut buf[part.at..part.at + part.len];
        match &part.source {
            Source::Hole => target.fill(0),
            // SAFETY: the address was computed from an extent that lies inside a mapped segment (`source_of`, `Chunk`),
            // segments stay mapped while the link lives, and the caller's slot keeps the space from being reused.
            Source::Mapped(address, _) => unsafe {
                copy_raw(target.as_mut_ptr(), *address as *const u8, target.len());
            },
            Source::Kept(kept, skip) => {
                target.copy_from_slice(&kept.bytes[*skip as usize..*skip as usize + part.len]);
            }
            Source::ThroughLink => return Err(never_here(link, object, offset + part.at as u64, part.len)),
            Source::File { extent, skip } => {
                let at = offset + part.at as u64;
                read_file(link, object, at, extent, *skip, target)
                    .map_err(|error| named(link, object, (at, part.len), extent, error))?;
            }
        }
    }
    Ok(())
}

/// Reads from a file tier in whole checksum units: one pass copies and verifies them while the device reads ahead.
fn read_file(
    link: &Link,
    object: &ObjectCache,
    offset: u64,
    extent: &Extent,
    skip: u32,
    target: &mut [u8],
) -> Result<()> {
    let (io, run_inside) = link.space.segments.locate(extent.device, extent.run_offset)?;
    let damaged = |offset: u64, len: usize, why: &str| damaged(link, object, offset, len, extent, why);
    let from = extent.skip as usize + skip as usize; // offset in the run
    let begin = from / SUM_UNIT_BYTES * SUM_UNIT_BYTES;
    let end = (from + target.len()).next_multiple_of(SUM_UNIT_BYTES).min(extent.run_len as usize);
    if end < from + target.len() {
        return Err(damaged(offset, target.len(), "its map reaches past the run"));
    }
    let mut sums = extent.sums.as_slice().get(begin / SUM_UNIT_BYTES..).unwrap_or_default().iter();
    if let Encoding::Packed(packed) = &extent.encoding {
        if packed.run_len() != extent.run_len {
            return Err(damaged(offset, target.len(), "its map contradicts itself"));
        }
        return packed::read_units(&io, run_inside, packed, &mut sums, from, target).map_err(|(at, len, why)| {
            let Some(why) = why else {
                return damaged(offset + at as u64, len, "the bytes do not match their checksum");
            };
            if why.kind() == ErrorKind::Corrupt { damaged(offset + at as u64, len, why.cause()) } else { why }
        });
    }
    let mut found = Vec::with_capacity(1);
    lane::read_taken(&io, run_inside + begin as u64, end - begin, |piece, at| {
        for (number, unit) in piece.chunks(SUM_UNIT_BYTES).enumerate() {
            // The requested part of this unit: its offset in the unit, and its offset in the target.
            let unit_at = begin + at + number * SUM_UNIT_BYTES;
            let wanted = from.max(unit_at)..(from + target.len()).min(unit_at + unit.len());
            let into = &mut target[wanted.start - from..wanted.end - from];
            found.clear();
            if into.len() == unit.len() {
                copy_and_sum(into, unit, &mut found);
            } else {
                found.push(sum_of(unit));
            }
            if sums.next() != found.first() {
                let at = (offset + unit_at as u64).saturating_sub(from as u64);
                return Err(damaged(at, unit.len(), "the bytes do not match their checksum"));
            }
            if into.len() != unit.len() {
                into.copy_from_slice(&unit[wanted.start - unit_at..wanted.end - unit_at]);
            }
        }
        Ok(())
    })
}

/// The error of a device, with the range that was read.
#[cold]
fn named(link: &Link, object: &ObjectCache, (at, len): (u64, usize), extent: &Extent, error: Error) -> Error {
    if error.kind() == ErrorKind::Corrupt && error.subject().starts_with(&link.channel.object_name(object.key)) {
        return error;
    }
    let device = link.space.segments.shape(extent.device).map_or_else(|_| String::new(), |s| s.name.to_string());
    let object = link.channel.object_name(object.key);
    Error::new(error.kind(), format!("{object}, bytes {at} to {}, on device `{device}`", at + len as u64))
        .because(error.to_string())
        .try_next("see `cenote tiers` and the logs of the system for what is wrong with the device")
}

#[cold]
fn damaged(link: &Link, object: &ObjectCache, offset: u64, len: usize, extent: &Extent, why: &str) -> Error {
    let device =
        link.space.segments.shape(extent.device).map_or_else(|_| extent.device.to_string(), |s| s.name.to_string());
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "{}, bytes {offset} to {}, on device `{device}`",
            link.channel.object_name(object.key),
            offset + len as u64
        ),
    )
    .because(why)
    .try_next("run `cenote verify` to see what else is damaged, and restore the range from a copy")
}

#[cold]
pub(super) fn never_here(link: &Link, object: &ObjectCache, offset: u64, len: usize) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!("{}, bytes {offset} to {}", link.channel.object_name(object.key), offset + len as u64),
    )
    .because("they are on an object service, and leave the faster tier again before they are read")
    .try_next("read less at a time, or make the faster tiers larger")
}
