//! References: bare memory, tmpfs files, and a map with a log.
#![allow(unsafe_code, reason = "the reference for mapped memory is mapped memory")]

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::Outcome;

/// Mapped shared memory with every page touched.
pub struct Mapped {
    at: *mut u8,
    len: usize,
}

impl Mapped {
    /// Maps a new file of that size.
    pub fn new(path: &Path, len: usize) -> Outcome<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        file.set_len(len as u64)?;
        // SAFETY: a new shared mapping of a file that nobody else changes; unmapped in `drop`.
        let at =
            unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)? };
        let mapped = Self { at: at.cast(), len };
        mapped.bytes().fill(1);
        Ok(mapped)
    }
    /// Its bytes.
    #[allow(clippy::mut_from_ref, reason = "the bench has one thread and never holds two")]
    pub fn bytes(&self) -> &mut [u8] {
        // SAFETY: the mapping is `len` bytes long and lives as long as `self`.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and no slice outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.at.cast(), self.len) };
    }
}

/// The CRC-32C that the store computes.
pub fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// A file with all its pages present.
pub fn filled_file(path: &Path, len: usize) -> Outcome<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    let chunk = vec![1u8; 1 << 20];
    for at in (0..len).step_by(chunk.len()) {
        file.write_all_at(&chunk[..chunk.len().min(len - at)], at as u64)?;
    }
    Ok(file)
}

/// The offsets of `count` blocks in a random-looking order that is the same for all sides.
pub fn shuffled(blocks: u64, count: u64, salt: u64) -> Vec<u64> {
    let mut state = 0x9E37_79B9_7F4A_7C15 ^ salt;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((u128::from(state) * u128::from(blocks)) >> 64) as u64
        })
        .collect()
}

/// An ordered map in memory with a preallocated log that a thread syncs every 10 ms.
pub struct LoggedMap {
    map: BTreeMap<u128, [u8; 48]>,
    log: Arc<File>,
    at: u64,
    dirty: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl LoggedMap {
    /// A map with a log of `len` bytes.
    pub fn new(path: &Path, len: usize) -> Outcome<Self> {
        let log = Arc::new(filled_file(path, len)?);
        log.sync_all()?;
        let (dirty, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (log, dirty, stop) = (Arc::clone(&log), Arc::clone(&dirty), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(10));
                    if dirty.swap(0, Ordering::Relaxed) > 0 {
                        let _ = log.sync_data();
                    }
                }
            })
        };
        Ok(Self { map: BTreeMap::new(), log, at: 0, dirty, stop, thread: Some(thread) })
    }
    /// Adds records, 64 to a write.
    pub fn add(&mut self, ids: &[u128]) -> Outcome {
        let mut buffer = Vec::with_capacity(64 * 80);
        for chunk in ids.chunks(64) {
            buffer.clear();
            for id in chunk {
                let begin = buffer.len();
                buffer.extend_from_slice(&[0; 8]);
                buffer.extend_from_slice(&id.to_le_bytes());
                buffer.extend_from_slice(&[7; 16]);
                let sum = crc(&buffer[begin + 8..]);
                buffer[begin..begin + 4].copy_from_slice(&sum.to_le_bytes());
                self.map.insert(*id, [7; 48]);
            }
            self.log.write_all_at(&buffer, self.at)?;
            self.at += buffer.len() as u64;
            self.dirty.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for LoggedMap {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
