//! Bytes that move between tiers during reads and writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote::{Arrange, ArrangeTarget, ContainerSpec, Durability, Mode, Store};

use crate::tools::{Random, TestDir};

const MIB: u64 = 1 << 20;

/// The names of the tiers of an object.
fn tiers(store: &Store, object: &cenote::Object) -> Vec<String> {
    let mut names: Vec<String> =
        store.explain(object.key()).unwrap().ranges.into_iter().map(|range| range.device).collect();
    names.dedup();
    names
}

fn spec(policy: &str) -> ContainerSpec {
    ContainerSpec { durability: Durability::Bypass, policy: policy.into(), ..ContainerSpec::default() }
}

/// Reads from a slow tier bring bytes to memory in a container with such a policy, and leave them in place elsewhere.
pub fn reads_bring() {
    for mode in [Mode::InProcess, Mode::Daemon] {
        let place = TestDir::new();
        let store = place.make(mode);
        for (policy, wanted) in [("foresight", "memory"), ("", "disk")] {
            let container = store.create_container(&format!("c-{policy}"), &spec(policy)).unwrap();
            let object = container.create_object(None, None).unwrap();
            let content = Random::new(5).bytes(8 * MIB as usize);
            object.write_at(0, &content).unwrap();
            store.flush().unwrap();
            // On a busy machine the policy may have moved it already, since it was written just now.
            let first = tiers(&store, &object);
            assert!(first == ["disk"] || first == [wanted], "bypass goes to the lowest tier, not to {first:?}");
            let mut have = vec![0; content.len()];
            for _ in 0..3 {
                have.fill(0);
                assert_eq!(object.read_at(0, &mut have).unwrap(), content.len());
                assert!(have == content, "{mode:?}, `{policy}`");
            }
            assert_eq!(tiers(&store, &object), [wanted], "{mode:?}, `{policy}`");
        }
    }
}

/// A reader and a writer see the right bytes while everything moves up and down.
pub fn moved_while_used() {
    for mode in [Mode::InProcess, Mode::Daemon] {
        let place = TestDir::new();
        let store = place.make(mode);
        let container = store.create_container("moving", &spec("foresight")).unwrap();
        let objects: Vec<_> = (0..4).map(|_| container.create_object(None, None).unwrap()).collect();
        let seed = crate::tools::seed();
        let mut random = Random::new(seed);
        let mut images: Vec<Vec<u8>> = objects.iter().map(|_| random.bytes(MIB as usize)).collect();
        for (object, image) in objects.iter().zip(&images) {
            object.write_at(0, image).unwrap();
        }
        store.flush().unwrap();
        let (stop, moves) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let mut random = Random::new(seed ^ 1);
                while !stop.load(Ordering::Relaxed) {
                    let what = match random.below(3) {
                        0 => Arrange::Promote { to: None },
                        1 => Arrange::Demote { to: None },
                        _ => Arrange::Evict,
                    };
                    let key = objects[random.below(4) as usize].key();
                    let target = match random.below(3) {
                        0 => ArrangeTarget::Container(key.container),
                        1 => ArrangeTarget::Object(key),
                        _ => ArrangeTarget::Range { key, offset: random.below(MIB), len: 1 + random.below(MIB) },
                    };
                    let done = store.arrange(&target, &what, false).unwrap();
                    moves.fetch_add(done.ranges, Ordering::Relaxed);
                }
            });
            for round in 0..600 {
                let number = random.below(4) as usize;
                let (object, image) = (&objects[number], &mut images[number]);
                let from = random.below(MIB - 1) as usize;
                let len = (1 + random.below(300_000) as usize).min(image.len() - from);
                if random.below(4) == 0 {
                    let bytes = random.bytes(len);
                    object.write_at(from as u64, &bytes).unwrap();
                    image[from..from + len].copy_from_slice(&bytes);
                } else {
                    let mut have = vec![0; len];
                    object.read_at(from as u64, &mut have).unwrap();
                    assert!(have == image[from..from + len], "{mode:?}, seed {seed}, round {round}");
                }
            }
            stop.store(true, Ordering::Relaxed);
            mover.join().unwrap();
        });
        assert!(moves.load(Ordering::Relaxed) > 20, "only {} moves", moves.load(Ordering::Relaxed));
        let report = store.verify().unwrap();
        assert!(report.findings.is_empty(), "{report:?}");
    }
}

/// Single calls choose their buffering; a promise below the container's is refused.
pub fn modes_per_call() {
    for mode in [Mode::InProcess, Mode::Daemon] {
        let place = TestDir::new();
        let store = place.make(mode);
        for policy in ["", "foresight"] {
            let make = |durability| {
                let spec = ContainerSpec { durability, policy: policy.into(), ..ContainerSpec::default() };
                store.create_container(&format!("{}-{policy}", durability.word()), &spec).unwrap()
            };
            let container = make(Durability::Async);
            let content = Random::new(7).bytes(MIB as usize);
            let written = |how: &dyn Fn(&cenote::Object)| {
                let object = container.create_object(None, None).unwrap();
                how(&object);
                let tiers = tiers(&store, &object); // a read may promote it
                let mut have = vec![0; content.len()];
                assert_eq!(object.read_at(0, &mut have).unwrap(), content.len());
                assert!(have == content);
                tiers
            };
            // The plans of the other policy may have moved it since.
            let placed = |found: &[String], wanted: &str| assert!(found == [wanted] || !policy.is_empty(), "{found:?}");
            let (sync, bypass) = (Durability::Sync, Durability::Bypass);
            placed(&written(&|object| object.write_at(0, &content).unwrap()), "memory");
            placed(&written(&|object| object.buffered(sync).unwrap().write_at(0, &content).unwrap()), "disk");
            placed(&written(&|object| object.buffered(bypass).unwrap().write_at(0, &content).unwrap()), "disk");
            let pipelined = |object: &cenote::Object| {
                let through = object.buffered(sync).unwrap();
                let (first, second) = content.split_at(1000);
                let op = through.launch_write(0, first).unwrap();
                through.launch_write(1000, second).unwrap().wait().unwrap();
                op.wait().unwrap();
            };
            placed(&written(&pipelined), "disk");
            let called_back = |object: &cenote::Object| {
                let (tell, told) = std::sync::mpsc::channel();
                let op = object.buffered(sync).unwrap().launch_write(0, &content).unwrap();
                op.on_done(move |outcome| tell.send(outcome).unwrap());
                told.recv().unwrap().unwrap();
            };
            placed(&written(&called_back), "disk");
            let together = |object: &cenote::Object| {
                let mut transaction = store.begin();
                transaction.write(&object.buffered(sync).unwrap(), 0, &content).unwrap();
                transaction.commit().unwrap();
            };
            placed(&written(&together), "disk");
            for (own, wanted) in [
                (Durability::Async, Durability::Scratch),
                (Durability::Sync, Durability::Async),
                (Durability::Sync, Durability::Bypass),
                (Durability::Scratch, Durability::Sync),
            ] {
                let container = store.open_container(
                    &format!("{}-{policy}", own.word()),
                    &ContainerSpec { durability: own, policy: policy.into(), ..ContainerSpec::default() },
                );
                let object = container.unwrap().create_object(None, None).unwrap();
                let error = object.buffered(wanted).expect_err("it promises less");
                assert_eq!(error.kind(), cenote::ErrorKind::InvalidInput);
                assert!(error.to_string().contains(wanted.word()), "{error}");
            }
        }
    }
}

/// A program repeats its unpredictable reads: the second run prefetches the ranges that the first one waited for, and
/// the results are counted.
pub fn learned_by_the_next_run() {
    const PIECE: usize = 4 << 20; // slow even on a quick disk; all of them exceed the memory
    for mode in [Mode::InProcess, Mode::Daemon] {
        let place = TestDir::new();
        let mut order: Vec<u64> = (0..24).collect();
        let mut random = Random::new(11);
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
        let content = Random::new(12).bytes(24 * PIECE);
        let run = |store: Store, key: Option<cenote::ObjectKey>| {
            let container = store.open_container("runs", &spec("foresight")).unwrap();
            let object = key.map_or_else(
                || {
                    let made = container.create_object(None, None).unwrap();
                    for (i, piece) in content.chunks(PIECE).enumerate() {
                        made.write_at((i * PIECE) as u64, piece).unwrap();
                    }
                    store.flush().unwrap();
                    made
                },
                |key| container.object(key.object),
            );
            let before = store.telemetry(0).unwrap().counts;
            let mut have = vec![0; PIECE];
            for number in &order {
                let at = *number as usize * PIECE;
                object.read_at(at as u64, &mut have).unwrap();
                assert!(have == content[at..at + PIECE], "{mode:?}");
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            // Reads are reported later, with the next read.
            std::thread::sleep(std::time::Duration::from_millis(120));
            object.read_at(order[23] * PIECE as u64, &mut have).unwrap();
            let after = store.telemetry(0).unwrap().counts;
            store.arrange(&ArrangeTarget::Container(container.id()), &Arrange::Evict, false).unwrap();
            store.close().unwrap();
            let used = after.prefetch_used_bytes - before.prefetch_used_bytes;
            (object.key(), after.prefetched_bytes - before.prefetched_bytes, used)
        };
        let (key, ..) = run(place.make(mode), None);
        let (_, brought, used) = run(place.open(mode), Some(key));
        assert!(brought >= 3 * PIECE as u64, "{mode:?}: {brought} bytes were brought ahead");
        assert!(used <= brought && used >= brought / 4, "{mode:?}: {used} of {brought}");
    }
}
