//! The limits that hold for every store; changing one changes the format.

/// Smallest block: 2^6 = 64 bytes.
pub const BLOCK_SHIFT_MIN: u8 = 6;
/// Largest block: 2^24 = 16 MiB.
pub const BLOCK_SHIFT_MAX: u8 = 24;
/// Block of a container that names none: 4 KiB.
pub const BLOCK_SHIFT_DEFAULT: u8 = 12;
/// Objects end below this offset, in bytes.
pub const OBJECT_BYTES_MAX: u64 = 1 << 63;
/// Longest index key, in bytes: names of 64 KiB and more, and what a view puts before them.
pub const KEY_BYTES_MAX: usize = 128 << 10;
/// Longest index value, in bytes.
pub const VALUE_BYTES_MAX: usize = 16 << 20;
/// Longest container label, in bytes (UTF-8).
pub const LABEL_BYTES_MAX: usize = 4096;
/// Longest name of a snapshot, in bytes (UTF-8).
pub const SNAPSHOT_NAME_BYTES_MAX: usize = 255;
/// Longest run of bytes that one extent may take on a device.
pub const RUN_BYTES_MAX: u32 = 64 << 20;
/// Bytes that one checksum covers within a run, counted from the run's start: 64 KiB.
pub const SUM_UNIT_SHIFT: u8 = 16;
/// Updates in one transaction.
pub const TRANSACTION_UPDATES_MAX: usize = 1 << 20;
/// Bytes that the daemon carries to or from a client in one message, where that may not map the devices.
pub const CARRIED_BYTES_MAX: u32 = 16 << 20;
