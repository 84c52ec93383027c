//! The file driver for region references: a file whose content is made while HDF5 reads it.
//!
//! Its addresses are object numbers of the HDF5 file that it stands for: at an object's number there is an object header
//! with the object's extent, at a heap's number a collection with the targets of region references in that heap. HDF5
//! allocates space for a new reference, and gets a fresh number. Everything else that HDF5 keeps in a file (superblock, root
//! group) has addresses that no object has, and is dropped with the file.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use cenote::{Error, ErrorKind};
use parking_lot::Mutex;

use crate::Result;
use crate::error;
use crate::ffi::Api;
use crate::ffi::driver::{DriverClass, DriverHead, Needed};
use crate::ffi::types::{haddr_t, herr_t, hid_t};
use crate::file::File;
use crate::meta::{self, objects};
use crate::space::Extent;

use super::{format, records};

/// From the range for unregistered drivers; only the name matters.
const CLASS_VALUE: c_int = 524;
/// Start of addresses that are not of the HDF5 file, and the end of all addresses.
const OWN_BEGIN: haddr_t = 1 << 63;
const END: haddr_t = OWN_BEGIN + (1 << 40);
/// `H5FD_MEM_SUPER`, `H5FD_MEM_DRAW`, `H5FD_MEM_GHEAP`, `H5FD_MEM_OHDR`.
const SUPER: c_int = 1;
const RAW: c_int = 3;
const HEAP: c_int = 4;
const HEADER: c_int = 6;
const UNDEFINED: haddr_t = haddr_t::MAX;

static CLASS: DriverClass<Open> = DriverClass {
    alloc: Some(alloc),
    ..DriverClass::new(
        CLASS_VALUE,
        c"cenote-regions",
        UNDEFINED - 1,
        &Needed { open, query, get_eoa, set_eoa, get_eof: get_eoa, read, write },
    )
};

/// Content of a made-up file.
pub struct Content {
    file: Weak<File>,
    /// What HDF5 has written: here heaps by number, in `own` everything outside the HDF5 file.
    pub heaps: HashMap<u64, Vec<u8>>,
    own: BTreeMap<u64, Vec<u8>>,
    own_end: u64,
    /// True once HDF5 has written to the file.
    is_begun: bool,
    /// Extents that HDF5 has read and may cache.
    pub told: Vec<(u64, Extent)>,
    /// The rest of the last image read, and its address.
    rest: Option<(haddr_t, Vec<u8>)>,
}

impl Content {
    /// Content of a made-up file that stands for `file`.
    pub fn new(file: &Arc<File>) -> Self {
        Self {
            file: Arc::downgrade(file),
            heaps: HashMap::new(),
            own: BTreeMap::new(),
            own_end: OWN_BEGIN,
            is_begun: false,
            told: Vec::new(),
            rest: None,
        }
    }
    fn file(&self) -> Result<Arc<File>> {
        self.file
            .upgrade()
            .ok_or_else(|| Error::new(ErrorKind::InvalidInput, "region reference").because("its file is closed"))
    }
    fn alloc(&mut self, kind: c_int, bytes: u64) -> Result<u64> {
        self.is_begun = true;
        if kind == SUPER {
            return Ok(0);
        }
        if kind == RAW || kind == HEAP {
            let number = self.file()?.new_id()?;
            self.heaps.insert(number, Vec::new());
            return Ok(number);
        }
        let begin = self.own_end;
        self.own_end += bytes.next_multiple_of(8);
        Ok(begin)
    }
    fn read(&mut self, kind: c_int, address: u64, buf: &mut [u8]) -> Result<()> {
        let image = match self.rest.take() {
            Some((at, bytes)) if at == address => bytes,
            _ => self.image(kind, address)?,
        };
        // HDF5 reads the usual size of such structures; it ignores bytes past the image's end.
        let got = image.len().min(buf.len());
        buf[..got].copy_from_slice(&image[..got]);
        buf[got..].fill(0);
        if image.len() > got {
            self.rest = Some((address + got as u64, image[got..].to_vec()));
        }
        Ok(())
    }
    fn image(&mut self, kind: c_int, address: u64) -> Result<Vec<u8>> {
        if let Some(written) = self.own.get(&address) {
            return Ok(written.clone());
        }
        let file = self.file()?;
        match kind {
            RAW | HEAP => {
                let written = self.heaps.get(&address).filter(|image| !image.is_empty());
                match written {
                    Some(image) => Ok(image.clone()),
                    None => records::collection(&file, address),
                }
            }
            HEADER => {
                let oid = objects::canonical(&file, address)?;
                let extent = meta::extent_get(&file, oid)?;
                self.told.push((oid, extent.clone()));
                Ok(format::object_header(&extent))
            }
            _ => Err(Error::new(ErrorKind::Corrupt, format!("region reference of file {}", file.path))
                .because(format!("it refers to address {address:#x}, where there is no object"))),
        }
    }
    fn write(&mut self, kind: c_int, address: u64, bytes: &[u8]) {
        if (kind == RAW || kind == HEAP) && address < OWN_BEGIN {
            self.heaps.insert(address, bytes.to_vec());
        } else {
            self.own.insert(address, bytes.to_vec());
        }
    }
}

/// An open file of this driver.
#[repr(C)]
struct Open {
    head: DriverHead,
    content: Arc<Mutex<Content>>,
    h5: &'static Api,
}

thread_local! {
    /// The file that is being made on this thread.
    static OPENING: RefCell<Option<Open>> = const { RefCell::new(None) };
}

/// Runs `make` (`H5Fcreate` with these access properties) so that it creates a file of `content`.
pub fn making<T>(
    h5: &'static Api,
    fapl: hid_t,
    content: &Arc<Mutex<Content>>,
    make: impl FnOnce() -> Result<T>,
) -> Result<T> {
    CLASS.set(h5, fapl)?;
    OPENING.set(Some(Open { head: DriverHead::default(), content: content.clone(), h5 }));
    let made = make();
    OPENING.take();
    made
}

unsafe extern "C" fn open(_: *const c_char, _: c_uint, _: hid_t, _: haddr_t) -> *mut Open {
    OPENING.take().map_or(std::ptr::null_mut(), |file| Box::into_raw(Box::new(file)))
}

unsafe extern "C" fn query(_: *const Open, flags: *mut c_ulong) -> herr_t {
    if !flags.is_null() {
        // SAFETY: HDF5 passes a valid place.
        unsafe { flags.write(0) };
    }
    0
}

/// Runs the work of a callback; a failure goes to the error stack.
fn run<T>(file: *mut Open, failed: T, work: impl FnOnce(&mut Content) -> Result<T>) -> T {
    // SAFETY: it was made by `open` and is not closed.
    let file = unsafe { &*file };
    match catch_unwind(AssertUnwindSafe(|| work(&mut file.content.lock()))) {
        Ok(Ok(out)) => out,
        Ok(Err(error)) => {
            error::push(file.h5, "file_regions", &error);
            failed
        }
        Err(_) => failed,
    }
}

unsafe extern "C" fn alloc(file: *mut Open, kind: c_int, _: hid_t, bytes: u64) -> haddr_t {
    run(file, UNDEFINED, |content| content.alloc(kind, bytes))
}

/// While a file is being created, HDF5 expects it to be empty.
unsafe extern "C" fn get_eoa(file: *const Open, _: c_int) -> haddr_t {
    // SAFETY: it was made by `open` and is not closed.
    if unsafe { &*file }.content.lock().is_begun { END } else { 0 }
}

unsafe extern "C" fn set_eoa(_: *mut Open, _: c_int, _: haddr_t) -> herr_t {
    0
}

unsafe extern "C" fn read(
    file: *mut Open,
    kind: c_int,
    _: hid_t,
    address: haddr_t,
    size: usize,
    buf: *mut c_void,
) -> herr_t {
    // SAFETY: the buffer has the size given.
    let buf = unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), size) };
    run(file, -1, |content| content.read(kind, address, buf).map(|()| 0))
}

unsafe extern "C" fn write(
    file: *mut Open,
    kind: c_int,
    _: hid_t,
    address: haddr_t,
    size: usize,
    buf: *const c_void,
) -> herr_t {
    // SAFETY: the buffer has the size given.
    let bytes = unsafe { std::slice::from_raw_parts(buf.cast::<u8>(), size) };
    run(file, -1, |content| {
        content.write(kind, address, bytes);
        Ok(0)
    })
}
