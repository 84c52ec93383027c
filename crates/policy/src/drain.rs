//! Selects what leaves a device that is too full, or is to be emptied.

use cenote_model::{DeviceState, ObjectKey};

use crate::DeviceView;

/// An object with bytes on a device, from a sample of the store's objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The object.
    pub object: ObjectKey,
    /// Its bytes on the device in question.
    pub bytes: u64,
    /// Milliseconds since it was last read or written.
    pub idle_ms: u64,
    /// True if all those bytes have a copy on a persistent device already: leaving needs no I/O.
    pub copied: bool,
}

/// A candidate that has to leave a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leaving {
    /// Index of the candidate.
    pub candidate: usize,
    /// Why.
    pub reason: String,
}

/// The objects that leave a device, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DrainPlan {
    /// The objects.
    pub moves: Vec<Leaving>,
    /// Why anything leaves; empty if nothing has to.
    pub reason: String,
}

/// Bytes that have to leave `device`: all if it is draining; down to the low watermark if it is above the high one.
pub fn excess_bytes(device: &DeviceView) -> u64 {
    match device.state {
        DeviceState::Draining => device.used_bytes,
        DeviceState::Failed => 0,
        DeviceState::Online => {
            let taken = device.used_bytes.saturating_add(device.reserved_bytes);
            if taken > device.high_bytes() {
                taken.saturating_sub(device.low_bytes()).min(device.used_bytes)
            } else {
                0
            }
        }
    }
}

/// Chooses the candidates that leave `device`: the coldest first, among equals those with a copy, until the excess is
/// gone.
pub fn plan_drain(device: &DeviceView, candidates: &[Candidate]) -> DrainPlan {
    let excess = excess_bytes(device);
    if excess == 0 {
        return DrainPlan::default();
    }
    let reason = if device.state == DeviceState::Draining {
        format!("`{}` is being emptied", device.name)
    } else {
        format!("{} is above its high watermark of {}‰", device.use_words(), device.watermark_high_permille)
    };
    let mut order: Vec<usize> = (0..candidates.len()).filter(|i| candidates[*i].bytes > 0).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(candidates[*i].idle_ms), !candidates[*i].copied));
    let mut moves = Vec::new();
    let mut left = excess;
    for candidate in order {
        if left == 0 {
            break;
        }
        let it = &candidates[candidate];
        left = left.saturating_sub(it.bytes);
        let copied = if it.copied { ", with a copy below" } else { "" };
        moves.push(Leaving { candidate, reason: format!("{reason}; idle for {} ms{copied}", it.idle_ms) });
    }
    DrainPlan { moves, reason }
}

#[cfg(test)]
mod tests {
    use cenote_model::{ContainerId, DeviceId, DeviceKind, ObjectId};

    use super::*;

    fn candidate(object: u128, bytes: u64, idle_ms: u64, copied: bool) -> Candidate {
        let object = ObjectKey { container: ContainerId(1), object: ObjectId(object) };
        Candidate { object, bytes, idle_ms, copied }
    }

    #[test]
    fn coldest_leave_until_the_low_watermark() {
        let mut device = DeviceView::new(DeviceId(1), "memory", DeviceKind::SharedMemory, 1000);
        device.used_bytes = 950;
        let candidates = [
            candidate(1, 200, 5, true),
            candidate(2, 200, 50, false),
            candidate(3, 100, 50, true),
            candidate(4, 9, 1, true),
        ];
        let chosen = |device: &DeviceView| -> Vec<usize> {
            plan_drain(device, &candidates).moves.iter().map(|m| m.candidate).collect()
        };
        assert_eq!(chosen(&device), [2, 1], "250 bytes too many: the coldest, copied first");
        device.used_bytes = 900;
        assert!(chosen(&device).is_empty(), "at the watermark nothing leaves");
        device.state = DeviceState::Draining;
        assert_eq!(chosen(&device).len(), 4);
        device.state = DeviceState::Failed;
        assert!(chosen(&device).is_empty());
    }
}
