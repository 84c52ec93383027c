//! Rescue (read repair): when a reader cannot read an extent, it falls back to its copy. The copy is read and verified
//! before the failed place is given up, since that may be the only good one after all.

use cenote_model::{Error, ErrorKind, Finding, ObjectKey, Response, Result};

use super::Repairing;
use super::doubted::Doubt;
use crate::copying::is_mismatch;
use crate::engine::activity::Ask;
use crate::engine::core::{Core, Effect};
use crate::engine::failed;
use crate::map::{DeviceIndex, Ext};
use crate::placing::{Action, Placing, Target, identity};
use crate::work::{CheckParts, Job};
use crate::{Outcome, Ticket};

/// Most ranges in one request, and most extents inspected for it.
const RANGES_MAX: usize = 256;
pub(super) const EXTENTS_MAX: usize = 1024;

/// A rescue: who waits, and the extents that may fall back to their copy.
pub struct Rescue {
    ticket: Option<Ticket>,
    key: ObjectKey,
    placings: Vec<Placing>,
    /// Devices of the first places that are read after all copies: one place, or all of them.
    firsts: Vec<DeviceIndex>,
    /// The requester may only read the store, so it is not believed: an extent that can be read at its first place
    /// stays there.
    is_doubted: bool,
    /// A finding of the scrub, to be reported if there is no good copy.
    finding: Option<Finding>,
    /// The check of a doubted copy; nothing is wrong with the first place.
    doubt: Option<Doubt>,
}

impl Rescue {
    /// A rescue that no request waits for.
    pub fn unasked(key: ObjectKey, placing: Placing) -> Self {
        Self {
            ticket: None,
            key,
            placings: vec![placing],
            firsts: Vec::new(),
            is_doubted: false,
            finding: None,
            doubt: None,
        }
    }
    /// A check of a doubted copy.
    pub fn doubting(key: ObjectKey, placing: Placing, doubt: Doubt) -> Self {
        Self { doubt: Some(doubt), ..Self::unasked(key, placing) }
    }
    /// A rescue of bad bytes that the scrub found.
    fn for_scrub(key: ObjectKey, placing: Placing, finding: Finding) -> Self {
        Self { finding: Some(finding), ..Self::unasked(key, placing) }
    }
}

impl Repairing {
    /// Queues a rescue of ranges that a reader cannot read. Fails if the object does not exist or has no copies there.
    pub fn rescue(&mut self, core: &mut Core, key: ObjectKey, ranges: &[(u64, u64)], is_doubted: bool) -> Outcome {
        core.update_clock();
        let ranges = &ranges[..ranges.len().min(RANGES_MAX)];
        match plan_rescue(core, key, ranges, is_doubted) {
            Err(error) => match self.heal(core, key, ranges) {
                Some(ticket) => Outcome::Wait(ticket),
                None => failed(error),
            },
            Ok(placings) => {
                let ticket = core.ticket();
                self.rescues.push_back(Rescue {
                    ticket: Some(ticket),
                    key,
                    placings,
                    firsts: Vec::new(),
                    is_doubted,
                    finding: None,
                    doubt: None,
                });
                Outcome::Wait(ticket)
            }
        }
    }

    /// Queues a rescue of bad bytes that the scrub found.
    pub fn rescue_found(&mut self, key: ObjectKey, placing: Placing, finding: Finding) {
        self.rescues.push_back(Rescue::for_scrub(key, placing, finding));
    }

    /// Returns a job that reads the copies of the next rescue.
    pub fn next_rescue(&mut self, core: &mut Core) -> Option<Job> {
        while let Some(rescue) = self.rescues.pop_front() {
            // Placings whose first place is open go first, so that their numbers match those of the first places.
            let (mut seen, mut away, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
            for placing in rescue.placings {
                let Some(ext) = core.state.target_mut(placing.target).cloned() else { continue };
                if identity(&ext) == placing.was
                    && let Action::Evict { copy } = placing.action
                    && usize::from(copy) < ext.copy_count()
                    && let Some(part) = core.part_of(&ext.at_copy(usize::from(copy)))
                {
                    // Read the first place too, so that a failing tier is noticed.
                    match core.part_of(&ext) {
                        Some(first) => {
                            firsts.push((ext.dev, first));
                            seen.push((part, placing));
                        }
                        None => away.push((part, placing)),
                    }
                }
            }
            let (mut parts, placings): (Vec<_>, Vec<_>) = seen.into_iter().chain(away).unzip();
            if !parts.is_empty() {
                let count = if rescue.is_doubted { firsts.len() } else { 1 };
                let (firsts, first_parts): (Vec<DeviceIndex>, Vec<_>) = firsts.into_iter().take(count).unzip();
                parts.extend(first_parts);
                let rescue = Rescue { placings, firsts, ..rescue };
                return Some(core.start(Effect::Other, CheckParts(parts), |repairing: &mut Self, core, results| {
                    repairing.finish_rescue(core, rescue, &results);
                }));
            }
            if let Some(doubt) = rescue.doubt {
                super::doubted::doubt_over(core, &doubt, None); // moved or overwritten meanwhile
                continue;
            }
            // It changed meanwhile, or no copy can be read. The next round of the scrub sees it again.
            let error = nowhere_else(rescue.key, "the tiers that have a copy of it are away too");
            core.answers.finished.extend(rescue.ticket.map(|ticket| (ticket, Response::Failed(error))));
        }
        None
    }

    /// Takes the results of a rescue: evicts extents to good copies, reports bad ones, and answers.
    pub fn finish_rescue(&mut self, core: &mut Core, rescue: Rescue, results: &[Option<String>]) {
        let (copies, places) = results.split_at(results.len().min(rescue.placings.len()));
        for (dev, why) in rescue.firsts.iter().zip(places) {
            if let Some(why) = why {
                core.note_unread(*dev, is_mismatch(why), &Error::new(ErrorKind::Io, "").because(why.clone()));
            }
        }
        let is_well = |at: usize| rescue.is_doubted && places.get(at).is_some_and(Option::is_none);
        let all_well = (0..rescue.placings.len()).all(is_well);
        let mut bad = None;
        let mut evictions: Vec<Placing> = Vec::new();
        for (at, (placing, result)) in rescue.placings.into_iter().zip(copies).enumerate() {
            match result {
                _ if is_well(at) => {}
                Some(why) => {
                    self.note_bad_copy(core, &placing, why, rescue.doubt.is_some());
                    bad = Some(why.clone());
                }
                // A placing takes its twins along, and an extent that changed meanwhile is elsewhere already.
                None if core.state.can_place(&placing) && evictions.iter().all(|other| other.was != placing.was) => {
                    evictions.push(placing);
                }
                None => {}
            }
        }
        if let (Some(mut finding), Some(why)) = (rescue.finding, &bad) {
            let seen = &finding.what;
            finding.what = format!("{seen}; its copy cannot be read either ({why}): restore the range from elsewhere");
            core.asks.push(Ask::NotRepaired(finding));
        }
        let placed = if evictions.is_empty() { Ok(()) } else { core.place_trusted(&evictions) };
        if let Some(doubt) = &rescue.doubt {
            let stays = bad.as_ref().map(|why| {
                let subject = format!("{} of object {}", doubt.place, rescue.key);
                Error::new(ErrorKind::Corrupt, subject)
                    .because(format!("its copy on another tier is bad, and is written again: {why}"))
                    .try_next("repeat it in a moment: the bytes are good where they are")
            });
            super::doubted::doubt_over(core, doubt, placed.as_ref().err().or(stays.as_ref()));
        }
        let response = match (placed, bad) {
            _ if all_well => Response::Failed(nowhere_else(rescue.key, "the store reads it well where it is")),
            (Err(error), _) => Response::Failed(error),
            (Ok(()), Some(why)) if evictions.is_empty() => {
                Response::Failed(nowhere_else(rescue.key, &format!("its copy cannot be read either: {why}")))
            }
            _ => Response::Done,
        };
        core.answers.finished.extend(rescue.ticket.map(|ticket| (ticket, response)));
    }
}

fn plan_rescue(core: &mut Core, key: ObjectKey, ranges: &[(u64, u64)], is_doubted: bool) -> Result<Vec<Placing>> {
    let slot = core.object(key)?;
    for (offset, len) in ranges.iter().filter(|_| !is_doubted) {
        core.isolate(slot, key, *offset, offset.saturating_add(*len));
    }
    let map = &core.state.objects.get(slot).map;
    let overlapping = ranges.iter().flat_map(|(offset, len)| map.overlapping(*offset, offset.saturating_add(*len)));
    let copied = overlapping.take(EXTENTS_MAX).filter(|(_, ext)| ext.has_copy());
    let placing = |(offset, ext): (u64, &Ext)| Placing {
        target: Target::Live { key, offset },
        was: identity(ext),
        action: core.state.space.eviction(ext),
    };
    let placings: Vec<Placing> = copied.map(placing).collect();
    if placings.is_empty() { Err(nowhere_else(key, "it has no copy on another tier")) } else { Ok(placings) }
}

pub(super) fn nowhere_else(key: ObjectKey, why: &str) -> Error {
    Error::new(ErrorKind::Io, format!("object {key}"))
        .because(why)
        .try_next("see `cenote tiers` for the tier that fails; bring it back, or restore the range from elsewhere")
}
