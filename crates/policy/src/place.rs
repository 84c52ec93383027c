//! Placement of new bytes.

use cenote_model::{DeviceId, Durability};

use crate::view::{bytes_words, tier_order};
use crate::{DeviceView, Incoming};

/// Bytes to place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlaceRequest<'a> {
    /// The container's durability.
    pub durability: Durability,
    /// Bytes wanted.
    pub bytes: u64,
    /// Devices that must not be chosen.
    pub avoid: &'a [DeviceId],
}

/// The chosen device, and the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The device.
    pub device: DeviceId,
    /// The reason, as a sentence.
    pub reason: String,
    /// True if every tier is above its high watermark: to be followed only for bytes that must be placed at all
    /// costs.
    pub past_watermarks: bool,
}

/// No device can take the bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// A sentence that names every tier considered and its use.
    pub reason: String,
}

/// Chooses the device for new data. `devices` may come in any order.
///
/// Prefers the fastest tier whose use stays below its high watermark; if there is none, the fastest with any room.
/// `Sync` data go to persistent tiers only, `Bypass` data to the slowest persistent tier that has room.
pub fn place(devices: &[DeviceView], request: &PlaceRequest<'_>) -> Result<Placed, Refusal> {
    let persistent_only = matches!(request.durability, Durability::Sync | Durability::Bypass);
    let mut order = candidates(devices, request.avoid, persistent_only);
    if request.durability == Durability::Bypass {
        order.reverse();
    }
    choose(&order, request.bytes).ok_or_else(|| refusal(devices, request, persistent_only))
}

/// Chooses the persistent device for a copy of volatile data: the fastest persistent tier below its high watermark.
pub fn place_copy(devices: &[DeviceView], bytes: u64, avoid: &[DeviceId]) -> Result<Placed, Refusal> {
    let order = candidates(devices, avoid, true);
    let request = PlaceRequest { durability: Durability::Async, bytes, avoid };
    choose(&order, bytes).ok_or_else(|| refusal(devices, &request, true))
}

fn candidates<'a>(devices: &'a [DeviceView], avoid: &[DeviceId], persistent_only: bool) -> Vec<&'a DeviceView> {
    let mut order: Vec<_> = devices.iter().filter(|d| d.takes(persistent_only) && !avoid.contains(&d.id)).collect();
    order.sort_by(|one, other| tier_order(one, other));
    order
}

fn choose(order: &[&DeviceView], bytes: u64) -> Option<Placed> {
    let fits = |d: &&&DeviceView| d.free_bytes() >= bytes;
    if let Some((i, device)) = order.iter().enumerate().find(|(_, d)| fits(d) && d.below_high_with(bytes)) {
        let reason = if i == 0 {
            format!("`{}` is the first tier in order and below its high watermark", device.name)
        } else {
            format!("`{}` is the first tier below its high watermark; before it: {}", device.name, uses(&order[..i]))
        };
        return Some(Placed { device: device.id, reason, past_watermarks: false });
    }
    let device = order.iter().find(fits)?;
    Some(Placed {
        device: device.id,
        reason: format!("every tier is above its high watermark; `{}` is the first that still has room", device.name),
        past_watermarks: true,
    })
}

fn uses(devices: &[&DeviceView]) -> String {
    devices.iter().map(|d| d.use_words()).collect::<Vec<_>>().join(", ")
}

/// The refusal of these bytes.
pub(crate) fn refusal_for(devices: &[DeviceView], incoming: &Incoming<'_>) -> Refusal {
    let request = PlaceRequest { durability: incoming.durability, bytes: incoming.bytes, avoid: incoming.avoid };
    refusal(devices, &request, incoming.persistent_only())
}

fn refusal(devices: &[DeviceView], request: &PlaceRequest<'_>, persistent_only: bool) -> Refusal {
    let all = crate::view::order(devices);
    let what = if persistent_only { "no persistent tier" } else { "no tier" };
    Refusal { reason: format!("{what} has room for {}: {}", bytes_words(request.bytes), uses(&all)) }
}

#[cfg(test)]
mod tests {
    use cenote_model::{DeviceKind, DeviceState};

    use super::*;

    fn device(id: u16, kind: DeviceKind, used: u64) -> DeviceView {
        DeviceView { used_bytes: used, ..DeviceView::new(DeviceId(id), &format!("t{id}"), kind, 1000) }
    }
    fn request(durability: Durability, bytes: u64) -> PlaceRequest<'static> {
        PlaceRequest { durability, bytes, avoid: &[] }
    }

    #[test]
    fn fast_first_then_spill_then_past_watermarks_then_refusal() {
        use DeviceKind::{Directory, File, SharedMemory};
        let mut devices = vec![device(3, Directory, 0), device(2, File, 0), device(1, SharedMemory, 0)];
        let chosen =
            |devices: &[DeviceView], durability, bytes| place(devices, &request(durability, bytes)).map(|d| d.device.0);
        assert_eq!(chosen(&devices, Durability::Async, 100), Ok(1));
        assert_eq!(chosen(&devices, Durability::Sync, 100), Ok(2));
        assert_eq!(chosen(&devices, Durability::Bypass, 100), Ok(3));
        devices[2].used_bytes = 850;
        assert_eq!(chosen(&devices, Durability::Async, 100), Ok(2), "above the watermark it spills");
        devices[1].used_bytes = 900;
        devices[0].used_bytes = 950;
        assert_eq!(chosen(&devices, Durability::Async, 100), Ok(1), "all above: the fastest with room");
        let refused = place(&devices, &request(Durability::Scratch, 500)).unwrap_err();
        for name in ["t1", "t2", "t3", "85%", "90%", "95%"] {
            assert!(refused.reason.contains(name), "{}", refused.reason);
        }
        devices[0].state = DeviceState::Failed;
        assert_eq!(chosen(&devices, Durability::Bypass, 50), Ok(2));
    }
}
