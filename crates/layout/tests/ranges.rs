//! Tables of ranges and coverages beside models that have an entry for each byte.

use cenote_layout::{Coverage, Ranges};
use cenote_workload::Rng;

const BYTES: u64 = 64;

fn range(rng: &mut Rng) -> std::ops::Range<u64> {
    let begin = rng.below(BYTES);
    begin..rng.between(begin, BYTES)
}

#[test]
fn later_values_of_ranges_win() {
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let (mut table, mut model) = (Ranges::new(0_u64), [0_u64; BYTES as usize]);
        for _ in 0..rng.between(1, 30) {
            let (range, value) = (range(&mut rng), rng.below(4));
            if value == 0 {
                table.clear(range.clone());
            } else {
                table.set(range.clone(), value);
            }
            model[range.start as usize..range.end as usize].fill(value);
            let over: Vec<_> = table.iter().collect();
            assert!(over.iter().all(|(range, _)| !range.is_empty()), "seed {seed}: {over:?}");
            let apart = |pair: &[(std::ops::Range<u64>, &u64)]| {
                pair[0].0.end < pair[1].0.start || (pair[0].0.end == pair[1].0.start && pair[0].1 != pair[1].1)
            };
            assert!(over.windows(2).all(apart), "seed {seed}: {over:?}");
        }
        for at in 0..BYTES {
            assert_eq!(*table.at(at), model[at as usize], "seed {seed}, byte {at}");
        }
        let asked = range(&mut rng);
        let mut at = asked.start;
        for (part, value) in table.over(asked.clone()) {
            assert!(part.start == at && part.end > at, "seed {seed}: {part:?} of {asked:?}");
            assert!(model[part.start as usize..part.end as usize].iter().all(|one| one == value), "seed {seed}");
            at = part.end;
        }
        assert_eq!(at, asked.end, "seed {seed}");
    }
}

#[test]
fn a_stripe_is_full_when_each_byte_was_written() {
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let (mut coverage, mut model) = (Coverage::default(), [false; BYTES as usize]);
        for _ in 0..rng.between(1, 30) {
            let written = range(&mut rng);
            coverage.add(written.clone());
            model[written.start as usize..written.end as usize].fill(true);
            let asked = range(&mut rng);
            let full = model[asked.start as usize..asked.end as usize].iter().all(|written| *written);
            assert_eq!(coverage.covers(asked.clone()), full, "seed {seed}: {asked:?} of {coverage:?}");
            assert_eq!(coverage.bytes(), model.iter().filter(|written| **written).count() as u64, "seed {seed}");
        }
    }
}
