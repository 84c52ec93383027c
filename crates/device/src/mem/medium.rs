//! Bytes that remember what was synced, so that a power loss can take the rest.

use cenote_model::{Error, ErrorKind, Result};

const PAGE_BYTES: u64 = 4096;
/// The unit that a power loss does not tear.
const SECTOR_BYTES: u64 = 512;

/// Which unsynced writes a power loss keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// None of them.
    Nothing,
    /// All of them: as after the death of a process.
    Everything,
    /// Any of them, some torn at 512-byte sectors, drawn from this seed.
    Random(u64),
}

/// A small random number generator; the same seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A number below `bound` (which must not be 0).
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }
}

#[derive(Clone, Default)]
struct Pages(Vec<Option<Box<[u8; PAGE_BYTES as usize]>>>);

impl Pages {
    /// Calls `each` with (page number, offset in page, range of the caller's bytes).
    fn parts(offset: u64, len: usize, mut each: impl FnMut(usize, usize, std::ops::Range<usize>)) {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let inside = (at % PAGE_BYTES) as usize;
            let n = (PAGE_BYTES as usize - inside).min(len - done);
            each((at / PAGE_BYTES) as usize, inside, done..done + n);
            done += n;
        }
    }
    fn read(&self, offset: u64, buf: &mut [u8]) {
        Self::parts(offset, buf.len(), |page, inside, range| {
            let part = &mut buf[range];
            match self.0.get(page) {
                Some(Some(bytes)) => part.copy_from_slice(&bytes[inside..inside + part.len()]),
                _ => part.fill(0),
            }
        });
    }
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        Self::parts(offset, bytes.len(), |page, inside, range| {
            if self.0.len() <= page {
                self.0.resize_with(page + 1, || None);
            }
            let part = &bytes[range];
            let target = self.0[page].get_or_insert_with(|| Box::new([0; PAGE_BYTES as usize]));
            target[inside..inside + part.len()].copy_from_slice(part);
        });
    }
}

/// Bytes, some durable; the others are lost with the power.
pub(super) struct Medium {
    capacity: u64,
    volatile: bool,
    current: Pages,
    durable: Pages,
    unsynced: Vec<(u64, Box<[u8]>)>,
    /// Raised by each crash: handles of an earlier generation are dead.
    pub(super) generation: u64,
}

impl Medium {
    pub(super) fn new(capacity: u64, volatile: bool, generation: u64) -> Self {
        Self {
            capacity,
            volatile,
            current: Pages::default(),
            durable: Pages::default(),
            unsynced: Vec::new(),
            generation,
        }
    }
    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }
    pub(super) fn is_volatile(&self) -> bool {
        self.volatile
    }
    pub(super) fn check(&self, subject: &str, offset: u64, len: usize) -> Result<()> {
        if offset.checked_add(len as u64).is_some_and(|end| end <= self.capacity) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidInput, subject.to_owned())
            .because(format!("{len} bytes at {offset} reach past the capacity of {}", self.capacity)))
    }
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) {
        self.current.read(offset, buf);
    }
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.current.write(offset, bytes);
        if !self.volatile {
            self.unsynced.push((offset, bytes.into()));
        }
    }
    pub(super) fn sync(&mut self) {
        for (offset, bytes) in self.unsynced.drain(..) {
            self.durable.write(offset, &bytes);
        }
    }
    /// Simulates a failed sync: the unsynced bytes stay readable until power loss, but no later sync makes them
    /// durable. Operating systems behave so that count a page as clean once they have tried to write it.
    pub(super) fn forget_unsynced(&mut self) {
        self.unsynced.clear();
    }
    /// Flips bits on the medium, as decay would: in synced and unsynced copies alike.
    pub(super) fn corrupt(&mut self, offset: u64, xor: u8) {
        for pages in [&mut self.current, &mut self.durable] {
            let mut byte = [0];
            pages.read(offset, &mut byte);
            pages.write(offset, &[byte[0] ^ xor]);
        }
        for (at, bytes) in &mut self.unsynced {
            if let Some(byte) = offset.checked_sub(*at).and_then(|i| bytes.get_mut(i as usize)) {
                *byte ^= xor;
            }
        }
    }
    pub(super) fn power_loss(&mut self, keep: Keep, rng: &mut SplitMix) {
        self.generation += 1;
        match keep {
            Keep::Nothing => self.unsynced.clear(),
            Keep::Everything => self.sync(),
            Keep::Random(_) => {
                for (offset, bytes) in std::mem::take(&mut self.unsynced) {
                    match rng.below(4) {
                        0 => {}
                        1 | 2 => self.durable.write(offset, &bytes),
                        _ => self.persist_torn(offset, &bytes, rng),
                    }
                }
            }
        }
        self.current = self.durable.clone();
    }
    fn persist_torn(&mut self, offset: u64, bytes: &[u8], rng: &mut SplitMix) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let n = ((SECTOR_BYTES - at % SECTOR_BYTES) as usize).min(bytes.len() - done);
            if rng.below(2) == 0 {
                self.durable.write(at, &bytes[done..done + n]);
            }
            done += n;
        }
    }
}

/// The error that a dead handle returns.
#[cold]
pub(super) fn dead(subject: &str) -> Error {
    Error::new(ErrorKind::Io, subject.to_owned()).because("used after the simulated death of its process")
}
