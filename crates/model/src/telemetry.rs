//! What a store tells of itself to those who look on: numbers that only rise, and what is there now.

use crate::{ContainerId, DeviceId, DeviceInfo, Histogram, ObjectKey, StoreStats};

/// Upper ends of the ages in a [`HeatRow`], in seconds; the last age has none.
pub const HEAT_AGES_S: [u32; 5] = [1, 10, 60, 600, 3600];
/// Ages in a [`HeatRow`].
pub const HEAT_AGES: usize = HEAT_AGES_S.len() + 1;
/// Most objects in [`Telemetry::hot`].
pub const HOT_MAX: u32 = 1000;

/// Answer to [`crate::Request::Telemetry`]: a store as it stands. What is called a counter only rises while
/// [`Telemetry::uptime_ns`] does; when that falls, another engine has begun to count anew.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Telemetry {
    /// Time since the engine was opened, by a clock that only rises.
    pub uptime_ns: u64,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// False if counting was turned off: then flows, clients' bytes and latencies say nothing.
    pub enabled: bool,
    /// Counters of the whole store.
    pub stats: StoreStats,
    /// The devices with their use, fastest first.
    pub devices: Vec<DeviceInfo>,
    /// Bytes that went from one place to another since the engine was opened.
    pub flows: Vec<Flow>,
    /// The objects that were used most of late, most used first.
    pub hot: Vec<HotObject>,
    /// How much of each tier was used how recently.
    pub heat: Vec<HeatRow>,
    /// The sessions now open.
    pub clients: Vec<ClientTelemetry>,
    /// The containers that hold most, most first (at most 256).
    pub containers: Vec<ContainerTelemetry>,
    /// How long things took.
    pub latencies: Vec<Latency>,
    /// Things that happened.
    pub counts: Counts,
}

/// One end of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FlowEnd {
    /// A program's memory.
    Client,
    /// The engine, which reads bytes in order to check them.
    Engine,
    /// A device of the store.
    Tier(DeviceId),
}

/// Why bytes flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum FlowWhy {
    /// A program writes.
    Write = 0,
    /// A program reads.
    Read = 1,
    /// A copy on a persistent tier, so that the bytes survive power loss.
    Durability = 2,
    /// A fast tier is too full: the copy on the other tier becomes the place, without any I/O.
    Eviction = 3,
    /// To a faster tier, because it is used much.
    Promotion = 4,
    /// To a faster tier, because it is expected to be used.
    Prefetch = 5,
    /// To a slower tier, because the faster one is too full or it is used little.
    Demotion = 6,
    /// Off a device that is being emptied.
    Evacuation = 7,
    /// Read to be checked.
    Verify = 8,
    /// Written again on the same tier, because a sync failed or to compress it.
    Rewrite = 9,
}

impl FlowWhy {
    /// All of them.
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
    /// The word on screen and in metrics.
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

/// Bytes that went one way for one reason since the engine was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Where they came from.
    pub from: FlowEnd,
    /// Where they went.
    pub to: FlowEnd,
    /// Why.
    pub why: FlowWhy,
    /// How many.
    pub bytes: u64,
    /// In how many pieces: reads, writes, extents.
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
    /// Bytes used of late: what was used a minute ago counts half.
    pub score: u64,
    /// Milliseconds since it was last used, as far as the engine knows.
    pub idle_ms: u64,
    /// Its bytes on each tier. Those of the first 16,384 extents, if it has more.
    pub tiers: Vec<(DeviceId, u64)>,
}

/// How much of a tier was used how recently: see [`HEAT_AGES_S`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeatRow {
    /// The device.
    pub tier: DeviceId,
    /// Bytes of objects by the time since they were last used, most recent first.
    pub bytes: [u64; HEAT_AGES],
    /// How many objects have such bytes there.
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
    /// Name of the program, if its process could be asked.
    pub program: String,
    /// May it change anything?
    pub write: bool,
    /// Bytes that it wrote…
    pub written_bytes: u64,
    /// …and in how many writes.
    pub writes: u64,
    /// Bytes that it read, by copy…
    pub read_bytes: u64,
    /// …and in how many reads.
    pub reads: u64,
    /// Messages that the engine had from it.
    pub requests: u64,
    /// Free space that it holds to write to, in bytes.
    pub leased_bytes: u64,
}

/// A container, as far as room goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerTelemetry {
    /// The container.
    pub id: ContainerId,
    /// Its label.
    pub label: String,
    /// Objects in it.
    pub objects: u64,
    /// Bytes that its extents take.
    pub stored_bytes: u64,
    /// Most bytes that they may take; 0 for no limit.
    pub quota_bytes: u64,
    /// Thousandths of what all containers hold.
    pub share_permille: u16,
}

/// What takes time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Timed {
    /// A program's read, until it has the bytes.
    Get = 0,
    /// A program's write, until it is acknowledged.
    Put = 1,
    /// The engine's work on a message that changes something.
    Apply = 2,
    /// The engine's work on a message that asks for something.
    Ask = 3,
    /// The engine's work on a message that asks for space.
    Lease = 4,
    /// A flush or another request that waits for I/O, until it is answered.
    Flush = 5,
    /// A sync of the journal.
    SyncJournal = 6,
    /// A sync of devices.
    SyncDevices = 7,
    /// A batch of bytes read, checked and written elsewhere.
    Copy = 8,
    /// A checkpoint written.
    Checkpoint = 9,
    /// A journal file made.
    MakeJournal = 10,
    /// A batch of bytes read and checked.
    Verify = 11,
    /// A device that could not be opened, tried again.
    Reopen = 12,
}

impl Timed {
    /// All of them.
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
    /// True if somebody waits for it, false for what goes on behind.
    pub fn is_foreground(self) -> bool {
        self <= Self::Flush
    }
    /// The word on screen and in metrics.
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

/// How long something took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Latency {
    /// What.
    pub what: Timed,
    /// On which tier, if it was about one.
    pub tier: Option<DeviceId>,
    /// One in so many was timed.
    pub sampled_in: u32,
    /// Those that were.
    pub histogram: Histogram,
}

/// Things that happened since the engine was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Messages from clients.
    pub requests: u64,
    /// Requests for space that were told to ask again, because tiers were full and something was about to leave.
    pub stalls: u64,
    /// Requests for space that were refused, because tiers were full.
    pub refusals: u64,
    /// Bytes brought to a faster tier because they were expected to be used…
    pub prefetched_bytes: u64,
    /// …those of them that were used…
    pub prefetch_used_bytes: u64,
    /// …and those that left again unused.
    pub prefetch_wasted_bytes: u64,
    /// Copies and moves that failed.
    pub moves_failed: u64,
}
