//! Attributes: HDF5's values as JSON, and JSON as attributes that any HDF5 program reads.
//!
//! A value without an HDF5 type of its own (null, objects, mixed or nested lists) is kept as text: `json:` and the JSON. So are
//! lists of no or one element, since netCDF takes an HDF5 array of one element for a single value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cenote_hdf5::message::{Kind, Type};
use cenote_hdf5::meta::attrs::Attr;
use cenote_hdf5::space::Extent;
use cenote_hdf5::value::Stored;
use serde_json::{Value, json};

use crate::dtype::{Dtype, Elem, float_json, float_of, int_json};

/// Prefix of values kept as text.
const AS_TEXT: &str = "json:";
/// Mark of HDF5's conversion for ids of parts in the record itself.
const HEAP_MARK: u8 = 1;
const ID_BYTES: usize = 16;

/// Returns true for attributes that Zarr expresses in another way, or that refer to HDF5's objects.
pub fn is_hidden(name: &[u8]) -> bool {
    matches!(
        name,
        b"CLASS"
            | b"NAME"
            | b"DIMENSION_LIST"
            | b"REFERENCE_LIST"
            | b"DIMENSION_LABELS"
            | b"_Netcdf4Dimid"
            | b"_Netcdf4Coordinates"
            | b"_nc3_strict"
            | b"_NCProperties"
    )
}

/// An attribute's value as JSON; `None` if it has no counterpart (references, damaged values).
pub fn to_json(attr: &Attr) -> Option<Value> {
    let dtype = Type::parse(&attr.dtype)?;
    if attr.extent == Extent::Null {
        return Some(Value::Null);
    }
    let count = usize::try_from(attr.extent.counted()?).ok()?;
    let bytes = usize::try_from(dtype.stored_bytes()?).ok().filter(|bytes| *bytes > 0)?;
    let zeros;
    let stored = if let Some(stored) = &attr.value {
        stored
    } else {
        zeros = Stored { elements: vec![0; count.checked_mul(bytes)?], heap: Vec::new() };
        &zeros
    };
    if stored.elements.len() != count.checked_mul(bytes)? {
        return None;
    }
    let mut values = Vec::with_capacity(count);
    for element in stored.elements.chunks_exact(bytes) {
        values.push(element_json(&dtype, element, &stored.heap)?);
    }
    // netCDF writes a single value as a list of one.
    let value = match &attr.extent {
        Extent::Simple { dims, .. } if dims.len() != 1 || count != 1 => nested(&mut values.into_iter(), dims),
        _ => values.pop()?,
    };
    Some(match value.as_str().and_then(|text| text.strip_prefix(AS_TEXT)) {
        Some(text) => serde_json::from_str(text).unwrap_or(value),
        None => value,
    })
}

fn nested(values: &mut impl Iterator<Item = Value>, dims: &[u64]) -> Value {
    match dims.split_first() {
        None => values.next().unwrap_or(Value::Null),
        Some((n, rest)) => (0..*n).map(|_| nested(values, rest)).collect(),
    }
}

fn element_json(dtype: &Type, bytes: &[u8], heap: &[u8]) -> Option<Value> {
    match &dtype.kind {
        Kind::VarText => Some(json!(String::from_utf8_lossy(part(bytes, heap)?))),
        Kind::Text { padding } => {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            let text = String::from_utf8_lossy(&bytes[..end]);
            Some(json!(if *padding == 2 { text.trim_end_matches(' ') } else { &text }))
        }
        Kind::Sequence(of) => {
            let each = usize::try_from(of.stored_bytes()?).ok().filter(|each| *each > 0)?;
            part(bytes, heap)?.chunks_exact(each).map(|one| element_json(of, one, heap)).collect()
        }
        Kind::Array(dims, of) => {
            let each = usize::try_from(of.stored_bytes()?).ok().filter(|each| *each > 0)?;
            let values: Option<Vec<Value>> = bytes.chunks_exact(each).map(|one| element_json(of, one, heap)).collect();
            Some(nested(&mut values?.into_iter(), dims))
        }
        Kind::Integer { is_signed, is_big, .. } => Some(int_json(bytes, *is_signed, *is_big)),
        Kind::Float { is_big, is_ieee: true } => Some(float_json(float_of(bytes, *is_big))),
        Kind::Opaque { .. } => Some(json!(BASE64.encode(bytes))),
        Kind::Compound(members)
            if Dtype::of(dtype).is_err() || !matches!(Dtype::of(dtype).ok()?.elem, Elem::Complex(..)) =>
        {
            let field = |member: &cenote_hdf5::message::Member| {
                let at = usize::try_from(member.offset).ok()?;
                let end = at.checked_add(usize::try_from(member.of.stored_bytes()?).ok()?)?;
                Some((member.name.clone(), element_json(&member.of, bytes.get(at..end)?, heap)?))
            };
            members.iter().map(field).collect::<Option<serde_json::Map<_, _>>>().map(Value::Object)
        }
        Kind::Reference(_) => None,
        _ => Dtype::of(dtype).ok().map(|dtype| dtype.elem.to_json(bytes)),
    }
}

/// The variable-length part that an element names.
fn part<'a>(element: &[u8], heap: &'a [u8]) -> Option<&'a [u8]> {
    let id = element.get(4..4 + ID_BYTES)?;
    if *id == [0; ID_BYTES] {
        return Some(&[]);
    }
    let word = |at: usize| u32::from_le_bytes([id[at], id[at + 1], id[at + 2], id[at + 3]]) as usize;
    heap.get(word(4)..word(4).checked_add(word(8))?).filter(|_| id[0] == HEAP_MARK)
}

/// Object numbers in an attribute of sequences of references: the first one of each element.
pub fn references(attr: &Attr) -> Option<Vec<Option<u64>>> {
    let dtype = Type::parse(&attr.dtype)?;
    match &dtype.kind {
        Kind::Sequence(of) if of.kind == Kind::Reference(0) => {}
        _ => return None,
    }
    let stored = attr.value.as_ref()?;
    let first = |element: &[u8]| Some(u64::from_le_bytes(part(element, &stored.heap)?.get(..8)?.try_into().ok()?));
    Some(stored.elements.chunks_exact(4 + ID_BYTES).map(first).collect())
}

/// A new attribute with this value: datatype, extent, elements.
pub fn of_json(value: &Value) -> Attr {
    let is_row = |list: &[Value]| list.len() > 1;
    let (dtype, extent, stored) = match value {
        Value::Bool(_) => (Type::boolean(), Extent::Scalar, plain(&Elem::Bool, std::slice::from_ref(value))),
        Value::String(text) if !text.starts_with(AS_TEXT) => (Type::var_text(), Extent::Scalar, strings(&[text])),
        Value::Number(_) => numbers(std::slice::from_ref(value), Extent::Scalar),
        Value::Array(list) if is_row(list) && list.iter().all(Value::is_number) => numbers(list, row(list.len())),
        Value::Array(list) if is_row(list) && list.iter().all(Value::is_boolean) => {
            (Type::boolean(), row(list.len()), plain(&Elem::Bool, list))
        }
        Value::Array(list) if is_row(list) && list.iter().all(Value::is_string) => {
            (Type::var_text(), row(list.len()), strings(&list.iter().filter_map(Value::as_str).collect::<Vec<_>>()))
        }
        other => (Type::var_text(), Extent::Scalar, strings(&[&format!("{AS_TEXT}{other}")])),
    };
    Attr { uid: 0, order: 0, cset: 1, dtype, committed: 0, extent, value: Some(stored) }
}

/// A number of the given type, which `_FillValue` shares with its array.
pub fn of_number(elem: &Elem, value: &Value) -> Option<Attr> {
    let (bytes, dtype) = (elem.of_json(value)?, elem.encode()?);
    let value = Some(Stored { elements: bytes, heap: Vec::new() });
    Some(Attr { uid: 0, order: 0, cset: 1, dtype, committed: 0, extent: Extent::Scalar, value })
}

/// A list of strings.
pub fn of_strings(texts: &[&str]) -> Attr {
    let value = Some(strings(texts));
    Attr { uid: 0, order: 0, cset: 1, dtype: Type::var_text(), committed: 0, extent: row(texts.len()), value }
}

fn row(len: usize) -> Extent {
    Extent::Simple { dims: vec![len as u64], max: vec![len as u64] }
}

fn numbers(list: &[Value], extent: Extent) -> (Vec<u8>, Extent, Stored) {
    let elem = if list.iter().all(Value::is_i64) {
        Elem::Int(8, true, false)
    } else if list.iter().all(Value::is_u64) {
        Elem::Int(8, false, false)
    } else {
        Elem::Float(8, false)
    };
    (elem.encode().unwrap_or_default(), extent, plain(&elem, list))
}

fn plain(elem: &Elem, list: &[Value]) -> Stored {
    Stored {
        elements: list.iter().flat_map(|value| elem.of_json(value).unwrap_or_default()).collect(),
        heap: Vec::new(),
    }
}

fn strings(texts: &[&str]) -> Stored {
    let mut stored = Stored::default();
    for text in texts {
        let mut id = [0; ID_BYTES];
        id[0] = HEAP_MARK;
        id[4..8].copy_from_slice(&(stored.heap.len() as u32).to_le_bytes());
        id[8..12].copy_from_slice(&(text.len() as u32).to_le_bytes());
        stored.elements.extend_from_slice(&(text.len() as u32).to_le_bytes());
        stored.elements.extend_from_slice(&id);
        stored.heap.extend_from_slice(text.as_bytes());
    }
    stored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_comes_back_whatever_it_is() {
        let cases = json!([
            1, -7, 18_446_744_073_709_551_615u64, 1.5, true, false, "metres", "", "json:x", null, [], {}, [7], ["a"], [1, 2, 3], [1.5, 2],
            ["a", "b"], [true, false], [1, "a"], [[1, 2], [3, 4]], {"a": [1, null], "b": "c"}
        ]);
        for case in cases.as_array().unwrap() {
            let back = to_json(&of_json(case)).unwrap();
            let same = match (case, &back) {
                (Value::Array(a), Value::Array(b)) if a.iter().all(Value::is_number) => {
                    a.iter().map(Value::as_f64).eq(b.iter().map(Value::as_f64))
                }
                _ => *case == back,
            };
            assert!(same, "{case} came back as {back}");
        }
    }

    #[test]
    fn damaged_values_have_no_counterpart() {
        let mut attr = of_json(&json!("metres"));
        if let Some(value) = &mut attr.value {
            value.heap.truncate(2);
        }
        assert_eq!(to_json(&attr), None);
        attr.dtype.truncate(5);
        assert_eq!(to_json(&attr), None);
    }
}
