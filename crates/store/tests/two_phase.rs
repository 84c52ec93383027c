//! Transactions over several homes: each phase by itself, and a death between any two.

mod world;

use cenote_device::mem::Keep;
use cenote_model::*;
use cenote_store::Errand;
use world::engines::{FIRST, LAST, Scene, apply, put};
use world::{crc, object};

/// The request that has the last home decide.
fn decide(transaction: TransactionId, participants: Vec<HomeId>, checks: Vec<Check>, updates: Vec<Update>) -> Request {
    Request::Decide { decision: Box::new(Decision { transaction, participants, is_sync: false }), checks, updates }
}

#[test]
fn both_phases_carry_it_out_and_nothing_is_left() {
    let mut scene = Scene::new(Durability::Async);
    assert_eq!(scene.prepare(), Response::Prepared { is_sync: false });
    assert!(matches!(scene.decide(), Response::Applied { .. }));
    assert_eq!(scene.settle(true), Response::Done);
    assert_eq!(scene.forget(), Response::Done);
    assert_eq!(scene.values(), ["new", "new"]);
    assert!(scene.world.all.iter_mut().all(|engine| engine.errands().is_empty() && engine.prepared_count() == 0));
    scene.world.check();
    scene.world.kill();
    assert_eq!(scene.values(), ["new", "new"]);
}

#[test]
fn a_death_between_any_two_steps_leaves_all_or_nothing() {
    for durability in [Durability::Async, Durability::Sync] {
        for steps in 0..=4 {
            for with_checkpoint in [false, true] {
                let mut scene = Scene::new(durability);
                let what = format!("{durability:?}, {steps} steps, checkpoint {with_checkpoint}");
                for step in 0..steps {
                    let answer = match step {
                        0 => scene.prepare(),
                        1 => scene.decide(),
                        2 => scene.settle(true),
                        _ => scene.forget(),
                    };
                    assert!(!matches!(answer, Response::Failed(_)), "{what}: {answer:?}");
                }
                if with_checkpoint {
                    scene.world.checkpoint();
                }
                scene.world.kill();
                scene.wait_and_resolve();
                let expected = if steps >= 2 { "new" } else { "old" };
                assert_eq!(scene.values(), [expected, expected], "{what}");
                scene.world.kill();
                assert_eq!(scene.values(), [expected, expected], "{what}, once more");
                assert!(scene.world.all.iter_mut().all(|engine| engine.errands().is_empty()), "{what}");
                scene.world.check();
            }
        }
    }
}

#[test]
fn a_client_that_outlives_the_engines_sends_again_and_it_is_carried_out_once() {
    for with_checkpoint in [false, true] {
        let mut scene = Scene::new(Durability::Async);
        let again = |scene: &mut Scene| {
            if with_checkpoint {
                scene.world.checkpoint();
            }
            scene.world.kill();
        };
        scene.prepare();
        again(&mut scene);
        assert!(matches!(scene.prepare(), Response::Prepared { .. }));
        let Response::Applied { epoch, .. } = scene.decide() else { panic!() };
        again(&mut scene);
        assert!(matches!(scene.decide(), Response::Applied { epoch: same, .. } if same == epoch));
        assert_eq!(scene.settle(true), Response::Done);
        again(&mut scene);
        assert_eq!(scene.settle(true), Response::Done);
        assert_eq!(scene.forget(), Response::Done);
        assert_eq!(scene.forget(), Response::Done);
        assert_eq!(scene.values(), ["new", "new"]);
    }
}

#[test]
fn what_is_prepared_keeps_others_waiting_and_says_for_whom() {
    let mut scene = Scene::new(Durability::Async);
    scene.prepare();
    let (index, other) = (scene.at[FIRST], put(scene.at[FIRST], b"other", b"1"));
    let world = &mut scene.world;
    let error = world.get(FIRST, index, b"k").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    let text = error.to_string();
    assert!(text.contains("`k`") && text.contains("engine 1") && text.contains("try again"), "{text}");
    let get = Request::Get { index, keys: vec![b"k".to_vec()] };
    assert!(world.all[FIRST].is_kept_waiting(world.session, 0, &get));
    let change = world.ask(FIRST, apply(vec![put(index, b"k", b"third")]));
    assert!(matches!(change, Response::Failed(error) if error.kind() == ErrorKind::Busy));
    let second = TransactionId { number: 2, ..scene.transaction };
    let prepare =
        Request::Prepare { transaction: second, checks: Vec::new(), updates: vec![put(index, b"k", b"third")] };
    let answer = scene.world.ask(FIRST, prepare);
    assert!(matches!(answer, Response::Failed(error) if error.kind() == ErrorKind::Busy));
    let delete = Update::ContainerDelete { id: index.container };
    let answer = scene.world.ask(FIRST, apply(vec![delete]));
    assert!(matches!(answer, Response::Failed(error) if error.kind() == ErrorKind::Busy));
    scene.world.must(FIRST, vec![other]);
    assert_eq!(scene.world.get(FIRST, index, b"other").unwrap(), Some(b"1".to_vec()));
    assert_eq!(scene.settle(false), Response::Done);
    scene.world.must(FIRST, vec![put(index, b"k", b"third")]);
}

#[test]
fn a_participant_that_asks_has_it_given_up_for_ever() {
    for restarts in [false, true] {
        let mut scene = Scene::new(Durability::Async);
        scene.prepare();
        assert!(scene.world.all[FIRST].errands().is_empty(), "the client is there, and has some time");
        scene.wait_and_resolve();
        if restarts {
            scene.world.checkpoint();
            scene.world.kill();
        }
        match scene.decide() {
            Response::Failed(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(scene.values(), ["old", "old"]);
        scene.world.must(FIRST, vec![put(scene.at[FIRST], b"k", b"mine")]);
    }
}

#[test]
fn a_client_that_dies_before_the_decision_is_not_waited_for() {
    let mut scene = Scene::new(Durability::Async);
    scene.prepare();
    scene.world.other_client();
    assert_eq!(scene.world.all[FIRST].errands(), [Errand::Ask(scene.transaction)]);
    scene.world.errands();
    assert_eq!(scene.values(), ["old", "old"]);
    let mut scene = Scene::new(Durability::Async);
    scene.prepare();
    scene.decide();
    scene.world.other_client();
    scene.world.errands();
    assert_eq!(scene.values(), ["new", "new"]);
}

#[test]
fn a_client_that_gives_up_has_the_others_told() {
    let mut scene = Scene::new(Durability::Async);
    scene.prepare();
    let tell = vec![HomeId(FIRST as u16)];
    let ask = Request::Ask { transaction: scene.transaction, tell };
    assert_eq!(scene.world.ask(LAST, ask), Response::Decided(false));
    scene.world.errands();
    assert_eq!(scene.values(), ["old", "old"]);
    assert!(scene.world.all[LAST].errands().is_empty());
}

#[test]
fn premises_that_do_not_hold_and_refused_updates_leave_nothing() {
    let mut scene = Scene::new(Durability::Async);
    let index = scene.at[FIRST];
    let check = Check::Value { index, key: b"k".to_vec(), value: Some(b"other".to_vec()) };
    let prepare = |checks, updates| Request::Prepare { transaction: scene.transaction, checks, updates };
    let requests = [
        (prepare(vec![check], vec![put(index, b"k", b"new")]), ErrorKind::Conflict),
        (prepare(Vec::new(), vec![put(index, b"a", b"1"), Update::IndexCreate { key: index }]), ErrorKind::Exists),
        (prepare(Vec::new(), vec![Update::ContainerDelete { id: index.container }]), ErrorKind::Unsupported),
    ];
    for (request, kind) in requests {
        match scene.world.ask(FIRST, request) {
            Response::Failed(error) => assert_eq!(error.kind(), kind, "{error}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(scene.world.get(FIRST, index, b"a").unwrap(), None);
    }
    let delete = Update::ContainerDelete { id: scene.at[LAST].container };
    let (transaction, checks) = (scene.transaction, Vec::new());
    let decide = decide(transaction, Vec::new(), checks, vec![delete]);
    let answer = scene.world.ask(LAST, decide);
    assert!(matches!(answer, Response::Failed(error) if error.kind() == ErrorKind::Unsupported));
    assert_eq!(scene.values(), ["old", "old"]);
    scene.world.check();
}

#[test]
fn what_it_only_relies_on_can_be_read_but_not_changed() {
    let mut scene = Scene::new(Durability::Async);
    let index = scene.at[FIRST];
    let checks = vec![Check::Value { index, key: b"k".to_vec(), value: Some(b"old".to_vec()) }];
    let request = Request::Prepare { transaction: scene.transaction, checks, updates: Vec::new() };
    assert!(matches!(scene.world.ask(FIRST, request), Response::Prepared { .. }));
    assert_eq!(scene.world.get(FIRST, index, b"k").unwrap(), Some(b"old".to_vec()));
    let change = scene.world.ask(FIRST, apply(vec![put(index, b"k", b"third")]));
    assert!(matches!(change, Response::Failed(error) if error.kind() == ErrorKind::Busy));
    scene.world.kill();
    let change = scene.world.ask(FIRST, apply(vec![put(index, b"k", b"third")]));
    assert!(matches!(change, Response::Failed(error) if error.kind() == ErrorKind::Busy), "after a death, too");
    scene.decide();
    assert_eq!(scene.settle(true), Response::Done);
    scene.world.must(FIRST, vec![put(index, b"k", b"third")]);
}

/// The space of its writes outlives the session that leased it.
#[test]
fn bytes_that_it_writes_stay_its_own_until_it_is_settled() {
    for (commits, with_checkpoint) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut scene = Scene::new(Durability::Async);
        let key = object(scene.at[FIRST].container, 9);
        scene.world.must(FIRST, vec![Update::ObjectCreate { key, block_shift: 12 }]);
        let bytes = vec![5; 20_000];
        let lease = Request::Lease {
            container: key.container,
            bytes: 20_000,
            run_min: 20_000,
            avoid: Vec::new(),
            durability: None,
        };
        let Response::Lease(lease) = scene.world.ask(FIRST, lease) else { panic!() };
        let run = lease.runs[0];
        scene.world.all[FIRST].device(run.device).unwrap().write_at(run.offset, &bytes).unwrap();
        let extent = Extent::whole(run.device, run.offset, 20_000, Sums::from_slice(&[crc(&bytes)]));
        let updates = vec![Update::Write { key, offset: 0, extent }];
        let request = Request::Prepare { transaction: scene.transaction, checks: Vec::new(), updates };
        assert!(matches!(scene.world.ask(FIRST, request), Response::Prepared { .. }));
        if commits {
            scene.decide();
        }
        scene.world.other_client();
        if with_checkpoint {
            scene.world.checkpoint();
        }
        scene.world.kill();
        let infos = scene.world.all[FIRST].device_infos();
        assert!(infos.iter().any(|info| info.reserved_bytes >= 20_000), "{infos:?}");
        scene.world.errands();
        let Response::Stat(stat) = scene.world.ask(FIRST, Request::ObjectStat { key }) else { panic!() };
        assert_eq!(stat.size, if commits { 20_000 } else { 0 });
        let infos = scene.world.all[FIRST].device_infos();
        assert!(infos.iter().all(|info| info.reserved_bytes == 0), "{infos:?}");
        scene.world.check();
        scene.world.kill();
        scene.world.check();
    }
}

#[test]
fn of_sync_containers_nothing_that_was_answered_is_split_by_power_loss() {
    for steps in 1..=4 {
        let mut scene = Scene::new(Durability::Sync);
        for step in 0..steps {
            match step {
                0 => assert_eq!(scene.prepare(), Response::Prepared { is_sync: true }),
                1 => assert!(matches!(scene.decide(), Response::Applied { .. })),
                2 => assert_eq!(scene.settle(true), Response::Done),
                _ => assert_eq!(scene.forget(), Response::Done),
            }
        }
        scene.world.power_loss(Keep::Nothing);
        scene.wait_and_resolve();
        let expected = if steps >= 2 { "new" } else { "old" };
        assert_eq!(scene.values(), [expected, expected], "{steps} steps");
        scene.world.check();
    }
}

/// A client that goes on after it gave up has the space that it had leased.
#[test]
fn space_comes_back_to_a_session_that_goes_on() {
    for with_checkpoint in [false, true] {
        let mut scene = Scene::new(Durability::Async);
        let key = object(scene.at[FIRST].container, 9);
        scene.world.must(FIRST, vec![Update::ObjectCreate { key, block_shift: 12 }]);
        let (container, avoid) = (key.container, Vec::new());
        let lease = Request::Lease { container, bytes: 4096, run_min: 4096, avoid, durability: None };
        let Response::Lease(lease) = scene.world.ask(FIRST, lease) else { panic!() };
        let run = lease.runs[0];
        let bytes = vec![6; 4096];
        scene.world.all[FIRST].device(run.device).unwrap().write_at(run.offset, &bytes).unwrap();
        let extent = Extent::whole(run.device, run.offset, 4096, Sums::from_slice(&[crc(&bytes)]));
        let write = || vec![Update::Write { key, offset: 0, extent: extent.clone() }];
        let request = Request::Prepare { transaction: scene.transaction, checks: Vec::new(), updates: write() };
        assert!(matches!(scene.world.ask(FIRST, request), Response::Prepared { .. }));
        scene.world.all[FIRST].take_back(scene.transaction);
        if with_checkpoint {
            scene.world.checkpoint();
        }
        scene.world.kill();
        scene.world.must(FIRST, write());
        scene.world.check();
    }
}

#[test]
fn only_the_session_that_it_names_has_it_decided() {
    let mut scene = Scene::new(Durability::Async);
    let transaction = TransactionId { session: 77, ..scene.transaction };
    let (participants, checks, updates) = (vec![HomeId(0)], Vec::new(), vec![put(scene.at[LAST], b"k", b"new")]);
    let request = decide(transaction, participants, checks, updates);
    let answer = scene.world.ask(LAST, request);
    assert!(matches!(answer, Response::Failed(error) if error.kind() == ErrorKind::InvalidInput));
    let transaction = TransactionId { home: HomeId(FIRST as u16), ..scene.transaction };
    let request = Request::Prepare { transaction, checks: Vec::new(), updates: Vec::new() };
    let answer = scene.world.ask(FIRST, request);
    assert!(matches!(answer, Response::Failed(error) if error.kind() == ErrorKind::InvalidInput));
}
