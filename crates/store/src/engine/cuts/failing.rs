//! Cuts that fail: fails their waiters, retries them later, and replaces them by a later cut where that may need less.

use cenote_model::ContainerId;

use crate::engine::core::Core;
use crate::persist::{Cut, CutPhase};

/// A cut without room is renewed at double the previous interval this many times.
const RENEWALS_QUICK: u32 = 5;
/// Renews cuts that cannot be completed: bytes as they were at the cut cannot be read any more, or there was no room
/// for a copy. A later cut needs no copies of what was deleted since.
pub fn renew_cuts(core: &mut Core) {
    let due: Vec<u64> =
        core.state.cuts.pending.values().filter(|cut| is_to_renew(core, cut)).map(|cut| cut.id).collect();
    for id in due {
        // A cut begun in this loop may have replaced it already.
        let Some(cut) = core.state.cuts.pending.get(&id) else { continue };
        let Some(group) = renewed_group(core, id, cut.members.clone()) else { continue };
        if !group.is_empty() {
            let _ = super::copying::begin_cut(core, &group); // if the journal does not take it: at the next tick
        } else if let Some(cut) = core.state.cuts.get_mut(id) {
            // All of its containers are gone: it promises nothing, and waits for no device.
            cut.renew = false;
            core.mark(id);
        }
    }
}

fn is_to_renew(core: &Core, cut: &Cut) -> bool {
    if cut.in_flight > 0 || cut.renew {
        return cut.in_flight == 0;
    }
    // Not at each tick, since large deletions come in many requests; and less often each time that a renewal does not
    // help.
    let rest_ns = core.settings.group_commit_ns << cut.tries.renewals.min(RENEWALS_QUICK);
    core.is_held_up(cut) && core.state.now.ns.saturating_sub(cut.tries.failed_ns) >= rest_ns
}

/// Returns all containers that must be cut together with the members of cut `id`: those that share transactions with
/// them, and those in a pending cut with these. `None` if one of those cuts is making progress.
fn renewed_group(core: &Core, id: u64, mut group: Vec<ContainerId>) -> Option<Vec<ContainerId>> {
    let mut next = 0;
    while let Some(member) = group.get(next).copied() {
        next += 1;
        let mut more = core.state.linked(member);
        let pending = core.state.containers.get(member).and_then(|container| container.durable.pending_cut);
        if let Some(cut) = pending.and_then(|cut| core.state.cuts.pending.get(&cut)) {
            if cut.id != id && (cut.in_flight > 0 || cut.phase != CutPhase::Drain) {
                return None;
            }
            more.extend(cut.members.iter().copied());
        }
        more.retain(|member| !group.contains(member));
        more.dedup();
        group.extend(more);
    }
    group.sort_unstable();
    group.dedup();
    group.retain(|id| core.state.containers.get(*id).is_some_and(crate::container::Container::is_tracked));
    Some(group)
}

/// Returns true if a cut may be tried now. A request that waits for it gets its result as soon as after a first
/// failure.
pub fn may_try(core: &Core, cut: &Cut) -> bool {
    let now = core.state.now.ns;
    cut.tries.retry_ns <= now
        || (cut.urgent && cut.tries.failures > 0 && now.saturating_sub(cut.tries.failed_ns) >= core.settings.retry_ns)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cenote_device::mem::MemClock;

    use crate::engine::filled::filled;

    #[test]
    fn cuts_of_a_store_in_memory_alone_are_tried_ever_more_seldom() {
        let clock = Arc::<MemClock>::default();
        let mut engine = filled(&clock, 10);
        for _ in 0..10 * 60 * 20 {
            clock.advance_ns(50_000_000);
            engine.tick();
            while let Some(job) = engine.next_job() {
                engine.finish_job(job.run());
            }
        }
        let failures: Vec<u32> = engine.core.state.cuts.pending.values().map(|cut| cut.tries.failures).collect();
        assert_eq!(failures.len(), 10);
        assert!(failures.iter().all(|failures| (6..20).contains(failures)), "{failures:?}");
    }
}
