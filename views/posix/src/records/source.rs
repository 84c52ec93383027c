//! Sources of the image that a file shows, to tell whether the image is up to date.

use cenote::{Changes, ContainerId, IndexId, ObjectId};
use cenote_codec::Encode as _;

use super::{PutFields as _, TakeFields as _, VERSION, reader};
use crate::{FsResult, Time};

/// Sources of an image; see the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Source {
    /// The container of the HDF5 file.
    pub container: ContainerId,
    /// Time when the image was made.
    pub made: Time,
    /// How often its sources had changed by then.
    pub changes: Changes,
    /// Indices that it depends on.
    pub indices: Vec<IndexId>,
    /// Objects that it depends on.
    pub objects: Vec<ObjectId>,
}

impl Source {
    /// Encodes a record.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::with_capacity(64 + 16 * (self.indices.len() + self.objects.len()));
        w.put_u8(VERSION);
        w.put_u64(self.container.0);
        w.put_time(self.made);
        w.put_u64(self.changes.instance);
        w.put_u64(self.changes.count);
        w.put_u32(self.indices.len() as u32);
        let ids = self.indices.iter().map(|id| id.0).chain(self.objects.iter().map(|id| id.0));
        ids.for_each(|id| w.put_u128(id));
        w
    }
    /// Decodes a record.
    pub fn decode(record: &[u8]) -> FsResult<Self> {
        let mut r = reader("source of an image", record)?;
        let (container, made) = (ContainerId(r.u64()?), r.time()?);
        let changes = Changes { instance: r.u64()?, count: r.u64()? };
        let indices = r.u32()? as usize;
        let (ids, rest) = r.rest().as_chunks::<16>();
        if !rest.is_empty() || ids.len() < indices {
            return Err(r.malformed("its ids are not whole"));
        }
        let mut ids = ids.iter().map(|id| u128::from_le_bytes(*id));
        let indices = ids.by_ref().take(indices).map(IndexId).collect();
        Ok(Self { container, made, changes, indices, objects: ids.map(ObjectId).collect() })
    }
}
