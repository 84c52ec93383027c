//! The C structures of `examples/policy-plugin/cenote_policy.h`, and their conversion from and to Rust values.

use std::ffi::{c_char, c_void};

use cenote_model::{DeviceId, DeviceState};
use cenote_policy::{Action, DeviceView, Incoming, Limits, Planned, RangeView, Reason};

/// Version of the interface.
pub const ABI: u32 = 1;

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Device {
    id: u32,
    kind: u32,
    state: u32,
    is_persistent: u32,
    capacity_bytes: u64,
    used_bytes: u64,
    reserved_bytes: u64,
    evictable_bytes: u64,
    high_bytes: u64,
    low_bytes: u64,
    queued_read_bytes: u64,
    queued_write_bytes: u64,
    read_latency_ns: f64,
    write_latency_ns: f64,
    read_bandwidth: f64,
    write_bandwidth: f64,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct IncomingV1 {
    pub bytes: u64,
    pub run_min: u64,
    pub now_ms: u64,
    pub now_unix_ms: u64,
    pub durability: u32,
    pub heat: f32,
    pub label: *const c_char,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct DecisionV1 {
    pub device: u32,
    pub wait: u32,
    pub bytes: u64,
    pub expected_ns: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Range {
    bytes: u64,
    object_bytes: u64,
    age_ms: u64,
    idle_ms: u64,
    device: u32,
    copy: i32,
    durability: u32,
    is_pinned: u32,
    heat: f32,
    expected_reads: f32,
}

#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct Move {
    range: u64,
    action: u32,
    device: u32,
}

pub type PlaceFn = extern "C" fn(*const Device, usize, *const IncomingV1, *mut DecisionV1) -> i32;
pub type PlanFn = extern "C" fn(*const Device, usize, *const Range, usize, *mut Move, usize) -> i64;

/// The result of the library's one function. Missing functions are null.
#[repr(C)]
pub struct Table {
    pub abi: u32,
    pub size: u32,
    pub name: *const c_char,
    pub about: *const c_char,
    pub place: Option<PlaceFn>,
    pub plan: Option<PlanFn>,
}

/// Type of the library's one function.
pub type Entry = extern "C" fn() -> *const Table;

/// Converts the result of `dlsym` into a function pointer.
pub fn entry(symbol: *mut c_void) -> Option<Entry> {
    // SAFETY: a null pointer becomes `None`; any other is the function of that name, which the interface declares so.
    unsafe { std::mem::transmute::<*mut c_void, Option<Entry>>(symbol) }
}

pub fn device(view: &DeviceView) -> Device {
    Device {
        id: u32::from(view.id.0),
        kind: view.kind as u32,
        state: match view.state {
            DeviceState::Online => 0,
            DeviceState::Draining => 1,
            DeviceState::Failed => 2,
        },
        is_persistent: u32::from(view.kind.is_persistent()),
        capacity_bytes: view.capacity_bytes,
        used_bytes: view.used_bytes,
        reserved_bytes: view.reserved_bytes,
        evictable_bytes: view.evictable_bytes,
        high_bytes: view.high_bytes(),
        low_bytes: view.low_bytes(),
        queued_read_bytes: view.queued_read_bytes,
        queued_write_bytes: view.queued_write_bytes,
        read_latency_ns: view.speed.read_latency_ns,
        write_latency_ns: view.speed.write_latency_ns,
        read_bandwidth: view.speed.read_bandwidth,
        write_bandwidth: view.speed.write_bandwidth,
    }
}

/// All fields except the label.
pub fn incoming(of: &Incoming<'_>) -> IncomingV1 {
    IncomingV1 {
        bytes: of.bytes,
        run_min: of.least_bytes(),
        now_ms: of.now_ms,
        now_unix_ms: of.now_unix_ms,
        durability: of.durability as u32,
        heat: of.heat.map_or(-1.0, |heat| heat.score(of.now_ms)),
        label: std::ptr::null(),
    }
}

pub fn range(of: &RangeView<'_>, limits: &Limits<'_>) -> Range {
    Range {
        bytes: of.bytes,
        object_bytes: of.object_bytes,
        age_ms: of.age_ms,
        idle_ms: of.heat.idle_ms(limits.now_ms).unwrap_or(of.age_ms),
        device: u32::from(of.device.0),
        copy: of.copy.map_or(-1, |copy| i32::from(copy.0)),
        durability: of.durability as u32,
        is_pinned: u32::from(of.is_pinned),
        heat: of.heat.score(limits.now_ms),
        expected_reads: of.heat.expected_reads(limits.now_ms, limits.horizon_ms),
    }
}

/// Converts a move for the engine; fails if it is invalid.
pub fn planned(of: &Move, reason: &Reason) -> Result<Planned, String> {
    let device = || u16::try_from(of.device).map(DeviceId).map_err(|_| format!("there is no device {}", of.device));
    let action = match of.action {
        0 => Action::Promote(device()?),
        1 => Action::Demote(device()?),
        2 => Action::Evict,
        3 => Action::Copy(device()?),
        4 => Action::DropCopy,
        other => return Err(format!("there is no action {other}")),
    };
    let range = usize::try_from(of.range).map_err(|_| format!("there is no range {}", of.range))?;
    Ok(Planned { range, action, gain_ns: 0.0, cost_ns: 0.0, reason: reason.clone() })
}
