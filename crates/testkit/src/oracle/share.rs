//! The effect of a shared range on the model: the target gets the source's content.

use cenote_model::{KeyCode, OBJECT_BYTES_MAX, ObjectKey};

use super::StoreState;

impl StoreState {
    pub(super) fn share(
        &mut self,
        (to, at): (ObjectKey, u64),
        (from, offset): (ObjectKey, u64),
        len: u64,
        epoch: u64,
    ) -> KeyCode {
        let fits = |begin: u64| begin.checked_add(len).is_some_and(|end| end <= OBJECT_BYTES_MAX);
        let overlap = from == to && fits(at) && fits(offset) && offset < at + len && at < offset + len;
        if len == 0 || !fits(at) || !fits(offset) || overlap {
            return KeyCode::Invalid;
        }
        if self.object(to).is_none() {
            return KeyCode::NotFound;
        }
        let source = if from.container == to.container {
            self.object(from)
        } else {
            let snapshots = self.containers.get(&to.container).map(|container| &container.snapshots);
            let snapshot = snapshots.and_then(|all| all.values().find(|(id, _)| *id == from.container));
            let Some((_, content)) = snapshot else { return KeyCode::Invalid };
            content.objects.get(&from.object)
        };
        let Some(source) = source.cloned() else { return KeyCode::NotFound };
        if source.size < offset + len {
            return KeyCode::Invalid;
        }
        let Some(target) = self.object_mut(to) else { return KeyCode::NotFound };
        target.punch(at, len);
        for (begin, segment) in &source.map {
            let (low, high) = ((*begin).max(offset), (begin + segment.len).min(offset + len));
            if low < high {
                target.write(at + (low - offset), high - low, segment.id, segment.from + (low - begin));
            }
        }
        target.size = target.size.max(at + len);
        target.epoch = epoch;
        KeyCode::Ok
    }
}
