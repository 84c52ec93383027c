//! What people say of where things are: pins, archives, queries; and rules that they write.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote_device::mem::{Keep, MemClock};
use cenote_device::{Clock, MetaDir};
use cenote_model::*;
use cenote_policy::{Decision, DeviceView, FastFirst, Guard, Incoming, Limits, Plan, Policy, RangeView, Refusal};
use world::*;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const DAY_NS: u64 = 86_400_000_000_000;
const DAY_MS: i64 = 86_400_000;

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ seed).collect()
}

fn names(world: &mut World) -> Vec<(DeviceId, String)> {
    let Response::Devices(devices) = world.ask(Request::Devices) else { panic!() };
    devices.into_iter().map(|device| (device.id, device.spec.name)).collect()
}

/// The names of the tiers on which an object is read, each once, in the order of offsets.
fn places(world: &mut World, key: ObjectKey) -> Vec<String> {
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

fn try_arrange(world: &mut World, target: ArrangeTarget, what: Arrange, dry_run: bool) -> Result<Arrangement> {
    match world.ask(Request::Arrange { target: Box::new(target), what, dry_run }) {
        Response::Arranged(arrangement) => Ok(*arrangement),
        Response::Failed(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn arrange(world: &mut World, target: ArrangeTarget, what: Arrange) -> Arrangement {
    try_arrange(world, target, what, false).unwrap()
}

fn on(text: &str) -> ArrangeTarget {
    ArrangeTarget::Query { container: None, text: text.to_owned() }
}

#[allow(clippy::unnecessary_wraps, reason = "as it is in requests")]
fn to(name: &str) -> Option<String> {
    Some(name.to_owned())
}

fn put(world: &mut World, key: ObjectKey, content: &[u8]) {
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, content).unwrap();
}

fn stat(world: &mut World, key: ObjectKey) -> ObjectStat {
    match world.ask(Request::ObjectStat { key }) {
        Response::Stat(stat) => stat,
        other => panic!("{other:?}"),
    }
}

fn used(world: &mut World, name: &str) -> u64 {
    world.settle();
    world.used().into_iter().find(|(tier, ..)| tier == name).unwrap().1
}

fn explain(world: &mut World, key: ObjectKey) -> (String, String) {
    match world.ask(Request::Explain { key }) {
        Response::Explanation(found) => {
            let whys: Vec<_> = found.ranges.iter().map(|range| range.why.as_str()).collect();
            (found.notes.join("\n"), whys.join("\n"))
        }
        other => panic!("{other:?}"),
    }
}

fn set_policy(world: &mut World, text: &str) -> Result<()> {
    match world.ask(Request::PolicySet { text: Some(text.to_owned()), dry_run: false }) {
        Response::Done => Ok(()),
        Response::Failed(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn policy(world: &mut World) -> PolicyState {
    match world.ask(Request::PolicyShow) {
        Response::Policy(state) => *state,
        other => panic!("{other:?}"),
    }
}

/// Lets days pass, an hour at a time, with some ticks in each.
fn days_pass(world: &mut World, days: u64) {
    world.settle();
    for _ in 0..days * 24 {
        world.clock.advance_ns(DAY_NS / 24);
        world.settle();
    }
}

/// Memory of 2 MiB filled to the brim from a container that may drain: everything that may leave leaves.
fn press(world: &mut World, container: ContainerId) {
    for n in 100..116 {
        put(world, object(container, n), &pattern(n as u8, 256 * KIB));
        world.clock.advance_ns(1_000_000_000);
        world.settle();
    }
    world.flush(FlushTarget::Store).unwrap();
    // These want the room of what was used longest ago.
    for n in 104..110 {
        arrange(world, ArrangeTarget::Object(object(container, n)), Arrange::Promote { to: to("memory") });
    }
    for _ in 0..20 {
        world.settle();
    }
}

#[test]
fn what_is_pinned_stays_under_pressure_and_through_restarts() {
    let mut world = World::new(&three_tiers(2 << 20, 8 << 20, 32 << 20));
    let container = world.container("c", Durability::Async);
    let (pinned, free) = (object(container, 1), object(container, 2));
    let content = pattern(1, 512 * KIB);
    put(&mut world, pinned, &content);
    put(&mut world, free, &pattern(2, 512 * KIB));
    world.flush(FlushTarget::Store).unwrap();
    let done = arrange(&mut world, ArrangeTarget::Object(pinned), Arrange::Pin { to: None });
    assert_eq!(done.pinned_bytes, 512 * KIB as u64);
    assert_eq!((stat(&mut world, pinned).pinned_bytes, stat(&mut world, free).pinned_bytes), (512 * KIB as u64, 0));
    press(&mut world, container);
    assert_eq!(places(&mut world, pinned), ["memory"], "it was idle for longest, and stays");
    assert_ne!(places(&mut world, free), ["memory"]);
    assert!(explain(&mut world, pinned).1.contains("pinned: it stays here"));
    for what in [Arrange::Evict, Arrange::Demote { to: to("capacity") }] {
        let left = arrange(&mut world, ArrangeTarget::Container(container), what);
        assert!(left.staying_why.contains("unpin it first") && left.staying_bytes >= 512 * KIB as u64);
        assert_eq!(places(&mut world, pinned), ["memory"]);
    }

    world.kill();
    world.open().unwrap();
    for n in 100..116 {
        world.must(vec![Update::ObjectDelete { key: object(container, n) }]);
    }
    press(&mut world, container);
    assert_eq!(places(&mut world, pinned), ["memory"], "said in the journal");
    assert_eq!(world.ask(Request::Checkpoint), Response::Done);
    world.kill();
    world.open().unwrap();
    assert_eq!(stat(&mut world, pinned).pinned_bytes, 512 * KIB as u64, "and in the checkpoint");

    arrange(&mut world, ArrangeTarget::Object(pinned), Arrange::Pin { to: to("memory") });
    world.flush(FlushTarget::Store).unwrap();
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert_ne!(places(&mut world, pinned), ["memory"], "memory is gone with the power");
    for _ in 0..200 {
        world.settle();
    }
    assert_eq!(places(&mut world, pinned), ["memory"], "it comes back to where it is pinned");
    assert_eq!(world.read(pinned).unwrap(), content);

    arrange(&mut world, ArrangeTarget::Object(pinned), Arrange::Unpin);
    arrange(&mut world, ArrangeTarget::Object(pinned), Arrange::Evict);
    assert_ne!(places(&mut world, pinned), ["memory"]);
    assert_eq!(stat(&mut world, pinned).pinned_bytes, 0);
    assert!(world.verify().findings.is_empty());
}

#[test]
fn pins_have_bounds_and_a_tier_that_is_emptied_goes_before() {
    let mut world = World::new(&three_tiers(2 << 20, 8 << 20, 32 << 20));
    let container = world.container("c", Durability::Bypass);
    for n in 1..=4 {
        put(&mut world, object(container, n), &pattern(n as u8, MIB));
    }
    let all = || ArrangeTarget::Container(container);
    let refused = try_arrange(&mut world, all(), Arrange::Pin { to: to("memory") }, false).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LimitExceeded);
    assert!(refused.to_string().contains("memory") && refused.to_string().contains("watermark"), "{refused}");
    assert_eq!(stat(&mut world, object(container, 1)).pinned_bytes, 0, "nothing was pinned");
    let unknown = try_arrange(&mut world, all(), Arrange::Pin { to: to("tape") }, false).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);

    // A range only, and brought to where it is to stay.
    let key = object(container, 1);
    let part = ArrangeTarget::Range { key, offset: 0, len: 64 << 10 };
    let tried = try_arrange(&mut world, part.clone(), Arrange::Pin { to: to("file") }, true).unwrap();
    assert_eq!((tried.moves[0].from.as_str(), tried.moves[0].to.as_str()), ("capacity", "file"));
    assert_eq!(stat(&mut world, key).pinned_bytes, 0, "a dry run");
    arrange(&mut world, part, Arrange::Pin { to: to("file") });
    assert_eq!(places(&mut world, key), ["file"]);

    // New bytes of a container that is pinned go to its tier.
    let other = world.container("other", Durability::Async);
    arrange(&mut world, ArrangeTarget::Container(other), Arrange::Pin { to: to("file") });
    put(&mut world, object(other, 1), &pattern(9, MIB));
    assert_eq!(places(&mut world, object(other, 1)), ["file"]);
    let alone = try_arrange(&mut world, ArrangeTarget::Object(object(other, 1)), Arrange::Unpin, false).unwrap_err();
    assert!(alone.to_string().contains("as a whole"), "{alone}");

    assert_eq!(world.ask(Request::DeviceDrain { name: "file".into() }), Response::Done);
    assert_eq!(places(&mut world, key), ["capacity"]);
    let why = explain(&mut world, key).1;
    assert!(why.contains("pinned to `file`"), "{why}");
    arrange(&mut world, ArrangeTarget::Container(other), Arrange::Unpin);
    assert_eq!(stat(&mut world, object(other, 1)).pinned_bytes, 0);
    // A new object of the same id is not pinned.
    world.must(vec![Update::ObjectDelete { key }]);
    put(&mut world, key, &pattern(5, 4096));
    assert_eq!(stat(&mut world, key).pinned_bytes, 0);
}

#[test]
fn archives_are_copies_that_were_read_back_and_releases_need_them() {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 32 << 20));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    let content = pattern(3, MIB);
    put(&mut world, key, &content);
    let target = || ArrangeTarget::Object(key);
    let refused = try_arrange(&mut world, target(), Arrange::Archive { to: to("memory") }, false).unwrap_err();
    assert!(refused.to_string().contains("power loss"), "{refused}");
    let early = arrange(&mut world, target(), Arrange::Release { to: None });
    assert!(early.staying_why.contains("archive it first"), "{}", early.staying_why);

    let planned = try_arrange(&mut world, target(), Arrange::Archive { to: None }, true).unwrap();
    assert_eq!((planned.bytes, planned.moves[0].to.as_str()), (MIB as u64, "capacity"));
    assert!(planned.cost_ns > 0 && planned.moves[0].why.contains("read back"));
    let done = arrange(&mut world, target(), Arrange::Archive { to: None });
    assert_eq!((done.moved_bytes, done.staying_bytes), (MIB as u64, 0), "{}", done.staying_why);
    assert_eq!(places(&mut world, key), ["memory"], "it stays there, too");
    let again = arrange(&mut world, target(), Arrange::Archive { to: None });
    assert_eq!((again.moved_bytes, again.already_bytes), (0, MIB as u64));
    world.write(key, 0, &pattern(4, 64 * KIB)).unwrap();
    let some = arrange(&mut world, target(), Arrange::Release { to: None });
    assert_eq!(
        (some.bytes, some.staying_bytes),
        ((MIB - 64 * KIB) as u64, 64 * KIB as u64),
        "what is new is not there"
    );
    assert_eq!(some.moved_bytes, 0);
    arrange(&mut world, target(), Arrange::Archive { to: None });
    arrange(&mut world, target(), Arrange::Release { to: None });
    assert_eq!(places(&mut world, key), ["capacity"]);
    world.flush(FlushTarget::Store).unwrap();
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    let mut expected = content;
    expected[..64 * KIB].copy_from_slice(&pattern(4, 64 * KIB));
    assert_eq!(world.read(key).unwrap(), expected);
    assert!(world.verify().findings.is_empty());
}

#[test]
fn what_does_not_read_back_as_it_was_is_no_archive() {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 32 << 20));
    let container = world.container("c", Durability::Sync);
    let key = object(container, 1);
    let content = pattern(3, 256 * KIB);
    put(&mut world, key, &content);
    world.writes_lie.store(true, Ordering::Relaxed);
    let done = arrange(&mut world, ArrangeTarget::Object(key), Arrange::Archive { to: None });
    assert!(done.staying_why.contains("checksum") && done.staying_why.contains("capacity"), "{}", done.staying_why);
    world.writes_lie.store(false, Ordering::Relaxed);
    let none = arrange(&mut world, ArrangeTarget::Object(key), Arrange::Release { to: None });
    assert_eq!((none.bytes, none.staying_bytes), (0, 256 << 10));
    assert_eq!(places(&mut world, key), ["file"]);
    arrange(&mut world, ArrangeTarget::Object(key), Arrange::Archive { to: None });
    arrange(&mut world, ArrangeTarget::Object(key), Arrange::Release { to: None });
    assert_eq!(places(&mut world, key), ["capacity"]);
    assert_eq!(world.read(key).unwrap(), content);
    assert!(world.verify().findings.is_empty());
}

#[test]
fn an_archive_goes_on_after_a_crash_at_any_step() {
    for steps in 1..14 {
        let mut world = World::new(&three_tiers(8 << 20, 8 << 20, 32 << 20));
        let container = world.container("c", Durability::Sync);
        for n in 1..=4 {
            put(&mut world, object(container, n), &pattern(n as u8, 512 * KIB));
        }
        let target = Box::new(ArrangeTarget::Container(container));
        let request = Request::Arrange { target, what: Arrange::Archive { to: None }, dry_run: false };
        let session = world.session;
        let _ = world.engine().handle(session, 999, request);
        let mut told = 0;
        for _ in 0..steps {
            world.step();
            let Response::Progress(running) = world.ask(Request::Progress) else { panic!() };
            told += running.len();
        }
        assert!(told > 0, "it is told how far it is");
        world.kill();
        world.open().unwrap();
        let rest = arrange(&mut world, ArrangeTarget::Container(container), Arrange::Archive { to: None });
        assert_eq!(rest.bytes + rest.already_bytes, 2 * MIB as u64, "after {steps} steps");
        assert_eq!(rest.staying_bytes, 0, "{}", rest.staying_why);
        let after = arrange(&mut world, ArrangeTarget::Container(container), Arrange::Release { to: None });
        assert_eq!((after.bytes, after.moved_bytes), (2 * MIB as u64, 0));
        for n in 1..=4 {
            assert_eq!(world.read(object(container, n)).unwrap(), pattern(n as u8, 512 * KIB));
            assert_eq!(places(&mut world, object(container, n)), ["capacity"]);
        }
        world.settle();
        let used: u64 = world.used().into_iter().filter(|(name, ..)| name != "capacity").map(|(_, used, _)| used).sum();
        assert_eq!(used, 0, "no copy is kept twice");
        assert!(world.verify().findings.is_empty());
    }
}

#[test]
fn queries_mean_what_they_say() {
    let mut world = World::new(&three_tiers(8 << 20, 8 << 20, 32 << 20));
    let (runs, other) = (world.container("runs", Durability::Async), world.container("other", Durability::Async));
    put(&mut world, object(runs, 0x1a), &pattern(1, MIB));
    put(&mut world, object(runs, 0x2a), &pattern(2, 64 * KIB));
    put(&mut world, object(other, 0x1a), &pattern(3, MIB));
    world.flush(FlushTarget::Store).unwrap();
    let would = |world: &mut World, text: &str| {
        let told = try_arrange(world, on(text), Arrange::Evict, true).unwrap();
        (told.objects, told.bytes)
    };
    let mib = MIB as u64;
    assert_eq!(would(&mut world, "label=runs"), (2, mib + (64 << 10)));
    assert_eq!(would(&mut world, "size>=1MiB and tier=memory"), (2, 2 * mib));
    assert_eq!(would(&mut world, "object=*1a and not label=other"), (1, mib));
    assert_eq!(would(&mut world, "tier=tape or age>1d"), (0, 0));
    days_pass(&mut world, 2);
    put(&mut world, object(runs, 3), &pattern(4, 64 * KIB));
    world.flush(FlushTarget::Store).unwrap();
    assert_eq!(would(&mut world, "age>1d").0, 3);
    assert_eq!(would(&mut world, "temperature=cold and copy=file").0, 3);
    assert_eq!(would(&mut world, "idle<1h").0, 1);
    world.kill();
    world.open().unwrap();
    world.settle();
    assert_eq!(would(&mut world, "age>2d").0, 0, "after a crash what is not known is young");
    let fault = try_arrange(&mut world, on("size>=1MiB and colour=red"), Arrange::Evict, true).unwrap_err();
    assert!(fault.to_string().contains("column 16") && fault.to_string().contains("colour"), "{fault}");
    let done = arrange(&mut world, on("label=runs and size<100KiB"), Arrange::Pin { to: None });
    assert_eq!((done.objects, done.pinned_bytes), (2, 128 << 10));
    assert_eq!(would(&mut world, "pinned=yes").0, 2);
}

const RULES: &str = r#"
version = 1
[[rule]]
name = "quick"
label = "quick*"
tier = "file"
[[lifecycle]]
name = "burn"
label = "scratch*"
age = "> 5d"
action = "delete"
[[lifecycle]]
name = "away"
label = "runs"
age = "> 3d"
action = "release"
to = "capacity"
[[lifecycle]]
name = "old"
label = "runs"
age = "> 2d"
action = "archive"
to = "capacity"
"#;

#[test]
fn rules_of_users_are_checked_followed_and_kept() {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 32 << 20));
    let make = |world: &mut World, label: &str| {
        let spec = ContainerSpec { policy: "user".into(), ..ContainerSpec::default() };
        world.apply(vec![Update::ContainerCreate { id: ContainerId(0), label: label.into(), spec }], true)
    };
    let Response::Failed(error) = make(&mut world, "quick-1") else { panic!("there are no rules yet") };
    assert!(error.to_string().contains("cenote policy set"), "{error}");
    set_policy(&mut world, RULES).unwrap();
    let Response::Applied { created: Some(container), .. } = make(&mut world, "quick-1") else { panic!() };
    put(&mut world, object(container, 1), &pattern(1, MIB));
    assert_eq!(places(&mut world, object(container, 1)), ["file"], "as the rule says");
    assert!(explain(&mut world, object(container, 1)).0.contains("policy `user`"));

    for (bad, line, word) in [
        (RULES.replace("tier = \"file\"", "tier = \"tape\""), "line 6", "no tier `tape`"),
        (RULES.replace("tier = \"file\"", "tier = \"file\"\nbudget = \"9GiB\""), "line 7", "which has 8"),
        (RULES.replace("label = \"quick*\"", "else = \"quick\""), "line 5", "circle"),
        (RULES.replace("\"> 5d\"", "\">= 0s\""), "line 11", "needs an age"),
        ("rule".to_owned(), "line 1", ""),
    ] {
        let error = set_policy(&mut world, &bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.cause().contains(line) && error.cause().contains(word), "{error}");
        let state = policy(&mut world);
        assert_eq!(state.text, RULES, "the last good one stays");
        assert!(state.refused.contains(line) && state.faults.is_empty());
    }
    world.kill();
    world.open().unwrap();
    assert_eq!(policy(&mut world).text, RULES);
    assert_eq!(policy(&mut world).followers, ["quick-1"]);
    put(&mut world, object(container, 2), &pattern(1, MIB));
    assert_eq!(places(&mut world, object(container, 2)), ["file"]);

    // A file that cannot be followed keeps nothing from opening.
    world.meta.write_file("policy.toml", b"version = 1\n[[rule]]\nname = 7\n").unwrap();
    world.kill();
    world.open().unwrap();
    let state = policy(&mut world);
    assert!(state.faults[0].contains("line 3"), "{:?}", state.faults);
    put(&mut world, object(container, 3), &pattern(1, 64 * KIB));
    assert_eq!(places(&mut world, object(container, 3)), ["memory"], "the preset decides");
    assert!(explain(&mut world, object(container, 3)).0.contains("`fast-first` decides"));
    set_policy(&mut world, RULES).unwrap();
    assert_eq!(world.ask(Request::PolicySet { text: None, dry_run: false }), Response::Done);
    assert_eq!(policy(&mut world), PolicyState { followers: vec!["quick-1".into()], ..PolicyState::default() });
    assert_eq!(world.read(object(container, 1)).unwrap(), pattern(1, MIB));
    assert_eq!(world.meta.read_file("policy.toml").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn things_age_as_the_rules_say() {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 32 << 20));
    let (runs, scratch) = (world.container("runs", Durability::Async), world.container("scratch-1", Durability::Async));
    let (old, doomed, kept) = (object(runs, 1), object(scratch, 1), object(scratch, 2));
    put(&mut world, old, &pattern(1, MIB));
    put(&mut world, doomed, &pattern(2, 64 * KIB));
    put(&mut world, kept, &pattern(3, 64 * KIB));
    arrange(&mut world, ArrangeTarget::Object(kept), Arrange::Pin { to: None });
    set_policy(&mut world, RULES).unwrap();
    let (notes, _) = explain(&mut world, old);
    assert!(notes.contains("in 2 days") || notes.contains("in 48 h"), "{notes}");
    assert!(notes.contains("archive to `capacity`") && notes.contains("line 19"), "{notes}");
    assert_eq!(world.ask(Request::RulesTry), Response::Arranged(Box::default()), "nothing is old");

    days_pass(&mut world, 1);
    world.write(old, 0, &pattern(1, MIB)).unwrap();
    days_pass(&mut world, 2);
    let Response::Arranged(tried) = world.ask(Request::RulesTry) else { panic!() };
    assert_eq!(tried.objects, 1, "{tried:?}");
    days_pass(&mut world, 1);
    let done = arrange(&mut world, ArrangeTarget::Object(old), Arrange::Archive { to: None });
    assert_eq!(done.already_bytes, MIB as u64, "the rule had it archived");
    days_pass(&mut world, 1);
    assert_eq!(places(&mut world, old), ["capacity"], "and released");
    assert_eq!(world.read(old).unwrap(), pattern(1, MIB));
    days_pass(&mut world, 2);
    assert!(world.lookup(doomed).is_err(), "burnt");
    assert_eq!(world.read(kept).unwrap(), pattern(3, 64 * KIB), "what is pinned is left alone");
    let rules = policy(&mut world).rules;
    assert_eq!(rules.iter().map(|rule| rule.deleted).collect::<Vec<_>>(), [1, 0, 0]);
    assert!(rules[2].bytes >= MIB as u64 && rules[1].bytes >= MIB as u64, "{rules:?}");
    assert!(rules[0].last_error.contains("pinned"), "{rules:?}");
    world.kill();
    world.open().unwrap();
    assert!(world.lookup(doomed).is_err(), "it is in the journal");
    assert!(world.verify().findings.is_empty());
}

#[test]
fn copies_that_are_spare_are_given_up_and_no_others() {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 32 << 20));
    let (kept, drained) = (world.container("kept", Durability::Async), world.container("drained", Durability::Sync));
    let (volatile, persistent) = (object(kept, 1), object(drained, 1));
    for key in [volatile, persistent] {
        put(&mut world, key, &pattern(1, MIB));
        arrange(&mut world, ArrangeTarget::Object(key), Arrange::Archive { to: None });
    }
    let rule = "version = 1\n[[lifecycle]]\nname = \"spare\"\nage = \"> 1h\"\naction = \"delete-copy\"\n";
    set_policy(&mut world, rule).unwrap();
    days_pass(&mut world, 1);
    assert_eq!(used(&mut world, "capacity"), MIB as u64, "the copy of what is only in memory stays");
    let again = |world: &mut World, key| {
        try_arrange(world, ArrangeTarget::Object(key), Arrange::Archive { to: None }, true).unwrap().already_bytes
    };
    assert_eq!((again(&mut world, volatile), again(&mut world, persistent)), (MIB as u64, 0));
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert_eq!(world.read(persistent).unwrap(), pattern(1, MIB));
    assert_eq!(world.read(volatile).unwrap(), pattern(1, MIB));
    assert!(world.verify().findings.is_empty());
}

#[test]
fn clocks_that_jump_delete_nothing() {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 32 << 20));
    let scratch = world.container("scratch", Durability::Async);
    let keys: Vec<ObjectKey> = (0..10).map(|n| object(scratch, n)).collect();
    for key in &keys {
        put(&mut world, *key, &pattern(1, 4 * KIB));
    }
    set_policy(&mut world, RULES).unwrap();
    let all_there = |world: &mut World| {
        for _ in 0..100 {
            world.clock.advance_ns(1_000_000_000);
            world.settle();
        }
        keys.iter().all(|key| world.lookup(*key).is_ok())
    };
    world.settle();
    for days in [4000, -3000, -5000, 4000, 9000] {
        world.clock.shift_calendar_ms(days * DAY_MS);
        assert!(all_there(&mut world), "the clock went {days} days");
    }
    // While the store is closed, too.
    world.engine().close().unwrap();
    world.kill();
    world.clock.shift_calendar_ms(3000 * DAY_MS);
    world.open().unwrap();
    assert!(all_there(&mut world));
    let held = policy(&mut world).deletes_held;
    assert!(held.contains("days later") || held.is_empty(), "{held}");
    let Response::Arranged(tried) = world.ask(Request::RulesTry) else { panic!() };
    assert!(tried.moves.is_empty(), "{tried:?}");
    world.engine().close().unwrap();
    world.kill();
    world.clock.shift_calendar_ms(-8000 * DAY_MS);
    world.open().unwrap();
    world.settle();
    assert!(policy(&mut world).deletes_held.contains("went back"));
    assert!(all_there(&mut world));
    // Time that really passes counts.
    days_pass(&mut world, 7);
    assert!(keys.iter().all(|key| world.lookup(*key).is_err()), "{:?}", policy(&mut world));
}

struct Foreign {
    clock: Arc<MemClock>,
    panics: AtomicBool,
    dawdles: AtomicBool,
}

impl Policy for Foreign {
    fn name(&self) -> &'static str {
        "foreign"
    }
    fn about(&self) -> &'static str {
        "says file"
    }
    fn place(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> std::result::Result<Decision, Refusal> {
        assert!(!self.panics.load(Ordering::Relaxed), "on purpose");
        if self.dawdles.load(Ordering::Relaxed) {
            self.clock.advance_ns(1_000_000_000);
        }
        FastFirst.place(&devices[1..], incoming)
    }
    fn plan(&self, _: &[DeviceView], _: &[RangeView<'_>], _: &Limits<'_>) -> Plan {
        assert!(!self.panics.load(Ordering::Relaxed), "on purpose");
        Plan::default()
    }
}

#[test]
fn a_policy_from_outside_is_followed_while_it_behaves() {
    for panics in [true, false] {
        let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 32 << 20));
        let foreign = Arc::new(Foreign {
            clock: Arc::clone(&world.clock),
            panics: AtomicBool::new(false),
            dawdles: AtomicBool::new(false),
        });
        let clock = Arc::clone(&world.clock);
        let guard = Arc::new(Guard::new(Arc::clone(&foreign) as _, 20_000_000, Arc::new(move || clock.now_ns()) as _));
        world.engine().add_policy(Arc::clone(&guard) as _).unwrap();
        let spec = ContainerSpec { policy: "foreign".into(), ..ContainerSpec::default() };
        let make = Update::ContainerCreate { id: ContainerId(0), label: "c".into(), spec };
        let Response::Applied { created: Some(container), .. } = world.apply(vec![make], true) else { panic!() };
        put(&mut world, object(container, 1), &pattern(1, 64 * KIB));
        assert_eq!(places(&mut world, object(container, 1)), ["file"]);
        assert_eq!(policy(&mut world).plugins[0].failure, "");
        let (does, word) = if panics {
            (&foreign.panics, "panicked: on purpose")
        } else {
            (&foreign.dawdles, "more than 20000000 ns")
        };
        does.store(true, Ordering::Relaxed);
        for n in 2..14 {
            put(&mut world, object(container, n), &pattern(1, 64 * KIB));
            assert_eq!(places(&mut world, object(container, n)), ["memory"], "the preset decides");
        }
        let failure = policy(&mut world).plugins[0].failure.clone();
        assert!(failure.contains(word), "{failure}");
        assert!(explain(&mut world, object(container, 2)).0.contains(word));
        // Without it the store opens, and the container may keep its policy.
        world.kill();
        world.open().unwrap();
        put(&mut world, object(container, 99), &pattern(1, 64 * KIB));
        assert_eq!(places(&mut world, object(container, 99)), ["memory"]);
        assert!(explain(&mut world, object(container, 99)).0.contains("not loaded"));
        let spec = ContainerSpec { policy: "foreign".into(), quota_bytes: 1 << 30, ..ContainerSpec::default() };
        world.must(vec![Update::ContainerSet { id: container, spec }]);
    }
}
