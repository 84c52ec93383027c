//! Chunks through HDF5's own filter pipeline, for filters that this library does not have: n-bit, scale-offset, szip, and the filter
//! plugins of a program (zstd, blosc, zfp, …).
//!
//! HDF5 has no call that applies a filter. A dataset of one chunk, in a file in memory, by HDF5's own connector, serves instead:
//! elements are written to it and stored bytes are read from it, or the other way round. The filters get type, shape and fill value
//! as for any dataset, and produce what HDF5 itself would store.

use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cenote::{Error, ErrorKind};

use super::filter;
use crate::error::{h5_check, h5_failed, h5_id, quietly};
use crate::ffi::types::{
    H5D_FILL_VALUE_DEFAULT, H5E_DEFAULT, H5F_ACC_TRUNC, H5P_DEFAULT, H5S_ALL, H5T_OPAQUE, hid_t, hsize_t,
};
use crate::ffi::{Api, Hid};
use crate::file::File;
use crate::object::DatasetHeader;
use crate::props::{Filter, Layout, filters_of};
use crate::{Result, dtype};

/// Growth step of the file in memory.
const GROWTH_BYTES: usize = 64 << 10;
/// Name of the dataset in it.
const NAME: &CStr = c"chunk";
/// `H5Z_DISABLE_EDC`.
const EDC_DISABLED: i32 = 0;

/// Numbers the files.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The pipeline of one dataset's chunks.
pub struct NativeChunk {
    h5: &'static Api,
    dtype: Hid,
    plist: Hid,
    chunk: Vec<hsize_t>,
    filters: Vec<Filter>,
    /// Made when needed.
    scratch: Mutex<Option<Scratch>>,
}

/// The dataset of one chunk. Dropped before its file.
struct Scratch {
    dataset: Option<Hid>,
    /// The mask of its chunk, if it has one.
    mask: Option<u32>,
    file: Option<Hid>,
}

impl Scratch {
    fn reopen(&mut self, h5: &'static Api) -> Result<()> {
        let Some(file) = &self.file else { return Err(h5_failed("H5Dopen2")) };
        let dapl = without_cache(h5)?;
        // An open dataset would be shared with the newly opened one.
        drop(self.dataset.take());
        // SAFETY: a plain call with ids of ours; the name is that of the one dataset.
        let dataset = unsafe { (h5.H5Dopen2)(file.get(), NAME.as_ptr(), dapl.get()) };
        self.dataset = Some(h5_id(h5, "H5Dopen2", dataset)?);
        Ok(())
    }
    fn id(&self) -> hid_t {
        self.dataset.as_ref().map_or(-1, Hid::get)
    }
}

/// Access properties without a chunk cache: written data are filtered by the time the call returns.
fn without_cache(h5: &'static Api) -> Result<Hid> {
    // SAFETY: plain calls.
    unsafe {
        let dapl = h5_id(h5, "H5Pcreate", (h5.H5Pcreate)(h5.H5P_CLS_DATASET_ACCESS_ID_g()))?;
        h5_check("H5Pset_chunk_cache", (h5.H5Pset_chunk_cache)(dapl.get(), 0, 0, 1.0))?;
        Ok(dapl)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // When the library ends, it closes all datasets first, in any order. A dataset that it has begun to close is no longer ours,
        // and needs its file until it is closed.
        if self.dataset.as_ref().is_some_and(|dataset| !dataset.is_valid()) {
            self.file.take().map(Hid::release);
        }
    }
}

impl NativeChunk {
    /// The pipeline for chunks of the dataset with this header, whose stored elements have `element_bytes`. Makes nothing yet.
    pub fn new(file: &Arc<File>, header: &DatasetHeader, element_bytes: usize) -> Result<Self> {
        let h5 = file.h5;
        let Layout::Chunked(chunk) = &header.props.layout else {
            return Err(Error::new(ErrorKind::InvalidInput, "filters").because("the layout is not chunked"));
        };
        let inside = dtype::look(h5, header.dtype.get())?;
        let mut props = header.props.clone();
        let dtype = if inside.blobs || inside.old_refs {
            // The stored form of such elements is the store's, not HDF5's.
            (props.fill, props.fill_status) = (None, H5D_FILL_VALUE_DEFAULT);
            // SAFETY: a plain call.
            h5_id(h5, "H5Tcreate", unsafe { (h5.H5Tcreate)(H5T_OPAQUE, element_bytes) })?
        } else {
            dtype::copy(h5, header.dtype.get())?
        };
        let plist = props.plist(file, dtype.get())?;
        let filters = std::mem::take(&mut props.filters);
        Ok(Self { h5, dtype, plist, chunk: chunk.clone(), filters, scratch: Mutex::default() })
    }

    /// Makes the dataset, so that HDF5 checks whether its filters exist and accept such elements.
    pub fn check(&self) -> Result<()> {
        self.with(None, |_| Ok(())).map_err(|error| {
            if error.kind() == ErrorKind::Unsupported {
                return error;
            }
            let names: Vec<String> = self.filters.iter().map(|one| filter::name(one.id as u32)).collect();
            Error::new(ErrorKind::Unsupported, format!("filters {}", names.join(", ")))
                .because(format!("HDF5 does not take them for elements and chunks like these ({error})"))
                .try_next("look at their parameters and at the datatype")
        })
    }

    /// The filters as HDF5 lists them for a dataset, with the parameters that they derived from its type and chunks.
    pub fn filters(&self) -> Result<Vec<Filter>> {
        self.with(None, |scratch| {
            // SAFETY: a plain call.
            let plist = unsafe { (self.h5.H5Dget_create_plist)(scratch.id()) };
            filters_of(self.h5, h5_id(self.h5, "H5Dget_create_plist", plist)?.get())
        })
    }

    /// Applies the filters to a whole chunk. Returns the bytes to store, and the mask of optional filters left out.
    pub fn encode(&self, image: &[u8]) -> Result<(Vec<u8>, u32)> {
        self.with(Some(0), |scratch| {
            let dataset = scratch.id();
            let offset = vec![0 as hsize_t; self.chunk.len()];
            let (mut bytes, mut mask) = (0 as hsize_t, 0);
            let h5 = self.h5;
            let (from, all) = (image.as_ptr().cast::<c_void>(), H5S_ALL);
            let size = h5.H5Dget_chunk_storage_size.ok_or_else(too_old)?;
            // SAFETY: the caller states that the chunk has as many bytes as `image`; the others are places of this scope.
            unsafe {
                let status = (h5.H5Dwrite)(dataset, self.dtype.get(), all, all, H5P_DEFAULT, from);
                h5_check("H5Dwrite", status)?;
                h5_check("H5Dget_chunk_storage_size", size(dataset, offset.as_ptr(), &raw mut bytes))?;
            }
            let mut stored = vec![0u8; bytes as usize];
            let to = stored.as_mut_ptr().cast::<c_void>();
            // SAFETY: the buffer has the size that HDF5 reported, under the lock of this chunk.
            let status = unsafe {
                match (h5.H5Dread_chunk2, h5.H5Dread_chunk1.or(h5.H5Dread_chunk)) {
                    (Some(read), _) => {
                        let mut room = stored.len();
                        read(dataset, H5P_DEFAULT, offset.as_ptr(), &raw mut mask, to, &raw mut room)
                    }
                    (None, Some(read)) => read(dataset, H5P_DEFAULT, offset.as_ptr(), &raw mut mask, to),
                    (None, None) => return Err(too_old()),
                }
            };
            h5_check("H5Dread_chunk", status)?;
            scratch.mask = Some(mask);
            Ok((stored, mask))
        })
    }

    /// Undoes the filters that `mask` does not exclude; the chunk has `raw_len` bytes.
    pub fn decode(&self, stored: Vec<u8>, mask: u32, raw_len: usize, skip_checksums: bool) -> Result<Vec<u8>> {
        let is_raw = (0..self.filters.len()).all(|i| mask & (1 << i) != 0);
        if is_raw && stored.len() == raw_len {
            return Ok(stored); // HDF5 would look for a missing filter all the same
        }
        self.with(Some(mask), |scratch| {
            let mut dataset = scratch.id();
            let h5 = self.h5;
            let offset = vec![0 as hsize_t; self.chunk.len()];
            let mut image = vec![0u8; raw_len];
            let write = h5.H5Dwrite_chunk.ok_or_else(too_old)?;
            // SAFETY: a plain call.
            let dxpl = h5_id(h5, "H5Pcreate", unsafe { (h5.H5Pcreate)(h5.H5P_CLS_DATASET_XFER_ID_g()) })?;
            // SAFETY: `stored` and `image` have the lengths given; the caller states that the chunk has `raw_len` bytes.
            unsafe {
                if skip_checksums {
                    h5_check("H5Pset_edc_check", (h5.H5Pset_edc_check)(dxpl.get(), EDC_DISABLED))?;
                }
                let from = stored.as_ptr().cast::<c_void>();
                let status = write(dataset, H5P_DEFAULT, mask, offset.as_ptr(), stored.len(), from);
                h5_check("H5Dwrite_chunk", status)?;
                scratch.mask = Some(mask);
                if mask != 0 {
                    // HDF5 assumes that all filters apply to a chunk that was just written.
                    scratch.reopen(h5)?;
                    dataset = scratch.id();
                }
                let applied = self.filters.iter().enumerate().filter(|(i, _)| mask & (1 << i) == 0);
                self.all_there(applied.map(|(_, one)| one))?;
                let to = image.as_mut_ptr().cast::<c_void>();
                let status = (h5.H5Dread)(dataset, self.dtype.get(), H5S_ALL, H5S_ALL, dxpl.get(), to);
                h5_check("H5Dread", status)?;
            }
            Ok(image)
        })
    }

    /// Returns an error that names the first filter that HDF5 does not find.
    fn all_there<'a>(&self, mut filters: impl Iterator<Item = &'a Filter>) -> Result<()> {
        // SAFETY: a query; it may load a plugin.
        let missing = filters.find(|one| unsafe { (self.h5.H5Zfilter_avail)(one.id) } <= 0);
        missing.map_or(Ok(()), |one| Err(not_found(one.id as u32)))
    }

    /// Calls `act` with the dataset, made if there is none. After an error it is made again, since what HDF5 keeps of the chunk
    /// would fail again. So it is if the next chunk has another mask: HDF5 keeps the old one when sizes are equal.
    fn with<T>(&self, mask: Option<u32>, act: impl FnOnce(&mut Scratch) -> Result<T>) -> Result<T> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let done = quietly(self.h5, || {
            let fits = |made: &Scratch| mask.is_none() || made.mask.is_none() || made.mask == mask;
            let mut made = match scratch.take().filter(fits) {
                Some(made) => made,
                None => self.make()?,
            };
            let done = act(&mut made)?;
            *scratch = Some(made);
            Ok(done)
        });
        // The call that the program made reports errors.
        // SAFETY: a plain call.
        unsafe { (self.h5.H5Eclear2)(H5E_DEFAULT) };
        done
    }

    fn make(&self) -> Result<Scratch> {
        let h5 = self.h5;
        // HDF5 leaves out missing optional filters, as the program allowed.
        let mandatory = self.filters.iter().filter(|one| one.flags & filter::FLAG_OPTIONAL == 0);
        self.all_there(mandatory)?;
        // SAFETY: plain calls with ids and arrays of this scope.
        unsafe {
            let file = file_in_memory(h5, "cenote-chunk")?;
            let dapl = without_cache(h5)?;
            let rank = self.chunk.len() as i32;
            let space = (h5.H5Screate_simple)(rank, self.chunk.as_ptr(), std::ptr::null());
            let space = h5_id(h5, "H5Screate_simple", space)?;
            let (at, dtype, plist) = (file.get(), self.dtype.get(), self.plist.get());
            let dataset = (h5.H5Dcreate2)(at, NAME.as_ptr(), dtype, space.get(), H5P_DEFAULT, plist, dapl.get());
            let dataset = h5_id(h5, "H5Dcreate2", dataset)?;
            Ok(Scratch { dataset: Some(dataset), mask: None, file: Some(file) })
        }
    }
}

/// Makes a file in memory by HDF5's own connector.
pub fn file_in_memory(h5: &'static Api, name: &str) -> Result<Hid> {
    // HDF5 cannot open two files of one name.
    let name = CString::new(format!("{name}-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    let name = name.map_err(|_| h5_failed("H5Fcreate"))?;
    // SAFETY: plain calls with ids of this scope.
    unsafe {
        let fapl = h5_id(h5, "H5Pcreate", (h5.H5Pcreate)(h5.H5P_CLS_FILE_ACCESS_ID_g()))?;
        h5_check("H5Pset_fapl_core", (h5.H5Pset_fapl_core)(fapl.get(), GROWTH_BYTES, false))?;
        h5_check("H5Pset_vol", (h5.H5Pset_vol)(fapl.get(), h5.native_connector()?.get(), std::ptr::null()))?;
        let file = (h5.H5Fcreate)(name.as_ptr(), H5F_ACC_TRUNC, H5P_DEFAULT, fapl.get());
        h5_id(h5, "H5Fcreate", file)
    }
}

fn not_found(id: u32) -> Error {
    Error::new(ErrorKind::Unsupported, format!("filter {}", filter::name(id)))
        .because("HDF5 does not find it in this process")
        .try_next("import hdf5plugin, or add the directory of its plugin to HDF5_PLUGIN_PATH")
}

fn too_old() -> Error {
    Error::new(ErrorKind::Unsupported, "a filter").because("this HDF5 has no calls for chunks")
}
