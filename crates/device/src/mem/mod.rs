//! The world in memory, for tests and simulation: what was not synced can be lost on command.
//!
//! Nothing here outlives the value that made it, and nothing here is used by a store that holds a user's data.
//! Handles (devices, logs) opened before a [`MemDevices::power_loss`] or [`MemDevices::kill`] fail with `Io` after it,
//! so that a test notices an engine that lives on past its death.

mod clock;
mod control;
mod devices;
mod medium;
mod meta_dir;

pub use clock::MemClock;
pub use control::MemControl;
pub use devices::MemDevices;
pub use medium::{Keep, SplitMix};
pub use meta_dir::MemMetaDir;
