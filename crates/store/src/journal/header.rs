//! The page with which a journal file begins.

use cenote_model::{Error, ErrorKind, Result, StoreId};

use super::{HEADER_USED, corrupt};
use crate::codec::{Decoder, Encode, Ordinals as _};
use crate::sums::sum_of;

const MAGIC: [u8; 8] = *b"CENOTEJ\0";
/// Version 1 had no snapshots, version 2 no groups and modes, version 3 one copy and no nodes, version 4 no transactions
/// over several homes, version 5 changes of snapshots alone, version 6 no tiers for new objects, version 7 no weights; all are still read.
const VERSION: u32 = 8;

/// The header of a log file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub store: StoreId,
    pub sequence: u64,
    /// Sequence number of the previous file, and where its records end; zeros if no previous file matters.
    pub previous: u64,
    pub previous_end: u64,
    /// Position in the journal as a whole of this file's first byte.
    pub base: u64,
    /// Bytes that the file was made with; 0 if an early version did not say.
    pub capacity: u64,
    /// The term of the home whose journal it is. 0: a store on one node, which has no terms.
    pub term: u64,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_USED);
        bytes.extend_from_slice(&MAGIC);
        bytes.put_u32(VERSION);
        bytes.put_u32(0);
        bytes.put_u128(self.store.0);
        bytes.put_u64(self.sequence);
        bytes.put_u64(self.previous);
        bytes.put_u64(self.previous_end);
        bytes.put_u64(self.base);
        bytes.put_u64(self.capacity);
        bytes.put_u64(self.term);
        bytes.resize(HEADER_USED, 0);
        let sum = sum_of(&bytes);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
    /// Reads a header; `Ok(None)` if the page was never written. Fails if it is damaged or of a later version.
    pub(crate) fn decode(name: &str, bytes: &[u8]) -> Result<Option<Self>> {
        let corrupt = |why: &str| Err(corrupt(name, 0, why));
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if bytes.len() < HEADER_USED || bytes[..8] != MAGIC {
            return corrupt("it does not begin like a journal");
        }
        let mut plain = bytes[..HEADER_USED].to_vec();
        let sum = u32::from_le_bytes([plain[12], plain[13], plain[14], plain[15]]);
        plain[12..16].fill(0);
        let mut fields = Decoder::new(&plain[8..]);
        let version = fields.u32().unwrap_or(0);
        if sum_of(&plain) != sum {
            return corrupt("its header does not match its checksum");
        }
        if !(1..=VERSION).contains(&version) {
            return Err(Error::new(ErrorKind::VersionMismatch, format!("journal file `{name}`"))
                .because(format!("its version is {version}, this program reads {VERSION}"))
                .try_next("use the version of Cenote that wrote it"));
        }
        let mut read = || -> Result<Self, crate::codec::Malformed> {
            fields.u32()?;
            Ok(Self {
                store: StoreId(fields.u128()?),
                sequence: fields.ordinal()?,
                previous: fields.ordinal()?,
                previous_end: fields.ordinal()?,
                base: fields.ordinal()?,
                capacity: fields.ordinal()?,
                term: fields.ordinal()?,
            })
        };
        match read() {
            Ok(header) if header.term == 0 => Ok(Some(header)),
            Ok(_) => corrupt(crate::codec::OTHER_NODES),
            Err(malformed) => corrupt(malformed.0),
        }
    }
}
