//! Zarr's metadata documents, made from records.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cenote::Result;
use cenote_hdf5::file::Core;
use cenote_hdf5::meta::attrs as records;
use serde_json::{Map, Value, json};

use crate::attrs;
use crate::codecs::Sharing;
use crate::dtype::Elem;
use crate::node::Array;

/// The attribute for names of dimensions in format 2 (xarray's).
pub const V2_DIMENSIONS: &str = "_ARRAY_DIMENSIONS";
const FILL_VALUE: &str = "_FillValue";

/// The attributes of an object that have a counterpart.
pub fn attributes(core: &Core, oid: u64) -> Result<Map<String, Value>> {
    let mut out = Map::new();
    for (name, attr) in records::list(core, oid)? {
        if attrs::is_hidden(&name) {
            continue;
        }
        let Ok(name) = String::from_utf8(name) else { continue };
        if let Some(value) = attrs::to_json(&attr) {
            out.insert(name, value);
        }
    }
    Ok(out)
}

/// The attributes of an array. In format 3, `_FillValue` of floating-point numbers is encoded as
/// xarray writes it.
pub fn array_attributes(array: &Array, is_v3: bool) -> Result<Map<String, Value>> {
    let mut out = attributes(&array.core, array.oid)?;
    if let (true, Elem::Float(..), Some(value)) = (is_v3, &array.dtype.elem, out.get_mut(FILL_VALUE))
        && let Some(bytes) = Elem::Float(8, false).of_json(value)
    {
        *value = json!(BASE64.encode(bytes));
    }
    Ok(out)
}

/// Decodes a `_FillValue` that xarray wrote in format 3 into a number.
pub fn plain_fill_value(name: &str, value: &Value, elem: &Elem) -> Option<Value> {
    if name != FILL_VALUE || !matches!(elem, Elem::Float(..)) {
        return None;
    }
    let bytes = BASE64.decode(value.as_str()?).ok().filter(|bytes| bytes.len() == 8)?;
    Some(Elem::Float(8, false).to_json(&bytes))
}

/// `zarr.json` of a group.
pub fn group_v3(attributes: &Map<String, Value>) -> Value {
    json!({"zarr_format": 3, "node_type": "group", "attributes": attributes})
}

fn fill(array: &Array) -> Value {
    let elem = &array.dtype.elem;
    let zeros = vec![0; elem.bytes() as usize];
    let bytes = array.data.fill.as_ref().and_then(|fill| fill.get(..zeros.len())).unwrap_or(&zeros);
    elem.to_json(bytes)
}

/// `zarr.json` of an array.
pub fn array_v3(array: &Array, attributes: &Map<String, Value>, names: Option<Vec<Option<String>>>) -> Value {
    let mut codecs = vec![match (&array.dtype.elem, array.has_order()) {
        (Elem::Text, _) => json!({"name": "vlen-utf8", "configuration": {}}),
        (elem, true) => {
            json!({"name": "bytes", "configuration": {"endian": if elem.is_big() { "big" } else { "little" }}})
        }
        _ => json!({"name": "bytes"}),
    }];
    if let Sharing::Shared(shared) = &array.sharing {
        codecs.extend(shared.iter().map(crate::codecs::Codec::v3));
    }
    let mut doc = json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": array.shape(),
        "data_type": array.dtype.elem.v3(),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": array.chunk_shape()}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill(array),
        "codecs": codecs,
        "attributes": attributes,
    });
    if let Some(names) = names {
        let mut names: Vec<Value> = names.into_iter().map(|name| json!(name)).collect();
        names.resize(array.shape().len(), Value::Null);
        doc["dimension_names"] = json!(names);
    }
    doc
}

/// `.zarray`.
pub fn array_v2(array: &Array) -> Value {
    let mut filters: Vec<Value> = Vec::new();
    let mut compressor = Value::Null;
    if array.dtype.elem == Elem::Text {
        filters.push(json!({"id": "vlen-utf8"}));
    } else if let Sharing::Shared(shared) = &array.sharing {
        filters = shared.iter().map(crate::codecs::Codec::v2).collect();
        if shared.last().is_some_and(crate::codecs::Codec::is_compressor) {
            compressor = filters.pop().unwrap_or_default();
        }
    }
    json!({
        "zarr_format": 2,
        "shape": array.shape(),
        "chunks": array.chunk_shape(),
        "dtype": array.dtype.elem.v2(),
        "compressor": compressor,
        // xarray takes elements of this value for missing values.
        "fill_value": if array.data.is_fill_set { fill(array) } else { Value::Null },
        "order": "C",
        "filters": if filters.is_empty() { Value::Null } else { json!(filters) },
        "dimension_separator": ".",
    })
}

/// `.zattrs` of an array, with the names of its dimensions.
pub fn attributes_v2(mut attributes: Map<String, Value>, names: Option<Vec<Option<String>>>) -> Value {
    if let Some(names) = names
        && names.iter().all(Option::is_some)
    {
        attributes.insert(V2_DIMENSIONS.into(), json!(names));
    }
    Value::Object(attributes)
}
