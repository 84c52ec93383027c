//! Datatypes as text for people.

use crate::message::{Kind, Type};

/// A datatype as text: `int32`, `float64 big-endian`, `string`, `{x: float32, y: float32}`, …
pub fn text(encoded: &[u8]) -> String {
    Type::parse(encoded).map_or_else(|| "damaged".to_owned(), |dtype| of(&dtype))
}

fn of(dtype: &Type) -> String {
    let bits = dtype.size * 8;
    let order = |is_big: bool| if is_big && dtype.size > 1 { " big-endian" } else { "" };
    match &dtype.kind {
        Kind::Integer { is_signed: true, is_big, .. } => format!("int{bits}{}", order(*is_big)),
        Kind::Integer { is_big, .. } => format!("uint{bits}{}", order(*is_big)),
        Kind::Bits { is_big } => format!("bits{bits}{}", order(*is_big)),
        Kind::Float { is_big, .. } => format!("float{bits}{}", order(*is_big)),
        Kind::Time { is_big } => format!("time{bits}{}", order(*is_big)),
        Kind::Text { .. } => format!("string of {}", dtype.size),
        Kind::Opaque { .. } => format!("opaque of {}", dtype.size),
        Kind::Compound(members) => {
            let fields: Vec<String> = members.iter().map(|m| format!("{}: {}", m.name, of(&m.of))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Kind::Reference(0) => "object reference".to_owned(),
        Kind::Reference(1) => "region reference".to_owned(),
        Kind::Reference(_) => "reference".to_owned(),
        Kind::Enumeration(base, members) => {
            let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
            format!("enum of {} ({})", of(base), names.join(", "))
        }
        Kind::VarText => "string".to_owned(),
        Kind::Sequence(base) => format!("sequence of {}", of(base)),
        Kind::Array(dims, base) => {
            let dims: Vec<String> = dims.iter().map(u64::to_string).collect();
            format!("[{}] of {}", dims.join(" x "), of(base))
        }
        Kind::Complex(base) => format!("complex of {}", of(base)),
        Kind::Other(class) => format!("class {class}, {} bytes", dtype.size),
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
