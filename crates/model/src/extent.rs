//! Extents, and the runs on devices that they are views of.

use std::sync::Arc;

use crate::{DeviceId, NodeId, Packed, SUM_UNIT_SHIFT};

/// How a run's bytes are encoded on the device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Encoding {
    /// Plain bytes.
    #[default]
    Plain,
    /// Compressed, unit by unit. Only the engine creates such runs, when it copies to a tier that asks for compression.
    Packed(Arc<Packed>),
}

/// The CRC-32C (Castagnoli, iSCSI) of each checksum unit of a run, in order; the last unit may be short.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sums {
    /// A run no longer than one unit.
    One(u32),
    /// A longer run. Shared, because splitting an extent keeps its run.
    Many(Arc<[u32]>),
}

impl Sums {
    /// Wraps the checksums of consecutive units.
    pub fn from_slice(sums: &[u32]) -> Self {
        if let [one] = sums { Self::One(*one) } else { Self::Many(sums.into()) }
    }
    /// The checksums in order.
    pub fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// The number of a run at one of its places. Two runs that were written to the same place have different births. Zero:
/// written before runs had numbers, or not known to the engine yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Birth(pub u64);

/// A view into a *run* of bytes on a device: a run is written, allocated and checksummed at once; the extent is the
/// part of it that is still current. Overwriting the middle of an extent leaves two extents on one run.
///
/// An object's map holds it under the offset of its first byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The node that holds the run.
    pub node: NodeId,
    /// The device that holds the run.
    pub device: DeviceId,
    /// The number that the run was born with at that place. Whoever asks a node for a run and its birth gets these bytes
    /// or a refusal, so they can be cached without being invalidated.
    pub birth: Birth,
    /// Encoding of the whole run.
    pub encoding: Encoding,
    /// Byte offset of the run on its device.
    pub run_offset: u64,
    /// Bytes in the run (before padding to the device's allocation unit).
    pub run_len: u32,
    /// Offset of this extent's first byte within the decoded run.
    pub skip: u32,
    /// Bytes in this extent.
    pub len: u32,
    /// Checksums of the run's units of 2^[`SUM_UNIT_SHIFT`] plain bytes.
    pub sums: Sums,
}

impl Extent {
    /// An extent that covers a whole plain run on this node.
    pub fn whole(device: DeviceId, run_offset: u64, run_len: u32, sums: Sums) -> Self {
        Self {
            node: NodeId(0),
            device,
            birth: Birth::default(),
            encoding: Encoding::Plain,
            run_offset,
            run_len,
            skip: 0,
            len: run_len,
            sums,
        }
    }
    /// Offset of this extent's first byte on the device. Meaningful for plain runs.
    pub fn device_offset(&self) -> u64 {
        self.run_offset + u64::from(self.skip)
    }
    /// The part that begins at byte `from` of the extent and is `len` bytes long.
    ///
    /// # Panics
    /// If the part reaches past the extent.
    #[must_use]
    pub fn part(&self, from: u32, len: u32) -> Self {
        assert!(u64::from(from) + u64::from(len) <= u64::from(self.len), "part {from}+{len} of {}", self.len);
        Self { skip: self.skip + from, len, ..self.clone() }
    }
    /// Returns true if both are views into the same run.
    pub fn same_run(&self, other: &Self) -> bool {
        self.node == other.node && self.device == other.device && self.run_offset == other.run_offset
    }
    /// Number of checksum units in a run of `run_len` bytes.
    pub fn units(run_len: u32) -> usize {
        (run_len as usize).div_ceil(1 << SUM_UNIT_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_part_lies_where_it_did() {
        let whole = Extent::whole(DeviceId(1), 4096, 1000, Sums::One(0));
        let part = whole.part(100, 900).part(50, 60);
        assert_eq!((part.skip, part.len, part.run_len, part.device_offset()), (150, 60, 1000, 4096 + 150));
        assert!(part.same_run(&whole));
        assert!(std::panic::catch_unwind(|| whole.part(1, 1000)).is_err());
    }

    #[test]
    fn runs_are_the_same_at_one_place_alone() {
        let run = Extent::whole(DeviceId(1), 4096, 10, Sums::One(0));
        assert!(run.same_run(&Extent { sums: Sums::One(7), ..run.clone() }));
        assert!(!run.same_run(&Extent { node: NodeId(1), ..run.clone() }));
        assert!(!run.same_run(&Extent { device: DeviceId(2), ..run.clone() }));
        assert!(!run.same_run(&Extent { run_offset: 0, ..run.clone() }));
    }
}
