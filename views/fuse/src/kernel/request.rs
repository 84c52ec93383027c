//! A request as it was read.

use cenote_posix::{FsError, FsResult};

use super::abi::IN_HEADER_BYTES;

/// One request of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Operation ([`super::abi::op`]).
    pub op: u32,
    /// Number of the request, repeated in the answer.
    pub unique: u64,
    /// The file that it is about, by the kernel's number.
    pub node: u64,
    pub uid: u32,
    pub gid: u32,
    /// The thread that waits for the answer; 0: none, or one that is not visible here.
    pub pid: u32,
    body: &'a [u8],
}

/// The unread rest of a request's arguments.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a>(&'a [u8]);

/// The error for a request that is shorter than it should be.
fn short<T>() -> FsResult<T> {
    Err(FsError::new(libc::EIO))
}

impl<'a> Request<'a> {
    /// `None` if the bytes are not a request.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, body) = bytes.split_at_checked(IN_HEADER_BYTES)?;
        let mut fields = Args(header);
        let mut next = || -> FsResult<Self> {
            let (len, op) = (fields.u32()?, fields.u32()?);
            let (unique, node) = (fields.u64()?, fields.u64()?);
            let (uid, gid, pid) = (fields.u32()?, fields.u32()?, fields.u32()?);
            if len as usize == bytes.len() { Ok(Self { op, unique, node, uid, gid, pid, body }) } else { short() }
        };
        next().ok()
    }
    /// All its arguments.
    pub fn args(&self) -> Args<'a> {
        Args(self.body)
    }
}

impl<'a> Args<'a> {
    fn take<const N: usize>(&mut self) -> FsResult<[u8; N]> {
        let Some((first, rest)) = self.0.split_first_chunk() else { return short() };
        self.0 = rest;
        Ok(*first)
    }
    pub fn u32(&mut self) -> FsResult<u32> {
        self.take().map(u32::from_ne_bytes)
    }
    pub fn u64(&mut self) -> FsResult<u64> {
        self.take().map(u64::from_ne_bytes)
    }
    /// Skips padding.
    pub fn skip(&mut self, bytes: usize) -> FsResult<()> {
        self.0 = self.0.get(bytes..).ok_or_else(|| FsError::new(libc::EIO))?;
        Ok(())
    }
    /// A string that ends in NUL.
    pub fn name(&mut self) -> FsResult<&'a [u8]> {
        let Some(end) = self.0.iter().position(|byte| *byte == 0) else { return short() };
        let (name, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(name)
    }
    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> FsResult<&'a [u8]> {
        let Some((bytes, rest)) = self.0.split_at_checked(len) else { return short() };
        self.0 = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(len.to_ne_bytes());
        bytes.extend(7_u32.to_ne_bytes());
        bytes.extend(11_u64.to_ne_bytes());
        bytes.extend(13_u64.to_ne_bytes());
        for field in [17_u32, 19, 23, 0] {
            bytes.extend(field.to_ne_bytes());
        }
        bytes.extend(body);
        bytes
    }

    #[test]
    fn a_request_is_what_the_kernel_wrote() {
        let bytes = bytes(40 + 4 + 2 + 3, b"\x01\0\0\0a\0xyz");
        let request = Request::parse(&bytes).unwrap();
        assert_eq!((request.op, request.unique, request.node), (7, 11, 13));
        assert_eq!((request.uid, request.gid, request.pid), (17, 19, 23));
        let mut args = request.args();
        assert_eq!(args.u32().unwrap(), 1);
        assert_eq!(args.name().unwrap(), b"a");
        assert_eq!(args.bytes(3).unwrap(), b"xyz");
    }

    #[test]
    fn what_is_cut_off_is_an_error_and_nothing_else() {
        assert!(Request::parse(&bytes(41, b"")).is_none());
        assert!(Request::parse(b"short").is_none());
        let bytes = bytes(43, b"abc");
        let args = Request::parse(&bytes).unwrap().args();
        assert!(args.clone().u32().is_err() && args.clone().u64().is_err() && args.clone().name().is_err());
        assert!(args.clone().bytes(4).is_err() && args.clone().skip(4).is_err());
    }
}
