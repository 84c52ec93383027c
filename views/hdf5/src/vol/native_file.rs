//! Calls of the native connector about a file that ordinary programs make: sizes, the metadata cache, the descriptor. What they
//! ask about does not exist here, so the answers are those for a file with an empty cache and no free space.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::error::h5_check;
use crate::ffi::types::{H5F_ACC_SWMR_WRITE, OptionalArgs};
use crate::file::{File, path};

use super::{args, unknown_op};

const CLEAR_ELINK_CACHE: c_int = 0;
const GET_FREE_SECTIONS: c_int = 2;
const GET_FREE_SPACE: c_int = 3;
const GET_INFO: c_int = 4;
const GET_MDC_CONFIG: c_int = 5;
const GET_MDC_HIT_RATE: c_int = 6;
const GET_MDC_SIZE: c_int = 7;
const GET_SIZE: c_int = 8;
const GET_VFD_HANDLE: c_int = 9;
const RESET_MDC_HIT_RATE: c_int = 10;
const SET_MDC_CONFIG: c_int = 11;
const GET_RETRY_INFO: c_int = 12;
const START_SWMR_WRITE: c_int = 13;
const GET_MDC_LOGGING_STATUS: c_int = 16;
const FORMAT_CONVERT: c_int = 17;
const GET_MDC_IMAGE_INFO: c_int = 20;
const GET_EOA: c_int = 21;
const INCREMENT_SIZE: c_int = 22;
const SET_LIBVER_BOUNDS: c_int = 23;
const GET_NO_ATTRS_HINT: c_int = 24;
const SET_NO_ATTRS_HINT: c_int = 25;
const GET_MPI_ATOMICITY: c_int = 26;
const SET_MPI_ATOMICITY: c_int = 27;
/// Called after HDF5 has opened a file.
pub const POST_OPEN: c_int = 28;

/// HDF5's initial limit for its cache.
const CACHE_BYTES_MAX: usize = 2 << 20;
const HADDR_UNDEF: u64 = u64::MAX;

/// `H5VL_native_file_get_mdc_size_t`
#[repr(C)]
struct MdcSize {
    max: *mut usize,
    min_clean: *mut usize,
    current: *mut usize,
    entries: *mut u32,
}

/// `H5VL_native_file_get_free_sections_t`
#[repr(C)]
struct FreeSections {
    kind: c_int,
    sections: *mut c_void,
    room: usize,
    count: *mut usize,
}

/// Size of `H5F_info2_t` in words.
const INFO_WORDS: usize = 10;

/// `H5VL_native_file_get_info_t`
#[repr(C)]
struct Info {
    kind: c_int,
    info: *mut [u64; INFO_WORDS],
}

/// `H5VL_native_file_get_vfd_handle_t`
#[repr(C)]
struct VfdHandle {
    fapl: i64,
    handle: *mut *mut c_void,
}

/// `H5F_retry_info_t`
#[repr(C)]
struct RetryInfo {
    bins: c_uint,
    retries: [*mut u32; 21],
}

/// Writes to a place unless the program left it null.
unsafe fn give<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller vouches for a place that is not null.
        unsafe { place.write(value) };
    }
}

/// Starts SWMR writing: lets readers in, and holds larger extents until a flush. Readers see every other write at once anyway.
fn start_swmr_write(file: &Arc<File>) -> Result<()> {
    file.need_writable("SWMR writing")?;
    super::file::flush(file)?;
    if let Some(in_use) = &file.in_use {
        in_use.begin_swmr(&path::of_label(&file.path))?;
        file.shared.write_for_readers(in_use.is_swmr());
    }
    file.intent.fetch_or(H5F_ACC_SWMR_WRITE, Ordering::Relaxed);
    Ok(())
}

/// Carries out an optional operation on a file.
pub fn optional(file: &Arc<File>, what: &OptionalArgs) -> Result<()> {
    let (h5, at) = (file.h5, what.args);
    // SAFETY: HDF5 passes the arguments of the operation that it names.
    unsafe {
        match what.op_type {
            START_SWMR_WRITE => start_swmr_write(file),
            INCREMENT_SIZE | POST_OPEN | SET_LIBVER_BOUNDS | CLEAR_ELINK_CACHE | RESET_MDC_HIT_RATE
            | FORMAT_CONVERT => Ok(()),
            GET_SIZE | GET_EOA => args::put(*at.cast::<*mut u64>(), file.stored_bytes()?),
            GET_FREE_SPACE => args::put(*at.cast::<*mut u64>(), 0),
            GET_FREE_SECTIONS => {
                give((*at.cast::<FreeSections>()).count, 0);
                Ok(())
            }
            // There is no superblock, no space manager and no table of shared messages.
            GET_INFO => args::put((*at.cast::<Info>()).info, [0; INFO_WORDS]),
            // Return what the program set.
            GET_MDC_CONFIG => {
                h5_check("H5Pget_mdc_config", (h5.H5Pget_mdc_config)(file.fapl.get(), *at.cast())).map(|_| ())
            }
            SET_MDC_CONFIG => {
                h5_check("H5Pset_mdc_config", (h5.H5Pset_mdc_config)(file.fapl.get(), *at.cast())).map(|_| ())
            }
            GET_MDC_HIT_RATE => args::put(*at.cast::<*mut f64>(), 0.0),
            GET_MDC_SIZE => {
                let sizes = &*at.cast::<MdcSize>();
                give(sizes.max, CACHE_BYTES_MAX);
                give(sizes.min_clean, 0);
                give(sizes.current, 0);
                give(sizes.entries, 0);
                Ok(())
            }
            GET_MDC_LOGGING_STATUS => {
                let [enabled, logging] = *at.cast::<[*mut bool; 2]>();
                give(enabled, false);
                give(logging, false);
                Ok(())
            }
            GET_MDC_IMAGE_INFO => {
                let [address, bytes] = *at.cast::<[*mut u64; 2]>();
                give(address, HADDR_UNDEF);
                give(bytes, 0);
                Ok(())
            }
            GET_RETRY_INFO => {
                args::put(*at.cast::<*mut RetryInfo>(), RetryInfo { bins: 0, retries: [std::ptr::null_mut(); 21] })
            }
            GET_VFD_HANDLE => {
                let path = path::of_label(&file.path);
                let descriptor = file.at_path.descriptor(file.in_use.as_deref(), &path, file.writable)?;
                args::put((*at.cast::<VfdHandle>()).handle, descriptor.cast())
            }
            GET_NO_ATTRS_HINT => args::put(*at.cast::<*mut bool>(), file.no_attrs_hint.load(Ordering::Relaxed)),
            SET_NO_ATTRS_HINT => {
                file.no_attrs_hint.store(*at.cast::<bool>(), Ordering::Relaxed);
                Ok(())
            }
            // Every write is atomic here, whether asked for or not.
            GET_MPI_ATOMICITY | SET_MPI_ATOMICITY if !file.is_parallel => {
                Err(Error::new(ErrorKind::InvalidInput, format!("atomicity of file {}", file.path))
                    .because("it is not open with the MPI-IO driver (every write is atomic here)"))
            }
            GET_MPI_ATOMICITY => args::put(*at.cast::<*mut bool>(), file.is_atomic.load(Ordering::Relaxed)),
            SET_MPI_ATOMICITY => {
                file.is_atomic.store(*at.cast::<bool>(), Ordering::Relaxed);
                Ok(())
            }
            other => Err(unknown_op("file_optional", other)),
        }
    }
}
