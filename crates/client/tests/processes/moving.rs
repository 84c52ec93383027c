//! Bytes move between tiers while they are read and written.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote::{Arrange, ArrangeTarget, ContainerSpec, Durability, Mode, Store};

use crate::tools::{Place, Random};

const MIB: u64 = 1 << 20;

/// Names of the tiers that an object is read from.
fn tiers(store: &Store, object: &cenote::Object) -> Vec<String> {
    let mut names: Vec<String> =
        store.explain(object.key()).unwrap().ranges.into_iter().map(|range| range.device).collect();
    names.dedup();
    names
}

fn spec(policy: &str) -> ContainerSpec {
    ContainerSpec { durability: Durability::Bypass, policy: policy.into(), ..ContainerSpec::default() }
}

/// What is read from a slow tier in a container that minds comes to memory; elsewhere it stays where it is.
pub fn reads_bring() {
    for mode in [Mode::InProcess, Mode::Daemon] {
        let place = Place::new();
        let store = place.make(mode);
        for (policy, wanted) in [("foresight", "memory"), ("", "disk")] {
            let container = store.create_container(&format!("c-{policy}"), &spec(policy)).unwrap();
            let object = container.create_object(None, None).unwrap();
            let content = Random::new(5).bytes(8 * MIB as usize);
            object.write_at(0, &content).unwrap();
            store.flush().unwrap();
            assert_eq!(tiers(&store, &object), ["disk"], "bypass goes to the lowest tier");
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

/// A reader and a writer see what they should while everything is moved up and down under them.
pub fn moved_while_used() {
    for mode in [Mode::InProcess, Mode::Daemon] {
        let place = Place::new();
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
