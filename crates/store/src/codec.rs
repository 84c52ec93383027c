//! Integers and byte strings as they are on media: little endian, no padding.

/// Numbers that count what happens stay below this: at one each nanosecond, for more than seventy years.
pub(crate) const ORDINALS_END: u64 = 1 << 61;

/// Something on media does not make sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed(pub &'static str);

/// Appends values to bytes.
pub(crate) trait Encode {
    fn put_u8(&mut self, value: u8);
    fn put_u16(&mut self, value: u16);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    fn put_u128(&mut self, value: u128);
    /// Length as u32, then the bytes.
    fn put_bytes(&mut self, bytes: &[u8]);
}

impl Encode for Vec<u8> {
    #[inline]
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }
    #[inline]
    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_u128(&mut self, value: u128) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_u32(bytes.len() as u32);
        self.extend_from_slice(bytes);
    }
}

/// Takes values from bytes that nobody vouches for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
}

pub(crate) type Decoded<T> = Result<T, Malformed>;

impl<'a> Decoder<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
    pub fn take(&mut self, len: usize) -> Decoded<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Malformed("ends early"))?;
        self.rest = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }
    pub fn u8(&mut self) -> Decoded<u8> {
        Ok(self.array::<1>()?[0])
    }
    pub fn u16(&mut self) -> Decoded<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    pub fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// A number that counts one thing after the other (epochs, sequences, positions): one so large that counting on
    /// would end is damage, whatever its checksum says.
    pub fn ordinal(&mut self) -> Decoded<u64> {
        let number = self.u64()?;
        if number < ORDINALS_END { Ok(number) } else { Err(Malformed("a number that no counting reaches")) }
    }
    pub fn u128(&mut self) -> Decoded<u128> {
        Ok(u128::from_le_bytes(self.array()?))
    }
    pub fn bytes(&mut self) -> Decoded<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
    }
    pub fn text(&mut self) -> Decoded<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Malformed("text that is not UTF-8"))
    }
    /// A count of things that take at least `each` bytes: never more than the bytes that are left allow.
    pub fn count(&mut self, each: usize) -> Decoded<usize> {
        let count = self.u32()? as usize;
        if count > self.rest.len() / each.max(1) {
            return Err(Malformed("a count past the end"));
        }
        Ok(count)
    }
    pub fn flag(&mut self) -> Decoded<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag that is neither 0 nor 1")),
        }
    }
    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }
    /// Nothing must be left.
    pub fn end(&self) -> Decoded<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed("bytes left over")) }
    }
}

/// The number at the end of a file's name, of six digits or more.
pub(crate) fn ordinal_in_name(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    let is_number = digits.len() >= 6 && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|number| is_number && *number < ORDINALS_END)
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_in_names() {
        let number = |name| super::ordinal_in_name(name, "journal-");
        assert_eq!((number("journal-000012"), number("journal-1234567")), (Some(12), Some(1_234_567)));
        for name in ["journal-12", "journal-+00012", "journal-18446744073709551615", "checkpoint-000012", "journal-"] {
            assert_eq!(number(name), None, "{name}");
        }
    }
}
