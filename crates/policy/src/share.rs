//! Fair shares of a tier whose room is scarce: whoever took more of it of late than its weight allows gets the next tier.
//!
//! Shares are hierarchical, as in hierarchical weighted fair queueing (HWFQ: Bennett and Zhang, *Hierarchical packet fair
//! queueing algorithms*, SIGCOMM 1996) and Hadoop's and Slurm's trees of shares: users share the tier by their weights,
//! the containers that a user takes space for share what the user has by theirs, and the clients of a user in a container
//! share that equally. What somebody does not want, those beside it get first: it stays with the user as long as the user
//! wants it.
//!
//! A share is `weight / sum of the weights` of all beside it that took some of late. It is a part of what all of them took,
//! not of the tier: who asks for less than its share leaves the rest to the others, and who is alone has no bound. On each
//! level somebody is within the share, and so on the level below: at any time somebody may take.

use std::collections::BTreeMap;

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

/// For whom space was taken: a client of a user, in a container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Taker {
    /// The user's numeric id.
    pub user: u32,
    /// The container.
    pub container: u64,
    /// The client.
    pub client: u64,
}

/// What was taken for somebody, and how much it weighs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Claim {
    /// For whom.
    pub taker: Taker,
    /// Bytes that it took of late.
    pub bytes: f64,
    /// The weight of its user; at least 1.
    pub user_weight: u16,
    /// The weight of its container; at least 1.
    pub container_weight: u16,
}

/// A level of the hierarchy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Users share the tier.
    User,
    /// Containers share what their user has.
    Container,
    /// Clients share what their user has in a container.
    Client,
}

/// The level on which `who` took more than its share, the first one from the top; `None`: it may take more.
pub fn over_share(who: Taker, all: &[Claim]) -> Option<Level> {
    let of_user = |claim: &&Claim| claim.taker.user == who.user;
    let of_container = |claim: &&Claim| of_user(claim) && claim.taker.container == who.container;
    let users = all.iter().map(|claim| (u64::from(claim.taker.user), claim.bytes, claim.user_weight));
    let containers =
        all.iter().filter(of_user).map(|claim| (claim.taker.container, claim.bytes, claim.container_weight));
    let clients = all.iter().filter(of_container).map(|claim| (claim.taker.client, claim.bytes, 1));
    if is_over_among(u64::from(who.user), users) {
        Some(Level::User)
    } else if is_over_among(who.container, containers) {
        Some(Level::Container)
    } else if is_over_among(who.client, clients) {
        Some(Level::Client)
    } else {
        None
    }
}

/// Returns true if `who` took more than its share of what all on its level took: (who, bytes, weight) of each claim.
fn is_over_among(who: u64, claims: impl Iterator<Item = (u64, f64, u16)>) -> bool {
    let mut all = sharers(claims);
    let Some(own) = all.remove(&who) else { return false };
    is_over_share(own, all.values().copied())
}

fn sharers(claims: impl Iterator<Item = (u64, f64, u16)>) -> BTreeMap<u64, Sharer> {
    let mut all: BTreeMap<u64, Sharer> = BTreeMap::new();
    for (who, bytes, weight) in claims {
        all.entry(who).or_insert(Sharer { bytes: 0.0, weight }).bytes += bytes;
    }
    all
}

/// A user's part of what was taken of late, and the part that its weight gives it beside those who took some; both of 1.
pub fn part_of_user(user: u32, all: &[Claim]) -> (f64, f64) {
    let users = sharers(all.iter().map(|claim| (u64::from(claim.taker.user), claim.bytes, claim.user_weight)));
    let Some(own) = users.get(&u64::from(user)).filter(|own| own.bytes > 0.0) else { return (0.0, 0.0) };
    let total: f64 = users.values().map(|one| one.bytes).sum();
    let active = users.values().filter(|one| *one == own || one.bytes >= ACTIVE * total);
    let weights: f64 = active.map(|one| f64::from(one.weight.max(1))).sum();
    (own.bytes / total, f64::from(own.weight.max(1)) / weights)
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

    fn claim(user: (u32, u16), container: (u64, u16), client: u64, mib: f64) -> Claim {
        let taker = Taker { user: user.0, container: container.0, client };
        Claim { taker, bytes: mib * MIB, user_weight: user.1, container_weight: container.1 }
    }

    #[test]
    fn containers_share_what_their_user_has_and_clients_what_their_container_has() {
        let (alice, bob) = ((1, 3), (2, 1));
        let all = [
            claim(alice, (10, 1), 100, 10.0),
            claim(alice, (11, 4), 101, 45.0),
            claim(alice, (11, 4), 102, 5.0),
            claim(bob, (20, 1000), 200, 20.0),
        ];
        let over = |at: usize| over_share(all[at].taker, &all);
        // Users have 60 and 20 by 3 and 1; of Alice's, containers have 10 and 50 by 1 and 4; of the latter, clients 45 and 5.
        assert_eq!([0, 1, 2, 3].map(over), [None, Some(Level::Client), None, None]);
        // A container's weight is nothing to other users, however large it is.
        let more = [all[0], all[1], all[2], claim(bob, (20, 1000), 200, 60.0)];
        assert_eq!(over_share(more[3].taker, &more), Some(Level::User));
        assert_eq!(over_share(more[0].taker, &more), None);
        // A container that two users write to counts for each with what was taken for it.
        let shared =
            [claim(alice, (10, 1), 100, 50.0), claim(alice, (11, 1), 101, 5.0), claim(bob, (10, 1), 200, 17.0)];
        assert_eq!(over_share(shared[0].taker, &shared), Some(Level::Container));
        assert_eq!(over_share(shared[2].taker, &shared), None);
        assert_eq!(over_share(Taker { user: 9, container: 9, client: 9 }, &all), None, "it has taken nothing yet");
        let (took, share) = part_of_user(1, &all);
        assert!((took - 0.75).abs() < 1e-9 && (share - 0.75).abs() < 1e-9, "{took} {share}");
        assert_eq!(part_of_user(9, &all), (0.0, 0.0));
    }

    impl Numbers {
        fn claims(&mut self) -> Vec<Claim> {
            let weights: Vec<u16> = (0..40).map(|_| 1 + self.below(1000) as u16).collect();
            let many = 1 + self.below(12);
            let mut all: BTreeMap<Taker, Claim> = BTreeMap::new();
            for _ in 0..many {
                let (user, container, client) = (self.below(4), self.below(4), self.below(12));
                let one = claim(
                    (user as u32, weights[user as usize]),
                    (container, weights[4 + container as usize]),
                    client,
                    1.0 + self.below(1000) as f64,
                );
                all.insert(one.taker, one);
            }
            all.into_values().collect()
        }
    }

    #[test]
    fn somebody_may_always_take_and_other_users_containers_do_not_matter() {
        for seed in 0..20_000 {
            let mut numbers = Numbers(seed);
            let all = numbers.claims();
            let over: Vec<_> = all.iter().map(|one| over_share(one.taker, &all)).collect();
            assert!(over.contains(&None), "seed {seed}: {all:?}");
            let at = numbers.below(all.len() as u64) as usize;
            let user = all[at].taker.user;
            // Whatever weights the containers of others have.
            let mut others = all.clone();
            for one in others.iter_mut().filter(|one| one.taker.user != user) {
                one.container_weight = 1 + numbers.below(1000) as u16;
            }
            assert_eq!(over_share(all[at].taker, &others), over[at], "seed {seed}: {all:?}");
            // More weight of a user never takes anything away from that user.
            for one in others.iter_mut().filter(|one| one.taker.user == user) {
                one.user_weight += 7;
            }
            let heavier = over_share(all[at].taker, &others);
            assert!(over[at] == Some(Level::User) || heavier == over[at], "seed {seed}: {all:?}");
        }
    }

    /// All take pieces whenever they may, in no order: in the end each user has about its share, and so has each container of
    /// what its user has.
    #[test]
    fn amounts_come_to_the_weights_on_both_levels() {
        let weights = [1, 2, 4];
        let each = |of: usize| (0..3_usize.pow(4)).map(move |case| weights[case / 3_usize.pow(of as u32) % 3]);
        for (((alice, bob), one), other) in each(0).zip(each(1)).zip(each(2)).zip(each(3)) {
            let mut numbers = Numbers(u64::from(alice * 1000 + bob * 100 + one * 10 + other));
            let mut all = [
                claim((1, alice), (10, one), 1, 0.0),
                claim((1, alice), (11, other), 2, 0.0),
                claim((2, bob), (20, 4), 3, 0.0),
            ];
            for _ in 0..6000 {
                let at = numbers.below(3) as usize;
                if over_share(all[at].taker, &all).is_none() {
                    all[at].bytes += MIB;
                }
                for one in &mut all {
                    one.bytes *= 0.999;
                }
            }
            let [first, second, third] = all.map(|claim| claim.bytes);
            let part = |own: f64, beside: f64, (weight, others): (u16, u16)| {
                own / (own + beside) / (f64::from(weight) / f64::from(weight + others))
            };
            let parts = [
                part(first + second, third, (alice, bob)),
                part(third, first + second, (bob, alice)),
                part(first, second, (one, other)),
                part(second, first, (other, one)),
            ];
            assert!(parts.iter().all(|part| *part < TOLERANCE * 1.05), "{parts:?}: {all:?}");
        }
    }
}
