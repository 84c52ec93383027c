//! What the engine's callers see beside requests and responses.

use std::sync::Arc;

use cenote_device::{Clock, Control, Devices, MetaDir};
use cenote_model::{
    ContainerId, DeviceId, DeviceSpec, HomeId, IndexKey, NodeId, ObjectKey, Response, StoreId, TransactionId,
};

/// Everything that the engine needs of the world.
#[derive(Clone)]
pub struct Seams {
    /// The store directory.
    pub meta: Arc<dyn MetaDir>,
    /// The factory of devices.
    pub devices: Arc<dyn Devices>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The shared control table.
    pub control: Arc<dyn Control>,
}

/// Identifies a client's session with the store. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct SessionId(pub u64);

/// The owner of a session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionInfo {
    /// Drawn at random by the client; finds the session again after a restart of the engine.
    pub nonce: u128,
    /// Process id.
    pub pid: u32,
    /// Start time of that process, so that a reused pid is noticed.
    pub started: u64,
    /// User.
    pub uid: u32,
    /// Its group, which is also that of the containers it makes.
    pub gid: u32,
    /// Whether it may change anything.
    pub write: bool,
    /// Its further groups, if owners and modes of containers bind it. `None`: it may do everything, as the store's
    /// owner and root.
    pub bound: Option<Arc<[u32]>>,
    /// The node of its process, if that is another one: pid and start time are of that node then.
    pub node: Option<NodeId>,
}

impl SessionInfo {
    /// Returns true if the user is in that group.
    #[must_use]
    pub fn is_in_group(&self, gid: u32) -> bool {
        gid == self.gid || self.bound.as_ref().is_some_and(|groups| groups.contains(&gid))
    }
}

/// What a store costs a node that has a copy of it. Tiers in object services are not copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreCosts {
    /// Bytes in memory.
    pub memory: u64,
    /// Bytes on disks.
    pub disk: u64,
    /// Bytes that programs wrote and that were journaled since the store was opened, or longer.
    pub written: u64,
}

/// Names a pending response (a completion token).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Ticket(pub u64);

/// What [`crate::Engine::handle`] returns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The response.
    Ready(Response),
    /// The response will be in [`crate::Engine::take_finished`] when jobs have run.
    Wait(Ticket),
}

/// Something that a home is to say to another one, for a transaction over both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Errand {
    /// To ask the home that decides it what became of a transaction that is prepared here, and to settle that accordingly.
    Ask(TransactionId),
    /// To tell a participant to settle a transaction that was decided, or given up, here; and then to forget that here.
    Tell {
        /// The transaction.
        transaction: TransactionId,
        /// The home that has a part of it.
        participant: HomeId,
        /// Whether it is carried out.
        commits: bool,
    },
}

impl Errand {
    /// The home to which it leads.
    #[must_use]
    pub fn to(&self) -> HomeId {
        match self {
            Self::Ask(transaction) => transaction.home,
            Self::Tell { participant, .. } => *participant,
        }
    }
}

/// What opening a store found and did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    /// True if volatile bytes were lost since the store was last open.
    pub power_lost: bool,
    /// Epoch of the checkpoint that recovery began with.
    pub checkpoint_epoch: u64,
    /// Journal records applied on top of it.
    pub records_replayed: u64,
    /// Epoch of the last update in the store now (before any rollback).
    pub epoch: u64,
    /// Containers that went back to their persisted epoch.
    pub rolled_back: Vec<RolledBack>,
    /// Objects of scratch containers that lost bytes and were dropped.
    pub lost_objects: Vec<ObjectKey>,
    /// Journal file and offset at which an unfinished record ended the journal, if there was one.
    pub torn_tail: Option<(String, u64)>,
    /// Names of devices that could not be opened, with the reason.
    pub failed_devices: Vec<(String, String)>,
    /// Indices whose records were in the wrong order, with a description; they are in order now.
    pub repaired_indices: Vec<(IndexKey, String)>,
}

/// A container that went back after power loss.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolledBack {
    /// The container.
    pub container: ContainerId,
    /// Its label.
    pub label: String,
    /// Epoch of its last update in the journal.
    pub from: u64,
    /// Its persisted epoch, which is its last one now.
    pub to: u64,
}

/// Facts about a store that is not open, from its superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreSummary {
    /// The store.
    pub id: StoreId,
    /// Its devices.
    pub devices: Vec<DeviceSpec>,
    /// Their ids, in the same order.
    pub ids: Vec<DeviceId>,
    /// Users besides the owner and root who may read and write.
    pub writers: Vec<u32>,
    /// Users who may read only.
    pub readers: Vec<u32>,
    /// Number of engines.
    pub engines: u16,
    /// The home that the store is in a cluster; 0 for a store by itself.
    pub home: HomeId,
}

/// Settings that may differ from one opening to the next. The default is for a node of two cores and more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// The journal is synced when it has been dirty for this long.
    pub group_commit_ns: u64,
    /// Asynchronous data are copied to persistent devices (write-back) at this age…
    pub write_back_ns: u64,
    /// …when nobody writes much, or at most this much later.
    pub write_back_wait_ns: u64,
    /// When nobody writes much, a container with a burst's worth of bytes in memory alone waits only this long, unless
    /// most early copies were useless of late.
    pub write_back_early_ns: u64,
    /// This much written within 20 ms is a burst.
    pub burst_bytes: u64,
    /// Failed operations are retried after this time.
    pub retry_ns: u64,
    /// A checkpoint is written when the journal has grown by this much (and by twice the last checkpoint).
    pub checkpoint_bytes: u64,
    /// A checkpoint of at most about this many bytes is encoded while the engine is held; a job makes longer ones from
    /// the last checkpoint and the journal.
    pub checkpoint_held_bytes: u64,
    /// For tests: each checkpoint that a job makes is compared with the engine's own state, which panics if they differ.
    pub check_checkpoints: bool,
    /// Bytes in each journal file.
    pub log_bytes: u64,
    /// Approximate bytes that one job copies.
    pub copy_bytes: u64,
    /// Most copy jobs at once.
    pub copy_jobs: usize,
    /// Bytes that the background scrub reads a second when the engine is idle; 0 for none.
    pub scrub_bytes_per_s: u64,
    /// Bytes of values of records that stay in memory. Beyond it, values that nobody has read of late move to value
    /// logs on the persistent tiers.
    pub value_bytes: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            group_commit_ns: 10_000_000,
            write_back_ns: 2_000_000_000,
            write_back_wait_ns: 4_000_000_000,
            write_back_early_ns: 30_000_000,
            burst_bytes: 4 << 20,
            retry_ns: 1_000_000_000,
            checkpoint_bytes: 256 << 20,
            checkpoint_held_bytes: 1 << 20,
            check_checkpoints: false,
            log_bytes: 64 << 20,
            copy_bytes: 4 << 20,
            copy_jobs: 4,
            scrub_bytes_per_s: 16 << 20,
            value_bytes: 1 << 30,
        }
    }
}
