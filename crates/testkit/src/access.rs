//! The data path of a simulated client: writes bytes into leased runs, and reads verified bytes from
//! extents.

use std::sync::Arc;

use cenote_device::Device;
use cenote_device::packing::Packer;
use cenote_model::{DeviceId, Encoding, Extent, Packed, SUM_UNIT_SHIFT, Sums};

const UNIT: u64 = 1 << SUM_UNIT_SHIFT;

/// The checksums of a run's units.
pub fn sums(bytes: &[u8]) -> Sums {
    let each: Vec<u32> = bytes.chunks(UNIT as usize).map(crc).collect();
    Sums::from_slice(&each)
}

fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Writes a run as a client does: padded to whole units where I/O is direct.
pub fn write_run(device: &dyn Device, id: DeviceId, offset: u64, bytes: &[u8]) -> Result<Extent, String> {
    let unit = device.unit_bytes() as usize;
    let sums = sums(bytes);
    if unit >= 4096 {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().div_ceil(unit) * unit, 0);
        device.write_at(offset, &padded).map_err(|e| e.to_string())?;
    } else {
        device.write_at(offset, bytes).map_err(|e| e.to_string())?;
    }
    Ok(Extent::whole(id, offset, bytes.len() as u32, sums))
}

/// Reads an extent, whole checksum units at a time. `Err` if the device failed or a checksum does not
/// match.
pub fn read_extent(device: &Arc<dyn Device>, extent: &Extent) -> Result<Vec<u8>, String> {
    let (skip, len, run_len) = (u64::from(extent.skip), u64::from(extent.len), u64::from(extent.run_len));
    if skip + len > run_len || len == 0 {
        return Err(format!("malformed {extent:?}"));
    }
    if extent.sums.as_slice().len() != Extent::units(extent.run_len) {
        return Err(format!("wrong number of checksums in {extent:?}"));
    }
    let first = skip / UNIT;
    let begin = first * UNIT;
    let end = (skip + len).div_ceil(UNIT).saturating_mul(UNIT).min(run_len);
    let mut bytes = vec![0; (end - begin) as usize];
    match &extent.encoding {
        Encoding::Plain => device.read_at(extent.run_offset + begin, &mut bytes).map_err(|e| e.to_string())?,
        Encoding::Packed(packed) => unpack(device, extent, packed, first as usize, &mut bytes)?,
    }
    for (n, unit) in bytes.chunks(UNIT as usize).enumerate() {
        let wanted = extent.sums.as_slice()[first as usize + n];
        let found = crc(unit);
        if found != wanted {
            return Err(format!(
                "checksum {found:08x}, expected {wanted:08x}, of unit {} of {extent:?}",
                first as usize + n
            ));
        }
    }
    bytes.drain(..(skip - begin) as usize);
    bytes.truncate(len as usize);
    Ok(bytes)
}

/// Decompresses units from `first` on.
fn unpack(
    device: &Arc<dyn Device>,
    extent: &Extent,
    packed: &Packed,
    first: usize,
    bytes: &mut [u8],
) -> Result<(), String> {
    if packed.run_len() != extent.run_len {
        return Err(format!("a run of two lengths: {extent:?}"));
    }
    let mut packer = Packer::default();
    for (unit, plain) in (first..).zip(bytes.chunks_mut(UNIT as usize)) {
        let mut stored = vec![0; packed.len_of(unit) as usize];
        let at = extent.run_offset + u64::from(packed.start(unit));
        device.read_at(at, &mut stored).map_err(|e| e.to_string())?;
        packer.unpack_unit(packed, unit, &stored, plain).map_err(|e| format!("{e} in unit {unit} of {extent:?}"))?;
    }
    Ok(())
}
