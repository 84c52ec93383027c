//! Reclaims deleted data bit by bit, so that no single deletion stalls the store.

use crate::space::Tag;
use crate::state::{EngineState, Reclaim};

impl EngineState {
    /// Gives up about `budget` extents or records. `each_object` is called before an object of a deleted container
    /// loses its extents: it raises the version word. Returns true if nothing is left.
    pub fn reclaim(&mut self, mut budget: usize, tag: Tag, each_object: &mut dyn FnMut(u64)) -> bool {
        while budget > 0 {
            let Some(first) = self.gone.reclaim.pop_front() else { return true };
            let unfinished = match first {
                Reclaim::Object(slot) => self.reclaim_object(slot, &mut budget, tag).then_some(Reclaim::Object(slot)),
                Reclaim::Index(mut index) => {
                    let part = budget.min(1000);
                    budget -= part.min(budget);
                    (!index.forget(part)).then_some(Reclaim::Index(index))
                }
                Reclaim::Undo(mut undo) => {
                    for _ in 0..budget.min(1000) {
                        let Some(entry) = undo.pop_front() else { break };
                        budget -= 1;
                        self.drop_undo(entry, tag);
                    }
                    (!undo.is_empty()).then_some(Reclaim::Undo(undo))
                }
                Reclaim::Container(slot) => {
                    let unfinished = self.reclaim_container(slot, &mut budget, tag, each_object);
                    unfinished.then_some(Reclaim::Container(slot))
                }
            };
            if let Some(unfinished) = unfinished {
                self.gone.reclaim.push_front(unfinished);
            }
        }
        self.gone.reclaim.is_empty()
    }

    /// Returns true if there is more to do.
    fn reclaim_object(&mut self, slot: u32, budget: &mut usize, tag: Tag) -> bool {
        *budget = budget.saturating_sub(1);
        while let Some((_, ext)) = self.objects.get_mut(slot).map.pop() {
            self.space.drop_ext(&ext, tag);
            *budget = budget.saturating_sub(1);
            if *budget == 0 && self.objects.get(slot).map.extents() > 0 {
                return true;
            }
        }
        self.objects.remove(slot);
        false
    }

    fn reclaim_container(&mut self, at: u32, budget: &mut usize, tag: Tag, each_object: &mut dyn FnMut(u64)) -> bool {
        let container = self.containers.at_mut(at);
        if !container.back.undo.is_empty() {
            let undo = std::mem::take(&mut container.back.undo);
            for entry in &undo {
                if let crate::undo::Change::ObjectDeleted { slot, .. } = entry.change {
                    self.gone.detached.remove(&slot);
                }
            }
            // Before the container, whose slot their objects still name.
            self.gone.reclaim.push_front(Reclaim::Container(at));
            self.gone.reclaim.push_front(Reclaim::Undo(undo));
            return false; // what comes next is queued already
        }
        while *budget > 0 {
            let container = self.containers.at_mut(at);
            if let Some((_, slot)) = container.content.objects.pop_first() {
                let object = self.objects.get(slot);
                self.space.extents -= object.map.extents();
                each_object(self.key_of(slot).word_hash());
                if self.reclaim_object(slot, budget, tag) {
                    // The rest of the object comes first next time.
                    self.gone.reclaim.push_front(Reclaim::Container(at));
                    self.gone.reclaim.push_front(Reclaim::Object(slot));
                    return false; // what comes next is queued already
                }
            } else if let Some((_, index)) = container.content.indices.pop_first() {
                self.gone.reclaim.push_back(Reclaim::Index(index));
            } else {
                self.containers.vacate(at); // its value log went with the objects
                return false;
            }
        }
        true
    }
}
