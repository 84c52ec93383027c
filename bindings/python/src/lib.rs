//! The Python module: classes that wrap the client's, with the GIL released while the store works.
//!
//! This module must not know the engine, the wire or the media; it uses the client only. Names, defaults and errors
//! follow Python: exceptions are made in `cenote/_errors.py`, and code that needs no speed is written in Python.
#![allow(clippy::needless_pass_by_value, reason = "what Python passes is extracted into owned values")]
#![allow(clippy::unnecessary_wraps, reason = "methods that may fail later keep their signature")]

mod buffer;
mod container;
mod convert;
mod errors;
mod file;
mod file_info;
mod files;
mod in_place;
mod index;
mod info;
mod object;
mod op;
mod store;
mod transaction;
mod view;
mod zarr;

use pyo3::prelude::*;

/// The part of `cenote` that is written in Rust.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::container::Container;
    #[pymodule_export]
    use crate::file::RawFile;
    #[pymodule_export]
    use crate::file_info::{FileSpace, FileStat};
    #[pymodule_export]
    use crate::files::Files;
    #[pymodule_export]
    use crate::in_place::InPlaceWrite;
    #[pymodule_export]
    use crate::index::{Index, Records};
    #[pymodule_export]
    use crate::info::{
        ContainerInfo, ExplainedRange, Explanation, Finding, ObjectStat, SnapshotInfo, StoreStats, TierInfo,
        VerifyReport,
    };
    #[pymodule_export]
    use crate::object::{Object, Objects};
    #[pymodule_export]
    use crate::op::{Op, ReadOp};
    #[pymodule_export]
    use crate::store::{Store, destroy, format_size, open, parse_size, stop};
    #[pymodule_export]
    use crate::transaction::Transaction;
    #[pymodule_export]
    use crate::view::View;
    #[pymodule_export]
    use crate::zarr::{ZarrTree, store_of_hdf5};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
