//! Record that a file has a page cache.

use crate::FsResult;
use cenote_codec::Encode as _;

use super::VERSION;
use super::bytes::versioned;

/// Version of records in a cluster; in a store by itself they have nothing to say, and are of version 1.
const NEWEST: u8 = 2;
/// Flag: see [`PageCacheNote::is_stored_to`].
const STORED_TO: u8 = 1;

/// Record that a file has a page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageCacheNote {
    /// The term of the file's home when the page cache was made: it is lost once the home has had another host. `None`: the store is no part of a
    /// cluster, or an earlier version made the record.
    pub term: Option<u64>,
    /// A program may store to it by a mapping, of which nothing tells other nodes.
    pub is_stored_to: bool,
}

impl PageCacheNote {
    /// Encodes the record.
    pub fn encode(&self) -> Vec<u8> {
        let Some(term) = self.term else { return vec![VERSION] };
        let mut w = vec![NEWEST];
        w.put_u8(if self.is_stored_to { STORED_TO } else { 0 });
        w.put_u64(term);
        w
    }
    /// Decodes the record.
    pub fn decode(record: &[u8]) -> FsResult<Self> {
        let (version, mut r) = versioned("record of a page cache", record, NEWEST)?;
        let note = if version == VERSION {
            Self { term: None, is_stored_to: true }
        } else {
            let flags = r.u8()?;
            Self { term: Some(r.u64()?), is_stored_to: flags & STORED_TO != 0 }
        };
        r.end()?;
        Ok(note)
    }
}
