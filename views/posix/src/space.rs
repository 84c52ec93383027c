//! What there is room for, and what lasts.

use cenote::model::DeviceState;
use cenote::{ContainerInfo, DeviceInfo, ErrorKind, Store};

use crate::records::INO_BITS;
use crate::{FsResult, Space};

/// Of the whole store, or of a container with a quota.
pub fn space(store: &Store, container: Option<&ContainerInfo>) -> FsResult<Space> {
    let devices = store.devices()?;
    let persistent: Vec<&DeviceInfo> = devices.iter().filter(|device| device.spec.kind.is_persistent()).collect();
    let counted = if persistent.is_empty() { devices.iter().collect() } else { persistent };
    let total: u64 = counted.iter().map(|device| device.spec.capacity_bytes).sum();
    // What is leased or kept by `fallocate` is taken, since nobody else can write there; a tier that is being emptied takes nothing.
    let free: u64 =
        counted.iter().filter(|device| device.state == DeviceState::Online).map(|device| device.free_bytes()).sum();
    let mut space = Space { total_bytes: total, free_bytes: free, files: 0, files_free: 0 };
    if let Some(info) = container {
        if info.spec.quota_bytes != 0 {
            let left = info.spec.quota_bytes.saturating_sub(info.stored_bytes);
            space.free_bytes = space.free_bytes.min(left);
            space.total_bytes = info.spec.quota_bytes;
        }
        // Directories have an index each; a file with bytes has an object, and one without nearly no use of this number.
        space.files = info.objects + info.indices;
    } else {
        let stats = store.stats()?;
        space.files = stats.objects + stats.indices;
    }
    space.files_free = (1u64 << INO_BITS).saturating_sub(space.files);
    Ok(space)
}

/// What `fsync` says of a flush of the store. Where every tier is memory nothing lasts beyond it, as on tmpfs: the flush finds no tier
/// with room for what should
/// last, and `fsync` says that it is done, because programs that write there know and go on.
pub fn synced(store: &Store, flushed: cenote::Result<()>) -> FsResult<()> {
    match flushed {
        Err(error) if error.kind() == ErrorKind::Full && !has_persistent_tier(store)? => Ok(()),
        flushed => Ok(flushed?),
    }
}

fn has_persistent_tier(store: &Store) -> FsResult<bool> {
    Ok(store.devices()?.iter().any(|device| device.spec.kind.is_persistent()))
}
