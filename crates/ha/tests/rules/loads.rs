//! Which node gets a copy of a home, or a home, when several could: by room and by what they write; and what a person moves.

use cenote_ha::{Action, Cost, Debt, HomeId, Loads, Measure, MirrorState, Report, Room, Seen, View, balance};
use cenote_model::NodeId;

use crate::scene::{Scene, has, view, why};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What the host of a home reports: what it costs.
fn cost(home: u16, mib: u64, written_mib: u64) -> Report {
    Report::Cost { home: HomeId(home), cost: Cost { memory: mib * MIB, disk: 0, written: written_mib * MIB } }
}

fn room(mib: u64) -> Report {
    Report::Room(Room { memory: mib * MIB, disk: GIB })
}

/// Five nodes of which home 0 is without its mirror, seen by its host.
fn few() -> Scene {
    let mut view = view(5, 1);
    view.homes[0].mirrors.clear();
    Scene::new(0, view)
}

/// The node that is to get a copy of home 0.
#[track_caller]
fn chosen(scene: &Scene) -> u16 {
    let proposal = scene.decide();
    let found = proposal.decided.iter().find_map(|decided| match decided.action {
        Action::Rebuild { what: Debt::Journal { home: HomeId(0), node } } => Some(node.0),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no copy is made: {proposal:#?}"))
}

#[test]
fn a_node_without_room_is_not_chosen_where_another_has_some() {
    let mut scene = few();
    // Home 0 was mirrored on node 1, which has one copy less than others since.
    assert_eq!(chosen(&scene), 1, "nobody has said anything: the fewest copies");
    scene.report(0, &[cost(0, 400, 0)]);
    scene.report(1, &[room(450)]);
    assert_eq!(chosen(&scene), 2, "a quarter more than the home has must be free");
    scene.report(1, &[room(500)]);
    assert_eq!(chosen(&scene), 1);
    for node in 1..5 {
        scene.report(node, &[room(10)]);
    }
    assert_eq!(chosen(&scene), 1, "where nobody has room, as before");
}

#[test]
fn a_node_that_writes_much_is_chosen_last_and_small_differences_are_none() {
    let mut scene = few();
    scene.report(1, &[cost(1, 1, 40)]); // which node 2 mirrors
    assert_eq!(chosen(&scene), 3);
    scene.report(3, &[cost(3, 1, 33)]); // which node 4 mirrors
    assert_eq!(chosen(&scene), 1, "all write much: of one class, by copies and number");
    scene.report(1, &[cost(1, 1, 70)]);
    assert_eq!(chosen(&scene), 3, "half as much");
    scene.report(1, &[cost(1, 1, 33)]);
    assert_eq!(chosen(&scene), 1);
}

#[test]
fn a_copy_that_is_under_way_is_gone_on_with() {
    let mut scene = few();
    scene.report(0, &[cost(0, 400, 0)]);
    scene.see(Seen::Mirror { home: HomeId(0), node: NodeId(3), state: MirrorState::Has(7) });
    // It has less room now, since it has most of the copy.
    scene.report(3, &[room(50), cost(3, 1, 500)]);
    assert_eq!(chosen(&scene), 3);
    scene.pass(1_000_000, &[]);
    assert_eq!(chosen(&scene), 1, "nothing was heard of it for a while");
}

#[test]
fn what_is_said_of_another_nodes_home_does_not_count() {
    let mut scene = few();
    scene.report(3, &[cost(1, 1, 400)]);
    assert_eq!(chosen(&scene), 1);
}

#[test]
fn the_mirror_that_writes_less_takes_over() {
    let heir = |reports: &[(u16, Report)]| {
        let mut scene = Scene::new(4, view(5, 2));
        for (by, report) in reports {
            scene.report(*by, &[*report]);
        }
        scene.pass(2_000_000, &[0]);
        let next = scene.decide().view.expect("node 0 is excluded");
        next.home(HomeId(0)).unwrap().host.0
    };
    assert_eq!(heir(&[]), 1, "the lowest number");
    assert_eq!(heir(&[(1, cost(1, 1, 50))]), 1, "node 2 mirrors home 1, too");
    // Nodes 1, 0 and 4 write for home 4.
    assert_eq!(heir(&[(4, cost(4, 1, 50))]), 2);
    assert_eq!(heir(&[(4, Report::Cost { home: HomeId(4), cost: Cost { memory: GIB, disk: GIB, written: 9 } })]), 1);
}

#[test]
fn who_gets_the_home_of_a_node_that_leaves_follows_load() {
    let view = {
        let mut view = view(5, 1);
        view.members[0].is_leaving = true;
        view
    };
    let heir = |view: &View, reports: &[(u16, Report)]| {
        let of = |node: NodeId| reports.iter().position(|(by, _)| *by == node.0);
        let all: Vec<Report> = reports.iter().map(|(_, report)| *report).collect();
        let loads = Loads::of(view, |node| of(node).map_or(&[][..], |at| &all[at..=at]));
        view.heir(&view.homes[0], &loads).unwrap().0
    };
    assert_eq!(heir(&view, &[]), 1, "the mirror, of those with one home");
    assert_eq!(heir(&view, &[(1, cost(1, 1, 20))]), 3, "nodes 1 and 2 write for home 1");
    assert_eq!(heir(&view, &[(0, cost(0, 400, 0)), (2, room(1)), (1, room(1))]), 1, "it has its copy already");
    assert_eq!(heir(&view, &[(1, cost(1, 1, 20)), (3, room(1))]), 3, "home 0 is empty");
}

#[test]
fn a_mirror_moves_when_the_other_node_has_everything() {
    let mut scene = Scene::new(0, view(5, 1));
    scene.view.number += 1;
    scene.view.homes[0].moving = Some((NodeId(1), NodeId(3)));
    scene.pass(100_000, &[]);
    let proposal = scene.decide();
    let copy = Action::Rebuild { what: Debt::Journal { home: HomeId(0), node: NodeId(3) } };
    assert!(has(&proposal, &copy) && proposal.view.is_none(), "{proposal:#?}");
    assert!(why(&proposal, |it| *it == copy).contains("node 3 is to mirror home 0 in place of node 1"));
    // Another node sees to nothing.
    let mut other = Scene::new(2, scene.view.clone());
    other.pass(100_000, &[]);
    assert!(other.decide().decided.is_empty());
    scene.see(Seen::Mirror {
        home: HomeId(0),
        node: NodeId(3),
        state: MirrorState::CaughtUp { in_view: scene.view.number },
    });
    let proposal = scene.decide();
    assert!(has(&proposal, &Action::AddMirror { home: HomeId(0), node: NodeId(3) }), "{proposal:#?}");
    assert!(has(&proposal, &Action::DropMirror { home: HomeId(0), node: NodeId(1) }), "{proposal:#?}");
    let next = proposal.view.unwrap();
    let home = next.home(HomeId(0)).unwrap();
    assert_eq!((home.mirrors.as_slice(), home.moving), (&[NodeId(3)][..], None));
}

#[test]
fn a_move_ends_with_either_node() {
    for gone in [1, 3] {
        let mut scene = Scene::new(2, view(5, 1));
        scene.view.number += 1;
        scene.view.homes[0].moving = Some((NodeId(1), NodeId(3)));
        scene.pass(2_000_000, &[gone]);
        let next = scene.decide().view.expect("it is excluded");
        assert_eq!(next.home(HomeId(0)).unwrap().moving, None, "node {gone}");
    }
}

/// What each home costs, of which nodes are their own hosts.
fn loads(view: &View, costs: &[(u16, u64, u64)]) -> Loads {
    let all: Vec<Report> = costs.iter().map(|(home, mib, written)| cost(*home, *mib, *written)).collect();
    Loads::of(view, |node| {
        let at = costs.iter().position(|(home, ..)| view.home(HomeId(*home)).is_some_and(|it| it.host == node));
        at.map_or(&[][..], |at| &all[at..=at])
    })
}

#[test]
fn copies_move_from_nodes_with_much_to_nodes_with_little() {
    let even = view(6, 1);
    assert_eq!(balance(&even, &loads(&even, &[(0, 400, 50), (3, 400, 50)])), [], "each node has one copy of one home");
    // Both are mirrored on node 1.
    let mut uneven = even.clone();
    uneven.homes[3].mirrors = vec![NodeId(1)];
    let moves = balance(&uneven, &loads(&uneven, &[(0, 400, 0), (3, 400, 0)]));
    let [only] = moves[..] else { panic!("{moves:?}") };
    assert_eq!((only.home, only.from, only.to, only.is_host), (HomeId(0), NodeId(1), NodeId(2), false));
    assert_eq!((only.measure, only.before, only.after), (Measure::Bytes, (800 * MIB, 0), (400 * MIB, 400 * MIB)));
    assert_eq!(
        only.to_string(),
        "node 1 and node 2 have 800.0 MiB and 0.0 MiB for their copies of homes, and 400.0 MiB and 400.0 MiB after it"
    );
    // What is written comes first.
    let moves = balance(&uneven, &loads(&uneven, &[(0, 400, 1), (3, 20, 30)]));
    assert!(moves.iter().all(|it| it.measure == Measure::Bytes), "there is nobody to write less: {moves:?}");
    let moves = balance(&uneven, &loads(&uneven, &[(0, 1, 30), (3, 1, 30)]));
    assert!(moves.len() == 1 && moves[0].measure == Measure::Written, "{moves:?}");
    // Small homes, and small gains, are worth no copy.
    assert_eq!(balance(&uneven, &loads(&uneven, &[(0, 10, 0), (3, 10, 0)])), []);
    assert_eq!(balance(&uneven, &loads(&uneven, &[(0, 400, 0), (3, 15, 0)])), []);
}

#[test]
fn a_plan_comes_to_an_end_and_leaves_what_must_stay() {
    let mut view = view(6, 1);
    // Homes 4 and 5 lost their own nodes; node 0 has all three, and mirrors of what nodes 1 to 3 have.
    for own in [4, 5] {
        view.members[own].is_leaving = true;
        let home = &mut view.homes[own];
        (home.host, home.wanted_host, home.mirrors) = (NodeId(0), NodeId(0), vec![NodeId(1)]);
    }
    for home in &mut view.homes[1..4] {
        home.mirrors = vec![NodeId(0)];
    }
    let reports: Vec<Report> = (0..6).map(|home| cost(home, 100 + u64::from(home), 0)).collect();
    let loads =
        Loads::of(
            &view,
            |node| if node.0 == 0 { &reports } else { &reports[usize::from(node.0)..=usize::from(node.0)] },
        );
    let moves = balance(&view, &loads);
    assert!(!moves.is_empty() && moves.len() <= 6, "{moves:?}");
    for it in &moves {
        assert!(it.to.0 < 4 && it.from != it.to, "to no node that leaves: {it:?}");
        assert!(!it.is_host || it.home.0 >= 4, "homes of nodes that are there stay: {it:?}");
    }
    // While anything of a home moves, nothing else of it does.
    view.homes.iter_mut().for_each(|home| home.moving = home.mirrors.first().map(|from| (*from, NodeId(2))));
    assert_eq!(balance(&view, &loads), []);
}
