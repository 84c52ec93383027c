//! Cuts that fail: who waits for one is told, it is tried again later, and gives way to a later one if that may need less.

use cenote_model::ContainerId;

use crate::engine::core::Core;
use crate::persist::{Cut, Stage};

/// So often a cut without room is renewed at double the interval of the time before.
const RENEWALS_QUICK: u32 = 5;
/// Cuts that cannot be completed give way to later ones: something as it was at the cut cannot be read any more, or
/// there was no room for a copy, and of what was deleted since a later cut needs none.
pub fn renew_cuts(core: &mut Core) {
    let due: Vec<u64> =
        core.state.cuts.pending.values().filter(|cut| is_to_renew(core, cut)).map(|cut| cut.id).collect();
    for id in due {
        // One that was begun here may have taken its place already.
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
    // Not at each tick: who deletes much does it in many requests. And ever more seldom while it does not help.
    let rest_ns = core.settings.group_commit_ns << cut.tries.renewals.min(RENEWALS_QUICK);
    core.is_held_up(cut) && core.state.now.ns.saturating_sub(cut.tries.failed_ns) >= rest_ns
}

/// All that must be cut together with the members of cut `id`: whom they share transactions with, and who is in a cut
/// with these. None if one of those cuts is making progress.
fn renewed_group(core: &Core, id: u64, mut group: Vec<ContainerId>) -> Option<Vec<ContainerId>> {
    let mut next = 0;
    while let Some(member) = group.get(next).copied() {
        next += 1;
        let mut more = core.state.linked(member);
        let pending = core.state.containers.get(member).and_then(|container| container.durable.pending_cut);
        if let Some(cut) = pending.and_then(|cut| core.state.cuts.pending.get(&cut)) {
            if cut.id != id && (cut.in_flight > 0 || cut.stage != Stage::Drain) {
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

/// True if a cut is not waiting for its next try. Whoever asks for it is answered as soon as if it had failed for the first time.
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
