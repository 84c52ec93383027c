//! Compressed runs: the codec, and where each checksum unit lies.

use crate::{Extent, SUM_UNIT_SHIFT};

/// The codec of a run. The numbers are those on media and on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Codec {
    /// LZ4 blocks: fast, modest ratio.
    Lz4 = 1,
    /// Zstandard frames: better ratio, slower.
    Zstd = 2,
}

impl Codec {
    /// All codecs.
    pub const ALL: [Self; 2] = [Self::Lz4, Self::Zstd];
    /// The codec with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| *codec as u8 == code)
    }
    /// Its name in configuration and on screen.
    pub fn word(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// The layout of a run's compressed units. Each checksum unit of 64 KiB is compressed separately and begins at a
/// multiple of the *grain*, the allocation unit of the device: so a unit is read, checked and freed without its
/// neighbours. A unit that compression does not shrink is stored plain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packed {
    codec: Codec,
    stride_shift: u8,
    grain_shift: u8,
    run_len: u32,
    /// Bytes of each unit, minus one.
    lens: Box<[u16]>,
    /// Start of each unit, and the end of the last one with its padding.
    starts: Box<[u32]>,
}

/// Bytes of a checksum unit.
const UNIT: u32 = 1 << SUM_UNIT_SHIFT;
/// Largest stride, as a power of two: the shuffle groups bytes by their position in an element of this size.
const STRIDE_SHIFT_MAX: u8 = 3;
/// Permitted grains: 512 bytes to a whole unit.
const GRAIN_SHIFTS: std::ops::RangeInclusive<u8> = 9..=SUM_UNIT_SHIFT;

impl Packed {
    /// A run of `run_len` plain bytes whose units take `lens` bytes each, in order. `stride_shift` is the base-two
    /// logarithm of the element size of the byte shuffle (0: none), `grain_shift` that of the grain. `None` if the
    /// values are inconsistent.
    pub fn new(codec: Codec, stride_shift: u8, grain_shift: u8, run_len: u32, lens: &[u32]) -> Option<Self> {
        let fits = stride_shift <= STRIDE_SHIFT_MAX && GRAIN_SHIFTS.contains(&grain_shift) && run_len > 0;
        if !fits || lens.len() != Extent::units(run_len) {
            return None;
        }
        let mut starts = Vec::with_capacity(lens.len() + 1);
        let mut at = 0u32;
        for (unit, len) in lens.iter().enumerate() {
            if *len == 0 || *len > plain_len(run_len, unit) {
                return None;
            }
            starts.push(at);
            at = at.checked_add(len.next_multiple_of(1 << grain_shift))?;
        }
        starts.push(at);
        let lens = lens.iter().map(|len| (len - 1) as u16).collect();
        Some(Self { codec, stride_shift, grain_shift, run_len, lens, starts: starts.into() })
    }
    /// Its codec.
    pub fn codec(&self) -> Codec {
        self.codec
    }
    /// Base-two logarithm of the element size of the byte shuffle; 0 if there was none.
    pub fn stride_shift(&self) -> u8 {
        self.stride_shift
    }
    /// Base-two logarithm of the grain.
    pub fn grain_shift(&self) -> u8 {
        self.grain_shift
    }
    /// Plain bytes of the run.
    pub fn run_len(&self) -> u32 {
        self.run_len
    }
    /// Number of units.
    pub fn units(&self) -> usize {
        self.lens.len()
    }
    /// Start of a unit, in bytes from the begin of the run on its device; for the number of units, the end of the last
    /// one with its padding.
    ///
    /// # Panics
    /// If there is no such unit.
    pub fn start(&self, unit: usize) -> u32 {
        self.starts[unit]
    }
    /// Bytes of a unit, without its padding.
    ///
    /// # Panics
    /// If there is no such unit.
    pub fn len_of(&self, unit: usize) -> u32 {
        u32::from(self.lens[unit]) + 1
    }
    /// Plain bytes of a unit.
    pub fn plain_len_of(&self, unit: usize) -> u32 {
        plain_len(self.run_len, unit)
    }
    /// Bytes of the run on its device.
    pub fn stored_bytes(&self) -> u32 {
        self.starts[self.lens.len()]
    }
    /// The layout of the units from `first` up to `end`, as a run of their own.
    ///
    /// # Panics
    /// If there are no such units.
    #[must_use]
    pub fn part(&self, first: usize, end: usize) -> Self {
        let base = self.starts[first];
        let last = plain_len(self.run_len, end - 1);
        Self {
            run_len: ((end - 1 - first) as u32) * UNIT + last,
            lens: self.lens[first..end].into(),
            starts: self.starts[first..=end].iter().map(|start| start - base).collect(),
            ..*self
        }
    }
    /// In words: `lz4`, `zstd after shuffling bytes of 4`.
    pub fn describe(&self) -> String {
        match self.stride_shift {
            0 => self.codec.word().to_owned(),
            shift => format!("{} after shuffling the bytes of each {}", self.codec.word(), 1 << shift),
        }
    }
}

fn plain_len(run_len: u32, unit: usize) -> u32 {
    run_len.saturating_sub((unit as u32).saturating_mul(UNIT)).min(UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_begin_at_grains_and_parts_are_runs_of_their_own() {
        let packed = Packed::new(Codec::Lz4, 2, 12, 150_000, &[5000, 1, 18_928]).unwrap();
        assert_eq!((packed.start(1), packed.start(2), packed.stored_bytes()), (8192, 12_288, 12_288 + 20_480));
        assert_eq!((packed.plain_len_of(0), packed.plain_len_of(2), packed.len_of(2)), (65_536, 18_928, 18_928));
        let part = packed.part(1, 3);
        assert_eq!((part.run_len(), part.start(1), part.stored_bytes()), (65_536 + 18_928, 4096, 4096 + 20_480));
        assert_eq!(part, Packed::new(Codec::Lz4, 2, 12, 65_536 + 18_928, &[1, 18_928]).unwrap());
        assert_eq!(packed.part(0, 3), packed);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let new = |stride, grain, run_len, lens: &[u32]| Packed::new(Codec::Zstd, stride, grain, run_len, lens);
        assert!(new(3, 9, 65_536, &[65_536]).is_some());
        assert!(new(4, 9, 65_536, &[65_536]).is_none(), "a stride of 16");
        assert!(new(0, 8, 65_536, &[1]).is_none() && new(0, 17, 65_536, &[1]).is_none(), "grains");
        assert!(new(0, 12, 65_536, &[0]).is_none() && new(0, 12, 65_536, &[65_537]).is_none(), "lengths");
        assert!(new(0, 12, 65_537, &[1, 2]).is_none(), "longer than it was");
        assert!(new(0, 12, 65_537, &[1]).is_none() && new(0, 12, 0, &[]).is_none(), "numbers of units");
    }
}
