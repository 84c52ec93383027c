//! Snapshots of containers of several homes, as one transaction: each phase, and a death between any two.

mod world;

use cenote_device::mem::Keep;
use cenote_model::*;
use world::engines::{FIRST, LAST, Scene, apply, put};

/// Two homes, and snapshots `s` of their containers.
struct Snapshots(Scene);

impl Snapshots {
    fn new(durability: Durability) -> Self {
        Self(Scene::new(durability))
    }
    fn make(&self, home: usize) -> Update {
        let of = self.at[home].container;
        Update::SnapshotCreate { of, id: ContainerId(0), name: "s".into(), replace: false, unix_ms: 0 }
    }
    fn back(&self, home: usize) -> Update {
        Update::SnapshotRollback { of: self.at[home].container, name: "s".into() }
    }
    fn prepare(&mut self, update: Update) -> Response {
        self.0.prepare_with(update)
    }
    fn decide(&mut self, update: Update) -> Response {
        self.0.decide_with(update)
    }
    /// A number of a transaction, and of its requests, that were not used yet.
    fn renew(&mut self) {
        self.transaction.number += 1;
        self.seqs = [self.world.next_seq(), self.world.next_seq()];
    }
    fn snapshot(&mut self, home: usize) -> Result<SnapshotInfo> {
        let container = self.at[home].container;
        match self.world.ask(home, Request::SnapshotByName { container, name: "s".into(), pin: false }) {
            Response::Snapshots(mut found) => Ok(found.remove(0)),
            Response::Failed(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }
    /// What `k` was in the snapshot of each home, or why there is none.
    fn kept(&mut self) -> [Result<String>; 2] {
        [FIRST, LAST].map(|home| {
            let container = self.snapshot(home)?.id;
            let index = IndexKey { container, ..self.at[home] };
            let value = self.world.get(home, index, b"k")?;
            Ok(String::from_utf8(value.unwrap()).unwrap())
        })
    }
    fn both_have(&mut self, what: Option<&str>, why: &str) {
        for kept in self.kept() {
            match what {
                Some(value) => assert_eq!(kept.unwrap(), value, "{why}"),
                None => assert_eq!(kept.unwrap_err().kind(), ErrorKind::NotFound, "{why}"),
            }
        }
    }
}

impl std::ops::Deref for Snapshots {
    type Target = Scene;
    fn deref(&self) -> &Scene {
        &self.0
    }
}
impl std::ops::DerefMut for Snapshots {
    fn deref_mut(&mut self) -> &mut Scene {
        &mut self.0
    }
}

#[test]
fn a_death_between_any_two_steps_leaves_both_snapshots_or_none() {
    for durability in [Durability::Async, Durability::Sync] {
        for (steps, with_checkpoint) in (0..=4).flat_map(|steps| [(steps, false), (steps, true)]) {
            let mut scene = Snapshots::new(durability);
            let what = format!("{durability:?}, {steps} steps, checkpoint {with_checkpoint}");
            for step in 0..steps {
                let answer = match step {
                    0 => scene.prepare(scene.make(FIRST)),
                    1 => scene.decide(scene.make(LAST)),
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
            let expected = (steps >= 2).then_some("old");
            scene.both_have(expected, &what);
            for home in [FIRST, LAST] {
                let change = put(scene.at[home], b"k", b"new");
                scene.world.must(home, vec![change]);
            }
            scene.world.kill();
            scene.both_have(expected, &what);
            scene.world.check();
        }
    }
}

#[test]
fn what_is_made_meanwhile_has_another_number() {
    for (commits, with_checkpoint) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut scene = Snapshots::new(Durability::Async);
        scene.prepare(scene.make(FIRST));
        let other = scene.world.container(FIRST, "other", Durability::Async).container;
        if with_checkpoint {
            scene.world.checkpoint();
        }
        scene.world.kill();
        if commits {
            scene.decide(scene.make(LAST));
        }
        assert_eq!(scene.settle(commits), Response::Done);
        let third = scene.world.container(FIRST, "third", Durability::Async).container;
        if commits {
            let made = scene.snapshot(FIRST).unwrap().id;
            assert!(made < other && other < third, "{made}, {other}, {third}");
        }
        scene.world.kill();
        let is_there = scene.snapshot(FIRST).is_ok();
        assert_eq!(is_there, commits);
        scene.world.check();
    }
}

#[test]
fn the_container_waits_until_it_is_settled_and_can_be_read() {
    let mut scene = Snapshots::new(Durability::Async);
    scene.prepare(scene.make(FIRST));
    for round in 0..2 {
        let index = scene.at[FIRST];
        assert_eq!(scene.world.get(FIRST, index, b"k").unwrap().unwrap(), b"old");
        let answer = scene.world.ask(FIRST, apply(vec![put(index, b"k", b"new")]));
        assert!(matches!(answer, Response::Failed(error) if error.kind() == ErrorKind::Busy));
        let looked = scene.snapshot(FIRST).unwrap_err();
        assert_eq!(looked.kind(), ErrorKind::Busy, "{looked}");
        if round == 0 {
            scene.world.kill(); // and it does after a death
        }
    }
    scene.decide(scene.make(LAST));
    assert_eq!(scene.settle(true), Response::Done);
    let change = put(scene.at[FIRST], b"k", b"new");
    scene.world.must(FIRST, vec![change]);
    scene.both_have(Some("old"), "settled");
}

#[test]
fn what_was_rolled_back_is_seen_nowhere_once_it_is_prepared() {
    for commits in [true, false] {
        let mut scene = Snapshots::new(Durability::Async);
        scene.prepare(scene.make(FIRST));
        scene.decide(scene.make(LAST));
        scene.settle(true);
        scene.forget();
        for home in [FIRST, LAST] {
            let change = put(scene.at[home], b"k", b"new");
            scene.world.must(home, vec![change]);
        }
        scene.renew();
        let word = |scene: &Snapshots| scene.world.word(scene.at[FIRST].word_hash());
        let before = word(&scene);
        scene.prepare(scene.back(FIRST));
        assert_ne!(word(&scene), before, "whoever remembers the record has to ask");
        let index = scene.at[FIRST];
        assert_eq!(scene.world.get(FIRST, index, b"k").unwrap_err().kind(), ErrorKind::Busy);
        scene.world.kill();
        if commits {
            scene.decide(scene.back(LAST));
        }
        scene.wait_and_resolve();
        let expected = if commits { "old" } else { "new" };
        assert_eq!(scene.values(), [expected; 2]);
        scene.world.kill();
        assert_eq!(scene.values(), [expected; 2]);
        scene.world.check();
    }
}

/// A snapshot of what power loss may have taken is given up; one of a `sync` container is made.
#[test]
fn after_power_loss_no_snapshot_has_what_its_container_lost() {
    for durability in [Durability::Async, Durability::Sync] {
        for steps in 1..=3 {
            let mut scene = Snapshots::new(durability);
            for step in 0..steps {
                match step {
                    0 => drop(scene.prepare(scene.make(FIRST))),
                    1 => drop(scene.decide(scene.make(LAST))),
                    _ => drop(scene.settle(true)),
                }
            }
            scene.world.power_loss(Keep::Nothing);
            scene.wait_and_resolve();
            let what = format!("{durability:?}, {steps} steps");
            if durability == Durability::Sync {
                scene.both_have((steps >= 2).then_some("old"), &what);
            } else {
                let there = scene.kept().map(|kept| kept.is_ok());
                assert!(!there[FIRST], "{what}: {there:?}");
            }
            scene.world.check();
        }
    }
}

#[test]
fn what_cannot_be_made_is_refused_when_it_is_prepared() {
    let mut scene = Snapshots::new(Durability::Async);
    let index = scene.at[FIRST];
    let make = scene.make(FIRST);
    scene.world.must(FIRST, vec![make]);
    let mixed = vec![scene.make(FIRST), put(index, b"k", b"new")];
    let foreign = Update::SnapshotDelete { of: ContainerId(1 << 20), name: "s".into() };
    for (updates, kind) in [
        (vec![scene.make(FIRST)], ErrorKind::Exists),
        (mixed, ErrorKind::InvalidInput),
        (vec![foreign], ErrorKind::NotFound),
    ] {
        let request = Request::Prepare { transaction: scene.transaction, checks: Vec::new(), updates };
        match scene.world.ask(FIRST, request) {
            Response::Failed(error) => assert_eq!(error.kind(), kind, "{error}"),
            other => panic!("{other:?}"),
        }
    }
    scene.world.must(FIRST, vec![put(index, b"k", b"new")]);
    scene.world.check();
}
