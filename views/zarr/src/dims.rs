//! Names of dimensions, from HDF5's dimension scales as made by h5py, netCDF and `H5DS`.

use std::collections::HashMap;

use cenote::Result;
use cenote_hdf5::file::Core;
use cenote_hdf5::meta::attrs;
use cenote_hdf5::meta::links::{self, Target};
use serde_json::Value;

use crate::attrs::{references, to_json};

/// netCDF's `NAME` of a scale that is no variable.
const NO_VARIABLE: &str = "This is a netCDF dimension but not a netCDF variable";

fn value(core: &Core, oid: u64, name: &str) -> Result<Option<Value>> {
    Ok(attrs::find(core, oid, name.as_bytes())?.as_ref().and_then(to_json))
}

fn is_scale(core: &Core, oid: u64) -> Result<bool> {
    Ok(value(core, oid, "CLASS")?.is_some_and(|class| class == "DIMENSION_SCALE"))
}

/// Returns true for a dataset with dimension scales, or that is one.
pub fn has_scales(core: &Core, oid: u64) -> Result<bool> {
    Ok(attrs::find(core, oid, b"DIMENSION_LIST")?.is_some() || is_scale(core, oid)?)
}

/// Returns true for a dataset that netCDF uses only to name a dimension: it is no array.
pub fn is_only_a_name(core: &Core, oid: u64) -> Result<bool> {
    Ok(is_scale(core, oid)?
        && value(core, oid, "NAME")?
            .is_some_and(|name| name.as_str().is_some_and(|name| name.starts_with(NO_VARIABLE))))
}

/// Names of a dataset's dimensions; `None` if no dimension has one. `groups`: those on its path, the innermost last;
/// `name`: its own.
pub fn names(core: &Core, oid: u64, rank: usize, groups: &[u64], name: &str) -> Result<Option<Vec<Option<String>>>> {
    if rank == 0 {
        return Ok(None);
    }
    let mut out: Vec<Option<String>> = vec![None; rank];
    if let Some(scales) = attrs::find(core, oid, b"DIMENSION_LIST")?.as_ref().and_then(references) {
        let known = linked(core, groups)?;
        for (out, scale) in out.iter_mut().zip(scales) {
            *out = scale.and_then(|scale| known.get(&scale).cloned());
        }
    } else if is_scale(core, oid)? {
        if rank == 1 {
            out[0] = Some(name.to_owned());
        } else if let Some(Value::Array(ids)) = value(core, oid, "_Netcdf4Coordinates")? {
            let known = numbered(core, groups)?;
            for (out, id) in out.iter_mut().zip(&ids) {
                *out = id.as_i64().and_then(|id| known.get(&id).cloned());
            }
        }
    }
    // An array of one element is returned as that element.
    let labels = match value(core, oid, "DIMENSION_LABELS")? {
        Some(Value::Array(labels)) => labels,
        one => one.into_iter().collect(),
    };
    if !labels.is_empty() {
        for (out, label) in out.iter_mut().zip(labels).filter(|(out, _)| out.is_none()) {
            *out = label.as_str().filter(|label| !label.is_empty()).map(str::to_owned);
        }
    }
    Ok(out.iter().any(Option::is_some).then_some(out))
}

/// Names of the groups' members, by object number; those of inner groups win.
fn linked(core: &Core, groups: &[u64]) -> Result<HashMap<u64, String>> {
    let mut out = HashMap::new();
    for group in groups {
        for (name, link) in links::list(core, *group)? {
            if let Target::Hard(oid) = link.target {
                out.insert(oid, String::from_utf8_lossy(&name).into_owned());
            }
        }
    }
    Ok(out)
}

/// Names of scales by netCDF's dimension number.
fn numbered(core: &Core, groups: &[u64]) -> Result<HashMap<i64, String>> {
    let mut out = HashMap::new();
    for (oid, name) in linked(core, groups)? {
        if let Some(id) = value(core, oid, "_Netcdf4Dimid")?.and_then(|id| id.as_i64()) {
            out.insert(id, name);
        }
    }
    Ok(out)
}
