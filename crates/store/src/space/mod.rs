//! Space on devices: free, used, retired (limbo lists), and shared.

mod births;
mod bitmap;
mod device;
mod lent;
mod retired;
mod shared;

pub(crate) use births::Births;
pub(crate) use bitmap::Bitmap;
pub(crate) use device::{DEVICES_MAX, DeviceSlot, Pace, STAMP_BYTES, SlotSpace, Space, Trust};
pub(crate) use retired::{RetiredQueue, Tag};
pub(crate) use shared::{Shared, for_places, for_units};
