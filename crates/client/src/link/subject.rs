//! The subjects of pipelined updates, and the effect of their outcome on cached maps. This file must not know when
//! updates are sent.

use std::sync::Arc;

use cenote_model::{DeviceId, Error, IndexKey, KeyCode, ObjectKey, Run};

use super::shared::Names;
use crate::answer::code_error;
use crate::map::cache::ObjectCache;
use crate::map::pieces::Source;

/// The subject of an update, until its batch is done.
pub(crate) enum Subject {
    /// A write: its source, and the space that is given back if it fails.
    Write { object: Arc<ObjectCache>, offset: u64, len: u64, source: Source, run: Run },
    /// A new object.
    Create(Arc<ObjectCache>),
    /// A record.
    Put { index: IndexKey, bytes: u64 },
    /// A part of a transaction: the object that it writes, and the space that is given back if it fails.
    Part { object: Option<Arc<ObjectCache>>, run: Option<Run>, bytes: u64 },
}

impl Subject {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Write { len, .. } => *len,
            Self::Put { bytes, .. } | Self::Part { bytes, .. } => *bytes,
            Self::Create(_) => 0,
        }
    }
    pub fn device(&self) -> Option<DeviceId> {
        if let Self::Write { run, .. } = self { Some(run.device) } else { None }
    }
    fn name(&self, names: &Names) -> String {
        match self {
            Self::Write { object, offset, len, .. } => {
                format!("{}, bytes {offset} to {}", names.object(object.key), offset + len)
            }
            Self::Create(object) | Self::Part { object: Some(object), .. } => names.object(object.key),
            Self::Put { index, .. } => names.index(*index),
            Self::Part { object: None, .. } => format!("a transaction in {}", names.store()),
        }
    }
    pub fn refused(&self, names: &Names, code: KeyCode) -> Error {
        code_error(code, self.name(names))
    }
}

/// Keeps cached maps of written objects current (creations raise no word), if the engine's answer proves that nobody
/// else wrote in between.
pub(super) fn apply_to_caches(subjects: &[Subject], words: &[(u64, u64)]) {
    let mut objects: Vec<&Arc<ObjectCache>> = Vec::new();
    for subject in subjects {
        if let Subject::Write { object, .. } = subject
            && !objects.iter().rev().any(|known| Arc::ptr_eq(known, object))
        {
            objects.push(object);
        }
    }
    if objects.len() != words.len() {
        return;
    }
    // The changes of a transaction in the batch are unknown here: the maps of its objects must be looked up again.
    let in_parts: Vec<ObjectKey> = subjects
        .iter()
        .filter_map(
            |subject| if let Subject::Part { object: Some(part), .. } = subject { Some(part.key) } else { None },
        )
        .collect();
    for (object, (before, after)) in objects.into_iter().zip(words) {
        if !object.is_live() || in_parts.contains(&object.key) {
            continue;
        }
        let writes = subjects.iter().filter_map(|subject| match subject {
            Subject::Write { object: written, offset, len, source, .. } if Arc::ptr_eq(written, object) => {
                Some((*offset, *len, source.clone()))
            }
            _ => None,
        });
        object.apply(*before, *after, writes);
    }
}
