//! A reader cannot read bytes where they are: what has a copy that is well falls back to it. The copy is read and its
//! checksums compared before the place that failed is given up, since that may be the only good one after all.

use cenote_model::{Error, ErrorKind, Finding, ObjectKey, Response, Result};

use super::Repairing;
use super::doubted::Doubt;
use crate::copying::is_mismatch;
use crate::engine::activity::Ask;
use crate::engine::core::{Core, Effect};
use crate::engine::failed;
use crate::map::{Ext, NO_DEVICE};
use crate::placing::{Action, Placing, Target, identity};
use crate::work::{CheckParts, Job};
use crate::{Outcome, Ticket};

/// Ranges in one request, and extents looked at for it.
const RANGES_MAX: usize = 256;
const EXTENTS_MAX: usize = 1024;

/// One rescue: who waits, and what may fall back to its copy.
pub struct Rescue {
    ticket: Option<Ticket>,
    key: ObjectKey,
    placings: Vec<Placing>,
    /// The devices that are looked at after all copies: where the first of the bytes are, or all of them.
    firsts: Vec<u8>,
    /// Who asked may only read the store, so that is no reason to believe it: what can be read where it is stays there.
    is_doubted: bool,
    /// The scrub's: what is to be said if there is no good copy.
    finding: Option<Finding>,
    /// It leaves for a copy that is doubted; nothing is wrong with where it is.
    doubt: Option<Doubt>,
}

impl Rescue {
    /// One that nobody waits for.
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
    /// What leaves for a copy that is doubted.
    pub fn doubting(key: ObjectKey, placing: Placing, doubt: Doubt) -> Self {
        Self { doubt: Some(doubt), ..Self::unasked(key, placing) }
    }
    /// One of bad bytes that the scrub found.
    fn for_scrub(key: ObjectKey, placing: Placing, finding: Finding) -> Self {
        Self { finding: Some(finding), ..Self::unasked(key, placing) }
    }
}

impl Repairing {
    pub fn rescue(&mut self, core: &mut Core, key: ObjectKey, ranges: &[(u64, u64)], is_doubted: bool) -> Outcome {
        core.update_clock();
        match plan_rescue(core, key, &ranges[..ranges.len().min(RANGES_MAX)], is_doubted) {
            Err(error) => failed(error),
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

    /// Bad bytes that the scrub found fall back to their copy, if that is good.
    pub fn rescue_found(&mut self, key: ObjectKey, placing: Placing, finding: Finding) {
        self.rescues.push_back(Rescue::for_scrub(key, placing, finding));
    }

    pub fn next_rescue(&mut self, core: &mut Core) -> Option<Job> {
        while let Some(rescue) = self.rescues.pop_front() {
            // Those that can be looked at where they are come first, so that one's number is that of the other.
            let (mut seen, mut away, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
            for placing in rescue.placings {
                let Some(ext) = core.state.target_mut(placing.target).cloned() else { continue };
                if identity(&ext) == placing.was
                    && ext.copy != NO_DEVICE
                    && let Some(part) = core.part_of(&ext.at_copy())
                {
                    // Where it is, is looked at too: a tier that fails is to be known to.
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
                let (firsts, first_parts): (Vec<u8>, Vec<_>) = firsts.into_iter().take(count).unzip();
                parts.extend(first_parts);
                let rescue = Rescue { placings, firsts, ..rescue };
                return Some(core.start(Effect::Other, CheckParts(parts), |repairing: &mut Self, core, results| {
                    repairing.finish_rescue(core, rescue, &results);
                }));
            }
            if let Some(doubt) = rescue.doubt {
                super::doubted::doubt_over(core, &doubt, None); // somebody else moved it, or overwrote it
                continue;
            }
            // It changed meanwhile, or nothing has a copy that could be read.
            // What the scrub saw is looked at again in its next round.
            let error = nowhere_else(rescue.key, "the tiers that have a copy of it are away too");
            core.answers.finished.extend(rescue.ticket.map(|ticket| (ticket, Response::Failed(error))));
        }
        None
    }

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
                // Of twins each takes the other along, and what changed meanwhile is elsewhere already.
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
    let copied = overlapping.take(EXTENTS_MAX).filter(|(_, ext)| ext.copy != NO_DEVICE);
    let placing = |(offset, ext): (u64, &Ext)| Placing {
        target: Target::Live { key, offset },
        was: identity(ext),
        action: Action::Evict,
    };
    let placings: Vec<Placing> = copied.map(placing).collect();
    if placings.is_empty() { Err(nowhere_else(key, "it has no copy on another tier")) } else { Ok(placings) }
}

fn nowhere_else(key: ObjectKey, why: &str) -> Error {
    Error::new(ErrorKind::Io, format!("object {key}"))
        .because(why)
        .try_next("see `cenote tiers` for the tier that fails; bring it back, or restore the range from elsewhere")
}
