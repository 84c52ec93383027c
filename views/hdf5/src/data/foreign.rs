//! Copying the raw data of a native file's dataset into one of ours, and back.
//!
//! Stored bytes of chunks are copied as they are. Elements with variable-length parts go through memory: what names the
//! parts is different in every file.

use std::ffi::c_void;

use super::body::Body;
use super::{Fix, Io};
use crate::error::h5_check;
use crate::ffi::types::{H5P_DEFAULT, H5S_SELECT_SET, herr_t, hid_t, hsize_t};
use crate::ffi::{Api, Hid};
use crate::foreign::data::NativeData;
use crate::object::Dataset;
use crate::props::Layout;
use crate::space::Extent;
use crate::{Result, dtype, foreign};

/// Bytes of elements in memory at a time, about.
const PIECE_BYTES: u64 = 8 << 20;

/// A box of elements: where it begins, and how many each way.
type Region = (Vec<hsize_t>, Vec<hsize_t>);

/// Copies all elements that are stored.
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

/// See [`super::give`].
pub fn give(from: &Dataset, native: hid_t, mut fix: Option<Fix<'_>>) -> Result<()> {
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
        for (coords, _) in chunks.existing()? {
            let offset: Vec<hsize_t> = coords.iter().zip(chunk).map(|(x, c)| x * c).collect();
            let region = inside(&offset, chunk, extent.dims());
            match raw {
                Some(raw) if !through_memory && is_stored_alike(from, chunk, &region) => {
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
    let whole = (vec![0; extent.dims().len()], extent.dims().to_vec());
    pieces(whole, from.data.element_bytes).iter().try_for_each(&mut elements)
}

fn written(h5: &'static Api, from: &Dataset, write: impl FnOnce() -> herr_t) -> Result<()> {
    foreign::written(h5, || format!("writing {} into a native file", from.name()), || i64::from(write())).map(|_| ())
}

/// Virtual datasets and those in external files have their elements elsewhere, and so do their copies.
fn has_run(dataset: &Dataset) -> bool {
    matches!(dataset.header.props.layout, Layout::Compact | Layout::Contiguous)
}

/// The part of a chunk that is inside of the extent.
fn inside(offset: &[hsize_t], chunk: &[u64], dims: &[u64]) -> Region {
    let count = offset.iter().zip(chunk).zip(dims).map(|((x, c), d)| (*c).min(d.saturating_sub(*x))).collect();
    (offset.to_vec(), count)
}

/// HDF5 may be told not to filter chunks that reach past the extent. We filter all.
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

/// A box of elements in memory. Parts of variable length are freed with it.
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
