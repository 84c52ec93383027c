//! The source of a file's metadata records: an index of the store, or a source that makes them on demand.
//!
//! Reads go through [`Meta`]. Changes name the index itself, as transactions require; a file with a source is
//! read-only and never gets there.

use std::ops::Deref;

use cenote::{Index, NextFrom, Records};

use crate::Result;

/// A record: key and value.
pub type Record = (Vec<u8>, Vec<u8>);

/// Makes records on demand.
pub trait Source: Send + Sync {
    /// A value by key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// All records whose keys begin with `prefix` (at least a tag and an object's number), in key order.
    fn with_prefix(&self, prefix: &[u8]) -> Result<Vec<Record>>;
}

/// The records of a file.
pub struct Meta {
    index: Index,
    source: Option<Box<dyn Source>>,
}

impl Meta {
    /// The records in an index of the store.
    pub fn stored(index: Index) -> Self {
        Self { index, source: None }
    }
    /// The records made by `source`; `index` belongs to no container.
    pub fn made(index: Index, source: Box<dyn Source>) -> Self {
        Self { index, source: Some(source) }
    }
    /// The index in the store.
    pub fn index(&self) -> &Index {
        &self.index
    }
    /// One value.
    pub fn get_one(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match &self.source {
            Some(source) => source.get(key),
            None => self.index.get_one(key),
        }
    }
    /// Values by key.
    pub fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        match &self.source {
            Some(source) => keys.iter().map(|key| source.get(key)).collect(),
            None => self.index.get(keys),
        }
    }
    /// All records whose keys begin with `prefix`.
    pub fn iter(&self, prefix: &[u8]) -> Box<dyn Iterator<Item = Result<Record>>> {
        let Some(source) = &self.source else { return Box::new(self.index.iter(prefix)) };
        match source.with_prefix(prefix) {
            Ok(records) => Box::new(records.into_iter().map(Ok)),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }
    /// Up to `limit` records whose keys begin with `prefix`, starting at `from`.
    pub fn next_with_prefix(&self, prefix: &[u8], from: NextFrom, limit: u32) -> Result<Records> {
        let Some(source) = &self.source else { return self.index.next_with_prefix(prefix, from, limit) };
        let is_in = |key: &[u8]| match &from {
            NextFrom::Start => true,
            NextFrom::At(first) => key >= &first[..],
            NextFrom::After(last) => key > &last[..],
        };
        let all = source.with_prefix(prefix)?;
        Ok(all.into_iter().filter(|(key, _)| is_in(key)).take(limit as usize).collect())
    }
}

impl Deref for Meta {
    type Target = Index;
    fn deref(&self) -> &Index {
        &self.index
    }
}
