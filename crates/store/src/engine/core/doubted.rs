//! Eviction from a damaged tier: where bad bytes were found of late, a copy is read and verified before the other place
//! is given up.

use cenote_model::{ObjectId, ObjectKey};

use super::Core;
use crate::engine::activity::Ask;
use crate::placing::{Action, Placing, Target, identity};

/// Most copies that wait to be read. The next plan finds the others.
const WAITING_MAX: usize = 4096;

impl Core {
    /// Returns the placings that may be done at once, and for how many of the others `waiter` waits. The others wait
    /// until their copy is read.
    pub fn doubt(&mut self, placings: Vec<Placing>, waiter: Option<u64>) -> (Vec<Placing>, usize) {
        if !self.state.space.any_damaged {
            return (placings, 0);
        }
        let (mut trusted, mut waited) = (Vec::new(), 0);
        for placing in placings {
            let ext = self.state.target_mut(placing.target).cloned().filter(|ext| identity(ext) == placing.was);
            let to = match placing.action {
                Action::Evict { copy } => ext.and_then(|ext| ext.device_of_copy(usize::from(copy))),
                _ => None,
            };
            let is_doubted = to.is_some_and(|to| self.state.space.get(to).trust.damaged_until_ns.is_some());
            if !is_doubted {
                trusted.push(placing);
            } else if waiter.is_some()
                || (self.asks.doubted.len() < WAITING_MAX && !self.asks.doubted.contains(&placing.was))
            {
                self.asks.doubted.insert(placing.was);
                waited += usize::from(waiter.is_some());
                let (key, place) = match placing.target {
                    Target::Live { key, offset } => (key, format!("{} bytes at {offset}", placing.was.len)),
                    Target::Undo { container, .. } | Target::Detached { container, .. } => (
                        ObjectKey { container, object: ObjectId(0) },
                        format!("{} bytes as they were", placing.was.len),
                    ),
                };
                self.asks.push(Ask::CheckCopy { key, placing, place, waiter });
            }
        }
        (trusted, waited)
    }
}
