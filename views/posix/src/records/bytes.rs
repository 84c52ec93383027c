//! Little-endian encoding.

use cenote::ErrorKind;

use crate::{FsError, FsResult, Time};

/// Builds a record.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// A byte.
    pub fn u8(&mut self, v: u8) {
        self.0.push(v);
    }
    /// Two bytes.
    pub fn u16(&mut self, v: u16) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    /// Four bytes.
    pub fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    /// Eight bytes.
    pub fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    /// A number of a tree: five bytes.
    pub fn ino(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_le_bytes()[..5]);
    }
    /// A time: 12 bytes.
    pub fn time(&mut self, v: Time) {
        self.0.extend_from_slice(&v.s.to_le_bytes());
        self.u32(v.ns);
    }
}

/// Takes a record apart; every step checks its bounds.
pub struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Reads `record`, called `what` in errors; its version is checked.
    pub fn new(what: &'static str, record: &'a [u8]) -> FsResult<Self> {
        let mut reader = Self { rest: record, what };
        match reader.u8()? {
            super::VERSION => Ok(reader),
            other => Err(FsError::because(
                libc::EIO,
                ErrorKind::VersionMismatch,
                what,
                format!("its version is {other}; this program knows {}", super::VERSION),
            )),
        }
    }
    /// An error about this record.
    #[cold]
    pub fn corrupt(&self, why: &str) -> FsError {
        FsError::because(libc::EIO, ErrorKind::Corrupt, self.what, why)
    }
    fn take(&mut self, n: usize) -> FsResult<&'a [u8]> {
        let Some((head, rest)) = self.rest.split_at_checked(n) else {
            return Err(self.corrupt("the record ends too early"));
        };
        self.rest = rest;
        Ok(head)
    }
    fn array<const N: usize>(&mut self) -> FsResult<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }
    /// A byte.
    pub fn u8(&mut self) -> FsResult<u8> {
        Ok(self.array::<1>()?[0])
    }
    /// Two bytes.
    pub fn u16(&mut self) -> FsResult<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    /// Four bytes.
    pub fn u32(&mut self) -> FsResult<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    /// Eight bytes.
    pub fn u64(&mut self) -> FsResult<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// A number of a tree.
    pub fn ino(&mut self) -> FsResult<u64> {
        let mut out = [0; 8];
        out[..5].copy_from_slice(self.take(5)?);
        Ok(u64::from_le_bytes(out))
    }
    /// A time.
    pub fn time(&mut self) -> FsResult<Time> {
        let time = Time { s: i64::from_le_bytes(self.array()?), ns: self.u32()? };
        if time.ns < 1_000_000_000 {
            Ok(time)
        } else {
            Err(self.corrupt("a time with more than a second of nanoseconds"))
        }
    }
    /// True if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
    /// An error if something is left.
    pub fn end(&self) -> FsResult<()> {
        if self.is_empty() { Ok(()) } else { Err(self.corrupt("the record is longer than it should be")) }
    }
}
