//! What a policy is, and what it is asked and answers.

use std::sync::Arc;

use cenote_model::{DeviceId, Durability, ObjectKey};

use crate::drain::excess_bytes;
use crate::place::{Refusal, place_copy};
use crate::{DeviceView, Heat, Reason, Rhythm};

/// Decides where bytes are. A pure function of what it is given: what is learned lies in [`Heat`] and [`Rhythm`], which
/// the caller keeps, so that a decision can be repeated, dry-run and simulated.
pub trait Policy: Send + Sync {
    /// The name by which containers choose it.
    fn name(&self) -> &str;
    /// One sentence for people.
    fn about(&self) -> &str;
    /// Where new bytes go: one device and how many of them (a split: the rest asks again), or wait, because room is made
    /// sooner than another tier would have taken them.
    fn place(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal>;
    /// Which of a sample of ranges should be somewhere else, in the order in which to do it.
    fn plan(&self, devices: &[DeviceView], ranges: &[RangeView<'_>], limits: &Limits<'_>) -> Plan;
    /// What it did last that it should not have; `None`: all is well, as with every policy that is Cenote's own.
    fn failure(&self) -> Option<Arc<str>> {
        None
    }
    /// Where the persistent copy of volatile bytes goes. As given: the fastest persistent tier below its high watermark.
    fn place_copy(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
        let placed = place_copy(devices, incoming.bytes, incoming.avoid)?;
        let tier = devices.iter().find(|d| d.id == placed.device).map(|d| d.name.clone()).unwrap_or_default();
        let (device, past_watermarks) = (placed.device, placed.past_watermarks);
        let reason = if past_watermarks { Reason::PastWatermarks { tier } } else { Reason::First { tier } };
        Ok(Decision::Place { device, bytes: incoming.bytes, reason, past_watermarks })
    }
}

/// What is to be placed. `Incoming { heat: Some(&heat), ..Incoming::new(durability, bytes) }`.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The container's durability.
    pub durability: Durability,
    /// Bytes wanted.
    pub bytes: u64,
    /// The least piece that is of use: a decision gives all bytes or at least so many.
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
    /// Where the unit's bytes are: bytes by device.
    pub unit_places: &'a [(DeviceId, u64)],
    /// Heat of what is overwritten, or of its neighbours.
    pub heat: Option<&'a Heat>,
    /// When the container is written and read.
    pub rhythm: Option<&'a Rhythm>,
    /// When these bytes will be read, if somebody knows.
    pub coming: Option<Coming>,
    /// Milliseconds of the clock of heat and rhythm.
    pub now_ms: u64,
    /// Milliseconds since 1970, for times of day.
    pub now_unix_ms: u64,
    /// Clients that are writing now.
    pub writers: u32,
    /// Bytes a second that were written to the container of late.
    pub write_rate_bytes_per_s: f64,
}

impl Incoming<'_> {
    /// So many bytes of which nothing else is known.
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
    /// True if only persistent tiers will do.
    pub fn persistent_only(&self) -> bool {
        matches!(self.durability, Durability::Sync | Durability::Bypass)
    }
    /// True if the device may take these bytes at all, room aside.
    pub fn may_use(&self, device: &DeviceView) -> bool {
        device.takes(self.persistent_only()) && !self.avoid.contains(&device.id)
    }
    /// The least number of bytes that a decision may give.
    pub fn least_bytes(&self) -> u64 {
        self.run_min.clamp(1, self.bytes.max(1))
    }
}

/// What to do with new bytes.
#[derive(Clone, PartialEq, Debug)]
pub enum Decision {
    /// They go to a device.
    Place {
        /// The device.
        device: DeviceId,
        /// How many of them; the rest asks again.
        bytes: u64,
        /// Why.
        reason: Reason,
        /// True if every tier is above its high watermark: only to be followed by what must be placed at all costs.
        past_watermarks: bool,
    },
    /// They wait until a device has room (see [`Limits::room_wanted`]), and ask again.
    Wait {
        /// The device that is to get room.
        device: DeviceId,
        /// How long that should take; to be cut short at the caller's patience.
        expected_ns: u64,
        /// Why.
        reason: Reason,
    },
}

impl Decision {
    /// The device that was chosen.
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
    /// Where in it the range begins.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Where it is read.
    pub device: DeviceId,
    /// Where it has a copy, on a persistent device.
    pub copy: Option<DeviceId>,
    /// The container's durability.
    pub durability: Durability,
    /// How it has been used.
    pub heat: Heat,
    /// Somebody said that it stays where it is.
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
    /// What a stream's prefetcher expects: when it is read next, and how sure that is.
    pub coming: Option<Coming>,
    /// When its object (if that [`Rhythm::is_telling`], else its container) is written and read.
    pub rhythm: Option<&'a Rhythm>,
}

/// A read that a stream predicts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Coming {
    /// Milliseconds until then; `u32::MAX`: never.
    pub in_ms: u32,
    /// 0 to 1: how many of such predictions came true.
    pub confidence: f32,
}

/// What a plan may cost, and what it is made in view of.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    /// Most bytes to move.
    pub bytes_max: u64,
    /// Most ranges to move.
    pub moves_max: usize,
    /// How far ahead to look, in milliseconds.
    pub horizon_ms: u64,
    /// Milliseconds of the clock of heat and rhythm.
    pub now_ms: u64,
    /// Milliseconds since 1970, for times of day.
    pub now_unix_ms: u64,
    /// When the store is written.
    pub rhythm: Option<&'a Rhythm>,
    /// Room that writers wait for, by device: a policy that answers [`Decision::Wait`] makes it here.
    pub room_wanted: &'a [(DeviceId, u64)],
    /// Somebody waits: nothing is to be done but to make room.
    pub room_only: bool,
    /// Share of the time that devices have for background movement: 1 when nobody does anything, 0 when all are busy.
    pub idle: f32,
}

impl Limits<'_> {
    /// Bytes that have to leave a device: what is too much, and what makes the room that writers wait for.
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

/// What to do with a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It is to be read from that faster device; where it is now stays as its copy if that is persistent.
    Promote(DeviceId),
    /// It is to be on that slower device and no longer where it is read now; a copy elsewhere stays.
    Demote(DeviceId),
    /// It has a copy below: that is to be its only place.
    Evict,
    /// Its copy is to be on that persistent device: it is made, or moved from where it is.
    Copy(DeviceId),
    /// It needs no copy (it is scratch, or persistent where it is read): the copy is to be given up.
    DropCopy,
}

/// One range to be somewhere else.
#[derive(Clone, PartialEq, Debug)]
pub struct Planned {
    /// Which of the ranges.
    pub range: usize,
    /// What to do.
    pub action: Action,
    /// Expected I/O time saved in the horizon.
    pub gain_ns: f64,
    /// Expected time of devices that it takes.
    pub cost_ns: f64,
    /// Why.
    pub reason: Reason,
}

/// What is to be moved, in order.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The moves.
    pub moves: Vec<Planned>,
    /// Why anything moves at all.
    pub reason: Reason,
}

impl Default for Plan {
    fn default() -> Self {
        Self { moves: Vec::new(), reason: Reason::Nothing }
    }
}
