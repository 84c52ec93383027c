//! Snapshots: list, find, and pin for their readers.

use cenote_model::{ContainerId, ContainerInfo, Error, ErrorKind, Response, Result, SnapshotInfo};

use super::Core;
use crate::SessionId;
use crate::codec::Encode;
use crate::container::Container;
use crate::journal::Kind;
use crate::undo::{Change, Undo};

/// Most snapshots in one answer.
const LIMIT_MAX: u32 = 65_536;
/// Most snapshots that a read-only session can keep from being freed.
const PINS_OF_READER_MAX: usize = 64;

impl Core {
    /// Returns true if a snapshot was deleted and no session reads it: it only waits until the original is persistent.
    pub fn is_out_of_sight(&self, container: &Container) -> bool {
        let deleted = container.snapshot.as_ref().is_some_and(|snapshot| snapshot.deleted);
        deleted && !self.state.sessions.open.values().any(|session| session.pins.contains(&container.id))
    }

    /// Returns the slots of those snapshots among the members that were deleted up to an epoch and that nobody reads. A
    /// rollback to that epoch or a later one does not bring them back, so a cut there needs no copies of their bytes. A
    /// rollback further back needs only copies that exist.
    pub fn gone_before(&mut self, members: &[ContainerId], epoch: u64) -> Vec<u32> {
        if self.state.containers.has_no_snapshots() {
            return Vec::new();
        }
        let is_gone = |id: &ContainerId| {
            let container = self.state.containers.get(*id).filter(|container| self.is_out_of_sight(container))?;
            let origin = self.state.containers.get(container.snapshot.as_ref()?.of)?;
            let deletes = |undo: &Undo| matches!(undo.change, Change::SnapshotDeleted { id: gone } if gone == *id);
            Some(origin.back.undo.iter().any(|undo| undo.epoch <= epoch && deletes(undo)))
        };
        let gone: Vec<ContainerId> = members.iter().copied().filter(|id| is_gone(id) == Some(true)).collect();
        gone.into_iter().filter_map(|id| self.state.containers.slot_of(id)).collect()
    }

    /// Returns a container or a snapshot. The label of a snapshot is its container's label, an `@`, and its name. Fails
    /// if the container does not exist.
    pub fn info(&self, id: ContainerId) -> Result<ContainerInfo> {
        let container = self.container(id)?;
        let mut info = container.info();
        if let Some(snapshot) = &container.snapshot {
            let of = self.state.containers.get(snapshot.of).map_or("", |of| of.label.as_str());
            info.label = format!("{of}@{}", snapshot.name);
        }
        Ok(info)
    }

    /// Lists the snapshots of a container by name. Fails if the container does not exist.
    pub fn snapshots(&self, of: ContainerId, after: Option<&str>, limit: u32) -> Result<Response> {
        self.container(of)?;
        let ids = self.state.containers.snapshots_of(of);
        let mut infos: Vec<SnapshotInfo> = ids.iter().filter_map(|id| self.snapshot_info(*id)).collect();
        infos.retain(|info| after.is_none_or(|after| info.name.as_str() > after));
        infos.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        infos.truncate(limit.min(LIMIT_MAX) as usize);
        Ok(Response::Snapshots(infos))
    }

    /// Returns a snapshot; `None` if the container is no snapshot, or was deleted.
    pub fn snapshot_info(&self, id: ContainerId) -> Option<SnapshotInfo> {
        let container = self.state.containers.get(id)?;
        let snapshot = container.snapshot.as_ref().filter(|snapshot| !snapshot.deleted)?;
        Some(SnapshotInfo {
            id,
            of: snapshot.of,
            name: snapshot.name.clone(),
            epoch: snapshot.epoch,
            unix_ms: snapshot.unix_ms,
            objects: container.objects_seen(),
            indices: container.content.indices.len() as u64,
            records: container.content.records,
            stored_bytes: container.content.stored_bytes,
        })
    }

    /// Finds a snapshot by its name. `pin`: the session can read it until it unpins it or ends. Fails if the snapshot
    /// does not exist, or the session has too many pins.
    pub fn snapshot(&mut self, session: SessionId, of: ContainerId, name: &str, pin: bool) -> Result<Response> {
        let label = self.container(of)?.label.clone();
        let slot = self.state.containers.snapshot_slot(of, name);
        let info = slot.and_then(|slot| self.snapshot_info(self.state.containers.at(slot).id));
        let Some(info) = info else {
            return Err(Error::new(ErrorKind::NotFound, format!("snapshot `{name}` of container `{label}`"))
                .try_next("list the snapshots of the container"));
        };
        if pin {
            self.pin(session, info.id, true)?;
        }
        Ok(Response::Snapshots(vec![info]))
    }

    /// Pins a snapshot for a session, or unpins it. Pins are in the journal, so they outlive a restart. Fails if the
    /// session has too many pins or the journal does not take it.
    pub fn pin(&mut self, session: SessionId, id: ContainerId, yes: bool) -> Result<()> {
        self.update_clock();
        let Some(owner) = self.state.sessions.open.get(&session) else { return Ok(()) };
        if owner.pins.contains(&id) == yes {
            return Ok(());
        }
        if yes && !owner.info.write && owner.pins.len() >= PINS_OF_READER_MAX {
            return Err(Error::new(ErrorKind::LimitExceeded, format!("session {}", session.0))
                .because(format!("it has {PINS_OF_READER_MAX} snapshots open, as many as a user who may only read"))
                .try_next("close some of them"));
        }
        let mut draft = self.journal.draft(if yes { Kind::Pin } else { Kind::Unpin });
        draft.bytes.put_u64(session.0);
        draft.bytes.put_u64(id.0);
        self.journal.append(draft, self.state.epoch)?;
        self.note_journal_dirty();
        if let Some(owner) = self.state.sessions.open.get_mut(&session) {
            if yes {
                owner.pins.insert(id)
            } else {
                owner.pins.remove(&id)
            };
        }
        if !yes {
            self.raise_words_of(id);
            self.state.let_go(id);
        }
        Ok(())
    }

    /// Raises the version words of a deleted snapshot, so that cached maps of it are void once its last reader is gone.
    pub fn raise_words_of(&mut self, id: ContainerId) {
        if self.state.containers.is_deleted_snapshot(id)
            && let Some(slot) = self.state.containers.slot_of(id)
        {
            self.state.raise_words_of(slot, self.seams.control.as_ref());
        }
    }
}
