//! Cached maps: which answers count, and which changes invalidate them.

use cenote_model::{ContainerId, DeviceId, ObjectId};
use cenote_workload::property::{Held, Plan, hold, plans};
use cenote_workload::{Rng, Step};
use proptest::prelude::*;

use super::*;

const DEVICE: DeviceId = DeviceId(1);
/// Bytes of an ordinal's range in the object.
const CELL: u64 = 8;

/// An answer of the engine that arrives late, or never.
struct LateAnswer {
    asked: Version,
    size: u64,
    from: u64,
    to: u64,
    pieces: Vec<(u64, u64, Source)>,
}

/// The engine's state of an object (for each byte the address of its content, 0 in holes), and the cache of this
/// process.
struct Pair {
    rng: Rng,
    cache: ObjectCache,
    truth: Vec<usize>,
    version: Version,
    written: usize,
    late: Vec<LateAnswer>,
    hits: u64,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let key = ObjectKey { container: ContainerId(1), object: ObjectId(1) };
        Self {
            rng: Rng::new(seed),
            cache: ObjectCache::new(key),
            truth: Vec::new(),
            version: Version { instance: 1, word: 1 },
            written: 0,
            late: Vec::new(),
            hits: 0,
        }
    }
    /// Writes a range, or punches a hole, as the engine does. Returns the new source.
    fn change(&mut self, offset: u64, len: u64, is_hole: bool) -> Source {
        let (from, to) = (offset as usize, (offset + len) as usize);
        self.truth.resize(self.truth.len().max(to), 0);
        self.version.word += 1;
        self.written += 1;
        let address = self.written << 32;
        for (at, cell) in self.truth[from..to].iter_mut().enumerate() {
            *cell = if is_hole { 0 } else { address + at };
        }
        if is_hole { Source::Hole } else { Source::Mapped(address, DEVICE) }
    }
    fn step(&mut self, step: Step) -> Held {
        // Ordinals may be anywhere; the object is short, so that changes overlap.
        let offset = step.ordinal() % 64 * CELL + self.rng.below(3);
        let len = 1 + self.rng.below(3 * CELL);
        let before = self.version.word;
        let place = self.change(offset, len, matches!(step, Step::Del(_)));
        let after = self.version.word;
        if self.rng.chance(700) {
            if self.rng.chance(200) {
                self.change(offset + 1, len, false);
            }
            if self.rng.chance(200) {
                self.look(offset)?;
            }
            self.cache.apply(before, after, [(offset, len, place)].into_iter());
        }
        if self.rng.chance(20) {
            // Another engine, whose words continue those of the last one.
            self.version.instance += 1;
        }
        self.look(offset)
    }
    fn look(&mut self, near: u64) -> Held {
        for _ in 0..self.rng.below(4) {
            let offset = near.saturating_add(self.rng.below(40)).saturating_sub(20);
            let len = 1 + self.rng.index(60);
            self.read(offset, len)?;
            self.seek(offset)?;
        }
        if self.late.len() > 3 || self.rng.chance(600) {
            while !self.late.is_empty() && self.rng.chance(800) {
                let late = self.late.swap_remove(self.rng.index(self.late.len()));
                self.cache.learn(late.asked, late.size, late.from, late.to, late.pieces);
            }
        }
        prop_assert_eq!(read(&self.cache.state).check(), Ok(()));
        Ok(())
    }
    fn read(&mut self, offset: u64, len: usize) -> Held {
        let mut parts: Vec<Part> = Vec::new();
        let Some(planned) = self.cache.plan(self.version, offset, len, 0, &mut parts) else {
            self.ask(offset, len as u64);
            return Ok(());
        };
        prop_assert_eq!(planned.size, self.truth.len() as u64);
        let end = self.truth.len().min(offset as usize + len);
        let wanted = end.saturating_sub(offset as usize);
        let mut at = 0;
        for part in &parts {
            prop_assert_eq!(part.at, at);
            for byte in 0..part.len {
                let known = match part.source {
                    Source::Mapped(address, _) => address + byte,
                    _ => 0,
                };
                prop_assert_eq!(known, self.truth[offset as usize + at + byte]);
            }
            at += part.len;
        }
        prop_assert_eq!(at, planned.bytes);
        prop_assert!(planned.bytes <= wanted);
        self.hits += u64::from(planned.bytes == wanted && wanted > 0);
        if planned.bytes < wanted {
            self.ask(offset, len as u64);
        }
        Ok(())
    }
    fn seek(&self, offset: u64) -> Held {
        for what in [Seek::Data, Seek::Hole] {
            let Some(sought) = self.cache.seek(self.version, offset, what) else { continue };
            let from = self.truth.len().min(offset as usize);
            let first = self.truth[from..].iter().position(|cell| (*cell == 0) == (what == Seek::Hole));
            let first = first.map(|at| (from + at) as u64);
            match sought {
                SeekResult::At(at) => prop_assert_eq!(at, first.unwrap_or(self.truth.len() as u64)),
                SeekResult::None => prop_assert!(first.is_none()),
                SeekResult::Unknown(at) => prop_assert!(first.is_none_or(|first| first >= at)),
            }
        }
        Ok(())
    }
    /// The engine's answer for more than a range: adjacent bytes as one piece, without holes.
    fn ask(&mut self, offset: u64, len: u64) {
        let size = self.truth.len() as u64;
        let from = offset.saturating_sub(self.rng.below(20)).min(size);
        let to = (offset + len + self.rng.below(20)).min(size).max(from);
        let mut pieces: Vec<(u64, u64, Source)> = Vec::new();
        for at in from..to {
            let address = self.truth[at as usize];
            match pieces.last_mut() {
                _ if address == 0 => {}
                Some((begin, len, Source::Mapped(first, _)))
                    if *begin + *len == at && *first + *len as usize == address =>
                {
                    *len += 1;
                }
                _ => pieces.push((at, 1, Source::Mapped(address, DEVICE))),
            }
        }
        self.late.push(LateAnswer { asked: self.version, size, from, to, pieces });
    }
}

fn follow(plan: &Plan) -> Result<u64, TestCaseError> {
    let mut pair = Pair::new(plan.seed);
    plan.each(|step| pair.step(step))?;
    Ok(pair.hits)
}

#[test]
fn what_is_cached_is_what_the_engine_has_in_all_orders() {
    let hits = std::cell::Cell::new(0);
    hold("maps cached", 60, plans(60, 8), |plan| {
        hits.set(hits.get() + follow(plan)?);
        Ok(())
    });
    assert!(hits.get() > 1000, "only {} reads were answered from what is cached", hits.get());
}
