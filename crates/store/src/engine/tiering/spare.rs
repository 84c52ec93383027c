//! Copies that nobody needs go, but not before the place that is left was read and its checksums compared: it may be on a
//! tier that has just vanished.

use cenote_model::{Error, ErrorKind};

use super::super::Engine;
use super::super::jobs::What;
use super::Rescue;
use crate::copying::is_mismatch;
use crate::placing::{Action, Placing, Target, identity};
use crate::work::{Job, Work};

/// Copies looked at together.
const TOGETHER_MAX: usize = 256;

impl Engine {
    /// Copies are to go. Those beyond a batch are for the next plan.
    pub(in super::super) fn give_up_copies(&mut self, copies: impl Iterator<Item = Placing>) {
        let is_busy = !self.tiering.spares.is_empty() || self.jobs.count(|what| matches!(what, What::Spare(_))) > 0;
        if !is_busy {
            self.tiering.spares.extend(copies.take(TOGETHER_MAX));
        }
    }

    pub(in super::super) fn next_spare(&mut self) -> Option<Job> {
        let (mut parts, mut placings) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for placing in std::mem::take(&mut self.tiering.spares) {
            let ext = self.state.target_mut(placing.target).cloned().filter(|ext| identity(ext) == placing.was);
            if let Some(part) = ext.and_then(|ext| self.part_of(&ext))
                && bytes < self.settings.copy_bytes
            {
                bytes += u64::from(part.len);
                parts.push(part);
                placings.push(placing);
            }
        }
        (!parts.is_empty()).then(|| self.start(What::Spare(placings), Work::Check { parts }))
    }

    pub(in super::super) fn finish_spare(&mut self, placings: Vec<Placing>, results: Vec<Option<String>>) {
        let mut going = Vec::new();
        for (placing, result) in placings.into_iter().zip(results) {
            match result {
                None if self.state.can_place(&placing) => going.push(placing),
                None => {}
                Some(why) => self.keep_copy(&placing, why),
            }
        }
        if !going.is_empty() {
            let _ = self.place_all(&going); // if the journal does not take it, the next plan sees it again
        }
    }

    /// The copy is all that can be read.
    fn keep_copy(&mut self, placing: &Placing, why: String) {
        let Some(ext) = self.state.target_mut(placing.target).cloned() else { return };
        let subject = self.subject(placing.target, placing.was.3);
        let error =
            Error::new(ErrorKind::Io, subject).because(why).try_next("its copy is looked at, and is tried again");
        self.note_unread(placing.was.0, is_mismatch(error.cause()), &error);
        self.moves_failed(&error, ext.copy);
        if let Target::Live { key, .. } = placing.target {
            let evict = Placing { action: Action::Evict, ..placing.clone() };
            self.tiering.rescues.push_back(Rescue::unasked(key, evict));
        }
    }
}
