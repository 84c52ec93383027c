//! What must hold at every moment, and what once all faults have ended.

use cenote_ha::{Home, Member, View};

use crate::cluster::{Cluster, END_US};
use crate::node::Node;
use crate::register::Beat;

impl Cluster {
    pub fn only_one_acts(&self) {
        for home in &self.register.view.homes {
            let acts = |node: &&Node| node.may_act(home.id, &self.settings, self.now_us);
            let actors: Vec<u16> = self.nodes.iter().filter(acts).map(|node| node.id.0).collect();
            assert!(actors.len() <= 1, "{} has the hosts {actors:?} at once", home.id);
        }
    }

    /// The register's compare-and-swap, and what each change of the view must keep to.
    pub fn swap(&mut self, beat: &Beat, next: &View) {
        if next.number != self.register.view.number + 1 {
            self.tally.lost_swaps += 1;
            return;
        }
        let before = std::sync::Arc::clone(&self.register.view);
        assert!(before.is_live(beat.from), "node {} proposes and does not take part", beat.from.0);
        for member in &next.members {
            self.changed(&before, member, next);
        }
        let owed = next.owed().count();
        assert!(
            owed <= next.survives || next.is_shared(),
            "{owed} losses at once, and the layout survives {}",
            next.survives
        );
        for home in &next.homes {
            self.home_changed(&before, home, next);
        }
        self.trace(|| format!("the register takes view {} of node {}", next.number, beat.from.0));
        self.register.view = std::sync::Arc::new(next.clone());
    }

    fn changed(&mut self, before: &View, member: &Member, next: &View) {
        assert!(!before.is_given_up(member.id) || member.is_given_up(), "node {} was given up", member.id.0);
        let was_live = before.is_live(member.id);
        let is_live = member.is_live();
        let known = &self.register.nodes[&member.id];
        if was_live && !is_live {
            let silence = known.silence_us(self.now_us);
            let is_seen = silence * 5 / 4 >= self.settings.silence_us_min
                || known.reported_us.is_some_and(|at| at + 3_000_000 > self.now_us)
                || known.left_us.is_some_and(|at| at + 3_000_000 > self.now_us)
                || known.hello.as_ref().is_some_and(|hello| !hello.lost_devices.is_empty())
                || !self.boards.is_empty(); // who proposes may have no way to the board that heard it
            assert!(is_seen, "node {} is excluded without silence or report", member.id.0);
            self.tally.excluded += 1;
        }
        if !was_live && is_live {
            let held = known.held.get(&(next.number - 1)).copied();
            let has_all = held.unwrap_or_else(|| panic!("node {} is readmitted with an old view", member.id.0));
            let is_owed = before.owed().any(|(node, _)| node == member.id);
            assert!(has_all || !is_owed, "node {} is counted on and empty", member.id.0);
            self.tally.readmitted += 1;
            self.destroyed.remove(&member.id);
        }
        let settled =
            before.owed().any(|(node, _)| node == member.id) && !next.owed().any(|(node, _)| node == member.id);
        self.tally.settled += u64::from(settled && !is_live);
    }

    fn home_changed(&mut self, before: &View, home: &Home, next: &View) {
        let was = before.home(home.id).expect("homes stay");
        let is_waiting = was.host == home.host && next.is_given_up(home.host);
        assert!(next.is_live(home.host) || is_waiting, "{} has an excluded host", home.id);
        assert!(!next.is_lost(home) || before.is_lost(was), "{} is lost, and nobody gave its copies up", home.id);
        let is_mirrored_by_live = home.mirrors.iter().all(|node| next.is_live(*node) && *node != home.host);
        assert!(is_mirrored_by_live, "{home:?}");
        assert!((was.host == home.host) == (was.term == home.term) && home.term >= was.term, "{was:?} {home:?}");
        let is_able = was.host == home.host || was.is_shared || was.mirrors.contains(&home.host);
        assert!(is_able, "{} goes to who has no journal", home.id);
        self.tally.taken_over += u64::from(was.host != home.host);
        self.tally.shared_taken_over += u64::from(was.host != home.host && home.is_shared);
        self.tally.mirrors_added +=
            home.mirrors.iter().filter(|node| !was.copies().any(|one| one == **node)).count() as u64;
        let dropped = was.mirrors.iter().filter(|node| next.is_live(**node) && !home.copies().any(|one| one == **node));
        self.tally.mirrors_dropped += dropped.count() as u64;
        let has_moved = was.moving.is_some_and(|(from, to)| home.mirrors.contains(&to) && !home.is_on(from));
        self.tally.moves_done += u64::from(has_moved);
    }

    pub fn is_live_again(&self) {
        let view = &self.register.view;
        for member in view.members.iter().filter(|member| !member.is_given_up()) {
            assert!(member.is_live(), "node {} is not back: {view:?}", member.id.0);
        }
        for home in view.homes.iter().filter(|home| !view.is_lost(home)) {
            let wanted = home.mirrors_wanted.min(view.live().count() - 1);
            let (_, at) = self.acked[&home.id];
            assert!(at + 2_000_000 > END_US, "{} has acknowledged nothing since {at}: {view:?}", home.id);
            assert_eq!(home.mirrors.len(), wanted, "{} has too few mirrors: {view:?}", home.id);
            assert_eq!(home.moving, None, "{}: {view:?}", home.id);
        }
    }
}
