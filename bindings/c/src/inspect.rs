//! Information about a store: tiers, counters, findings, explanations.

use std::ffi::{c_char, c_void};

use cenote::model::DeviceState;
use cenote::{DeviceKind, VerifyReport};

use crate::abi::{c_text, give, guard, put, tell};
use crate::container::cenote_container_t;
use crate::error::cenote_error_t;
use crate::handle;
use crate::object::cenote_object_t;
use crate::store::cenote_store_t;

/// A file in `/dev/shm`, mapped by clients. Volatile.
pub const CENOTE_TIER_MEMORY: i32 = 0;
/// One file or block device of fixed capacity.
pub const CENOTE_TIER_FILE: i32 = 1;
/// A directory of segment files.
pub const CENOTE_TIER_DIRECTORY: i32 = 2;
/// A tier in persistent memory.
pub const CENOTE_TIER_PMEM: i32 = 3;
/// A tier in a bucket of an S3 service.
pub const CENOTE_TIER_S3: i32 = 4;
/// A tier in a container of an OpenStack Swift service.
pub const CENOTE_TIER_SWIFT: i32 = 5;
/// A tier in a pool of Ceph RADOS.
pub const CENOTE_TIER_RADOS: i32 = 6;
/// Directories on several disks, with a layout.
pub const CENOTE_TIER_RAID: i32 = 7;

/// It takes new data.
pub const CENOTE_TIER_ONLINE: i32 = 0;
/// It is being drained; takes no new data.
pub const CENOTE_TIER_DRAINING: i32 = 1;
/// It cannot be reached, or failed.
pub const CENOTE_TIER_FAILED: i32 = 2;

/// Current state of a tier. The text lives while the callback runs.
#[repr(C)]
pub struct cenote_tier_t {
    /// Name.
    pub name: *const c_char,
    /// `CENOTE_TIER_MEMORY` and so on.
    pub kind: i32,
    /// `CENOTE_TIER_ONLINE` and so on.
    pub state: i32,
    /// Capacity in bytes.
    pub capacity_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes leased to clients, or waiting for readers to leave.
    pub reserved_bytes: u64,
}

/// Counters of a store.
#[repr(C)]
pub struct cenote_stats_t {
    /// Epoch of the last update.
    pub epoch: u64,
    /// Containers.
    pub containers: u64,
    /// Objects in all containers.
    pub objects: u64,
    /// Indices in all containers.
    pub indices: u64,
    /// Records in all indices.
    pub records: u64,
    /// Extents in all maps.
    pub extents: u64,
    /// Bytes of journal since the last checkpoint.
    pub journal_bytes: u64,
    /// Bytes moved between tiers since the store was opened.
    pub moved_bytes: u64,
    /// Open sessions.
    pub sessions: u64,
    /// Bad ranges found by the background scrub since the store was opened.
    pub scrub_findings: u64,
    /// Estimated bytes of memory for the metadata.
    pub metadata_bytes: u64,
}

/// A damaged range. The texts live while the callback runs.
#[repr(C)]
pub struct cenote_finding_t {
    /// The object, as text.
    pub object: *const c_char,
    /// Start of the range in the object.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Name of the tier.
    pub tier: *const c_char,
    /// Description of the damage.
    pub what: *const c_char,
}

/// A range of an object, and why it is where it is. The texts live while the callback runs.
#[repr(C)]
pub struct cenote_range_t {
    /// Start of the range in the object.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Name of the tier.
    pub tier: *const c_char,
    /// Offset on the tier.
    pub tier_offset: u64,
    /// The rule that put it there, and what happens next.
    pub why: *const c_char,
}

/// Calls `each` for every tier, fastest first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_tiers(
    store: *const cenote_store_t,
    each: Option<unsafe extern "C" fn(context: *mut c_void, tier: *const cenote_tier_t)>,
    context: *mut c_void,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let devices = unsafe { handle::get(store) }?.devices()?;
        for device in devices {
            let name = c_text(&device.spec.name);
            let tier = cenote_tier_t {
                name: name.as_ptr(),
                kind: match device.spec.kind {
                    DeviceKind::SharedMemory => CENOTE_TIER_MEMORY,
                    DeviceKind::File => CENOTE_TIER_FILE,
                    DeviceKind::Directory => CENOTE_TIER_DIRECTORY,
                    DeviceKind::PersistentMemory => CENOTE_TIER_PMEM,
                    DeviceKind::S3 => CENOTE_TIER_S3,
                    DeviceKind::Swift => CENOTE_TIER_SWIFT,
                    DeviceKind::Rados => CENOTE_TIER_RADOS,
                    DeviceKind::Raid => CENOTE_TIER_RAID,
                },
                state: match device.state {
                    DeviceState::Online => CENOTE_TIER_ONLINE,
                    DeviceState::Draining => CENOTE_TIER_DRAINING,
                    DeviceState::Failed => CENOTE_TIER_FAILED,
                },
                capacity_bytes: device.spec.capacity_bytes,
                used_bytes: device.used_bytes,
                reserved_bytes: device.reserved_bytes,
            };
            if let Some(each) = each {
                // SAFETY: the caller gave the function and its context for this.
                unsafe { each(context, &raw const tier) };
            }
        }
        Ok(())
    })
}

/// Returns the counters of the whole store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_stats(
    store: *const cenote_store_t,
    stats: *mut cenote_stats_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give(error, stats, "stats", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let found = unsafe { handle::get(store) }?.stats()?;
        let stats = cenote_stats_t {
            epoch: found.epoch,
            containers: found.containers,
            objects: found.objects,
            indices: found.indices,
            records: found.records,
            extents: found.extents,
            journal_bytes: found.journal_bytes,
            moved_bytes: found.moved_bytes,
            sessions: found.sessions,
            scrub_findings: found.scrub_findings,
            metadata_bytes: found.metadata_bytes,
        };
        Ok(stats)
    })
}

/// Called for each damaged range.
type EachFinding = Option<unsafe extern "C" fn(context: *mut c_void, finding: *const cenote_finding_t)>;

unsafe fn report(found: &VerifyReport, each: EachFinding, context: *mut c_void, findings: *mut u64) {
    for finding in &found.findings {
        let texts = [&finding.key.to_string(), &finding.device, &finding.what].map(|text| c_text(text));
        let record = cenote_finding_t {
            object: texts[0].as_ptr(),
            offset: finding.offset,
            len: finding.len,
            tier: texts[1].as_ptr(),
            what: texts[2].as_ptr(),
        };
        if let Some(each) = each {
            // SAFETY: the caller gave the function and its context for this.
            unsafe { each(context, &raw const record) };
        }
    }
    // SAFETY: the caller gives a pointer that may be written, or null.
    unsafe { put(findings, found.findings.len() as u64) };
}

/// Reads and verifies everything. Calls `each` (may be null) for every damaged range; `*findings` (may be null) is
/// their number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_verify(
    store: *const cenote_store_t,
    each: Option<unsafe extern "C" fn(context: *mut c_void, finding: *const cenote_finding_t)>,
    context: *mut c_void,
    findings: *mut u64,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        unsafe { report(&handle::get(store)?.verify()?, each, context, findings) };
        Ok(())
    })
}

/// Reads and verifies everything in a container; otherwise as `cenote_verify`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_container_verify(
    container: *const cenote_container_t,
    each: Option<unsafe extern "C" fn(context: *mut c_void, finding: *const cenote_finding_t)>,
    context: *mut c_void,
    findings: *mut u64,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        unsafe { report(&handle::get(container)?.verify()?, each, context, findings) };
        Ok(())
    })
}

/// Calls `each` for every range of an object, with its place and the reason. Calls `note` (may be null) for each
/// sentence about the whole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_explain(
    store: *const cenote_store_t,
    object: *const cenote_object_t,
    each: Option<unsafe extern "C" fn(context: *mut c_void, range: *const cenote_range_t)>,
    note: Option<unsafe extern "C" fn(context: *mut c_void, note: *const c_char)>,
    context: *mut c_void,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (store, object) = unsafe { (handle::get(store)?, handle::get(object)?) };
        let found = store.explain(object.key())?;
        for range in &found.ranges {
            let texts = [&range.device, &range.why].map(|text| c_text(text));
            let record = cenote_range_t {
                offset: range.offset,
                len: u64::from(range.extent.len),
                tier: texts[0].as_ptr(),
                tier_offset: range.extent.device_offset(),
                why: texts[1].as_ptr(),
            };
            if let Some(each) = each {
                // SAFETY: the caller gave the function and its context for this.
                unsafe { each(context, &raw const record) };
            }
        }
        // SAFETY: as above.
        unsafe { tell(found.notes.iter().map(String::as_str), note, context) };
        Ok(())
    })
}
