//! Assigns the space of tiers greedily, by gain per byte. That is no optimum (the problem is a multiple knapsack); it
//! is at most one item per tier away from one when items are small in comparison with tiers, which they mostly are.

/// A candidate for space.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Item {
    /// Its bytes.
    pub bytes: u64,
    /// Seconds if it stays in place.
    pub now_s: f64,
    /// Seconds on each tier; `None` if it cannot be there.
    pub there_s: Vec<Option<f64>>,
}

impl Item {
    /// The tiers on which it gains enough and which have space, the best first.
    fn options(&self, room: &[u64], least_s: f64) -> Vec<(usize, f64)> {
        let least = self.now_s - least_s.max(self.now_s * LEAST_SHARE);
        let mut options: Vec<(usize, f64)> = self
            .there_s
            .iter()
            .enumerate()
            .filter_map(|(tier, seconds)| Some((tier, (*seconds)?)))
            .filter(|(tier, seconds)| room[*tier] >= self.bytes && *seconds <= least)
            .collect();
        options.sort_by(|a, b| a.1.total_cmp(&b.1));
        options
    }
}

/// Least gain, as a share of the present time, that is worth a move.
const LEAST_SHARE: f64 = 0.05;

/// The tier of each item, or none. Subtracts the used space from `room`.
///
/// Items are ordered by the seconds per byte that they would lose with their second choice: an item that is nearly as
/// well off elsewhere leaves the space to others.
pub(crate) fn choose(items: &[Item], room: &mut [u64], least_s: f64) -> Vec<Option<usize>> {
    let mut chosen = vec![None; items.len()];
    let mut open: Vec<usize> = (0..items.len()).collect();
    while !open.is_empty() {
        let mut best: Option<(f64, usize, usize)> = None;
        open.retain(|at| {
            let options = items[*at].options(room, least_s);
            let Some((tier, seconds)) = options.first().copied() else { return false };
            let second_s = options.get(1).map_or(items[*at].now_s, |(_, seconds)| *seconds);
            let gain = (second_s - seconds).max(1e-12) / items[*at].bytes.max(1) as f64;
            if best.is_none_or(|(most, _, _)| gain > most) {
                best = Some((gain, *at, tier));
            }
            true
        });
        let Some((_, at, tier)) = best else { break };
        room[tier] -= items[at].bytes;
        chosen[at] = Some(tier);
        open.retain(|other| *other != at);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(bytes: u64, now_s: f64, there_s: [f64; 2]) -> Item {
        Item { bytes, now_s, there_s: there_s.map(Some).to_vec() }
    }

    #[test]
    fn room_goes_to_whoever_gains_most_by_each_byte() {
        let items = [item(60, 10.0, [1.0, 9.0]), item(50, 10.0, [0.5, 9.0]), item(50, 10.0, [1.0, 9.9])];
        let mut room = [100, 1000];
        assert_eq!(choose(&items, &mut room, 0.0), [Some(1), Some(0), Some(0)]);
        assert_eq!(room, [0, 940]);
    }

    #[test]
    fn who_is_nearly_as_well_off_elsewhere_makes_room() {
        let items = [item(100, 10.0, [1.0, 1.1]), item(100, 9.0, [1.0, 8.0])];
        assert_eq!(choose(&items, &mut [100, 100], 0.0), [Some(1), Some(0)]);
    }

    #[test]
    fn what_gains_little_or_finds_no_room_stays() {
        let items = [item(1, 1.0, [0.97, 2.0]), item(5000, 9.0, [1.0, 1.0]), item(1, 1e-4, [0.0, 0.0])];
        assert_eq!(choose(&items, &mut [1000, 1000], 1e-3), [None, None, None]);
    }

    /// Compares with the best of all assignments on small problems: always reaches most of its gain.
    #[test]
    fn the_greedy_choice_is_near_the_best_one() {
        let mut state = 0x1234_5678_9abc_def1_u64;
        let mut next = |most: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % most
        };
        let (mut got, mut most) = (0.0, 0.0);
        for _ in 0..300 {
            let items: Vec<Item> = (0..7)
                .map(|_| {
                    let now = 1.0 + next(100) as f64;
                    item(1 + next(30), now, [now * next(50) as f64 / 100.0, now * (40 + next(50)) as f64 / 100.0])
                })
                .collect();
            let room = [40, 50];
            let gain = |chosen: &[Option<usize>]| -> f64 {
                let each = chosen.iter().zip(&items).map(|(tier, item)| match tier {
                    Some(tier) => item.now_s - item.there_s[*tier].unwrap(),
                    None => 0.0,
                });
                each.sum()
            };
            let greedy = gain(&choose(&items, &mut room.clone(), 0.0));
            let mut best: f64 = 0.0;
            for code in 0..3_usize.pow(7) {
                let chosen: Vec<Option<usize>> =
                    (0..7).map(|at| [None, Some(0), Some(1)][code / 3_usize.pow(at) % 3]).collect();
                let taken = |tier: usize| -> u64 {
                    chosen.iter().zip(&items).filter(|(c, _)| **c == Some(tier)).map(|(_, item)| item.bytes).sum()
                };
                if taken(0) <= room[0] && taken(1) <= room[1] {
                    best = best.max(gain(&chosen));
                }
            }
            assert!(greedy >= best * 0.6, "{greedy} of {best}");
            (got, most) = (got + greedy, most + best);
        }
        assert!(got >= most * 0.93, "{got} of {most}");
    }
}
