//! Data types: HDF5's and Zarr's names for the same bytes, and single values as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cenote_hdf5::message::{Kind, Type};
use serde_json::{Value, json};

/// A Zarr element type.
#[derive(Clone, PartialEq, Debug)]
pub enum Elem {
    /// A byte, 0 or 1.
    Bool,
    /// Size in bytes, signed, big-endian.
    Int(u8, bool, bool),
    /// Size in bytes, big-endian.
    Float(u8, bool),
    /// Size of both numbers in bytes, big-endian.
    Complex(u8, bool),
    /// A string of this many bytes, padded with NUL.
    Bytes(u32),
    /// This many bytes.
    Raw(u32),
    /// Adjacent fields.
    Record(Vec<(String, Elem)>),
    /// A string of any length; HDF5 stores these separately, so chunks are converted.
    Text,
}

/// A data type, with the dimensions that it adds after those of the dataset (an HDF5 array type).
#[derive(Clone, PartialEq, Debug)]
pub struct Dtype {
    /// The element.
    pub elem: Elem,
    /// Inner dimensions.
    pub inner: Vec<u64>,
}

impl Dtype {
    /// The data type of an HDF5 datatype; an error text if Zarr has no counterpart.
    pub fn of(dtype: &Type) -> Result<Self, String> {
        let mut inner = Vec::new();
        let mut base = dtype;
        while let Kind::Array(dims, of) = &base.kind {
            inner.extend_from_slice(dims);
            base = of;
        }
        let elem = Elem::of(base)?;
        if elem == Elem::Text && !inner.is_empty() {
            return Err("arrays of strings as elements have no counterpart".into());
        }
        Ok(Self { elem, inner })
    }
    /// Size of an element with its inner dimensions, in bytes; for strings, in HDF5's stored form.
    pub fn bytes(&self) -> u64 {
        self.elem.bytes() * self.inner.iter().product::<u64>()
    }
}

fn number_of(kind: &Kind, size: u64) -> Result<Elem, String> {
    match *kind {
        Kind::Integer { is_signed, is_big, bits, offset } if matches!(size, 1 | 2 | 4 | 8) => {
            if (bits, offset) == (size * 8, 0) {
                Ok(Elem::Int(size as u8, is_signed, is_big && size > 1))
            } else {
                Err(format!("integers of {bits} bits in {size} bytes have no counterpart"))
            }
        }
        Kind::Bits { is_big } if matches!(size, 1 | 2 | 4 | 8) => Ok(Elem::Int(size as u8, false, is_big && size > 1)),
        Kind::Float { is_big, is_ieee: true } => Ok(Elem::Float(size as u8, is_big)),
        Kind::Float { .. } => Err(format!("floating-point numbers of {size} bytes that are not IEEE's")),
        Kind::Integer { .. } | Kind::Bits { .. } => Err(format!("integers of {size} bytes have no counterpart")),
        _ => Err("it is no number".into()),
    }
}

impl Elem {
    fn of(dtype: &Type) -> Result<Self, String> {
        match &dtype.kind {
            Kind::Integer { .. } | Kind::Bits { .. } | Kind::Float { .. } => number_of(&dtype.kind, dtype.size),
            Kind::Text { padding: 2 } => Err("strings padded with spaces have no counterpart".into()),
            Kind::Text { .. } => Ok(Self::Bytes(dtype.size as u32)),
            Kind::Opaque { .. } => Ok(Self::Raw(dtype.size as u32)),
            Kind::Enumeration(base, names) => {
                let is_bool = base.size == 1
                    && names.len() == 2
                    && names.iter().all(|(name, value)| match &name.to_ascii_uppercase()[..] {
                        "FALSE" => value == &[0],
                        "TRUE" => value == &[1],
                        _ => false,
                    });
                if is_bool { Ok(Self::Bool) } else { number_of(&base.kind, base.size) }
            }
            Kind::Complex(base) => match number_of(&base.kind, base.size)? {
                Self::Float(bytes @ (4 | 8), is_big) => Ok(Self::Complex(bytes * 2, is_big)),
                _ => Err("complex numbers of this precision have no counterpart".into()),
            },
            Kind::Compound(members) => Self::record(members, dtype.size),
            Kind::VarText => Ok(Self::Text),
            Kind::Sequence(_) => Err("sequences of variable length have no counterpart".into()),
            Kind::Reference(_) => Err("references mean objects of the HDF5 file".into()),
            Kind::Time { .. } | Kind::Array(..) | Kind::Other(_) => Err("this datatype has no counterpart".into()),
        }
    }
    fn record(members: &[cenote_hdf5::message::Member], size: u64) -> Result<Self, String> {
        let (mut fields, mut at) = (Vec::new(), 0);
        for member in members {
            if member.offset != at {
                return Err(format!("field `{}` is not right behind the one before it", member.name));
            }
            let elem = Self::of(&member.of).map_err(|why| format!("field `{}`: {why}", member.name))?;
            if elem == Self::Text {
                return Err(format!("field `{}` is a string of variable length", member.name));
            }
            at += elem.bytes();
            fields.push((member.name.clone(), elem));
        }
        if at != size {
            return Err("there is room behind its last field".into());
        }
        match &fields[..] {
            [(r, Self::Float(a, big)), (i, Self::Float(b, other))]
                if r == "r" && i == "i" && a == b && big == other && matches!(a, 4 | 8) =>
            {
                return Ok(Self::Complex(a * 2, *big));
            }
            _ => {}
        }
        if fields.iter().any(|(_, elem)| elem.is_big()) {
            return Err("its fields are big-endian".into());
        }
        Ok(Self::Record(fields))
    }
    /// Size in bytes; for strings, in HDF5's stored form.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Bool => 1,
            Self::Int(bytes, ..) | Self::Float(bytes, _) | Self::Complex(bytes, _) => u64::from(*bytes),
            Self::Bytes(n) | Self::Raw(n) => u64::from(*n),
            Self::Record(fields) => fields.iter().map(|(_, elem)| elem.bytes()).sum(),
            Self::Text => 20,
        }
    }
    /// Returns true if the most significant byte comes first.
    pub fn is_big(&self) -> bool {
        matches!(self, Self::Int(_, _, true) | Self::Float(_, true) | Self::Complex(_, true))
    }
    /// Returns true if byte order matters.
    pub fn has_order(&self) -> bool {
        match self {
            Self::Int(bytes, ..) => *bytes > 1,
            Self::Float(..) | Self::Complex(..) | Self::Record(_) => true,
            _ => false,
        }
    }
    /// The name in format 3.
    pub fn v3(&self) -> Value {
        match self {
            Self::Bool => json!("bool"),
            Self::Int(bytes, signed, _) => json!(format!("{}int{}", if *signed { "" } else { "u" }, bytes * 8)),
            Self::Float(bytes, _) => json!(format!("float{}", bytes * 8)),
            Self::Complex(bytes, _) => json!(format!("complex{}", u32::from(*bytes) * 8)),
            Self::Bytes(n) => json!({"name": "null_terminated_bytes", "configuration": {"length_bytes": n}}),
            Self::Raw(n) => json!({"name": "raw_bytes", "configuration": {"length_bytes": n}}),
            Self::Record(fields) => {
                let fields: Vec<Value> = fields.iter().map(|(name, elem)| json!([name, elem.v3()])).collect();
                json!({"name": "structured", "configuration": {"fields": fields}})
            }
            Self::Text => json!("string"),
        }
    }
    /// The name in format 2, which is NumPy's.
    pub fn v2(&self) -> Value {
        let order = |is_big: bool, bytes: u8| match (bytes, is_big) {
            (1, _) => '|',
            (_, true) => '>',
            (_, false) => '<',
        };
        match self {
            Self::Bool => json!("|b1"),
            Self::Int(bytes, signed, big) => {
                json!(format!("{}{}{bytes}", order(*big, *bytes), if *signed { 'i' } else { 'u' }))
            }
            Self::Float(bytes, big) => json!(format!("{}f{bytes}", order(*big, *bytes))),
            Self::Complex(bytes, big) => json!(format!("{}c{bytes}", order(*big, *bytes))),
            Self::Bytes(n) => json!(format!("|S{n}")),
            Self::Raw(n) => json!(format!("|V{n}")),
            Self::Record(fields) => fields.iter().map(|(name, elem)| json!([name, elem.v2()])).collect(),
            Self::Text => json!("|O"),
        }
    }
    /// A value as a Zarr fill value.
    pub fn to_json(&self, bytes: &[u8]) -> Value {
        match self {
            Self::Bool => json!(bytes.first().is_some_and(|byte| *byte != 0)),
            Self::Int(_, signed, big) => int_json(bytes, *signed, *big),
            Self::Float(_, big) => float_json(float_of(bytes, *big)),
            Self::Complex(_, big) => {
                let (re, im) = bytes.split_at(bytes.len() / 2);
                json!([float_json(float_of(re, *big)), float_json(float_of(im, *big))])
            }
            Self::Bytes(_) | Self::Raw(_) | Self::Record(_) => json!(BASE64.encode(bytes)),
            Self::Text => json!(""),
        }
    }
    /// The bytes of a fill value; `None` if it is not a value of this type.
    pub fn of_json(&self, value: &Value) -> Option<Vec<u8>> {
        let ordered = |mut little: Vec<u8>, big: bool| {
            if big {
                little.reverse();
            }
            Some(little)
        };
        match self {
            Self::Bool => Some(vec![u8::from(value.as_bool().or_else(|| value.as_i64().map(|v| v != 0))?)]),
            Self::Int(bytes, _, big) => {
                let number = value
                    .as_i64()
                    .map(|v| v as u64)
                    .or_else(|| value.as_u64())
                    .or_else(|| value.as_f64().filter(|v| v.fract() == 0.0).map(|v| v as i64 as u64))?;
                ordered(number.to_le_bytes()[..usize::from(*bytes)].to_vec(), *big)
            }
            Self::Float(bytes, big) => ordered(float_bytes(value, *bytes)?, *big),
            Self::Complex(bytes, big) => {
                let [re, im] = &value.as_array()?[..] else { return None };
                let part = |value| ordered(float_bytes(value, bytes / 2)?, *big);
                Some([part(re)?, part(im)?].concat())
            }
            Self::Bytes(n) | Self::Raw(n) => {
                let mut bytes = BASE64.decode(value.as_str()?).ok().filter(|bytes| bytes.len() <= *n as usize)?;
                bytes.resize(*n as usize, 0);
                Some(bytes)
            }
            Self::Record(_) => BASE64.decode(value.as_str()?).ok().filter(|bytes| bytes.len() as u64 == self.bytes()),
            Self::Text => (value.as_str() == Some("")).then(Vec::new),
        }
    }
    /// The encoded HDF5 datatype; `None` for types without a fixed length.
    pub fn encode(&self) -> Option<Vec<u8>> {
        Some(match self {
            Self::Bool => Type::boolean(),
            Self::Int(bytes, signed, big) => Type::integer(*bytes, *signed, *big),
            Self::Float(bytes, big) => Type::float(*bytes, *big)?,
            Self::Complex(bytes, big) => {
                let part = Type::float(bytes / 2, *big)?;
                let each = u32::from(bytes / 2);
                Type::compound(&[("r", &part, each), ("i", &part, each)])
            }
            Self::Bytes(n) => Type::text(*n),
            Self::Raw(n) => Type::opaque(*n),
            Self::Record(fields) => {
                let parts: Vec<(&str, Vec<u8>, u32)> = fields
                    .iter()
                    .map(|(name, elem)| Some((name.as_str(), elem.encode()?, elem.bytes() as u32)))
                    .collect::<Option<_>>()?;
                let parts: Vec<(&str, &[u8], u32)> = parts.iter().map(|(n, d, b)| (*n, &d[..], *b)).collect();
                Type::compound(&parts)
            }
            Self::Text => return None,
        })
    }
}

/// An integer of up to eight bytes.
pub fn int_json(bytes: &[u8], is_signed: bool, is_big: bool) -> Value {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    for (to, i) in word.iter_mut().zip(0..len) {
        *to = bytes[if is_big { len - 1 - i } else { i }];
    }
    let value = u64::from_le_bytes(word);
    if !is_signed {
        return json!(value);
    }
    let unused = 64 - 8 * len as u32;
    json!(((value << unused) as i64) >> unused)
}

/// A number of 2, 4 or 8 bytes.
pub fn float_of(bytes: &[u8], is_big: bool) -> f64 {
    let mut bytes = bytes.to_vec();
    if is_big {
        bytes.reverse();
    }
    let word = |n: usize| bytes.iter().take(n).rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    match bytes.len() {
        2 => half(word(2) as u16),
        4 => f64::from(f32::from_bits(word(4) as u32)),
        8 => f64::from_bits(word(8)),
        _ => f64::NAN,
    }
}

fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + mantissa / 1024.0) * 2f64.powi(exponent - 15),
    }
}

fn half_bits(value: f64) -> Option<u16> {
    // There are few half-precision numbers: search for the value.
    let sign = u16::from(value.is_sign_negative()) << 15;
    (0..=0x7e00u16).map(|bits| bits | sign).find(|bits| {
        let found = half(*bits);
        found.to_bits() == value.to_bits() || (found.is_nan() && value.is_nan())
    })
}

/// A floating-point number as Zarr writes it.
pub fn float_json(value: f64) -> Value {
    if value.is_nan() {
        json!("NaN")
    } else if value.is_infinite() {
        json!(if value > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        json!(value)
    }
}

/// Little-endian bytes of a floating-point number.
fn float_bytes(value: &Value, bytes: u8) -> Option<Vec<u8>> {
    if let Some(hex) = value.as_str().and_then(|text| text.strip_prefix("0x")) {
        let bits = u64::from_str_radix(hex, 16).ok().filter(|_| hex.len() == 2 * usize::from(bytes))?;
        return Some(bits.to_le_bytes()[..usize::from(bytes)].to_vec());
    }
    let number = match value.as_str() {
        Some("NaN") => f64::NAN,
        Some("Infinity") => f64::INFINITY,
        Some("-Infinity") => f64::NEG_INFINITY,
        Some(_) => return None,
        None => value.as_f64()?,
    };
    Some(match bytes {
        2 => half_bits(number)?.to_le_bytes().to_vec(),
        4 => (number as f32).to_le_bytes().to_vec(),
        _ => number.to_le_bytes().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Elem> {
        let mut all = vec![Elem::Bool, Elem::Bytes(7), Elem::Raw(3)];
        for big in [false, true] {
            all.extend([1, 2, 4, 8].map(|bytes| Elem::Int(bytes, true, big && bytes > 1)));
            all.extend([1, 2, 4, 8].map(|bytes| Elem::Int(bytes, false, big && bytes > 1)));
            all.extend([2, 4, 8].map(|bytes| Elem::Float(bytes, big)));
            all.extend([8, 16].map(|bytes| Elem::Complex(bytes, big)));
        }
        all.push(Elem::Record(vec![("a".into(), Elem::Int(2, true, false)), ("b".into(), Elem::Bytes(3))]));
        all
    }

    #[test]
    fn every_type_comes_back_from_hdf5() {
        for elem in all() {
            let dtype = Type::parse(&elem.encode().unwrap()).unwrap();
            assert_eq!(Dtype::of(&dtype), Ok(Dtype { elem: elem.clone(), inner: vec![] }));
            assert_eq!(dtype.size, elem.bytes());
        }
    }

    #[test]
    fn values_come_back_from_json() {
        for elem in all().into_iter().filter(|elem| *elem != Elem::Bool) {
            let pattern: Vec<u8> = (0..elem.bytes()).map(|i| 0x31 + i as u8).collect();
            assert_eq!(elem.of_json(&elem.to_json(&pattern)), Some(pattern), "{elem:?}");
        }
        for special in ["NaN", "Infinity", "-Infinity"] {
            for bytes in [2, 4, 8] {
                let elem = Elem::Float(bytes, false);
                assert_eq!(elem.to_json(&elem.of_json(&json!(special)).unwrap()), json!(special));
            }
        }
        assert_eq!(Elem::Int(8, true, false).to_json(&[0xff; 8]), json!(-1));
        assert_eq!(Elem::Int(8, false, false).to_json(&[0xff; 8]), json!(u64::MAX));
    }
}
