//! Encodings of outcomes that rank 0 sends to the other ranks.

use std::sync::Arc;

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::file::{File, beside};
use crate::meta::bytes::{Encode, Reader};
use crate::meta::resolve::Location;

/// A value that rank 0 can send.
pub trait Wire: Sized {
    /// Writes it.
    fn encode(&self, w: &mut Vec<u8>);
    /// Reads it.
    fn decode(r: &mut Reader<'_>) -> Result<Self>;
}

impl Wire for () {
    fn encode(&self, _: &mut Vec<u8>) {}
    fn decode(_: &mut Reader<'_>) -> Result<Self> {
        Ok(())
    }
}

impl Wire for u64 {
    fn encode(&self, w: &mut Vec<u8>) {
        w.put_u64(*self);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.u64()
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn encode(&self, w: &mut Vec<u8>) {
        self.0.encode(w);
        self.1.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok((A::decode(r)?, B::decode(r)?))
    }
}

/// The place of an object, in terms that every rank understands.
pub struct Spot {
    file: Vec<u8>,
    oid: u64,
    path: Vec<u8>,
}

impl Spot {
    /// The spot of a place.
    pub fn of(place: &Location) -> Self {
        Self { file: place.file.path.as_bytes().to_vec(), oid: place.oid, path: place.path.clone() }
    }
    /// The place on a rank that has `base` open: in that file, or in one reached from it by an external
    /// link.
    pub fn place(self, base: &Arc<File>) -> Result<Location> {
        let file =
            if self.file == base.path.as_bytes() { base.clone() } else { beside::open_member(base, &self.file)? };
        Ok(Location { file, oid: self.oid, path: self.path })
    }
}

impl Wire for Spot {
    fn encode(&self, w: &mut Vec<u8>) {
        w.put_bytes(&self.file);
        w.put_u64(self.oid);
        w.put_bytes(&self.path);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { file: r.bytes()?.to_vec(), oid: r.u64()?, path: r.bytes()?.to_vec() })
    }
}

/// Writes an error.
pub fn put_error(w: &mut Vec<u8>, error: &Error) {
    w.put_u8(error.kind() as u8);
    for text in [error.subject(), error.cause(), error.next_step()] {
        w.put_bytes(text.as_bytes());
    }
}

/// Reads an error.
pub fn error(r: &mut Reader<'_>) -> Result<Error> {
    let kind = ErrorKind::from_code(r.u8()?).unwrap_or(ErrorKind::Internal);
    let mut text = || r.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let (subject, cause, next) = (text()?, text()?, text()?);
    let mut error = Error::new(kind, subject);
    if !cause.is_empty() {
        error = error.because(cause);
    }
    Ok(if next.is_empty() { error } else { error.try_next(next) })
}
