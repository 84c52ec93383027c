//! The HDF5 view: a terminal VOL connector named `cenote`, one shared library for every libhdf5 from 1.14.5 on.
//!
//! One HDF5 file is one container (`hdf5:<absolute path>`): an index with all metadata, an object for each dataset's
//! raw data. `docs/hdf5.md` has the design and the schema.
//!
//! Modules: [`ffi`] declares HDF5 and finds it at run time; [`vol`] has the callbacks, thin and panic-proof; [`meta`]
//! the records and their keys; [`file`] and [`object`] the open files and objects; [`value`] attribute and fill values;
//! [`data`] raw data of datasets; [`foreign`] native files, read in place; [`team`] the ranks of an MPI program.
//! This crate must not know the engine, the wire or the media. It must never have an undefined `H5*` symbol, follow a
//! native file without saying so, or let a panic cross into C.

#![allow(
    unsafe_code,
    reason = "HDF5 is a C interface: every callback takes raw pointers and every HDF5 call is foreign"
)]
#![allow(clippy::not_unsafe_ptr_arg_deref, reason = "the callbacks' pointers are checked at the boundary in `vol`")]

pub mod blob;
pub mod data;
pub mod dtype;
pub mod error;
pub mod ffi;
pub mod file;
pub mod foreign;
#[doc(hidden)]
pub mod fuzz;
pub mod interchange;
pub mod mapping;
pub mod message;
pub mod meta;
pub mod object;
pub mod props;
pub mod regions;
pub mod selection;
pub mod space;
pub mod tasks;
pub mod team;
pub mod tree;
pub mod udlink;
pub mod value;
pub mod vol;

pub use error::{Result, h5_check, h5_id};
