//! How many more losses bytes survive: what the barrier `protect` waits for, and what repair sorts by.

use std::ops::Range;

use crate::plan::Segment;
use crate::{Domain, Place};

/// What a range of an object still survives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Survival {
    /// Bytes of the object.
    pub range: Range<u64>,
    /// How many more failure domains can be lost, whichever they are, before bytes are. `None`: bytes cannot be read now.
    pub losses: Option<usize>,
}

/// How many more losses of domains each segment survives, given which places are live.
pub fn survives(segments: &[Segment], domain: Domain, is_live: impl Fn(Place) -> bool) -> Vec<Survival> {
    let of = |segment: &Segment| Survival { range: segment.range(), losses: losses(segment, domain, &is_live) };
    segments.iter().map(of).collect()
}

/// The range that survives least; none if there are no segments.
pub fn weakest(survivals: &[Survival]) -> Option<&Survival> {
    survivals.iter().min_by_key(|survival| survival.losses.map_or(0, |losses| losses + 1))
}

/// The most domains of which any choice can be lost so that enough parts remain.
pub(crate) fn losses(segment: &Segment, domain: Domain, is_live: impl Fn(Place) -> bool) -> Option<usize> {
    let live: Vec<Place> = segment.held().map(|(_, place)| place).filter(|place| is_live(*place)).collect();
    let mut spare = live.len().checked_sub(segment.sufficient())?;
    let mut lost = 0;
    for held in parts_by_domain(&live, domain) {
        let Some(left) = spare.checked_sub(held) else { break };
        spare = left;
        lost += 1;
    }
    Some(lost)
}

/// How many parts each domain has, most first: whoever means harm takes these first.
fn parts_by_domain(places: &[Place], domain: Domain) -> Vec<usize> {
    let mut counts: Vec<(Place, usize)> = Vec::new();
    for place in places {
        match counts.iter_mut().find(|(other, _)| other.shares(*place, domain)) {
            Some((_, count)) => *count += 1,
            None => counts.push((*place, 1)),
        }
    }
    let mut counts: Vec<usize> = counts.into_iter().map(|(_, count)| count).collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    counts
}
