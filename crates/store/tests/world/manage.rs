//! Requests and checks for tests of management.

use cenote_model::*;

use super::World;

pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;
pub const DAY_NS: u64 = 86_400_000_000_000;
pub const DAY_MS: i64 = 86_400_000;

pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ seed).collect()
}

pub fn names(world: &mut World) -> Vec<(DeviceId, String)> {
    let Response::Devices(devices) = world.ask(Request::Devices) else { panic!() };
    devices.into_iter().map(|device| (device.id, device.spec.name)).collect()
}

/// The names of the tiers on which an object is read, each once, in the order of offsets.
pub fn places(world: &mut World, key: ObjectKey) -> Vec<String> {
    let names = names(world);
    let mut found: Vec<String> = Vec::new();
    for (_, extent) in world.lookup(key).unwrap().extents {
        let name = names.iter().find(|(id, _)| *id == extent.device).unwrap().1.clone();
        if found.last() != Some(&name) {
            found.push(name);
        }
    }
    found
}

pub fn try_arrange(world: &mut World, target: ArrangeTarget, what: Arrange, dry_run: bool) -> Result<Arrangement> {
    match world.ask(Request::Arrange { target: Box::new(target), what, dry_run }) {
        Response::Arranged(arrangement) => Ok(*arrangement),
        Response::Failed(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

pub fn arrange(world: &mut World, target: ArrangeTarget, what: Arrange) -> Arrangement {
    try_arrange(world, target, what, false).unwrap()
}

pub fn on(text: &str) -> ArrangeTarget {
    ArrangeTarget::Query { container: None, text: text.to_owned() }
}

#[allow(clippy::unnecessary_wraps, reason = "as it is in requests")]
pub fn to(name: &str) -> Option<String> {
    Some(name.to_owned())
}

pub fn put(world: &mut World, key: ObjectKey, content: &[u8]) {
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, content).unwrap();
}

pub fn stat(world: &mut World, key: ObjectKey) -> ObjectStat {
    match world.ask(Request::ObjectStat { key }) {
        Response::Stat(stat) => stat,
        other => panic!("{other:?}"),
    }
}

pub fn used(world: &mut World, name: &str) -> u64 {
    world.settle();
    world.used().into_iter().find(|(tier, ..)| tier == name).unwrap().1
}

pub fn explain(world: &mut World, key: ObjectKey) -> (String, String) {
    match world.ask(Request::Explain { key }) {
        Response::Explanation(found) => {
            let whys: Vec<_> = found.ranges.iter().map(|range| range.why.as_str()).collect();
            (found.notes.join("\n"), whys.join("\n"))
        }
        other => panic!("{other:?}"),
    }
}

pub fn set_policy(world: &mut World, text: &str) -> Result<()> {
    match world.ask(Request::PolicySet { text: Some(text.to_owned()), dry_run: false }) {
        Response::Done => Ok(()),
        Response::Failed(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

pub fn policy(world: &mut World) -> PolicyState {
    match world.ask(Request::PolicyShow) {
        Response::Policy(state) => *state,
        other => panic!("{other:?}"),
    }
}

/// Lets days pass, an hour at a time, with some ticks in each.
pub fn days_pass(world: &mut World, days: u64) {
    world.settle();
    for _ in 0..days * 24 {
        world.clock.advance_ns(DAY_NS / 24);
        world.settle();
    }
}
