//! Leases: free space goes to a session, and comes back.

use cenote_model::{ContainerId, DeviceId, Durability, Error, ErrorKind, RUN_BYTES_MAX, Result};
use cenote_policy::{Decision, DeviceView, Incoming, PlaceRequest, is_tracking, place, tier_order};

use super::Tiering;
use crate::SessionId;
use crate::engine::core::Core;

/// Most bytes in one lease.
const LEASE_BYTES_MAX: u64 = 1 << 30;
/// A lease of so many bytes will do, however many were asked for.
const LEASE_BYTES_ENOUGH: u64 = 256 << 10;
/// Runs of this length are looked for first…
const RUN_LONG: u64 = 1 << 20;
/// …then of this.
const RUN_MIDDLE: u64 = 64 << 10;
/// Room is made for at least one in so many parts of a tier, since looking for it takes a while.
const ROOM_PARTS: u64 = 16;

/// What a session asks for.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    pub container: ContainerId,
    pub bytes: u64,
    pub run_min: u32,
    pub avoid: &'a [DeviceId],
    /// Placed as if this were the container's.
    pub durability: Option<Durability>,
}

impl Tiering {
    /// Takes space, on one device: its slot, and offsets and lengths.
    pub fn find_space(
        &mut self,
        core: &mut Core,
        session: SessionId,
        wanted: &Wanted<'_>,
    ) -> Result<(u8, Vec<(u64, u64)>)> {
        let Wanted { container, bytes, run_min, avoid, durability } = *wanted;
        let subject = || format!("space for container {container}");
        if bytes == 0 || bytes > LEASE_BYTES_MAX || run_min > RUN_BYTES_MAX || u64::from(run_min) > bytes {
            return Err(Error::new(ErrorKind::InvalidInput, subject())
                .because(format!("{bytes} bytes in runs of at least {run_min}"))
                .try_next(format!("ask for 1 to {LEASE_BYTES_MAX} bytes in runs of at most {RUN_BYTES_MAX}")));
        }
        let Some(own) = core.state.containers.get(container).map(|c| c.spec.durability) else {
            return Err(Error::new(ErrorKind::NotFound, format!("container {container}")));
        };
        let durability = durability.unwrap_or(own);
        if !durability.may_be_in(own) {
            return Err(Error::new(ErrorKind::InvalidInput, subject())
                .because(format!("`{}` does not go with a container that is `{}`", durability.word(), own.word()))
                .try_next("use a container with that durability"));
        }
        core.release_space();
        let run_min = u64::from(run_min.max(1));
        // Clients write what they lease themselves.
        let unshared = core.state.space.present().filter(|slot| !slot.spec.kind.is_shareable()).map(|slot| slot.id);
        let avoid: Vec<DeviceId> = avoid.iter().copied().chain(unshared).collect();
        let mut refused = avoid.clone();
        let mut room_asked: Vec<(u8, bool)> = Vec::new();
        // First all bytes on the device that placement prefers; else what the smallest useful run needs.
        let who = (session, container);
        for (wanted, is_fair) in [(bytes, true), (bytes, false), (run_min, false)] {
            refused.truncate(avoid.len());
            while let Ok(decision) = self.place_new(core, container, durability, (wanted, run_min), &refused) {
                let decision_device = decision.device();
                let Some(dev) = core.state.space.slot_of(decision_device) else { break };
                if is_fair && core.had_its_share(dev, who) {
                    refused.push(decision_device);
                    continue;
                }
                // Room is made at once where all that it takes is to forget what has a copy.
                let wants_room = match decision {
                    Decision::Place { .. } => passed_over(core, container, durability, wanted, dev, &refused),
                    Decision::Wait { .. } => Some(dev),
                };
                // What was given up there comes back soon: more would leave in vain, and would have to be read from slower tiers.
                let coming = wants_room.filter(|dev| self.is_room_coming(core, *dev, wanted));
                let is_coming = coming.is_some();
                if !is_coming
                    && wants_room.is_some_and(|dev| self.makes_room(core, container, dev, wanted, &mut room_asked))
                {
                    continue;
                }
                // Until then there is what is left above the watermark.
                let least = wanted.min(LEASE_BYTES_ENOUGH.max(run_min));
                let above = coming.filter(|dev| core.state.space.get(*dev).view().free_bytes() >= least);
                let dev = above.unwrap_or(dev);
                let bytes = match decision {
                    _ if above.is_some() => bytes,
                    Decision::Place { bytes: some, .. } if some < wanted => some,
                    Decision::Place { .. } => bytes,
                    Decision::Wait { .. } if !is_coming && !room_asked.contains(&(dev, true)) => {
                        // Nothing there can leave at once, and nobody may wait for room that does not come.
                        refused.push(decision_device);
                        continue;
                    }
                    Decision::Wait { reason, .. } => {
                        return Err(Error::new(ErrorKind::Busy, subject())
                            .because(reason.to_string())
                            .try_next("ask again soon: room is being made"));
                    }
                };
                let wanted = wanted.min(bytes);
                // Better less space on the device that placement prefers than more on a slower one, and long runs
                // rather than short ones.
                let enough = wanted.min(LEASE_BYTES_ENOUGH.max(run_min));
                for run_min in
                    [RUN_LONG.clamp(run_min, bytes.max(run_min)), RUN_MIDDLE.max(run_min).min(bytes), run_min]
                {
                    let runs = core.state.space.get_mut(dev).take(bytes, run_min);
                    if runs.iter().map(|(_, len)| len).sum::<u64>() >= enough {
                        self.room_awaited_ns.remove(&dev);
                        return Ok((dev, runs));
                    }
                    for (offset, len) in runs {
                        core.state.space.get_mut(dev).give_back(offset, len);
                    }
                }
                refused.extend([core.state.space.get(dev).id, decision_device]); // free, but in pieces too small
            }
        }
        let request = PlaceRequest { durability, bytes: run_min, avoid: &avoid };
        let reason = match place(&core.state.space.views(), &request) {
            Err(refusal) => refusal.reason,
            Ok(_) => format!("no tier has {run_min} free bytes in one piece: {}", core.uses()),
        };
        // `Busy`: asking again soon may help. `Full`: it does not, unless somebody deletes something.
        let kind = if core.may_free_space() || self.make_room_for(core, run_min, durability, &avoid) {
            ErrorKind::Busy
        } else {
            ErrorKind::Full
        };
        Err(Error::new(kind, subject())
            .because(reason)
            .try_next("delete something, add a device, or wait for data to drain"))
    }

    /// True if so much of a tier was given up already that it has room as soon as jobs that may read it are over. Only for a
    /// bounded time: a device may hang. Readers may take as long as they like, and are not waited for.
    fn is_room_coming(&mut self, core: &mut Core, dev: u8, bytes: u64) -> bool {
        let readers_min = core.seams.control.slots_min();
        let coming_bytes = core.state.space.get(dev).retired.bytes_before(readers_min);
        if coming_bytes < bytes {
            self.room_awaited_ns.remove(&dev);
            return false;
        }
        let now = core.state.now_ns;
        let since = *self.room_awaited_ns.entry(dev).or_insert(now);
        now.saturating_sub(since) < core.settings.retry_ns
    }

    /// Has what has a copy leave a tier, once for each lease; `asked` keeps where, and whether anything did. True if placement
    /// should look again.
    fn makes_room(
        &mut self,
        core: &mut Core,
        container: ContainerId,
        dev: u8,
        bytes: u64,
        asked: &mut Vec<(u8, bool)>,
    ) -> bool {
        if asked.iter().any(|(known, _)| *known == dev) {
            return false;
        }
        let some = core.state.space.get(dev).view().capacity_bytes / ROOM_PARTS;
        let has_left = self.make_room_by_policy(core, container, dev, bytes.max(some));
        asked.push((dev, has_left));
        if has_left {
            core.release_space();
        }
        has_left
    }
}

/// The fastest tier before the one chosen that is full, though what has a copy there could leave at once. Policies that
/// track what is used have thought of that.
fn passed_over(
    core: &Core,
    container: ContainerId,
    durability: Durability,
    bytes: u64,
    chosen: u8,
    avoid: &[DeviceId],
) -> Option<u8> {
    let policy = core.state.containers.get(container).map_or("", |c| c.spec.policy.as_str());
    if is_tracking(policy) || durability == Durability::Bypass {
        return None;
    }
    let chosen = core.state.space.get(chosen).view();
    let incoming = Incoming { avoid, ..Incoming::new(durability, bytes) };
    let views = core.state.space.views();
    let is_before = |view: &&DeviceView| {
        let kept_bytes = view.used_bytes.saturating_sub(view.evictable_bytes).saturating_add(view.reserved_bytes);
        tier_order(view, &chosen).is_lt()
            && incoming.may_use(view)
            && !view.below_high_with(bytes)
            && kept_bytes.saturating_add(bytes) <= view.high_bytes()
    };
    let fastest = views.iter().filter(is_before).min_by(|one, other| tier_order(one, other))?;
    core.state.space.slot_of(fastest.id)
}
