//! Snapshots of several containers at one moment: create, delete, roll back.

use cenote_model::{ContainerId, Error, Result, Update};

use crate::container::Container;
use crate::snapshot::create;
use crate::store::Store;

/// Snapshots of several containers, wherever these are: on any nodes of a cluster, in any engines. Each call is one
/// transaction, so it is carried out for all containers or for none. A container that is named twice is `InvalidInput`.
impl Store {
    /// Creates a snapshot of each container, all of one moment: none of them has a change that was made after another one's
    /// snapshot. `ErrorKind::Exists` if one of them has a snapshot of that name.
    pub fn snapshot(&self, containers: &[Container], name: &str) -> Result<()> {
        self.change_snapshots(containers, |of| create(of, name, false))
    }
    /// Creates snapshots that replace those of that name, if any.
    pub fn replace_snapshot(&self, containers: &[Container], name: &str) -> Result<()> {
        self.change_snapshots(containers, |of| create(of, name, true))
    }
    /// Deletes the snapshot of that name of each container.
    pub fn delete_snapshot(&self, containers: &[Container], name: &str) -> Result<()> {
        self.change_snapshots(containers, |of| Update::SnapshotDelete { of, name: name.into() })
    }
    /// Restores the content of all containers from their snapshots of that name, which stay.
    pub fn roll_back(&self, containers: &[Container], name: &str) -> Result<()> {
        self.change_snapshots(containers, |of| Update::SnapshotRollback { of, name: name.into() })
    }
    fn change_snapshots(&self, containers: &[Container], change: impl Fn(ContainerId) -> Update) -> Result<()> {
        self.wait_all()?;
        let mut together = self.begin();
        for container in containers {
            together.changing(container.store())?;
            together.updates.push(change(container.id()));
        }
        if together.is_empty() {
            return Ok(());
        }
        together.commit().map(drop).map_err(|error| in_words(error, containers))
    }
}

/// Names the container that an error of the engine is about by its label.
fn in_words(error: Error, containers: &[Container]) -> Error {
    let text = error.subject().to_owned();
    let is_meant = |it: &&Container| text.split(' ').any(|word| word == it.id().to_string());
    let Some(container) = containers.iter().find(is_meant) else { return error };
    let subject = text.replace(&format!("container {}", container.id()), &container.name());
    Error::new(error.kind(), subject).because(error.cause()).try_next(error.next_step())
}
