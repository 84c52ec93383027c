//! Walks over the objects and ranges that an arrangement names, some at a time.

use std::collections::VecDeque;
use std::ops::Bound;

use cenote_model::{ArrangeTarget, ContainerId, Error, ErrorKind, ObjectId, ObjectKey, Result};
use cenote_policy::{Candidacy, Query};

use crate::engine::core::Core;
use crate::map::{DeviceIndex, Ext};

/// An object, those of its ranges that are meant, and whether these are all that it has.
pub type MatchedObject = (ObjectKey, Vec<(u64, Ext)>, bool);

/// Position of a walk.
#[derive(Clone)]
pub struct Walk {
    /// Containers after this one.
    more: VecDeque<ContainerId>,
    container: ContainerId,
    /// The last object of the container that was visited.
    after: Option<ObjectId>,
    /// Only this object.
    one: Option<ObjectId>,
    from: u64,
    to: u64,
    query: Option<Query>,
    pub is_done: bool,
}

impl Walk {
    fn of_container(container: ContainerId) -> Self {
        let more = VecDeque::new();
        Self { more, container, after: None, one: None, from: 0, to: u64::MAX, query: None, is_done: false }
    }
}

/// Begins a walk over the target. Fails if it does not exist, the range is empty or the query is
/// malformed.
pub fn walk_of(core: &mut Core, target: &ArrangeTarget) -> Result<Walk> {
    match target {
        ArrangeTarget::Container(id) => {
            core.container(*id)?;
            Ok(Walk::of_container(*id))
        }
        ArrangeTarget::Object(key) => {
            core.object(*key)?;
            Ok(Walk { one: Some(key.object), ..Walk::of_container(key.container) })
        }
        ArrangeTarget::Range { key, offset, len } => {
            let slot = core.object(*key)?;
            let to = offset.saturating_add(*len);
            if *len == 0 {
                return Err(Error::new(ErrorKind::InvalidInput, format!("object {key}"))
                    .because("a range without bytes")
                    .try_next("give it a length"));
            }
            core.isolate(slot, *key, *offset, to);
            Ok(Walk { one: Some(key.object), from: *offset, to, ..Walk::of_container(key.container) })
        }
        ArrangeTarget::Query { container, text } => {
            let query = Query::parse(text).map_err(|fault| {
                Error::new(ErrorKind::InvalidInput, format!("query `{text}`"))
                    .because(fault.to_string())
                    .try_next("write it as in: size>=1GiB and age>7d and tier=nvme")
            })?;
            let mut more: VecDeque<ContainerId> = match container {
                Some(id) => [core.container(*id)?.id].into(),
                None => (core.state.containers.ids().into_iter())
                    .filter(|id| !core.state.containers.is_snapshot(*id) && core.container(*id).is_ok())
                    .collect(),
            };
            let first = more.pop_front();
            let walk = Walk::of_container(first.unwrap_or_default());
            Ok(Walk { more, query: Some(query), is_done: first.is_none(), ..walk })
        }
    }
}

/// Returns the next object, or `None` at the end.
pub fn next_meant(core: &mut Core, walk: &mut Walk) -> Option<MatchedObject> {
    let key = next_object(core, walk)?;
    let Some(slot) = core.state.find_object(key) else { return Some((key, Vec::new(), false)) };
    let object = core.state.objects.get(slot);
    let all = || object.map.overlapping(walk.from, walk.to);
    let Some(query) = &walk.query else {
        return Some((key, all().map(|(at, ext)| (at, ext.clone())).collect(), true));
    };
    let label = core.state.containers.at(object.container).label.as_str();
    let id = key.object.to_string();
    let name = |dev: DeviceIndex| core.state.space.get(dev).spec.name.as_str();
    let age_ms = core.state.times.age_ms(object.epoch);
    let idle_ms = idle_ms(core, slot);
    let is_meant = |(offset, ext): &(u64, &Ext)| {
        query.means(&Candidacy {
            label,
            object: &id,
            bytes: object.size,
            age_ms,
            idle_ms,
            tier: name(ext.dev),
            copy: ext.device_of_copy(0).map(name),
            is_pinned: core.pin_of(key, *offset, ext).is_some(),
        })
    };
    let meant: Vec<(u64, Ext)> = all().filter(is_meant).map(|(at, ext)| (at, ext.clone())).collect();
    let is_whole = meant.len() as u64 == object.map.extents();
    Some((key, meant, is_whole))
}

/// Milliseconds since an object was read or written, at most since the store was opened.
pub fn idle_ms(core: &Core, slot: u32) -> u64 {
    u64::from(core.state.now.s.saturating_sub(core.state.objects.get(slot).last.touched)) * 1000
}

fn next_object(core: &mut Core, walk: &mut Walk) -> Option<ObjectKey> {
    if walk.is_done {
        return None;
    }
    let container = walk.container;
    if let Some(object) = walk.one {
        walk.is_done = true;
        return Some(ObjectKey { container, object });
    }
    loop {
        let container = walk.container;
        let from = walk.after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = core.container(container).ok().and_then(|c| c.content.objects.iter_from(from).next());
        if let Some((object, _)) = found {
            walk.after = Some(*object);
            return Some(ObjectKey { container, object: *object });
        }
        let Some(next) = walk.more.pop_front() else {
            walk.is_done = true;
            return None;
        };
        (walk.container, walk.after) = (next, None);
    }
}
