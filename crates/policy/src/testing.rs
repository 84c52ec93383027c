//! Devices and ranges for the tests of this crate.

use cenote_model::{ContainerId, DeviceId, DeviceKind, Durability, ObjectId, ObjectKey};

use crate::{DeviceView, Heat, RangeView};

/// Four tiers: memory 32 MiB, file 128 MiB, directory 512 MiB, S3 16 GiB.
pub(crate) fn devices() -> Vec<DeviceView> {
    let tier = |id, name, kind, mib: u64| DeviceView::new(DeviceId(id), name, kind, mib << 20);
    vec![
        tier(1, "memory", DeviceKind::SharedMemory, 32),
        tier(2, "nvme", DeviceKind::File, 128),
        tier(3, "ssd", DeviceKind::Directory, 512),
        tier(4, "s3", DeviceKind::S3, 16 << 10),
    ]
}

/// A range of an object of its own.
pub(crate) fn range(object: u128, bytes: u64, device: DeviceId) -> RangeView<'static> {
    RangeView {
        object: ObjectKey { container: ContainerId(1), object: ObjectId(object) },
        offset: 0,
        bytes,
        device,
        copy: None,
        durability: Durability::Async,
        heat: Heat::default(),
        is_pinned: false,
        label: "data",
        name: None,
        object_bytes: bytes,
        age_ms: 0,
        unit: None,
        coming: None,
        rhythm: None,
    }
}
