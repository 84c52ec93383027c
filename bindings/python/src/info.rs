//! Information about the store: plain, frozen records.

use cenote::model::DeviceState;
use pyo3::prelude::*;

/// A container's present state.
#[pyclass(frozen, get_all, module = "cenote")]
pub struct ContainerInfo {
    /// Its label, unique in the store.
    pub label: String,
    /// Its id, which a rename keeps.
    pub id: u64,
    /// "sync", "async", "scratch" or "bypass".
    pub durability: &'static str,
    /// Default block size of its objects in bytes.
    pub block_size: u64,
    /// Maximum bytes that it may use; 0 for no limit.
    pub quota: u64,
    /// Name of the placement policy.
    pub policy: String,
    /// User id of its owner.
    pub owner_uid: Option<u32>,
    /// Its group id.
    pub owner_gid: Option<u32>,
    /// Permissions, as the nine bits of a file's mode.
    pub mode: u16,
    /// Its part of a tier whose room is scarce, beside other containers.
    pub weight: u16,
    /// Number of objects.
    pub objects: u64,
    /// Number of indices.
    pub indices: u64,
    /// Number of records in its indices.
    pub records: u64,
    /// Bytes that it uses on all tiers.
    pub stored_bytes: u64,
}

impl From<cenote::ContainerInfo> for ContainerInfo {
    fn from(info: cenote::ContainerInfo) -> Self {
        Self {
            label: info.label,
            id: info.id.0,
            durability: info.spec.durability.word(),
            block_size: 1 << info.spec.block_shift,
            quota: info.spec.quota_bytes,
            policy: info.spec.policy,
            owner_uid: info.spec.owner_uid,
            owner_gid: info.spec.owner_gid,
            mode: info.spec.mode,
            weight: info.spec.weight,
            objects: info.objects,
            indices: info.indices,
            records: info.records,
            stored_bytes: info.stored_bytes,
        }
    }
}

/// A snapshot of a container.
#[pyclass(frozen, get_all, module = "cenote")]
pub struct SnapshotInfo {
    /// Its name.
    pub name: String,
    /// Id under which it is read.
    pub id: u64,
    /// Epoch at which it was made.
    pub epoch: u64,
    /// When it was made, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Number of objects.
    pub objects: u64,
    /// Number of indices.
    pub indices: u64,
    /// Number of records in its indices.
    pub records: u64,
    /// Its size in bytes, including those shared with the container.
    pub stored_bytes: u64,
}

impl From<cenote::SnapshotInfo> for SnapshotInfo {
    fn from(info: cenote::SnapshotInfo) -> Self {
        Self {
            name: info.name,
            id: info.id.0,
            epoch: info.epoch,
            unix_ms: info.unix_ms,
            objects: info.objects,
            indices: info.indices,
            records: info.records,
            stored_bytes: info.stored_bytes,
        }
    }
}

/// An object's present state.
#[pyclass(frozen, get_all, module = "cenote")]
pub struct ObjectStat {
    /// Recorded size in bytes.
    pub size: u64,
    /// Block size in bytes.
    pub block_size: u64,
    /// Number of extents in its map.
    pub extents: u64,
    /// Bytes that those extents cover.
    pub mapped_bytes: u64,
    /// Epoch of its last update.
    pub epoch: u64,
}

impl From<cenote::ObjectStat> for ObjectStat {
    fn from(stat: cenote::ObjectStat) -> Self {
        Self {
            size: stat.size,
            block_size: 1 << stat.block_shift,
            extents: stat.extents,
            mapped_bytes: stat.mapped_bytes,
            epoch: stat.epoch,
        }
    }
}

/// A tier's present state.
#[pyclass(frozen, get_all, module = "cenote")]
pub struct TierInfo {
    /// Its name.
    pub name: String,
    /// "memory", "pmem", "file", "directory", "s3", "swift", "rados" or "raid".
    pub kind: &'static str,
    /// Its path; None for memory.
    pub path: Option<String>,
    /// "online", "draining" or "failed".
    pub state: &'static str,
    /// True if flushed data on it survive power loss.
    pub persistent: bool,
    /// Capacity in bytes.
    pub capacity: u64,
    /// Bytes in use.
    pub used: u64,
    /// Bytes leased to clients, or waiting for readers to leave.
    pub reserved: u64,
    /// Draining (write-back) starts above this share of the capacity.
    pub high: f64,
    /// Draining stops at this share.
    pub low: f64,
    /// What a person should know about this tier here; mostly empty.
    pub note: String,
    /// Seconds before the first byte of a read; None while unknown.
    pub read_latency: Option<f64>,
    /// Seconds before the first byte of a write.
    pub write_latency: Option<f64>,
    /// Bytes per second of long reads.
    pub read_bandwidth: Option<f64>,
    /// Bytes per second of long writes.
    pub write_bandwidth: Option<f64>,
}

impl From<cenote::DeviceInfo> for TierInfo {
    fn from(info: cenote::DeviceInfo) -> Self {
        let path = info.spec.path.to_string_lossy().into_owned();
        Self {
            name: info.spec.name,
            kind: info.spec.kind.word(),
            path: (!path.is_empty()).then_some(path),
            state: match info.state {
                DeviceState::Online => "online",
                DeviceState::Draining => "draining",
                DeviceState::Failed => "failed",
            },
            persistent: info.spec.kind.is_persistent(),
            capacity: info.spec.capacity_bytes,
            used: info.used_bytes,
            reserved: info.reserved_bytes,
            high: f64::from(info.spec.watermark_high_permille) / 1000.0,
            low: f64::from(info.spec.watermark_low_permille) / 1000.0,
            note: info.note,
            read_latency: info.speed.map(|speed| speed.read_latency_ns / 1e9),
            write_latency: info.speed.map(|speed| speed.write_latency_ns / 1e9),
            read_bandwidth: info.speed.map(|speed| speed.read_bandwidth),
            write_bandwidth: info.speed.map(|speed| speed.write_bandwidth),
        }
    }
}

/// Counters of the whole store.
#[pyclass(frozen, get_all, module = "cenote")]
pub struct StoreStats {
    /// Epoch of the last update.
    pub epoch: u64,
    /// Number of containers.
    pub containers: u64,
    /// Number of objects in all containers.
    pub objects: u64,
    /// Number of indices in all containers.
    pub indices: u64,
    /// Number of records in all indices.
    pub records: u64,
    /// Number of extents in all maps.
    pub extents: u64,
    /// Bytes of journal since the last checkpoint.
    pub journal_bytes: u64,
    /// Bytes moved between tiers since the store was opened.
    pub moved_bytes: u64,
    /// Number of open sessions.
    pub sessions: u64,
    /// Bad ranges found by the background scrub since the store was opened.
    pub scrub_findings: u64,
    /// Estimated memory for metadata, in bytes.
    pub metadata_bytes: u64,
    /// Bytes of record values in memory that may leave it.
    pub values_here_bytes: u64,
    /// Limit for those bytes.
    pub values_budget_bytes: u64,
    /// Bytes of record values that are on tiers instead.
    pub values_away_bytes: u64,
}

impl From<cenote::StoreStats> for StoreStats {
    fn from(stats: cenote::StoreStats) -> Self {
        Self {
            epoch: stats.epoch,
            containers: stats.containers,
            objects: stats.objects,
            indices: stats.indices,
            records: stats.records,
            extents: stats.extents,
            journal_bytes: stats.journal_bytes,
            moved_bytes: stats.moved_bytes,
            sessions: stats.sessions,
            scrub_findings: stats.scrub_findings,
            metadata_bytes: stats.metadata_bytes,
            values_here_bytes: stats.values_here_bytes,
            values_budget_bytes: stats.values_budget_bytes,
            values_away_bytes: stats.values_away_bytes,
        }
    }
}

/// A fault found by a verification.
#[pyclass(frozen, get_all, module = "cenote")]
pub struct Finding {
    /// Id of the container.
    pub container: u64,
    /// Id of the object.
    pub object: String,
    /// Start of the bad range in the object.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Name of the tier.
    pub tier: String,
    /// What is wrong.
    pub what: String,
}

/// Result of a verification.
#[pyclass(frozen, get_all, module = "cenote")]
pub struct VerifyReport {
    /// Number of objects checked.
    pub objects: u64,
    /// Bytes read and checked.
    pub bytes: u64,
    /// Faults; empty if there are none.
    pub findings: Vec<Py<Finding>>,
    /// Contradictions between maps, indices and free space in memory; empty if there are none.
    pub contradictions: Vec<String>,
}

impl VerifyReport {
    /// Converts the client's report.
    pub fn new(py: Python<'_>, report: cenote::VerifyReport) -> PyResult<Self> {
        let finding = |found: cenote::Finding| {
            let record = Finding {
                container: found.key.container.0,
                object: found.key.object.to_string(),
                offset: found.offset,
                length: found.len,
                tier: found.device,
                what: found.what,
            };
            Py::new(py, record)
        };
        let findings = report.findings.into_iter().map(finding).collect::<PyResult<_>>()?;
        Ok(Self { objects: report.objects, bytes: report.bytes, findings, contradictions: report.contradictions })
    }
}

/// Why a range is where it is.
#[pyclass(frozen, get_all, module = "cenote")]
pub struct ExplainedRange {
    /// Start of the range in the object.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Name of the tier.
    pub tier: String,
    /// Offset on the tier.
    pub tier_offset: u64,
    /// The rule that put it there, and what will happen next.
    pub why: String,
}

/// Where each range of an object is and why.
#[pyclass(frozen, get_all, module = "cenote")]
pub struct Explanation {
    /// The object's present state.
    pub stat: Py<ObjectStat>,
    /// Its ranges.
    pub ranges: Vec<Py<ExplainedRange>>,
    /// Sentences about the whole object.
    pub notes: Vec<String>,
}

impl Explanation {
    /// Converts the client's explanation.
    pub fn new(py: Python<'_>, found: cenote::Explanation) -> PyResult<Self> {
        let range = |range: cenote::model::ExtentWhy| {
            let record = ExplainedRange {
                offset: range.offset,
                length: u64::from(range.extent.len),
                tier: range.device,
                tier_offset: range.extent.device_offset(),
                why: range.why,
            };
            Py::new(py, record)
        };
        let ranges = found.ranges.into_iter().map(range).collect::<PyResult<_>>()?;
        Ok(Self { stat: Py::new(py, ObjectStat::from(found.stat))?, ranges, notes: found.notes })
    }
}

macro_rules! shown {
    ($($class:ident { $($field:ident),* })*) => {
        $(#[pymethods]
        impl $class {
            fn __repr__(&self) -> String {
                let fields: Vec<String> = vec![$(format!(concat!(stringify!($field), "={:?}"), self.$field)),*];
                format!(concat!(stringify!($class), "({})"), fields.join(", "))
            }
        })*
    };
}
shown! {
    ContainerInfo { label, durability, block_size, objects, indices, records, stored_bytes }
    ObjectStat { size, block_size, extents, mapped_bytes, epoch }
    TierInfo { name, kind, state, used, capacity }
    StoreStats { epoch, containers, objects, indices, records, extents, sessions }
    Finding { object, offset, length, tier, what }
    ExplainedRange { offset, length, tier, why }
}
