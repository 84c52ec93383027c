//! Parses datatypes from their stored encoding alone, without libhdf5.
//!
//! `H5Tencode` produces the datatype message of the HDF5 file format (preceded by two bytes that say so), which HDF5
//! never changes. Damaged bytes give `None`, never a panic.

use cenote_codec::Decoder;

/// Nesting that anybody would use.
const DEPTH_MAX: u32 = 16;
/// The bytes before an encoded datatype message.
const ENCODED: [u8; 2] = [3, 0];

/// A datatype.
#[derive(Clone, PartialEq, Debug)]
pub struct Type {
    /// Size of an element in bytes, as HDF5 counts it.
    pub size: u64,
    /// Its class.
    pub kind: Kind,
}

/// The class of a datatype.
#[allow(missing_docs, reason = "fields are told with their variant")]
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// An integer, of `bits` bits from bit 0 on unless `offset` says otherwise.
    Integer { is_signed: bool, is_big: bool, bits: u64, offset: u64 },
    /// A floating-point number; `is_ieee`: an IEEE 754 number of 16, 32 or 64 bits.
    Float { is_big: bool, is_ieee: bool },
    /// A time.
    Time { is_big: bool },
    /// A string of fixed length, with its padding (`H5T_STR_*`).
    Text { padding: u8 },
    /// A bit field.
    Bits { is_big: bool },
    /// Bytes with a tag.
    Opaque { tag: String },
    /// A compound of fields.
    Compound(Vec<Member>),
    /// A reference: 0 to an object, 1 to a region, others new.
    Reference(u8),
    /// An enumeration: the base type, names, values.
    Enumeration(Box<Type>, Vec<(String, Vec<u8>)>),
    /// A sequence of variable length.
    Sequence(Box<Type>),
    /// A string of variable length.
    VarText,
    /// An array of fixed dimensions.
    Array(Vec<u64>, Box<Type>),
    /// A complex number of two parts.
    Complex(Box<Type>),
    /// A class that this version does not know.
    Other(u8),
}

/// A field of a compound.
#[derive(Clone, PartialEq, Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Offset in bytes.
    pub offset: u64,
    /// Its type.
    pub of: Type,
}

impl Type {
    /// Parses an encoded datatype; `None` if it is damaged.
    pub fn parse(encoded: &[u8]) -> Option<Self> {
        let message = encoded.strip_prefix(&ENCODED).or_else(|| encoded.get(2..)).unwrap_or_default();
        Reader(Decoder::new(message)).dtype(0)
    }
    /// Size of an element in stored form, in bytes: a variable-length part is a count and a blob id.
    pub fn stored_bytes(&self) -> Option<u64> {
        const VARIABLE: u64 = 4 + crate::blob::ID_BYTES as u64;
        match &self.kind {
            Kind::Sequence(_) | Kind::VarText => Some(VARIABLE),
            Kind::Array(dims, of) => dims.iter().try_fold(of.stored_bytes()?, |all, dim| all.checked_mul(*dim)),
            Kind::Compound(members) if members.iter().any(|member| member.of.has_parts()) => None,
            _ => Some(self.size),
        }
    }
    /// Returns true if elements have variable-length parts.
    fn has_parts(&self) -> bool {
        match &self.kind {
            Kind::Sequence(_) | Kind::VarText => true,
            Kind::Reference(kind) => *kind > 1,
            Kind::Array(_, of) => of.has_parts(),
            Kind::Compound(members) => members.iter().any(|member| member.of.has_parts()),
            _ => false,
        }
    }

    /// An integer of `bytes` bytes.
    pub fn integer(bytes: u8, is_signed: bool, is_big: bool) -> Vec<u8> {
        let flags = u8::from(is_big) | u8::from(is_signed) << 3;
        encoded(0x10, [flags, 0, 0], u32::from(bytes), &[0, 0, bytes * 8, 0])
    }
    /// An IEEE number of 2, 4 or 8 bytes; `None` for other lengths.
    pub fn float(bytes: u8, is_big: bool) -> Option<Vec<u8>> {
        let (exponent, mantissa, bias) = ieee(u64::from(bytes))?;
        let bits = bytes * 8;
        let mut rest = vec![0, 0, bits, 0, mantissa, exponent, 0, mantissa];
        rest.extend_from_slice(&bias.to_le_bytes());
        Some(encoded(0x11, [0x20 | u8::from(is_big), bits - 1, 0], u32::from(bytes), &rest))
    }
    /// A string of fixed length, padded with NUL.
    pub fn text(bytes: u32) -> Vec<u8> {
        encoded(0x13, [1, 0, 0], bytes, &[])
    }
    /// Bytes without a tag.
    pub fn opaque(bytes: u32) -> Vec<u8> {
        encoded(0x15, [0, 0, 0], bytes, &[])
    }
    /// A UTF-8 string of variable length.
    pub fn var_text() -> Vec<u8> {
        encoded(0x19, [1, 1, 0], 16, &encoded(0x10, [0, 0, 0], 1, &[0, 0, 8, 0])[2..])
    }
    /// h5py's boolean type: an enumeration.
    pub fn boolean() -> Vec<u8> {
        let mut rest = Self::integer(1, true, false)[2..].to_vec();
        rest.extend_from_slice(b"FALSE\0\0\0TRUE\0\0\0\0\0\x01");
        encoded(0x18, [2, 0, 0], 1, &rest)
    }
    /// Adjacent fields, each with its encoded datatype and size in bytes.
    pub fn compound(fields: &[(&str, &[u8], u32)]) -> Vec<u8> {
        let (mut rest, mut at) = (Vec::new(), 0u32);
        for (name, dtype, bytes) in fields {
            rest.extend_from_slice(name.as_bytes());
            rest.resize(rest.len() + (name.len() + 1).next_multiple_of(8) - name.len(), 0);
            rest.extend_from_slice(&at.to_le_bytes());
            rest.extend_from_slice(&[0; 28]);
            rest.extend_from_slice(&dtype[2..]);
            at += bytes;
        }
        let count = (fields.len() as u16).to_le_bytes();
        encoded(0x16, [count[0], count[1], 0], at, &rest)
    }
}

fn encoded(class_and_version: u8, flags: [u8; 3], bytes: u32, rest: &[u8]) -> Vec<u8> {
    let mut out = ENCODED.to_vec();
    out.push(class_and_version);
    out.extend_from_slice(&flags);
    out.extend_from_slice(&bytes.to_le_bytes());
    out.extend_from_slice(rest);
    out
}

/// Bits of the exponent and of the mantissa, and the bias, of an IEEE number.
fn ieee(bytes: u64) -> Option<(u8, u8, u32)> {
    match bytes {
        2 => Some((5, 10, 15)),
        4 => Some((8, 23, 127)),
        8 => Some((11, 52, 1023)),
        _ => None,
    }
}

struct Reader<'a>(Decoder<'a>);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        self.0.take(n).ok()
    }
    fn number(&mut self, bytes: usize) -> Option<u64> {
        self.0.uint(bytes).ok()
    }
    /// A name with its final NUL, padded to a multiple of 8 up to version 2.
    fn name(&mut self, version: u8) -> Option<String> {
        let rest = self.0.as_slice();
        let len = rest.iter().position(|byte| *byte == 0)?;
        let name = String::from_utf8_lossy(&rest[..len]).into_owned();
        self.take(if version < 3 { (len + 1).next_multiple_of(8) } else { len + 1 })?;
        Some(name)
    }

    fn dtype(&mut self, depth: u32) -> Option<Type> {
        if depth > DEPTH_MAX {
            return None;
        }
        let head = self.take(4)?;
        let (class, version) = (head[0] & 15, head[0] >> 4);
        let bits = u32::from(head[1]) | u32::from(head[2]) << 8 | u32::from(head[3]) << 16;
        let size = self.number(4)?;
        let is_big = bits & 1 != 0;
        let kind = match class {
            0 => {
                let (offset, count) = (self.number(2)?, self.number(2)?);
                Kind::Integer { is_signed: bits & 8 != 0, is_big, bits: count, offset }
            }
            1 => self.float(size, bits)?,
            2 => {
                self.take(2)?;
                Kind::Time { is_big }
            }
            3 => Kind::Text { padding: (bits & 15) as u8 },
            4 => {
                self.take(4)?;
                Kind::Bits { is_big }
            }
            5 => {
                let tag = self.take((bits & 255) as usize)?;
                let end = tag.iter().position(|byte| *byte == 0).unwrap_or(tag.len());
                Kind::Opaque { tag: String::from_utf8_lossy(&tag[..end]).into_owned() }
            }
            6 => Kind::Compound(self.members(version, bits & 0xffff, size, depth)?),
            7 => Kind::Reference((bits & 15) as u8),
            8 => {
                let base = self.dtype(depth + 1)?;
                let names: Vec<String> = (0..bits & 0xffff).map(|_| self.name(version)).collect::<Option<_>>()?;
                let bytes = base.size as usize;
                let named = names.into_iter().map(|name| Some((name, self.take(bytes)?.to_vec())));
                let named = named.collect::<Option<_>>()?;
                Kind::Enumeration(Box::new(base), named)
            }
            9 => {
                let base = Box::new(self.dtype(depth + 1)?);
                if bits & 15 == 1 { Kind::VarText } else { Kind::Sequence(base) }
            }
            10 => {
                let rank = self.number(1)?;
                if version < 3 {
                    self.take(3)?;
                }
                let dims = (0..rank).map(|_| self.number(4)).collect::<Option<_>>()?;
                if version < 3 {
                    self.take(4 * rank as usize)?;
                }
                Kind::Array(dims, Box::new(self.dtype(depth + 1)?))
            }
            11 => Kind::Complex(Box::new(self.dtype(depth + 1)?)),
            other => Kind::Other(other),
        };
        Some(Type { size, kind })
    }

    fn float(&mut self, size: u64, bits: u32) -> Option<Kind> {
        let (offset, count) = (self.number(2)?, self.number(2)?);
        let (exponent_at, exponent, mantissa_at) = (self.number(1)?, self.number(1)?, self.number(1)?);
        let (mantissa, bias) = (self.number(1)?, self.number(4)?);
        let is_ieee = ieee(size).is_some_and(|(e, m, b)| {
            (offset, count, exponent_at, mantissa_at) == (0, size * 8, u64::from(m), 0)
                && (exponent, mantissa, bias) == (u64::from(e), u64::from(m), u64::from(b))
                // Bit 6 means VAX byte order.
                && bits & 0x40 == 0
        });
        Some(Kind::Float { is_big: bits & 1 != 0, is_ieee })
    }

    fn members(&mut self, version: u8, count: u32, size: u64, depth: u32) -> Option<Vec<Member>> {
        // Offsets have as many bytes as the size needs.
        let offset_bytes = if version < 3 { 4 } else { (8 - (size.leading_zeros() / 8) as usize).max(1) };
        (0..count)
            .map(|_| {
                let name = self.name(version)?;
                let offset = self.number(offset_bytes)?;
                let mut dims = Vec::new();
                if version == 1 {
                    let rank = self.number(1)?;
                    self.take(3 + 4 + 4)?;
                    for _ in 0..4 {
                        dims.push(self.number(4)?);
                    }
                    dims.truncate(rank as usize);
                }
                let mut of = self.dtype(depth + 1)?;
                if !dims.is_empty() {
                    let bytes = dims.iter().try_fold(of.size, |all, dim| all.checked_mul(*dim))?;
                    of = Type { size: bytes, kind: Kind::Array(dims, Box::new(of)) };
                }
                Some(Member { name, offset, of })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_read_back() {
        let int = Type::parse(&Type::integer(4, true, true)).unwrap();
        assert_eq!(int.kind, Kind::Integer { is_signed: true, is_big: true, bits: 32, offset: 0 });
        for bytes in [2, 4, 8] {
            let float = Type::parse(&Type::float(bytes, false).unwrap()).unwrap();
            assert_eq!(float, Type { size: u64::from(bytes), kind: Kind::Float { is_big: false, is_ieee: true } });
        }
        assert_eq!(Type::parse(&Type::var_text()).unwrap().kind, Kind::VarText);
        assert_eq!(Type::parse(&Type::var_text()).unwrap().stored_bytes(), Some(20));
        let boolean = Type::parse(&Type::boolean()).unwrap();
        let Kind::Enumeration(_, names) = boolean.kind else { panic!("no enumeration") };
        assert_eq!(names, [("FALSE".into(), vec![0]), ("TRUE".into(), vec![1])]);
        let half = Type::float(4, false).unwrap();
        let complex = Type::parse(&Type::compound(&[("r", &half, 4), ("i", &half, 4)])).unwrap();
        let Kind::Compound(members) = complex.kind else { panic!("no compound") };
        assert_eq!((members[1].name.as_str(), members[1].offset, complex.size), ("i", 4, 8));
    }

    #[test]
    fn damaged_bytes_are_nothing() {
        let good = Type::compound(&[("x", &Type::integer(8, true, false), 8), ("name", &Type::text(5), 5)]);
        for n in 0..good.len() {
            assert!(Type::parse(&good[..n]).is_none(), "prefix of {n} bytes");
        }
    }
}
