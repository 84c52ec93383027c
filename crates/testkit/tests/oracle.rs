//! The oracle must refuse what is not allowed: an oracle that accepts everything would pass every store.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_model::{ContainerId, ContainerSpec, Durability, IndexId, IndexKey, ObjectId, ObjectKey};
use cenote_testkit::content::{self, WriteId};
use cenote_testkit::oracle::{Change, Observed, ObservedContainer, ObservedObject, Oracle, StoreState};
use cenote_testkit::rng::Rng;

const A: ContainerId = ContainerId(1);
const B: ContainerId = ContainerId(2);

fn key(container: ContainerId) -> ObjectKey {
    ObjectKey { container, object: ObjectId(1) }
}

fn make(oracle: &mut Oracle, id: ContainerId, durability: Durability) {
    let spec = ContainerSpec { durability, ..ContainerSpec::default() };
    let epoch = oracle.len() as u64 + 1;
    let changes = vec![
        Change::ContainerCreate { id, label: format!("label {id}"), spec },
        Change::ObjectCreate { key: key(id), block_shift: 12 },
        Change::IndexCreate { key: IndexKey { container: id, index: IndexId(1) } },
    ];
    let entry = oracle.applied(epoch, changes, true);
    oracle.acked(entry);
}

fn write(container: ContainerId, id: u64) -> Change {
    Change::Write { key: key(container), offset: 10, len: 100, id: WriteId(id), from: 0 }
}

fn apply(oracle: &mut Oracle, changes: Vec<Change>, acked: bool) -> usize {
    let epoch = oracle.len() as u64 + 1;
    let entry = oracle.applied(epoch, changes, true);
    if acked {
        oracle.acked(entry);
    }
    entry
}

/// The observation of a store in this state.
fn observe(state: &StoreState) -> Observed {
    let mut observed = Observed::default();
    for (id, container) in &state.containers {
        let mut found = ObservedContainer {
            label: container.label.clone(),
            spec: container.spec.clone(),
            ..ObservedContainer::default()
        };
        for (id, object) in &container.objects {
            let pieces = (object.map.iter())
                .map(|(at, segment)| (*at, content::bytes(segment.id, segment.from, segment.len as usize)))
                .collect();
            let (size, block_shift, epoch) = (object.size, object.block_shift, object.epoch);
            found.objects.insert(*id, ObservedObject { size, block_shift, epoch, pieces, refused: Vec::new() });
        }
        for (id, records) in &container.indices {
            let records = records.iter().map(|(key, (value, epoch))| (key.clone(), (value.to_vec(), *epoch)));
            found.indices.insert(*id, records.collect::<BTreeMap<_, _>>());
        }
        observed.containers.insert(*id, found);
    }
    observed
}

/// States after 0, 1, 2, … of the changes, and an oracle that knows all of them.
fn run(durability: Durability, acked: &[bool]) -> (Oracle, Vec<Observed>) {
    let mut oracle = Oracle::new();
    make(&mut oracle, A, durability);
    let mut states = vec![observe(oracle.current())];
    for (n, acked) in acked.iter().enumerate() {
        apply(&mut oracle, vec![write(A, n as u64 + 1)], *acked);
        states.push(observe(oracle.current()));
    }
    (oracle, states)
}

#[test]
fn process_death_keeps_the_acknowledged_and_a_prefix_of_the_rest() {
    let (oracle, states) = run(Durability::Async, &[true, true, false, false]);
    for (kept, observed) in states.iter().enumerate() {
        let verdict = oracle.clone().after_process_death(observed);
        assert_eq!(verdict.is_ok(), kept >= 2, "{kept} of 4 updates, 2 acknowledged: {verdict:?}");
    }
}

#[test]
fn power_loss_keeps_what_was_flushed_or_sync() {
    let (mut oracle, states) = run(Durability::Async, &[true, true, true]);
    assert!(oracle.clone().after_power_loss(&Observed::default()).is_ok(), "nothing was flushed");
    oracle.flushed(Some(A), 2);
    for (kept, observed) in states.iter().enumerate() {
        let verdict = oracle.clone().after_power_loss(observed);
        // Two entries: the creation of the container, and the first write.
        assert_eq!(verdict.is_ok(), kept >= 1, "{kept} updates: {verdict:?}");
    }
    assert!(oracle.after_power_loss(&Observed::default()).is_err(), "a flushed container is gone");

    let (oracle, states) = run(Durability::Sync, &[true, true, false]);
    for (kept, observed) in states.iter().enumerate() {
        let verdict = oracle.clone().after_power_loss(observed);
        assert_eq!(verdict.is_ok(), kept >= 2, "{kept} updates, 2 acknowledged: {verdict:?}");
    }
}

#[test]
fn a_wrong_byte_is_noticed_wherever_it_is() {
    let (oracle, states) = run(Durability::Async, &[true]);
    for at in 0..100 {
        let mut bent = states[1].clone();
        let container = bent.containers.get_mut(&A).expect("it is there");
        container.objects.get_mut(&ObjectId(1)).expect("it is there").pieces[0].1[at] ^= 1;
        assert!(oracle.clone().after_process_death(&bent).is_err(), "byte {at}");
        assert!(oracle.clone().after_power_loss(&bent).is_err(), "byte {at}");
    }
}

#[test]
fn transactions_over_containers_are_whole_or_absent() {
    let mut oracle = Oracle::new();
    make(&mut oracle, A, Durability::Async);
    make(&mut oracle, B, Durability::Async);
    oracle.flushed(None, oracle.len());
    let before = observe(oracle.current());
    apply(&mut oracle, vec![write(A, 1), write(B, 2)], true);
    let after = observe(oracle.current());
    let mut torn = after.clone();
    torn.containers.insert(B, before.containers[&B].clone());
    assert!(oracle.clone().after_power_loss(&before).is_ok());
    assert!(oracle.clone().after_power_loss(&after).is_ok());
    let verdict = oracle.after_power_loss(&torn);
    assert!(verdict.as_ref().is_err_and(|e| e.contains("torn")), "{verdict:?}");
}

#[test]
fn independent_containers_may_go_back_by_different_amounts() {
    let mut oracle = Oracle::new();
    make(&mut oracle, A, Durability::Async);
    make(&mut oracle, B, Durability::Async);
    let before = observe(oracle.current());
    apply(&mut oracle, vec![write(A, 1)], true);
    apply(&mut oracle, vec![write(B, 2)], true);
    let mut mixed = observe(oracle.current());
    mixed.containers.insert(A, before.containers[&A].clone());
    assert!(oracle.clone().after_power_loss(&mixed).is_ok());
    // But not into a state that never existed.
    let object = mixed.containers.get_mut(&A).and_then(|c| c.objects.get_mut(&ObjectId(1))).expect("it is there");
    object.size = 7;
    assert!(oracle.after_power_loss(&mixed).is_err());
}

#[test]
fn scratch_objects_with_bytes_may_be_gone_and_others_may_not() {
    let mut oracle = Oracle::new();
    make(&mut oracle, A, Durability::Scratch);
    apply(&mut oracle, vec![write(A, 1)], true);
    oracle.flushed(Some(A), oracle.len());
    let mut observed = observe(oracle.current());
    observed.containers.get_mut(&A).expect("it is there").objects.clear();
    assert!(oracle.clone().after_power_loss(&observed).is_ok());
    observed.containers.get_mut(&A).expect("it is there").indices.clear();
    assert!(oracle.after_power_loss(&observed).is_err());
}

/// Random histories: each prefix that respects the floors is accepted, and the oracle continues from it.
#[test]
fn random_prefixes_are_accepted_and_become_the_base() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let mut oracle = Oracle::new();
        make(&mut oracle, A, Durability::Async);
        oracle.flushed(None, 1);
        for round in 0..4 {
            let mut states = vec![observe(oracle.current())];
            for n in 0..rng.between(1, 8) {
                let index = IndexKey { container: A, index: IndexId(1) };
                let value: Arc<[u8]> = content::bytes(WriteId(seed * 100 + round * 10 + n), 0, 9).into();
                let change = match rng.below(3) {
                    0 => Change::Put { index, key: vec![rng.below(3) as u8], value, only_new: false },
                    1 => Change::Truncate { key: key(A), size: rng.below(200) },
                    _ => write(A, 1000 * (round + 1) + n),
                };
                apply(&mut oracle, vec![change], true);
                states.push(observe(oracle.current()));
            }
            let kept = rng.index(states.len());
            let verdict = oracle.after_power_loss(&states[kept]);
            assert!(verdict.is_ok(), "CENOTE_SEED={seed}: {verdict:?}");
            assert_eq!(states[kept].compare(oracle.current()), Ok(()), "CENOTE_SEED={seed}");
        }
    }
}

#[test]
fn a_label_goes_with_the_content_that_it_was_given_to() {
    let mut oracle = Oracle::new();
    make(&mut oracle, A, Durability::Async);
    let before = observe(oracle.current());
    apply(&mut oracle, vec![write(A, 1)], true);
    apply(&mut oracle, vec![Change::ContainerRename { id: A, label: "result".into() }], true);
    let after = observe(oracle.current());
    let mut empty = before.clone();
    empty.containers.get_mut(&A).expect("it is there").label = "result".into();
    assert!(oracle.clone().after_power_loss(&before).is_ok());
    assert!(oracle.clone().after_power_loss(&after).is_ok());
    assert!(oracle.after_power_loss(&empty).is_err(), "a new name for what was there before the writes");
}
