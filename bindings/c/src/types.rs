//! Plain values that cross the interface.

use std::ffi::c_char;

use cenote::{ContainerSpec, Durability, KeyCode, Mode, Result};

use crate::abi::{invalid, text};

/// Through the daemon that serves the directory, otherwise with an engine in this process.
pub const CENOTE_MODE_AUTO: i32 = 0;
/// With an engine in this process; an error if another process has the store open.
pub const CENOTE_MODE_IN_PROCESS: i32 = 1;
/// Through a daemon, started if there is none.
pub const CENOTE_MODE_DAEMON: i32 = 2;

/// Write-through: acknowledged on a persistent tier and in the journal; survives power loss.
pub const CENOTE_SYNC: i32 = 0;
/// Write-back: acknowledged in the fastest tier; survives power loss once drained or flushed.
pub const CENOTE_ASYNC: i32 = 1;
/// Never drained for durability.
pub const CENOTE_SCRATCH: i32 = 2;
/// Like async, but straight to the lowest persistent tier.
pub const CENOTE_BYPASS: i32 = 3;

/// Code of a key: success.
pub const CENOTE_KEY_OK: u8 = 0;
/// Code of a key: not found.
pub const CENOTE_KEY_NOT_FOUND: u8 = 1;
/// Code of a key: exists already.
pub const CENOTE_KEY_EXISTS: u8 = 2;
/// Code of a key: key or value out of bounds.
pub const CENOTE_KEY_INVALID: u8 = 3;
/// Code of a key: quota or a limit of the format.
pub const CENOTE_KEY_LIMIT: u8 = 4;

/// A 128-bit id of an object or index.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cenote_id_t {
    /// The upper 64 bits.
    pub high: u64,
    /// The lower 64 bits.
    pub low: u64,
}

impl cenote_id_t {
    /// Returns the id as one number.
    pub fn number(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
    /// Converts a number to an id.
    pub fn of(number: u128) -> Self {
        Self { high: (number >> 64) as u64, low: number as u64 }
    }
}

/// Bytes that belong to the caller.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cenote_slice_t {
    /// The first byte; may be null if `len` is 0.
    pub data: *const u8,
    /// Length in bytes.
    pub len: usize,
}

/// Bytes that belong to the library until `cenote_bytes_free`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cenote_bytes_t {
    /// The first byte; null if there are none, also for an empty value (see `found`).
    pub data: *mut u8,
    /// Length in bytes.
    pub len: usize,
    /// Not 0 if there is a value.
    pub found: i32,
}

/// A range of an object, and the caller's memory for it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cenote_iov_t {
    /// Byte offset in the object.
    pub offset: u64,
    /// The memory; only read when writing to the store.
    pub data: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

/// A key and its value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cenote_record_t {
    /// The key.
    pub key: cenote_slice_t,
    /// The value.
    pub value: cenote_slice_t,
}

/// Options of opening a store. Fill them with `cenote_options_init` first: later versions may add fields at the end.
#[repr(C)]
pub struct cenote_options_t {
    /// `sizeof(cenote_options_t)`.
    pub size: usize,
    /// `CENOTE_MODE_AUTO` and so on.
    pub mode: i32,
    /// Not 0: create the store if the directory holds none.
    pub create: i32,
    /// Not 0: fail if the directory holds one (with `create`).
    pub create_new: i32,
    /// Not 0: refuse every change.
    pub read_only: i32,
    /// Tiers of a store to be created, fastest first, each in the form of the command line:
    /// "name=ram,kind=memory,size=2GiB,high=90%,low=70%". Null: tiers sized for this machine.
    pub tiers: *const *const c_char,
    /// Number of tiers.
    pub tiers_len: usize,
}

/// Settings of a container. Fill them with `cenote_container_spec_init` first: later versions may add fields at the
/// end.
#[repr(C)]
pub struct cenote_container_spec_t {
    /// `sizeof(cenote_container_spec_t)`.
    pub size: usize,
    /// Block size of its objects in bytes: a power of two from 64 to 16 MiB.
    pub block_size: u64,
    /// `CENOTE_SYNC` and so on.
    pub durability: i32,
    /// Maximum bytes it may take; 0 for no limit.
    pub quota_bytes: u64,
    /// Name of its placement policy; null for the default.
    pub policy: *const c_char,
}

/// Current state of an object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cenote_object_stat_t {
    /// Recorded size in bytes.
    pub size: u64,
    /// Block size in bytes.
    pub block_size: u64,
    /// Extents in its map.
    pub extents: u64,
    /// Bytes that those extents cover.
    pub mapped_bytes: u64,
    /// Epoch of its last update.
    pub epoch: u64,
}

/// Returns log2 of a block size; `None` for 0.
pub fn block_shift(bytes: u64) -> Result<Option<u8>> {
    let (least, most) = (cenote::model::BLOCK_SHIFT_MIN, cenote::model::BLOCK_SHIFT_MAX);
    match bytes.checked_ilog2().map(|shift| shift as u8) {
        None => Ok(None),
        Some(shift) if bytes.is_power_of_two() && (least..=most).contains(&shift) => Ok(Some(shift)),
        Some(_) => Err(invalid(
            "block_size",
            format!("{bytes} is not a power of two from {} to {} bytes", 1 << least, 1_u64 << most),
        )),
    }
}

/// Converts a mode's number.
pub fn mode(number: i32) -> Result<Mode> {
    match number {
        CENOTE_MODE_AUTO => Ok(Mode::Auto),
        CENOTE_MODE_IN_PROCESS => Ok(Mode::InProcess),
        CENOTE_MODE_DAEMON => Ok(Mode::Daemon),
        other => Err(invalid("mode", format!("{other} is none of CENOTE_MODE_AUTO, _IN_PROCESS, _DAEMON"))),
    }
}

pub(crate) fn durability(number: i32) -> Result<Durability> {
    match number {
        CENOTE_SYNC => Ok(Durability::Sync),
        CENOTE_ASYNC => Ok(Durability::Async),
        CENOTE_SCRATCH => Ok(Durability::Scratch),
        CENOTE_BYPASS => Ok(Durability::Bypass),
        other => Err(invalid("durability", format!("{other} is none of CENOTE_SYNC, _ASYNC, _SCRATCH, _BYPASS"))),
    }
}

/// Converts a container's settings; the defaults if null.
///
/// # Safety
/// `spec` is null, or points to a structure of at least `spec->size` bytes whose texts end in NUL bytes.
pub unsafe fn container_spec(spec: *const cenote_container_spec_t) -> Result<ContainerSpec> {
    // SAFETY: the caller vouches for it.
    let Some(spec) = unsafe { sized(spec, "spec") }? else {
        return Ok(ContainerSpec::default());
    };
    let defaults = ContainerSpec::default();
    Ok(ContainerSpec {
        block_shift: block_shift(spec.block_size)?.unwrap_or(defaults.block_shift),
        durability: durability(spec.durability)?,
        quota_bytes: spec.quota_bytes,
        // SAFETY: the caller vouches for it.
        policy: if spec.policy.is_null() { String::new() } else { unsafe { text(spec.policy, "policy") }?.to_owned() },
        ..defaults
    })
}

/// Returns a structure that contains its own size, which must be at least what this version knows.
///
/// # Safety
/// `value` is null or points to a structure whose first field is its size in bytes, and which is that large.
pub unsafe fn sized<'a, T>(value: *const T, name: &str) -> Result<Option<&'a T>> {
    if value.is_null() {
        return Ok(None);
    }
    if !value.is_aligned() {
        return Err(invalid(name, "it is not aligned for its type"));
    }
    // SAFETY: the first field is the size; only that is read here.
    let found = unsafe { value.cast::<usize>().read() };
    if found < size_of::<T>() {
        return Err(invalid(name, format!("its size is {found}: fill it with its _init function first")));
    }
    // SAFETY: it is as large as its size field.
    Ok(Some(unsafe { &*value }))
}

/// Copies codes of keys into the caller's array, if there is one. An empty list of codes means success for all keys.
pub fn fill_codes(out: &mut [u8], codes: &[KeyCode]) {
    for (at, code) in out.iter_mut().enumerate() {
        *code = codes.get(at).map_or(CENOTE_KEY_OK, |code| *code as u8);
    }
}
