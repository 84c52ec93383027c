//! The mirror's side: changes of another node's home, carried out here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use cenote_codec::Decoder;
use cenote_model::{DeviceId, DeviceSpec, Error, ErrorKind, Result, StoreId};

use super::Kinds;
use super::change::Change;
use crate::{Device, Devices, LogFile, MetaDir};

/// A home's files and devices on this node, while another node has the home.
pub struct Replica {
    store: StoreId,
    files: Arc<dyn MetaDir>,
    devices: Arc<dyn Devices>,
    kinds: Kinds,
    opened: BTreeMap<DeviceId, (DeviceSpec, Arc<dyn Device>)>,
    logs: HashMap<String, Box<dyn LogFile>>,
    parts: HashMap<String, Vec<u8>>,
    is_complete: bool,
    /// Number of the last chunk.
    has: u64,
    /// What was written and not synced.
    unsynced: (BTreeSet<String>, BTreeSet<DeviceId>),
}

/// What a replica wrote and did not sync, to be synced while it goes on.
pub struct Unsynced {
    files: Arc<dyn MetaDir>,
    logs: BTreeSet<String>,
    devices: Vec<Arc<dyn Device>>,
}

impl Unsynced {
    /// Syncs it. What is gone by now is passed over.
    pub fn sync(self) -> Result<()> {
        for name in &self.logs {
            match self.files.open_log(name).and_then(|log| log.sync()) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.devices.iter().try_for_each(|device| device.sync())
    }
}

impl Replica {
    /// A replica of the store `store` that has nothing yet: the first changes must be a copy of everything.
    pub fn new(store: StoreId, files: Arc<dyn MetaDir>, devices: Arc<dyn Devices>, kinds: Kinds) -> Self {
        Self {
            store,
            files,
            devices,
            kinds,
            opened: BTreeMap::new(),
            logs: HashMap::new(),
            parts: HashMap::new(),
            is_complete: false,
            has: 0,
            unsynced: Default::default(),
        }
    }
    /// Takes what was written since the last call, so that it can be synced; `None` if nothing was.
    pub fn take_unsynced(&mut self) -> Option<Unsynced> {
        let (logs, devices) = std::mem::take(&mut self.unsynced);
        if logs.is_empty() && devices.is_empty() {
            return None;
        }
        let device = |id: &DeviceId| self.opened.get(id).map(|(_, device)| device.clone());
        Some(Unsynced { files: self.files.clone(), logs, devices: devices.iter().filter_map(device).collect() })
    }
    /// Returns true if the home can be opened here: the copy of everything is complete.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
    /// Number of the last chunk that was carried out.
    pub fn has(&self) -> u64 {
        self.has
    }
    /// A device of the home, once the copy is complete.
    pub fn device(&self, id: DeviceId) -> Option<Arc<dyn Device>> {
        self.opened.get(&id).filter(|_| self.is_complete).map(|(_, device)| device.clone())
    }
    /// Carries out a chunk of changes. After an error the replica has to begin anew.
    pub fn apply(&mut self, number: u64, chunk: &[u8]) -> Result<()> {
        if number != self.has + 1 {
            return Err(Error::new(ErrorKind::InvalidInput, "changes of a home")
                .because(format!("chunk {number} comes after chunk {}", self.has)));
        }
        let mut from = Decoder::new(chunk);
        while !from.is_empty() {
            let change = Change::decode(&mut from)
                .map_err(|malformed| Error::new(ErrorKind::InvalidInput, "changes of a home").because(malformed.0))?;
            self.carry_out(change)?;
        }
        self.has = number;
        Ok(())
    }
    fn carry_out(&mut self, change: Change<'_>) -> Result<()> {
        match change {
            Change::Begin => self.clear(),
            Change::Complete => {
                self.is_complete = true;
                Ok(())
            }
            Change::Log { name, capacity } => {
                self.check(name)?;
                self.remove(name)?;
                let log = self.files.create_log(name, capacity)?;
                self.logs.insert(name.to_owned(), log);
                Ok(())
            }
            Change::LogWrite { name, offset, bytes } => match self.logs.get(name) {
                Some(log) => {
                    if !self.unsynced.0.contains(name) {
                        self.unsynced.0.insert(name.to_owned());
                    }
                    log.write(offset, bytes)
                }
                None if !self.is_complete => Ok(()), // made before the copy, and not copied yet
                None => Err(unknown(format!("file `{name}`"))),
            },
            Change::FilePart { name, bytes, is_last } => {
                self.check(name)?;
                let parts = self.parts.entry(name.to_owned()).or_default();
                parts.extend_from_slice(bytes);
                if is_last {
                    let whole = self.parts.remove(name).unwrap_or_default();
                    self.files.write_file(name, &whole)?;
                }
                Ok(())
            }
            Change::Remove { name } => {
                self.check(name)?;
                self.remove(name)
            }
            Change::Device { id, spec } => self.make(id, spec),
            Change::DeviceGone { id } => self.unmake(id),
            Change::Write { id, offset, bytes } => match self.opened.get(&id) {
                Some((_, device)) => {
                    self.unsynced.1.insert(id);
                    device.write_at(offset, bytes)
                }
                None if !self.is_complete => Ok(()),
                None => Err(unknown(format!("device {id}"))),
            },
            Change::Discard { id, offset, len } => match self.opened.get(&id) {
                Some((_, device)) => device.discard(offset, len),
                None => Ok(()), // nothing to discard
            },
        }
    }
    /// Only names that the home's own files have: a peer must not reach others.
    fn check(&self, name: &str) -> Result<()> {
        if (self.kinds)(name).is_some() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidInput, format!("file `{name}`")).because("no file of a home has such a name"))
    }
    fn remove(&mut self, name: &str) -> Result<()> {
        self.logs.remove(name);
        match self.files.remove(name) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
    fn make(&mut self, id: DeviceId, spec: DeviceSpec) -> Result<()> {
        if self.opened.get(&id).is_some_and(|(known, _)| known.capacity_bytes == spec.capacity_bytes) {
            return Ok(()); // its home was opened again
        }
        let opened = self.devices.open(self.store, id, &spec, true)?;
        self.opened.insert(id, (spec, opened.device));
        Ok(())
    }
    fn unmake(&mut self, id: DeviceId) -> Result<()> {
        match self.opened.remove(&id) {
            Some((spec, device)) => {
                drop(device);
                self.devices.remove(self.store, id, &spec)
            }
            None => Ok(()),
        }
    }
    fn clear(&mut self) -> Result<()> {
        self.is_complete = false;
        self.logs.clear();
        self.parts.clear();
        let devices: Vec<DeviceId> = self.opened.keys().copied().collect();
        devices.into_iter().try_for_each(|id| self.unmake(id))?;
        let names = self.files.list()?;
        names.iter().filter(|name| (self.kinds)(name).is_some()).try_for_each(|name| self.files.remove(name))
    }
    /// Deletes everything.
    pub fn destroy(&mut self) -> Result<()> {
        self.clear()
    }
}

#[cold]
fn unknown(what: String) -> Error {
    Error::new(ErrorKind::InvalidInput, what).because("a change of it came before it was made")
}

/// Carries everything that waits in a stream's queue over to a replica in this process.
#[cfg(test)]
pub(super) fn carry(stream: &super::Stream, node: cenote_model::NodeId, replica: &mut Replica) {
    while let Some(chunks) = stream.take(node, usize::MAX).filter(|it| !it.is_empty()) {
        for chunk in chunks {
            replica.apply(chunk.number, &chunk.bytes).unwrap();
            stream.confirm(node, chunk.number);
        }
    }
}
