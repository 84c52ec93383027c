//! Answers: each request gets one.

use std::io::IoSlice;
use std::sync::Arc;

use super::abi::OUT_HEADER_BYTES;
use super::device::Device;
use super::in_flight::RequestInFlight;

/// Fields in the order of the kernel's structures.
pub struct Fields {
    bytes: [u8; Self::BYTES_MAX],
    len: usize,
}

impl Fields {
    /// Bytes of the longest answer structure (`fuse_statx_out`), rounded up.
    const BYTES_MAX: usize = 320;

    pub fn new() -> Self {
        Self { bytes: [0; Self::BYTES_MAX], len: 0 }
    }
    fn put(mut self, bytes: &[u8]) -> Self {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self
    }
    pub fn u16(self, value: u16) -> Self {
        self.put(&value.to_ne_bytes())
    }
    pub fn u32(self, value: u32) -> Self {
        self.put(&value.to_ne_bytes())
    }
    pub fn u64(self, value: u64) -> Self {
        self.put(&value.to_ne_bytes())
    }
    /// Adds padding.
    pub fn zeros(mut self, bytes: usize) -> Self {
        self.len += bytes;
        self
    }
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Answers one request.
#[derive(Clone)]
pub struct Reply {
    device: Arc<Device>,
    unique: u64,
}

impl Reply {
    pub fn new(device: &Arc<Device>, unique: u64) -> Self {
        Self { device: device.clone(), unique }
    }
    /// Answers with bytes. Returns false if nobody waits any more.
    pub fn data(&self, in_flight: &RequestInFlight, bytes: &[u8]) -> bool {
        in_flight.complete(self.unique) && self.send(0, bytes)
    }
    /// Answers with an error number, or with 0 for success.
    pub fn done(&self, in_flight: &RequestInFlight, errno: i32) -> bool {
        in_flight.complete(self.unique) && self.send(errno, &[])
    }
    /// Answers in place of the thread that carries the request out; its own answer is
    /// dropped later.
    pub fn cut_short(&self, errno: i32) {
        self.send(errno, &[]);
    }
    fn send(&self, errno: i32, bytes: &[u8]) -> bool {
        let len = (OUT_HEADER_BYTES + bytes.len()) as u32;
        let mut header = [0; OUT_HEADER_BYTES];
        header[..4].copy_from_slice(&len.to_ne_bytes());
        header[4..8].copy_from_slice(&(-errno).to_ne_bytes());
        header[8..].copy_from_slice(&self.unique.to_ne_bytes());
        self.device.write(&[IoSlice::new(&header), IoSlice::new(bytes)])
    }
}
