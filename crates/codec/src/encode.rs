//! Values to bytes.

/// Appends values to bytes.
pub trait Encode {
    /// A byte.
    fn put_u8(&mut self, value: u8);
    /// Two bytes.
    fn put_u16(&mut self, value: u16);
    /// Four bytes.
    fn put_u32(&mut self, value: u32);
    /// Eight bytes.
    fn put_u64(&mut self, value: u64);
    /// Eight bytes, signed: two's complement.
    fn put_i64(&mut self, value: i64);
    /// Sixteen bytes.
    fn put_u128(&mut self, value: u128);
    /// The low `bytes` bytes of a number, eight at most.
    fn put_uint(&mut self, value: u64, bytes: usize);
    /// The length in four bytes, then the bytes.
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
    fn put_i64(&mut self, value: i64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_u128(&mut self, value: u128) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_uint(&mut self, value: u64, bytes: usize) {
        self.extend_from_slice(&value.to_le_bytes()[..bytes]);
    }
    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_u32(bytes.len() as u32);
        self.extend_from_slice(bytes);
    }
}
