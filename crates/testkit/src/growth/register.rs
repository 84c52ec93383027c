//! The load on the register: every node says each beat that it lives, asks for the view, and is told who else was heard.

use cenote_ha::{Home, Settings, View};

use super::figures::Figures;
use super::nodes::BATCH_NS_MAX;
use super::world::{Spec, Step, World};
use crate::rng::Rng;

/// What an answer holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    /// Each node's last sign of life, and the whole view if it is a new one: as `ha`'s simulation has it.
    Whole,
    /// What changed since the last answer: nodes that are late, members and homes that are new.
    News,
}

/// Who keeps the register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeper {
    /// The first node's forwarding thread.
    FirstNode(Answers),
    /// A key of etcd, changed by each beat.
    Etcd,
    /// An object of RADOS, changed by each beat.
    Rados,
}

/// All keepers with what they are called.
pub const ALL: [(Keeper, &str); 4] = [
    (Keeper::FirstNode(Answers::Whole), "first node, whole answers"),
    (Keeper::FirstNode(Answers::News), "first node, news only"),
    (Keeper::Etcd, "etcd, a beat is a write"),
    (Keeper::Rados, "RADOS, a beat is a write"),
];

/// Bytes of a view, by docs/format.md.
pub fn view_bytes(view: &View) -> u64 {
    let members: usize = view.members.iter().map(|member| 2 + 4 + member.address.len() + 16 + 1 + 8).sum();
    let moving = |home: &Home| 1 + home.moving.map_or(0, |_| 2 + 2);
    let homes: usize =
        view.homes.iter().map(|home| 2 + 2 + 2 + 8 + 8 + 1 + 4 + 2 * home.mirrors.len() + moving(home)).sum();
    (16 + 8 + 8 + 4 + members + 4 + homes) as u64
}

/// Microseconds of the first node's thread for one question and its answer. `news_bytes`: of a view that the asker lacks.
pub fn service_us(figures: &Figures, nodes: usize, answers: Answers, news_bytes: u64) -> f64 {
    let signs = match answers {
        Answers::Whole => nodes as u64,
        Answers::News => 1,
    };
    let bytes = signs * figures.sign_bytes.value as u64 + figures.request_bytes.value as u64 + news_bytes;
    let calls_ns = 2.0 * Figures::ns(figures.syscall_us);
    let asked_ns = figures.message_ns(figures.request_bytes.value as u64);
    (asked_ns + figures.message_ns(bytes) + signs as f64 * figures.sign_ns.value + calls_ns) / 1e3
}

/// Microseconds that one beat takes of whoever keeps the register.
pub fn beat_us(figures: &Figures, keeper: Keeper, nodes: usize) -> f64 {
    match keeper {
        Keeper::FirstNode(answers) => service_us(figures, nodes, answers, 0),
        Keeper::Etcd => 1e6 / figures.etcd_ops_s.value,
        Keeper::Rados => 1e6 / figures.rados_ops_s.value,
    }
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Nodes.
    pub nodes: usize,
    /// Beats a second.
    pub beats_per_s: f64,
    /// Share of its time for which the keeper is busy; above 1: it cannot.
    pub load: f64,
    /// Of beats in two seconds: median and 99th percentile from question to answer, in ms.
    pub ms: (f64, f64),
    /// Share of answers that come after a lease: whose asker stands still.
    pub late: f64,
    /// Bytes that leave the keeper each second if it keeps up.
    pub bytes_per_s: f64,
    /// The shortest beat, in ms, with which the keeper is busy for half of its time.
    pub beat_ms_least: f64,
}

/// All nodes beat for two seconds.
pub fn run(figures: &Figures, settings: &Settings, nodes: usize, keeper: Keeper, seed: u64) -> Outcome {
    let (mut world, mut rng) = (World::default(), Rng::new(seed));
    let turn_ns = nodes as f64 * figures.poll_ns.value;
    let thread = world.station(match keeper {
        Keeper::FirstNode(_) => Spec { batch_ns_max: BATCH_NS_MAX, turn_ns: turn_ns as u64, ..Spec::DEVICE },
        Keeper::Etcd | Keeper::Rados => Spec::DEVICE,
    });
    let service_us = beat_us(figures, keeper, nodes);
    let wire = Step::wait(Figures::ns(figures.wire_us));
    let mut begun_ns: Vec<u64> = Vec::new();
    for _ in 0..nodes {
        let phase = rng.below(settings.beat_us);
        for at_us in (phase..2_000_000).step_by(settings.beat_us as usize) {
            let way = vec![Step::wait(at_us as f64 * 1e3), wire, Step::at(thread, service_us * 1e3, 0, 0), wire];
            world.launch(begun_ns.len() as u64, way);
            begun_ns.push(at_us * 1000);
        }
    }
    let mut took_us: Vec<f64> = Vec::with_capacity(begun_ns.len());
    while let Some(beat) = world.run_on() {
        took_us.push((world.now_ns() - begun_ns[beat as usize]) as f64 / 1e3);
    }
    took_us.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| took_us[(took_us.len() as f64 * part) as usize] / 1e3;
    let late = took_us.iter().filter(|us| **us >= settings.lease_us as f64).count() as f64 / took_us.len() as f64;
    let per_s = nodes as f64 * 1e6 / settings.beat_us as f64;
    let signs = if keeper == Keeper::FirstNode(Answers::Whole) { nodes as f64 } else { 1.0 };
    Outcome {
        nodes,
        beats_per_s: per_s,
        load: per_s * service_us / 1e6,
        ms: (at(0.5), at(0.99)),
        late,
        bytes_per_s: per_s * (signs * figures.sign_bytes.value + figures.request_bytes.value),
        beat_ms_least: nodes as f64 * service_us / 1e3 / 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nodes: usize, keeper: Keeper) -> Outcome {
        run(&Figures::measured(), &Settings::default(), nodes, keeper, 3)
    }

    #[test]
    fn a_keeper_with_time_left_answers_at_once_and_one_without_does_not() {
        for (keeper, _) in ALL {
            let few = at(10, keeper);
            assert!(few.load < 0.5 && few.late == 0.0 && few.ms.1 < 20.0, "{keeper:?} {few:?}");
        }
        for keeper in [Keeper::Etcd, Keeper::Rados, Keeper::FirstNode(Answers::Whole)] {
            let many = at(10_000, keeper);
            assert!(many.load > 1.0 && many.late > 0.3, "{keeper:?} {many:?}");
        }
        let news = at(10_000, Keeper::FirstNode(Answers::News));
        assert!(news.load < 0.8 && news.late == 0.0, "{news:?}");
    }

    #[test]
    fn whole_answers_cost_the_square_of_the_nodes() {
        let keeper = Keeper::FirstNode(Answers::Whole);
        let times = at(4000, keeper).bytes_per_s / at(1000, keeper).bytes_per_s;
        assert!((14.0..16.1).contains(&times), "{times}");
    }
}
