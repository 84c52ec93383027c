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
    /// Syncs the journal, and nothing else.
    fn journal_synced(&mut self) {
        self.container("the journal is on media", Durability::Sync);
    }
    fn journal_synced_again(&mut self) {
        self.container("the journal is on media again", Durability::Sync);
    }
    fn lose_power(&mut self) -> Vec<(String, Option<u8>, Durability)> {
        self.power_loss(Keep::Nothing);
        self.open().unwrap();
        let mut shown = self.shown();
        shown.retain(|(label, ..)| !label.contains("the journal is on media"));
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
        // The label is taken, or free, accordingly.
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

/// A rename that an earlier power loss took back is not taken back again: a container made with that label is
/// permanent.
#[test]
fn a_label_that_went_back_is_free() {
    let mut world = small_world();
    let first = world.container("first", Durability::Async);
    world.fill(first, 7);
    world.rename(first, "result");
    world.rename(first, "elsewhere");
    world.journal_synced();
    assert_eq!(world.lose_power().len(), 1);
    world.container("result", Durability::Async);
    world.journal_synced_again();
    let labels: Vec<String> = world.lose_power().into_iter().map(|(label, ..)| label).collect();
    assert_eq!(labels, ["first", "result"]);
}

#[test]
fn settings_go_back_with_what_was_written_before_them() {
    let mut world = small_world();
    let id = world.container("c", Durability::Async);
    world.fill(id, 3);
    assert!(matches!(world.set(id, Durability::Bypass, 0), Response::Applied { .. }));
    world.journal_synced();
    assert_eq!(world.lose_power(), [("c".to_owned(), None, Durability::Async)]);
    // A container that becomes `sync` is so with all its content, once the response is there.
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
    // A value that takes no more than the old one is accepted, at the quota and past it.
    world.must(put(0, 996));
    assert!(refused(world.apply(put(0, 997), true)));
    assert!(matches!(world.set(id, Durability::Async, QUOTA / 2), Response::Applied { .. }));
    world.must(put(0, 100));
    assert!(refused(world.apply(put(0, 996), true)));
    // The use of the quota is known again after every kind of opening.
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

/// The creation of a container `label` with an index 1 and its record, and more updates.
fn whole(label: &str, durability: Durability, more: Vec<Update>) -> Vec<Update> {
    let (id, spec) = (ContainerId(0), ContainerSpec { durability, ..ContainerSpec::default() });
    let put = Update::Put { index: index(id, 1), key: b"k".to_vec(), value: b"v".to_vec(), only_new: false };
    let make = Update::ContainerCreate { id, label: label.into(), spec };
    [vec![make, Update::IndexCreate { key: index(id, 1) }, put], more].concat()
}

fn content(world: &mut World, id: ContainerId, limit: u32) -> ContainerContent {
    match world.ask(Request::ContainerContent { id, limit, bytes_max: 1 << 16 }) {
        Response::Content(content) => *content,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_container_that_is_made_with_its_first_records_survives_power_loss_with_them_or_not_at_all() {
    for (durability, synced) in [(Durability::Async, false), (Durability::Async, true), (Durability::Sync, false)] {
        let mut world = small_world();
        let made = world.apply(whole("whole", durability, Vec::new()), true);
        let Response::Applied { created: Some(id), words, .. } = made else { panic!("{made:?}") };
        let found = content(&mut world, id, 10);
        assert_eq!(words, [(found.indices[0].version - 1, found.indices[0].version)], "the words of its index");
        if synced {
            world.journal_synced();
        }
        let is_kept = synced || durability == Durability::Sync;
        // Later updates go back alone.
        let put = |value: &[u8]| Update::Put {
            index: index(id, 1),
            key: b"k".to_vec(),
            value: value.to_vec(),
            only_new: false,
        };
        if durability == Durability::Async {
            world.must(vec![put(b"later")]);
            world.must(vec![put(b"and later")]);
            if synced {
                world.container("so that the journal is on media again", Durability::Sync);
            }
        }
        let expected = if is_kept { vec![("whole".to_owned(), None, durability)] } else { Vec::new() };
        assert_eq!(world.lose_power(), expected);
        if is_kept {
            let found = content(&mut world, id, 10).indices[0].records.to_vec();
            let values: [&[u8]; 3] = [b"v", b"later", b"and later"];
            assert!(found.len() == 1 && found[0].0 == b"k" && values.contains(&&found[0].1[..]), "{found:?}");
            world.must(vec![put(b"anew")]);
            world.flush(FlushTarget::Store).unwrap();
            world.lose_power();
            assert_eq!(content(&mut world, id, 10).indices[0].records.to_vec(), [(b"k".to_vec(), b"anew".to_vec())]);
        }
        assert!(world.engine().audit().is_empty(), "{:?}", world.engine().audit());
    }
}

fn labels(world: &mut World) -> Vec<String> {
    let Response::Containers(list) = world.ask(Request::ContainerList { after: None, limit: 9 }) else { panic!() };
    list.into_iter().map(|info| info.label).collect()
}

#[test]
fn what_goes_with_the_making_of_a_container_is_its_own_and_no_bytes() {
    let mut world = small_world();
    let other = world.container("other", Durability::Async);
    world.must(vec![Update::IndexCreate { key: index(other, 1) }]);
    world.must(vec![Update::ObjectCreate { key: object(other, 1), block_shift: 12 }]);
    let write = world.stage(object(other, 1), 0, &[1; 100]).unwrap();
    let put = Update::Put { index: index(other, 1), key: b"k".to_vec(), value: Vec::new(), only_new: false };
    let spec = ContainerSpec::default();
    let second = Update::ContainerCreate { id: ContainerId(0), label: "second".into(), spec };
    let create = Update::ObjectCreate { key: object(ContainerId(0), 1), block_shift: 12 };
    for refused in [write, put, second, create, Update::ContainerDelete { id: other }] {
        let answer = world.apply(whole("whole", Durability::Async, vec![refused.clone()]), true);
        assert!(matches!(&answer, Response::Failed(error) if error.kind() == ErrorKind::InvalidInput), "{refused:?}");
    }
    // Refused in the middle: nothing of it exists, and its number goes to the next container.
    let again = Update::IndexCreate { key: index(ContainerId(0), 1) };
    let answer = world.apply(whole("whole", Durability::Async, vec![again]), true);
    assert!(matches!(&answer, Response::Failed(error) if error.kind() == ErrorKind::Exists), "{answer:?}");
    assert_eq!(labels(&mut world), ["other"]);
    assert_eq!(world.container("next", Durability::Async), ContainerId(other.0 + 1));
    let taken = world.apply(whole("next", Durability::Async, Vec::new()), true);
    assert!(matches!(&taken, Response::Failed(error) if error.kind() == ErrorKind::Exists), "{taken:?}");
    world.kill();
    world.open().unwrap();
    assert_eq!(labels(&mut world), ["next", "other"]);
}

#[test]
fn what_a_container_begins_with_is_bounded_and_true() {
    let mut world = small_world();
    let id = world.container("c", Durability::Async);
    assert!(content(&mut world, id, 10).indices.is_empty());
    world.fill(id, 3);
    for number in 0..3 {
        world.must(vec![Update::IndexCreate { key: index(id, number) }]);
        for key in 0..number as u8 {
            let value = vec![key; 40_000];
            world.must(vec![Update::Put { index: index(id, number), key: vec![key], value, only_new: false }]);
        }
    }
    let found = content(&mut world, id, 10);
    let told: Vec<_> = found.indices.iter().map(|told| (told.records.len(), told.more)).collect();
    assert_eq!(told, [(0, false), (1, false), (1, true)], "64 KiB in all");
    assert_eq!(content(&mut world, id, 1).indices[1].records.len(), 1);
    let map = world.lookup(object(id, 1)).unwrap();
    assert_eq!(found.maps.len(), 1);
    assert_eq!((found.maps[0].1.version, found.maps[0].1.size), (map.version, map.size));
    assert_eq!(found.maps[0].1.extents, map.extents);
    // An object with many extents is left out: its readers ask for its map.
    for at in 0..40 {
        world.write(object(id, 1), at * 8192, &[4; 100]).unwrap();
    }
    assert!(content(&mut world, id, 1).maps.is_empty());
    let gone = world.ask(Request::ContainerContent { id: ContainerId(99), limit: 1, bytes_max: 1 });
    assert!(matches!(gone, Response::Failed(error) if error.kind() == ErrorKind::NotFound));
}
