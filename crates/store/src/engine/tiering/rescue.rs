//! A reader cannot read bytes where they are: what has a copy that is well falls back to it. The copy is read and its
//! checksums compared before the place that failed is given up, since that may be the only good one after all.

use cenote_model::{Error, ErrorKind, Finding, ObjectKey, Response, Result};

use super::super::jobs::What;
use super::super::{Engine, failed};
use crate::map::{Ext, NO_DEVICE};
use crate::placing::{Action, Placing, Target, identity};
use crate::work::{Job, Work};
use crate::{Outcome, Ticket};

/// Ranges in one request, and extents looked at for it.
const RANGES_MAX: usize = 256;
const EXTENTS_MAX: usize = 1024;

/// One rescue: who waits, and what may fall back to its copy.
pub(in super::super) struct Rescue {
    ticket: Option<Ticket>,
    key: ObjectKey,
    placings: Vec<Placing>,
    /// The device that is looked at after all copies: where the first of the bytes are.
    first: Option<u8>,
    /// The scrub's: what is to be said if there is no good copy.
    finding: Option<Finding>,
}

impl Rescue {
    /// One that nobody waits for.
    pub fn unasked(key: ObjectKey, placing: Placing) -> Self {
        Self { ticket: None, key, placings: vec![placing], first: None, finding: None }
    }
    /// One of bad bytes that the scrub found.
    fn for_scrub(key: ObjectKey, placing: Placing, finding: Finding) -> Self {
        Self { finding: Some(finding), ..Self::unasked(key, placing) }
    }
}

impl Engine {
    pub(in super::super) fn rescue(&mut self, key: ObjectKey, ranges: &[(u64, u64)]) -> Outcome {
        self.update_clock();
        match self.plan_rescue(key, &ranges[..ranges.len().min(RANGES_MAX)]) {
            Err(error) => failed(error),
            Ok(placings) => {
                let ticket = self.ticket();
                self.tiering.rescues.push_back(Rescue {
                    ticket: Some(ticket),
                    key,
                    placings,
                    first: None,
                    finding: None,
                });
                Outcome::Wait(ticket)
            }
        }
    }

    /// Bad bytes that the scrub found fall back to their copy, if that is good.
    pub(in super::super) fn rescue_found(&mut self, key: ObjectKey, placing: Placing, finding: Finding) {
        self.tiering.rescues.push_back(Rescue::for_scrub(key, placing, finding));
    }

    fn plan_rescue(&mut self, key: ObjectKey, ranges: &[(u64, u64)]) -> Result<Vec<Placing>> {
        let slot = self.object(key)?;
        for (offset, len) in ranges {
            self.isolate(slot, key, *offset, offset.saturating_add(*len));
        }
        let map = &self.state.objects.get(slot).map;
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

    pub(in super::super) fn next_rescue(&mut self) -> Option<Job> {
        while let Some(rescue) = self.tiering.rescues.pop_front() {
            let mut parts = Vec::new();
            let mut placings = Vec::new();
            let mut firsts = Vec::new();
            for placing in rescue.placings {
                let Some(ext) = self.state.target_mut(placing.target).cloned() else { continue };
                if identity(&ext) == placing.was
                    && ext.copy != NO_DEVICE
                    && let Some(part) = self.part_of(&ext.at_copy())
                {
                    // Where it is, is looked at too: a tier that fails is to be known to.
                    firsts.extend(self.part_of(&ext).map(|first| (ext.dev, first)));
                    parts.push(part);
                    placings.push(placing);
                }
            }
            if !parts.is_empty() {
                let (first, first_part): (Vec<u8>, Vec<_>) = firsts.into_iter().take(1).unzip();
                parts.extend(first_part);
                let rescue = Rescue { placings, first: first.first().copied(), ..rescue };
                return Some(self.start(What::Rescue(rescue), Work::Check { parts }));
            }
            // It changed meanwhile, or nothing has a copy that could be read.
            // What the scrub saw is looked at again in its next round.
            let error = nowhere_else(rescue.key, "the tiers that have a copy of it are away too");
            self.finished.extend(rescue.ticket.map(|ticket| (ticket, Response::Failed(error))));
        }
        None
    }

    pub(in super::super) fn finish_rescue(&mut self, rescue: Rescue, results: Vec<Option<String>>) {
        if let (Some(dev), Some(Some(why))) = (rescue.first, results.get(rescue.placings.len()))
            && !why.contains("checksum")
        {
            self.note_trouble(dev, &Error::new(ErrorKind::Io, "").because(why.clone()));
        }
        let mut bad = None;
        let mut evictions: Vec<Placing> = Vec::new();
        for (placing, result) in rescue.placings.into_iter().zip(results) {
            match result {
                Some(why) => bad = Some(why),
                // Of twins each takes the other along, and what changed meanwhile is elsewhere already.
                None if self.state.can_place(&placing) && evictions.iter().all(|other| other.was != placing.was) => {
                    evictions.push(placing);
                }
                None => {}
            }
        }
        if let (Some(mut finding), Some(why)) = (rescue.finding, &bad) {
            let seen = &finding.what;
            finding.what = format!("{seen}; its copy cannot be read either ({why}): restore the range from elsewhere");
            self.not_repaired(finding);
        }
        let placed = if evictions.is_empty() { Ok(()) } else { self.place_all(&evictions) };
        let response = match (placed, bad) {
            (Err(error), _) => Response::Failed(error),
            (Ok(()), Some(why)) if evictions.is_empty() => {
                Response::Failed(nowhere_else(rescue.key, &format!("its copy cannot be read either: {why}")))
            }
            _ => Response::Done,
        };
        self.finished.extend(rescue.ticket.map(|ticket| (ticket, response)));
    }
}

fn nowhere_else(key: ObjectKey, why: &str) -> Error {
    Error::new(ErrorKind::Io, format!("object {key}"))
        .because(why)
        .try_next("see `cenote tiers` for the tier that fails; bring it back, or restore the range from elsewhere")
}
