//! Arrangements: moves that people ask for.

use std::collections::BTreeMap;

use cenote_model::{Arrange, ArrangeProgress, ArrangeTarget, Arrangement, Error, Response, size};

use super::Tiering;
use super::disposition::Disposition;
use super::relocate::Relocation;
use super::walk::Walk;
use crate::engine::core::Core;
use crate::engine::failed;
use crate::placing::{Placing, Target, identity};
use crate::{Outcome, Ticket};

/// Extents moved in one step, before other requests get their turn.
const STEP_EXTENTS: usize = 512;

/// Running arrangements, by the waiter number of their current moves.
#[derive(Default)]
pub struct Arrangements {
    running: BTreeMap<u64, Running>,
    begun: u64,
}

struct Running {
    ticket: Ticket,
    what: Arrange,
    walk: Walk,
    result: Arrangement,
    number: u64,
    began_ns: u64,
    /// Bytes of the steps that are over.
    done_bytes: u64,
    target: ArrangeTarget,
    /// The first reason why something could not be moved.
    failure: Option<Error>,
}

impl Tiering {
    /// Begins an arrangement; the response waits for its moves. With `dry_run` returns what would move. Fails if
    /// the target or a tier does not exist, a tier takes no new bytes, or a pin does not fit.
    pub fn arrange(&mut self, core: &mut Core, target: &ArrangeTarget, what: Arrange, dry_run: bool) -> Outcome {
        core.update_clock();
        let mut result = Arrangement::default();
        let begun = super::disposition::check_arrange(core, &what).and_then(|()| super::walk::walk_of(core, target));
        let begun = begun
            .and_then(|walk| super::pinning::put_pins(core, &walk, target, &what, dry_run, &mut result).map(|()| walk));
        let walk = match begun {
            Ok(walk) => walk,
            Err(error) => return failed(error),
        };
        let ticket = core.ticket();
        self.arrangements.begun += 1;
        let (number, began_ns) = (self.arrangements.begun, core.state.now.ns);
        let target = target.clone();
        let mut running =
            Running { ticket, what, walk, result, number, began_ns, done_bytes: 0, target, failure: None };
        if dry_run {
            while !running.walk.is_done {
                self.arrange_step(core, &mut running, None);
            }
            return Outcome::Ready(Response::Arranged(Box::new(running.result)));
        }
        self.arrange_on(core, running);
        Outcome::Wait(ticket)
    }

    /// Returns the progress of running arrangements.
    pub fn arrangements(&mut self, core: &mut Core) -> Vec<ArrangeProgress> {
        core.update_clock();
        let progress = |running: &Running| ArrangeProgress {
            number: running.number,
            what: words(&running.what).to_owned(),
            done_bytes: running.done_bytes,
            found_bytes: running.result.bytes,
            elapsed_ns: core.state.now.ns.saturating_sub(running.began_ns),
        };
        self.arrangements.running.values().map(progress).collect()
    }

    /// Continues an arrangement until there is something to wait for, or nothing left.
    fn arrange_on(&mut self, core: &mut Core, mut running: Running) {
        while !running.walk.is_done {
            let waiter = self.waits.number();
            let queued = self.arrange_step(core, &mut running, Some(waiter));
            if queued > 0 {
                self.wait_for(waiter, queued);
                self.arrangements.running.insert(waiter, running);
                return;
            }
            running.done_bytes = running.result.bytes;
        }
        let response = match running.failure.take() {
            None => Response::Arranged(Box::new(running.result)),
            Some(failure) => {
                Response::Failed(self.fell_short(core, &running.target, &running.what, &running.result, &failure))
            }
        };
        core.answers.finished.push((running.ticket, response));
    }

    /// Returns the error for moves that failed, with how much was moved. A dry run tells how much is left.
    fn fell_short(
        &mut self,
        core: &mut Core,
        target: &ArrangeTarget,
        what: &Arrange,
        done: &Arrangement,
        failure: &Error,
    ) -> Error {
        let left = match self.arrange(core, target, what.clone(), true) {
            Outcome::Ready(Response::Arranged(left)) => Some(left.bytes),
            _ => None, // the bytes or their target tier are gone meanwhile
        };
        let all = left.map_or(done.bytes, |left| done.bytes.max(left));
        let so_far = left.map_or("not all of it is done".to_owned(), |left| {
            let moved = done.bytes.saturating_sub(left);
            format!("{} of it are done, {} are not", size::human(moved), size::human(all - moved))
        });
        let next = match failure.next_step() {
            "" => "mend that, and repeat the command: it goes on with the rest".to_owned(),
            next => format!("{next}; then repeat the command: it goes on with the rest"),
        };
        Error::new(failure.kind(), format!("{} of {}", words(what), size::human(all)))
            .because(format!(
                "{so_far}: {}: {}",
                failure.subject(),
                if failure.cause().is_empty() { failure.kind().words() } else { failure.cause() },
            ))
            .try_next(next)
    }

    /// Continues an arrangement whose current moves are over.
    pub fn arrangement_over(&mut self, core: &mut Core, waiter: u64, error: Option<Error>) {
        let Some(mut running) = self.arrangements.running.remove(&waiter) else { return };
        running.failure = running.failure.take().or(error);
        running.done_bytes = running.result.bytes;
        self.arrange_on(core, running);
    }

    /// Queues the moves of some extents (with a waiter), or lists what they would be. Returns the number queued.
    fn arrange_step(&mut self, core: &mut Core, running: &mut Running, waiter: Option<u64>) -> usize {
        let mut queued = 0;
        let mut looked = 0;
        let mut evictions = Vec::new();
        while looked < STEP_EXTENTS && !running.walk.is_done {
            let Some((key, extents, _)) = super::walk::next_meant(core, &mut running.walk) else { break };
            looked += extents.len().max(1);
            running.result.objects += u64::from(!extents.is_empty());
            for (offset, ext) in extents {
                let disposition = super::disposition::disposition_with_twins(core, key, offset, &ext, &running.what);
                let listed_why = waiter.is_none().then_some("");
                super::disposition::tell(core, &mut running.result, (key, offset), &ext, &disposition, listed_why);
                let target = Target::Live { key, offset };
                match (disposition, waiter) {
                    (Disposition::Go(how, dev), Some(_)) => {
                        let relocation = Relocation { target, dev, how, waiter, ahead: false, short_since_ns: None };
                        queued += usize::from(self.relocations.push(relocation));
                    }
                    (Disposition::Leave, Some(_)) => {
                        evictions.push(Placing {
                            target,
                            was: identity(&ext),
                            action: core.state.space.eviction(&ext),
                        });
                    }
                    _ => {}
                }
            }
        }
        let mut twins = std::collections::HashSet::new();
        evictions.retain(|placing| twins.insert(placing.was));
        let (evictions, doubted) = core.doubt(evictions, waiter);
        queued += doubted;
        if !evictions.is_empty()
            && let Err(error) = core.place_trusted(&evictions)
        {
            running.failure.get_or_insert(error);
        }
        queued
    }
}

/// The verb of an arrangement.
fn words(what: &Arrange) -> &'static str {
    match what {
        Arrange::Promote { .. } => "promote",
        Arrange::Demote { .. } => "demote",
        Arrange::Evict => "evict",
        Arrange::Pin { .. } => "pin",
        Arrange::Unpin => "unpin",
        Arrange::Archive { .. } => "archive",
        Arrange::Release { .. } => "release",
    }
}
