//! Compression: the encoding of compressed extents on media, and the choice of a method by trials of samples, which
//! `cenote_policy` makes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_device::Clock;
use cenote_device::packing::{Method, Packer};
use cenote_model::{Codec, Packed, RUN_BYTES_MAX, Speed};
use cenote_policy::{Compress, Trial, choose_packing};

use crate::codec::{Decoded, Decoder, Encode, Malformed};
use crate::sums::UNIT;

/// Bytes of each sample that is tried.
const SAMPLE_BYTES: usize = 16 << 10;
/// Most samples, spread over the beginning of the bytes.
const SAMPLES_MAX: usize = 3;

/// Appends how a run is compressed.
pub(crate) fn encode_packed(bytes: &mut Vec<u8>, packed: &Packed) {
    bytes.put_u8(packed.codec() as u8);
    bytes.put_u8(packed.stride_shift());
    bytes.put_u8(packed.grain_shift());
    bytes.put_u32(packed.run_len());
    bytes.put_u32(packed.units() as u32);
    for unit in 0..packed.units() {
        bytes.put_u16((packed.len_of(unit) - 1) as u16);
    }
}

/// Reads what [`encode_packed`] wrote.
pub(crate) fn decode_packed(from: &mut Decoder<'_>) -> Decoded<Arc<Packed>> {
    let codec = Codec::from_code(from.u8()?).ok_or(Malformed("an unknown codec"))?;
    let (stride_shift, grain_shift, run_len) = (from.u8()?, from.u8()?, from.u32()?);
    let count = from.count(2)?;
    let lens = (0..count).map(|_| Ok(u32::from(from.u16()?) + 1)).collect::<Decoded<Vec<u32>>>()?;
    let packed = Packed::new(codec, stride_shift, grain_shift, run_len, &lens).filter(|_| run_len <= RUN_BYTES_MAX);
    packed.map(Arc::new).ok_or(Malformed("a compressed run that contradicts itself"))
}

/// Measured speed of the codecs. Shared by all jobs.
#[derive(Debug)]
pub(crate) struct Rates([[AtomicU64; 2]; Codec::ALL.len()]);

impl Default for Rates {
    /// As measured on one core of a virtual machine: picoseconds for each byte, to compress and to decompress.
    fn default() -> Self {
        Self([[1000, 500], [2500, 1000]].map(|codec| codec.map(AtomicU64::new)))
    }
}

/// Compression or decompression.
#[derive(Clone, Copy)]
enum Direction {
    Pack = 0,
    Unpack = 1,
}

impl Rates {
    fn cell(&self, codec: Codec, way: Direction) -> &AtomicU64 {
        &self.0[usize::from(codec == Codec::Zstd)][way as usize]
    }
    /// Nanoseconds for a byte.
    fn ns(&self, codec: Codec, way: Direction) -> f64 {
        self.cell(codec, way).load(Ordering::Relaxed) as f64 / 1000.0
    }
    /// Learns from one measurement. A clock that stands still teaches nothing, and one interruption not much.
    fn learn(&self, codec: Codec, way: Direction, bytes: usize, ns: u64) {
        let cell = self.cell(codec, way);
        let known = cell.load(Ordering::Relaxed);
        let seen = (ns * 1000 / bytes.max(1) as u64).min(known * 4);
        if seen > 0 {
            cell.store((known * 7 + seen) / 8, Ordering::Relaxed);
        }
    }
}

/// What a copy to a device needs to know to compress.
#[derive(Clone)]
pub(crate) struct Packing {
    pub wanted: Compress,
    /// Of the device.
    pub speed: Speed,
    pub grain_bytes: u32,
    pub segment_bytes: u64,
    /// Bytes that do not become smaller are not written at all.
    pub only_smaller: bool,
    pub rates: Arc<Rates>,
}

impl Packing {
    /// Chooses how to compress bytes that begin like this; `None`: not at all.
    pub fn choose(&self, begin: &[u8], packer: &mut Packer, clock: &dyn Clock) -> Option<Method> {
        if begin.len() <= self.grain_bytes as usize {
            return None; // they take a whole allocation unit in any case
        }
        let samples = samples_of(begin);
        let bytes: usize = samples.iter().map(|sample| sample.len()).sum();
        let mut trials: Vec<Trial> = Vec::new();
        for codec in Codec::ALL.into_iter().filter(|codec| self.wanted.tries(*codec)) {
            // The best stride for one codec is mostly the best for the other: only the quicker codec tries all.
            let strides = match trials.iter().min_by(|one, other| one.ratio.total_cmp(&other.ratio)) {
                Some(best) if best.stride_shift == 0 => 0..=0,
                Some(best) => best.stride_shift..=best.stride_shift,
                None => 0..=3,
            };
            for stride_shift in strides {
                let stored = self.stored(Method { codec, stride_shift }, &samples, packer, clock);
                let (pack_ns, unpack_ns) =
                    (self.rates.ns(codec, Direction::Pack), self.rates.ns(codec, Direction::Unpack));
                let ratio = self.ratio(begin.len(), stored as f64 / bytes as f64);
                trials.push(Trial { codec, stride_shift, ratio, pack_ns, unpack_ns });
            }
        }
        let chosen = trials[choose_packing(self.wanted, &self.speed, &trials)?];
        Some(Method { codec: chosen.codec, stride_shift: chosen.stride_shift })
    }

    /// Bytes of the compressed samples.
    fn stored(&self, method: Method, samples: &[&[u8]], packer: &mut Packer, clock: &dyn Clock) -> usize {
        let mut out = [0; SAMPLE_BYTES];
        let mut stored = 0;
        for sample in samples {
            let begun = clock.now_ns();
            let packed = packer.pack(method, sample, &mut out);
            self.rates.learn(method.codec, Direction::Pack, sample.len(), clock.now_ns().saturating_sub(begun));
            stored += packed.unwrap_or(sample.len());
            if let Some(len) = packed {
                let begun = clock.now_ns();
                let mut back = [0; SAMPLE_BYTES];
                if packer.unpack(method, &out[..len], &mut back[..sample.len()]).is_err() {
                    return usize::MAX / 2; // should never happen; the method is not used then
                }
                self.rates.learn(method.codec, Direction::Unpack, sample.len(), clock.now_ns().saturating_sub(begun));
            }
        }
        stored
    }

    /// Converts a ratio to whole allocation units, for units of `len` bytes at most.
    fn ratio(&self, len: usize, ratio: f64) -> f64 {
        let (unit, grain) = (len.min(UNIT as usize) as f64, f64::from(self.grain_bytes));
        let padded = |bytes: f64| (bytes / grain).ceil() * grain;
        padded(unit * ratio) / padded(unit)
    }

    /// Compresses a unit into `out`; returns its length there, which may be that of the plain bytes.
    pub fn pack(&self, method: Method, unit: &[u8], packer: &mut Packer, out: &mut [u8]) -> usize {
        let grain = self.grain_bytes as usize;
        match packer.pack(method, unit, out) {
            Some(len) if len.next_multiple_of(grain) < unit.len().next_multiple_of(grain) => len,
            _ => {
                out[..unit.len()].copy_from_slice(unit);
                unit.len()
            }
        }
    }
}

fn samples_of(begin: &[u8]) -> Vec<&[u8]> {
    let count = (begin.len() / (4 * SAMPLE_BYTES)).clamp(1, SAMPLES_MAX);
    let apart = begin.len() / count;
    (0..count).map(|n| &begin[n * apart..(n * apart + SAMPLE_BYTES).min((n + 1) * apart)]).collect()
}

#[cfg(test)]
mod tests {
    use cenote_device::mem::MemClock;
    use cenote_model::DeviceKind;

    use super::*;

    fn packing(wanted: Compress, bandwidth: f64) -> Packing {
        let speed =
            Speed { read_bandwidth: bandwidth, write_bandwidth: bandwidth, ..Speed::usual(DeviceKind::Directory) };
        Packing { wanted, speed, grain_bytes: 4096, segment_bytes: 1 << 30, only_smaller: false, rates: Arc::default() }
    }
    fn floats() -> Vec<u8> {
        (0..32_768u32).flat_map(|i| (300.0 + (f64::from(i) * 0.01).sin()).to_le_bytes()).collect()
    }
    fn noise() -> Vec<u8> {
        let mut x = 1u64;
        let mut next = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x ^ x >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
        };
        (0..32_768).flat_map(|_| next().to_le_bytes()).collect()
    }

    #[test]
    fn floats_are_shuffled_by_their_size_and_noise_stays_as_it_is() {
        let (mut packer, clock) = (Packer::default(), MemClock::default());
        let floats = floats();
        let slow = packing(Compress::Auto, 1e8).choose(&floats, &mut packer, &clock).unwrap();
        assert_eq!(slow.stride_shift, 3);
        let lz4 = packing(Compress::Only(Codec::Lz4), 1e8).choose(&floats, &mut packer, &clock).unwrap();
        assert_eq!((lz4.stride_shift, lz4.codec), (3, Codec::Lz4));
        assert_eq!(packing(Compress::Auto, 1e11).choose(&floats, &mut packer, &clock), None, "a device that quick");
        for wanted in [Compress::Auto, Compress::Only(Codec::Zstd)] {
            assert_eq!(packing(wanted, 1e6).choose(&noise(), &mut packer, &clock), None);
        }
        assert_eq!(packing(Compress::Auto, 1e6).choose(&[0; 4096], &mut packer, &clock), None, "one unit anyway");
        let zeros = packing(Compress::Auto, 1e8).choose(&[0; 8192], &mut packer, &clock).unwrap();
        assert_eq!(zeros.stride_shift, 0);
    }

    #[test]
    fn what_is_written_down_is_read_again_and_nothing_else() {
        let packed = Packed::new(Codec::Zstd, 2, 12, 150_000, &[5000, 65_536, 1]).unwrap();
        let mut bytes = Vec::new();
        encode_packed(&mut bytes, &packed);
        assert_eq!(*decode_packed(&mut Decoder::new(&bytes)).unwrap(), packed);
        for at in 0..bytes.len() {
            assert!(decode_packed(&mut Decoder::new(&bytes[..at])).is_err());
            for bit in 0..8 {
                let mut bent = bytes.clone();
                bent[at] ^= 1 << bit;
                if let Ok(found) = decode_packed(&mut Decoder::new(&bent)) {
                    assert!(found.units() == 3 && found.stored_bytes() <= 3 * 65_536);
                }
            }
        }
    }
}
