//! Space for leases (reservations). `cenote_policy` decides ([`choose_lease`]); this module gathers the facts, makes
//! room and takes the runs.

use cenote_model::{ContainerId, DeviceId, Durability, Error, ErrorKind, RUN_BYTES_MAX, Result};
use cenote_policy::{
    Decision, Incoming, LeaseAttempt, LeaseChoice, LeaseFacts, LeaseSize, PlaceRequest, choose_lease, is_tracking,
    passed_over, place,
};

use super::Tiering;
use crate::SessionId;
use crate::engine::core::Core;
use crate::map::DeviceIndex;

/// Most bytes in one lease.
const LEASE_BYTES_MAX: u64 = 1 << 30;
/// Make room for at least one part in this many of a tier, since the search takes a while.
const ROOM_PARTS: u64 = 16;

/// The space that a session asks for.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    pub container: ContainerId,
    pub bytes: u64,
    pub run_min: u32,
    pub avoid: &'a [DeviceId],
    /// Place as if the container had this durability.
    pub durability: Option<Durability>,
}

/// A search for space, and for whom.
struct LeaseOf<'a> {
    who: (SessionId, ContainerId),
    durability: Durability,
    size: LeaseSize,
    /// Devices to be avoided.
    avoid: &'a [DeviceId],
}

/// Result of a search for space.
enum LeaseSpace {
    /// Runs on a device: its slot, offsets and lengths.
    Space(DeviceIndex, Vec<(u64, u64)>),
    /// Room is being made, for this reason.
    RoomSoon(String),
    Nothing,
}

impl Tiering {
    /// Takes space on one device; returns its slot, and offsets and lengths. Fails if the request is invalid or no
    /// device has room: with `Busy` if a later attempt may succeed, else with `Full`.
    pub fn find_space(
        &mut self,
        core: &mut Core,
        session: SessionId,
        wanted: &Wanted<'_>,
    ) -> Result<(DeviceIndex, Vec<(u64, u64)>)> {
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
        // Clients write to leased space themselves, so they must be able to map or open its device.
        let unshared = core.state.space.present().filter(|slot| !slot.spec.kind.is_shareable()).map(|slot| slot.id);
        let avoid: Vec<DeviceId> = avoid.iter().copied().chain(unshared).collect();
        let size = LeaseSize { bytes, run_min };
        match self.search(core, &LeaseOf { who: (session, container), durability, size, avoid: &avoid }) {
            LeaseSpace::Space(dev, runs) => return Ok((dev, runs)),
            LeaseSpace::RoomSoon(reason) => {
                return Err(Error::new(ErrorKind::Busy, subject())
                    .because(reason)
                    .try_next("ask again soon: room is being made"));
            }
            LeaseSpace::Nothing => {}
        }
        let request = PlaceRequest { durability, bytes: run_min, avoid: &avoid };
        let reason = match place(&core.state.space.views(), &request) {
            Err(refusal) => refusal.reason,
            Ok(_) => format!("no tier has {run_min} free bytes in one piece: {}", core.uses()),
        };
        // `Busy`: asking again soon may help. `Full`: only a deletion helps.
        let kind = if core.may_free_space() || self.make_room_for(core, run_min, durability, &avoid) {
            ErrorKind::Busy
        } else {
            ErrorKind::Full
        };
        Err(Error::new(kind, subject())
            .because(reason)
            .try_next("delete something, add a device, or wait for data to drain"))
    }

    /// Searches for space by [`choose_lease`].
    fn search(&mut self, core: &mut Core, lease: &LeaseOf<'_>) -> LeaseSpace {
        let LeaseOf { who: (_, container), durability, size, avoid } = *lease;
        let mut refused = avoid.to_vec();
        // Devices on which room was made for this lease, and whether anything left them.
        let mut made: Vec<(DeviceId, bool)> = Vec::new();
        for attempt in size.attempts() {
            refused.truncate(avoid.len());
            let needs = (attempt.bytes, size.run_min);
            while let Ok(decision) = self.place_new(core, container, durability, needs, &refused) {
                let Some(dev) = core.state.space.slot_of(decision.device()) else { break };
                let facts = self.facts_of(core, lease, attempt, &decision, (dev, &refused), &made);
                match choose_lease(size, attempt, &decision, &facts) {
                    LeaseChoice::Elsewhere => refused.push(decision.device()),
                    LeaseChoice::Wait => return LeaseSpace::RoomSoon(decision.reason().to_string()),
                    LeaseChoice::MakeRoom(device) => {
                        let has_left = self.makes_room(core, container, device, attempt.bytes);
                        made.push((device, has_left));
                    }
                    LeaseChoice::Take { device, bytes, enough, run_lens } => {
                        let Some(dev) = core.state.space.slot_of(device) else { break };
                        if let Some(runs) = take_runs(core, dev, bytes, enough, run_lens) {
                            self.room_awaited_ns.remove(&dev);
                            return LeaseSpace::Space(dev, runs);
                        }
                        refused.extend([device, decision.device()]); // free, but in pieces too small
                    }
                }
            }
        }
        LeaseSpace::Nothing
    }

    /// Gathers the facts for [`choose_lease`].
    fn facts_of(
        &mut self,
        core: &mut Core,
        lease: &LeaseOf<'_>,
        attempt: LeaseAttempt,
        decision: &Decision,
        (dev, refused): (DeviceIndex, &[DeviceId]),
        made: &[(DeviceId, bool)],
    ) -> LeaseFacts {
        if attempt.is_fair && core.had_its_share(dev, lease.who) {
            return LeaseFacts { had_its_share: true, ..LeaseFacts::default() };
        }
        let wants_room = match decision {
            Decision::Place { .. } => faster_tier(core, lease, attempt.bytes, dev, refused),
            Decision::Wait { device, .. } => Some(*device),
        };
        let slot = wants_room.and_then(|device| core.state.space.slot_of(device));
        let coming = slot.filter(|dev| self.is_room_coming(core, *dev, attempt.bytes));
        LeaseFacts {
            had_its_share: false,
            wants_room,
            coming: coming.map(|dev| core.state.space.get(dev).view().free_bytes()),
            was_room_made: made.iter().find(|(device, _)| Some(*device) == wants_room).map(|(_, has_left)| *has_left),
        }
    }

    /// Returns true if enough space of a tier is retired already and only running jobs may still read it. Holds only
    /// for a bounded time, since a device may hang. Readers may take as long as they like, so space that they hold does
    /// not count.
    fn is_room_coming(&mut self, core: &mut Core, dev: DeviceIndex, bytes: u64) -> bool {
        let readers_min = core.seams.control.slots_min();
        let coming_bytes = core.state.space.get(dev).space.retired.bytes_before(readers_min);
        if coming_bytes < bytes {
            self.room_awaited_ns.remove(&dev);
            return false;
        }
        let now = core.state.now.ns;
        let since = *self.room_awaited_ns.entry(dev).or_insert(now);
        now.saturating_sub(since) < core.settings.retry_ns
    }

    /// Evicts extents with copies from a tier. Returns true if any left.
    fn makes_room(&mut self, core: &mut Core, container: ContainerId, device: DeviceId, bytes: u64) -> bool {
        let Some(dev) = core.state.space.slot_of(device) else { return false };
        let some = core.state.space.get(dev).view().capacity_bytes / ROOM_PARTS;
        let has_left = self.make_room_by_policy(core, container, dev, bytes.max(some));
        if has_left {
            core.release_space();
        }
        has_left
    }
}

/// Returns a faster tier than the chosen one that should have room for this lease. Policies that track accesses have
/// considered that already.
fn faster_tier(
    core: &Core,
    lease: &LeaseOf<'_>,
    bytes: u64,
    chosen: DeviceIndex,
    refused: &[DeviceId],
) -> Option<DeviceId> {
    let policy = core.state.containers.get(lease.who.1).map_or("", |c| c.spec.policy.as_str());
    if is_tracking(policy) || lease.durability == Durability::Bypass {
        return None;
    }
    let incoming = Incoming { avoid: refused, ..Incoming::new(lease.durability, bytes) };
    passed_over(&core.state.space.views(), &core.state.space.get(chosen).view(), &incoming, bytes)
}

/// Takes runs of a device, in the longest pieces of which there are enough.
fn take_runs(
    core: &mut Core,
    dev: DeviceIndex,
    bytes: u64,
    enough: u64,
    run_lens: [u64; 3],
) -> Option<Vec<(u64, u64)>> {
    for run_min in run_lens {
        let slot = core.state.space.get_mut(dev);
        let runs = slot.take(bytes, run_min);
        if runs.iter().map(|(_, len)| len).sum::<u64>() >= enough {
            return Some(runs);
        }
        for (offset, len) in runs {
            slot.unreserve(offset, len);
        }
    }
    None
}
