//! Creation properties of datasets, groups, datatypes and files in our own encoding: HDF5's encoded property lists
//! cannot be read by an older libhdf5, and several versions share one file here.

use crate::value::Stored;

/// How a dataset's raw data are laid out, as the program asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Small data inside the header (here: like contiguous).
    Compact,
    /// One run.
    Contiguous,
    /// Chunks of this shape.
    Chunked(Vec<u64>),
}

/// A filter of the chunk pipeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// HDF5's number of the filter (1 deflate, 2 shuffle, 3 fletcher32, …).
    pub id: i32,
    /// Bit 0: optional (a chunk that it fails on is stored without it).
    pub flags: u32,
    /// Parameters.
    pub params: Vec<u32>,
    /// Name.
    pub name: String,
}

/// Creation properties of a dataset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatasetProps {
    /// Layout.
    pub layout: Layout,
    /// Bit 0 of the chunk options: do not filter partial edge chunks.
    pub chunk_opts: u32,
    /// Filters in writing order.
    pub filters: Vec<Filter>,
    /// `H5D_FILL_VALUE_*`.
    pub fill_status: i32,
    /// The fill value as one element of the dataset's type, if user-defined; [`crate::value::load`] gives it in any
    /// memory type.
    pub fill: Option<Stored>,
    /// `H5D_FILL_TIME_*`.
    pub fill_time: i32,
    /// `H5D_ALLOC_TIME_*`.
    pub alloc_time: i32,
}
