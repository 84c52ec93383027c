//! Changes of containers go back with what came before them in the container.

mod world;

use cenote_device::mem::Keep;
use cenote_model::*;
use world::*;

const SMALL: u64 = 1 << 20;

fn small_world() -> World {
    World::new(&three_tiers(SMALL, 4 * SMALL, 8 * SMALL))
}

impl World {
    fn rename(&mut self, id: ContainerId, label: &str) {
        self.must(vec![Update::ContainerRename { id, label: label.into() }]);
    }
    fn set(&mut self, id: ContainerId, durability: Durability, quota_bytes: u64) -> Response {
        let spec = ContainerSpec { durability, quota_bytes, ..ContainerSpec::default() };
        self.apply(vec![Update::ContainerSet { id, spec }], true)
    }
    fn fill(&mut self, container: ContainerId, byte: u8) {
        let key = object(container, 1);
        self.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        self.write(key, 0, &[byte; 5000]).unwrap();
    }
    /// Label, first byte of object 1 and durability of each container.
    fn shown(&mut self) -> Vec<(String, Option<u8>, Durability)> {
        let Response::Containers(list) = self.ask(Request::ContainerList { after: None, limit: 100 }) else { panic!() };
        let of = |world: &mut Self, info: &ContainerInfo| world.read(object(info.id, 1)).ok().map(|bytes| bytes[0]);
        list.iter().map(|info| (info.label.clone(), of(self, info), info.spec.durability)).collect()
    }
    /// The journal gets on media, nothing else does.
    fn journal_synced(&mut self) {
        self.container("the journal is on media", Durability::Sync);
    }
    fn lose_power(&mut self) -> Vec<(String, Option<u8>, Durability)> {
        self.power_loss(Keep::Nothing);
        self.open().unwrap();
        let mut shown = self.shown();
        shown.retain(|(label, ..)| label != "the journal is on media");
        shown
    }
}

#[test]
fn a_renamed_container_has_what_was_written_before_or_its_old_label() {
    for flushed in [false, true] {
        let mut world = small_world();
        let id = world.container("result.tmp", Durability::Async);
        world.fill(id, 7);
        world.rename(id, "result");
        if flushed {
            world.flush(FlushTarget::Container(id)).unwrap();
        }
        world.journal_synced();
        let expected = if flushed { ("result", Some(7)) } else { ("result.tmp", None) };
        let expected = (expected.0.to_owned(), expected.1, Durability::Async);
        assert_eq!(world.lose_power(), [expected], "flushed: {flushed}");
        // And it is taken, or free, as it says.
        world.container(if flushed { "result.tmp" } else { "result" }, Durability::Async);
    }
}

#[test]
fn the_way_back_is_in_a_checkpoint_too() {
    let mut world = small_world();
    let id = world.container("result.tmp", Durability::Async);
    world.fill(id, 7);
    world.rename(id, "result");
    let next = world.container("result.tmp", Durability::Async);
    assert!(matches!(world.set(next, Durability::Bypass, 1 << 20), Response::Applied { .. }));
    assert_eq!(world.ask(Request::Checkpoint), Response::Done);
    world.kill();
    world.open().unwrap();
    let last = world.container("result.old", Durability::Async);
    world.rename(id, "elsewhere");
    world.rename(last, "result");
    world.journal_synced();
    assert_eq!(
        world.lose_power(),
        [("result.old".to_owned(), None, Durability::Async), ("result.tmp".to_owned(), None, Durability::Async)],
        "the first one has its label back, and the second was never there"
    );
}

#[test]
fn who_takes_a_label_that_may_go_back_is_made_durable_with_who_gave_it() {
    let mut world = small_world();
    let first = world.container("result.tmp", Durability::Async);
    world.fill(first, 1);
    world.rename(first, "result.1");
    let second = world.container("result.tmp", Durability::Async);
    world.fill(second, 2);
    world.rename(second, "result.2");
    let third = world.container("result.tmp", Durability::Async);
    world.flush(FlushTarget::Container(third)).unwrap();
    let label = |label: &str, byte| (label.to_owned(), byte, Durability::Async);
    assert_eq!(world.lose_power(), [label("result.1", Some(1)), label("result.2", Some(2)), label("result.tmp", None)]);
}

#[test]
fn settings_go_back_with_what_was_written_before_them() {
    let mut world = small_world();
    let id = world.container("c", Durability::Async);
    world.fill(id, 3);
    assert!(matches!(world.set(id, Durability::Bypass, 0), Response::Applied { .. }));
    world.journal_synced();
    assert_eq!(world.lose_power(), [("c".to_owned(), None, Durability::Async)]);
    // A container that becomes `sync` is so with all that is in it, once that is answered.
    world.fill(id, 4);
    assert!(matches!(world.set(id, Durability::Sync, 0), Response::Applied { .. }));
    assert_eq!(world.lose_power(), [("c".to_owned(), Some(4), Durability::Sync)]);
    world.rename(id, "d");
    assert_eq!(world.lose_power(), [("d".to_owned(), Some(4), Durability::Sync)]);
    assert!(matches!(world.set(id, Durability::Async, 0), Response::Applied { .. }));
    assert_eq!(world.lose_power(), [("d".to_owned(), Some(4), Durability::Async)]);
}

#[test]
fn empty_containers_turn_to_scratch_and_back_at_once() {
    let mut world = small_world();
    let id = world.container("c", Durability::Async);
    world.rename(id, "d");
    for durability in [Durability::Bypass, Durability::Scratch, Durability::Async, Durability::Scratch] {
        let answer = world.set(id, durability, 0);
        assert!(matches!(answer, Response::Applied { .. }), "{durability:?}: {answer:?}");
    }
    world.settle();
    world.journal_synced();
    assert_eq!(world.lose_power(), [("d".to_owned(), None, Durability::Scratch)]);
}

#[test]
fn a_scratch_container_gives_way_to_who_gets_its_label_back() {
    let mut world = small_world();
    let id = world.container("c", Durability::Async);
    world.fill(id, 5);
    world.rename(id, "d");
    let scratch = world.container("c", Durability::Scratch);
    world.must(vec![Update::IndexCreate { key: index(scratch, 1) }]);
    world.journal_synced();
    let expected = [("c".to_owned(), None, Durability::Async), (format!("c~{scratch}"), None, Durability::Scratch)];
    assert_eq!(world.lose_power(), expected);
    world.kill();
    world.open().unwrap();
    assert_eq!(world.shown()[..2], expected, "and so it stays");
}

#[test]
fn a_quota_counts_records_as_it_counts_bytes() {
    const QUOTA: u64 = 10_000;
    let mut world = small_world();
    let id = world.container("c", Durability::Async);
    let key = index(id, 1);
    world.must(vec![Update::IndexCreate { key }, Update::ObjectCreate { key: object(id, 1), block_shift: 12 }]);
    assert!(matches!(world.set(id, Durability::Async, QUOTA), Response::Applied { .. }));
    let put = |n: u32, len: usize| {
        vec![Update::Put { index: key, key: n.to_be_bytes().to_vec(), value: vec![1; len], only_new: false }]
    };
    let refused = |response: Response| match response {
        Response::Failed(error) => error.kind() == ErrorKind::LimitExceeded && error.to_string().contains("quota"),
        _ => false,
    };
    let mut taken = 0;
    for n in 0.. {
        match world.apply(put(n, 996), true) {
            Response::Applied { .. } => taken += 1000,
            response => {
                assert!(refused(response));
                break;
            }
        }
    }
    assert_eq!(taken, QUOTA, "all of it, and no more");
    assert!(world.write(object(id, 1), 0, &[1; 1]).is_err(), "bytes of objects and of records count together");
    // What takes no more than before is let through, at the quota and past it.
    world.must(put(0, 996));
    assert!(refused(world.apply(put(0, 997), true)));
    assert!(matches!(world.set(id, Durability::Async, QUOTA / 2), Response::Applied { .. }));
    world.must(put(0, 100));
    assert!(refused(world.apply(put(0, 996), true)));
    // It is known again after all ways to come back.
    assert!(matches!(world.set(id, Durability::Async, QUOTA), Response::Applied { .. }));
    world.must(put(0, 996));
    for way in 0..3 {
        match way {
            0 => world.kill(),
            1 => {
                assert_eq!(world.ask(Request::Checkpoint), Response::Done);
                world.kill();
            }
            _ => {
                world.flush(FlushTarget::Store).unwrap();
                world.must(vec![Update::Del { index: key, key: 0u32.to_be_bytes().to_vec() }]);
                world.power_loss(Keep::Nothing);
            }
        }
        world.open().unwrap();
        assert!(refused(world.apply(put(99, 1), true)), "way {way}");
    }
    world.must(vec![Update::Del { index: key, key: 0u32.to_be_bytes().to_vec() }]);
    world.write(object(id, 1), 0, &[1; 1000]).unwrap();
    assert!(world.write(object(id, 1), 1000, &[1; 1]).is_err());
    world.must(vec![Update::IndexDelete { key }]);
    world.write(object(id, 1), 0, &[1; QUOTA as usize]).unwrap();
}
