//! Plans of repair: every segment that lost parts, the weakest first, read from all survivors in turns (declustered
//! parity, Holland and Gibson, ASPLOS 1992), so that no disk is the bottleneck of a rebuild.

use std::collections::HashMap;

use cenote_model::Error;

use super::source::Segment;
use crate::place::choose_instead;
use crate::survival::losses;
use crate::{Candidate, Layout, Place, StripeKey};

/// Parts of one segment that are to be made again.
#[derive(Clone, PartialEq, Debug)]
pub struct RebuildTask {
    /// The segment, by its number among those given.
    pub segment: usize,
    /// The parts that are lost, each with the place of the new one.
    pub targets: Vec<(usize, Place)>,
    /// The parts to read, each as a whole: one copy, or as many parts as there are data parts with bytes.
    pub sources: Vec<(usize, Place)>,
    /// How many more losses the segment survives until this is done.
    pub losses: usize,
}

/// A segment that cannot be repaired now.
#[derive(Clone, PartialEq, Debug)]
pub enum Stuck {
    /// Fewer parts are left than its bytes need: they come back with their places, or never.
    Lost {
        /// The segment, by its number among those given.
        segment: usize,
        /// Parts that are left.
        left: usize,
        /// Parts that are needed.
        needed: usize,
    },
    /// No place may take a new part.
    NoPlace {
        /// The segment, by its number among those given.
        segment: usize,
        /// How many places are needed and there.
        error: Error,
    },
}

/// What is to be rebuilt, most urgent first, and what cannot be.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RebuildPlan {
    /// Tasks in the order in which they should begin.
    pub tasks: Vec<RebuildTask>,
    /// What needs more than this plan can give.
    pub stuck: Vec<Stuck>,
}

/// Plans the repair of all segments that have parts on places that are not live.
///
/// `segments` come with the key and the layout by which new places are chosen. `is_live` is false for lost places.
/// Segments that survive the fewest further losses come first, then in the order given. Among survivors the one that
/// has been asked for the fewest bytes so far is read next.
pub fn plan_rebuild(
    segments: &[(StripeKey, Layout, Segment)],
    is_live: impl Fn(Place) -> bool,
    candidates: &[Candidate],
) -> RebuildPlan {
    let mut plan = RebuildPlan::default();
    let mut urgent: Vec<(usize, usize)> = Vec::new();
    for (number, (_, layout, segment)) in segments.iter().enumerate() {
        if segment.held().all(|(_, place)| is_live(place)) {
            continue;
        }
        match losses(segment, layout.domain(), &is_live) {
            Some(losses) => urgent.push((losses, number)),
            None => plan.stuck.push(lost(number, segment, &is_live)),
        }
    }
    urgent.sort_unstable();
    let mut asked: HashMap<Place, u64> = HashMap::new();
    for (losses, number) in urgent {
        let (key, layout, segment) = &segments[number];
        match targets(*key, layout, segment, &is_live, candidates) {
            Ok(targets) => {
                let sources = sources(segment, &is_live, &mut asked);
                plan.tasks.push(RebuildTask { segment: number, targets, sources, losses });
            }
            Err(error) => plan.stuck.push(Stuck::NoPlace { segment: number, error }),
        }
    }
    plan
}

fn lost(number: usize, segment: &Segment, is_live: impl Fn(Place) -> bool) -> Stuck {
    let left = segment.held().filter(|(_, place)| is_live(*place)).count();
    Stuck::Lost { segment: number, left, needed: segment.sufficient() }
}

fn targets(
    key: StripeKey,
    layout: &Layout,
    segment: &Segment,
    is_live: impl Fn(Place) -> bool,
    candidates: &[Candidate],
) -> Result<Vec<(usize, Place)>, Error> {
    // A part without bytes is as good where it is.
    let stays = |part: usize, place: Place| segment.part_len(part) == 0 || is_live(place);
    let kept = segment.places.iter().enumerate().map(|(part, place)| stays(part, *place).then_some(*place));
    let kept: Vec<Option<Place>> = kept.collect();
    let places = choose_instead(key, layout, &kept, candidates)?;
    Ok(places.into_iter().enumerate().filter(|(part, _)| kept[*part].is_none()).collect())
}

/// The least asked of the live parts.
fn sources(segment: &Segment, is_live: impl Fn(Place) -> bool, asked: &mut HashMap<Place, u64>) -> Vec<(usize, Place)> {
    let mut parts: Vec<(usize, Place)> = segment.held().filter(|(_, place)| is_live(*place)).collect();
    parts.sort_by_key(|(_, place)| asked.get(place).copied().unwrap_or(0));
    parts.truncate(segment.sufficient());
    for (part, place) in &parts {
        *asked.entry(*place).or_default() += segment.part_len(*part);
    }
    parts
}
