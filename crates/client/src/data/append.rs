//! Appends: writes at the current end of an object, atomically among all processes.
//!
//! The bytes are stored in leased space once. Then the update that points at them is sent with the condition that the
//! object has the size at which they would begin (`Check::Size`). If another writer was faster, the update is sent
//! again with the new size. A refused request leaves nothing, and an applied one is answered as applied however often
//! it is sent: so the bytes appear exactly once, whatever process dies in between. Of several racing writers one always
//! succeeds.

use std::sync::Arc;

use cenote_model::{Check, ErrorKind, Request, Response, Result, Update};

use super::write::{SendMode, Stored, Target};
use super::{read, write};
use crate::answer::surprise;
use crate::link::Link;
use crate::map::cache::ObjectCache;

/// Writes at the object's end as one update, and returns the offset.
pub(crate) fn append(link: &Link, target: &Target<'_>, bytes: &[u8]) -> Result<u64> {
    link.channel.check_writable()?;
    let size = read::size_of(link, target.object)?;
    write::check_range(link, target.object, size, bytes.len() as u64)?;
    if bytes.is_empty() {
        return Ok(size);
    }
    let stored = write::store(link, target, bytes, SendMode::Sent)?;
    let result = (stored.iter().try_for_each(Stored::write_out)).and_then(|()| point(link, target.object, &stored));
    if result.is_err() {
        for part in &stored {
            link.channel.unlease_later(part.run);
        }
        link.keep();
    }
    result
}

/// Appends the stored bytes to the object's map, and returns their offset.
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
