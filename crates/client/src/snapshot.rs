//! Snapshots of a container: create, list, open for reading, delete, roll back.

use cenote_model::{Check, ContainerId, Error, Request, Response, Result, SnapshotInfo, Update};

use crate::answer::surprise;
use crate::container::Container;
use crate::index::Index;

/// Snapshots per request.
const PAGE: u32 = 1000;

/// The update that makes a snapshot.
pub(crate) fn create(of: ContainerId, name: &str, replace: bool) -> Update {
    Update::SnapshotCreate { of, id: ContainerId(0), name: name.into(), replace, unix_ms: 0 }
}

impl Container {
    /// Creates a read-only snapshot of everything acknowledged in this container so far. It copies only metadata; the
    /// bytes are shared until the container's own are overwritten. `ErrorKind::Exists` if the name is taken.
    pub fn snapshot(&self, name: &str) -> Result<()> {
        self.make_snapshot(name, false)
    }
    /// Creates a snapshot that replaces the one of that name, if any, in one transaction.
    pub fn replace_snapshot(&self, name: &str) -> Result<()> {
        self.make_snapshot(name, true)
    }
    fn make_snapshot(&self, name: &str, replace: bool) -> Result<()> {
        self.store().wait_all()?;
        self.store().change(create(self.id(), name, replace), || self.snapshot_name(name))
    }
    /// Returns all snapshots, ordered by name.
    pub fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        let session = self.store().session()?;
        let mut all = Vec::new();
        loop {
            let after = all.last().map(|last: &SnapshotInfo| last.name.clone());
            match session.home(self.id()).request(Request::SnapshotList { container: self.id(), after, limit: PAGE })? {
                Response::Snapshots(page) if page.is_empty() => return Ok(all),
                Response::Snapshots(page) => all.extend(page),
                other => return Err(surprise("snapshots", &other)),
            }
        }
    }
    /// Opens a snapshot as a read-only container. It stays as long as the handle (and its clones), even if it is
    /// deleted or replaced in between.
    pub fn open_snapshot(&self, name: &str) -> Result<Self> {
        let session = self.store().session()?;
        let pin = session.pins.pin(&session, self.id(), name)?;
        match session.home(self.id()).request(Request::ContainerById { id: pin.id })? {
            Response::Container(info) => Ok(Self::pinned(self.store(), &session, &info, pin)),
            other => Err(surprise("a container", &other)),
        }
    }
    /// Deletes a snapshot. Space that only the snapshot used becomes free.
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        let update = Update::SnapshotDelete { of: self.id(), name: name.into() };
        self.store().change(update, || self.snapshot_name(name))
    }
    /// Restores the container's content from the time of the snapshot, in one transaction. The snapshot stays.
    pub fn roll_back(&self, name: &str) -> Result<()> {
        self.store().wait_all()?;
        let update = Update::SnapshotRollback { of: self.id(), name: name.into() };
        self.store().change(update, || self.snapshot_name(name))
    }
    /// The same, if a record of an index has this value (`None`: does not exist) at that moment; otherwise
    /// `ErrorKind::Conflict`.
    pub fn roll_back_if(&self, name: &str, index: &Index, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.store().wait_all()?;
        let session = self.store().session()?;
        session.home(self.id()).channel.check_writable()?;
        let check = Check::Value { index: index.key(), key: key.into(), value: value.map(Into::into) };
        let update = Update::SnapshotRollback { of: self.id(), name: name.into() };
        match session.home(self.id()).request(Request::Apply {
            checks: vec![check],
            updates: vec![update],
            atomic: true,
        }) {
            Ok(Response::Applied { .. }) => Ok(()),
            Ok(other) => Err(surprise("an outcome", &other)),
            Err(error) => Err(Error::new(error.kind(), self.snapshot_name(name))
                .because(error.cause())
                .try_next(error.next_step())),
        }
    }
    fn snapshot_name(&self, name: &str) -> String {
        format!("snapshot `{name}` of {}", self.name())
    }
}
