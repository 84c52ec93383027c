//! Copies the raw data of a native file's dataset into a dataset of the store, and back.
//!
//! Stored bytes of chunks are copied as they are. Elements with variable-length parts are converted through memory, since
//! references to the parts differ in every file.

use std::collections::HashMap;
use std::ffi::c_void;

use parking_lot::Mutex;

use super::body::Body;
use super::{Fix, Io};
use crate::error::h5_check;
use crate::ffi::types::{H5P_DEFAULT, H5S_SELECT_SET, haddr_t, herr_t, hid_t, hsize_t};
use crate::ffi::{Api, Hid};
use crate::foreign::data::NativeData;
use crate::foreign::making::{Lent, Making};
use crate::object::Dataset;
use crate::props::Layout;
use crate::space::Extent;
use crate::{Result, dtype, foreign};

/// Approximate bytes of elements in memory at a time.
const PIECE_BYTES: u64 = 8 << 20;

/// A box of elements: start and count per dimension.
type Region = (Vec<hsize_t>, Vec<hsize_t>);

/// Copies all stored elements.
pub fn copy(native: &NativeData, from: &Dataset, to: &Dataset) -> Result<()> {
    if matches!(to.data.body, Body::External(_) | Body::Virtual(_)) {
        return Ok(()); // the copy names the same files, as in HDF5
    }
    let extent = from.extent()?;
    let mem_type = from.header.dtype.get();
    let mut elements = |region: &Region| {
        let piece = Piece::new(to.h5(), &extent, region, mem_type)?;
        native.read(&piece.io(from), H5P_DEFAULT)?;
        super::write(&[piece.io(to)], H5P_DEFAULT)
    };
    if let (Layout::Chunked(chunk), Body::Chunked(copy)) = (&from.header.props.layout, &to.data.body) {
        for one in native.chunks(chunk.len(), || from.name())? {
            let region = inside(&one.offset, chunk, extent.dims());
            if !to.data.blobs && is_stored_alike(from, chunk, &region) {
                let coords: Vec<u64> = one.offset.iter().zip(chunk).map(|(x, c)| x / c).collect();
                copy.write_raw(&coords, &native.chunk(&one, || from.name())?, one.mask)?;
                continue;
            }
            pieces(region, to.data.element_bytes).iter().try_for_each(&mut elements)?;
        }
    } else if has_run(from) && extent.npoints() > 0 && native.storage_size() > 0 {
        let whole = (vec![0; extent.dims().len()], extent.dims().to_vec());
        pieces(whole, to.data.element_bytes).iter().try_for_each(&mut elements)?;
    }
    to.data.flush()
}

/// Copies raw data to a native file, see [`super::give`].
pub fn give(from: &Dataset, native: hid_t, mut fix: Option<Fix<'_>>, making: Option<&Mutex<Making>>) -> Result<()> {
    let (h5, extent) = (from.h5(), from.extent()?);
    let mem_type = from.header.dtype.get();
    let through_memory = fix.is_some() || from.data.blobs;
    let mut elements = |region: &Region| {
        let mut piece = Piece::new(h5, &extent, region, mem_type)?;
        super::read(&[piece.io(from)], H5P_DEFAULT)?;
        if let Some(fix) = &mut fix {
            fix(&mut piece.elements)?;
        }
        let (mem, file) = (piece.mem_space.get(), piece.file_space.get());
        let at = piece.elements.as_ptr().cast();
        // SAFETY: the elements are as many as the selections have, of that type.
        let write = || unsafe { (h5.H5Dwrite)(native, mem_type, mem, file, H5P_DEFAULT, at) };
        written(h5, from, write)
    };
    if let (Layout::Chunked(chunk), Body::Chunked(chunks)) = (&from.header.props.layout, &from.data.body) {
        let raw = h5.H5Dwrite_chunk;
        let mut blank = Vec::new();
        for (coords, record) in chunks.existing()? {
            let offset: Vec<hsize_t> = coords.iter().zip(chunk).map(|(x, c)| x * c).collect();
            let region = inside(&offset, chunk, extent.dims());
            match raw {
                Some(raw) if !through_memory && is_stored_alike(from, chunk, &region) => {
                    if let Some(making) = making {
                        let bytes = record.bytes;
                        if blank.len() < bytes as usize {
                            blank = vec![0u8; bytes as usize]; // never read, so never brought into memory
                        }
                        let lent =
                            Lent { object: chunks.object.clone(), offset: chunks.slot_offset(record.slot)?, bytes };
                        let (at, len) = (blank.as_ptr().cast(), bytes as usize);
                        // SAFETY: there are as many bytes, of which the driver takes none.
                        let write = || unsafe { raw(native, H5P_DEFAULT, record.mask, offset.as_ptr(), len, at) };
                        Making::lend(making, lent, || written(h5, from, write))?;
                        continue;
                    }
                    let (bytes, mask) = chunks.read_raw(&coords)?;
                    let (at, len) = (bytes.as_ptr().cast(), bytes.len());
                    // SAFETY: the bytes are those of the chunk at that offset.
                    written(h5, from, || unsafe { raw(native, H5P_DEFAULT, mask, offset.as_ptr(), len, at) })?;
                }
                _ => pieces(region, from.data.element_bytes).iter().try_for_each(&mut elements)?,
            }
        }
        return Ok(());
    }
    if !has_run(from) || extent.npoints() == 0 || !super::queries::is_allocated(from)? {
        return Ok(());
    }
    if let (Some(making), false, Layout::Contiguous) = (making, through_memory, &from.header.props.layout)
        && lend_run(from, native, making, &extent)?
    {
        return Ok(());
    }
    let whole = (vec![0; extent.dims().len()], extent.dims().to_vec());
    pieces(whole, from.data.element_bytes).iter().try_for_each(&mut elements)
}

/// Lends the run of a contiguous dataset to its copy, which gets its place by writing one element. Returns false if this
/// libhdf5 does not report the place.
fn lend_run(from: &Dataset, native: hid_t, making: &Mutex<Making>, extent: &Extent) -> Result<bool> {
    let h5 = from.h5();
    let Some(offset_of) = h5.H5Dget_offset else { return Ok(false) };
    let first =
        Piece::new(h5, extent, &(vec![0; extent.dims().len()], vec![1; extent.dims().len()]), from.header.dtype.get())?;
    let (mem, file, at) = (first.mem_space.get(), first.file_space.get(), first.elements.as_ptr().cast());
    // SAFETY: there is one element of that type; the driver takes none.
    let write = || unsafe { (h5.H5Dwrite)(native, first.mem_type, mem, file, H5P_DEFAULT, at) };
    Making::dropping(making, || written(h5, from, write))?;
    // SAFETY: a plain query.
    let address = unsafe { offset_of(native) };
    if address == haddr_t::MAX {
        return Ok(false);
    }
    let element_bytes = from.data.element_bytes as u64;
    match &from.data.body {
        Body::Plain { object, elements } => {
            let lent = Lent { object: object.clone(), offset: 0, bytes: elements * element_bytes };
            making.lock().lent_at(address, lent);
        }
        Body::Blocks { chunks, elements } => {
            let (block, bytes) = (chunks.facts.chunk_bytes, elements * element_bytes);
            let existing = chunks.existing()?;
            let there: HashMap<u64, u64> = existing.iter().map(|(coords, record)| (coords[0], record.slot)).collect();
            let fill = chunks.facts.fill.as_deref().unwrap_or(&[0]);
            let blank: Vec<u8> = fill.iter().copied().cycle().take(block as usize).collect();
            for number in 0..bytes.div_ceil(block) {
                let (at, len) = (address + number * block, block.min(bytes - number * block));
                if let Some(slot) = there.get(&number) {
                    let offset = chunks.slot_offset(*slot)?;
                    making.lock().lent_at(at, Lent { object: chunks.object.clone(), offset, bytes: len });
                } else {
                    making.lock().keep(at, &blank[..len as usize]);
                }
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn written(h5: &'static Api, from: &Dataset, write: impl FnOnce() -> herr_t) -> Result<()> {
    foreign::written(h5, || format!("writing {} into a native file", from.name()), || i64::from(write())).map(|_| ())
}

/// Returns false for virtual datasets and external files, whose elements, like those of their copies, are elsewhere.
fn has_run(dataset: &Dataset) -> bool {
    matches!(dataset.header.props.layout, Layout::Compact | Layout::Contiguous)
}

/// The part of a chunk inside the extent.
fn inside(offset: &[hsize_t], chunk: &[u64], dims: &[u64]) -> Region {
    let count = offset.iter().zip(chunk).zip(dims).map(|((x, c), d)| (*c).min(d.saturating_sub(*x))).collect();
    (offset.to_vec(), count)
}

/// Returns true if both sides store the chunk alike: HDF5 may be told not to filter chunks that reach past the extent,
/// whereas the store filters all.
fn is_stored_alike(dataset: &Dataset, chunk: &[u64], region: &Region) -> bool {
    let props = &dataset.header.props;
    props.chunk_opts == 0 || props.filters.is_empty() || region.1 == chunk
}

/// Cuts a box along its slowest dimensions into boxes of some megabytes.
fn pieces(region: Region, element_bytes: usize) -> Vec<Region> {
    let mut todo = vec![region];
    let mut done = Vec::new();
    while let Some((start, count)) = todo.pop() {
        let elements: u64 = count.iter().product();
        match count.iter().position(|n| *n > 1) {
            Some(axis) if elements * element_bytes as u64 > PIECE_BYTES => {
                let half = count[axis] / 2;
                let (mut low, mut high, mut next) = (count.clone(), count.clone(), start.clone());
                low[axis] = half;
                high[axis] -= half;
                next[axis] += half;
                todo.push((next, high));
                todo.push((start, low));
            }
            _ if elements == 0 => {}
            _ => done.push((start, count)),
        }
    }
    done
}

/// A box of elements in memory, freed together with its variable-length parts.
struct Piece {
    h5: &'static Api,
    mem_type: hid_t,
    mem_space: Hid,
    file_space: Hid,
    elements: Vec<u8>,
}

impl Piece {
    fn new(h5: &'static Api, extent: &Extent, region: &Region, mem_type: hid_t) -> Result<Self> {
        let count = region.1.iter().product::<u64>() as usize;
        let file_space = extent.space(h5)?;
        let mem_space = match extent {
            Extent::Simple { .. } => Extent::Simple { dims: region.1.clone(), max: region.1.clone() }.space(h5)?,
            other => other.space(h5)?,
        };
        if !region.0.is_empty() {
            let (start, block, none) = (region.0.as_ptr(), region.1.as_ptr(), std::ptr::null());
            // SAFETY: both have an entry for each dimension.
            h5_check("H5Sselect_hyperslab", unsafe {
                (h5.H5Sselect_hyperslab)(file_space.get(), H5S_SELECT_SET, start, none, block, none)
            })?;
        }
        let elements = vec![0u8; dtype::size(h5, mem_type)? * count];
        Ok(Self { h5, mem_type, mem_space, file_space, elements })
    }
    fn io<'a>(&self, dataset: &'a Dataset) -> Io<'a> {
        let (mem_space, file_space) = (self.mem_space.get(), self.file_space.get());
        let buf = self.elements.as_ptr().cast_mut().cast::<c_void>();
        Io { dataset, mem_type: self.mem_type, mem_space, file_space, buf }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: the elements are valid ones of the type and space, made by HDF5, or zeros.
        unsafe {
            let at = self.elements.as_mut_ptr().cast();
            (self.h5.H5Treclaim)(self.mem_type, self.mem_space.get(), H5P_DEFAULT, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_box_once() {
        let whole = (vec![3, 0], vec![5000, 1000]);
        let cut = pieces(whole, 8);
        assert!(cut.iter().all(|(_, n)| n.iter().product::<u64>() * 8 <= PIECE_BYTES));
        assert_eq!(cut.iter().map(|(_, n)| n.iter().product::<u64>()).sum::<u64>(), 5_000_000);
        assert!(cut.windows(2).all(|w| w[0].0 < w[1].0));
        assert_eq!(pieces((vec![], vec![]), 8), [(vec![], vec![])]);
        assert!(pieces((vec![0], vec![0]), 8).is_empty());
    }
}
