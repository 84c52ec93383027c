//! Old region references (`H5T_STD_REF_DSETREG`, h5py's `dset.regionref`).
//!
//! Such a reference is 12 bytes: the number of a heap in the file, and of an object in that heap, which contains dataset and
//! selection. libhdf5 itself reads and writes the heap, and the dataset's object header for its extent, in what it takes for its
//! own file structure, without asking a connector. But it asks for that structure first ([`object_of`], the connector's
//! `get_object`), so it can get a real one: that of a file of its own, whose [`driver`] makes up the content that HDF5 looks for
//! at each address. The targets of references become records of the HDF5 file ([`records`]) before anything that could contain a
//! reference is written ([`settle`]). For a native file read in place, the structure is that file's.
//!
//! This module must not know where references are kept.

mod driver;
mod format;
pub mod records;

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use cenote::{Error, ErrorKind};
use cenote_host::fork::generation as fork_generation;
use parking_lot::Mutex;

use crate::error::{self, h5_check, h5_id};
use crate::ffi::types::{H5F_ACC_TRUNC, H5P_DEFAULT, hid_t};
use crate::ffi::{Api, Hid};
use crate::file::File;
use crate::meta::records::Record;
use crate::object::{Body, Handle};
use crate::{Result, blob, foreign, meta};

use driver::Content;

/// `H5R_DATASET_REGION`.
pub const REGION: c_int = 1;
/// Number of extents that HDF5 may cache before it is made to forget them.
const TOLD_MAX: usize = 64;
/// Callbacks that can put a reference where others find it.
const TELLING: [&str; 8] = [
    "attr_write",
    "dataset_write",
    "dataset_create",
    "dataset_optional",
    "file_specific",
    "file_close",
    "object_copy",
    "map",
];

thread_local! {
    /// The handle whose address size HDF5 has just asked for; it may look into the file's structure next.
    static ASKED: Cell<usize> = const { Cell::new(0) };
    /// HDF5 has looked up an object before: it creates a reference rather than following one.
    static IS_MAKING: Cell<bool> = const { Cell::new(false) };
}

/// Files with new references that are not stored yet.
static PENDING: Mutex<Vec<Weak<File>>> = Mutex::new(Vec::new());
static IS_PENDING: AtomicBool = AtomicBool::new(false);

/// A file of libhdf5's own that stands for a file of the store, while it exists.
#[derive(Default)]
pub struct Regions(Mutex<Option<MadeUp>>);

struct MadeUp {
    id: Hid,
    content: Arc<Mutex<Content>>,
    generation: u64,
}

impl MadeUp {
    fn new(file: &Arc<File>) -> Result<Self> {
        let h5 = file.h5;
        let content = Arc::new(Mutex::new(Content::new(file)));
        // SAFETY: plain calls with ids of this scope; the name ends in NUL.
        let id = unsafe {
            let fapl = h5_id(h5, "H5Pcreate", (h5.H5Pcreate)(h5.H5P_CLS_FILE_ACCESS_ID_g()))?;
            let native = h5.native_connector()?;
            h5_check("H5Pset_vol", (h5.H5Pset_vol)(fapl.get(), native.get(), std::ptr::null()))?;
            let name = c"references to regions";
            let make = || (h5.H5Fcreate)(name.as_ptr(), H5F_ACC_TRUNC, H5P_DEFAULT, fapl.get());
            let what = || format!("region reference of file {}", file.path);
            driver::making(h5, fapl.get(), &content, || h5_id(h5, "H5Fcreate", foreign::written(h5, what, make)?))?
        };
        Ok(Self { id: id.hidden(), content, generation: fork_generation() })
    }
    /// Returns true if the extents that HDF5 has read still hold.
    fn is_current(&self, file: &File) -> bool {
        let told = &self.content.lock().told;
        self.generation == fork_generation()
            && told.len() <= TOLD_MAX
            && told.iter().all(|(oid, extent)| meta::extent_get(file, *oid).is_ok_and(|now| now == *extent))
    }
    /// Stores new references; HDF5 forgets everything.
    fn end(self, file: &File) -> Result<()> {
        let is_own = self.generation == fork_generation();
        drop(self.id); // closes the file: HDF5 writes new references
        if is_own { records::store(file, self.content.lock().heaps.iter()) } else { Ok(()) }
    }
}

/// Called when a callback begins.
pub fn began(callback: &str) {
    ASKED.set(0);
    if !matches!(callback, "object_get" | "file_get") {
        IS_MAKING.set(false);
    }
}

/// Called when HDF5 has looked up an object's number.
pub fn looked_up() {
    IS_MAKING.set(true);
}

/// Called when HDF5 has asked for the address size of a file.
pub fn asked(handle: *mut c_void) {
    ASKED.set(handle as usize);
}

/// What libhdf5 takes for its own file or object: the handle itself, unless libhdf5 is about to read a file's heap. Null on
/// failure, with the error on the stack.
pub fn object_of(handle: *mut c_void) -> *mut c_void {
    if ASKED.replace(0) != handle as usize || handle.is_null() {
        return handle;
    }
    let Ok(Handle { h5, body: Body::File(file), .. }) = Handle::at(handle) else { return handle };
    structure(file, IS_MAKING.replace(false)).unwrap_or_else(|cause| {
        error::push(h5, "file_regions", &cause);
        std::ptr::null_mut()
    })
}

fn structure(file: &Arc<File>, is_making: bool) -> Result<*mut c_void> {
    if is_making {
        file.need_writable("making a region reference")?;
    }
    if let Some(native) = &file.native {
        return Ok(native.structure());
    }
    let mut made = file.regions.0.lock();
    if !is_making && made.as_ref().is_some_and(|made| !made.is_current(file)) {
        made.take().map_or(Ok(()), |made| made.end(file))?;
    }
    if made.is_none() {
        *made = Some(MadeUp::new(file)?);
    }
    if is_making {
        PENDING.lock().push(Arc::downgrade(file));
        IS_PENDING.store(true, Ordering::Release);
    }
    // SAFETY: a plain query of a valid id.
    Ok(made.as_ref().map_or(std::ptr::null_mut(), |made| unsafe { (file.h5.H5VLobject)(made.id.get()) }))
}

/// Stores the targets of new references, if `callback` could show the references to others.
pub fn settle(callback: &str) -> Result<()> {
    if !IS_PENDING.load(Ordering::Acquire) || !TELLING.contains(&callback) {
        return Ok(());
    }
    let pending = {
        let mut pending = PENDING.lock();
        IS_PENDING.store(false, Ordering::Release);
        std::mem::take(&mut *pending)
    };
    for file in pending.iter().filter_map(Weak::upgrade) {
        let made = file.regions.0.lock().take();
        made.map_or(Ok(()), |made| made.end(&file))?;
    }
    Ok(())
}

/// The selection of a reference, as a dataspace. `id`: of any object in its file.
pub fn selection(h5: &'static Api, id: hid_t, reference: &[u8; records::REFERENCE_BYTES]) -> Result<Hid> {
    // SAFETY: the reference has the size of one; HDF5 only reads it, and requires that the object passes for a native one.
    let space = blob::without_file(|| unsafe { (h5.H5Rget_region)(id, REGION, reference.as_ptr().cast()) });
    h5_id(h5, "H5Rget_region", space)
}

/// The selection of a reference, without the connector.
pub fn selection_in(file: &Arc<File>, reference: &[u8; records::REFERENCE_BYTES]) -> Result<Hid> {
    structure(file, false)?;
    let made = file.regions.0.lock();
    selection(file.h5, made.as_ref().map_or(-1, |made| made.id.get()), reference)
}

/// Makes records of references with given numbers.
pub struct Serialiser {
    made: MadeUp,
    h5: &'static Api,
    /// Each reference, with its dataset and the reference by HDF5 that has its selection.
    all: Vec<(Reference, u64, Reference)>,
}

type Reference = [u8; records::REFERENCE_BYTES];

impl Serialiser {
    /// For references of `file`.
    pub fn new(file: &Arc<File>) -> Result<Self> {
        Ok(Self { made: MadeUp::new(file)?, h5: file.h5, all: Vec::new() })
    }
    /// Adds a reference to the selection of `space` in dataset `oid`.
    pub fn add(&mut self, reference: Reference, oid: u64, space: hid_t) -> Result<()> {
        let mut made: Reference = [0; records::REFERENCE_BYTES];
        let place = made.as_mut_ptr().cast();
        // SAFETY: the place has the size of a reference; the name ends in NUL.
        let create = || unsafe { (self.h5.H5Rcreate)(place, self.made.id.get(), c".".as_ptr(), REGION, space) };
        foreign::written(self.h5, || "region reference".to_owned(), || i64::from(create()))?;
        self.all.push((reference, oid, made));
        Ok(())
    }
    /// The records.
    pub fn records(self) -> Result<Vec<Record>> {
        let MadeUp { id, content, .. } = self.made;
        drop(id); // closes the file: HDF5 writes it
        let mut heaps = HashMap::new();
        for (heap, image) in content.lock().heaps.iter().filter(|(_, image)| !image.is_empty()) {
            heaps.insert(*heap, format::objects_in(image)?);
        }
        let found = |(reference, oid, made): &(Reference, u64, Reference)| {
            let (heap, number) = records::parts(made);
            let mut referred = heaps.get(&heap)?.get(&(number as u16))?.clone();
            *referred.first_chunk_mut()? = oid.to_le_bytes();
            Some((records::key_of(reference), referred))
        };
        let missing =
            || Error::new(ErrorKind::Internal, "region reference").because("HDF5 did not write it where it said");
        self.all.iter().map(|one| found(one).ok_or_else(missing)).collect()
    }
}
