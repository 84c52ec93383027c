//! Where the parts of a stripe go: weighted rendezvous hashing over the live candidates.
//!
//! Every candidate gets a score from the stripe's key and its own name, and the highest scores win (Thaler and
//! Ravishankar, *Using name-based mappings to increase hit rates*, ToN 1998). The score is `weight / -ln(u)` with `u`
//! uniform in (0, 1) from the hash, so that a candidate wins in proportion to its weight, and a candidate that comes or
//! goes moves only what it wins or had (Resch, *New hashing algorithms for data storage*, SDC 2015; CRUSH's `straw2`).
//!
//! The hash is XXH3-64, whose output its authors froze with version 0.8.0; tests hold the values. The logarithm uses
//! additions, multiplications and divisions only, which IEEE 754 fixes to the bit, since `f64::ln` differs between
//! systems. So all machines and versions choose the same places. Nothing depends on that once bytes are written: the
//! chosen places are kept in the object's map.

use std::fmt;

use cenote_model::{DeviceId, Error, ErrorKind, NodeId, ObjectKey, Result};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{Domain, Layout};

/// A device of a node: what holds one part of a stripe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Place {
    /// The node.
    pub node: NodeId,
    /// The device, as its node numbers it.
    pub device: DeviceId,
}

impl Place {
    /// Returns true if both are lost when one domain is.
    pub fn shares(self, other: Self, domain: Domain) -> bool {
        self.node == other.node && (domain == Domain::Node || self.device == other.device)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}/{}", self.node.0, self.device)
    }
}

/// A place that may take a part.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate {
    /// The place.
    pub place: Place,
    /// Its share of the parts in proportion to others', for example its free bytes. 0: it takes none.
    pub weight: u64,
}

/// Names a stripe: one of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StripeKey {
    /// The object.
    pub object: ObjectKey,
    /// Its stripe: offset / [`Layout::stripe_bytes`].
    pub stripe: u64,
}

/// The hash of a stripe: XXH3-64 of container, object and stripe number, little-endian.
pub fn hash_of(key: StripeKey) -> u64 {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&key.object.container.0.to_le_bytes());
    bytes[8..24].copy_from_slice(&key.object.object.0.to_le_bytes());
    bytes[24..].copy_from_slice(&key.stripe.to_le_bytes());
    xxh3_64(&bytes)
}

/// The hash of a place for a stripe: XXH3-64 of node and device, little-endian, with the stripe's hash as seed.
fn hash_at(stripe: u64, place: Place) -> u64 {
    let [n0, n1] = place.node.0.to_le_bytes();
    let [d0, d1] = place.device.0.to_le_bytes();
    xxh3_64_with_seed(&[n0, n1, d0, d1], stripe)
}

/// The hash as a number between 0 and 1: its upper 52 bits and a half, which is exact, so neither 0 nor 1 comes out.
fn uniform(hash: u64) -> f64 {
    ((hash >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
}

/// `-ln u` of the hash as a number `u` between 0 and 1, to 13 digits, the same to the bit everywhere.
fn exponential(hash: u64) -> f64 {
    let bits = uniform(hash).to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i32 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // ln m = 2 artanh s, |s| < 0.172: terms fall by 34 each.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = (0..9).rev().fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1));
    -(f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * s * series)
}

/// Candidate and score: the higher one wins, and of equals the first place.
type Scored = (f64, Place);

fn by_score(one: &Scored, other: &Scored) -> std::cmp::Ordering {
    other.0.total_cmp(&one.0).then(one.1.cmp(&other.1))
}

fn score(hash: u64, weight: u64) -> f64 {
    weight as f64 / exponential(hash)
}

/// Says whether a score is certainly below another one, without the logarithm: `-ln u > 1 - u`. The allowance is far more than
/// what is rounded.
fn is_below(hash: u64, weight: u64, bar: f64) -> bool {
    weight as f64 * (1.0 + 1e-9) < bar * (1.0 - uniform(hash))
}

/// Chooses places for all parts of a new stripe, part 0 first: the best candidates, no two in one failure domain.
///
/// # Errors
/// `InvalidInput` if there are fewer domains than parts, `Full` if there are enough but too few have a weight. The
/// error says how many are needed and how many are there.
pub fn choose(key: StripeKey, layout: &Layout, candidates: &[Candidate]) -> Result<Vec<Place>> {
    choose_instead(key, layout, &vec![None; layout.parts()], candidates)
}

/// The candidates that are looked at for a stripe in a large cluster: `width` of them that follow each other in the order
/// given, which is kept, beginning where the stripe's hash falls. All if there are no more.
///
/// Each candidate is among those of equally many stripes, and shares stripes with the `2 * width - 2` beside it at most.
/// This bounds three things that grow with the cluster otherwise: what [`choose`] costs; how many nodes a repair
/// disturbs; and how likely it is that nodes which die together have all that is left of some stripe (Cidon et al.,
/// *Copysets*, ATC 2013). Give neighbours that are not lost together: of several racks in turns.
pub fn near(key: StripeKey, candidates: &[Candidate], width: usize) -> Vec<Candidate> {
    if candidates.len() <= width {
        return candidates.to_vec();
    }
    // By proportion instead of by remainder: a candidate more or less moves the begin by one at most.
    let begin = ((u128::from(hash_of(key)) * candidates.len() as u128) >> 64) as usize;
    candidates.iter().cycle().skip(begin).take(width).copied().collect()
}

/// Chooses places for the parts that have none. Parts that have one keep it, and no other part comes into its domain.
///
/// # Errors
/// As [`choose`].
pub fn choose_instead(
    key: StripeKey,
    layout: &Layout,
    kept: &[Option<Place>],
    candidates: &[Candidate],
) -> Result<Vec<Place>> {
    let taken: Vec<Place> = kept.iter().flatten().copied().collect();
    let wanted = kept.len() - taken.len();
    let found = best(hash_of(key), layout.domain(), &taken, wanted, candidates);
    if found.len() < wanted {
        return Err(too_few(layout, kept.len(), &taken, candidates));
    }
    let mut found = found.into_iter();
    Ok(kept.iter().filter_map(|place| place.or_else(|| found.next())).collect())
}

/// The best candidates in order, at most `wanted`, each in a domain of its own.
fn best(stripe: u64, domain: Domain, taken: &[Place], wanted: usize, candidates: &[Candidate]) -> Vec<Place> {
    let free = |place: Place| !taken.iter().any(|other| other.shares(place, domain));
    let usable = candidates.iter().filter(|candidate| candidate.weight > 0 && free(candidate.place));
    // With one candidate a domain the first `wanted` are the answer: no need to score and sort the rest of thousands.
    let head = best_scored(stripe, usable.clone(), wanted * 4);
    let chosen = apart(&head, domain, wanted);
    if chosen.len() == wanted || head.len() < wanted * 4 {
        return chosen;
    }
    let mut all: Vec<Scored> = usable.map(|one| (score(hash_at(stripe, one.place), one.weight), one.place)).collect();
    all.sort_unstable_by(by_score);
    apart(&all, domain, wanted)
}

/// The candidates with the best scores, at most `count`, best first.
fn best_scored<'a>(stripe: u64, candidates: impl Iterator<Item = &'a Candidate>, count: usize) -> Vec<Scored> {
    let mut head: Vec<Scored> = Vec::with_capacity(count + 1);
    for one in candidates {
        let hash = hash_at(stripe, one.place);
        let is_full = head.len() == count;
        if is_full && head.last().is_none_or(|(bar, _)| is_below(hash, one.weight, *bar)) {
            continue;
        }
        let scored = (score(hash, one.weight), one.place);
        let at = head.partition_point(|other| by_score(other, &scored).is_lt());
        head.insert(at, scored);
        head.truncate(count);
    }
    head
}

/// The first of these that are in different domains.
fn apart(scored: &[Scored], domain: Domain, wanted: usize) -> Vec<Place> {
    let mut chosen: Vec<Place> = Vec::with_capacity(wanted);
    for (_, place) in scored {
        if chosen.len() == wanted {
            break;
        }
        if !chosen.iter().any(|other| other.shares(*place, domain)) {
            chosen.push(*place);
        }
    }
    chosen
}

/// How many failure domains these places are in.
pub(crate) fn domains(places: impl Iterator<Item = Place>, domain: Domain) -> usize {
    let mut found: Vec<Place> = places.collect();
    if domain == Domain::Node {
        for place in &mut found {
            place.device = DeviceId(0);
        }
    }
    found.sort_unstable();
    found.dedup();
    found.len()
}

#[cold]
fn too_few(layout: &Layout, needed: usize, taken: &[Place], candidates: &[Candidate]) -> Error {
    let domain = layout.domain();
    let all = candidates.iter().map(|candidate| candidate.place).chain(taken.iter().copied());
    let roomy = candidates.iter().filter(|candidate| candidate.weight > 0).map(|candidate| candidate.place);
    let (all, roomy) = (domains(all, domain), domains(roomy.chain(taken.iter().copied()), domain));
    let subject = format!("layout `{layout}`");
    let (needs, there) = (domain.words(needed), domain.words(all));
    if all >= needed {
        let cause = format!("it needs {needed} {needs} with free space; of the {all} that are there {roomy} have any");
        return Error::new(ErrorKind::Full, subject).because(cause).try_next("make room, or add a node");
    }
    let cause = format!("it needs {needed} {needs} and only {all} {there} can be reached");
    let step = match domain {
        Domain::Node => "add nodes, choose a layout of fewer parts, or say domain=device to survive devices only",
        Domain::Device => "add devices, or choose a layout of fewer parts",
    };
    Error::new(ErrorKind::InvalidInput, subject).because(cause).try_next(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // From the reference implementation's `xxhsum -H3`.
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(xxh3_64(b"a"), 0xe6c6_32b6_1e96_4e1f);
        assert_eq!(xxh3_64(b"abc"), 0x78af_5f94_892f_3950);
    }

    #[test]
    fn the_logarithm_is_one() {
        for hash in [0, 1, 1 << 11, u64::MAX / 3, u64::MAX / 2, u64::MAX - 5000, u64::MAX] {
            let (ours, theirs) = (exponential(hash), -uniform(hash).ln());
            assert!(ours > 0.0 && (ours - theirs).abs() <= 1e-13 * theirs.abs().max(1e-3), "{hash}: {ours} {theirs}");
        }
    }

    #[test]
    fn what_is_chosen_is_what_scoring_and_sorting_all_gives() {
        let mut rng = cenote_workload::Rng::new(20);
        for stripe in 0..3000 {
            let (nodes, devices) = (rng.between(1, 300) as u16, rng.between(1, 3) as u16);
            let uneven = rng.chance(500);
            let mut weight = || if uneven { rng.below(5) * rng.size(1 << 40) } else { 7 };
            let place = |node, device| Place { node: NodeId(node), device: DeviceId(device) };
            let all: Vec<Candidate> = (0..nodes)
                .flat_map(|node| (0..devices).map(move |device| place(node, device)))
                .map(|place| Candidate { place, weight: weight() })
                .collect();
            let taken: Vec<Place> = (0..rng.below(3)).map(|_| rng.pick(&all).place).collect();
            let (domain, wanted) = (*rng.pick(&[Domain::Node, Domain::Device]), rng.below(8) as usize);
            let is_free = |place: Place| !taken.iter().any(|other| other.shares(place, domain));
            let usable = all.iter().filter(|one| one.weight > 0 && is_free(one.place));
            let mut scored: Vec<Scored> =
                usable.map(|one| (score(hash_at(stripe, one.place), one.weight), one.place)).collect();
            scored.sort_unstable_by(by_score);
            assert_eq!(best(stripe, domain, &taken, wanted, &all), apart(&scored, domain, wanted), "stripe {stripe}");
        }
    }
}
