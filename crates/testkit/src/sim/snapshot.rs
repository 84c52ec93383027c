//! Steps that create and delete snapshots, roll containers back, and read snapshots deleted meanwhile.

use std::sync::Arc;

use cenote_model::{ContainerId, ErrorKind, Request, Response, Update};

use super::client::Goal;
use super::{Check, Sim, trace};
use crate::oracle::{Change, ContainerState};
use crate::survey::content;

/// A snapshot that a client reads, and its content.
pub(super) struct Pin {
    id: ContainerId,
    content: Arc<ContainerState>,
}

impl Sim {
    pub(super) fn step_snapshot(&mut self) -> Check {
        let (Some(at), Some(of)) = (self.any_client(), self.any_container()) else { return Ok(()) };
        let names: Vec<String> = self.oracle.current().containers[&of].snapshots.keys().cloned().collect();
        let name = if names.is_empty() || self.rng.chance(200) {
            format!("name{}", self.rng.below(3))
        } else {
            self.rng.pick(&names).clone()
        };
        let kind = self.rng.below(10);
        match kind {
            0..=6 => {
                let group = self.group(of);
                let both = group.into_iter().map(|of| match kind {
                    0..=3 => self.make_snapshot(of),
                    4 => Self::delete_snapshot(of, name.clone()),
                    _ => Self::roll_back(of, name.clone()),
                });
                let (updates, changes): (Vec<Update>, Vec<Change>) = both.unzip();
                self.send_updates(at, Vec::new(), updates, &changes, true)
            }
            7 => self.pin(at, of, &name),
            8 => self.unpin(at),
            _ => self.read_pinned(at),
        }
    }
    /// The container, and now and then others, in an order of their own.
    fn group(&mut self, of: ContainerId) -> Vec<ContainerId> {
        let mut group = vec![of];
        if self.rng.chance(250) {
            let others: Vec<ContainerId> =
                self.oracle.current().containers.keys().copied().filter(|other| *other != of).collect();
            group.extend(others.into_iter().filter(|_| self.rng.chance(500)));
        }
        group
    }
    fn make_snapshot(&mut self, of: ContainerId) -> (Update, Change) {
        let id = self.new_container();
        let name = if self.rng.chance(30) { String::new() } else { format!("name{}", self.rng.below(3)) };
        let (replace, unix_ms) = (self.rng.chance(600), 1);
        self.origins.insert(id, of);
        let change = Change::SnapshotCreate { of, id, name: name.clone(), replace };
        (Update::SnapshotCreate { of, id, name, replace, unix_ms }, change)
    }
    fn delete_snapshot(of: ContainerId, name: String) -> (Update, Change) {
        (Update::SnapshotDelete { of, name: name.clone() }, Change::SnapshotDelete { of, name })
    }
    fn roll_back(of: ContainerId, name: String) -> (Update, Change) {
        (Update::SnapshotRollback { of, name: name.clone() }, Change::SnapshotRollback { of, name })
    }
    fn pin(&mut self, at: usize, of: ContainerId, name: &str) -> Check {
        trace!(self.trace, "c{} pins `{name}` of {of}", self.clients[at].info.nonce);
        let request = Request::SnapshotByName { container: of, name: name.to_owned(), pin: true };
        let response = self.send(at, request.clone(), Goal::Other { may_fail: &[ErrorKind::NotFound] });
        let model = self.oracle.current().containers[&of].snapshots.get(name).cloned();
        match (response, model) {
            (None, _) => Ok(()),
            (Some(Response::Snapshots(infos)), Some((id, content))) if infos.len() == 1 && infos[0].id == id => {
                if self.clients[at].pins.iter().all(|pin| pin.id != id) {
                    self.clients[at].pins.push(Pin { id, content });
                }
                Ok(())
            }
            (Some(Response::Failed(error)), None) if error.kind() == ErrorKind::NotFound => Ok(()),
            (Some(Response::Failed(_)), _) if self.hurt => Ok(()),
            (Some(response), model) => Err(format!("{request:?} is answered by {response:?}, expected {model:?}")),
        }
    }
    fn unpin(&mut self, at: usize) -> Check {
        if self.clients[at].pins.is_empty() {
            return Ok(());
        }
        let index = self.rng.index(self.clients[at].pins.len());
        let pin = self.clients[at].pins.swap_remove(index);
        trace!(self.trace, "c{} needs {} no longer", self.clients[at].info.nonce, pin.id);
        self.ask(at, &Request::SnapshotUnpin { id: pin.id }, &Goal::Other { may_fail: &[] })
    }
    /// Checks that a snapshot's content is as it was when it was created. The snapshot of a deleted container is gone.
    fn read_pinned(&mut self, at: usize) -> Check {
        if self.clients[at].pins.is_empty() {
            return Ok(());
        }
        let index = self.rng.index(self.clients[at].pins.len());
        let (id, expected) = (self.clients[at].pins[index].id, Arc::clone(&self.clients[at].pins[index].content));
        trace!(self.trace, "c{} reads all of {id}", self.clients[at].info.nonce);
        let session = self.clients[at].session;
        self.pause(true);
        let found = content(self.engine(), session, id);
        self.pause(false);
        match found {
            Ok(found) => found
                .compare_content(&expected, crate::oracle::Lenience::default())
                .map_err(|why| format!("{id}: {why}")),
            Err(why) if why.contains("NotFound") && !self.family_is_there(id) => Ok(()),
            Err(why) => Err(format!("snapshot {id} cannot be read: {why}")),
        }
    }
    /// Returns true if the container of a snapshot exists.
    fn family_is_there(&self, id: ContainerId) -> bool {
        let origin = self.origins.get(&id);
        origin.is_some_and(|of| self.oracle.current().containers.contains_key(of))
    }
    /// Deletes all snapshots.
    pub(super) fn delete_snapshots(&mut self) -> Check {
        for (of, container) in self.oracle.current().containers.clone() {
            for name in container.snapshots.keys() {
                let change = Change::SnapshotDelete { of, name: name.clone() };
                let update = Update::SnapshotDelete { of, name: name.clone() };
                self.send_updates(0, Vec::new(), vec![update], &[change], true)?;
            }
        }
        Ok(())
    }
}
