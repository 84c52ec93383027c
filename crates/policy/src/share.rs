//! Fair shares of a tier whose room is scarce: whoever took more of it of late than its weight allows gets the next tier.
//!
//! A share is `weight / sum of the weights` of all who took some of late. It is a part of what all of them took, not of the tier: who asks for less than
//! its share leaves the rest to the others, and who is alone has no bound.

/// Who has less than this part of the total is not counted among the others.
const ACTIVE: f64 = 0.01;
/// Somebody is over its share beyond this many times of it.
const TOLERANCE: f64 = 1.25;

/// One of those who take space on a tier.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sharer {
    /// Bytes that it took of late.
    pub bytes: f64,
    /// Its weight; at least 1.
    pub weight: u16,
}

/// Returns true if `who` took more than its share. `others`: all but `who`.
pub fn is_over_share(who: Sharer, others: impl Iterator<Item = Sharer> + Clone) -> bool {
    let total: f64 = who.bytes + others.clone().map(|other| other.bytes).sum::<f64>();
    let weights: u64 =
        others.filter(|other| other.bytes >= ACTIVE * total).map(|other| u64::from(other.weight.max(1))).sum();
    let own = f64::from(who.weight.max(1));
    weights > 0 && who.bytes > TOLERANCE * total * own / (own + weights as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;

    fn sharer(mib: f64, weight: u16) -> Sharer {
        Sharer { bytes: mib * MIB, weight }
    }
    fn is_over(all: &[Sharer], at: usize) -> bool {
        let others = all.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, other)| *other);
        is_over_share(all[at], others)
    }

    /// A generator of numbers below a bound, from a seed.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % bound
        }
        fn sharers(&mut self) -> Vec<Sharer> {
            let many = 1 + self.below(8);
            (0..many).map(|_| sharer(self.below(1000) as f64, 1 + self.below(1000) as u16)).collect()
        }
    }

    #[test]
    fn shares_follow_weights() {
        for (own, other, is_one_over) in [
            (sharer(60.0, 1), sharer(40.0, 1), false),
            (sharer(63.0, 1), sharer(37.0, 1), true),
            (sharer(63.0, 2), sharer(37.0, 1), false),
            (sharer(84.0, 2), sharer(16.0, 1), true),
            (sharer(32.0, 1), sharer(68.0, 3), true),
            (sharer(31.0, 1), sharer(69.0, 3), false),
            (sharer(99.5, 1), sharer(0.5, 1), false), // it has all but stopped
            (sharer(0.5, 1), sharer(99.5, 1000), true),
        ] {
            assert_eq!(is_over(&[own, other], 0), is_one_over, "{own:?} beside {other:?}");
        }
    }

    #[test]
    fn what_holds_for_all() {
        for seed in 0..20_000 {
            let mut numbers = Numbers(seed);
            let all = numbers.sharers();
            let over: Vec<bool> = (0..all.len()).map(|at| is_over(&all, at)).collect();
            assert!(over.iter().any(|is_over| !is_over), "seed {seed}: somebody may always take: {all:?}");
            let at = numbers.below(all.len() as u64) as usize;
            // More weight never takes anything away, and only its ratio to those of the others counts.
            let mut heavier = all.clone();
            heavier[at].weight += numbers.below(1000) as u16;
            assert!(over[at] || !is_over(&heavier, at), "seed {seed}: {all:?}");
            let factor = 1 + numbers.below(30) as u16;
            let scaled: Vec<Sharer> = all.iter().map(|one| Sharer { weight: one.weight * factor, ..*one }).collect();
            assert_eq!(is_over(&scaled, at), over[at], "seed {seed}: {all:?}");
            // Who took less is over only if who took more, with no more weight, is.
            for other in 0..all.len() {
                if all[other].bytes >= all[at].bytes && all[other].weight <= all[at].weight {
                    assert!(!over[at] || over[other], "seed {seed}: {at} and {other} of {all:?}");
                }
            }
        }
    }

    /// All take pieces of their own sizes whenever they may: in the end each has about its share.
    #[test]
    fn amounts_come_to_the_weights() {
        for seed in 0..200 {
            let mut numbers = Numbers(seed);
            let many = 2 + numbers.below(4) as usize;
            let mut all: Vec<Sharer> = (0..many).map(|_| sharer(0.0, 1 + numbers.below(8) as u16)).collect();
            let pieces: Vec<f64> = (0..many).map(|_| MIB * (1 + numbers.below(8)) as f64).collect();
            for _ in 0..3000 {
                for at in 0..many {
                    if !is_over(&all, at) {
                        all[at].bytes += pieces[at];
                    }
                    for one in &mut all {
                        one.bytes *= 0.999;
                    }
                }
            }
            let (total, weights) = (
                all.iter().map(|one| one.bytes).sum::<f64>(),
                all.iter().map(|one| f64::from(one.weight)).sum::<f64>(),
            );
            for one in &all {
                let part = one.bytes / total / (f64::from(one.weight) / weights);
                assert!(part < TOLERANCE * 1.1, "seed {seed}: {part} of its share: {all:?}");
            }
        }
    }
}
