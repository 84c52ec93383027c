//! A change as bytes. Only nodes of one version exchange them.

use cenote_codec::{Decoder, Encode, Malformed};
use cenote_model::{DeviceId, DeviceKind, DeviceSpec, TierOptions};

/// A change of a home's files or devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change<'a> {
    /// A copy of everything begins: what the mirror has counts no more.
    Begin,
    /// The copy is complete.
    Complete,
    /// A log file is made, all zeros.
    Log { name: &'a str, capacity: u64 },
    /// Bytes of a log file.
    LogWrite { name: &'a str, offset: u64, bytes: &'a [u8] },
    /// A part of a new content of a file; the last one replaces the file.
    FilePart { name: &'a str, bytes: &'a [u8], is_last: bool },
    /// A file is removed.
    Remove { name: &'a str },
    /// A device is made.
    Device { id: DeviceId, spec: DeviceSpec },
    /// A device is removed.
    DeviceGone { id: DeviceId },
    /// Bytes of a device.
    Write { id: DeviceId, offset: u64, bytes: &'a [u8] },
    /// Bytes of a device are needed no more.
    Discard { id: DeviceId, offset: u64, len: u64 },
}

impl<'a> Change<'a> {
    /// Appends the change to a chunk.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Begin => out.put_u8(1),
            Self::Complete => out.put_u8(2),
            Self::Log { name, capacity } => {
                out.put_u8(3);
                out.put_bytes(name.as_bytes());
                out.put_u64(*capacity);
            }
            Self::LogWrite { name, offset, bytes } => {
                out.put_u8(4);
                out.put_bytes(name.as_bytes());
                out.put_u64(*offset);
                out.put_bytes(bytes);
            }
            Self::FilePart { name, bytes, is_last } => {
                out.put_u8(5);
                out.put_bytes(name.as_bytes());
                out.put_u8(u8::from(*is_last));
                out.put_bytes(bytes);
            }
            Self::Remove { name } => {
                out.put_u8(6);
                out.put_bytes(name.as_bytes());
            }
            Self::Device { id, spec } => {
                out.put_u8(7);
                out.put_u16(id.0);
                encode_spec(spec, out);
            }
            Self::DeviceGone { id } => {
                out.put_u8(8);
                out.put_u16(id.0);
            }
            Self::Write { id, offset, bytes } => {
                write_head(*id, *offset, bytes.len(), out);
                out.extend_from_slice(bytes);
            }
            Self::Discard { id, offset, len } => {
                out.put_u8(10);
                out.put_u16(id.0);
                out.put_u64(*offset);
                out.put_u64(*len);
            }
        }
    }
    /// Takes the next change of a chunk.
    pub fn decode(from: &mut Decoder<'a>) -> Result<Self, Malformed> {
        Ok(match from.u8()? {
            1 => Self::Begin,
            2 => Self::Complete,
            3 => Self::Log { name: name(from)?, capacity: from.u64()? },
            4 => Self::LogWrite { name: name(from)?, offset: from.u64()?, bytes: from.bytes()? },
            5 => {
                let (name, is_last) = (name(from)?, from.flag()?);
                Self::FilePart { name, bytes: from.bytes()?, is_last }
            }
            6 => Self::Remove { name: name(from)? },
            7 => Self::Device { id: DeviceId(from.u16()?), spec: decode_spec(from)? },
            8 => Self::DeviceGone { id: DeviceId(from.u16()?) },
            9 => Self::Write { id: DeviceId(from.u16()?), offset: from.u64()?, bytes: from.bytes()? },
            10 => Self::Discard { id: DeviceId(from.u16()?), offset: from.u64()?, len: from.u64()? },
            _ => return Err(Malformed("an unknown kind of change")),
        })
    }
}

/// Appends a write of `len` bytes up to the bytes themselves, which follow.
pub(super) fn write_head(id: DeviceId, offset: u64, len: usize, out: &mut Vec<u8>) {
    out.put_u8(9);
    out.put_u16(id.0);
    out.put_u64(offset);
    out.put_u32(len as u32);
}

fn name<'a>(from: &mut Decoder<'a>) -> Result<&'a str, Malformed> {
    std::str::from_utf8(from.bytes()?).map_err(|_| Malformed("a name that is no text"))
}

/// The path is left out: each node has its own.
fn encode_spec(spec: &DeviceSpec, out: &mut Vec<u8>) {
    out.put_u8(spec.kind as u8);
    out.put_bytes(spec.name.as_bytes());
    out.put_u64(spec.capacity_bytes);
    out.put_u16(spec.watermark_high_permille);
    out.put_u16(spec.watermark_low_permille);
    out.put_u16(spec.options.len() as u16);
    for (name, value) in spec.options.iter() {
        out.put_bytes(name.as_bytes());
        out.put_bytes(value.as_bytes());
    }
}

fn decode_spec(from: &mut Decoder<'_>) -> Result<DeviceSpec, Malformed> {
    let kind = DeviceKind::from_code(from.u8()?).ok_or(Malformed("an unknown kind of device"))?;
    let (name, capacity_bytes) = (from.text()?, from.u64()?);
    let (watermark_high_permille, watermark_low_permille) = (from.u16()?, from.u16()?);
    let mut options = TierOptions::default();
    for _ in 0..from.u16()? {
        let (name, value) = (from.text()?, from.text()?);
        options.set(&name, &value);
    }
    let path = std::path::PathBuf::new();
    Ok(DeviceSpec { name, kind, path, capacity_bytes, watermark_high_permille, watermark_low_permille, options })
}
