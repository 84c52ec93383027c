//! Conversion of Python values to the client's: ids, durability, block sizes, tiers.

use std::str::FromStr;

use cenote::{ContainerSpec, DeviceSpec, Durability, Error, ErrorKind, IndexId, KeyCode, ObjectId};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::{invalid, raise};

/// An id in hexadecimal digits (as on the command line) or as an integer.
fn id_of<Id: FromStr<Err = Error>>(value: &Bound<'_, PyAny>, wrap: fn(u128) -> Id) -> PyResult<Id> {
    if let Ok(text) = value.cast::<PyString>() {
        return text.to_str()?.parse().map_err(raise);
    }
    value.extract::<u128>().map(wrap).map_err(|_| {
        PyTypeError::new_err("an id is a str of up to 32 hexadecimal digits, or an int from 0 to 2**128 - 1")
    })
}

/// An object's id.
pub fn object_id(value: &Bound<'_, PyAny>) -> PyResult<ObjectId> {
    id_of(value, ObjectId)
}

/// An index's id.
pub fn index_id(value: &Bound<'_, PyAny>) -> PyResult<IndexId> {
    id_of(value, IndexId)
}

/// The durability with this name.
pub fn durability(word: &str) -> PyResult<Durability> {
    [Durability::Sync, Durability::Async, Durability::Scratch, Durability::Bypass]
        .into_iter()
        .find(|known| known.word() == word)
        .ok_or_else(|| invalid(format!("durability {word:?}"), "it is not one of sync, async, scratch, bypass"))
}

/// log2 of a block size in bytes.
pub fn block_shift(bytes: u64) -> PyResult<u8> {
    let (least, most) = (cenote::model::BLOCK_SHIFT_MIN, cenote::model::BLOCK_SHIFT_MAX);
    let shift = bytes.checked_ilog2().unwrap_or_default() as u8;
    if bytes.is_power_of_two() && (least..=most).contains(&shift) {
        Ok(shift)
    } else {
        let range = format!("it is not a power of two from {} to {} bytes", 1 << least, 1 << most);
        Err(invalid(format!("block size {bytes}"), range))
    }
}

/// A container's settings.
pub fn container_spec(word: &str, block_size: u64, quota: u64, policy: String) -> PyResult<ContainerSpec> {
    Ok(ContainerSpec {
        block_shift: block_shift(block_size)?,
        durability: durability(word)?,
        quota_bytes: quota,
        policy,
        ..ContainerSpec::default()
    })
}

/// Tiers in command-line form, which `str(cenote.Tier(...))` also returns.
pub fn tiers(values: &[Bound<'_, PyAny>]) -> PyResult<Vec<DeviceSpec>> {
    values.iter().map(tier).collect()
}

/// One tier.
pub fn tier(value: &Bound<'_, PyAny>) -> PyResult<DeviceSpec> {
    value.str()?.to_str()?.parse().map_err(raise)
}

/// The exception for an unexpected code among those of many keys.
pub fn unexpected(code: KeyCode, subject: &str) -> PyErr {
    let (kind, cause) = match code {
        KeyCode::NotFound => (ErrorKind::NotFound, String::new()),
        KeyCode::Exists => (ErrorKind::Exists, String::new()),
        KeyCode::Limit => (ErrorKind::LimitExceeded, "the container's quota or a limit of the format".to_owned()),
        KeyCode::Ok | KeyCode::Invalid => (
            ErrorKind::InvalidInput,
            format!(
                "keys have up to {} bytes and values up to {}",
                cenote::model::KEY_BYTES_MAX,
                cenote::model::VALUE_BYTES_MAX
            ),
        ),
    };
    raise(Error::new(kind, subject).because(cause))
}
