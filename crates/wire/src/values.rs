//! Encodings of the model's values.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use cenote_model::{
    Arrange, ArrangeMove, ArrangeProgress, ArrangeTarget, Arrangement, Birth, Check, Codec, ContainerContent,
    ContainerId, ContainerInfo, ContainerSpec, Decision, DeviceId, DeviceInfo, DeviceKind, DeviceSpec, DeviceState,
    Durability, Encoding, Error, ErrorKind, Explanation, Extent, ExtentWhy, Finding, FlushTarget, HomeId, IndexContent,
    IndexId, IndexKey, KeyCode, Lease, Lookup, NextFrom, NodeId, ObjectId, ObjectKey, ObjectStat, Packed, PluginState,
    PolicyState, Records, Request, Response, Result, RuleState, Run, SnapshotInfo, StoreConfig, StoreId, StoreStats,
    Sums, TierOptions, Touch, TransactionId, Update, UserWeight, UserWeights, VerifyReport, WeightsAsk,
};

use crate::codec::{Input, Wire, malformed, put_bytes, take_bytes, wire_enum, wire_struct};

macro_rules! wire_id {
    ($($name:ident: $inner:ty),* $(,)?) => { $(
        impl Wire for $name {
            const BYTES_MIN: usize = size_of::<$inner>();
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            #[inline]
            fn take(input: &mut Input<'_>) -> Result<Self> {
                <$inner>::take(input).map(Self)
            }
        }
    )* };
}
wire_id!(StoreId: u128, ContainerId: u64, ObjectId: u128, IndexId: u128, DeviceId: u16, NodeId: u16, HomeId: u16, Birth: u64);
wire_struct!(ObjectKey, 24, { container, object });
wire_struct!(IndexKey, 24, { container, index });

/// Enumerations without fields: one byte, the discriminant.
macro_rules! wire_code {
    ($name:ident, $what:literal, [$($variant:ident),* $(,)?]) => {
        impl Wire for $name {
            const BYTES_MIN: usize = 1;
            fn put(&self, out: &mut Vec<u8>) {
                out.push(*self as u8);
            }
            fn take(input: &mut Input<'_>) -> Result<Self> {
                let code = u8::take(input)?;
                [$(Self::$variant),*]
                    .into_iter()
                    .find(|value| *value as u8 == code)
                    .ok_or_else(|| malformed(concat!("unknown ", $what)))
            }
        }
    };
}
wire_code!(Durability, "durability", [Sync, Async, Scratch, Bypass]);
wire_code!(DeviceKind, "kind of device", [SharedMemory, PersistentMemory, File, Directory, S3, Swift, Rados, Raid]);
wire_code!(DeviceState, "state of a device", [Online, Draining, Failed]);
wire_code!(KeyCode, "result code", [Ok, NotFound, Exists, Invalid, Limit]);

impl Wire for Sums {
    const BYTES_MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        let sums = self.as_slice();
        (sums.len() as u32).put(out);
        for sum in sums {
            sum.put(out);
        }
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        let count = u32::take(input)? as usize;
        if count == 1 {
            return u32::take(input).map(Self::One);
        }
        let bytes = input.take(count.saturating_mul(4))?;
        let sums: Arc<[u32]> = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        Ok(Self::Many(sums))
    }
}
/// 0, or 1 and the compression: codec, shuffle, grain, run length, unit lengths minus one.
impl Wire for Encoding {
    const BYTES_MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        let Self::Packed(packed) = self else { return out.push(0) };
        out.extend([1, packed.codec() as u8, packed.stride_shift(), packed.grain_shift()]);
        packed.run_len().put(out);
        (packed.units() as u32).put(out);
        (0..packed.units()).for_each(|unit| ((packed.len_of(unit) - 1) as u16).put(out));
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        match u8::take(input)? {
            0 => return Ok(Self::Plain),
            1 => {}
            _ => return Err(malformed("unknown extent encoding")),
        }
        let codec = Codec::from_code(u8::take(input)?).ok_or_else(|| malformed("unknown codec"))?;
        let (stride, grain, run_len) = (u8::take(input)?, u8::take(input)?, u32::take(input)?);
        let count = u32::take(input)? as usize;
        let lens = input.take(count.saturating_mul(2))?;
        let lens: Vec<u32> = lens.chunks_exact(2).map(|b| u32::from(u16::from_le_bytes([b[0], b[1]])) + 1).collect();
        let packed = Packed::new(codec, stride, grain, run_len, &lens);
        packed.map(|packed| Self::Packed(packed.into())).ok_or_else(|| malformed("compressed units that make no sense"))
    }
}
wire_struct!(Extent, 37, { node, device, birth, encoding, run_offset, run_len, skip, len, sums });

impl Wire for PathBuf {
    const BYTES_MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_os_str().as_bytes(), out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        Ok(std::ffi::OsString::from_vec(take_bytes(input)?.to_vec()).into())
    }
}

wire_struct!(ContainerSpec, 20, { block_shift, durability, quota_bytes, policy, owner_uid, owner_gid, mode, weight });
wire_struct!(ContainerInfo, 64, { id, label, spec, objects, indices, records, stored_bytes });
wire_struct!(SnapshotInfo, 68, { id, of, name, epoch, unix_ms, objects, indices, records, stored_bytes });
impl Wire for TierOptions {
    const BYTES_MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        let pairs: Vec<(String, String)> = self.iter().map(|(name, value)| (name.into(), value.into())).collect();
        pairs.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        Vec::<(String, String)>::take(input).map(Self::from_iter)
    }
}
wire_struct!(DeviceSpec, 25, {
    name, kind, path, capacity_bytes, watermark_high_permille, watermark_low_permille, options,
});
wire_struct!(DeviceInfo, 93, {
    id, spec, state, used_bytes, reserved_bytes, leased_bytes, evictable_bytes, unit_bytes, segment_bytes, speed, note,
    packed_bytes, unpacked_bytes,
});
wire_struct!(StoreConfig, 16, { devices, writers, readers, engines, home });

impl Wire for Error {
    const BYTES_MIN: usize = 13;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.kind() as u8);
        put_bytes(self.subject().as_bytes(), out);
        put_bytes(self.cause().as_bytes(), out);
        put_bytes(self.next_step().as_bytes(), out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        let kind = ErrorKind::from_code(u8::take(input)?).unwrap_or(ErrorKind::Internal);
        let subject = String::take(input)?;
        let cause = String::take(input)?;
        Ok(Self::new(kind, subject).because(cause).try_next(String::take(input)?))
    }
}

wire_enum!(Update, 9, "update", {
    1 => ContainerCreate { id, label, spec },
    2 => ContainerRename { id, label },
    3 => ContainerSet { id, spec },
    4 => ContainerDelete { id },
    5 => ObjectCreate { key, block_shift },
    6 => ObjectDelete { key },
    7 => Write { key, offset, extent },
    8 => Punch { key, offset, len },
    9 => Truncate { key, size },
    10 => IndexCreate { key },
    11 => IndexDelete { key },
    12 => Put { index, key, value, only_new },
    13 => Del { index, key },
    14 => SnapshotCreate { of, id, name, replace, unix_ms },
    15 => SnapshotDelete { of, name },
    16 => SnapshotRollback { of, name },
    17 => Share { to, at, from, offset, len },
    18 => Fill { container, run, bytes },
    19 => ObjectKeep { key, device },
});
wire_enum!(Check, 29, "check", {
    1 => Object { key, epoch },
    2 => Record { index, key, epoch },
    3 => Value { index, key, value },
    4 => NoKeys { index, prefix },
    5 => Size { key, size },
});
wire_enum!(NextFrom, 1, "place to begin", { 1 => Start, 2 => At(key), 3 => After(key) });
wire_enum!(FlushTarget, 1, "target", { 1 => Store, 2 => Container(id), 3 => Object(key) });
wire_struct!(Touch, 40, { key, offset, bytes });
wire_enum!(ArrangeTarget, 6, "target", {
    1 => Object(key), 2 => Range { key, offset, len }, 3 => Container(id), 4 => Query { container, text },
});
wire_enum!(Arrange, 1, "arrangement", {
    1 => Promote { to }, 2 => Demote { to }, 3 => Evict, 4 => Pin { to }, 5 => Unpin, 6 => Archive { to },
    7 => Release { to },
});
wire_struct!(ArrangeMove, 60, { key, offset, bytes, from, to, cost_ns, why });
wire_struct!(Arrangement, 72, {
    moves, ranges, bytes, moved_bytes, cost_ns, staying_bytes, staying_why, already_bytes, pinned_bytes, objects,
});
wire_struct!(ArrangeProgress, 36, { number, what, done_bytes, found_bytes, elapsed_ns });
wire_struct!(PluginState, 12, { name, about, failure });
wire_struct!(RuleState, 40, { name, line, what, ranges, bytes, deleted, last_error });
wire_struct!(PolicyState, 28, { text, faults, refused, followers, plugins, rules, deletes_held });
wire_struct!(Run, 18, { device, offset, len });
wire_struct!(Lease, 4, { runs });
wire_struct!(TransactionId, 18, { home, session, number });
wire_struct!(Decision, 23, { transaction, participants, is_sync });

wire_struct!(UserWeight, 6, { uid, weight });
wire_struct!(UserWeights, 12, { version, users });
wire_enum!(WeightsAsk, 1, "question about weights", { 1 => Show, 2 => Set(user), 3 => Follow(weights) });

wire_enum!(Request, 1, "request", {
    1 => Apply { checks, updates, atomic },
    2 => Lookup { key, offset, len, limit },
    3 => ObjectStat { key },
    4 => ObjectList { container, after, limit },
    5 => Get { index, keys },
    6 => Next { index, from, prefix, limit, bytes_max },
    7 => IndexExists { key },
    8 => IndexList { container, after, limit },
    9 => ContainerByLabel { label },
    10 => ContainerById { id },
    11 => ContainerList { after, limit },
    12 => Lease { container, bytes, run_min, avoid, durability },
    13 => Unlease { runs },
    14 => Flush { target },
    15 => Devices,
    16 => DeviceAdd { spec },
    17 => DeviceDrain { name },
    18 => DeviceRemove { name },
    19 => Explain { key },
    20 => Verify { target },
    21 => Stats,
    22 => Checkpoint,
    23 => Shutdown { cluster },
    24 => SnapshotList { container, after, limit },
    25 => SnapshotByName { container, name, pin },
    26 => SnapshotUnpin { id },
    28 => Profile { name, measure_ms },
    27 => Telemetry { hot },
    29 => Fetch { key, ranges, ahead, must },
    30 => Touched { reads },
    31 => Arrange { target, what, dry_run },
    32 => Unreadable { key, ranges },
    33 => Habit { container, program },
    34 => HabitLearned { container, program, learned },
    40 => PolicySet { text, dry_run },
    41 => PolicyShow,
    42 => RulesTry,
    43 => Progress,
    44 => Read { key, offset, len },
    45 => Deposit { container, bytes, avoid, durability },
    46 => ContainerContent { id, limit, bytes_max },
    47 => Moved,
    48 => HaReport,
    49 => Protect { losses },
    50 => Prepare { transaction, checks, updates },
    51 => Decide { decision, checks, updates },
    52 => Settle { transaction, commits },
    53 => Ask { transaction, tell },
    54 => Forget { transaction, participant },
    55 => Weights { ask },
    60 => ChangeCluster { change },
});

/// The lengths of all keys and values, then their bytes: neither end visits each record's bytes.
impl Wire for Records {
    const BYTES_MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.reserve(self.len() * 8 + self.bytes().len());
        for (key, value) in self.iter() {
            (key.len() as u32).put(out);
            (value.len() as u32).put(out);
        }
        out.extend_from_slice(self.bytes());
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        let count = u32::take(input)? as usize;
        let lengths = input.take(count.saturating_mul(8))?;
        let length = |at: &[u8]| at.first_chunk().map_or(0, |four| u32::from_le_bytes(*four) as usize);
        let lengths = lengths.chunks_exact(8).map(|both| (length(both), length(&both[4..])));
        let bytes = lengths.clone().fold(0usize, |sum, (key, value)| sum.saturating_add(key).saturating_add(value));
        let bytes = input.take(bytes)?.to_vec();
        Self::from_parts(lengths, bytes).ok_or_else(|| malformed("records are longer than the message"))
    }
}

wire_struct!(Lookup, 37, { version, epoch, size, block_shift, extents, covered_to });
wire_struct!(ObjectStat, 49, { size, block_shift, extents, mapped_bytes, epoch, pinned_bytes, taken_bytes });
wire_struct!(IndexContent, 29, { id, version, records, more });
wire_struct!(ContainerContent, 67, { info, indices, maps });
wire_struct!(ExtentWhy, 45, { offset, extent, device, why });
wire_struct!(Explanation, 49, { stat, ranges, notes });
wire_struct!(Finding, 48, { key, offset, len, device, what });
wire_struct!(VerifyReport, 24, { objects, bytes, findings, contradictions });
wire_struct!(StoreStats, 112, {
    epoch, containers, objects, indices, records, extents, journal_bytes, moved_bytes, sessions, scrub_findings,
    metadata_bytes, values_here_bytes, values_budget_bytes, values_away_bytes,
});

wire_enum!(Response, 1, "response", {
    1 => Applied { epoch, codes, words, created },
    2 => Lookup(lookup),
    3 => Stat(stat),
    4 => Objects(ids),
    5 => Values(values),
    6 => Records { records, more },
    7 => Exists(yes),
    8 => Indices(ids),
    9 => Container(info),
    10 => Containers(infos),
    11 => Lease(lease),
    12 => Devices(devices),
    13 => Device(id),
    14 => Explanation(explanation),
    15 => Verified(report),
    16 => Stats(stats),
    17 => Done,
    18 => Failed(error),
    19 => Snapshots(infos),
    21 => Profile(profile),
    20 => Telemetry(telemetry),
    22 => Arranged(arrangement),
    33 => Habit(learned),
    40 => Policy(state),
    41 => Progress(all),
    42 => Bytes { size, version, bytes },
    44 => Content(content),
    45 => Moved(bytes),
    46 => Ha(report),
    47 => Prepared { is_sync },
    48 => Decided(is_so),
    49 => Weights(weights),
});
