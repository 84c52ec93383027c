//! The store's errors as Python exceptions. The classes are Python's (`cenote/_errors.py`): several of them are also
//! `KeyError`, `OSError` or `PermissionError`, which only Python code can say.

use cenote::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The exception for an error. For use in `map_err`.
pub fn raise(error: Error) -> PyErr {
    Python::attach(|py| {
        let make = MAKE.get_or_try_init(py, || PyResult::Ok(py.import("cenote._errors")?.getattr("make")?.unbind()));
        let made = make.and_then(|make| {
            make.bind(py).call1((
                error.kind() as u8,
                error.kind().words(),
                error.subject(),
                error.cause(),
                error.next_step(),
            ))
        });
        match made {
            Ok(exception) => PyErr::from_value(exception),
            Err(failed) => failed,
        }
    })
}

/// The exception for an argument that makes no sense.
pub fn invalid(subject: impl Into<String>, cause: impl Into<String>) -> PyErr {
    raise(Error::new(ErrorKind::InvalidInput, subject).because(cause))
}
