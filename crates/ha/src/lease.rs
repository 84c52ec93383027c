//! Leases of hosts: how a host that is cut off falls silent by itself, and how long its successor waits for that.
//!
//! A host acts for `lease_us` by its own clock from when it *asked* the register and was told that it is host. A successor
//! waits from when it *was told* of its own term. Whoever is told an older term was told so before the register took the
//! newer one, and had asked before that; so the wait covers the lease if it is longer by what two clocks can differ
//! (Gray and Cheriton, *Leases*, SOSP 1989). Clocks on the wall play no part.
//!
//! The wait is shorter if it is known when the former host asked last ([`acts_from_us`]). Where nodes ask by boards:
//!
//! 1. A lease comes with the answer of a board alone, and counts from the question. The board notes a question when it
//!    takes it in, then looks at the register, then answers. So a lease counts from no later than what the board noted.
//! 2. A board says when it noted the last question of each node, *after* a look that found a certain view. What it takes
//!    in later it answers after a later look, which finds that view or a newer one: by those the former host is none.
//!    So a question that is still in the network, or in a buffer of the board, when the board speaks gives no lease; and
//!    one that gave a lease has been noted, and is told of. A board that was started anew says no earlier time than its
//!    start, which is later than all that it answered before.
//! 3. The board of the former host itself is gone with it, or may be; nobody can ask it. So the answers of a node's own
//!    board give it no lease while the node of another board takes part ([`counts`]). If none did, that was before the
//!    first of those that take part now was admitted, in whose view the own board counts no more.
//! 4. Hosts before the former one asked before the view that made it host.
//!
//! Nothing of this depends on why the former host was excluded, or on whether its process lives: what refuses
//! connections in its name may be a firewall.

use cenote_model::NodeId;

use crate::{History, HomeId, Settings, View};

const MILLION: u64 = 1_000_000;

/// Until when an answer of the register lets a host act, by the host's clock.
pub fn lease_until_us(asked_us: u64, settings: &Settings) -> u64 {
    asked_us + settings.lease_us
}

/// When all leases that former hosts can have are over, by the clock of a node that was told of its term at `told_us`.
///
/// The former host's clock may be slow, the own one fast: `lease * (1 + drift) / (1 - drift)`.
pub fn leases_over_us(told_us: u64, settings: &Settings) -> u64 {
    let drift = settings.drift_ppm_max.min(MILLION / 2);
    told_us + (settings.lease_us * (MILLION + drift)).div_ceil(MILLION - drift)
}

/// Returns true if the answer of this board to node `me` gives a lease. `boards`: all nodes that have one. See the module.
pub(crate) fn counts(me: NodeId, board: NodeId, boards: &[NodeId], view: &View) -> bool {
    let is_alone = !boards.iter().any(|other| *other != me && view.is_live(*other));
    // Without mirrors there are no heirs, whoever is lost, unless homes are shared; both hold for the cluster's whole life.
    board != me || is_alone || view.homes.iter().all(|home| home.mirrors_wanted == 0 && !home.is_shared)
}

/// When the host of a home may begin, by its own clock: all leases of former hosts are over. None if it knows another term.
pub fn acts_from_us(home: HomeId, term: u64, history: &History, settings: &Settings) -> Option<u64> {
    let told = history.told_us(home, term)?;
    let last = last_asked_us(home, history).map_or(told, |last| last.min(told));
    Some(leases_over_us(last, settings))
}

/// The latest time at which a former host of a home can have asked what gave it a lease; none as long as a board has not
/// said what it heard, or if too little is known. Each time is that of the event by the clock of this node, or later, but for
/// what clocks can differ, which [`leases_over_us`] covers: a board's clock measures less of a time of which nothing is left
/// than the own one measures of the whole.
fn last_asked_us(home: HomeId, history: &History) -> Option<u64> {
    let (former, told_us) = history.former_host(home)?;
    let (view, ending) = (history.view()?, history.ending(former)?);
    let boards = history.boards();
    let mut last = told_us;
    for board in boards.iter().filter(|board| **board != former) {
        last = last.max(ending.heard_us(*board)?);
    }
    if boards.is_empty() || boards.contains(&former) {
        let others = boards.iter().filter(|board| **board != former && view.is_live(**board));
        last = last.max(others.filter_map(|board| history.admitted_us(*board)).min()?);
    }
    Some(last)
}

/// Returns true if this node may act for the home now: the register said so, the lease is not over, and the leases of
/// former hosts are.
pub fn may_act(me: NodeId, view: &View, home: HomeId, history: &History, settings: &Settings, now_us: u64) -> bool {
    let Some(home) = view.home(home).filter(|home| home.host == me && view.is_live(me)) else { return false };
    acts_from_us(home.id, home.term, history, settings).is_some_and(|from| now_us >= from)
        && history.leased_us().is_some_and(|asked| now_us < lease_until_us(asked, settings))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{ClusterId, Event, Home, Identity, Member, MemberState, Seen};

    #[test]
    fn the_wait_covers_the_lease_whatever_the_clocks_do() {
        for drift_ppm_max in [0, 1, 500, 50_000] {
            let settings = Settings { drift_ppm_max, lease_us: 800_000, ..Settings::default() };
            let drift = drift_ppm_max as f64 / 1e6;
            let wait = (leases_over_us(7, &settings) - 7) as f64;
            assert!(wait / (1.0 + drift) >= 800_000.0 / (1.0 - drift), "{drift_ppm_max}: {wait}");
            assert!(wait <= 800_000.0 * (1.0 + 2.2 * drift) + 1.0, "{drift_ppm_max}: {wait} is too long");
        }
    }

    const HOME: HomeId = HomeId(1);
    const HEIR: NodeId = NodeId(2);

    /// Four nodes, of which these are excluded, each by a view; the home has this host and term.
    fn view(number: u64, excluded: &[(u16, u64)], host: u16, term: u64) -> View {
        let member = |id: u16| Member {
            id: NodeId(id),
            address: String::new(),
            identity: Identity(0),
            state: excluded.iter().find(|(node, _)| *node == id).map_or(
                MemberState::Live { since_view: 1 },
                |(_, since_view)| MemberState::Excluded { is_owed: true, since_view: *since_view },
            ),
            is_leaving: false,
        };
        let (host, mirrors) = (NodeId(host), vec![HEIR]);
        let home = Home {
            id: HOME,
            host,
            wanted_host: host,
            mirrors,
            moving: None,
            term,
            mirrors_wanted: 1,
            is_shared: false,
        };
        let members = (1..=4).map(member).collect();
        View { cluster: ClusterId(1), number, survives: 1, members, homes: vec![home] }
    }

    /// What the heir sees.
    struct Seeing(History, Settings);

    impl Seeing {
        fn new(boards: &[u16]) -> Self {
            let boards = boards.iter().copied().map(NodeId).collect();
            Self(History::of(HEIR, boards), Settings::default())
        }
        fn view(&mut self, at_us: u64, view: View) {
            let seen = Seen::Register { view: Arc::new(view), asked_us: at_us - 1000 };
            self.0.record(Event { at_us, seen }, &self.1);
        }
        /// A board says at this time, having found a view, when it heard node 1.
        fn board(&mut self, at_us: u64, board: u16, view: u64, heard_us: u64) {
            let heard = vec![(NodeId(1), heard_us)];
            let seen = Seen::Board { board: NodeId(board), view, asked_us: at_us - 1000, heard };
            self.0.record(Event { at_us, seen }, &self.1);
        }
        /// The time from which on the wait for a whole lease counts.
        fn counted_us(&self, term: u64) -> u64 {
            acts_from_us(HOME, term, &self.0, &self.1).unwrap() - leases_over_us(0, &self.1)
        }
    }

    #[test]
    fn what_all_boards_heard_since_shortens_the_wait_and_nothing_less_does() {
        let mut heir = Seeing::new(&[1, 2, 3]);
        heir.view(1_000_000, view(1, &[], 1, 1));
        heir.view(9_000_000, view(2, &[(1, 2)], 2, 2));
        assert_eq!(heir.counted_us(2), 9_000_000);
        heir.board(9_000_000, 2, 2, 8_000_000);
        assert_eq!(heir.counted_us(2), 9_000_000, "node 3 has said nothing");
        heir.board(9_010_000, 3, 1, 8_100_000);
        assert_eq!(heir.counted_us(2), 9_000_000, "it may have given a lease after that");
        heir.board(9_020_000, 3, 2, 8_200_000);
        assert_eq!(heir.counted_us(2), 8_200_000);
        heir.board(9_030_000, 2, 2, 9_025_000);
        assert_eq!(heir.counted_us(2), 8_200_000, "what it asks since gets it no lease");
        assert_eq!(acts_from_us(HOME, 1, &heir.0, &heir.1), None);
        // Who was heard later than the new term was told of is waited for no longer than without boards.
        let mut heir = Seeing::new(&[3]);
        heir.view(1_000_000, view(1, &[], 1, 1));
        heir.view(9_000_000, view(2, &[(1, 2)], 2, 2));
        heir.board(9_020_000, 3, 2, 9_010_000);
        assert_eq!(heir.counted_us(2), 9_000_000);
    }

    #[test]
    fn hosts_before_the_former_one_and_those_of_skipped_terms_are_waited_for() {
        let mut heir = Seeing::new(&[3]);
        heir.view(1_000_000, view(1, &[], 4, 1));
        heir.view(8_900_000, view(2, &[(4, 2)], 1, 2));
        heir.view(9_000_000, view(3, &[(1, 3), (4, 2)], 2, 3));
        heir.board(9_010_000, 3, 3, 8_000_000);
        assert_eq!(heir.counted_us(3), 8_900_000, "node 4 asked until node 1 became host");
        let mut heir = Seeing::new(&[3]);
        heir.view(1_000_000, view(1, &[], 1, 1));
        heir.view(9_000_000, view(4, &[(1, 4)], 2, 3));
        heir.board(9_010_000, 3, 4, 8_000_000);
        assert_eq!(heir.counted_us(3), 9_000_000, "nobody knows who was host in term 2");
        // Excluded, back, and excluded again, which this node missed: what boards said does not count any more.
        let mut heir = Seeing::new(&[3]);
        heir.view(1_000_000, view(1, &[], 1, 1));
        heir.view(2_000_000, view(2, &[(1, 2)], 1, 1));
        heir.board(2_010_000, 3, 2, 1_900_000);
        heir.view(9_000_000, view(5, &[(1, 5)], 2, 2));
        assert_eq!(heir.counted_us(2), 9_000_000);
        heir.board(9_010_000, 3, 5, 8_500_000);
        assert_eq!(heir.counted_us(2), 8_500_000);
    }

    #[test]
    fn a_node_s_own_board_gives_it_a_lease_only_while_no_other_board_s_node_takes_part() {
        let boards = [1, 2, 3].map(NodeId);
        let all = view(1, &[], 1, 1);
        assert!(!counts(NodeId(1), NodeId(1), &boards, &all) && counts(NodeId(1), NodeId(3), &boards, &all));
        assert!(!counts(NodeId(1), NodeId(1), &boards, &view(2, &[(3, 2)], 1, 1)));
        let alone = view(3, &[(2, 3), (3, 2)], 1, 1);
        assert!(counts(NodeId(1), NodeId(1), &boards, &alone) && counts(NodeId(1), NodeId(1), &[NodeId(1)], &all));
        let mut unprotected = all;
        unprotected.homes[0].mirrors_wanted = 0;
        assert!(counts(NodeId(1), NodeId(1), &boards, &unprotected));
        unprotected.homes[0].is_shared = true;
        assert!(!counts(NodeId(1), NodeId(1), &boards, &unprotected), "any node is an heir");
        // It may have been alone until the first of the others was admitted.
        let mut heir = Seeing::new(&[1, 3]);
        heir.view(1_000_000, view(3, &[(3, 2)], 1, 1));
        heir.view(8_900_000, view(4, &[], 1, 1));
        heir.view(9_000_000, view(5, &[(1, 5)], 2, 2));
        heir.board(9_010_000, 3, 5, 8_000_000);
        assert_eq!(heir.counted_us(2), 8_900_000);
        // Nobody but itself could give it one, and nobody knows when.
        let mut heir = Seeing::new(&[1]);
        heir.view(1_000_000, view(1, &[], 1, 1));
        heir.view(9_000_000, view(2, &[(1, 2)], 2, 2));
        assert_eq!(heir.counted_us(2), 9_000_000);
    }
}
