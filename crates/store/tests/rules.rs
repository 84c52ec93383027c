//! Users' rules, life-cycle rules, and policies of plugins.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote_device::mem::{Keep, MemClock};
use cenote_device::{Clock, MetaDir};
use cenote_model::*;
use cenote_policy::{Decision, DeviceView, FastFirst, Guard, Incoming, Limits, Plan, Policy, RangeView, Refusal};
use world::manage::*;
use world::*;

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
fn a_policy_that_is_not_there_can_be_taken_away() {
    let mut world = World::new(&three_tiers(2 << 20, 4 << 20, 4 << 20));
    for _ in 0..2 {
        assert_eq!(world.ask(Request::PolicySet { text: None, dry_run: false }), Response::Done);
    }
}

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

    // An invalid file does not keep the store from opening.
    world.meta.write_file("policy.toml", b"version = 1\n[[rule]]\nname = 7\n").unwrap();
    world.kill();
    world.open().unwrap();
    let state = policy(&mut world);
    assert!(state.faults[0].contains("line 3"), "{:?}", state.faults);
    put(&mut world, object(container, 3), &pattern(1, 64 * KIB));
    assert_eq!(places(&mut world, object(container, 3)), ["memory"], "the default decides");
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
fn what_is_old_already_is_archived_and_then_released() {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 32 << 20));
    let runs = world.container("runs", Durability::Async);
    put(&mut world, object(runs, 1), &pattern(1, MIB));
    days_pass(&mut world, 9);
    set_policy(&mut world, RULES).unwrap();
    let (notes, _) = explain(&mut world, object(runs, 1));
    assert!(notes.contains("rule `away` (line 13) says: release what is archived on `capacity`, now"), "{notes}");
    assert!(!notes.contains("pinned"), "{notes}");
    arrange(&mut world, ArrangeTarget::Object(object(runs, 1)), Arrange::Pin { to: None });
    assert!(explain(&mut world, object(runs, 1)).0.contains("now, but it is pinned, which goes before"));
    arrange(&mut world, ArrangeTarget::Object(object(runs, 1)), Arrange::Unpin);
    days_pass(&mut world, 1);
    assert_eq!(places(&mut world, object(runs, 1)), ["capacity"]);
    assert_eq!(used(&mut world, "memory") + used(&mut world, "file"), 0);
    assert_eq!(world.read(object(runs, 1)).unwrap(), pattern(1, MIB));
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
            assert_eq!(places(&mut world, object(container, n)), ["memory"], "the default decides");
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
