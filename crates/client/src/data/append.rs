//! Appending: a write at the end, wherever that is by then, atomic among all processes.
//!
//! The bytes are put into leased space once. Then the update that points at them is sent on the condition that the object
//! has the size at which they are to begin (`Check::Size`); if others were faster, it is sent again with the new size. A
//! request that was refused left nothing, and one that was applied is answered as applied however often it is sent: so
//! the bytes are there once, whatever dies in between. Of those who race one always succeeds.

use std::sync::Arc;

use cenote_model::{Check, ErrorKind, Request, Response, Result, Update};

use super::write::{Stored, Target, Then};
use super::{read, write};
use crate::answer::surprise;
use crate::link::Link;
use crate::map::cache::ObjectCache;

/// Writes at the object's end, as one update; where that was.
pub(crate) fn append(link: &Link, target: &Target<'_>, bytes: &[u8]) -> Result<u64> {
    link.channel.check_writable()?;
    let size = read::size_of(link, target.object)?;
    write::check_range(link, target.object, size, bytes.len() as u64)?;
    if bytes.is_empty() {
        return Ok(size);
    }
    let stored = write::store(link, target, bytes, Then::Sent)?;
    let result = (stored.iter().try_for_each(Stored::write_out)).and_then(|()| point(link, target.object, &stored));
    if result.is_err() {
        for part in &stored {
            link.channel.unlease_later(part.run);
        }
        link.keep();
    }
    result
}

/// Makes what is stored the object's end.
fn point(link: &Link, object: &Arc<ObjectCache>, stored: &[Stored]) -> Result<u64> {
    let len: u64 = stored.iter().map(|part| u64::from(part.len)).sum();
    loop {
        let size = read::size_of(link, object)?;
        write::check_range(link, object, size, len)?;
        let mut at = size;
        let parts = stored.iter().map(|part| {
            at += u64::from(part.len);
            (at - u64::from(part.len), part)
        });
        let parts: Vec<(u64, &Stored)> = parts.collect();
        let update = |(offset, part): &(u64, &Stored)| Update::Write {
            key: object.key,
            offset: *offset,
            extent: part.extent.clone(),
        };
        let updates = parts.iter().map(update).collect();
        let checks = vec![Check::Size { key: object.key, size }];
        match link.request(Request::Apply { checks, updates, atomic: true }) {
            Ok(Response::Applied { words, .. }) => {
                if let [(before, after)] = words[..] {
                    let write = |(offset, part): &(u64, &Stored)| (*offset, u64::from(part.len), part.source.clone());
                    object.apply(before, after, parts.iter().map(write));
                }
                return Ok(size);
            }
            Ok(other) => return Err(surprise("an epoch", &other)),
            Err(error) if error.kind() == ErrorKind::Conflict => object.forget(),
            Err(error) => return Err(error),
        }
    }
}
