//! Free space and durability.

use cenote::model::DeviceState;
use cenote::{ContainerInfo, DeviceInfo, ErrorKind, Store};

use crate::records::INO_BITS;
use crate::{FsResult, Space};

/// Returns the space of the whole store, or of a container with a quota. Homes of a cluster that do not answer count for nothing:
/// nobody can write there now.
pub fn space(store: &Store, container: Option<&ContainerInfo>) -> FsResult<Space> {
    let devices = store.devices_answered()?.of_any()?;
    let persistent: Vec<&DeviceInfo> = devices.iter().filter(|device| device.spec.kind.is_persistent()).collect();
    let counted = if persistent.is_empty() { devices.iter().collect() } else { persistent };
    let total: u64 = counted.iter().map(|device| device.spec.capacity_bytes).sum();
    // Leased space and reservations of `fallocate` count as used, since nobody else can write there; a tier being drained for removal
    // takes no new data.
    let free: u64 =
        counted.iter().filter(|device| device.state == DeviceState::Online).map(|device| device.free_bytes()).sum();
    let mut space = Space { total_bytes: total, free_bytes: free, files: 0, files_free: 0 };
    if let Some(info) = container {
        if info.spec.quota_bytes != 0 {
            let left = info.spec.quota_bytes.saturating_sub(info.stored_bytes);
            space.free_bytes = space.free_bytes.min(left);
            space.total_bytes = info.spec.quota_bytes;
        }
        // Each directory has an index, each file with bytes an object; a file without bytes barely uses this count.
        space.files = info.objects + info.indices;
    } else {
        let stats = store.stats_answered()?.of_any()?;
        space.files = stats.iter().map(|stats| stats.objects + stats.indices).sum();
    }
    space.files_free = (1u64 << INO_BITS).saturating_sub(space.files);
    Ok(space)
}

/// Translates the result of flushing the store into that of `fsync`. Where every tier is memory, nothing outlives it, as on tmpfs: the
/// flush finds no persistent tier, and `fsync` still reports success, because programs that write there know this and go on.
pub fn synced(store: &Store, flushed: cenote::Result<()>) -> FsResult<()> {
    match flushed {
        Err(error) if error.kind() == ErrorKind::Full && !has_persistent_tier(store)? => Ok(()),
        flushed => Ok(flushed?),
    }
}

fn has_persistent_tier(store: &Store) -> FsResult<bool> {
    Ok(store.devices()?.iter().any(|device| device.spec.kind.is_persistent()))
}
