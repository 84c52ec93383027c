//! Container updates. Creation and deletion follow the journal itself: power loss takes them back only with the
//! journal's end. A rename and new settings are updates of the container like any others: a rollback takes them back in
//! order. So does it with the creation of a container whose label another gave up by a rename that may still be rolled
//! back.

use cenote_model::{
    BLOCK_SHIFT_MAX, BLOCK_SHIFT_MIN, CONTAINER_MODE_BITS, CONTAINER_WEIGHT_MAX, ContainerId, ContainerSpec,
    Durability, KeyCode, LABEL_BYTES_MAX,
};

use super::{NO_CONTAINER, Refusal, Step, Txn, refuse};
use crate::codec::ORDINALS_END;
use crate::container::Container;
use crate::state::EngineState;
use crate::undo::{Change, Undo};

/// Longest name of a placement policy, in bytes.
const POLICY_BYTES_MAX: usize = 255;

fn check_label(label: &str) -> Result<(), Refusal> {
    match label.len() {
        0 => Err(refuse(KeyCode::Invalid, "a label must not be empty")),
        len if len > LABEL_BYTES_MAX => Err(refuse(KeyCode::Invalid, "a label has at most 4096 bytes")),
        _ => Ok(()),
    }
}

fn check_spec(state: &EngineState, spec: &ContainerSpec, before: Option<&ContainerSpec>) -> Result<(), Refusal> {
    if !(BLOCK_SHIFT_MIN..=BLOCK_SHIFT_MAX).contains(&spec.block_shift) {
        return Err(refuse(KeyCode::Invalid, "the block size must be 2^6 to 2^24 bytes"));
    }
    if spec.mode & !CONTAINER_MODE_BITS != 0 {
        return Err(refuse(KeyCode::Invalid, "a container's mode has nine bits: 0 to 0777"));
    }
    if !(1..=CONTAINER_WEIGHT_MAX).contains(&spec.weight) {
        return Err(refuse(KeyCode::Invalid, "a container's weight is 1 to 1000"));
    }
    // A policy that was accepted once is replayed, and may stay, whether its plugin is loaded now or not.
    let stays = || state.space.replaying || before.is_some_and(|before| before.policy == spec.policy);
    if cenote_policy::by_name(&spec.policy).is_none() && !state.containers.policies.contains(&spec.policy) && !stays() {
        return Err(refuse(
            KeyCode::Invalid,
            if spec.policy == "user" {
                "the policy `user` follows a file of rules, and there is none: set one with `cenote policy set FILE`"
            } else {
                "no such placement policy: `cenote policies` lists them, `fast-first` is the default"
            },
        ));
    }
    if spec.policy.len() > POLICY_BYTES_MAX {
        return Err(refuse(KeyCode::Invalid, "the name of a policy has at most 255 bytes"));
    }
    Ok(())
}

impl EngineState {
    pub(super) fn container_create(
        &mut self,
        txn: &mut Txn,
        id: ContainerId,
        label: String,
        spec: ContainerSpec,
    ) -> Result<(), Refusal> {
        check_label(&label)?;
        check_spec(self, &spec, None)?;
        if self.containers.by_label(&label).is_some() {
            return Err(refuse(KeyCode::Exists, "the label is taken"));
        }
        let id = if id.0 == 0 { ContainerId(self.containers.next_id) } else { id };
        if id.0 < self.containers.next_id || id.0 >= ORDINALS_END / 2 {
            return Err(refuse(
                KeyCode::Invalid,
                "container ids are never reused: give 0, or one that was not used yet",
            ));
        }
        let slot = self.containers.add(Container::new(id, label, spec, txn.epoch));
        txn.created = Some(id);
        txn.steps.push(Step::ContainerCreated { slot });
        Ok(())
    }

    pub(super) fn container_rename(&mut self, txn: &mut Txn, id: ContainerId, label: String) -> Result<(), Refusal> {
        check_label(&label)?;
        let slot = self.containers.slot_of(id).ok_or(NO_CONTAINER)?;
        if self.containers.at(slot).label == label {
            return Ok(());
        }
        if self.containers.by_label(&label).is_some() {
            return Err(refuse(KeyCode::Exists, "the label is taken"));
        }
        let was = self.containers.rename(slot, label);
        txn.steps.push(Step::ContainerRenamed { slot, was });
        Ok(())
    }

    pub(super) fn container_set(&mut self, txn: &mut Txn, id: ContainerId, spec: ContainerSpec) -> Result<(), Refusal> {
        let slot = self.containers.slot_of(id).ok_or(NO_CONTAINER)?;
        check_spec(self, &spec, Some(&self.containers.at(slot).spec))?;
        let container = self.containers.at(slot);
        let scratch = |spec: &ContainerSpec| spec.durability == Durability::Scratch;
        let kept = |undo: &Undo| !matches!(undo.change, Change::Renamed { .. } | Change::Set { .. } | Change::Made);
        let empty = container.objects_seen() == 0
            && container.content.indices.is_empty()
            && !container.back.undo.iter().any(kept);
        let holds = !empty || !self.containers.snapshots_of(id).is_empty();
        let container = self.containers.at_mut(slot);
        if scratch(&spec) != scratch(&container.spec) && holds {
            return Err(refuse(
                KeyCode::Invalid,
                "durability turns from or to `scratch` only while the container is empty",
            ));
        }
        let was = std::mem::replace(&mut container.spec, spec);
        txn.steps.push(Step::ContainerSet { slot, was });
        Ok(())
    }

    pub(super) fn container_delete(&mut self, txn: &mut Txn, id: ContainerId) -> Result<(), Refusal> {
        let slot = self.containers.slot_of(id).ok_or(NO_CONTAINER)?;
        self.containers.hide(slot);
        txn.steps.push(Step::ContainerDeleted { slot });
        Ok(())
    }
}
