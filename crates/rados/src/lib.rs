//! Objects in a pool of Ceph RADOS, each changed by one atomic, guarded operation at a time.
//!
//! This room must not know stores, tiers, journals nor packs: it is told names, bytes and conditions.

mod memory;
mod pool;

pub use memory::MemoryPool;
pub use pool::{Answer, Change, Check, Pool, Refusal, RefusalKind};
