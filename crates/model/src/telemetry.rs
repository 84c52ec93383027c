//! Telemetry of a store: counters, and current values.

use crate::{ContainerId, DeviceId, DeviceInfo, Histogram, ObjectKey, StoreStats};

/// Upper ends of the ages in a [`HeatRow`], in seconds; the last age has none.
pub const HEAT_AGES_S: [u32; 5] = [1, 10, 60, 600, 3600];
/// Number of ages in a [`HeatRow`].
pub const HEAT_AGES: usize = HEAT_AGES_S.len() + 1;
/// Upper bound of the objects in [`Telemetry::hot`].
pub const HOT_MAX: u32 = 1000;

/// Answer to [`crate::Request::Telemetry`]. Counters only rise while [`Telemetry::uptime_ns`] rises; when that
/// falls, another engine has started counting anew.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Telemetry {
    /// Time since the engine was opened, by a monotonic clock.
    pub uptime_ns: u64,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// False if counting was turned off: then flows, clients' bytes and latencies have no meaning.
    pub enabled: bool,
    /// Counters of the whole store.
    pub stats: StoreStats,
    /// The devices with their usage, fastest first.
    pub devices: Vec<DeviceInfo>,
    /// Bytes moved from one place to another since the engine was opened.
    pub flows: Vec<Flow>,
    /// The objects used most recently and often, most used first.
    pub hot: Vec<HotObject>,
    /// How much of each tier was last used how long ago.
    pub heat: Vec<HeatRow>,
    /// The sessions now open.
    pub clients: Vec<ClientTelemetry>,
    /// The users who took space on tiers of late, and those with a weight of their own, by their ids.
    pub users: Vec<UserTelemetry>,
    /// The containers with the most bytes, largest first (at most 256).
    pub containers: Vec<ContainerTelemetry>,
    /// Histograms of durations.
    pub latencies: Vec<Latency>,
    /// Counts of events.
    pub counts: Counts,
}

/// One end of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FlowEnd {
    /// A program's memory.
    Client,
    /// The engine, which reads bytes to check them.
    Engine,
    /// A device of the store.
    Tier(DeviceId),
}

/// The reason of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum FlowWhy {
    /// A program writes.
    Write = 0,
    /// A program reads.
    Read = 1,
    /// Write-back: a copy on a persistent tier, so that the bytes survive power loss.
    Durability = 2,
    /// A fast tier is too full: the copy on the other tier becomes the only place, without any I/O.
    Eviction = 3,
    /// To a faster tier, because it is used much.
    Promotion = 4,
    /// To a faster tier, in expectation of a read.
    Prefetch = 5,
    /// To a slower tier, because the faster one is too full or the bytes are used little.
    Demotion = 6,
    /// Off a device that is being emptied.
    Evacuation = 7,
    /// Read for a check.
    Verify = 8,
    /// Rewritten on the same tier, because a sync failed or to compress it.
    Rewrite = 9,
}

impl FlowWhy {
    /// All reasons.
    pub const ALL: [Self; 10] = [
        Self::Write,
        Self::Read,
        Self::Durability,
        Self::Eviction,
        Self::Promotion,
        Self::Prefetch,
        Self::Demotion,
        Self::Evacuation,
        Self::Verify,
        Self::Rewrite,
    ];
    /// Its name on screen and in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Durability => "durability",
            Self::Eviction => "eviction",
            Self::Promotion => "promotion",
            Self::Prefetch => "prefetch",
            Self::Demotion => "demotion",
            Self::Evacuation => "evacuation",
            Self::Verify => "verify",
            Self::Rewrite => "rewrite",
        }
    }
}

/// Bytes that flowed in one direction for one reason since the engine was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Source.
    pub from: FlowEnd,
    /// Destination.
    pub to: FlowEnd,
    /// Reason.
    pub why: FlowWhy,
    /// Number of bytes.
    pub bytes: u64,
    /// Number of reads, writes or extents.
    pub operations: u64,
}

/// An object that is used much.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HotObject {
    /// The object.
    pub key: ObjectKey,
    /// Label of its container.
    pub label: String,
    /// Its recorded size in bytes.
    pub size: u64,
    /// Recently used bytes: those used a minute ago count half.
    pub score: u64,
    /// Milliseconds since its last use, as far as the engine knows.
    pub idle_ms: u64,
    /// Its bytes on each tier; of the first 16,384 extents, if it has more.
    pub tiers: Vec<(DeviceId, u64)>,
}

/// How much of a tier was last used how long ago: see [`HEAT_AGES_S`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeatRow {
    /// The device.
    pub tier: DeviceId,
    /// Bytes of objects by the time since their last use, most recent first.
    pub bytes: [u64; HEAT_AGES],
    /// Number of objects with such bytes there.
    pub objects: [u64; HEAT_AGES],
}

/// A session: a program that uses the store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientTelemetry {
    /// Number of the session.
    pub session: u64,
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Name of the program, if its process could be inspected.
    pub program: String,
    /// True if it may change anything.
    pub write: bool,
    /// Bytes that it wrote.
    pub written_bytes: u64,
    /// Number of those writes.
    pub writes: u64,
    /// Bytes that it read by copy.
    pub read_bytes: u64,
    /// Number of those reads.
    pub reads: u64,
    /// Messages that the engine received from it.
    pub requests: u64,
    /// Free space leased to it for writing, in bytes.
    pub leased_bytes: u64,
}

/// A user who shares tiers with others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserTelemetry {
    /// The user's numeric id.
    pub uid: u32,
    /// The user's weight.
    pub weight: u16,
    /// Bytes that the user's programs took of late on each tier, half of it forgotten every two seconds.
    pub taken: Vec<(DeviceId, u64)>,
}

/// Space usage of a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerTelemetry {
    /// The container.
    pub id: ContainerId,
    /// Its label.
    pub label: String,
    /// Objects in it.
    pub objects: u64,
    /// Bytes of its extents.
    pub stored_bytes: u64,
    /// Quota of those bytes; 0 for no limit.
    pub quota_bytes: u64,
    /// Its thousandths of the bytes in all containers.
    pub share_permille: u16,
}

/// A timed operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Timed {
    /// A program's read, until it has the bytes.
    Get = 0,
    /// A program's write, until it is acknowledged.
    Put = 1,
    /// The engine's work on a request that changes something.
    Apply = 2,
    /// The engine's work on a request that only reads.
    Ask = 3,
    /// The engine's work on a request for space.
    Lease = 4,
    /// A flush or another request that waits for I/O, until it is answered.
    Flush = 5,
    /// A sync of the journal.
    SyncJournal = 6,
    /// A sync of devices.
    SyncDevices = 7,
    /// A batch of bytes read, checked and written elsewhere.
    Copy = 8,
    /// Writing a checkpoint.
    Checkpoint = 9,
    /// Creating a journal file.
    MakeJournal = 10,
    /// A batch of bytes read and checked.
    Verify = 11,
    /// Another attempt to open a device that could not be opened.
    Reopen = 12,
}

impl Timed {
    /// All timed operations.
    pub const ALL: [Self; 13] = [
        Self::Get,
        Self::Put,
        Self::Apply,
        Self::Ask,
        Self::Lease,
        Self::Flush,
        Self::SyncJournal,
        Self::SyncDevices,
        Self::Copy,
        Self::Checkpoint,
        Self::MakeJournal,
        Self::Verify,
        Self::Reopen,
    ];
    /// Returns true if a caller waits for it, false for background work.
    pub fn is_foreground(self) -> bool {
        self <= Self::Flush
    }
    /// Its name on screen and in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Apply => "apply",
            Self::Ask => "ask",
            Self::Lease => "lease",
            Self::Flush => "flush",
            Self::SyncJournal => "sync_journal",
            Self::SyncDevices => "sync_devices",
            Self::Copy => "copy",
            Self::Checkpoint => "checkpoint",
            Self::MakeJournal => "make_journal",
            Self::Verify => "verify",
            Self::Reopen => "reopen",
        }
    }
}

/// The latency of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Latency {
    /// The operation.
    pub what: Timed,
    /// The tier, if it concerns one.
    pub tier: Option<DeviceId>,
    /// Sampling period: one of this many was timed.
    pub sampled_in: u32,
    /// Durations of the timed ones.
    pub histogram: Histogram,
}

/// Counts of events since the engine was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Messages received from clients.
    pub requests: u64,
    /// Requests for space that were told to repeat, because tiers were full and something was about to leave.
    pub stalls: u64,
    /// Requests for space that were refused, because tiers were full.
    pub refusals: u64,
    /// Bytes prefetched to a faster tier.
    pub prefetched_bytes: u64,
    /// Prefetched bytes that were used.
    pub prefetch_used_bytes: u64,
    /// Prefetched bytes that were evicted unused.
    pub prefetch_wasted_bytes: u64,
    /// Copies and moves that failed.
    pub moves_failed: u64,
}
