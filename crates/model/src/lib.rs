//! The types that every room of Cenote shares: ids, extents, container policies, updates, requests and errors.
//!
//! This room must not know I/O, state or encodings: what a value looks like on media is the `store` crate's business,
//! what it looks like between processes is `wire`'s.

mod check;
mod container;
mod crc32c;
mod error;
mod extent;
mod ha;
mod histogram;
mod id;
mod limits;
mod lock;
mod manage;
mod offset_map;
mod packed;
mod profile;
mod records;
mod request;
pub mod size;
mod telemetry;
mod tier;
mod tier_options;
mod tier_text;
mod transaction;
mod units;
mod update;
mod weights;

pub use check::Check;
pub use container::{
    CONTAINER_MODE, CONTAINER_MODE_BITS, CONTAINER_MODE_PRIVATE, CONTAINER_WEIGHT_MAX, ContainerInfo, ContainerSpec,
    Durability, Right, SnapshotInfo,
};
pub use crc32c::combine_sums;
pub use error::{Error, ErrorKind, Result};
pub use extent::{Birth, Encoding, Extent, Sums};
pub use ha::{ClusterChange, HaCopy, HaDecided, HaEvent, HaHome, HaLoad, HaMove, HaNode, HaReport};
pub use histogram::{HISTOGRAM_BUCKETS, Histogram, histogram_bucket, histogram_end_ns};
pub use id::{ContainerId, DEVICES_WORD, DeviceId, HomeId, IndexId, IndexKey, NodeId, ObjectId, ObjectKey, StoreId};
pub use limits::*;
pub use lock::{LOCK_END, LockAnswer, LockHolder, LockHow, LockMap, LockMode, LockSet, LockSpace, LockWish};
pub use manage::{
    Arrange, ArrangeMove, ArrangeProgress, ArrangeTarget, Arrangement, PluginState, PolicyState, RuleState,
};
pub use offset_map::{Entries, OffsetMap};
pub use packed::{Codec, Packed};
pub use profile::{Learner, Profile, ProfilePoint, Seen, Speed};
pub use records::Records;
pub use request::{
    ContainerContent, Explanation, ExtentWhy, Finding, FlushTarget, IndexContent, KeyCode, Lease, Lookup, NextFrom,
    ObjectStat, Request, Response, Run, StoreStats, Touch, VerifyReport,
};
pub use telemetry::{
    ClientTelemetry, ContainerTelemetry, Counts, Flow, FlowEnd, FlowWhy, HEAT_AGES, HEAT_AGES_S, HOT_MAX, HeatRow,
    HotObject, Latency, Telemetry, Timed, UserTelemetry,
};
pub use tier::{DeviceInfo, DeviceKind, DeviceSpec, DeviceState, StoreConfig, node_of_place};
pub use tier_options::TierOptions;
pub use tier_text::{TierText, WATERMARK_HIGH_DEFAULT_PERMILLE, WATERMARK_LOW_DEFAULT_PERMILLE, parse_permille};
pub use transaction::{Decision, TransactionId};
pub use units::UnitBytes;
pub use update::Update;
pub use weights::{USER_WEIGHT_MAX, USERS_WEIGHED_MAX, UserWeight, UserWeights, WeightsAsk};
