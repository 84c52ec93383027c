//! Space on devices: what is free, what is in use, and what waits for readers to leave.

mod bitmap;
mod device;
mod retired;
mod shared;

pub(crate) use bitmap::Bitmap;
pub(crate) use device::{DEVICES_MAX, DeviceSlot, Pace, STAMP_BYTES, SlotSpace, Space, Trust};
pub(crate) use retired::{RetiredQueue, Tag};
pub(crate) use shared::{Shared, for_places, for_units};
