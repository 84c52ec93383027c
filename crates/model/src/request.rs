//! Requests of clients and the answers to them.

#![allow(missing_docs, reason = "the line above a variant says what its fields are")]

mod kinds;

use crate::{
    Arrange, ArrangeProgress, ArrangeTarget, Arrangement, Check, ClusterChange, ContainerId, ContainerInfo, Decision,
    DeviceId, DeviceInfo, DeviceSpec, Durability, Error, Extent, HaReport, HomeId, IndexId, IndexKey, ObjectId,
    ObjectKey, PolicyState, Profile, Records, SnapshotInfo, Telemetry, TransactionId, Update, UserWeights, WeightsAsk,
};

/// A request of a client to a store. The same values go to an engine in the process and, encoded by `wire`, to a
/// daemon. They never hold bulk data, which go through mapped segments and file descriptors (index values are records, not bulk).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Applies updates as one transaction. `atomic`: all or none, and the first failing update is the error. There, a
    /// change of containers must be alone, except that the creation of one (with id 0: the engine chooses) may come
    /// with its first indices and records (of container 0). Not atomic: each update succeeds or fails separately with
    /// its [`KeyCode`]; still one journal record.
    Apply {
        /// If one of them does not hold, nothing is applied and the error is `Conflict`.
        checks: Vec<Check>,
        /// Applied in this order.
        updates: Vec<Update>,
        /// All or none.
        atomic: bool,
    },
    /// Extents of an object from `offset`, until `len` bytes or `limit` extents are covered.
    Lookup { key: ObjectKey, offset: u64, len: u64, limit: u32 },
    /// Size, block size and usage of an object.
    ObjectStat { key: ObjectKey },
    /// Up to `limit` ids greater than `after`, ascending.
    ObjectList { container: ContainerId, after: Option<ObjectId>, limit: u32 },
    /// Records of an index, by key.
    Get { index: IndexKey, keys: Vec<Vec<u8>> },
    /// Records of an index, in order, from (or after) a key on, until `limit` records or `bytes_max` bytes. Only keys
    /// that begin with `prefix` count.
    Next { index: IndexKey, from: NextFrom, prefix: Vec<u8>, limit: u32, bytes_max: u32 },
    /// True if the index exists.
    IndexExists { key: IndexKey },
    /// Up to `limit` index ids greater than `after`, ascending.
    IndexList { container: ContainerId, after: Option<IndexId>, limit: u32 },
    /// A container by its label.
    ContainerByLabel { label: String },
    /// A container by its id.
    ContainerById { id: ContainerId },
    /// A container by its id with its first content: of each of its first indices up to `limit` records, `bytes_max`
    /// bytes in all, and the maps of its first objects as far as they are small. One message for a client that will
    /// read most of a small container.
    ContainerContent { id: ContainerId, limit: u32, bytes_max: u32 },
    /// Up to `limit` containers whose label is greater than `after`, in label order.
    ContainerList { after: Option<String>, limit: u32 },
    /// Up to `limit` snapshots of a container whose name is greater than `after`, in name order.
    SnapshotList { container: ContainerId, after: Option<String>, limit: u32 },
    /// A snapshot of a container by its name. `pin`: this session can read it until [`Request::SnapshotUnpin`], even if
    /// it is deleted meanwhile.
    SnapshotByName { container: ContainerId, name: String, pin: bool },
    /// Ends this session's pin of a snapshot.
    SnapshotUnpin { id: ContainerId },
    /// Free space for writing into a container: `bytes` in runs of at least `run_min` bytes, on the device that
    /// placement chooses (never one of `avoid`).
    Lease {
        /// The container whose objects the space is for.
        container: ContainerId,
        /// Bytes wanted.
        bytes: u64,
        /// Shortest useful run.
        run_min: u32,
        /// Devices that placement must not choose.
        avoid: Vec<DeviceId>,
        /// Placement as if the container had this durability; `None`: its own.
        durability: Option<Durability>,
    },
    /// Returns leased space that was not used.
    Unlease { runs: Vec<Run> },
    /// Returns when everything acknowledged so far within `target` would survive power loss.
    Flush { target: FlushTarget },
    /// All devices.
    Devices,
    /// Adds a device to the running store.
    DeviceAdd { spec: DeviceSpec },
    /// Moves everything off a device; returns when the device is empty.
    DeviceDrain { name: String },
    /// Removes an empty device from the store.
    DeviceRemove { name: String },
    /// The measured profile of a device. `measure_ms`: if not 0, the device is measured now, in its free space, for
    /// about this long (10 s at most); the answer comes when the measurement is done.
    Profile { name: String, measure_ms: u32 },
    /// The place of each range, and the reasons.
    Explain { key: ObjectKey },
    /// Brings ranges (offset, length) of an object to a faster device before they are read. With `must`, because no
    /// client can read them where they are: fails if that is impossible. Without, does nothing if it does not pay;
    /// `ahead`: nobody waits for the bytes yet.
    Fetch { key: ObjectKey, ranges: Vec<(u64, u64)>, ahead: bool, must: bool },
    /// Reads that this client answered from its cached maps, without a request.
    Touched { reads: Vec<Touch> },
    /// The read habits (access pattern) of a program in a container, learned in earlier runs.
    Habit { container: ContainerId, program: String },
    /// Stores the read habits of a program in a container: a profile that only clients understand, 64 KiB at most.
    HabitLearned { container: ContainerId, program: String, learned: Vec<u8> },
    /// Moves the data of `target` as `what` says; returns when that is done. `dry_run`: only reports the moves and their cost.
    Arrange { target: Box<ArrangeTarget>, what: Arrange, dry_run: bool },
    /// Reads and checks every checksum in `target`.
    Verify { target: FlushTarget },
    /// Counters of the whole store. Visits every index: not for frequent use.
    Stats,
    /// Total bytes moved between tiers since the store was opened: a client that waits for space sees from it whether
    /// tiers drain.
    Moved,
    /// The store's telemetry, with the `hot` most used objects (at most [`crate::HOT_MAX`]).
    Telemetry { hot: u32 },
    /// The view of the cluster, and what the daemon concludes from what it has seen. `Unsupported` if the store is no part of one,
    /// or no daemon serves it.
    HaReport,
    /// Changes who takes part in the cluster, or where homes are. Answered once the register has it; what follows from it (homes that
    /// move) takes its time. `Unsupported` as for [`Request::HaReport`].
    ChangeCluster { change: ClusterChange },
    /// Answered when everything that the home acknowledged so far survives the loss of so many nodes, its own among them. `Busy` if
    /// fewer nodes mirror it now; `Unsupported` if it is to have no mirrors.
    Protect { losses: u32 },
    /// Writes a checkpoint now.
    Checkpoint,
    /// Asks the daemon to finish its work and exit. `cluster`: all nodes are being stopped, so none is to take another's homes.
    Shutdown { cluster: bool },
    /// Reports ranges (offset, length) of an object that cannot be read in their place. A range with a valid copy moves
    /// to that copy; fails if no range has one.
    Unreadable { key: ObjectKey, ranges: Vec<(u64, u64)> },
    /// Sets the rules of users (`None` removes them). If they are invalid for this store's tiers, they are refused with
    /// every fault in the cause, and the last valid ones stay. `dry_run`: only checks them.
    PolicySet { text: Option<String>, dry_run: bool },
    /// The rules of users, their effects, and plugin policies.
    PolicyShow,
    /// The weights of users, shown, set, or taken over from another home. Answered with those that count now.
    Weights { ask: WeightsAsk },
    /// What the life-cycle rules would do now if they had the store to themselves; does nothing.
    RulesTry,
    /// Progress of the running arrangements.
    Progress,
    /// Bytes of an object, for a client that may not map the devices: at most [`crate::CARRIED_BYTES_MAX`], up to the
    /// object's size.
    Read { key: ObjectKey, offset: u64, len: u32 },
    /// Leases space as [`Request::Lease`] does and fills it with these bytes, or with the first of them: for a client
    /// that may not map the devices.
    Deposit { container: ContainerId, bytes: Vec<u8>, avoid: Vec<DeviceId>, durability: Option<Durability> },
    /// First phase of a transaction over several homes, at each of them but the last: checks its part, and holds what
    /// that concerns until [`Request::Settle`].
    Prepare { transaction: TransactionId, checks: Vec<Check>, updates: Vec<Update> },
    /// Second phase, at the last home: applies its own part, and decides with that that the transaction is carried out.
    /// `Conflict` if it was given up.
    Decide { decision: Box<Decision>, checks: Vec<Check>, updates: Vec<Update> },
    /// To a home that has prepared its part: applies it, or gives it up. Done before: nothing happens.
    Settle { transaction: TransactionId, commits: bool },
    /// To the home that decides: what became of the transaction? If it is not decided by now it never will be. `tell`:
    /// homes that may have prepared a part, to be told so.
    Ask { transaction: TransactionId, tell: Vec<HomeId> },
    /// To the home that has decided: this participant has settled. With the last of them, the decision is forgotten.
    Forget { transaction: TransactionId, participant: HomeId },
}

/// Reads of an object's range that the client answered from its cached map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The object.
    pub key: ObjectKey,
    /// Offset of the range.
    pub offset: u64,
    /// Bytes read there, with an estimate for reads that were not recorded.
    pub bytes: u64,
}

/// The target of [`Request::Flush`] and [`Request::Verify`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushTarget {
    /// The whole store.
    Store,
    /// One container.
    Container(ContainerId),
    /// One object (flushed with its container's earlier updates, since durability keeps their order).
    Object(ObjectKey),
}

/// The start of [`Request::Next`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NextFrom {
    /// At the first record.
    Start,
    /// At the key or the next greater one.
    At(Vec<u8>),
    /// At the next greater key.
    After(Vec<u8>),
}

/// The result for one key or update of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum KeyCode {
    /// Done.
    Ok = 0,
    /// The name does not exist.
    NotFound = 1,
    /// The name exists already.
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

/// Free space leased to a session until [`Update::Write`] uses it, it is returned, or the session's process dies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Runs, all on one device.
    pub runs: Vec<Run>,
}

/// Part of an object's map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lookup {
    /// Value of the object's version word when this was valid. A reader may use the map while the word keeps this
    /// value.
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
    /// `extents` has all of the map up to this offset.
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
    /// Value of the index's version word when this was valid.
    pub version: u64,
    /// In order, from the first.
    pub records: Records,
    /// True if the index has more records.
    pub more: bool,
}

/// The state of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectStat {
    /// Recorded size in bytes.
    pub size: u64,
    /// log2 of the block size.
    pub block_shift: u8,
    /// Extents in its map.
    pub extents: u64,
    /// Bytes covered by those extents.
    pub mapped_bytes: u64,
    /// Epoch of its last update.
    pub epoch: u64,
    /// Of the covered bytes, those pinned to a tier.
    pub pinned_bytes: u64,
    /// Bytes of the extents in their place of reading, in allocation units; an estimate for very many extents.
    pub taken_bytes: u64,
}

/// The reasons for the place of a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtentWhy {
    /// Begin of the range in the object.
    pub offset: u64,
    /// Its extent.
    pub extent: Extent,
    /// Name of the device.
    pub device: String,
    /// A sentence: the rule that put it there, and what happens next.
    pub why: String,
}

/// Answer to [`Request::Explain`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The object.
    pub stat: ObjectStat,
    /// Its ranges (at most 10,000).
    pub ranges: Vec<ExtentWhy>,
    /// Sentences about the whole object: policy, heat, pending moves, durability.
    pub notes: Vec<String>,
}

/// A defect that a verify or scrub found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The object.
    pub key: ObjectKey,
    /// Offset of the bad range in the object.
    pub offset: u64,
    /// Length of the range.
    pub len: u64,
    /// Name of the device.
    pub device: String,
    /// The defect.
    pub what: String,
}

/// Answer to [`Request::Verify`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VerifyReport {
    /// Number of objects checked.
    pub objects: u64,
    /// Bytes read and checked.
    pub bytes: u64,
    /// The defects; empty if there are none.
    pub findings: Vec<Finding>,
    /// Contradictions of maps, indices or free space in memory; empty if there are none.
    pub contradictions: Vec<String>,
}

/// Answer to [`Request::Stats`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
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
    /// Sessions now open.
    pub sessions: u64,
    /// Bad ranges found by the background scrub since the store was opened.
    pub scrub_findings: u64,
    /// Estimated process memory of the metadata, in bytes.
    pub metadata_bytes: u64,
    /// Bytes of record values in memory that may be spilled.
    pub values_here_bytes: u64,
    /// Upper bound of those bytes.
    pub values_budget_bytes: u64,
    /// Bytes of record values that were spilled to tiers.
    pub values_away_bytes: u64,
}

/// The answer of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Response {
    /// To [`Request::Apply`]. `codes` is empty when every update is `Ok`. `words`: for each distinct written object, in
    /// order of first appearance, its version word before and after. A client whose cached map was at `before` may
    /// apply its own writes and continue at `after`. If a container was created, the same follows for each of its
    /// indices.
    Applied { epoch: u64, codes: Vec<KeyCode>, words: Vec<(u64, u64)>, created: Option<ContainerId> },
    /// To [`Request::Lookup`].
    Lookup(Lookup),
    /// To [`Request::ObjectStat`].
    Stat(ObjectStat),
    /// To [`Request::ObjectList`].
    Objects(Vec<ObjectId>),
    /// To [`Request::Get`]: value and epoch of each key, or none.
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
    /// To [`Request::Profile`]; without points if the device was never measured.
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
    /// To [`Request::HaReport`].
    Ha(Box<HaReport>),
    /// To [`Request::PolicyShow`].
    Policy(Box<PolicyState>),
    /// To [`Request::Weights`].
    Weights(UserWeights),
    /// To [`Request::Progress`].
    Progress(Vec<ArrangeProgress>),
    /// To [`Request::Read`]: the object's size, the value of its version word while both were so, and the bytes.
    Bytes { size: u64, version: u64, bytes: Vec<u8> },
    /// To [`Request::Prepare`]: whether its part is in a container whose changes survive power loss once they are answered.
    Prepared { is_sync: bool },
    /// To [`Request::Ask`].
    Decided(bool),
    /// Success without a result.
    Done,
    /// Failure; nothing was changed.
    Failed(Error),
}
