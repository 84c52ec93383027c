//! What HDF5 holds a pointer to: open files, groups, datasets, committed datatypes and attributes.

use std::sync::Arc;

use crate::Result;
use crate::data;
use crate::ffi::{Api, Hid};
use crate::file::File;
use crate::props::DatasetProps;
use crate::space::Extent;

/// An open dataset. `data` may keep what it wants in [`Dataset::data`].
pub struct Dataset {
    /// The file that it is in.
    pub file: Arc<File>,
    /// Its object number; also the number of its main raw-data object.
    pub oid: u64,
    /// What is fixed when a dataset is made.
    pub header: DatasetHeader,
    /// The raw-data room's own state.
    pub data: data::State,
}

/// What is fixed when a dataset is made, decoded.
pub struct DatasetHeader {
    /// The dataset's datatype as the user gave it, in memory form (variable-length parts are pointers);
    /// [`crate::dtype::disk`] makes the form in which elements are stored.
    pub dtype: Hid,
    /// Creation properties: layout, chunk shape, filters, fill value.
    pub props: DatasetProps,
    /// Extent at creation; the maximum dimensions never change, current dimensions do (see [`Dataset::extent`]).
    pub extent: Extent,
}

impl Dataset {
    /// The libhdf5 that has it open.
    pub fn h5(&self) -> &'static Api {
        self.file.h5
    }
    /// The extent as it stands now in the store (other processes may have changed it).
    pub fn extent(&self) -> Result<Extent> {
        crate::meta::extent_get(&self.file, self.oid)
    }
    /// Words for error messages.
    pub fn name(&self) -> String {
        format!("dataset {:016x} of file {}", self.oid, self.file.path)
    }
}
