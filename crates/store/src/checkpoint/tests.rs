//! A checkpoint, read and written again.

use std::ops::Bound;
use std::sync::Arc;

use cenote_model::{ContainerId, ContainerSpec, IndexId, StoreId};

use super::{Head, decode, encode};
use crate::container::Container;
use crate::index::{Index, Record, Value};
use crate::state::EngineState;

fn head() -> Head {
    Head { store: StoreId(7), sequence: 1, journal_from: 1, position: 0, epoch: 9 }
}

/// Two containers with an index each, of more than one section if `count` is large.
fn state(count: u32) -> EngineState {
    let mut state = EngineState { epoch: 9, ..EngineState::default() };
    for id in [1, 2] {
        let mut container = Container::new(ContainerId(id), format!("c{id}"), ContainerSpec::default(), 1);
        let mut index = Index::new(0);
        for n in 0..count {
            index.put(&n.to_be_bytes(), Record { epoch: 5, value: Value::Here(vec![n as u8; 60].into()) });
        }
        container.count_index(&index);
        container.content.indices.insert(IndexId(1), Box::new(index));
        state.containers.add(container);
    }
    state
}

fn read(bytes: &Arc<Vec<u8>>) -> EngineState {
    let mut state = EngineState::default();
    decode("checkpoint-000001", bytes, &mut state).unwrap();
    state
}

fn index(state: &EngineState, id: u64) -> &Index {
    &state.containers.get(ContainerId(id)).unwrap().content.indices[&IndexId(1)]
}

/// An opening decodes no records, and the next checkpoint is the same whether somebody asked for them or not.
#[test]
fn records_stay_encoded_until_they_are_asked_for() {
    for count in [0, 1, 100_000] {
        let bytes = Arc::new(encode(&state(count), &head(), 0));
        let found = read(&bytes);
        assert!(count == 0 || index(&found, 1).encoded().is_some() && index(&found, 2).encoded().is_some());
        assert_eq!(
            (index(&found, 1).len(), found.containers.get(ContainerId(1)).unwrap().content.records),
            (count.into(), count.into())
        );
        assert_eq!(encode(&found, &head(), 0), *bytes, "{count} records");
        assert_eq!(index(&found, 1).range(Bound::Unbounded).count(), count as usize);
        assert!(index(&found, 1).encoded().is_none());
        assert_eq!(encode(&found, &head(), 0), *bytes, "{count} records");
        assert!(found.audit().is_empty());
        assert!(count == 0 || index(&found, 2).encoded().is_some(), "an audit decodes none");
    }
}

/// Once most of a checkpoint's records were asked for, the others get memory of their own.
#[test]
fn a_checkpoint_that_was_read_is_let_go() {
    let mut three = state(1000);
    let mut more = Container::new(ContainerId(3), "c3".into(), ContainerSpec::default(), 1);
    more.content.indices.insert(IndexId(1), Box::new(index(&three, 1).clone()));
    more.content.records = 1000;
    three.containers.add(more);
    let bytes = Arc::new(encode(&three, &head(), 0));
    let mut found = read(&bytes);
    while !found.leave_checkpoint(1) {}
    assert_eq!(Arc::strong_count(&bytes), 4, "all are needed");
    for id in [1, 2] {
        assert!(index(&found, id).get(&[0; 4]).is_some());
    }
    while !found.leave_checkpoint(1) {}
    assert_eq!(Arc::strong_count(&bytes), 1, "one of three keeps no memory of the others");
    let (needed, kept) = index(&found, 3).encoded_bytes();
    assert_eq!(needed, kept);
    assert_eq!(index(&found, 3).range(Bound::Unbounded).count(), 1000);
}
