//! What the examples that measure a store share: its tiers.

use std::path::{Path, PathBuf};

use cenote::{DeviceKind, DeviceSpec};

/// Memory over a directory, with room for this many bytes.
pub fn memory_over_disk(dir: &Path, memory_bytes: u64, disk_bytes: u64) -> Vec<DeviceSpec> {
    let tier = |name: &str, kind, path, capacity_bytes| DeviceSpec {
        name: name.into(),
        kind,
        path,
        capacity_bytes,
        watermark_high_permille: 950,
        watermark_low_permille: 900,
        options: cenote_model::TierOptions::default(),
    };
    vec![
        tier("memory", DeviceKind::SharedMemory, PathBuf::new(), memory_bytes),
        tier("disk", DeviceKind::Directory, dir.join("disk"), disk_bytes),
    ]
}
