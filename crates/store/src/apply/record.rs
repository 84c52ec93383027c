//! Indices and their records.

use cenote_model::{IndexKey, KEY_BYTES_MAX, KeyCode, VALUE_BYTES_MAX};

use super::{NO_CONTAINER, NO_INDEX, NO_KEY, PAST_QUOTA, Refusal, Step, Txn, refuse};
use crate::index::{Disorder, Index, Key, Record, Value};
use crate::state::EngineState;

impl EngineState {
    pub(super) fn index_create(&mut self, txn: &mut Txn, key: IndexKey) -> Result<(), Refusal> {
        let at = self.containers.slot_of(key.container).ok_or(NO_CONTAINER)?;
        let container = self.containers.at_mut(at);
        let created = container.durable.cuts;
        if container.content.indices.contains_key(&key.index) {
            return Err(refuse(KeyCode::Exists, "the index exists already"));
        }
        container.content.indices.insert(key.index, Box::new(Index::new(created)));
        txn.steps.push(Step::IndexCreated { container: at, index: key.index });
        Ok(())
    }

    pub(super) fn index_delete(&mut self, txn: &mut Txn, key: IndexKey) -> Result<(), Refusal> {
        let at = self.containers.slot_of(key.container).ok_or(NO_CONTAINER)?;
        let container = self.containers.at_mut(at);
        let was = container.content.indices.remove(&key.index).ok_or(NO_INDEX)?;
        container.discount_index(&was);
        txn.steps.push(Step::IndexDeleted { container: at, index: key.index, was });
        Ok(())
    }

    pub(super) fn put(
        &mut self,
        txn: &mut Txn,
        index: IndexKey,
        key: &[u8],
        value: Vec<u8>,
        only_new: bool,
    ) -> Result<(), Refusal> {
        if key.len() > KEY_BYTES_MAX {
            return Err(refuse(KeyCode::Invalid, "a key has at most 64 KiB"));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(refuse(KeyCode::Invalid, "a value has at most 16 MiB"));
        }
        let at = self.containers.slot_of(index.container).ok_or(NO_CONTAINER)?;
        let container = self.containers.at_mut(at);
        let cuts = container.durable.cuts;
        let records = container.content.indices.get(&index.index).ok_or(NO_INDEX)?;
        let in_new_index = records.created == cuts;
        // The journal's updates were accepted once, perhaps by an index out of order that did not find the key.
        let blind = u64::from(only_new && records.get(key).is_some());
        if blind > 0 && !self.space.replaying {
            return Err(refuse(KeyCode::Exists, "the key is there already"));
        }
        let after = key.len() + value.len();
        // The journal's updates were accepted once, perhaps by an engine that did not count records.
        if container.is_past_quota(after as u64, 0) && !self.space.replaying && !txn.is_settled {
            let replaced = records.get(key).map_or(0, |was| key.len() + was.value.len());
            if container.is_past_quota(after as u64, replaced as u64) {
                return Err(PAST_QUOTA);
            }
        }
        let records = container.content.indices.get_mut(&index.index).ok_or(NO_INDEX)?;
        let was = records.put(key, Record { epoch: txn.epoch, value: Value::Here(value.into_boxed_slice()) });
        container.count_record(was.as_ref().map(|was| key.len() + was.value.len()), Some(after));
        let key = Key::new(key);
        txn.steps.push(Step::Record { container: at, index: index.index, key, was, in_new_index });
        self.found_disorder(index, Disorder { blind, ..Disorder::default() });
        Ok(())
    }

    pub(super) fn del(&mut self, txn: &mut Txn, index: IndexKey, key: &[u8]) -> Result<(), Refusal> {
        let at = self.containers.slot_of(index.container).ok_or(NO_CONTAINER)?;
        let container = self.containers.at_mut(at);
        let cuts = container.durable.cuts;
        let records = container.content.indices.get_mut(&index.index).ok_or(NO_INDEX)?;
        let in_new_index = records.created == cuts;
        let Some(was) = records.del(key) else {
            if self.space.replaying {
                // An index out of order held the key twice, and both records were deleted.
                self.found_disorder(index, Disorder { blind: 1, ..Disorder::default() });
                return Ok(());
            }
            return Err(NO_KEY);
        };
        container.count_record(Some(key.len() + was.value.len()), None);
        txn.steps.push(Step::Record {
            container: at,
            index: index.index,
            key: Key::new(key),
            was: Some(was),
            in_new_index,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use cenote_model::{ContainerId, ContainerSpec, IndexId, Update};

    use super::*;

    /// The journal of an index that had lost its order: its updates were acknowledged, so replay carries them out and
    /// reports the disorder.
    #[test]
    fn replay_carries_out_what_an_index_without_order_had_allowed() {
        let mut state = EngineState::default();
        let index = IndexKey { container: ContainerId(1000), index: IndexId(1) };
        let apply = |state: &mut EngineState, epoch: u64, update: Update| {
            let mut txn = Txn { epoch, ..Txn::default() };
            let done = state.apply(&mut txn, update);
            state.epoch = epoch;
            state.commit(&mut txn, crate::space::Tag::default());
            done
        };
        let put = |value: u8| Update::Put { index, key: b"k".to_vec(), value: vec![value], only_new: true };
        let del = || Update::Del { index, key: b"k".to_vec() };
        let spec = ContainerSpec::default();
        let create = Update::ContainerCreate { id: index.container, label: "c".into(), spec };
        for (epoch, update) in [(1, create), (2, Update::IndexCreate { key: index }), (3, put(1))] {
            assert!(apply(&mut state, epoch, update).is_ok());
        }
        assert_eq!(apply(&mut state, 4, put(2)).map_err(|refusal| refusal.code), Err(KeyCode::Exists));
        state.space.replaying = true;
        assert!(apply(&mut state, 5, put(3)).is_ok());
        assert!(apply(&mut state, 6, del()).is_ok() && apply(&mut state, 7, del()).is_ok());
        assert_eq!(state.containers.disorder, [(index, Disorder { misplaced: 0, twice: 0, blind: 2 })]);
        assert_eq!(state.audit_container(index.container), None);
        assert_eq!(state.audit_space().len(), 1, "a verify names it");
        state.space.replaying = false;
        assert_eq!(apply(&mut state, 8, del()).map_err(|refusal| refusal.code), Err(KeyCode::NotFound));
    }
}
