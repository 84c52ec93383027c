//! File creation properties that are not those of a group: how a native file would use its space. They have no effect
//! here but are returned as given. Page buffers follow HDF5's rules for them.

use std::sync::Arc;

use cenote::{Error, ErrorKind, Transaction};

use super::File;
use crate::Result;
use crate::error::h5_check;
use crate::ffi::Api;
use crate::ffi::types::hid_t;
use crate::meta::bytes::{Encode, Reader};
use crate::meta::keys;
use crate::meta::records::Meta;

const VERSION: u8 = 1;
/// `H5F_FSPACE_STRATEGY_PAGE`.
const STRATEGY_PAGE: i32 = 1;

/// File creation properties that have no effect here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Creation {
    strategy: i32,
    persist: bool,
    threshold: u64,
    page_bytes: u64,
    sym_k: (u32, u32),
    istore_k: u32,
    sizes: (u64, u64),
}

/// HDF5's defaults.
const DEFAULT: Creation = Creation {
    strategy: 0,
    persist: false,
    threshold: 1,
    page_bytes: 4096,
    sym_k: (16, 4),
    istore_k: 32,
    sizes: (8, 8),
};

impl Creation {
    /// HDF5's defaults.
    pub fn defaults() -> Self {
        DEFAULT
    }
    /// Reads them from a file creation property list.
    pub fn of(h5: &'static Api, fcpl: hid_t) -> Result<Self> {
        let mut out = DEFAULT;
        let mut sizes = (0usize, 0usize);
        // SAFETY: the places are valid; the list is a file creation property list.
        unsafe {
            let status = (h5.H5Pget_file_space_strategy)(
                fcpl,
                &raw mut out.strategy,
                &raw mut out.persist,
                &raw mut out.threshold,
            );
            h5_check("H5Pget_file_space_strategy", status)?;
            let status = (h5.H5Pget_file_space_page_size)(fcpl, &raw mut out.page_bytes);
            h5_check("H5Pget_file_space_page_size", status)?;
            h5_check("H5Pget_sym_k", (h5.H5Pget_sym_k)(fcpl, &raw mut out.sym_k.0, &raw mut out.sym_k.1))?;
            h5_check("H5Pget_istore_k", (h5.H5Pget_istore_k)(fcpl, &raw mut out.istore_k))?;
            h5_check("H5Pget_sizes", (h5.H5Pget_sizes)(fcpl, &raw mut sizes.0, &raw mut sizes.1))?;
        }
        out.sizes = (sizes.0 as u64, sizes.1 as u64);
        Ok(out)
    }

    /// Sets them on a file creation property list.
    pub fn apply(&self, h5: &'static Api, fcpl: hid_t) -> Result<()> {
        if *self == DEFAULT {
            return Ok(());
        }
        // SAFETY: plain calls with values that came from the same functions.
        unsafe {
            let status = (h5.H5Pset_file_space_strategy)(fcpl, self.strategy, self.persist, self.threshold);
            h5_check("H5Pset_file_space_strategy", status)?;
            let status = (h5.H5Pset_file_space_page_size)(fcpl, self.page_bytes);
            h5_check("H5Pset_file_space_page_size", status)?;
            h5_check("H5Pset_sym_k", (h5.H5Pset_sym_k)(fcpl, self.sym_k.0, self.sym_k.1))?;
            h5_check("H5Pset_istore_k", (h5.H5Pset_istore_k)(fcpl, self.istore_k))?;
            h5_check("H5Pset_sizes", (h5.H5Pset_sizes)(fcpl, self.sizes.0 as usize, self.sizes.1 as usize))?;
        }
        Ok(())
    }

    /// Stores them with a file's metadata, unless they are HDF5's defaults.
    pub fn put(&self, tx: &mut Transaction, meta: &cenote::Index) -> Result<()> {
        let Some(record) = self.record() else { return Ok(()) };
        tx.put(meta, &Self::key(), &record)
    }

    /// The key of their record.
    pub fn key() -> Vec<u8> {
        keys::of(keys::TAG_FILE, keys::ROOT)
    }

    /// Their record, unless they are HDF5's defaults.
    pub fn record(&self) -> Option<Vec<u8>> {
        (*self != DEFAULT).then(|| self.encode())
    }

    fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        w.put_u8(VERSION);
        w.put_u32(self.strategy as u32);
        w.put_u8(u8::from(self.persist));
        for word in [self.threshold, self.page_bytes, self.sizes.0, self.sizes.1] {
            w.put_u64(word);
        }
        for word in [self.sym_k.0, self.sym_k.1, self.istore_k] {
            w.put_u32(word);
        }
        w
    }

    /// Reads those of a file.
    pub fn get(meta: &Meta) -> Result<Self> {
        let record = meta.get_one(&keys::of(keys::TAG_FILE, keys::ROOT))?;
        record.map_or(Ok(DEFAULT), |record| Self::decode(&record))
    }

    fn decode(record: &[u8]) -> Result<Self> {
        let mut r = Reader::of("creation properties of a file", record);
        if r.u8()? != VERSION {
            return Err(r.malformed("they have an unknown version"));
        }
        let (strategy, persist) = (r.u32()? as i32, r.u8()? != 0);
        let (threshold, page_bytes, sizes) = (r.u64()?, r.u64()?, (r.u64()?, r.u64()?));
        Ok(Self { strategy, persist, threshold, page_bytes, sizes, sym_k: (r.u32()?, r.u32()?), istore_k: r.u32()? })
    }

    /// Refuses a page buffer that HDF5 would refuse for a new file.
    pub fn check(&self, h5: &'static Api, fapl: hid_t) -> Result<()> {
        let bad = |cause: &str| {
            let error = Error::new(ErrorKind::InvalidInput, "page buffer").because(cause);
            Err(error.try_next("leave out H5Pset_page_buffer_size: it has no effect here"))
        };
        match page_buffer(h5, fapl)? {
            (0, ..) => Ok(()),
            _ if self.strategy != STRATEGY_PAGE => bad("it requires the file space strategy PAGE"),
            (bytes, ..) if (bytes as u64) < self.page_bytes => bad("its size is smaller than a page of the file"),
            _ => Ok(()),
        }
    }
}

fn page_buffer(h5: &'static Api, fapl: hid_t) -> Result<(usize, u32, u32)> {
    let (mut bytes, mut meta, mut raw) = (0usize, 0u32, 0u32);
    // SAFETY: the places are valid; the list is a file access property list.
    let status = unsafe { (h5.H5Pget_page_buffer_size)(fapl, &raw mut bytes, &raw mut meta, &raw mut raw) };
    h5_check("H5Pget_page_buffer_size", status)?;
    Ok((bytes, meta, raw))
}

/// Rounds the page buffer in a file's access properties as HDF5 does: whole pages, or none for a file without pages.
pub fn settle_page_buffer(file: &Meta, h5: &'static Api, fapl: hid_t) -> Result<()> {
    let (bytes, meta, raw) = page_buffer(h5, fapl)?;
    if bytes == 0 {
        return Ok(());
    }
    let creation = Creation::get(file)?;
    let page = creation.page_bytes.max(1) as usize;
    let whole = if creation.strategy == STRATEGY_PAGE { bytes.max(page) / page * page } else { 0 };
    // SAFETY: a plain call.
    let status = unsafe { (h5.H5Pset_page_buffer_size)(fapl, whole, meta, raw) };
    h5_check("H5Pset_page_buffer_size", status).map(|_| ())
}

/// Sets a file's creation properties that are not those of a group on a list for the program.
pub fn onto(file: &Arc<File>, fcpl: hid_t) -> Result<()> {
    let h5 = file.h5;
    Creation::get(&file.meta)?.apply(h5, fcpl)?;
    // SAFETY: a plain call.
    h5_check("H5Pset_userblock", unsafe { (h5.H5Pset_userblock)(fcpl, file.at_path.user_block) }).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_survive_encoding() {
        let given = Creation { strategy: 1, persist: true, threshold: 7, page_bytes: 512, sym_k: (3, 4), ..DEFAULT };
        let bytes = given.encode();
        assert_eq!(Creation::decode(&bytes).unwrap(), given);
        assert!(Creation::decode(&bytes[..bytes.len() - 1]).is_err());
    }
}
