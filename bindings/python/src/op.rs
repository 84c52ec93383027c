//! Operations in flight.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{invalid, raise};

fn take(op: &Mutex<Option<cenote::Op>>) -> PyResult<cenote::Op> {
    let taken = op.lock().ok().and_then(|mut op| op.take());
    taken.ok_or_else(|| invalid("operation", "it was waited for already"))
}

fn is_done(op: &Mutex<Option<cenote::Op>>) -> bool {
    op.lock().ok().is_none_or(|op| op.as_ref().is_none_or(cenote::Op::is_done))
}

/// A write or put in flight.
#[pyclass(frozen, module = "cenote")]
pub struct Op(Mutex<Option<cenote::Op>>);

impl Op {
    /// Wraps the client's operation.
    pub fn new(op: cenote::Op) -> Self {
        Self(Mutex::new(Some(op)))
    }
}

#[pymethods]
impl Op {
    /// Wait until it is acknowledged; raises its error.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let op = take(&self.0)?;
        py.detach(|| op.wait()).map_err(raise)
    }
    /// True if waiting would not block.
    #[getter]
    fn done(&self) -> bool {
        is_done(&self.0)
    }
}

/// A read in flight.
#[pyclass(frozen, module = "cenote")]
pub struct ReadOp(Mutex<Option<cenote::Op>>);

impl ReadOp {
    /// Wraps the client's operation.
    pub fn new(op: cenote::Op) -> Self {
        Self(Mutex::new(Some(op)))
    }
}

#[pymethods]
impl ReadOp {
    /// Wait for the bytes.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let op = take(&self.0)?;
        let bytes = py.detach(|| op.wait_read()).map_err(raise)?;
        Ok(PyBytes::new(py, &bytes))
    }
    /// True if waiting would not block.
    #[getter]
    fn done(&self) -> bool {
        is_done(&self.0)
    }
}
