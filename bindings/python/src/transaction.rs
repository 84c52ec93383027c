//! Transactions: groups of updates that take effect together or not at all.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::buffer::Bytes;
use crate::container::Container;
use crate::convert::{block_shift, index_id, object_id};
use crate::errors::{invalid, raise};
use crate::index::Index;
use crate::object::Object;

/// A group of updates, atomic with respect to every crash. Reads see its own writes.
///
/// As a context manager it commits at the end, and leaves nothing if an exception ends the block.
///
///     >>> runs = store.container("runs")
///     >>> obj, index = runs.create_object(), runs.index(1)
///     >>> with store.transaction() as tx:
///     ...     tx.write(obj, 0, b"bytes")
///     ...     tx.put(index, b"length", b"5")
///     ...     tx.read(obj, 0, 5), obj.read()
///     (b'bytes', b'')
///     >>> obj.read(), index[b"length"]
///     (b'bytes', b'5')
#[pyclass(frozen, module = "cenote")]
pub struct Transaction(Mutex<Option<cenote::Transaction>>);

impl Transaction {
    /// Begins a transaction.
    pub fn begin(store: &cenote::Store, detect_conflicts: bool) -> Self {
        let mut inner = store.begin();
        inner.detect_conflicts(detect_conflicts);
        Self(Mutex::new(Some(inner)))
    }
    /// Runs `work` detached: the lock is never held while waiting for the GIL.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut cenote::Transaction) -> cenote::Result<T> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| {
            let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            inner.as_mut().map(work)
        });
        done.ok_or_else(ended)?.map_err(raise)
    }
    fn take(&self, py: Python<'_>) -> Option<cenote::Transaction> {
        py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).take())
    }
}

fn ended() -> PyErr {
    invalid("transaction", "it was committed or aborted already")
}

#[pymethods]
impl Transaction {
    /// Write a buffer at `offset`.
    fn write(&self, py: Python<'_>, object: &Object, offset: u64, buffer: Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = Bytes::of(&buffer)?;
        self.with(py, |inner| inner.write(&object.0, offset, bytes.as_slice()))
    }
    /// Read `size` bytes from `offset`, including its own writes; shorter at the object's end.
    fn read<'py>(&self, py: Python<'py>, object: &Object, offset: u64, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let mut got = 0;
        let whole = PyBytes::new_with(py, size, |buf| {
            got = self.with(py, |inner| inner.read(&object.0, offset, buf))?;
            Ok(())
        })?;
        if got == size { Ok(whole) } else { Ok(PyBytes::new(py, &whole.as_bytes()[..got])) }
    }
    /// Set an object's size.
    fn truncate(&self, py: Python<'_>, object: &Object, size: u64) -> PyResult<()> {
        self.with(py, |inner| inner.truncate(&object.0, size))
    }
    /// Turn a range into a hole.
    fn punch(&self, py: Python<'_>, object: &Object, offset: u64, size: u64) -> PyResult<()> {
        self.with(py, |inner| inner.punch(&object.0, offset, size))
    }
    /// Make an object.
    #[pyo3(signature = (container, id = None, block_size = None))]
    fn create_object(
        &self,
        py: Python<'_>,
        container: &Container,
        id: Option<Bound<'_, PyAny>>,
        block_size: Option<u64>,
    ) -> PyResult<Object> {
        let id = id.as_ref().map(object_id).transpose()?;
        let shift = block_size.map(block_shift).transpose()?;
        self.with(py, |inner| inner.create_object(&container.0, id, shift)).map(Object)
    }
    /// Delete an object.
    fn delete_object(&self, py: Python<'_>, object: &Object) -> PyResult<()> {
        self.with(py, |inner| inner.delete_object(&object.0))
    }
    /// Make an index.
    #[pyo3(signature = (container, id = None))]
    fn create_index(&self, py: Python<'_>, container: &Container, id: Option<Bound<'_, PyAny>>) -> PyResult<Index> {
        let id = id.as_ref().map(index_id).transpose()?;
        self.with(py, |inner| inner.create_index(&container.0, id)).map(Index)
    }
    /// Delete an index with its records.
    fn delete_index(&self, py: Python<'_>, index: &Index) -> PyResult<()> {
        self.with(py, |inner| inner.delete_index(&index.0))
    }
    /// Set a record.
    fn put(&self, py: Python<'_>, index: &Index, key: Bound<'_, PyAny>, value: Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (Bytes::of(&key)?, Bytes::of(&value)?);
        self.with(py, |inner| inner.put(&index.0, key.as_slice(), value.as_slice()))
    }
    /// Set a record that must not exist yet: the commit raises Exists if it does.
    fn put_new(&self, py: Python<'_>, index: &Index, key: Bound<'_, PyAny>, value: Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (Bytes::of(&key)?, Bytes::of(&value)?);
        self.with(py, |inner| inner.put_new(&index.0, key.as_slice(), value.as_slice()))
    }
    /// The value of a key, including its own puts; None if missing.
    fn get<'py>(&self, py: Python<'py>, index: &Index, key: Bound<'_, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = Bytes::of(&key)?;
        let value = self.with(py, |inner| inner.get(&index.0, key.as_slice()))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }
    /// Delete a record; no error if it does not exist.
    fn delete(&self, py: Python<'_>, index: &Index, key: Bound<'_, PyAny>) -> PyResult<()> {
        let key = Bytes::of(&key)?;
        self.with(py, |inner| inner.del(&index.0, key.as_slice()))
    }
    /// Share `size` bytes at `offset` of `source`, as they are at the commit, into `object` at `at`, without copying
    /// bytes.
    fn share(&self, py: Python<'_>, object: &Object, at: u64, source: &Object, offset: u64, size: u64) -> PyResult<()> {
        self.with(py, |inner| inner.share(&object.0, at, &source.0, offset, size))
    }
    /// Make the commit raise Conflict if a record's key then begins with `prefix`, before the transaction's own
    /// changes.
    fn expect_none(&self, py: Python<'_>, index: &Index, prefix: Bound<'_, PyAny>) -> PyResult<()> {
        let prefix = Bytes::of(&prefix)?;
        self.with(py, |inner| inner.expect_none(&index.0, prefix.as_slice()))
    }
    /// Make the commit raise Conflict unless the object then has this size.
    fn expect_size(&self, py: Python<'_>, object: &Object, size: u64) -> PyResult<()> {
        self.with(py, |inner| inner.expect_size(&object.0, size))
    }
    /// Apply everything, or nothing. Returns the epoch.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let inner = self.take(py).ok_or_else(ended)?;
        py.detach(|| inner.commit()).map_err(raise)
    }
    /// Discard everything.
    fn abort(&self, py: Python<'_>) {
        if let Some(inner) = self.take(py) {
            py.detach(|| inner.abort());
        }
    }
    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }
    #[pyo3(signature = (exception_type, *_rest))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exception_type: Option<Bound<'_, PyAny>>,
        _rest: Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        match self.take(py) {
            // Committed or aborted inside the block.
            None => Ok(()),
            Some(inner) if exception_type.is_none() => py.detach(|| inner.commit()).map(|_| ()).map_err(raise),
            Some(inner) => {
                py.detach(|| inner.abort());
                Ok(())
            }
        }
    }
}
