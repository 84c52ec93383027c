//! An HDF5 file driver for a file with two parts: what HDF5 writes of its own (headers, heaps, indices), whose bytes are
//! kept; and raw data that are already in the store, of which only the addresses are recorded.
//!
//! Its caller tells the parts apart: before it makes HDF5 write a chunk, or allocate a dataset's run, it tells the driver
//! whose bytes these will be. Everything else is kept, including raw data with heap addresses.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cenote::{Error, ErrorKind, Object};
use parking_lot::Mutex;

use crate::Result;
use crate::error;
use crate::ffi::Api;
use crate::ffi::driver::{DriverClass, DriverHead, Needed};
use crate::ffi::types::{haddr_t, herr_t, hid_t};

/// From the range for unregistered drivers; only the name matters.
const CLASS_VALUE: c_int = 525;
const ADDRESS_MAX: haddr_t = (1 << 63) - 1;
/// `H5FD_FEAT_AGGREGATE_METADATA` and `H5FD_FEAT_AGGREGATE_SMALLDATA`: small pieces are adjacent. No data sieve, which would
/// write raw data at times that the caller does not know.
const FEATURES: c_ulong = 0x1 | 0x10;
/// `H5FD_MEM_DRAW`.
const RAW: c_int = 3;
/// Page size of kept bytes.
const PAGE_BYTES: usize = 64 << 10;

static CLASS: DriverClass<Open> = DriverClass::new(
    CLASS_VALUE,
    c"cenote-image",
    ADDRESS_MAX,
    &Needed { open, query, get_eoa, set_eoa, get_eof, read, write },
);

/// Raw data of the store that are part of the file.
#[derive(Clone)]
pub struct Lent {
    /// The object that has them.
    pub object: Object,
    /// Offset in the object, in bytes.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// What happens to raw data that HDF5 writes.
#[derive(Default)]
enum Raw {
    /// The bytes are kept.
    #[default]
    Kept,
    /// The bytes are dropped: the caller records the data afterwards.
    Dropped,
    /// The bytes are these of the store, in one piece.
    Are(Lent),
}

/// A file in the making.
#[derive(Default)]
pub struct Making {
    raw: Raw,
    pages: BTreeMap<u64, Box<[u8]>>,
    lent: BTreeMap<u64, Lent>,
    eoa: u64,
    end: u64,
}

impl Making {
    /// Records that the raw data written by `act` are these bytes of the store. Returns an error if `act` did not write
    /// them.
    pub fn lend<T>(this: &Mutex<Self>, lent: Lent, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let (before, bytes) = (this.lock().lent.len(), lent.bytes);
        this.lock().raw = Raw::Are(lent);
        let done = act();
        let mut making = this.lock();
        making.raw = Raw::Kept;
        if done.is_ok() && making.lent.len() != before + 1 {
            return Err(Error::new(ErrorKind::Internal, "byte image of an HDF5 file")
                .because(format!("HDF5 did not write {bytes} bytes of a chunk in one piece")));
        }
        done
    }
    /// Drops the raw data written by `act`.
    pub fn dropping<T>(this: &Mutex<Self>, act: impl FnOnce() -> Result<T>) -> Result<T> {
        this.lock().raw = Raw::Dropped;
        let done = act();
        this.lock().raw = Raw::Kept;
        done
    }
    /// Records these bytes of the store at an address.
    pub fn lent_at(&mut self, address: u64, lent: Lent) {
        self.lent.insert(address, lent);
    }
    /// Keeps bytes at an address.
    pub fn keep(&mut self, address: u64, bytes: &[u8]) {
        let mut at = address;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (page, begin) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
            let (part, later) = rest.split_at(rest.len().min(PAGE_BYTES - begin));
            // Zeros on an empty page are not kept: an early-allocated dataset may have very many.
            if self.pages.contains_key(&page) || part.iter().any(|byte| *byte != 0) {
                let kept = self.pages.entry(page).or_insert_with(|| vec![0; PAGE_BYTES].into_boxed_slice());
                kept[begin..begin + part.len()].copy_from_slice(part);
            }
            at += part.len() as u64;
            rest = later;
        }
        self.end = self.end.max(at);
    }
    /// The file's size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.eoa.max(self.end)
    }
    /// Runs of kept bytes with their addresses.
    pub fn kept(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let size = self.size_bytes();
        self.pages.iter().filter_map(move |(page, bytes)| {
            let at = page * PAGE_BYTES as u64;
            let len = size.saturating_sub(at).min(PAGE_BYTES as u64) as usize;
            (len > 0).then_some((at, &bytes[..len]))
        })
    }
    /// Bytes of the store with their addresses; adjacent ranges of one object are joined.
    pub fn lent(&self) -> Vec<(u64, Lent)> {
        let mut all: Vec<(u64, Lent)> = Vec::with_capacity(self.lent.len());
        for (address, lent) in &self.lent {
            if let Some((at, last)) = all.last_mut()
                && *at + last.bytes == *address
                && last.object.key() == lent.object.key()
                && last.offset + last.bytes == lent.offset
            {
                last.bytes += lent.bytes;
                continue;
            }
            all.push((*address, lent.clone()));
        }
        all
    }

    fn write(&mut self, kind: c_int, address: u64, bytes: &[u8]) -> Result<()> {
        if kind == RAW {
            match std::mem::take(&mut self.raw) {
                Raw::Kept => {}
                Raw::Dropped => {
                    self.raw = Raw::Dropped;
                    self.end = self.end.max(address + bytes.len() as u64);
                    return Ok(());
                }
                Raw::Are(lent) if lent.bytes == bytes.len() as u64 => {
                    self.end = self.end.max(address + lent.bytes);
                    self.lent.insert(address, lent);
                    return Ok(());
                }
                Raw::Are(lent) => {
                    return Err(Error::new(ErrorKind::Internal, "byte image of an HDF5 file").because(format!(
                        "HDF5 writes {} bytes where a chunk of {} was to come",
                        bytes.len(),
                        lent.bytes
                    )));
                }
            }
        }
        self.keep(address, bytes);
        Ok(())
    }
    fn read(&self, address: u64, buf: &mut [u8]) {
        buf.fill(0);
        let mut done = 0;
        while done < buf.len() {
            let at = address + done as u64;
            let (page, begin) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
            let len = (buf.len() - done).min(PAGE_BYTES - begin);
            if let Some(kept) = self.pages.get(&page) {
                buf[done..done + len].copy_from_slice(&kept[begin..begin + len]);
            }
            done += len;
        }
    }
}

/// An open file of this driver.
#[repr(C)]
struct Open {
    head: DriverHead,
    making: Arc<Mutex<Making>>,
    h5: &'static Api,
}

thread_local! {
    /// The file that is being made on this thread.
    static OPENING: RefCell<Option<Open>> = const { RefCell::new(None) };
}

/// Runs `make` (`H5Fcreate` with these access properties) so that it creates `making`.
pub fn making<T>(
    h5: &'static Api,
    fapl: hid_t,
    making: &Arc<Mutex<Making>>,
    make: impl FnOnce() -> Result<T>,
) -> Result<T> {
    CLASS.set(h5, fapl)?;
    OPENING.set(Some(Open { head: DriverHead::default(), making: making.clone(), h5 }));
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
        unsafe { flags.write(FEATURES) };
    }
    0
}

unsafe extern "C" fn get_eoa(file: *const Open, _: c_int) -> haddr_t {
    // SAFETY: it was made by `open` and is not closed.
    unsafe { &*file }.making.lock().eoa
}

unsafe extern "C" fn set_eoa(file: *mut Open, _: c_int, address: haddr_t) -> herr_t {
    // SAFETY: as above.
    unsafe { &*file }.making.lock().eoa = address;
    0
}

unsafe extern "C" fn get_eof(file: *const Open, _: c_int) -> haddr_t {
    // SAFETY: as above.
    unsafe { &*file }.making.lock().end
}

unsafe extern "C" fn read(
    file: *mut Open,
    _: c_int,
    _: hid_t,
    address: haddr_t,
    size: usize,
    buf: *mut c_void,
) -> herr_t {
    // SAFETY: the file was made by `open`; the buffer has the size given.
    let (file, buf) = unsafe { (&*file, std::slice::from_raw_parts_mut(buf.cast::<u8>(), size)) };
    file.making.lock().read(address, buf);
    0
}

unsafe extern "C" fn write(
    file: *mut Open,
    kind: c_int,
    _: hid_t,
    address: haddr_t,
    size: usize,
    buf: *const c_void,
) -> herr_t {
    // SAFETY: as above.
    let (file, bytes) = unsafe { (&*file, std::slice::from_raw_parts(buf.cast::<u8>(), size)) };
    match catch_unwind(AssertUnwindSafe(|| file.making.lock().write(kind, address, bytes))) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            error::push(file.h5, "file_image", &error);
            -1
        }
        Err(_) => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_back_and_zeros_take_no_room() {
        let mut making = Making::default();
        making.write(1, 10, b"head").unwrap();
        making.write(RAW, 1 << 20, &vec![0; 1 << 20]).unwrap();
        making.write(RAW, (3 << 20) - 2, b"over the edge of a page").unwrap();
        let mut buf = [1; 23];
        making.read((3 << 20) - 2, &mut buf);
        assert_eq!(&buf, b"over the edge of a page");
        assert_eq!(making.pages.len(), 3);
        assert_eq!(making.size_bytes(), (3 << 20) + 21);
        assert_eq!(making.kept().map(|(_, bytes)| bytes.len()).sum::<usize>(), 2 * PAGE_BYTES + 21);
    }

    #[test]
    fn raw_data_of_nobody_who_was_told_are_kept() {
        let making = Mutex::new(Making::default());
        Making::dropping(&making, || making.lock().write(RAW, 0, b"dropped")).unwrap();
        making.lock().write(RAW, 100, b"kept").unwrap();
        let mut buf = [1; 7];
        making.lock().read(0, &mut buf);
        assert_eq!(buf, [0; 7]);
        making.lock().read(100, &mut buf[..4]);
        assert_eq!(&buf[..4], b"kept");
    }
}
