//! The store's errors as Python exceptions. The classes are in Python (`cenote/_errors.py`): several also derive from
//! `KeyError`, `OSError` or `PermissionError`, which only Python code can declare.

use cenote::{Error, ErrorKind};
use cenote_posix::FsError;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::files::FsPath;

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

/// The exception for an invalid argument.
pub fn invalid(subject: impl Into<String>, cause: impl Into<String>) -> PyErr {
    raise(Error::new(ErrorKind::InvalidInput, subject).because(cause))
}

/// The exception for a failed file operation: the built-in one for its error number (`FileNotFoundError`, …), with the
/// store's own error as its cause.
pub fn raise_os(error: FsError, path: Option<&FsPath>) -> PyErr {
    Python::attach(|py| {
        let text = std::io::Error::from_raw_os_error(error.errno).to_string();
        let text = text.split(" (os error").next().unwrap_or_default().to_owned();
        let made = match path.map(|path| path.text(py)) {
            Some(Ok(path)) => PyOSError::new_err((error.errno, text, path)),
            _ => PyOSError::new_err((error.errno, text)),
        };
        // Only a call of the class selects the subclass for the number.
        let made = made.value(py).clone();
        let exception = PyErr::from_value(made.into_any());
        exception.set_cause(py, error.cause.map(|cause| raise(*cause)));
        exception
    })
}
