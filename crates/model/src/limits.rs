//! Limits of every store; changing one changes the format.

/// Smallest block: 2^6 = 64 bytes.
pub const BLOCK_SHIFT_MIN: u8 = 6;
/// Largest block: 2^24 = 16 MiB.
pub const BLOCK_SHIFT_MAX: u8 = 24;
/// Default block size of a container: 4 KiB.
pub const BLOCK_SHIFT_DEFAULT: u8 = 12;
/// Upper bound of an object's size, in bytes.
pub const OBJECT_BYTES_MAX: u64 = 1 << 63;
/// Longest index key, in bytes: fits names of 64 KiB and more with a view's prefix.
pub const KEY_BYTES_MAX: usize = 128 << 10;
/// Longest index value, in bytes.
pub const VALUE_BYTES_MAX: usize = 16 << 20;
/// Longest container label, in bytes (UTF-8).
pub const LABEL_BYTES_MAX: usize = 4096;
/// Longest name of a snapshot, in bytes (UTF-8).
pub const SNAPSHOT_NAME_BYTES_MAX: usize = 255;
/// Longest run of one extent on a device, in bytes.
pub const RUN_BYTES_MAX: u32 = 64 << 20;
/// Base-two logarithm of the bytes under one checksum, counted from the run's start: 64 KiB.
pub const SUM_UNIT_SHIFT: u8 = 16;
/// Upper bound of the updates in one transaction.
pub const TRANSACTION_UPDATES_MAX: usize = 1 << 20;
/// Upper bound of the bytes that the daemon carries (proxies) in one message for a client that may not
/// map the devices.
pub const CARRIED_BYTES_MAX: u32 = 16 << 20;
