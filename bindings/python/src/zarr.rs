//! HDF5 files of a store as Zarr's keys and values.

use std::path::PathBuf;

use cenote_zarr::{Entry, Format, Tree};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::Bytes;
use crate::errors::{invalid, raise};
use crate::store::Store;

/// An HDF5 file of a store as Zarr's keys and values. `cenote.zarr` makes a store for zarr-python of it.
#[pyclass(frozen, module = "cenote")]
pub struct ZarrTree(Tree);

fn format(number: u32) -> PyResult<Format> {
    match number {
        2 => Ok(Format::V2),
        3 => Ok(Format::V3),
        other => Err(invalid("Zarr format", format!("{other} is neither 2 nor 3"))),
    }
}

#[pymethods]
impl ZarrTree {
    /// Open the HDF5 file whose stub is at `path`.
    #[staticmethod]
    #[pyo3(signature = (store, path, writable = false, zarr_format = 3))]
    fn open(py: Python<'_>, store: &Store, path: PathBuf, writable: bool, zarr_format: u32) -> PyResult<Self> {
        let format = format(zarr_format)?;
        py.detach(|| Tree::open(&store.0, &path, writable, format)).map(Self).map_err(raise)
    }
    /// Make a new, empty HDF5 file at `path`, which must not exist.
    #[staticmethod]
    #[pyo3(signature = (store, path, zarr_format = 3))]
    fn create(py: Python<'_>, store: &Store, path: PathBuf, zarr_format: u32) -> PyResult<Self> {
        let format = format(zarr_format)?;
        py.detach(|| Tree::create(&store.0, &path, format)).map(Self).map_err(raise)
    }
    /// True if it was opened for writing.
    #[getter]
    fn writable(&self) -> bool {
        self.0.is_writable()
    }
    /// The value of a key; None if it does not exist.
    fn get<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = py.detach(|| self.0.get(key)).map_err(raise)?;
        Ok(value.map(|bytes| PyBytes::new(py, &bytes)))
    }
    /// Set a key: a metadata document, or a chunk of an existing array.
    fn set(&self, py: Python<'_>, key: &str, value: Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = Bytes::of(&value)?;
        py.detach(|| self.0.set(key, bytes.as_slice())).map_err(raise)
    }
    /// Delete a key; False if it did not exist.
    fn delete(&self, py: Python<'_>, key: &str) -> PyResult<bool> {
        py.detach(|| self.0.delete(key)).map_err(raise)
    }
    /// Delete everything at or below a key.
    fn delete_dir(&self, py: Python<'_>, key: &str) -> PyResult<()> {
        py.detach(|| self.0.delete_dir(key)).map_err(raise)
    }
    /// Length of a key's value in bytes; -1 if there are keys below it; None if it does not exist.
    fn size(&self, py: Python<'_>, key: &str) -> PyResult<Option<i64>> {
        let entry = py.detach(|| self.0.entry(key)).map_err(raise)?;
        Ok(entry.map(|entry| match entry {
            Entry::Directory => -1,
            Entry::File(bytes) => bytes.try_into().unwrap_or(i64::MAX),
        }))
    }
    /// Names directly below a key, in order, each with True if it has keys below it.
    fn list_dir(&self, py: Python<'_>, key: &str) -> PyResult<Vec<(String, bool)>> {
        py.detach(|| self.0.list_dir(key)).map(|names| names.into_iter().collect()).map_err(raise)
    }
    /// All keys at or below a key.
    fn list(&self, py: Python<'_>, key: &str) -> PyResult<Vec<String>> {
        py.detach(|| self.0.list(key)).map_err(raise)
    }
    /// Datasets that Zarr does not see (False) or sees converted (True), with path and reason.
    fn notes(&self, py: Python<'_>) -> PyResult<Vec<(String, bool, String)>> {
        let notes = py.detach(|| self.0.notes()).map_err(raise)?;
        Ok(notes.into_iter().map(|note| (note.path, note.is_there, note.why)).collect())
    }
}

/// The directory of the store of the HDF5 file at `path`, as in its stub; None if there is no stub.
#[pyfunction]
pub fn store_of_hdf5(py: Python<'_>, path: PathBuf) -> PyResult<Option<PathBuf>> {
    py.detach(|| cenote_zarr::store_dir(&path)).map_err(raise)
}
