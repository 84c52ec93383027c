//! The pinned snapshots of a session: each stays in the store while a handle of it lives. This file must not know
//! handles.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use cenote_host::fork;
use cenote_model::{ContainerId, Request, Response, Result};

use super::Session;
use crate::answer::surprise;
use crate::sync::lock;

/// The snapshots in use by a session, each with its number of handles.
#[derive(Default)]
pub(crate) struct Pins {
    handles: Mutex<HashMap<ContainerId, usize>>,
}

/// The share of a handle in the pin of a snapshot.
pub(crate) struct Pin {
    pub id: ContainerId,
    /// The container of the snapshot.
    of: ContainerId,
    session: Weak<Session>,
    /// Fork generation of the session's process.
    generation: u64,
}

impl Pins {
    /// Finds a snapshot by its name, and pins it.
    pub fn pin(&self, session: &Arc<Session>, container: ContainerId, name: &str) -> Result<Pin> {
        // Locked for the whole time, so that the end of another handle cannot interfere.
        let mut handles = lock(&self.handles);
        let info = match session.home(container).request(Request::SnapshotByName {
            container,
            name: name.into(),
            pin: true,
        })? {
            Response::Snapshots(mut found) if found.len() == 1 => found.remove(0),
            other => return Err(surprise("a snapshot", &other)),
        };
        *handles.entry(info.id).or_default() += 1;
        Ok(Pin { id: info.id, of: container, session: Arc::downgrade(session), generation: session.generation })
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return; // in a forked child: the parent's session reads it
        }
        let Some(session) = self.session.upgrade() else { return };
        let mut handles = lock(&session.pins.handles);
        let Some(count) = handles.get_mut(&self.id) else { return };
        *count -= 1;
        if *count == 0 {
            handles.remove(&self.id);
            let channel = &session.home(self.of).channel;
            if channel.check_open().is_ok() {
                channel.tell(Request::SnapshotUnpin { id: self.id });
            }
        }
    }
}
