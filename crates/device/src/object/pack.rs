//! The format of a pack: a header, a table of its runs, and the data. `docs/format.md` has the tables.

use bytes::Bytes;
use cenote_codec::{Encode as _, u16_at, u32_at, u64_at, u128_at};
use cenote_model::{DeviceId, DeviceKind, StoreId};

use crate::sums::sum_of;

/// Bytes under one checksum; the last unit of a run may have fewer.
pub(super) const UNIT: u32 = 64 << 10;
pub(super) const HEADER_BYTES: usize = 128;
const MAGIC: [u8; 8] = *b"CENOTPAK";
const VERSION: u32 = 1;
const RUN_BYTES: usize = 24;
/// Upper bound of the data in a pack.
pub(super) const DATA_BYTES_MAX: u64 = 1 << 31;
/// Upper bound of the runs in a pack, which bounds its table.
pub(super) const RUNS_MAX: usize = 1 << 18;

/// Owner of packs, and the constant part of their headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    pub store: StoreId,
    pub device: DeviceId,
    pub kind: DeviceKind,
    /// Bytes of the device.
    pub capacity: u64,
}

/// Bytes that are contiguous on the device and in the pack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    /// Offset on the device.
    pub offset: u64,
    /// Sequence number of the pack that first held the bytes: of two versions of one range, the one born later wins.
    pub born: u64,
    /// Offset in the data of the pack.
    pub at: u32,
    pub len: u32,
    /// Index of the run's first checksum.
    pub sum: u32,
}

impl Run {
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
    fn sums(&self) -> u32 {
        self.len.div_ceil(UNIT)
    }
}

/// Table of a pack.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Table {
    /// In the order of the data.
    pub runs: Vec<Run>,
    pub sums: Vec<u32>,
    /// Offset of the data in the object.
    pub data_offset: u64,
    pub data_bytes: u64,
}

impl Table {
    /// The run that contains this byte of the data.
    pub fn run_at(&self, at: u32) -> &Run {
        &self.runs[self.runs.partition_point(|run| run.at <= at) - 1]
    }
    /// Bytes of the whole object.
    pub fn object_bytes(&self) -> u64 {
        self.data_offset + self.data_bytes
    }
    /// The whole checksum units of the run at `at` that contain `len` of its bytes: begin, end and index of the first
    /// checksum.
    pub fn units_of(&self, at: u32, len: u32) -> (u32, u32, u32) {
        let run = self.run_at(at);
        let first = (at - run.at) / UNIT;
        let end = (at - run.at + len).next_multiple_of(UNIT).min(run.len);
        (run.at + first * UNIT, run.at + end, run.sum + first)
    }
}

/// A pack that is being filled.
#[derive(Default)]
pub(super) struct Filling {
    pub sequence: u64,
    pub data: Vec<u8>,
    pub runs: Vec<Run>,
}

impl Filling {
    pub fn new(sequence: u64) -> Self {
        Self { sequence, ..Self::default() }
    }
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }
    /// Appends bytes; returns their offset in the data.
    pub fn push(&mut self, offset: u64, born: u64, bytes: &[u8]) -> u32 {
        let at = self.data.len() as u32;
        let len = bytes.len() as u32;
        self.data.extend_from_slice(bytes);
        match self.runs.last_mut().filter(|last| last.end() == offset && last.born == born) {
            Some(last) => last.len += len,
            None => self.runs.push(Run { offset, born, at, len, sum: 0 }),
        }
        at
    }
    /// Returns the table, the bytes before the data, and the data.
    pub fn seal(mut self, owner: &Owner, life: u128) -> (Table, Bytes, Bytes) {
        let mut sums = Vec::new();
        for run in &mut self.runs {
            run.sum = sums.len() as u32;
            let data = &self.data[run.at as usize..(run.at + run.len) as usize];
            sums.extend(data.chunks(UNIT as usize).map(sum_of));
        }
        let mut table = Table { runs: self.runs, sums, data_offset: 0, data_bytes: self.data.len() as u64 };
        let mut head = vec![0; HEADER_BYTES];
        encode_table(&table, &mut head);
        table.data_offset = head.len() as u64;
        let table_sum = sum_of(&head[HEADER_BYTES..]);
        head[0..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
        encode_owner(owner, life, &mut head);
        head[64..72].copy_from_slice(&self.sequence.to_le_bytes());
        head[72..80].copy_from_slice(&table.data_bytes.to_le_bytes());
        head[80..84].copy_from_slice(&(table.runs.len() as u32).to_le_bytes());
        head[84..88].copy_from_slice(&(table.sums.len() as u32).to_le_bytes());
        head[120..124].copy_from_slice(&table_sum.to_le_bytes());
        let sum = sum_of(&head[..HEADER_BYTES - 4]);
        head[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        (table, head.into(), self.data.into())
    }
}

/// Encodes store, device, kind, capacity and life into a header.
pub(super) fn encode_owner(owner: &Owner, life: u128, head: &mut [u8]) {
    head[16..32].copy_from_slice(&owner.store.0.to_le_bytes());
    head[32..34].copy_from_slice(&owner.device.0.to_le_bytes());
    head[34] = owner.kind as u8;
    head[40..48].copy_from_slice(&owner.capacity.to_le_bytes());
    head[48..64].copy_from_slice(&life.to_le_bytes());
}

pub(super) fn encode_table(table: &Table, out: &mut Vec<u8>) {
    for run in &table.runs {
        out.put_u64(run.offset);
        out.put_u64(run.born);
        out.put_u32(run.len);
        out.extend_from_slice(&[0; 4]);
    }
    table.sums.iter().for_each(|sum| out.put_u32(*sum));
}

/// A decoded header of a pack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub sequence: u64,
    runs: u32,
    sums: u32,
    data_bytes: u64,
    table_sum: u32,
}

impl Head {
    /// Bytes of header and table.
    pub fn bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.runs) * RUN_BYTES as u64 + u64::from(self.sums) * 4
    }
}

/// Checks the common part of all headers of this device: magic, checksum, version and owner.
pub(super) fn check_head(bytes: &[u8], magic: [u8; 8], version: u32, owner: &Owner) -> Result<(), String> {
    if bytes.len() < HEADER_BYTES || bytes[..8] != magic {
        return Err("it does not begin as it should".into());
    }
    if sum_of(&bytes[..HEADER_BYTES - 4]) != u32_at(bytes, HEADER_BYTES - 4) {
        return Err("the checksum of its header does not match".into());
    }
    if u32_at(bytes, 8) != version || u32_at(bytes, 12) as usize != HEADER_BYTES {
        return Err(format!("format {}, this program knows {version}", u32_at(bytes, 8)));
    }
    let (store, device) = (StoreId(u128_at(bytes, 16)), DeviceId(u16_at(bytes, 32)));
    if (store, device) != (owner.store, owner.device) {
        return Err(format!("it belongs to device {device} of store {store}"));
    }
    Ok(())
}

/// Decodes a header.
pub(super) fn decode_head(bytes: &[u8], owner: &Owner) -> Result<Head, String> {
    check_head(bytes, MAGIC, VERSION, owner)?;
    let head = Head {
        sequence: u64_at(bytes, 64),
        data_bytes: u64_at(bytes, 72),
        runs: u32_at(bytes, 80),
        sums: u32_at(bytes, 84),
        table_sum: u32_at(bytes, 120),
    };
    let sane = head.runs as usize <= RUNS_MAX
        && head.data_bytes <= DATA_BYTES_MAX
        && u64::from(head.sums) <= head.data_bytes / u64::from(UNIT) + u64::from(head.runs);
    if sane { Ok(head) } else { Err("its header contradicts itself".into()) }
}

/// Decodes the table behind a header; `bytes` holds all of both.
pub(super) fn decode_pack(head: &Head, bytes: &[u8], owner: &Owner) -> Result<Table, String> {
    let table = bytes.get(HEADER_BYTES..head.bytes() as usize).ok_or("it is cut off")?;
    if sum_of(table) != head.table_sum {
        return Err("the checksum of its table does not match".into());
    }
    decode_table(table, (head.runs, head.sums), (head.bytes(), head.data_bytes), head.sequence, owner.capacity)
}

/// Decodes a table with the given numbers of runs and checksums.
pub(super) fn decode_table(
    bytes: &[u8],
    (runs, sums): (u32, u32),
    (data_offset, data_bytes): (u64, u64),
    sequence: u64,
    capacity: u64,
) -> Result<Table, String> {
    let nonsense = || "its table contradicts itself".to_owned();
    let (run_bytes, sum_bytes) = bytes.split_at_checked(runs as usize * RUN_BYTES).ok_or_else(nonsense)?;
    let mut table = Table { runs: Vec::with_capacity(runs as usize), sums: Vec::new(), data_offset, data_bytes };
    let (mut at, mut sum) = (0_u64, 0_u32);
    for bytes in run_bytes.chunks_exact(RUN_BYTES) {
        let run = Run { offset: u64_at(bytes, 0), born: u64_at(bytes, 8), len: u32_at(bytes, 16), at: at as u32, sum };
        let inside = run.offset.checked_add(u64::from(run.len)).is_some_and(|end| end <= capacity);
        at += u64::from(run.len);
        if !inside || run.len == 0 || run.born > sequence || at > data_bytes {
            return Err(nonsense());
        }
        sum += run.sums();
        table.runs.push(run);
    }
    if sum != sums || at != data_bytes || sum_bytes.len() != sums as usize * 4 {
        return Err(nonsense());
    }
    table.sums = sum_bytes.chunks_exact(4).map(|bytes| u32_at(bytes, 0)).collect();
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner { store: StoreId(7), device: DeviceId(2), kind: DeviceKind::S3, capacity: 1 << 30 }
    }

    fn sealed() -> (Table, Vec<u8>) {
        let mut pack = Filling::new(9);
        pack.push(4096, 9, &vec![1; 100_000]);
        pack.push(104_096, 9, &[2; 4096]);
        pack.push(0, 3, &[3; 10]);
        let (table, head, data) = pack.seal(&owner(), 5);
        (table, [head, data].concat())
    }

    #[test]
    fn comes_back_as_written() {
        let (table, bytes) = sealed();
        assert_eq!((table.runs.len(), table.sums.len()), (2, 3), "neighbours are one run");
        assert_eq!(table.object_bytes(), bytes.len() as u64);
        let head = decode_head(&bytes, &owner()).unwrap();
        assert_eq!(decode_pack(&head, &bytes, &owner()).unwrap(), table);
        assert_eq!(table.units_of(70_000, 10), (65_536, 104_096, 1));
        assert_eq!(table.units_of(104_100, 1), (104_096, 104_106, 2));
    }

    #[test]
    fn every_flipped_bit_of_header_and_table_is_noticed() {
        let (table, good) = sealed();
        for bit in 0..table.data_offset as usize * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let read = decode_head(&bad, &owner()).and_then(|head| decode_pack(&head, &bad, &owner()));
            assert!(read.is_err(), "bit {bit}");
        }
        let other = Owner { store: StoreId(8), ..owner() };
        assert!(decode_head(&good, &other).unwrap_err().contains("store"));
    }

    #[test]
    fn tables_that_make_no_sense_are_refused() {
        let owner = owner();
        for (offset, born, len) in [(1 << 30, 9, 4096), (u64::MAX, 9, 4096), (0, 10, 4096)] {
            let mut pack = Filling::new(9);
            pack.push(0, 9, &vec![1; len]);
            pack.runs[0].offset = offset;
            pack.runs[0].born = born;
            let (_, head, _) = pack.seal(&owner, 5);
            let decoded = decode_head(&head, &owner).unwrap();
            assert!(decode_pack(&decoded, &head, &owner).is_err(), "{offset} {born}");
        }
    }
}
