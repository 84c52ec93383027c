//! Requests of clients and the answers to them.

#![allow(missing_docs, reason = "the line above a variant says what its fields are")]

use crate::{
    Arrange, ArrangeProgress, ArrangeTarget, Arrangement, ContainerId, ContainerInfo, DeviceId, DeviceInfo, DeviceSpec,
    Durability, Error, Extent, IndexId, IndexKey, ObjectId, ObjectKey, PolicyState, Profile, Records, SnapshotInfo,
    Telemetry, Timed, Update,
};

/// What a client may ask of a store. The same values go to an engine in the process and, encoded by `wire`, to a daemon.
/// Bulk data are never in them: they go through mapped segments and file descriptors (index values are records, not bulk).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Applies updates as one transaction. `atomic`: all or none, the first failing update is the error. Changes of containers stand
    /// alone there, but for the making of one (with id 0: the engine chooses) with its first indices and records (of container 0).
    /// Not atomic: each update stands for itself and has its [`KeyCode`]; still one journal record.
    Apply {
        /// Must all hold, or nothing is applied and the error is `Conflict`.
        checks: Vec<Check>,
        /// In order.
        updates: Vec<Update>,
        /// All or none.
        atomic: bool,
    },
    /// Extents of an object from `offset`, until `len` bytes or `limit` extents are covered.
    Lookup { key: ObjectKey, offset: u64, len: u64, limit: u32 },
    /// Size, blocks, use.
    ObjectStat { key: ObjectKey },
    /// Up to `limit` ids greater than `after`, ascending.
    ObjectList { container: ContainerId, after: Option<ObjectId>, limit: u32 },
    /// Records of an index, by key.
    Get { index: IndexKey, keys: Vec<Vec<u8>> },
    /// Records of an index, in order, beginning at (or after) a key, until `limit` records or `bytes_max` bytes.
    /// Only keys that begin with `prefix` count.
    Next { index: IndexKey, from: NextFrom, prefix: Vec<u8>, limit: u32, bytes_max: u32 },
    /// True if the index exists.
    IndexExists { key: IndexKey },
    /// Up to `limit` index ids greater than `after`, ascending.
    IndexList { container: ContainerId, after: Option<IndexId>, limit: u32 },
    /// A container by its label.
    ContainerByLabel { label: String },
    /// A container by its id.
    ContainerById { id: ContainerId },
    /// A container by its id with what it begins with: of each of its first indices up to `limit` records, `bytes_max` bytes in all,
    /// and the maps of its first objects as far as they are small. One message for who is about to read most of a small container.
    ContainerContent { id: ContainerId, limit: u32, bytes_max: u32 },
    /// Up to `limit` containers whose label is greater than `after`, in label order.
    ContainerList { after: Option<String>, limit: u32 },
    /// Up to `limit` snapshots of a container whose name is greater than `after`, in the order of names.
    SnapshotList { container: ContainerId, after: Option<String>, limit: u32 },
    /// A snapshot of a container by its name. `pin`: it can be read by this session until [`Request::SnapshotUnpin`],
    /// even when it is deleted meanwhile.
    SnapshotByName { container: ContainerId, name: String, pin: bool },
    /// This session needs a snapshot no longer.
    SnapshotUnpin { id: ContainerId },
    /// Free space to write to, for a container. `bytes` in runs of at least `run_min` bytes, on the device that
    /// placement chooses (never one of `avoid`).
    Lease {
        /// For whose objects.
        container: ContainerId,
        /// Bytes wanted.
        bytes: u64,
        /// The least useful piece.
        run_min: u32,
        /// Devices that must not be chosen.
        avoid: Vec<DeviceId>,
        /// Placed as if this were the container's durability; none: as it is.
        durability: Option<Durability>,
    },
    /// Gives back what was leased and not used.
    Unlease { runs: Vec<Run> },
    /// Returns when everything acknowledged so far within `target` would survive power loss.
    Flush { target: FlushTarget },
    /// All devices.
    Devices,
    /// Adds a device to the running store.
    DeviceAdd { spec: DeviceSpec },
    /// Moves everything off a device; returns when it is empty.
    DeviceDrain { name: String },
    /// Forgets an empty device.
    DeviceRemove { name: String },
    /// What was measured of a device. `measure_ms`: if not 0 it is measured now, in free space of it, for about so long
    /// (10 s at most); the answer comes when that is done.
    Profile { name: String, measure_ms: u32 },
    /// Where each range is and why.
    Explain { key: ObjectKey },
    /// Brings ranges (offset, length) of an object to a faster device before they are read. With `must`, because they lie
    /// where no client can read them: it fails if that is impossible. Without, it is done, or left alone if it does not
    /// pay; `ahead`: nobody waits for the bytes yet.
    Fetch { key: ObjectKey, ranges: Vec<(u64, u64)>, ahead: bool, must: bool },
    /// What this client has read without asking.
    Touched { reads: Vec<Touch> },
    /// What a program has learned of its reads in a container, in earlier runs.
    Habit { container: ContainerId, program: String },
    /// What a program has learned of its reads in a container: a profile that only clients understand, 64 KiB at most.
    HabitLearned { container: ContainerId, program: String, learned: Vec<u8> },
    /// Moves what is in `target` as told; returns when it is done. `dry_run`: only tells what would be moved, at what cost.
    Arrange { target: Box<ArrangeTarget>, what: Arrange, dry_run: bool },
    /// Reads and checks every checksum in `target`.
    Verify { target: FlushTarget },
    /// Counters of the whole store. It looks at every index: not for who asks often.
    Stats,
    /// How much moved between tiers since the store was opened: who waits for room sees by it whether tiers drain.
    Moved,
    /// What the store tells of itself to those who look on, with the `hot` objects that are used most (at most [`crate::HOT_MAX`]).
    Telemetry { hot: u32 },
    /// Writes a checkpoint now.
    Checkpoint,
    /// Asks the daemon to finish what it does and leave.
    Shutdown,
    /// Ranges (offset, length) of an object cannot be read where they are. Of what has a copy that is well, that becomes the
    /// place; it fails if nothing of it has one.
    Unreadable { key: ObjectKey, ranges: Vec<(u64, u64)> },
    /// The rules that users wrote are these from now on (none: there are none any more). Refused, with every fault in the cause,
    /// if they make no sense for this store's tiers: the last good ones stay. `dry_run`: they are only checked.
    PolicySet { text: Option<String>, dry_run: bool },
    /// The rules that users wrote, what became of them, and policies from outside.
    PolicyShow,
    /// What the life-cycle rules would do now if there were nothing else to do: nothing is done.
    RulesTry,
    /// How far arrangements are that are being carried out.
    Progress,
    /// Bytes of an object, for who may not map the devices: at most [`crate::CARRIED_BYTES_MAX`], up to the object's
    /// size.
    Read { key: ObjectKey, offset: u64, len: u32 },
    /// Space that holds these bytes, or the first of them, leased as by [`Request::Lease`]: from who may not map the
    /// devices.
    Deposit { container: ContainerId, bytes: Vec<u8>, avoid: Vec<DeviceId>, durability: Option<Durability> },
}

/// Reads of a range of an object that were answered from what the client had in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The object.
    pub key: ObjectKey,
    /// Where in it.
    pub offset: u64,
    /// Bytes read there, those of reads that were not recorded estimated.
    pub bytes: u64,
}

/// What [`Request::Flush`] and [`Request::Verify`] are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushTarget {
    /// The whole store.
    Store,
    /// One container.
    Container(ContainerId),
    /// One object (flushed with its container's earlier updates, since durability keeps their order).
    Object(ObjectKey),
}

/// Something that a transaction read and relies on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Check {
    /// The object was not changed after `epoch` (0: does not exist).
    Object { key: ObjectKey, epoch: u64 },
    /// The record was not changed after `epoch` (0: does not exist).
    Record { index: IndexKey, key: Vec<u8>, epoch: u64 },
    /// The record has this value (none: does not exist), whoever set it when.
    Value { index: IndexKey, key: Vec<u8>, value: Option<Vec<u8>> },
    /// No record has a key that begins with `prefix`. As every check it is about what is there before the updates of its
    /// request: records that these delete count, those that they put do not. An index that is not there has no records.
    NoKeys { index: IndexKey, prefix: Vec<u8> },
    /// The object is there and has this size in bytes.
    Size { key: ObjectKey, size: u64 },
}

/// Where [`Request::Next`] begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NextFrom {
    /// At the first record.
    Start,
    /// At the key or the next greater one.
    At(Vec<u8>),
    /// At the next greater key.
    After(Vec<u8>),
}

/// The outcome for one key or update of a vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum KeyCode {
    /// Done.
    Ok = 0,
    /// Nothing of that name.
    NotFound = 1,
    /// There already.
    Exists = 2,
    /// Key, value, range or block size out of bounds.
    Invalid = 3,
    /// Quota or format limit.
    Limit = 4,
}

/// A run of free bytes on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The device.
    pub device: DeviceId,
    /// Byte offset there; a multiple of the device's unit.
    pub offset: u64,
    /// Bytes; a multiple of the device's unit.
    pub len: u64,
}

/// Free space leased to a session until used by [`Update::Write`], given back, or its process dies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// All on one device.
    pub runs: Vec<Run>,
}

/// Part of an object's map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lookup {
    /// Value of the object's version word when this was true. A reader whose word still has it may use the map.
    pub version: u64,
    /// Epoch of the object's last update.
    pub epoch: u64,
    /// Recorded size in bytes.
    pub size: u64,
    /// log2 of the block size.
    pub block_shift: u8,
    /// Extents that overlap `[offset, covered_to)`, ascending, with the object offset at which each begins (whole
    /// extents: the first may begin before, the last may end after). Gaps are holes.
    pub extents: Vec<(u64, Extent)>,
    /// All of the map up to here is in `extents`.
    pub covered_to: u64,
}

/// Answer to [`Request::ContainerContent`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerContent {
    /// The container.
    pub info: ContainerInfo,
    /// Its first indices, ascending.
    pub indices: Vec<IndexContent>,
    /// The whole maps of its first objects, ascending.
    pub maps: Vec<(ObjectId, Lookup)>,
}

/// An index and its first records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexContent {
    /// The index.
    pub id: IndexId,
    /// Value of its version word when this was true.
    pub version: u64,
    /// In order, from the first.
    pub records: Records,
    /// There are more.
    pub more: bool,
}

/// An object as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectStat {
    /// Recorded size in bytes.
    pub size: u64,
    /// log2 of the block size.
    pub block_shift: u8,
    /// Extents in its map.
    pub extents: u64,
    /// Bytes that those extents cover.
    pub mapped_bytes: u64,
    /// Epoch of its last update.
    pub epoch: u64,
    /// Of the covered bytes those that are pinned to a tier.
    pub pinned_bytes: u64,
    /// Bytes that the extents take where they are read, in allocation units; of very many extents estimated.
    pub taken_bytes: u64,
}

/// Why a range is where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtentWhy {
    /// Begin of the range in the object.
    pub offset: u64,
    /// Its extent.
    pub extent: Extent,
    /// Name of the device.
    pub device: String,
    /// A sentence: which rule put it there, and what will happen next.
    pub why: String,
}

/// Answer to [`Request::Explain`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The object.
    pub stat: ObjectStat,
    /// Its ranges (at most 10,000).
    pub ranges: Vec<ExtentWhy>,
    /// Sentences about the whole: policy, heat, pending moves, durability.
    pub notes: Vec<String>,
}

/// Something that a verify or scrub found wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The object.
    pub key: ObjectKey,
    /// Begin of the bad range in the object.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Name of the device.
    pub device: String,
    /// What is wrong.
    pub what: String,
}

/// Answer to [`Request::Verify`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VerifyReport {
    /// Objects looked at.
    pub objects: u64,
    /// Bytes read and checked.
    pub bytes: u64,
    /// What is wrong; empty if all is well.
    pub findings: Vec<Finding>,
    /// Where maps, indices or free space in memory contradict themselves; empty if all is well.
    pub contradictions: Vec<String>,
}

/// Answer to [`Request::Stats`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreStats {
    /// Epoch of the last update.
    pub epoch: u64,
    /// Containers, objects, indices, records.
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
    /// Sessions now open.
    pub sessions: u64,
    /// Bad ranges found by the background scrub since the store was opened.
    pub scrub_findings: u64,
    /// Estimated bytes of process memory that the metadata take.
    pub metadata_bytes: u64,
    /// Bytes of values of records in memory that may leave it.
    pub values_here_bytes: u64,
    /// So many may be there.
    pub values_budget_bytes: u64,
    /// Bytes of values of records that are on tiers instead.
    pub values_away_bytes: u64,
}

impl Request {
    /// What its time counts as.
    #[must_use]
    pub fn timed(&self) -> Timed {
        match self {
            Self::Apply { .. } => Timed::Apply,
            Self::Lease { .. } | Self::Unlease { .. } => Timed::Lease,
            // They wait for a job, as a flush does.
            Self::Read { .. }
            | Self::Deposit { .. }
            | Self::Flush { .. }
            | Self::Verify { .. }
            | Self::DeviceDrain { .. }
            | Self::Checkpoint => Timed::Flush,
            _ => Timed::Ask,
        }
    }
    /// True if it is for those only who may write.
    #[must_use]
    pub fn changes(&self) -> bool {
        matches!(
            self,
            Self::Apply { .. }
                | Self::Lease { .. }
                | Self::Unlease { .. }
                | Self::Deposit { .. }
                | Self::DeviceAdd { .. }
                | Self::DeviceDrain { .. }
                | Self::DeviceRemove { .. }
                | Self::Profile { measure_ms: 1.., .. }
                | Self::Arrange { dry_run: false, .. }
                | Self::HabitLearned { .. }
                | Self::PolicySet { dry_run: false, .. }
                | Self::Checkpoint
                | Self::Shutdown
        )
    }
}

/// What a store answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Response {
    /// To [`Request::Apply`]. `codes` is empty when every update is `Ok`.
    /// `words`: for each distinct object written, in order of first appearance, its version word before and after:
    /// a client whose cached map was at `before` may apply its own writes and go on at `after`. If a container was made, the same
    /// follows for each of its indices.
    Applied { epoch: u64, codes: Vec<KeyCode>, words: Vec<(u64, u64)>, created: Option<ContainerId> },
    /// To [`Request::Lookup`].
    Lookup(Lookup),
    /// To [`Request::ObjectStat`].
    Stat(ObjectStat),
    /// To [`Request::ObjectList`].
    Objects(Vec<ObjectId>),
    /// To [`Request::Get`]: for each key its value and epoch, or none.
    Values(Vec<Option<(Vec<u8>, u64)>>),
    /// To [`Request::Next`]; `more` if further records match.
    Records { records: Records, more: bool },
    /// To [`Request::IndexExists`].
    Exists(bool),
    /// To [`Request::IndexList`].
    Indices(Vec<IndexId>),
    /// To the container requests.
    Container(ContainerInfo),
    /// To [`Request::ContainerContent`].
    Content(Box<ContainerContent>),
    /// To [`Request::ContainerList`].
    Containers(Vec<ContainerInfo>),
    /// To the snapshot requests.
    Snapshots(Vec<SnapshotInfo>),
    /// To [`Request::Lease`].
    Lease(Lease),
    /// To [`Request::Devices`].
    Devices(Vec<DeviceInfo>),
    /// To [`Request::DeviceAdd`].
    Device(DeviceId),
    /// To [`Request::Profile`]; without points if it was never measured.
    Profile(Profile),
    /// To [`Request::Habit`]; empty if nothing is known.
    Habit(Vec<u8>),
    /// To [`Request::Explain`].
    Explanation(Explanation),
    /// To [`Request::Arrange`].
    Arranged(Box<Arrangement>),
    /// To [`Request::Verify`].
    Verified(VerifyReport),
    /// To [`Request::Stats`].
    Stats(StoreStats),
    /// To [`Request::Moved`], in bytes.
    Moved(u64),
    /// To [`Request::Telemetry`].
    Telemetry(Box<Telemetry>),
    /// To [`Request::PolicyShow`].
    Policy(Box<PolicyState>),
    /// To [`Request::Progress`].
    Progress(Vec<ArrangeProgress>),
    /// To [`Request::Read`]: the object's size, and the bytes.
    Bytes { size: u64, bytes: Vec<u8> },
    /// Done; nothing to tell.
    Done,
    /// It failed; nothing was changed.
    Failed(Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_looks_is_for_readers_too() {
        let container = ContainerId(1);
        let arrange = |dry_run| Request::Arrange {
            target: Box::new(ArrangeTarget::Container(container)),
            what: Arrange::Evict,
            dry_run,
        };
        let profile = |measure_ms| Request::Profile { name: "disk".into(), measure_ms };
        let set = |dry_run| Request::PolicySet { text: None, dry_run };
        assert!(
            [arrange(false), profile(1), set(false), Request::Shutdown, Request::Checkpoint]
                .iter()
                .all(Request::changes)
        );
        let looking =
            [arrange(true), profile(0), set(true), Request::Stats, Request::Verify { target: FlushTarget::Store }];
        assert!(!looking.iter().any(Request::changes));
    }

    #[test]
    fn what_waits_for_a_job_is_not_timed_with_what_is_answered_at_once() {
        let lease = Request::Unlease { runs: Vec::new() };
        let apply = Request::Apply { checks: Vec::new(), updates: Vec::new(), atomic: true };
        let timed = [Request::Checkpoint, Request::Stats, lease, apply].map(|request| request.timed());
        assert_eq!(timed, [Timed::Flush, Timed::Ask, Timed::Lease, Timed::Apply]);
    }
}
