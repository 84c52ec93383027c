//! Drops copies that nobody needs, but only after the remaining place was read and verified: it may be on a tier that
//! has just vanished.

use cenote_model::{Error, ErrorKind};

use super::Repairing;
use super::rescue::Rescue;
use crate::copying::is_mismatch;
use crate::engine::activity::Ask;
use crate::engine::core::{Core, Effect};
use crate::placing::{Placing, Target, identity};
use crate::work::{CheckParts, Job};

/// Most copies checked together.
const TOGETHER_MAX: usize = 256;

impl Repairing {
    /// Queues copies to be dropped. The next plan finds those beyond a batch.
    pub fn give_up_copies(&mut self, copies: Vec<Placing>) {
        if self.spares.is_empty() && !self.looks_at_spares {
            self.spares.extend(copies.into_iter().take(TOGETHER_MAX));
        }
    }

    /// Returns a job that reads the places that remain without the queued copies.
    pub fn next_spare(&mut self, core: &mut Core) -> Option<Job> {
        let (mut parts, mut placings) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for placing in std::mem::take(&mut self.spares) {
            let ext = core.state.target_mut(placing.target).cloned().filter(|ext| identity(ext) == placing.was);
            if let Some(part) = ext.and_then(|ext| core.part_of(&ext))
                && bytes < core.settings.copy_bytes
            {
                bytes += u64::from(part.len);
                parts.push(part);
                placings.push(placing);
            }
        }
        if parts.is_empty() {
            return None;
        }
        self.looks_at_spares = true;
        Some(core.start(Effect::FreesSpace, CheckParts(parts), |repairing: &mut Self, core, results| {
            repairing.looks_at_spares = false;
            repairing.finish_spare(core, placings, results);
        }))
    }

    /// Drops the copies whose other place is good, and keeps the others.
    pub fn finish_spare(&mut self, core: &mut Core, placings: Vec<Placing>, results: Vec<Option<String>>) {
        let mut going = Vec::new();
        for (placing, result) in placings.into_iter().zip(results) {
            match result {
                None if core.state.can_place(&placing) => going.push(placing),
                None => {}
                Some(why) => self.keep_copy(core, &placing, why),
            }
        }
        if !going.is_empty() {
            let _ = core.place_all(&going); // if the journal does not take it, the next plan finds it again
        }
    }

    /// Keeps a copy that may be the only readable place, and queues its rescue.
    fn keep_copy(&mut self, core: &mut Core, placing: &Placing, why: String) {
        let Some(ext) = core.state.target_mut(placing.target).cloned() else { return };
        let subject = core.subject(placing.target, placing.was.len);
        let error =
            Error::new(ErrorKind::Io, subject).because(why).try_next("its copy is looked at, and is tried again");
        core.note_unread(placing.was.dev, is_mismatch(error.cause()), &error);
        core.asks.push(Ask::MovesFailed { error, leaving: ext.copy_dev });
        if let Target::Live { key, .. } = placing.target {
            let evict = Placing { action: core.state.space.eviction(&ext), ..placing.clone() };
            self.rescues.push_back(Rescue::unasked(key, evict));
        }
    }
}
