//! Shared ranges: ranges of objects that become those of others, without a copy of the bytes where possible.

use cenote_model::{Error, ErrorKind, Request, Response, Result, Update};

use crate::answer::surprise;
use crate::object::{Object, flush};

/// Bytes per piece of a copy that cannot be shared.
const PIECE_BYTES: u64 = 4 << 20;

impl Object {
    /// Makes `[at, at + len)` of this object equal to `[offset, offset + len)` of `from`, holes included, in one update
    /// and without copying bytes: both objects refer to the same bytes until either is overwritten. Returns the number
    /// of bytes: fewer than `len` if `from` ends before.
    ///
    /// `InvalidInput` if `from` is neither in the same container nor in a snapshot of it (see [`Object::copy_from`]),
    /// or if the two ranges overlap. Shared bytes count in the container's quota like any other bytes.
    pub fn share_from(&self, at: u64, from: &Self, offset: u64, len: u64) -> Result<u64> {
        let session = self.container().store().session()?.clone();
        self.home(&session).channel.check_writable()?;
        loop {
            let size = from.size()?;
            let len = len.min(size.saturating_sub(offset));
            if len == 0 {
                self.size()?; // fails for a missing object all the same
                return Ok(0);
            }
            let update = Update::Share { to: self.key(), at, from: from.key(), offset, len };
            match self.home(&session).request(Request::Apply {
                checks: Vec::new(),
                updates: vec![update],
                atomic: true,
            }) {
                Ok(Response::Applied { .. }) => {
                    self.written_through().map_or(Ok(()), |key| flush(self.home(&session), key))?;
                    return Ok(len);
                }
                Ok(other) => return Err(surprise("an epoch", &other)),
                // The source was truncated in between.
                Err(error) if error.kind() == ErrorKind::InvalidInput && from.size()? < size => {}
                Err(error) => {
                    return Err(Error::new(error.kind(), self.name())
                        .because(format!("{len} bytes of {}: {}", from.name(), error.cause()))
                        .try_next(error.next_step()));
                }
            }
        }
    }
    /// The same for any two objects: by [`Object::share_from`] if possible, otherwise by reading and writing the data
    /// between the holes in pieces, each of which is one update.
    pub fn copy_from(&self, at: u64, from: &Self, offset: u64, len: u64) -> Result<u64> {
        match self.share_from(at, from, offset, len) {
            Err(error) if error.kind() == ErrorKind::InvalidInput && self.container().id() != from.container().id() => {
                self.copy_bytes(at, from, offset, len)
            }
            outcome => outcome,
        }
    }
    fn copy_bytes(&self, at: u64, from: &Self, offset: u64, len: u64) -> Result<u64> {
        let end = from.size()?.min(offset.saturating_add(len));
        let Some(len) = end.checked_sub(offset).filter(|len| *len > 0) else { return Ok(0) };
        self.punch(at, len)?;
        let mut buffer = vec![0; PIECE_BYTES.min(len) as usize];
        let mut from_here = offset;
        while let Some(begin) = from.next_data(from_here)?.filter(|begin| *begin < end) {
            let until = from.next_hole(begin)?.unwrap_or(begin).min(end).min(begin + PIECE_BYTES);
            let piece = &mut buffer[..until.saturating_sub(begin) as usize];
            let found = from.read_at(begin, piece)?;
            if found == 0 {
                break; // truncated in between
            }
            self.write_at(at + (begin - offset), &piece[..found])?;
            from_here = begin + found as u64;
        }
        if self.size()? < at + len {
            self.grow_to(at + len)?;
        }
        Ok(len)
    }
    /// Extends a shorter object to this size with a hole.
    fn grow_to(&self, size: u64) -> Result<()> {
        let session = self.container().store().session()?.clone();
        loop {
            let found = self.size()?;
            if found >= size {
                return Ok(());
            }
            let checks = vec![cenote_model::Check::Size { key: self.key(), size: found }];
            let updates = vec![Update::Truncate { key: self.key(), size }];
            match self.home(&session).request(Request::Apply { checks, updates, atomic: true }) {
                Err(error) if error.kind() == ErrorKind::Conflict => self.cache(&session).forget(),
                outcome => return outcome.map(drop),
            }
        }
    }
}
