//! What the board passes on, the first view, and messages as bytes.

use std::net::SocketAddr;

use cenote_ha::{ClusterId, Cost, HomeId, Identity, MemberState, Room, View};
use cenote_model::{DeviceId, Error, ErrorKind, StoreId};
use proptest::prelude::*;

use super::*;
use crate::register::{MemoryRegister, Register, Swapped};
use crate::{Member, Members, RegisterPlace, first_view};

fn hello(node: u16) -> Hello {
    Hello {
        cluster: ClusterId(7),
        identity: Identity(100 + u128::from(node)),
        address: format!("127.0.0.1:{}", 7000 + node),
        left_in_view: 3,
        holds_view: 0,
        devices: vec![DeviceId(0)],
        lost_devices: vec![DeviceId(1), DeviceId(2)],
    }
}

fn beat(node: u16, number: u64) -> Beat {
    Beat { node: NodeId(node), incarnation: 5, number, holds_view: 2, reports: Vec::new(), weights: 0, hello: None }
}

fn members(count: u16, protect: u8) -> Members {
    let member = |home: u16| Member {
        home: cenote_model::HomeId(home),
        address: SocketAddr::from(([127, 0, 0, 1], 7000 + home)),
        name: format!("n{home}"),
        has_left: false,
    };
    let home = cenote_model::HomeId(1);
    Members {
        cluster: StoreId(7),
        home,
        protect,
        homes_on: None,
        register: RegisterPlace::First,
        keeping: None,
        encrypt: false,
        all: (1..=count).map(member).collect(),
    }
}

fn held(view: &View) -> Held {
    let register = MemoryRegister::default();
    let Ok(Swapped::Won(token)) = register.swap(None, view) else { panic!() };
    (view.clone(), token)
}

fn first(count: u16) -> View {
    let mut board = Board::new(500);
    for node in 1..=count {
        board.beat(0, Beat { hello: Some(hello(node)), ..beat(node, 0) });
    }
    first_view(&members(count, 1), &board).unwrap()
}

#[test]
fn homes_in_a_pool_are_shared_from_the_first_view_on_and_the_register_bounds_losses() {
    let mut board = Board::new(500);
    for node in 1..=5 {
        board.beat(0, Beat { hello: Some(hello(node)), ..beat(node, 0) });
    }
    let homes_on = Some(cenote_device::rados_dir::Address::parse("rados:meta/run").unwrap());
    for (register, survives) in [(RegisterPlace::Nodes, 1), (RegisterPlace::First, 0)] {
        let members = Members { homes_on: homes_on.clone(), register, ..members(5, 0) };
        let view = first_view(&members, &board).unwrap();
        assert_eq!(view.survives, survives);
        assert!(view.is_shared() && view.homes.iter().all(|home| home.mirrors_wanted == 0), "{view:?}");
    }
    assert!(!first_view(&members(5, 1), &board).unwrap().is_shared());
}

#[test]
fn the_first_view_waits_for_all_nodes() {
    let mut board = Board::new(500);
    for node in [1, 3] {
        board.beat(0, Beat { hello: Some(hello(node)), ..beat(node, 0) });
    }
    board.beat(0, beat(2, 0)); // it lives, and does not say who it is
    assert_eq!(first_view(&members(3, 1), &board), Err(vec![NodeId(2)]));
    board.beat(0, Beat { hello: Some(hello(2)), ..beat(2, 1) });
    let view = first_view(&members(3, 1), &board).unwrap();
    assert_eq!((view.number, view.survives, view.cluster), (1, 1, ClusterId(7)));
    assert_eq!(view.live().collect::<Vec<_>>(), [1, 2, 3].map(NodeId));
    for home in &view.homes {
        assert_eq!((home.host, home.term, home.mirrors_wanted), (NodeId(home.id.0), 1, 1));
        assert!(home.mirrors.is_empty());
    }
    assert!(view.members.iter().all(|member| member.state == MemberState::Live { since_view: 1 }));
    assert_eq!(view.member(NodeId(2)).unwrap().identity, Identity(102));
}

#[test]
fn what_one_node_says_all_are_told() {
    let mut board = Board::new(500);
    let report = Report::Refused(NodeId(3));
    board.beat(1_000, Beat { reports: vec![report], weights: 77, ..beat(1, 9) });
    board.beat(5_000, Beat { hello: Some(hello(2)), ..beat(2, 1) });
    let view = first(3);
    let held = held(&view);
    let notice = board.answer(6_000, 0, Some(&held));
    // The third one was not heard since the board began.
    assert_eq!(notice.heard, [(NodeId(1), 5_000), (NodeId(2), 1_000), (NodeId(3), 5_500)]);
    assert_eq!(notice.reports[0], (NodeId(1), 2, vec![report]));
    assert_eq!(notice.hellos, [(NodeId(2), hello(2))]);
    assert_eq!(notice.weights, [(NodeId(1), 77), (NodeId(2), 0)]);
    assert_eq!((notice.view, notice.held), (1, Some(held.clone())));
    // Whoever holds the view is not sent it again; before the first one there is none.
    let notice = board.answer(6_000, 1, Some(&held));
    assert_eq!((notice.view, notice.held), (1, None));
    assert_eq!(board.answer(6_000, 1, None).view, 0);
}

#[test]
fn a_beat_that_was_overtaken_is_a_sign_of_life_and_nothing_else() {
    let mut board = Board::new(500);
    board.beat(1_000, beat(1, 9));
    board.beat(2_000, Beat { hello: Some(hello(1)), ..beat(1, 8) });
    assert_eq!(board.hello(NodeId(1)), None);
    assert_eq!(board.answer(2_500, 0, None).heard, [(NodeId(1), 500)]);
    // Another process counts anew.
    board.beat(3_000, Beat { incarnation: 6, hello: Some(hello(1)), ..beat(1, 0) });
    assert_eq!(board.hello(NodeId(1)), Some(&hello(1)));
    // Clocks that stand still take nothing back.
    board.beat(2_000, Beat { incarnation: 6, ..beat(1, 1) });
    assert_eq!(board.answer(3_000, 0, None).heard, [(NodeId(1), 0)]);
}

#[test]
fn what_other_boards_heard_is_told_apart_and_only_becomes_later() {
    let mut board = Board::new(500);
    board.beat(1_000, beat(1, 9));
    board.heard_elsewhere(5_000, &[(NodeId(2), 1_000), (NodeId(1), 4_500)]);
    board.heard_elsewhere(6_000, &[(NodeId(2), 5_000)]);
    let notice = board.answer(6_000, 0, None);
    assert_eq!(notice.heard, [(NodeId(1), 5_000)]);
    assert_eq!(notice.heard_elsewhere, [(NodeId(1), 5_500), (NodeId(2), 2_000)]);
}

#[test]
fn an_error_travels_as_it_is() {
    let error = Error::new(ErrorKind::Corrupt, "the register").because("torn").try_next("look");
    assert_eq!(Notice::decode(&Notice::encode(Err(error.clone()))), Err(error));
}

fn reports() -> impl Strategy<Value = Vec<Report>> {
    let report = (0..8u8, any::<(u16, u16, u64, bool)>()).prop_map(|(kind, (node, home, since_view, is_empty))| {
        let node = NodeId(node);
        match kind {
            0 => Report::Unheard(node),
            1 => Report::Refused(node),
            2 => Report::Goodbye { is_empty },
            3 => Report::Closing,
            4 => Report::Lost(HomeId(home)),
            5 => Report::Room(Room { memory: since_view, disk: !since_view }),
            6 => {
                let cost = Cost { memory: since_view, disk: !since_view, written: since_view / 3 };
                Report::Cost { home: HomeId(home), cost }
            }
            _ => Report::Paid { home: HomeId(home), node, since_view },
        }
    });
    prop::collection::vec(report, 0..6)
}

fn hellos() -> impl Strategy<Value = Hello> {
    let devices = || prop::collection::vec(any::<u16>().prop_map(DeviceId), 0..4);
    (any::<(u128, u128, u64, u64)>(), "[a-z0-9.\u{e9}:-]{0,40}", devices(), devices()).prop_map(
        |((cluster, identity, left_in_view, holds_view), address, devices, lost_devices)| Hello {
            cluster: ClusterId(cluster),
            identity: Identity(identity),
            address,
            left_in_view,
            holds_view,
            devices,
            lost_devices,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn beats_come_back(head in any::<(u16, u64, u64, u64, u64)>(), reports in reports(), hello in prop::option::of(hellos()), cut in any::<prop::sample::Index>()) {
        let (node, incarnation, number, holds_view, weights) = head;
        let beat = Beat { node: NodeId(node), incarnation, number, holds_view, reports, weights, hello };
        let bytes = beat.encode();
        prop_assert_eq!(Beat::decode(&bytes), Ok(beat));
        prop_assert!(Beat::decode(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn notices_come_back(
        heard in prop::collection::vec(any::<(u16, u64)>(), 0..5),
        said in prop::collection::vec((any::<(u16, u64)>(), reports()), 0..4),
        hellos in prop::collection::vec((any::<u16>(), hellos()), 0..4),
        has_view in any::<bool>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let notice = Notice {
            view: 1,
            held: has_view.then(|| held(&first(3))),
            heard_elsewhere: heard.iter().rev().map(|(node, ago)| (NodeId(*node), *ago)).collect(),
            weights: heard.iter().map(|(node, version)| (NodeId(*node), !*version)).collect(),
            heard: heard.into_iter().map(|(node, ago)| (NodeId(node), ago)).collect(),
            reports: said.into_iter().map(|((node, view), reports)| (NodeId(node), view, reports)).collect(),
            hellos: hellos.into_iter().map(|(node, hello)| (NodeId(node), hello)).collect(),
        };
        let bytes = Notice::encode(Ok(&notice));
        prop_assert_eq!(Notice::decode(&bytes), Ok(notice));
        prop_assert!(Notice::decode(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn hostile_bytes_are_errors(bytes in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let _ = Beat::decode(&bytes);
        let _ = Notice::decode(&bytes);
        // Sound messages with a byte that is another.
        let mut beat = Beat { reports: vec![Report::Refused(NodeId(3))], hello: Some(hello(2)), ..beat(1, 9) }.encode();
        let place = at.index(beat.len());
        beat[place] ^= flip;
        let _ = Beat::decode(&beat);
        let notice = Notice { view: 1, held: Some(held(&first(2))), hellos: vec![(NodeId(2), hello(2))], ..Notice::default() };
        let mut notice = Notice::encode(Ok(&notice));
        let place = at.index(notice.len());
        notice[place] ^= flip;
        let _ = Notice::decode(&notice);
    }
}

#[test]
fn other_versions_and_long_counts_are_named() {
    for decode in [|bytes: &[u8]| Beat::decode(bytes).map(drop), |bytes: &[u8]| Notice::decode(bytes).map(drop)] {
        assert_eq!(decode(&[9, 1]).unwrap_err().kind(), ErrorKind::VersionMismatch);
        assert_eq!(decode(&[]).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(decode(&[8, 77]).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    // A count that the message cannot hold.
    let mut bytes = beat(1, 9).encode();
    let at = 1 + 2 + 8 + 8 + 8;
    bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Beat::decode(&bytes).unwrap_err().kind(), ErrorKind::InvalidInput);
}
