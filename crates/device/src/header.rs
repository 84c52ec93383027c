//! The first bytes of every segment file: its format and its owner. `docs/format.md` has the table.

use cenote_codec::{u16_at, u32_at, u64_at, u128_at};
use cenote_model::{DeviceId, DeviceKind, Error, ErrorKind, Result, StoreId};

use crate::sums::sum_of;

/// Bytes of a header on media; zeros follow up to the data.
pub const HEADER_BYTES: usize = 128;
/// Version of the segment format.
pub const SEGMENT_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"CENOTSEG";
const SUM_AT: usize = HEADER_BYTES - 4;

/// A segment's header, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// Store of the segment.
    pub store: StoreId,
    /// Device of the segment.
    pub device: DeviceId,
    /// Kind of the device.
    pub kind: DeviceKind,
    /// Allocation unit of the device.
    pub unit_bytes: u32,
    /// Number of the segment, from 0.
    pub number: u64,
    /// Data bytes in each segment of the device but the last, which may have fewer.
    pub segment_bytes: u64,
    /// Offset of the data in the file.
    pub data_offset: u64,
    /// Data bytes in this segment.
    pub len: u64,
    /// Data bytes in the whole device.
    pub capacity_bytes: u64,
    /// Boot in which a volatile device was created; else zero.
    pub boot_id: [u8; 16],
}

impl SegmentHeader {
    /// Header of a persistent device with a single segment.
    pub(crate) fn sole(
        store: StoreId,
        device: DeviceId,
        kind: DeviceKind,
        unit_bytes: u32,
        data_offset: u64,
        capacity_bytes: u64,
    ) -> Self {
        Self {
            store,
            device,
            kind,
            unit_bytes,
            number: 0,
            segment_bytes: capacity_bytes,
            data_offset,
            len: capacity_bytes,
            capacity_bytes,
            boot_id: [0; 16],
        }
    }
    /// The bytes on media.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
        out[16..32].copy_from_slice(&self.store.0.to_le_bytes());
        out[32..34].copy_from_slice(&self.device.0.to_le_bytes());
        out[34] = self.kind as u8;
        out[36..40].copy_from_slice(&self.unit_bytes.to_le_bytes());
        out[40..48].copy_from_slice(&self.number.to_le_bytes());
        out[48..56].copy_from_slice(&self.segment_bytes.to_le_bytes());
        out[56..64].copy_from_slice(&self.data_offset.to_le_bytes());
        out[64..72].copy_from_slice(&self.len.to_le_bytes());
        out[72..80].copy_from_slice(&self.capacity_bytes.to_le_bytes());
        out[80..96].copy_from_slice(&self.boot_id);
        let sum = sum_of(&out[..SUM_AT]);
        out[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        out
    }
    /// Decodes a header; `subject` names the segment in errors. Does not check the owner: see
    /// [`SegmentHeader::check`].
    pub fn decode(bytes: &[u8; HEADER_BYTES], subject: &str) -> Result<Self> {
        let (u32_at, u64_at) = (|at| u32_at(bytes, at), |at| u64_at(bytes, at));
        let corrupt = |cause: &str| {
            Error::new(ErrorKind::Corrupt, subject)
                .because(cause)
                .try_next("restore this file from a copy, or drain and replace the device")
        };
        if bytes[0..8] != MAGIC {
            return Err(corrupt("it does not begin as a Cenote segment does"));
        }
        let version = u32_at(8);
        if sum_of(&bytes[..SUM_AT]) != u32_at(SUM_AT) {
            return Err(corrupt("the checksum of its header does not match"));
        }
        if version != SEGMENT_VERSION || u32_at(12) as usize != HEADER_BYTES {
            return Err(Error::new(ErrorKind::VersionMismatch, subject)
                .because(format!("segment format {version}, this program knows {SEGMENT_VERSION}"))
                .try_next("use the version of Cenote that wrote it"));
        }
        let kind = DeviceKind::from_code(bytes[34]).ok_or_else(|| corrupt("an unknown kind of device"))?;
        let header = Self {
            store: StoreId(u128_at(bytes, 16)),
            device: DeviceId(u16_at(bytes, 32)),
            kind,
            unit_bytes: u32_at(36),
            number: u64_at(40),
            segment_bytes: u64_at(48),
            data_offset: u64_at(56),
            len: u64_at(64),
            capacity_bytes: u64_at(72),
            boot_id: std::array::from_fn(|i| bytes[80 + i]),
        };
        let sane = matches!(header.unit_bytes, 512 | 4096)
            && header.segment_bytes.is_multiple_of(u64::from(header.unit_bytes))
            && (1..=header.segment_bytes).contains(&header.len)
            && header.data_offset >= HEADER_BYTES as u64
            && header.data_offset.is_multiple_of(4096)
            && header.data_offset.checked_add(header.len).is_some_and(|end| end < i64::MAX as u64)
            && header.number.checked_mul(header.segment_bytes).is_some_and(|at| at < header.capacity_bytes);
        if sane { Ok(header) } else { Err(corrupt("its header contradicts itself")) }
    }
    /// Fails unless it is segment `number` of this device of this store.
    pub fn check(&self, subject: &str, store: StoreId, device: DeviceId, kind: DeviceKind, number: u64) -> Result<()> {
        let cause = if self.store != store {
            format!("it belongs to store {}, not to {store}", self.store)
        } else if self.device != device {
            format!("it belongs to device {}, not to {device}", self.device)
        } else if self.kind != kind {
            format!("it is of a {} device, not of a {} device", self.kind.word(), kind.word())
        } else if self.number != number {
            format!("it is segment {}, not {number}", self.number)
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Corrupt, subject)
            .because(cause)
            .try_next("check the path of the device: another store's files are there"))
    }
}

/// Id of this boot; zero if the kernel does not report one.
pub fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            store: StoreId(0x1234_5678_9abc_def0_1122_3344_5566_7788),
            device: DeviceId(3),
            kind: DeviceKind::Directory,
            unit_bytes: 4096,
            number: 7,
            segment_bytes: 1 << 20,
            data_offset: 4096,
            len: 1 << 19,
            capacity_bytes: (7 << 20) + (1 << 19),
            boot_id: [9; 16],
        }
    }

    #[test]
    fn comes_back_as_written() {
        let header = header();
        assert_eq!(SegmentHeader::decode(&header.encode(), "it").unwrap(), header);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let good = header().encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = SegmentHeader::decode(&bad, "file x").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "bit {bit}");
            assert!(error.to_string().contains("file x"), "{error}");
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = header().encode();
        bytes[8] = 2;
        let sum = sum_of(&bytes[..SUM_AT]);
        bytes[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes, "it").unwrap_err().kind(), ErrorKind::VersionMismatch);
    }

    #[test]
    fn foreign_segments_are_refused() {
        let header = header();
        let check = |store, device, number| header.check("it", StoreId(store), DeviceId(device), header.kind, number);
        check(header.store.0, 3, 7).unwrap();
        for (store, device, number) in [(1, 3, 7), (header.store.0, 4, 7), (header.store.0, 3, 8)] {
            assert_eq!(check(store, device, number).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }
}
