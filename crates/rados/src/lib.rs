//! Objects in a pool of Ceph RADOS, each changed by one atomic, guarded operation at a time.
//!
//! This room must not know stores, tiers, journals nor packs: it is told names, bytes and conditions. A machine without
//! Ceph builds and runs it: librados is loaded when a pool of a cluster is connected to.

mod ceph;
#[doc(hidden)]
pub mod cluster;
#[doc(hidden)]
pub mod conformance;
mod librados;
mod memory;
mod pool;

pub use ceph::{CONNECT_S, CephPool, Connect, MONITOR_S, OPERATION_S};
pub use memory::MemoryPool;
pub use pool::{Answer, Change, Check, Pool, Refusal, RefusalKind};
