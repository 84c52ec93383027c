//! Layout of the control table and of client files. `docs/format.md` has the tables.

use cenote_codec::{u32_at, u64_at, u128_at};
use cenote_model::{Error, ErrorKind, Result, StoreId};

use crate::sums::sum_of;

/// Version of both files. 2: clients have counters.
pub const CONTROL_VERSION: u32 = 2;
/// Number of version words; an object's word is `word_hash % WORDS`.
pub const WORDS: u64 = 1 << 17;
/// Reader slots of one client.
pub const READER_SLOTS: usize = 64;

pub(super) const INSTANCE_AT: u64 = 128;
pub(super) const EPOCH_AT: u64 = 192;
/// In tables of homes on other nodes: until when their words may be trusted.
pub(super) const TRUSTED_AT: u64 = 256;
/// In tables of homes here: until when other nodes may trust its words.
pub(super) const GRANTED_AT: u64 = 320;
pub(super) const GRANTEES_AT: u64 = 328;
/// About locks of files.
pub(super) const LOCK_INTEREST_AT: u64 = 384;
pub(super) const LOCK_TERM_AT: u64 = 392;
pub(super) const LOCK_LEASE_AT: u64 = 400;
pub(super) const LOCK_NODES_AT: u64 = 408;
pub(super) const WORDS_AT: u64 = 4096;
pub(super) const CONTROL_BYTES: u64 = WORDS_AT + WORDS * 8;

/// One slot per cache line, so that threads do not disturb each other.
pub(super) const SLOT_STRIDE: u64 = 64;
pub(super) const SLOTS_AT: u64 = 4096;

/// Behind the slots: the client's session, then a word for each row of counters that names its tier.
pub(super) const COUNTERS_AT: u64 = SLOTS_AT + READER_SLOTS as u64 * SLOT_STRIDE;
pub(super) const ROWS_AT: u64 = COUNTERS_AT + 64;
/// Rows of counters: one for each tier counted apart; the last row is for all others.
pub(super) const COUNTER_ROWS: usize = 16;
/// For each reader slot: reads and bytes of each row.
pub(super) const SLOT_COUNTERS_AT: u64 = COUNTERS_AT + 4096;
pub(super) const SLOT_COUNTERS_STRIDE: u64 = COUNTER_ROWS as u64 * 16;
/// Two histograms for each row, for reads and writes; each is a sum in nanoseconds, then the buckets.
pub(super) const HISTOGRAMS_AT: u64 = SLOT_COUNTERS_AT + READER_SLOTS as u64 * SLOT_COUNTERS_STRIDE;
pub(super) const HISTOGRAM_BUCKETS_AT: u64 = 64;
pub(super) const HISTOGRAM_STRIDE: u64 = HISTOGRAM_BUCKETS_AT + cenote_model::HISTOGRAM_BUCKETS as u64 * 8;
const COUNTERS_END: u64 = HISTOGRAMS_AT + 2 * COUNTER_ROWS as u64 * HISTOGRAM_STRIDE;

/// The space in between is for later fields of the client.
pub(super) const RINGS_AT: u64 = COUNTERS_END.next_multiple_of(4096);

const HEADER_BYTES: usize = 128;
const SUM_AT: usize = HEADER_BYTES - 4;
const CONTROL_MAGIC: [u8; 8] = *b"CENOTCTL";
const CLIENT_MAGIC: [u8; 8] = *b"CENOTCLI";

pub(crate) type HeaderBytes = [u8; HEADER_BYTES];

fn begin(magic: [u8; 8], store: StoreId, boot_id: [u8; 16]) -> HeaderBytes {
    let mut out = [0; HEADER_BYTES];
    out[0..8].copy_from_slice(&magic);
    out[8..12].copy_from_slice(&CONTROL_VERSION.to_le_bytes());
    out[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
    out[16..32].copy_from_slice(&store.0.to_le_bytes());
    out[32..48].copy_from_slice(&boot_id);
    out
}

fn seal(mut out: HeaderBytes) -> HeaderBytes {
    let sum = sum_of(&out[..SUM_AT]);
    out[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
    out
}

fn check(bytes: &HeaderBytes, magic: [u8; 8], subject: &str) -> Result<(StoreId, [u8; 16])> {
    let corrupt = |cause: &str| {
        Error::new(ErrorKind::Corrupt, subject)
            .because(cause)
            .try_next("end all processes that use the store and delete this file: it counts as a power loss")
    };
    if bytes[0..8] != magic {
        return Err(corrupt("it is not Cenote's"));
    }
    if sum_of(&bytes[..SUM_AT]) != u32_at(bytes, SUM_AT) {
        return Err(corrupt("the checksum of its header does not match"));
    }
    let version = u32_at(bytes, 8);
    if version != CONTROL_VERSION || u32_at(bytes, 12) as usize != HEADER_BYTES {
        return Err(Error::new(ErrorKind::VersionMismatch, subject)
            .because(format!("control format {version}, this program knows {CONTROL_VERSION}"))
            .try_next("use one version of Cenote for all processes of a store"));
    }
    Ok((StoreId(u128_at(bytes, 16)), std::array::from_fn(|i| bytes[32 + i])))
}

/// Header of `control`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ControlHeader {
    pub(crate) store: StoreId,
    pub(crate) boot_id: [u8; 16],
}

impl ControlHeader {
    pub(crate) fn encode(&self) -> HeaderBytes {
        let mut out = begin(CONTROL_MAGIC, self.store, self.boot_id);
        out[48..56].copy_from_slice(&WORDS.to_le_bytes());
        seal(out)
    }
    pub(crate) fn decode(bytes: &HeaderBytes, subject: &str) -> Result<Self> {
        let (store, boot_id) = check(bytes, CONTROL_MAGIC, subject)?;
        if u64_at(bytes, 48) != WORDS {
            return Err(Error::new(ErrorKind::VersionMismatch, subject).because("another number of version words"));
        }
        Ok(Self { store, boot_id })
    }
}

/// Header of `client-<n>`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClientHeader {
    pub(crate) store: StoreId,
    pub(crate) boot_id: [u8; 16],
    pub(crate) number: u64,
    /// The process that owns the slots, as the engine's process saw it (0: not visible to it).
    pub(crate) pid: u32,
    /// Start time of `pid`, in the kernel's ticks since boot, since pids are reused.
    pub(crate) started: u64,
    /// Bytes of each ring; 0 if there are none.
    pub(crate) ring_bytes: u64,
    /// Bytes of the redo log of pipelined changes; 0 if there is none, as in files of earlier versions.
    pub(crate) log_bytes: u64,
    /// The client holds a lock on the file while it maps it. Files of earlier versions have no lock: `pid` decides
    /// there.
    pub(crate) is_locked: bool,
}

impl ClientHeader {
    pub(crate) fn encode(&self) -> HeaderBytes {
        let mut out = begin(CLIENT_MAGIC, self.store, self.boot_id);
        out[48..56].copy_from_slice(&self.number.to_le_bytes());
        out[56..60].copy_from_slice(&self.pid.to_le_bytes());
        out[60..64].copy_from_slice(&(READER_SLOTS as u32).to_le_bytes());
        out[64..72].copy_from_slice(&self.started.to_le_bytes());
        out[72..80].copy_from_slice(&self.ring_bytes.to_le_bytes());
        out[80..88].copy_from_slice(&self.log_bytes.to_le_bytes());
        out[88] = u8::from(self.is_locked);
        seal(out)
    }
    pub(crate) fn decode(bytes: &HeaderBytes, subject: &str) -> Result<Self> {
        let (store, boot_id) = check(bytes, CLIENT_MAGIC, subject)?;
        let header = Self {
            store,
            boot_id,
            number: u64_at(bytes, 48),
            pid: u32_at(bytes, 56),
            started: u64_at(bytes, 64),
            ring_bytes: u64_at(bytes, 72),
            log_bytes: u64_at(bytes, 80),
            is_locked: bytes[88] == 1,
        };
        let is_long = header.ring_bytes > 1 << 40 || header.log_bytes > 1 << 40;
        if u32_at(bytes, 60) as usize != READER_SLOTS || is_long {
            return Err(Error::new(ErrorKind::Corrupt, subject).because("its header contradicts itself"));
        }
        Ok(header)
    }
    pub(crate) fn file_bytes(&self) -> u64 {
        self.log_at() + self.log_bytes
    }
    pub(crate) fn log_at(&self) -> u64 {
        RINGS_AT + 2 * self.ring_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_and_flipped_bits_do_not() {
        let control = ControlHeader { store: StoreId(77), boot_id: [3; 16] };
        assert_eq!(ControlHeader::decode(&control.encode(), "it").unwrap(), control);
        let client = ClientHeader {
            store: StoreId(77),
            boot_id: [3; 16],
            number: 4,
            pid: 12,
            started: 99,
            ring_bytes: 1 << 20,
            log_bytes: 1 << 18,
            is_locked: true,
        };
        assert_eq!(ClientHeader::decode(&client.encode(), "it").unwrap(), client);
        for bit in 0..HEADER_BYTES * 8 {
            let (mut one, mut other) = (control.encode(), client.encode());
            one[bit / 8] ^= 1 << (bit % 8);
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(ControlHeader::decode(&one, "it").is_err(), "bit {bit}");
            assert!(ClientHeader::decode(&other, "it").is_err(), "bit {bit}");
        }
        assert!(ControlHeader::decode(&client.encode(), "it").is_err());
    }
}
