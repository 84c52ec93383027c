//! Which space a lease gets: fairness, room that is about to come, fallbacks, the length of runs.
//!
//! A lease is looked for in up to three attempts ([`LeaseSize::attempts`]). Each asks placement for a device, and
//! [`choose_lease`] says what to do with the answer. The caller gathers the facts, makes room, and takes the runs.
//!
//! The order of preference: all bytes on the device that placement prefers, if this client had no more than its share of
//! it; then without regard to shares; then only what the smallest useful run needs. On the chosen device less space in
//! long runs is better than more on a slower device, since the next lease may find more.

use cenote_model::DeviceId;

use crate::{Decision, DeviceView, Incoming, tier_order};

/// A lease of this many bytes suffices, however many were asked for.
const BYTES_ENOUGH: u64 = 256 << 10;
/// Length of the runs that are tried first, in bytes…
const RUN_LONG: u64 = 1 << 20;
/// …and second.
const RUN_MIDDLE: u64 = 64 << 10;

/// How much a lease asks for, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseSize {
    /// Bytes in all.
    pub bytes: u64,
    /// Length of the shortest run that is of use; at least 1, at most `bytes`.
    pub run_min: u64,
}

/// One attempt to find space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseAttempt {
    /// Bytes that placement is asked for.
    pub bytes: u64,
    /// Devices of which the client had more than its share are passed over.
    pub is_fair: bool,
}

/// What is known when placement has chosen a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeaseFacts {
    /// The client had more than its share of the chosen device of late.
    pub had_its_share: bool,
    /// The device that should have room for this lease: a faster one that is full of what has a copy ([`passed_over`]), or
    /// the chosen one if placement says to wait.
    pub wants_room: Option<DeviceId>,
    /// If released space of that device becomes free soon without any effort: its free bytes now.
    pub coming: Option<u64>,
    /// Whether anything left that device when room was made there for this lease; `None`: not tried yet.
    pub was_room_made: Option<bool>,
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseChoice {
    /// Ask placement again, without the chosen device.
    Elsewhere,
    /// Make room on this device. If anything left it, ask placement again; else choose again.
    MakeRoom(DeviceId),
    /// Take runs of this device.
    Take {
        /// The device.
        device: DeviceId,
        /// Bytes to take at most.
        bytes: u64,
        /// Fewer than this are not worth it.
        enough: u64,
        /// Shortest run to take, in the order in which to try.
        run_lens: [u64; 3],
    },
    /// Room is being made: the client is to ask again soon.
    Wait,
}

impl LeaseSize {
    /// The attempts, in order.
    pub fn attempts(self) -> [LeaseAttempt; 3] {
        [(self.bytes, true), (self.bytes, false), (self.run_min, false)]
            .map(|(bytes, is_fair)| LeaseAttempt { bytes, is_fair })
    }
    /// Of `wanted` bytes so many suffice.
    fn enough(self, wanted: u64) -> u64 {
        wanted.min(BYTES_ENOUGH.max(self.run_min))
    }
}

/// What to do with the device that placement chose for an attempt.
pub fn choose_lease(size: LeaseSize, attempt: LeaseAttempt, decision: &Decision, facts: &LeaseFacts) -> LeaseChoice {
    if attempt.is_fair && facts.had_its_share {
        return LeaseChoice::Elsewhere;
    }
    // Room is made at once where all that it takes is to forget what has a copy. What was released there comes back soon:
    // if more left, it would leave in vain, and would have to be read from slower tiers.
    if let (Some(device), None, None) = (facts.wants_room, facts.coming, facts.was_room_made) {
        return LeaseChoice::MakeRoom(device);
    }
    // Until that room comes there is what is left above the watermark.
    let above = facts.wants_room.filter(|_| facts.coming.is_some_and(|free| free >= size.enough(attempt.bytes)));
    let bytes = match decision {
        _ if above.is_some() => size.bytes,
        Decision::Place { bytes: some, .. } if *some < attempt.bytes => *some,
        Decision::Place { .. } => size.bytes,
        // Nothing there can leave at once, and nobody may wait for room that does not come.
        Decision::Wait { .. } if facts.coming.is_none() && facts.was_room_made != Some(true) => {
            return LeaseChoice::Elsewhere;
        }
        Decision::Wait { .. } => return LeaseChoice::Wait,
    };
    LeaseChoice::Take {
        device: above.unwrap_or(decision.device()),
        bytes,
        enough: size.enough(attempt.bytes.min(bytes)),
        run_lens: [
            RUN_LONG.clamp(size.run_min, bytes.max(size.run_min)),
            RUN_MIDDLE.max(size.run_min).min(bytes),
            size.run_min,
        ],
    }
}

/// The fastest tier before the chosen one that is full, though what has a copy there could leave at once.
pub fn passed_over(views: &[DeviceView], chosen: &DeviceView, incoming: &Incoming<'_>, bytes: u64) -> Option<DeviceId> {
    let is_before = |view: &&DeviceView| {
        let kept_bytes = view.used_bytes.saturating_sub(view.evictable_bytes).saturating_add(view.reserved_bytes);
        tier_order(view, chosen).is_lt()
            && incoming.may_use(view)
            && !view.below_high_with(bytes)
            && kept_bytes.saturating_add(bytes) <= view.high_bytes()
    };
    let fastest = views.iter().filter(is_before).min_by(|one, other| tier_order(one, other))?;
    Some(fastest.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reason;

    const SIZE: LeaseSize = LeaseSize { bytes: 4 << 20, run_min: 4096 };

    fn place(bytes: u64) -> Decision {
        Decision::Place { device: DeviceId(1), bytes, reason: Reason::Nothing, past_watermarks: false }
    }

    fn wait() -> Decision {
        Decision::Wait { device: DeviceId(1), expected_ns: 0, reason: Reason::Nothing }
    }

    fn first(decision: &Decision, facts: LeaseFacts) -> LeaseChoice {
        choose_lease(SIZE, SIZE.attempts()[0], decision, &facts)
    }

    #[test]
    fn all_bytes_in_long_runs_come_first() {
        let taken = first(&place(4 << 20), LeaseFacts::default());
        let run_lens = [1 << 20, 64 << 10, 4096];
        assert_eq!(taken, LeaseChoice::Take { device: DeviceId(1), bytes: 4 << 20, enough: 256 << 10, run_lens });
        // A policy that gives fewer bytes gets no longer runs than that, and all of them are needed.
        let taken = first(&place(8192), LeaseFacts::default());
        let run_lens = [8192, 8192, 4096];
        assert_eq!(taken, LeaseChoice::Take { device: DeviceId(1), bytes: 8192, enough: 8192, run_lens });
    }

    #[test]
    fn shares_count_in_the_first_attempt_alone() {
        let facts = LeaseFacts { had_its_share: true, ..LeaseFacts::default() };
        let choices = SIZE.attempts().map(|attempt| choose_lease(SIZE, attempt, &place(4 << 20), &facts));
        assert_eq!(choices[0], LeaseChoice::Elsewhere);
        assert!(choices[1..].iter().all(|choice| matches!(choice, LeaseChoice::Take { .. })), "{choices:?}");
        assert_eq!(SIZE.attempts().map(|attempt| attempt.bytes), [4 << 20, 4 << 20, 4096]);
    }

    #[test]
    fn room_is_made_once_and_not_where_some_is_coming() {
        let mut facts = LeaseFacts { wants_room: Some(DeviceId(2)), ..LeaseFacts::default() };
        assert_eq!(first(&place(4 << 20), facts), LeaseChoice::MakeRoom(DeviceId(2)));
        facts.was_room_made = Some(false);
        let device_of = |choice| if let LeaseChoice::Take { device, .. } = choice { Some(device) } else { None };
        assert_eq!(device_of(first(&place(4 << 20), facts)), Some(DeviceId(1)), "then the one that placement chose");
        facts = LeaseFacts { wants_room: Some(DeviceId(2)), coming: Some(256 << 10), ..LeaseFacts::default() };
        assert_eq!(device_of(first(&place(4 << 20), facts)), Some(DeviceId(2)), "what is left above the watermark");
        facts.coming = Some((256 << 10) - 1);
        assert_eq!(device_of(first(&place(4 << 20), facts)), Some(DeviceId(1)), "too little is left there");
    }

    #[test]
    fn nobody_waits_for_room_that_does_not_come() {
        let mut facts = LeaseFacts { wants_room: Some(DeviceId(1)), ..LeaseFacts::default() };
        assert_eq!(first(&wait(), facts), LeaseChoice::MakeRoom(DeviceId(1)));
        facts.was_room_made = Some(false);
        assert_eq!(first(&wait(), facts), LeaseChoice::Elsewhere);
        facts.was_room_made = Some(true);
        assert_eq!(first(&wait(), facts), LeaseChoice::Wait);
        facts = LeaseFacts { wants_room: Some(DeviceId(1)), coming: Some(0), ..LeaseFacts::default() };
        assert_eq!(first(&wait(), facts), LeaseChoice::Wait);
    }
}
