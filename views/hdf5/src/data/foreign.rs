//! Copying the raw data of a native file's dataset into one of ours.
//!
//! Stored bytes of chunks are copied as they are. Elements with variable-length parts go through memory: what names the
//! parts is different in every file.

use std::ffi::c_void;

use super::Io;
use super::body::Body;
use crate::error::h5_check;
use crate::ffi::types::{H5P_DEFAULT, H5S_SELECT_SET, hsize_t};
use crate::foreign::data::NativeData;
use crate::object::Dataset;
use crate::props::Layout;
use crate::space::Extent;
use crate::{Result, dtype};

/// Bytes of elements in memory at a time, about.
const PIECE_BYTES: u64 = 8 << 20;

/// A box of elements: where it begins, and how many each way.
type Region = (Vec<hsize_t>, Vec<hsize_t>);

/// Copies all elements that are stored.
pub fn copy(native: &NativeData, from: &Dataset, to: &Dataset) -> Result<()> {
    let extent = from.extent()?;
    let layout = &from.header.props.layout;
    if let (Layout::Chunked(chunk), Body::Chunked(copy)) = (layout, &to.data.body) {
        for one in native.chunks(chunk.len(), || from.name())? {
            if !to.data.blobs {
                let coords: Vec<u64> = one.offset.iter().zip(chunk).map(|(x, c)| x / c).collect();
                copy.write_raw(&coords, &native.chunk(&one, || from.name())?, one.mask)?;
                continue;
            }
            let inside = one.offset.iter().zip(chunk).zip(extent.dims());
            let count: Vec<hsize_t> = inside.map(|((x, c), d)| (*c).min(d.saturating_sub(*x))).collect();
            for region in pieces((one.offset.clone(), count), to.data.element_bytes) {
                elements(native, from, to, &extent, &region)?;
            }
        }
        return to.data.flush();
    }
    if extent.npoints() == 0 || native.storage_size() == 0 {
        return Ok(());
    }
    let whole = (vec![0; extent.dims().len()], extent.dims().to_vec());
    for region in pieces(whole, to.data.element_bytes) {
        elements(native, from, to, &extent, &region)?;
    }
    to.data.flush()
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

/// Copies a box of elements through memory.
fn elements(native: &NativeData, from: &Dataset, to: &Dataset, extent: &Extent, region: &Region) -> Result<()> {
    let h5 = to.h5();
    let mem_type = from.header.dtype.get();
    let count = region.1.iter().product::<u64>() as usize;
    let mut buf = vec![0u8; dtype::size(h5, mem_type)? * count];
    let file_space = extent.space(h5)?;
    let mem_space = match extent {
        Extent::Simple { .. } => Extent::Simple { dims: region.1.clone(), max: region.1.clone() },
        other => other.clone(),
    };
    let mem_space = mem_space.space(h5)?;
    if !region.0.is_empty() {
        let (start, block) = (region.0.as_ptr(), region.1.as_ptr());
        // SAFETY: both have an entry for each dimension.
        h5_check("H5Sselect_hyperslab", unsafe {
            (h5.H5Sselect_hyperslab)(file_space.get(), H5S_SELECT_SET, start, std::ptr::null(), block, std::ptr::null())
        })?;
    }
    let at = buf.as_mut_ptr().cast::<c_void>();
    let io = |dataset| Io { dataset, mem_type, mem_space: mem_space.get(), file_space: file_space.get(), buf: at };
    native.read(&io(from), H5P_DEFAULT)?;
    let written = super::write(&[io(to)], H5P_DEFAULT);
    if to.data.blobs {
        // SAFETY: the elements are valid ones of the type and space, made by HDF5.
        unsafe { (h5.H5Treclaim)(mem_type, mem_space.get(), H5P_DEFAULT, at) };
    }
    written
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
