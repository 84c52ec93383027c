//! Raw data of native files' datasets, read in place by HDF5 itself.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::{Native, call};
use crate::Result;
use crate::data::Io;
use crate::ffi::types::{H5P_DEFAULT, OptionalArgs, haddr_t, hid_t, hsize_t};
use crate::ffi::{Api, Hid};

/// A chunk of a native file's dataset.
pub struct NativeChunkInfo {
    /// Coordinates of its first element.
    pub offset: Vec<hsize_t>,
    /// Mask of filters left out.
    pub mask: u32,
    /// Number of stored bytes.
    pub bytes: u64,
}

/// An open dataset of a native file.
pub struct NativeData {
    native: Arc<Native>,
    dataset: Hid,
}

impl NativeData {
    /// Opens the dataset with that number.
    pub fn open(native: &Arc<Native>, oid: u64) -> Result<Self> {
        Ok(Self { dataset: native.object(oid)?, native: native.clone() })
    }
    fn h5(&self) -> &'static Api {
        self.native.h5
    }
    /// The native id.
    pub fn id(&self) -> hid_t {
        self.dataset.get()
    }
    /// Reads as the program asked.
    pub fn read(&self, io: &Io<'_>, dxpl: hid_t) -> Result<()> {
        let named = || io.dataset.name();
        // SAFETY: the program's ids and buffer, which HDF5 has checked.
        let read = || unsafe {
            (self.h5().H5Dread)(self.dataset.get(), io.mem_type, io.mem_space, io.file_space, dxpl, io.buf)
        };
        call(self.h5(), named, || i64::from(read()))?;
        Ok(())
    }
    /// Passes an optional operation on.
    pub fn optional(&self, name: impl FnOnce() -> String, op: c_int, args: *mut c_void, dxpl: hid_t) -> Result<()> {
        let h5 = self.h5();
        let mut args = OptionalArgs { op_type: op, args };
        // SAFETY: the arguments are those that HDF5 passed for this operation, and HDF5's own connector gets its own
        // object.
        let mut pass = || unsafe {
            let object = (h5.H5VLobject)(self.dataset.get());
            let connector = self.native.connector();
            (h5.H5VLdataset_optional)(object, connector, &raw mut args, dxpl, std::ptr::null_mut())
        };
        call(h5, name, || i64::from(pass()))?;
        Ok(())
    }
    /// The existing chunks, with the coordinates of their first elements, filter masks and stored sizes.
    pub fn chunks(&self, rank: usize, name: impl FnOnce() -> String) -> Result<Vec<NativeChunkInfo>> {
        struct ChunkList(usize, Vec<NativeChunkInfo>);
        unsafe extern "C" fn each(
            at: *const hsize_t,
            mask: c_uint,
            _: haddr_t,
            bytes: hsize_t,
            to: *mut c_void,
        ) -> c_int {
            // SAFETY: HDF5 passes an entry for each dimension, and the list given below.
            unsafe {
                let found = &mut *to.cast::<ChunkList>();
                let offset = std::slice::from_raw_parts(at, found.0).to_vec();
                found.1.push(NativeChunkInfo { offset, mask, bytes });
            }
            0
        }
        let mut found = ChunkList(rank, Vec::new());
        let to = (&raw mut found).cast();
        // SAFETY: the callback gets back the pointer to the list, which outlives the call.
        let walk = || unsafe { (self.h5().H5Dchunk_iter)(self.dataset.get(), H5P_DEFAULT, Some(each), to) };
        call(self.h5(), name, || i64::from(walk()))?;
        Ok(found.1)
    }
    /// The stored bytes of a chunk.
    pub fn chunk(&self, chunk: &NativeChunkInfo, name: impl FnOnce() -> String) -> Result<Vec<u8>> {
        let h5 = self.h5();
        let mut stored = vec![0u8; chunk.bytes as usize];
        let (to, at) = (stored.as_mut_ptr().cast::<c_void>(), chunk.offset.as_ptr());
        let mut mask = 0;
        let mut room = stored.len();
        // SAFETY: the buffer has the size that HDF5 reported.
        let mut read = || unsafe {
            match (h5.H5Dread_chunk2, h5.H5Dread_chunk1.or(h5.H5Dread_chunk)) {
                (Some(read), _) => read(self.dataset.get(), H5P_DEFAULT, at, &raw mut mask, to, &raw mut room),
                (None, Some(read)) => read(self.dataset.get(), H5P_DEFAULT, at, &raw mut mask, to),
                (None, None) => -1,
            }
        };
        call(h5, name, || i64::from(read()))?;
        Ok(stored)
    }
    /// Answers `H5Dget_storage_size`.
    pub fn storage_size(&self) -> u64 {
        // SAFETY: a plain query.
        unsafe { (self.h5().H5Dget_storage_size)(self.dataset.get()) }
    }
    /// Answers `H5Dget_space_status`.
    pub fn space_status(&self, name: impl FnOnce() -> String) -> Result<c_int> {
        let mut status = 0;
        // SAFETY: the place is valid.
        call(self.h5(), name, || {
            i64::from(unsafe { (self.h5().H5Dget_space_status)(self.dataset.get(), &raw mut status) })
        })?;
        Ok(status)
    }
}
