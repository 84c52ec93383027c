//! Parses Zarr's metadata documents from a writer.

use cenote::Result;
use cenote_hdf5::props::Filter;
use serde_json::{Map, Value, json};

use crate::dtype::{Dtype, Elem};
use crate::{codecs, invalid, refused};

/// Most dimensions of an HDF5 dataset, and most filters.
const RANK_MAX: usize = 32;
/// Fields of an array's `zarr.json` that this version understands.
const V3_FIELDS: [&str; 11] = [
    "zarr_format",
    "node_type",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "attributes",
    "dimension_names",
    "storage_transformers",
];

/// An array as described by a document.
pub struct Spec {
    /// Shape.
    pub shape: Vec<u64>,
    /// Data type.
    pub dtype: Dtype,
    /// Shape of chunks.
    pub chunk: Vec<u64>,
    /// Filters with the same output as its codecs.
    pub filters: Vec<Filter>,
    /// Fill value; `None` for zeros.
    pub fill: Option<Vec<u8>>,
    /// Names of dimensions.
    pub names: Option<Vec<Option<String>>>,
    /// Attributes; `None` if the document does not contain them.
    pub attributes: Option<Map<String, Value>>,
}

/// A document of a node.
pub enum Doc {
    /// A group with its attributes; `None` if the document does not contain them.
    Group(Option<Map<String, Value>>),
    /// An array.
    Array(Box<Spec>),
}

fn numbers(value: &Value, what: &str) -> Result<Vec<u64>> {
    let list = value.as_array().ok_or_else(|| invalid("Zarr metadata", format!("{what} is no list")))?;
    list.iter()
        .map(|n| n.as_u64().ok_or_else(|| invalid("Zarr metadata", format!("{what} has {n}, which is no length"))))
        .collect()
}

/// Parses `zarr.json`.
pub fn v3(doc: &Value) -> Result<Doc> {
    if doc["zarr_format"] != json!(3) {
        return Err(invalid("zarr.json", "its zarr_format is not 3"));
    }
    let attributes = doc["attributes"].as_object().cloned().unwrap_or_default();
    match doc["node_type"].as_str() {
        Some("group") => Ok(Doc::Group(Some(attributes))),
        Some("array") => array_v3(doc, attributes).map(|spec| Doc::Array(Box::new(spec))),
        _ => Err(invalid("zarr.json", "its node_type is neither group nor array")),
    }
}

fn array_v3(doc: &Value, attributes: Map<String, Value>) -> Result<Spec> {
    let fields = doc.as_object().map(Map::keys).into_iter().flatten();
    for field in fields.filter(|field| !V3_FIELDS.contains(&field.as_str())) {
        if doc[field]["must_understand"] != json!(false) {
            return Err(refused(format!("zarr.json with `{field}`"), "HDF5 has nothing like it", ""));
        }
    }
    let shape = numbers(&doc["shape"], "shape")?;
    if doc["chunk_grid"]["name"] != json!("regular") {
        return Err(refused("a chunk grid that is not regular", "chunks of an HDF5 dataset all have one shape", ""));
    }
    let chunk = numbers(&doc["chunk_grid"]["configuration"]["chunk_shape"], "chunk_shape")?;
    let keys = &doc["chunk_key_encoding"];
    let separator = keys["configuration"]["separator"].as_str().unwrap_or("/");
    if keys.is_object() && (keys["name"] != json!("default") || separator != "/") {
        return Err(refused(
            "this chunk_key_encoding",
            "keys of chunks are those of the default encoding, with /",
            "leave it out",
        ));
    }
    let empty = Vec::new();
    let list = doc["codecs"].as_array().unwrap_or(&empty);
    let Some((first, rest)) = list.split_first() else {
        return Err(invalid("zarr.json", "an array needs codecs"));
    };
    let is_big = first["configuration"]["endian"] == json!("big");
    if first["name"] != json!("bytes") {
        return Err(refused(
            format!("codec {}", first["name"].as_str().unwrap_or("without a name")),
            "HDF5 stores elements in row-major order, as codec `bytes` does",
            "use codec `bytes` first, without sharding or transposition",
        ));
    }
    let elem = elem_v3(&doc["data_type"], is_big)?;
    let names = doc["dimension_names"]
        .as_array()
        .map(|names| names.iter().map(|name| name.as_str().map(str::to_owned)).collect());
    spec(shape, elem, chunk, rest, &doc["fill_value"], names, Some(attributes))
}

/// Parses `.zarray`.
pub fn v2(doc: &Value) -> Result<Spec> {
    if doc["zarr_format"] != json!(2) {
        return Err(invalid(".zarray", "its zarr_format is not 2"));
    }
    let separator = doc["dimension_separator"].as_str().unwrap_or(".");
    if doc["order"] != json!("C") || separator != "." {
        return Err(refused(
            "an array in order F, or with another dimension separator",
            "HDF5 stores elements in row-major order, and keys of chunks are a.b.c",
            "use order C and separator '.'",
        ));
    }
    let mut list: Vec<Value> = doc["filters"].as_array().cloned().unwrap_or_default();
    list.extend(Some(doc["compressor"].clone()).filter(|codec| !codec.is_null()));
    let (shape, chunk) = (numbers(&doc["shape"], "shape")?, numbers(&doc["chunks"], "chunks")?);
    spec(shape, elem_v2(&doc["dtype"])?, chunk, &list, &doc["fill_value"], None, None)
}

fn spec(
    shape: Vec<u64>,
    elem: Elem,
    chunk: Vec<u64>,
    codecs: &[Value],
    fill: &Value,
    names: Option<Vec<Option<String>>>,
    attributes: Option<Map<String, Value>>,
) -> Result<Spec> {
    if shape.len() != chunk.len() || chunk.contains(&0) {
        return Err(invalid("Zarr metadata", format!("chunks of {chunk:?} do not fit a shape of {shape:?}")));
    }
    let elements = shape.iter().try_fold(1u64, |all, n| all.checked_mul(*n));
    if shape.len() > RANK_MAX || codecs.len() > RANK_MAX || elements.is_none_or(|n| n > i64::MAX as u64) {
        return Err(refused(
            format!("an array of {} dimensions and shape {shape:?}", shape.len()),
            "HDF5 has 32 dimensions and filters at most, and datasets of less than 2^63 elements here",
            "",
        ));
    }
    let bytes = chunk.iter().try_fold(elem.bytes(), |all, n| all.checked_mul(*n)).filter(|bytes| *bytes < 1 << 32);
    let Some(chunk_bytes) = bytes else {
        return Err(refused(format!("chunks of {chunk:?}"), "those of HDF5 have less than 4 GiB", "use smaller ones"));
    };
    if shape.is_empty() && !codecs.is_empty() {
        return Err(refused(
            "a compressed array without dimensions",
            "HDF5 has no filters on single values",
            "make it without compressors (compressors=None)",
        ));
    }
    let filters =
        codecs.iter().map(|codec| codecs::filter_of(codec, elem.bytes(), chunk_bytes)).collect::<Result<_>>()?;
    let fill = if fill.is_null() {
        None
    } else {
        let bytes = elem.of_json(fill);
        Some(bytes.ok_or_else(|| invalid("Zarr metadata", format!("{fill} is no fill value of this data type")))?)
    };
    let fill = fill.filter(|bytes| bytes.iter().any(|byte| *byte != 0));
    Ok(Spec { shape, dtype: Dtype { elem, inner: Vec::new() }, chunk, filters, fill, names, attributes })
}

fn no_type(name: &Value) -> cenote::Error {
    refused(
        format!("data type {name}"),
        "no HDF5 datatype of fixed length has the same bytes",
        "use numbers, booleans, fixed-length bytes or records of them; strings of variable length: write them by HDF5",
    )
}

fn sized(kind: &str, bits: &str, is_big: bool) -> Option<Elem> {
    let bytes = bits.parse::<u8>().ok().filter(|bits| bits.is_multiple_of(8))? / 8;
    match (kind, bytes) {
        ("int", 1 | 2 | 4 | 8) => Some(Elem::Int(bytes, true, is_big && bytes > 1)),
        ("uint", 1 | 2 | 4 | 8) => Some(Elem::Int(bytes, false, is_big && bytes > 1)),
        ("float", 2 | 4 | 8) => Some(Elem::Float(bytes, is_big)),
        ("complex", 8 | 16) => Some(Elem::Complex(bytes, is_big)),
        _ => None,
    }
}

fn elem_v3(name: &Value, is_big: bool) -> Result<Elem> {
    let no = || no_type(name);
    if let Some(text) = name.as_str() {
        if text == "bool" {
            return Ok(Elem::Bool);
        }
        let at = text.find(|c: char| c.is_ascii_digit()).ok_or_else(no)?;
        return sized(&text[..at], &text[at..], is_big).ok_or_else(no);
    }
    let config = &name["configuration"];
    let length = config["length_bytes"].as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
    match (name["name"].as_str(), length) {
        (Some("null_terminated_bytes"), Some(n)) => Ok(Elem::Bytes(n)),
        (Some("raw_bytes"), Some(n)) => Ok(Elem::Raw(n)),
        (Some("structured"), _) if !is_big => {
            let fields = config["fields"].as_array().filter(|fields| !fields.is_empty()).ok_or_else(no)?;
            record(fields, |name| elem_v3(name, false)).ok_or_else(no)
        }
        _ => Err(no()),
    }
}

fn record(fields: &[Value], of: impl Fn(&Value) -> Result<Elem>) -> Option<Elem> {
    let field = |field: &Value| {
        let elem = of(&field[1]).ok().filter(|elem| !elem.is_big() && !matches!(elem, Elem::Record(_)))?;
        Some((field[0].as_str()?.to_owned(), elem)).filter(|_| field.as_array().is_some_and(|parts| parts.len() == 2))
    };
    let fields: Vec<(String, Elem)> = fields.iter().map(field).collect::<Option<_>>()?;
    let mut names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let is_unique = names.windows(2).all(|two| two[0] != two[1]);
    let are_names = names.iter().all(|name| !name.is_empty() && !name.contains('\0'));
    (is_unique && are_names && u16::try_from(fields.len()).is_ok()).then_some(Elem::Record(fields))
}

fn elem_v2(name: &Value) -> Result<Elem> {
    let no = || no_type(name);
    if let Some(fields) = name.as_array().filter(|fields| !fields.is_empty()) {
        return record(fields, elem_v2).ok_or_else(no);
    }
    let text = name.as_str().filter(|text| text.is_ascii() && text.len() > 2).ok_or_else(no)?;
    let (is_big, kind) = (text.starts_with('>'), &text[1..2]);
    let bytes: u32 = text[2..].parse().map_err(|_| no())?;
    let bits = (u64::from(bytes) * 8).to_string();
    match kind {
        "b" if bytes == 1 => Ok(Elem::Bool),
        "S" if bytes > 0 => Ok(Elem::Bytes(bytes)),
        "V" if bytes > 0 => Ok(Elem::Raw(bytes)),
        "i" => sized("int", &bits, is_big).ok_or_else(no),
        "u" => sized("uint", &bits, is_big).ok_or_else(no),
        "f" => sized("float", &bits, is_big).ok_or_else(no),
        "c" => sized("complex", &bits, is_big).ok_or_else(no),
        _ => Err(no()),
    }
}
