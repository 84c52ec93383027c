//! HDF5's C interface: types, the connector class, the function table, and the entry points that HDF5 calls.

pub mod api;
pub mod class;
pub mod driver;
pub mod entry;
mod hid;
pub mod load;
pub mod maps;
pub mod mpi;
pub mod types;
mod version;

pub use api::Api;
pub use hid::Hid;
pub use version::LibraryVersion;
