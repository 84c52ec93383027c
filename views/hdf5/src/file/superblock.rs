//! The superblock record: the current incarnation of a file, and the connectors that can read it.

use cenote::{Container, Content, Error, ErrorKind, Index, IndexId};

use super::{checkpoint, writers};
use crate::Result;
use crate::meta::bytes::{Encode, Reader};

/// The index that holds only this record, the state and the records of writers, whatever the generation.
pub const SUPER_INDEX: IndexId = IndexId(0);
pub(super) const SUPER_KEY: &[u8] = b"super";
/// The record beside it with the file's state, a u64: see [`super::identity`].
pub(super) const STATE_KEY: &[u8] = b"state";
/// Version 2: objects with one link have no link count record, datasets of fixed size no extent record.
const VERSION: u8 = 2;
/// The oldest readable version; opening such a file for writing upgrades it.
const VERSION_LEAST: u8 = 1;

/// The current incarnation of a file.
#[derive(Clone, Copy)]
pub(super) struct Super {
    pub uuid: u128,
    pub generation: u64,
    /// True if the file is written in atomic checkpoints (see [`checkpoint`]). Stored in another record.
    pub is_published: bool,
    /// Version of the record that was read.
    pub version: u8,
    /// How often the file was opened for writing or re-created; stored in another record. 0: never since that record exists.
    pub state: u64,
}

impl Super {
    pub fn new(uuid: u128, generation: u64) -> Self {
        Self { uuid, generation, is_published: false, version: VERSION, state: 0 }
    }
    pub fn encode(self) -> Vec<u8> {
        let mut w = Vec::new();
        w.put_u8(self.version);
        w.put_u64(self.uuid as u64);
        w.put_u64((self.uuid >> 64) as u64);
        w.put_u64(self.generation);
        w
    }
    pub fn decode(record: &[u8]) -> Result<Self> {
        let mut r = Reader::of("superblock record of an HDF5 file", record);
        let version = r.u8()?;
        if !(VERSION_LEAST..=VERSION).contains(&version) {
            return Err(Error::new(ErrorKind::VersionMismatch, "superblock record of an HDF5 file")
                .because(format!(
                    "it has version {version}; this connector reads versions {VERSION_LEAST} to {VERSION}"
                ))
                .try_next("use the connector that wrote the file, or a newer one"));
        }
        let (low, high) = (r.u64()?, r.u64()?);
        Ok(Self { version, ..Self::new(u128::from(high) << 64 | u128::from(low), r.u64()?) })
    }
    /// Reads the superblock. Changes launched by writers that have died since are in the store when this returns.
    pub fn read(container: &Container) -> Result<Option<Self>> {
        let keys = [SUPER_KEY, checkpoint::WRITERS_KEY, STATE_KEY, writers::WRITERS_KEY];
        match container.index(SUPER_INDEX).get(&keys) {
            Ok(records) => Self::of(container, |key| {
                keys.iter().zip(&records).find(|(other, _)| **other == key).and_then(|(_, value)| value.as_deref())
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
    /// Reads the superblock from records that came with the container.
    pub fn read_in(content: &Content) -> Result<Option<Self>> {
        let Some(records) = content.records(SUPER_INDEX) else { return Self::read(&content.container) };
        Self::of(&content.container, |key| records.iter().find(|(other, _)| *other == key).map(|(_, value)| value))
    }
    fn of<'a>(container: &Container, record: impl Fn(&[u8]) -> Option<&'a [u8]>) -> Result<Option<Self>> {
        writers::settle_dead(container.store(), record(writers::WRITERS_KEY))?;
        let state = state_of(record(STATE_KEY))?;
        let is_published = record(checkpoint::WRITERS_KEY).is_some();
        let sup = record(SUPER_KEY).map(Self::decode).transpose()?;
        Ok(sup.map(|sup| Self { is_published, state, ..sup }))
    }
    /// Upgrades the record before anything is written that an older connector does not understand: that connector then refuses
    /// the file.
    pub fn upgrade(&mut self, supers: &Index) -> Result<()> {
        if self.version == VERSION {
            return Ok(());
        }
        self.version = VERSION;
        supers.put(&[(SUPER_KEY, &self.encode())]).map(|_| ())
    }
}

/// The state in a record.
pub(super) fn state_of(record: Option<&[u8]>) -> Result<u64> {
    record.map_or(Ok(0), |record| Reader::of("state of an HDF5 file", record).u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_version_before_are_read_and_newer_ones_refused() {
        let sup = Super::new(7, 8);
        let mut record = sup.encode();
        for version in VERSION_LEAST..=VERSION {
            record[0] = version;
            let read = Super::decode(&record).unwrap();
            assert_eq!((read.uuid, read.generation, read.version), (7, 8, version));
        }
        record[0] = VERSION + 1;
        assert_eq!(Super::decode(&record).map(|_| ()).unwrap_err().kind(), ErrorKind::VersionMismatch);
    }
}
