//! Bytes to values.

use std::fmt;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// What bytes are about: makes the error of a room from the reason why they cannot be decoded.
pub trait Subject {
    /// The room's error.
    type Error;
    /// The error for bytes that are malformed in this way.
    fn malformed(&self, why: &'static str) -> Self::Error;
}

/// A subject without a name: the error is the reason alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Anonymous;

impl Subject for Anonymous {
    type Error = Malformed;
    #[inline]
    fn malformed(&self, why: &'static str) -> Malformed {
        Malformed(why)
    }
}

/// Takes values from the front of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a, S = Anonymous> {
    rest: &'a [u8],
    subject: S,
}

impl<'a> Decoder<'a> {
    /// Of bytes without a name.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, subject: Anonymous }
    }
}

impl<'a, S: Subject> Decoder<'a, S> {
    /// Of the bytes of `subject`.
    #[inline]
    pub fn of(subject: impl Into<S>, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, subject: subject.into() }
    }
    /// The error for these bytes.
    #[cold]
    pub fn malformed(&self, why: &'static str) -> S::Error {
        self.subject.malformed(why)
    }
    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], S::Error> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.malformed("it ends too early"));
        };
        self.rest = rest;
        Ok(taken)
    }
    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], S::Error> {
        let Some((taken, rest)) = self.rest.split_first_chunk() else {
            return Err(self.malformed("it ends too early"));
        };
        self.rest = rest;
        Ok(*taken)
    }
    /// A byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, S::Error> {
        Ok(self.array::<1>()?[0])
    }
    /// Two bytes.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, S::Error> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    /// Four bytes.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, S::Error> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    /// Eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, S::Error> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// Eight bytes, signed.
    #[inline]
    pub fn i64(&mut self) -> Result<i64, S::Error> {
        Ok(i64::from_le_bytes(self.array()?))
    }
    /// Sixteen bytes.
    #[inline]
    pub fn u128(&mut self) -> Result<u128, S::Error> {
        Ok(u128::from_le_bytes(self.array()?))
    }
    /// A number of `bytes` bytes, eight at most.
    pub fn uint(&mut self, bytes: usize) -> Result<u64, S::Error> {
        let mut out = [0; 8];
        out[..bytes].copy_from_slice(self.take(bytes)?);
        Ok(u64::from_le_bytes(out))
    }
    /// A byte that is 0 or 1.
    #[inline]
    pub fn flag(&mut self) -> Result<bool, S::Error> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed("a flag that is neither 0 nor 1")),
        }
    }
    /// Bytes with their length before them.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], S::Error> {
        let len = self.u32()? as usize;
        self.take(len)
    }
    /// Text in UTF-8 with its length in bytes before it.
    pub fn text(&mut self) -> Result<String, S::Error> {
        let text = str::from_utf8(self.bytes()?);
        text.map(str::to_owned).map_err(|_| self.malformed("text that is not UTF-8"))
    }
    /// A count of things that take at least `each` bytes: never more than the bytes that are left allow.
    #[inline]
    pub fn count(&mut self, each: usize) -> Result<usize, S::Error> {
        let count = self.u32()? as usize;
        if count > self.rest.len() / each.max(1) { Err(self.malformed("a count past the end")) } else { Ok(count) }
    }
    /// Bytes that are left, without taking them.
    #[inline]
    pub fn as_slice(&self) -> &'a [u8] {
        self.rest
    }
    /// How many bytes are left.
    #[inline]
    pub fn left(&self) -> usize {
        self.rest.len()
    }
    /// True if nothing is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    /// Takes all that is left.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
    /// An error if something is left.
    #[inline]
    pub fn end(&self) -> Result<(), S::Error> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed("bytes follow its end")) }
    }
}
