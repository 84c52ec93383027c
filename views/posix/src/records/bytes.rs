//! Encoding of records: their names in errors, inode numbers and times. `cenote_codec` does the rest.

use cenote::ErrorKind;
use cenote_codec::{Decoder, Encode, Subject};

use super::{INO_BITS, VERSION};
use crate::{FsError, FsResult, Time};

/// Bytes of an inode number in a record.
const INO_BYTES: usize = INO_BITS as usize / 8;

/// A record, by its name in errors.
#[derive(Clone, Copy, Debug)]
pub struct Record(&'static str);

impl Subject for Record {
    type Error = FsError;
    fn malformed(&self, why: &'static str) -> FsError {
        FsError::because(libc::EIO, ErrorKind::Corrupt, self.0, why)
    }
}

/// Decoder of a record; every step checks its bounds.
pub type Reader<'a> = Decoder<'a, Record>;

/// Creates a reader of `record`, named `what` in errors; checks the version.
pub fn reader<'a>(what: &'static str, record: &'a [u8]) -> FsResult<Reader<'a>> {
    versioned(what, record, VERSION).map(|(_, reader)| reader)
}

/// Creates a reader of `record`, of which this program knows all versions up to `newest`; returns the version, too.
pub fn versioned<'a>(what: &'static str, record: &'a [u8], newest: u8) -> FsResult<(u8, Reader<'a>)> {
    let mut reader: Reader<'_> = Decoder::of(Record(what), record);
    match reader.u8()? {
        version if (VERSION..=newest).contains(&version) => Ok((version, reader)),
        other => {
            let words = format!("its version is {other}; this program knows {newest}");
            Err(FsError::because(libc::EIO, ErrorKind::VersionMismatch, what, words))
        }
    }
}

/// Fields that only records of trees have.
pub trait PutFields {
    /// Appends an inode number: five bytes.
    fn put_ino(&mut self, ino: u64);
    /// Appends a time: 12 bytes.
    fn put_time(&mut self, time: Time);
}

impl PutFields for Vec<u8> {
    fn put_ino(&mut self, ino: u64) {
        self.put_uint(ino, INO_BYTES);
    }
    fn put_time(&mut self, time: Time) {
        self.put_i64(time.s);
        self.put_u32(time.ns);
    }
}

/// The counterpart of [`PutFields`].
pub trait TakeFields {
    /// Reads an inode number.
    fn ino(&mut self) -> FsResult<u64>;
    /// Reads a time.
    fn time(&mut self) -> FsResult<Time>;
}

impl TakeFields for Reader<'_> {
    fn ino(&mut self) -> FsResult<u64> {
        self.uint(INO_BYTES)
    }
    fn time(&mut self) -> FsResult<Time> {
        let time = Time { s: self.i64()?, ns: self.u32()? };
        if time.ns < 1_000_000_000 {
            Ok(time)
        } else {
            Err(self.malformed("a time with more than a second of nanoseconds"))
        }
    }
}
