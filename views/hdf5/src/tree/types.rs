//! Datatypes as people write them, from their stored encoding alone.
//!
//! What `H5Tencode` makes is the datatype message of the HDF5 file format (two bytes before it say so), which HDF5 never
//! changes. Damaged bytes give "damaged", never a panic.

use std::fmt::Write;

/// Nesting that anybody would read.
const DEPTH_MAX: u32 = 16;

/// A datatype as text: `int32`, `float64 big-endian`, `string`, `{x: float32, y: float32}`, …
pub fn text(encoded: &[u8]) -> String {
    let message = encoded.strip_prefix(&[3, 0]).or_else(|| encoded.get(2..)).unwrap_or_default();
    let mut reader = Reader { rest: message };
    reader.dtype(0).unwrap_or_else(|| "damaged".to_owned())
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(head)
    }
    fn number(&mut self, bytes: usize) -> Option<u64> {
        Some(self.take(bytes)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }
    /// A name, which ends in NUL, and up to version 2 is padded to a multiple of 8.
    fn name(&mut self, version: u8) -> Option<String> {
        let len = self.rest.iter().position(|byte| *byte == 0)?;
        let name = String::from_utf8_lossy(&self.rest[..len]).into_owned();
        self.take(if version < 3 { (len + 1).next_multiple_of(8) } else { len + 1 })?;
        Some(name)
    }

    fn dtype(&mut self, depth: u32) -> Option<String> {
        if depth > DEPTH_MAX {
            return Some("…".to_owned());
        }
        let head = self.take(4)?;
        let (class, version) = (head[0] & 15, head[0] >> 4);
        let bits = u32::from(head[1]) | u32::from(head[2]) << 8 | u32::from(head[3]) << 16;
        let size = self.number(4)?;
        let order = if bits & 1 != 0 && size > 1 { " big-endian" } else { "" };
        Some(match class {
            0 | 4 => {
                self.take(4)?;
                let kind = if class == 4 {
                    "bits"
                } else if bits & 8 != 0 {
                    "int"
                } else {
                    "uint"
                };
                format!("{kind}{}{order}", size * 8)
            }
            1 => {
                self.take(12)?;
                format!("float{}{order}", size * 8)
            }
            2 => {
                self.take(2)?;
                format!("time{}{order}", size * 8)
            }
            3 => format!("string of {size}"),
            5 => {
                self.take((bits & 255) as usize)?;
                format!("opaque of {size}")
            }
            6 => self.compound(version, bits & 0xffff, size, depth)?,
            7 => match bits & 15 {
                0 => "object reference".to_owned(),
                1 => "region reference".to_owned(),
                _ => "reference".to_owned(),
            },
            8 => self.members(version, bits & 0xffff, depth)?,
            9 => {
                let base = self.dtype(depth + 1)?;
                if bits & 15 == 1 { "string".to_owned() } else { format!("sequence of {base}") }
            }
            10 => {
                let rank = self.number(1)?;
                if version < 3 {
                    self.take(3)?;
                }
                let dims: Option<Vec<String>> = (0..rank).map(|_| Some(self.number(4)?.to_string())).collect();
                if version < 3 {
                    self.take(4 * rank as usize)?;
                }
                let dims = dims?.join(" x ");
                format!("[{dims}] of {}", self.dtype(depth + 1)?)
            }
            11 => format!("complex of {}", self.dtype(depth + 1)?),
            other => format!("class {other}, {size} bytes"),
        })
    }

    fn compound(&mut self, version: u8, count: u32, size: u64, depth: u32) -> Option<String> {
        // Offsets have as many bytes as the size needs.
        let offset_bytes = if version < 3 { 4 } else { (8 - (size.leading_zeros() / 8) as usize).max(1) };
        let mut out = String::from("{");
        for i in 0..count {
            let name = self.name(version)?;
            self.number(offset_bytes)?;
            let mut rank = 0;
            let mut dims = Vec::new();
            if version == 1 {
                rank = self.number(1)?;
                self.take(3 + 4 + 4)?;
                for _ in 0..4 {
                    dims.push(self.number(4)?.to_string());
                }
            }
            dims.truncate(rank as usize);
            let dims = if dims.is_empty() { String::new() } else { format!("[{}] of ", dims.join(" x ")) };
            let member = self.dtype(depth + 1)?;
            let comma = if i == 0 { "" } else { ", " };
            write!(out, "{comma}{name}: {dims}{member}").ok()?;
        }
        out.push('}');
        Some(out)
    }

    fn members(&mut self, version: u8, count: u32, depth: u32) -> Option<String> {
        let base = self.dtype(depth + 1)?;
        let names: Option<Vec<String>> = (0..count).map(|_| self.name(version)).collect();
        Some(format!("enum of {base} ({})", names?.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As HDF5 2.0 encodes them.
    const INT32: &[u8] = &[3, 0, 0x10, 8, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0];
    const STRING: &[u8] = &[3, 0, 0x19, 1, 1, 0, 16, 0, 0, 0, 0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0];

    #[test]
    fn datatypes_are_told_in_words() {
        assert_eq!(text(INT32), "int32");
        assert_eq!(text(STRING), "string");
    }

    #[test]
    fn every_prefix_and_every_changed_byte_is_survived() {
        for whole in [INT32, STRING] {
            for n in 0..whole.len() {
                text(&whole[..n]);
                for value in 0..=255 {
                    let mut bytes = whole.to_vec();
                    bytes[n] = value;
                    text(&bytes);
                }
            }
        }
        assert_eq!(text(&INT32[..6]), "damaged");
    }
}
