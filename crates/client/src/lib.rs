//! The client: the API that programs, views and bindings use to reach a Cenote store.
//!
//! One data path serves both ways to reach a store: an engine inside this process, or a daemon behind a shared-memory
//! ring. Control messages go to the engine; bytes go straight to mapped segments and files. This room must not know the
//! layout of media nor the encoding of messages.
//!
//! # Which file may import which
//!
//! A file or folder imports only those before it in this order, so that a store can have several engines later without
//! a change below sessions:
//!
//! 1. `sync`, `ids`, `options`, `answer`, `labels`: no state.
//! 2. `map`: the cached maps of objects, and the source of each piece's bytes.
//! 3. `link`: everything that belongs to one engine; inside of it `records`: the cached records of indices.
//! 4. `data`: bytes in and out, over one link.
//! 5. `links`, `session`: all links of one store, and the home link of each container; `answered`: what homes say;
//!    `directory`: the labels of a cluster.
//! 6. Handles for users: `store`, `container`, `object`, `index`, `transaction` and the files beside them. They import
//!    each other.

mod answer;
mod answered;
mod borrowed;
mod changes;
mod container;
mod containers;
mod content;
mod data;
mod destroy;
mod directory;
mod helper;
mod ids;
mod in_place;
mod index;
mod labels;
mod layouts;
mod link;
mod links;
mod locks;
mod map;
mod meeting;
mod object;
mod op;
mod options;
mod page_cache_file;
mod precondition;
mod process;
mod records;
mod reserve;
mod secret;
mod session;
mod share;
mod snapshot;
mod stitched;
mod store;
mod sync;
mod tiers;
mod transaction;
mod weights;

pub use answered::Answered;
pub use borrowed::BorrowedBytes;
pub use cenote_device::control::{LOCK_GRACE, LockWords};
pub use cenote_device::home::Orphan;
pub use cenote_layout::{Domain, Layout};
pub use cenote_model as model;
pub use cenote_model::{
    Arrange, ArrangeMove, ArrangeProgress, ArrangeTarget, Arrangement, CONTAINER_MODE, CONTAINER_MODE_BITS,
    CONTAINER_MODE_PRIVATE, ClusterChange, ContainerId, ContainerInfo, ContainerSpec, DeviceInfo, DeviceKind,
    DeviceSpec, Durability, Error, ErrorKind, Explanation, Finding, HaCopy, HaDecided, HaEvent, HaHome, HaLoad, HaMove,
    HaNode, HaReport, HomeId, IndexId, IndexKey, KeyCode, NextFrom, ObjectId, ObjectKey, ObjectStat, PluginState,
    PolicyState, Profile, ProfilePoint, Records, Result, RuleState, SnapshotInfo, Speed, StoreConfig, StoreId,
    StoreStats, TierOptions, UserWeight, UserWeights, VerifyReport,
};
pub use cenote_server::Destroyed;
pub use cenote_wire::LockTokens;
pub use changes::Changes;
pub use container::Container;
pub use content::{Content, FirstIndex, FirstRecords};
pub use helper::Helper;
pub use in_place::InPlaceWrite;
pub use index::{Index, IndexVersion, Record};
pub use layouts::{LayoutTier, LayoutWish};
pub use link::queue::Settling;
pub use locks::{LockPatience, LockPromise};
pub use object::Object;
pub use op::Op;
pub use options::{Mode, OpenOptions};
pub use page_cache_file::{PageCacheFile, Working};
pub use precondition::Precondition;
pub use reserve::Reserve;
pub use store::Store;
pub use transaction::Transaction;
pub use weights::Weights;

/// The former name of [`BorrowedBytes`].
#[deprecated(note = "use `BorrowedBytes`")]
pub type View = BorrowedBytes;

/// The former name of [`Precondition`].
#[deprecated(note = "use `Precondition`")]
pub type Premise = Precondition;

/// Returns the path of the `cenote` program: the one that `CENOTE_BIN` names, else `cenote` beside this program, beside
/// the library that contains this code, or in `PATH`.
pub fn program() -> Result<std::path::PathBuf> {
    link::find_program()
}

/// Returns the placement policies for containers: their names and descriptions.
pub fn policies() -> impl Iterator<Item = (String, String)> {
    cenote_policy::names().filter_map(|name| {
        let policy = cenote_policy::by_name(name)?;
        Some((policy.name().to_owned(), policy.about().to_owned()))
    })
}
