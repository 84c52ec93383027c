//! The world in memory, for tests and simulation: a test can lose what was not synced.
//!
//! Nothing here outlives the value that created it, and no store that holds a user's data uses it. Handles (devices,
//! logs) opened before a [`MemDevices::power_loss`] or [`MemDevices::kill`] fail with `Io` after it, so that a test
//! notices an engine that continues after its death.

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
