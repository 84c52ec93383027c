//! Indices: ordered records, used like a dict of bytes.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use cenote::{KeyCode, NextFrom, Record};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::Bytes;
use crate::convert::unexpected;
use crate::errors::raise;
use crate::op::Op;

/// An ordered key-value index. Keys and values are bytes (anything with a buffer); keys come back as `bytes`.
///
///     >>> index = store.container("runs").index(1)
///     >>> index[b"step/2"] = b"20 s"
///     >>> index.put_many([(b"step/1", b"10 s"), (b"steps", b"2")])
///     >>> list(index.items(prefix=b"step/"))
///     [(b'step/1', b'10 s'), (b'step/2', b'20 s')]
///     >>> index.put_new(b"steps", b"3"), index.get(b"steps"), index.get(b"missing")
///     (False, b'2', None)
#[pyclass(frozen, module = "cenote")]
pub struct Index(pub cenote::Index);

fn held(values: &[Bound<'_, PyAny>]) -> PyResult<Vec<Bytes>> {
    values.iter().map(Bytes::of).collect()
}

fn slices(held: &[Bytes]) -> Vec<&[u8]> {
    held.iter().map(Bytes::as_slice).collect()
}

impl Index {
    fn put_all(&self, py: Python<'_>, records: &[(Bytes, Bytes)], new: bool) -> PyResult<Vec<KeyCode>> {
        py.detach(|| {
            let records: Vec<(&[u8], &[u8])> =
                records.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
            if new { self.0.put_new(&records) } else { self.0.put(&records) }
        })
        .map_err(raise)
    }
    fn put_checked(&self, py: Python<'_>, records: &[(Bytes, Bytes)]) -> PyResult<()> {
        let codes = self.put_all(py, records, false)?;
        match codes.iter().find(|code| **code != KeyCode::Ok) {
            None => Ok(()),
            Some(code) => Err(unexpected(*code, &format!("record of index {}", self.0.key()))),
        }
    }
    fn one(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
        let key = Bytes::of(key)?;
        py.detach(|| self.0.get_one(key.as_slice())).map_err(raise)
    }
    fn records(
        &self,
        prefix: Option<Bound<'_, PyAny>>,
        start: Option<Bound<'_, PyAny>>,
        what: What,
    ) -> PyResult<Records> {
        let bytes = |value: Option<Bound<'_, PyAny>>| -> PyResult<Option<Vec<u8>>> {
            value.map(|value| Ok(Bytes::of(&value)?.as_slice().to_vec())).transpose()
        };
        let state = RecordsCursor {
            from: bytes(start)?.map_or(NextFrom::Start, NextFrom::At),
            page: VecDeque::new(),
            ended: false,
        };
        Ok(Records {
            index: self.0.clone(),
            prefix: bytes(prefix)?.unwrap_or_default(),
            what,
            state: Mutex::new(state),
        })
    }
}

#[pymethods]
impl Index {
    /// Its id, as 32 hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.0.key().index.to_string()
    }
    fn __getitem__<'py>(&self, py: Python<'py>, key: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        match self.one(py, &key)? {
            Some(value) => Ok(PyBytes::new(py, &value)),
            None => Err(PyKeyError::new_err(key.unbind())),
        }
    }
    fn __setitem__(&self, py: Python<'_>, key: Bound<'_, PyAny>, value: Bound<'_, PyAny>) -> PyResult<()> {
        self.put_checked(py, &[(Bytes::of(&key)?, Bytes::of(&value)?)])
    }
    fn __delitem__(&self, py: Python<'_>, key: Bound<'_, PyAny>) -> PyResult<()> {
        if self.delete(py, key.clone())? { Ok(()) } else { Err(PyKeyError::new_err(key.unbind())) }
    }
    fn __contains__(&self, py: Python<'_>, key: Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.one(py, &key)?.is_some())
    }
    fn __iter__(&self) -> PyResult<Records> {
        self.records(None, None, What::Keys)
    }
    /// The value of a key, or `default`.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.one(py, &key)?.map_or(default, |value| Some(PyBytes::new(py, &value).into_any())))
    }
    /// Values of many keys in one round trip; None for missing ones.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let keys = held(&keys)?;
        let values = py.detach(|| self.0.get(&slices(&keys))).map_err(raise)?;
        Ok(values.into_iter().map(|value| value.map(|value| PyBytes::new(py, &value))).collect())
    }
    /// Set a record.
    fn put(&self, py: Python<'_>, key: Bound<'_, PyAny>, value: Bound<'_, PyAny>) -> PyResult<()> {
        self.__setitem__(py, key, value)
    }
    /// Set many `(key, value)` in one round trip.
    fn put_many(&self, py: Python<'_>, records: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>) -> PyResult<()> {
        let records = records
            .iter()
            .map(|(key, value)| Ok((Bytes::of(key)?, Bytes::of(value)?)))
            .collect::<PyResult<Vec<_>>>()?;
        self.put_checked(py, &records)
    }
    /// Set a record whose key does not exist yet. False, without a change, if it does.
    fn put_new(&self, py: Python<'_>, key: Bound<'_, PyAny>, value: Bound<'_, PyAny>) -> PyResult<bool> {
        let codes = self.put_all(py, &[(Bytes::of(&key)?, Bytes::of(&value)?)], true)?;
        match codes.first() {
            None | Some(KeyCode::Ok) => Ok(true),
            Some(KeyCode::Exists) => Ok(false),
            Some(code) => Err(unexpected(*code, &format!("record of index {}", self.0.key()))),
        }
    }
    /// Delete a record. False if it did not exist.
    fn delete(&self, py: Python<'_>, key: Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.delete_many(py, vec![key])? == 1)
    }
    /// Delete many records in one round trip; returns how many existed.
    fn delete_many(&self, py: Python<'_>, keys: Vec<Bound<'_, PyAny>>) -> PyResult<usize> {
        let keys = held(&keys)?;
        let codes = py.detach(|| self.0.del(&slices(&keys))).map_err(raise)?;
        let bad = codes.iter().find(|code| !matches!(code, KeyCode::Ok | KeyCode::NotFound));
        if let Some(code) = bad {
            return Err(unexpected(*code, &format!("record of index {}", self.0.key())));
        }
        // No codes at all mean success.
        let missing = codes.iter().filter(|code| **code == KeyCode::NotFound).count();
        Ok(keys.len() - missing)
    }
    /// Start a put; acknowledged when `Op.wait` returns.
    fn launch_put(&self, py: Python<'_>, key: Bound<'_, PyAny>, value: Bound<'_, PyAny>) -> PyResult<Op> {
        let (key, value) = (Bytes::of(&key)?, Bytes::of(&value)?);
        py.detach(|| self.0.launch_put(key.as_slice(), value.as_slice())).map(Op::new).map_err(raise)
    }
    /// `(key, value)` in key order, fetched during the iteration: keys that begin with `prefix`, from `start` on.
    #[pyo3(signature = (prefix = None, start = None))]
    fn items(&self, prefix: Option<Bound<'_, PyAny>>, start: Option<Bound<'_, PyAny>>) -> PyResult<Records> {
        self.records(prefix, start, What::Items)
    }
    /// Keys in order; arguments as for `items`.
    #[pyo3(signature = (prefix = None, start = None))]
    fn keys(&self, prefix: Option<Bound<'_, PyAny>>, start: Option<Bound<'_, PyAny>>) -> PyResult<Records> {
        self.records(prefix, start, What::Keys)
    }
    /// Values in key order; arguments as for `items`.
    #[pyo3(signature = (prefix = None, start = None))]
    fn values(&self, prefix: Option<Bound<'_, PyAny>>, start: Option<Bound<'_, PyAny>>) -> PyResult<Records> {
        self.records(prefix, start, What::Values)
    }
    fn __repr__(&self) -> String {
        format!("<cenote.Index {}>", self.0.key())
    }
}

#[derive(Clone, Copy)]
enum What {
    Keys,
    Values,
    Items,
}

/// An iteration over records.
#[pyclass(frozen, module = "cenote")]
pub struct Records {
    index: cenote::Index,
    prefix: Vec<u8>,
    what: What,
    state: Mutex<RecordsCursor>,
}

struct RecordsCursor {
    from: NextFrom,
    page: VecDeque<Record>,
    ended: bool,
}

#[pymethods]
impl Records {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        const PAGE: u32 = 1024;
        // Locked only while detached: a lock held while waiting for the GIL would stop every thread.
        let next = py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.page.is_empty() && !state.ended {
                let page = self.index.next_with_prefix(&self.prefix, state.from.clone(), PAGE)?;
                state.page = page.to_vec().into();
                match state.page.back() {
                    Some((key, _)) => state.from = NextFrom::After(key.clone()),
                    None => state.ended = true,
                }
            }
            Ok(state.page.pop_front())
        });
        let Some((key, value)) = next.map_err(raise)? else { return Ok(None) };
        let key = || PyBytes::new(py, &key).into_any();
        let value = || PyBytes::new(py, &value).into_any();
        Ok(Some(match self.what {
            What::Keys => key(),
            What::Values => value(),
            What::Items => (key(), value()).into_pyobject(py)?.into_any(),
        }))
    }
}
