//! The superblock: a store's id, devices, rights and engines, which are read before anything else. And the stamp on
//! each device.

use cenote_device::{Device, MetaDir};
use cenote_model::{
    DeviceId, DeviceKind, DeviceSpec, DeviceState, Error, ErrorKind, HomeId, Result, StoreId, TierOptions,
};

use crate::codec::{Decoded, Decoder, Encode, Malformed, Ordinals as _};
use crate::space::DeviceSlot;
use crate::sums::sum_of;

/// Name of the superblock's file.
pub(crate) const SUPERBLOCK: &str = "superblock";
const MAGIC: [u8; 8] = *b"CENOTE\0\0";
const STAMP_MAGIC: [u8; 8] = *b"CENOTED\0";
/// Version 3 has the node, the features that a reader must know, the homes, and the node and failure domain of each
/// device. Version 2 has the options of tiers; its predecessor has none.
const VERSION: u32 = 3;
const VERSION_MIN: u32 = 1;
const STAMP_VERSION: u32 = 1;
/// Smallest allocation unit of a device.
const UNIT_BYTES_MIN: u32 = 512;
/// Most engines of a store.
pub(crate) const HOMES_MAX: usize = 16;
/// The node of a device: that of the home whose superblock it is.
const HERE: u16 = 0;
/// Magic, version, checksum.
const HEAD: usize = 16;
/// Bytes of a device's stamp.
const STAMP_LEN: usize = 512;

/// Features that a reader must know, by bit, and whether this program does.
const FEATURES: [(&str, bool); 4] =
    [("several engines", true), ("several nodes", true), ("parity", false), ("encryption", false)];
/// Bit of [`FEATURES`]: several engines.
const NEEDS_HOMES: u64 = 1;
/// Number of the feature "several nodes", and of "encryption".
const NODES_BIT: u32 = 1;
const NEEDS_NODES: u64 = 1 << NODES_BIT;
const KEYS_BIT: u32 = 3;

/// The superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Superblock {
    pub id: StoreId,
    pub writers: Vec<u32>,
    pub readers: Vec<u32>,
    pub devices: Vec<SuperblockDevice>,
    /// The space lent to each engine, the landlord (0) first. Empty: one engine has everything.
    pub homes: Vec<Vec<Loan>>,
    /// The home that the store is in a cluster; 0 for a store by itself.
    pub home: HomeId,
}

/// A run of a device that is lent to an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loan {
    /// The device.
    pub device: DeviceId,
    /// Byte offset there; a multiple of the device's unit.
    pub offset: u64,
    /// Bytes; a multiple of the device's unit.
    pub bytes: u64,
}

impl Loan {
    /// Returns true if it has the byte at `offset` of a device.
    pub(crate) fn has(&self, device: DeviceId, offset: u64) -> bool {
        self.device == device && (self.offset..self.offset + self.bytes).contains(&offset)
    }
}

/// A device as the superblock knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SuperblockDevice {
    pub id: DeviceId,
    pub spec: DeviceSpec,
    pub removed: bool,
    pub draining: bool,
    /// Bytes on it were found bad of late.
    pub is_damaged: bool,
    /// As they were when it was made; used when it cannot be opened.
    pub unit_bytes: u32,
    pub segment_bytes: u64,
    /// Of persistent devices. That of volatile ones is in the checkpoint.
    pub incarnation: u64,
}

/// Most bytes of a device: the map of its free space has to fit in memory.
pub(crate) fn capacity_max(kind: DeviceKind) -> u64 {
    if kind.is_persistent() { 1 << 50 } else { 1 << 46 }
}

impl SuperblockDevice {
    pub fn of(slot: &DeviceSlot) -> Self {
        Self {
            id: slot.id,
            spec: slot.spec.clone(),
            removed: slot.removed,
            draining: slot.state == DeviceState::Draining,
            is_damaged: slot.trust.damaged_until_ns.is_some(),
            unit_bytes: slot.space.unit_bytes,
            segment_bytes: slot.space.segment_bytes,
            incarnation: slot.incarnation,
        }
    }
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.put_u16(self.id.0);
        bytes.put_u8(u8::from(self.removed) | u8::from(self.draining) << 1 | u8::from(self.is_damaged) << 2);
        bytes.put_u8(self.spec.kind as u8);
        bytes.put_bytes(self.spec.name.as_bytes());
        bytes.put_bytes(self.spec.path.as_os_str().as_encoded_bytes());
        bytes.put_u64(self.spec.capacity_bytes);
        bytes.put_u16(self.spec.watermark_high_permille);
        bytes.put_u16(self.spec.watermark_low_permille);
        bytes.put_u16(self.spec.options.len() as u16);
        for (name, value) in self.spec.options.iter() {
            bytes.put_bytes(name.as_bytes());
            bytes.put_bytes(value.as_bytes());
        }
        bytes.put_u32(self.unit_bytes);
        bytes.put_u64(self.segment_bytes);
        bytes.put_u64(self.incarnation);
        bytes.put_u16(HERE);
        bytes.put_bytes(b"");
    }
    fn decode(from: &mut Decoder<'_>, version: u32, unknown: &mut Option<String>) -> Decoded<Self> {
        let id = DeviceId(from.u16()?);
        let flags = from.u8()?;
        let kind = DeviceKind::from_code(from.u8()?).ok_or(Malformed("an unknown kind of device"))?;
        let name = from.text()?;
        let path = path_of(from.bytes()?);
        let spec = DeviceSpec {
            name,
            kind,
            path,
            capacity_bytes: from.u64()?,
            watermark_high_permille: from.u16()?,
            watermark_low_permille: from.u16()?,
            options: if version == 1 { TierOptions::default() } else { options_of(from)? },
        };
        let (unit_bytes, segment_bytes, incarnation) = (from.u32()?, from.u64()?, from.ordinal()?);
        if version >= 3 && (from.u16()?, from.bytes()?) != (HERE, b"".as_slice()) {
            *unknown = Some(name_of(NODES_BIT));
        }
        if unit_bytes < UNIT_BYTES_MIN || segment_bytes == 0 {
            return Err(Malformed("a device without units"));
        }
        if spec.capacity_bytes > capacity_max(spec.kind) {
            return Err(Malformed("a device larger than any can be"));
        }
        let (removed, draining, is_damaged) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        Ok(Self { id, spec, removed, draining, is_damaged, unit_bytes, segment_bytes, incarnation })
    }
}

fn options_of(from: &mut Decoder<'_>) -> Decoded<TierOptions> {
    let count = from.u16()?;
    (0..count).map(|_| Ok((from.text()?, from.text()?))).collect()
}

#[cfg(unix)]
fn path_of(bytes: &[u8]) -> std::path::PathBuf {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(bytes).into()
}

impl Superblock {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.put_u32(VERSION);
        bytes.put_u32(0);
        bytes.put_u128(self.id.0);
        for users in [&self.writers, &self.readers] {
            bytes.put_u32(users.len() as u32);
            for user in users {
                bytes.put_u32(*user);
            }
        }
        bytes.put_u32(self.devices.len() as u32);
        self.devices.iter().for_each(|device| device.encode(&mut bytes));
        bytes.put_u16(self.home.0);
        let needs = |is_needed: bool, bit| if is_needed { bit } else { 0 };
        bytes.put_u64(needs(self.homes.len() > 1, NEEDS_HOMES) | needs(self.home.0 != 0, NEEDS_NODES));
        bytes.put_u32(self.homes.len() as u32);
        for loans in &self.homes {
            bytes.put_u32(loans.len() as u32);
            for loan in loans {
                bytes.put_u16(loan.device.0);
                bytes.put_u64(loan.offset);
                bytes.put_u64(loan.bytes);
            }
        }
        bytes.put_u32(0); // keys
        seal(&mut bytes);
        bytes
    }
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (version, body) = open(bytes, MAGIC, "superblock", VERSION)?;
        let mut unknown = None;
        let mut read = |from: &mut Decoder<'_>| -> Decoded<Self> {
            let id = StoreId(from.u128()?);
            let mut users = || -> Decoded<Vec<u32>> {
                let count = from.count(4)?;
                (0..count).map(|_| from.u32()).collect()
            };
            let (writers, readers) = (users()?, users()?);
            let count = from.count(40)?;
            let devices =
                (0..count).map(|_| SuperblockDevice::decode(from, version, &mut unknown)).collect::<Decoded<_>>()?;
            let (home, homes) = if version < 3 { Default::default() } else { tail_of(from, &mut unknown)? };
            if unknown.is_none() {
                from.end()?;
            }
            Ok(Self { id, writers, readers, devices, homes, home })
        };
        let superblock = read(&mut Decoder::new(&body)).map_err(|malformed| damaged("superblock", malformed.0))?;
        if let Some(feature) = unknown {
            return Err(unsupported(&feature));
        }
        superblock.check_loans()?;
        Ok(superblock)
    }
    /// Fails if a run is lent twice, or lies outside of its device.
    fn check_loans(&self) -> Result<()> {
        let mut loans: Vec<Loan> = self.homes.iter().flatten().copied().collect();
        loans.sort_unstable_by_key(|loan| (loan.device, loan.offset));
        let device_of = |loan: &Loan| self.devices.iter().find(|device| device.id == loan.device);
        let is_inside = |loan: &Loan| {
            device_of(loan).is_some_and(|device| {
                let unit = u64::from(device.unit_bytes);
                let end = loan.offset.checked_add(loan.bytes);
                loan.bytes > 0
                    && loan.offset.is_multiple_of(unit)
                    && loan.bytes.is_multiple_of(unit)
                    && end.is_some_and(|end| end <= device.spec.capacity_bytes)
            })
        };
        let is_twice = |pair: &[Loan]| {
            pair[0].device == pair[1].device && pair[0].offset.saturating_add(pair[0].bytes) > pair[1].offset
        };
        if !loans.iter().all(is_inside) {
            return Err(damaged("superblock", "a loan outside of its device"));
        }
        if loans.windows(2).any(is_twice) {
            return Err(damaged("superblock", "a run that is lent twice"));
        }
        Ok(())
    }
    pub fn read(meta: &dyn MetaDir) -> Result<Self> {
        let bytes = meta.read_file(SUPERBLOCK).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::new(ErrorKind::NotFound, "store")
                .because("the directory holds no superblock")
                .try_next("check the path, or create the store"),
            _ => error,
        })?;
        Self::decode(&bytes)
    }
    pub fn write(&self, meta: &dyn MetaDir) -> Result<()> {
        meta.write_file(SUPERBLOCK, &self.encode())
    }
}

/// The name of a feature.
fn name_of(bit: u32) -> String {
    FEATURES.get(bit as usize).map_or_else(|| format!("feature {bit}"), |(name, _)| (*name).to_owned())
}

/// What follows the devices from version 3 on: the home in its cluster, and the loans of engines. `unknown`: a feature that this program does not have; what
/// follows cannot be read then.
fn tail_of(from: &mut Decoder<'_>, unknown: &mut Option<String>) -> Decoded<(HomeId, Vec<Vec<Loan>>)> {
    let home = HomeId(from.u16()?);
    let needs = from.u64()?;
    let is_known = |bit: u32| FEATURES.get(bit as usize).is_some_and(|(_, known)| *known);
    let first = (0..u64::BITS).find(|bit| needs >> bit & 1 != 0 && !is_known(*bit));
    *unknown = first.map(name_of).or_else(|| unknown.take());
    if unknown.is_some() {
        return Ok((home, Vec::new()));
    }
    if (home.0 != 0) != (needs & NEEDS_NODES != 0) {
        return Err(Malformed("a home that no cluster has"));
    }
    let count = from.count(4)?;
    if count > HOMES_MAX || (count > 1) != (needs & NEEDS_HOMES != 0) || count > 1 && home.0 != 0 {
        return Err(Malformed("a number of engines that no store has"));
    }
    let mut homes = Vec::new();
    for _ in 0..count {
        let loans = from.count(18)?;
        let loan = |_| Ok(Loan { device: DeviceId(from.u16()?), offset: from.u64()?, bytes: from.u64()? });
        homes.push((0..loans).map(loan).collect::<Decoded<Vec<_>>>()?);
    }
    if from.count(6)? > 0 {
        *unknown = Some(name_of(KEYS_BIT));
    }
    Ok((home, homes))
}

/// The error for a store with a feature that this program does not have.
#[cold]
fn unsupported(feature: &str) -> Error {
    let version = env!("CARGO_PKG_VERSION");
    Error::new(ErrorKind::VersionMismatch, "superblock")
        .because(format!("the store needs {feature}, which Cenote {version} does not have"))
        .try_next(format!("use the version of Cenote that wrote it: a later one than {version}"))
}

fn seal(bytes: &mut [u8]) {
    bytes[12..16].fill(0);
    let sum = sum_of(bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// Checks magic, version and checksum; returns the version and what follows them.
fn open(bytes: &[u8], magic: [u8; 8], what: &str, newest: u32) -> Result<(u32, Vec<u8>)> {
    if bytes.len() < HEAD || bytes[..8] != magic {
        return Err(damaged(what, "it does not begin like one"));
    }
    let mut plain = bytes.to_vec();
    let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    plain[12..16].fill(0);
    if sum_of(&plain) != number(12) {
        return Err(damaged(what, "its checksum does not match"));
    }
    let version = number(8);
    if !(VERSION_MIN..=newest).contains(&version) {
        return Err(Error::new(ErrorKind::VersionMismatch, what)
            .because(format!("its version is {version}, this program reads up to {newest}"))
            .try_next("use the version of Cenote that wrote it"));
    }
    Ok((version, plain.split_off(HEAD)))
}

#[cold]
fn damaged(what: &str, why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, what).because(why).try_next(crate::RESTORE)
}

/// The stamp that the engine writes at the begin of each device: its store, its id and its incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    pub store: StoreId,
    pub device: DeviceId,
    pub incarnation: u64,
}

impl Stamp {
    pub const LEN: usize = STAMP_LEN;
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = STAMP_MAGIC.to_vec();
        bytes.put_u32(STAMP_VERSION);
        bytes.put_u32(0);
        bytes.put_u128(self.store.0);
        bytes.put_u16(self.device.0);
        bytes.put_u64(self.incarnation);
        bytes.resize(STAMP_LEN, 0);
        seal(&mut bytes);
        bytes
    }
    /// Writes it on a device. Its first bytes go last, so that an incomplete stamp counts as missing.
    pub fn write(&self, device: &dyn Device) -> Result<()> {
        let bytes = self.encode();
        let head = STAMP_MAGIC.len();
        device.write_at(0, &[0; STAMP_MAGIC.len()])?;
        device.write_at(head as u64, &bytes[head..])?;
        device.write_at(0, &bytes[..head])?;
        device.sync()
    }
    /// Reads the stamp of a device. Fails if it is damaged or names another store or device.
    pub fn read(device: &dyn Device, store: StoreId, id: DeviceId) -> Result<Self> {
        let mut bytes = vec![0; Self::LEN];
        device.read_at(0, &mut bytes)?;
        let stamp = Self::decode(&bytes)?;
        if stamp.store != store || stamp.device != id {
            return Err(Error::new(ErrorKind::Corrupt, "the stamp of the device")
                .because("it belongs to another store or device")
                .try_next("put the right device in its place"));
        }
        Ok(stamp)
    }
    /// Returns true if these bytes hold no stamp: it was never written, or not completed.
    pub fn is_missing(bytes: &[u8]) -> bool {
        bytes[..STAMP_MAGIC.len()].iter().all(|byte| *byte == 0)
    }
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (_, body) = open(bytes, STAMP_MAGIC, "the stamp of a device", STAMP_VERSION)?;
        let read = |from: &mut Decoder<'_>| -> Decoded<Self> {
            Ok(Self { store: StoreId(from.u128()?), device: DeviceId(from.u16()?), incarnation: from.ordinal()? })
        };
        read(&mut Decoder::new(&body)).map_err(|malformed| damaged("the stamp of a device", malformed.0))
    }
}

#[cfg(test)]
mod tests;
