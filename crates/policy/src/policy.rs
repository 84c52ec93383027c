//! The policy trait, its questions and its answers.

use std::sync::Arc;

use cenote_model::{DeviceId, Durability, ObjectKey};

use crate::drain::excess_bytes;
use crate::place::{Refusal, place_copy};
use crate::{DeviceView, Heat, Reason, Rhythm};

/// Decides where bytes are. A pure function of its arguments: what is learned is in [`Heat`] and [`Rhythm`], which the
/// caller keeps, so that a decision can be repeated, dry-run and simulated.
pub trait Policy: Send + Sync {
    /// The name by which containers select it.
    fn name(&self) -> &str;
    /// A one-sentence description for people.
    fn about(&self) -> &str;
    /// Decides where new bytes go: to one device, with a number of bytes (a split: the rest asks again), or to wait,
    /// because room is made sooner than another tier would have taken the bytes.
    fn place(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal>;
    /// Plans which ranges of a sample should be elsewhere, in the order of execution.
    fn plan(&self, devices: &[DeviceView], ranges: &[RangeView<'_>], limits: &Limits<'_>) -> Plan;
    /// Its last failure; `None` if there was none, as with all of Cenote's own policies.
    fn failure(&self) -> Option<Arc<str>> {
        None
    }
    /// Decides where the persistent copy of volatile bytes goes. Default: the fastest persistent tier below its high
    /// watermark.
    fn place_copy(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
        let placed = place_copy(devices, incoming.bytes, incoming.avoid)?;
        let tier = devices.iter().find(|d| d.id == placed.device).map(|d| d.name.clone()).unwrap_or_default();
        let (device, past_watermarks) = (placed.device, placed.past_watermarks);
        let reason = if past_watermarks { Reason::PastWatermarks { tier } } else { Reason::First { tier } };
        Ok(Decision::Place { device, bytes: incoming.bytes, reason, past_watermarks })
    }
}

/// Bytes to place. `Incoming { heat: Some(&heat), ..Incoming::new(durability, bytes) }`.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The container's durability.
    pub durability: Durability,
    /// Bytes wanted.
    pub bytes: u64,
    /// Shortest useful run: a decision grants all bytes or at least this many.
    pub run_min: u64,
    /// Devices that must not be chosen.
    pub avoid: &'a [DeviceId],
    /// The container's label; empty if unknown.
    pub label: &'a str,
    /// The object, if known yet.
    pub object: Option<ObjectKey>,
    /// The object's name, if it has one.
    pub name: Option<&'a str>,
    /// The dispersion unit that the bytes belong to (object, dataset or key range), as a hash.
    pub unit: Option<u64>,
    /// The unit's bytes on each device.
    pub unit_places: &'a [(DeviceId, u64)],
    /// Heat of the overwritten range, or of its neighbours.
    pub heat: Option<&'a Heat>,
    /// Rhythm of the container's writes and reads.
    pub rhythm: Option<&'a Rhythm>,
    /// The predicted next read of these bytes, if there is a prediction.
    pub coming: Option<Coming>,
    /// Milliseconds of the clock of heat and rhythm.
    pub now_ms: u64,
    /// Milliseconds since 1970, for times of day.
    pub now_unix_ms: u64,
    /// Clients that are writing now.
    pub writers: u32,
    /// Recent write rate of the container, in bytes per second.
    pub write_rate_bytes_per_s: f64,
}

impl Incoming<'_> {
    /// Bytes without any other information.
    pub fn new(durability: Durability, bytes: u64) -> Self {
        Self {
            durability,
            bytes,
            run_min: bytes,
            avoid: &[],
            label: "",
            object: None,
            name: None,
            unit: None,
            unit_places: &[],
            heat: None,
            rhythm: None,
            coming: None,
            now_ms: 0,
            now_unix_ms: 0,
            writers: 1,
            write_rate_bytes_per_s: 0.0,
        }
    }
    /// Returns true if only persistent tiers are allowed.
    pub fn persistent_only(&self) -> bool {
        matches!(self.durability, Durability::Sync | Durability::Bypass)
    }
    /// Returns true if the device may take these bytes, whether or not it has room.
    pub fn may_use(&self, device: &DeviceView) -> bool {
        device.takes(self.persistent_only()) && !self.avoid.contains(&device.id)
    }
    /// The least number of bytes that a decision may grant.
    pub fn least_bytes(&self) -> u64 {
        self.run_min.clamp(1, self.bytes.max(1))
    }
}

/// A decision about new bytes.
#[derive(Clone, PartialEq, Debug)]
pub enum Decision {
    /// Place them on a device.
    Place {
        /// The device.
        device: DeviceId,
        /// Number of bytes; the rest asks again.
        bytes: u64,
        /// Why.
        reason: Reason,
        /// True if every tier is above its high watermark: to be followed only for bytes that must be placed at all
        /// costs.
        past_watermarks: bool,
    },
    /// Wait until a device has room (see [`Limits::room_wanted`]), and ask again.
    Wait {
        /// The device that gets room.
        device: DeviceId,
        /// Expected wait; the caller's patience may cut it short.
        expected_ns: u64,
        /// Why.
        reason: Reason,
    },
}

impl Decision {
    /// The chosen device.
    pub fn device(&self) -> DeviceId {
        match self {
            Self::Place { device, .. } | Self::Wait { device, .. } => *device,
        }
    }
    /// Why.
    pub fn reason(&self) -> &Reason {
        match self {
            Self::Place { reason, .. } | Self::Wait { reason, .. } => reason,
        }
    }
}

/// A range of an object in a sample.
#[derive(Clone, Copy, Debug)]
pub struct RangeView<'a> {
    /// The object.
    pub object: ObjectKey,
    /// Offset of the range in the object.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// The device on which it is read.
    pub device: DeviceId,
    /// The persistent device with its copy, if it has one.
    pub copy: Option<DeviceId>,
    /// The container's durability.
    pub durability: Durability,
    /// Its usage.
    pub heat: Heat,
    /// True if a user or a rule keeps it in place.
    pub is_pinned: bool,
    /// The container's label.
    pub label: &'a str,
    /// The object's name, if it has one.
    pub name: Option<&'a str>,
    /// Bytes of the whole object.
    pub object_bytes: u64,
    /// Milliseconds since the object was last written.
    pub age_ms: u64,
    /// Its dispersion unit.
    pub unit: Option<u64>,
    /// The prediction of a prefetcher: time and certainty of the next read.
    pub coming: Option<Coming>,
    /// Rhythm of the writes and reads of its object (if that [`Rhythm::is_telling`], else of its container).
    pub rhythm: Option<&'a Rhythm>,
}

/// A read that a prefetcher predicts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Coming {
    /// Milliseconds until the read; `u32::MAX`: never.
    pub in_ms: u32,
    /// 0 to 1: the share of such predictions that came true.
    pub confidence: f32,
}

/// The limits of a plan, and its context.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    /// Upper bound of the bytes to move.
    pub bytes_max: u64,
    /// Upper bound of the ranges to move.
    pub moves_max: usize,
    /// How far ahead to look, in milliseconds.
    pub horizon_ms: u64,
    /// Milliseconds of the clock of heat and rhythm.
    pub now_ms: u64,
    /// Milliseconds since 1970, for times of day.
    pub now_unix_ms: u64,
    /// Rhythm of the store's writes.
    pub rhythm: Option<&'a Rhythm>,
    /// Room that writers wait for, by device: a policy that answers [`Decision::Wait`] has to make it.
    pub room_wanted: &'a [(DeviceId, u64)],
    /// Somebody waits: plan only moves that make room.
    pub room_only: bool,
    /// Share of the time that devices have for background movement: 1 when all are idle, 0 when all are busy.
    pub idle: f32,
}

impl Limits<'_> {
    /// Bytes that have to leave a device: its excess, and the room that writers wait for.
    pub fn to_leave_bytes(&self, device: &DeviceView) -> u64 {
        let wanted = self.room_wanted.iter().find(|(id, _)| *id == device.id).map_or(0, |(_, bytes)| *bytes);
        excess_bytes(device).max(wanted.saturating_sub(device.room_bytes()).min(device.used_bytes))
    }
}

impl Default for Limits<'_> {
    fn default() -> Self {
        Self {
            bytes_max: u64::MAX,
            moves_max: usize::MAX,
            horizon_ms: 30_000,
            now_ms: 0,
            now_unix_ms: 0,
            rhythm: None,
            room_wanted: &[],
            room_only: false,
            idle: 1.0,
        }
    }
}

/// A move of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Promote to that faster device; the present place stays as the copy if it is persistent.
    Promote(DeviceId),
    /// Demote to that slower device; the present place is given up, a copy elsewhere stays.
    Demote(DeviceId),
    /// Give up the place above; the copy below becomes the only place.
    Evict,
    /// Make a copy on that persistent device, or move the copy there.
    Copy(DeviceId),
    /// Drop the copy, which is not needed (the range is scratch, or persistent where it is read).
    DropCopy,
}

/// A planned move.
#[derive(Clone, PartialEq, Debug)]
pub struct Planned {
    /// Index of the range.
    pub range: usize,
    /// The move.
    pub action: Action,
    /// Expected I/O time saved in the horizon.
    pub gain_ns: f64,
    /// Expected device time of the move.
    pub cost_ns: f64,
    /// Why.
    pub reason: Reason,
}

/// The moves, in order.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The moves.
    pub moves: Vec<Planned>,
    /// Why anything moves.
    pub reason: Reason,
}

impl Default for Plan {
    fn default() -> Self {
        Self { moves: Vec::new(), reason: Reason::Nothing }
    }
}
