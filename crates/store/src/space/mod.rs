//! Space on devices: what is free, what is in use, and what waits for readers to leave.

mod bitmap;
mod device;
mod retired;
mod shared;

pub(crate) use bitmap::Bitmap;
pub(crate) use device::{DEVICES_MAX, DeviceSlot, STAMP_BYTES, Space};
pub(crate) use retired::{RetiredQueue, Tag};
pub(crate) use shared::{Shared, for_places, for_units};
