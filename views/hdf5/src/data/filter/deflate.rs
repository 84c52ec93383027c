//! Deflate: a zlib stream, as HDF5 stores it.

use std::io::Read;

use cenote::{Error, ErrorKind, Result};
use flate2::{Compress, Compression, FlushCompress, Status, read::ZlibDecoder};

use super::{Codec, Decode};

pub struct Deflate;

impl Codec for Deflate {
    fn encode(&self, params: &[u32], raw: &[u8]) -> Result<Vec<u8>> {
        let level = match params {
            [level @ 0..=9] => *level,
            _ => {
                return Err(Error::new(ErrorKind::InvalidInput, "filter deflate")
                    .because(format!("the level must be one number from 0 to 9, not {params:?}")));
            }
        };
        let mut stream = Compress::new(Compression::new(level), true);
        // zlib's bound for any level, so that one call suffices.
        let mut out = Vec::with_capacity(raw.len() + (raw.len() >> 8) + (raw.len() >> 12) + 1024);
        loop {
            let taken = stream.total_in() as usize;
            match stream.compress_vec(&raw[taken..], &mut out, FlushCompress::Finish) {
                Ok(Status::StreamEnd) => return Ok(out),
                Ok(_) => out.reserve(out.capacity() / 2),
                Err(error) => {
                    return Err(Error::new(ErrorKind::Internal, "filter deflate").because(error.to_string()));
                }
            }
        }
    }

    fn decode(&self, _params: &[u32], stored: &[u8], how: Decode) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(how.bytes_max.min(stored.len().saturating_mul(1100)) / 2 + 64);
        let damaged = |cause: String| Error::new(ErrorKind::Corrupt, "a chunk stored by deflate").because(cause);
        ZlibDecoder::new(stored)
            .take(how.bytes_max as u64 + 1)
            .read_to_end(&mut out)
            .map_err(|error| damaged(error.to_string()))?;
        if out.len() > how.bytes_max {
            return Err(damaged(format!("it grows past {} bytes", how.bytes_max)));
        }
        Ok(out)
    }
}
