//! Selections of HDF5 dataspaces as runs of elements.

use std::ffi::c_int;

use cenote::{Error, ErrorKind};

use super::runs::{OneRun, RegularRuns, Run, RunSource};
use crate::Result;
use crate::error::{h5_check, h5_id, unsupported};
use crate::ffi::types::{
    H5S_ALL, H5S_BLOCK, H5S_NULL, H5S_PLIST, H5S_SEL_ALL, H5S_SEL_HYPERSLABS, H5S_SEL_ITER_SHARE_WITH_DATASPACE,
    H5S_SEL_POINTS, hid_t,
};
use crate::ffi::{Api, Hid};

const RANK_MAX: usize = 32;
/// Runs fetched at a time.
const SEQUENCES: usize = 1024;

/// A selection, laid out.
pub struct Selection {
    /// Its runs, in the order of the selection.
    pub runs: Box<dyn RunSource>,
    /// Elements.
    pub count: u64,
    /// Dimensions of its extent; empty for a scalar or a bare block.
    pub dims: Vec<u64>,
    /// True if no element is selected twice.
    pub distinct: bool,
}

impl Selection {
    /// `count` elements in a row.
    pub fn block(count: u64, dims: &[u64]) -> Self {
        Self { runs: Box::new(OneRun::new(0, count)), count, dims: dims.to_vec(), distinct: true }
    }

    /// The selection of a dataspace, which must not change while the selection is in use.
    pub fn of(h5: &'static Api, space: hid_t) -> Result<Self> {
        let dims = dims_of(h5, space)?;
        // SAFETY: plain queries of an id that HDF5 has checked to be a dataspace.
        let (kind, count, valid) = unsafe {
            (
                (h5.H5Sget_select_type)(space),
                (h5.H5Sget_select_npoints)(space),
                (h5.H5Sget_simple_extent_type)(space) == H5S_NULL || (h5.H5Sselect_valid)(space) > 0,
            )
        };
        if !valid {
            return Err(Error::new(ErrorKind::InvalidInput, "dataspace").because("selection+offset not within extent"));
        }
        let count = u64::try_from(count).map_err(|_| crate::error::h5_failed("H5Sget_select_npoints"))?;
        let mut this = Self::block(count, &dims);
        if count == 0 || kind == H5S_SEL_ALL {
            return Ok(this);
        }
        this.distinct = kind != H5S_SEL_POINTS;
        this.runs = match solid_box(h5, space, kind, count, &dims)? {
            Some(runs) => Box::new(runs),
            None => Box::new(Iter::new(h5, space)?),
        };
        Ok(this)
    }

    /// Memory and file selections of a transfer. `extent` returns the dataset's present dimensions.
    pub fn pair(
        h5: &'static Api,
        mem_space: hid_t,
        file_space: hid_t,
        extent: impl FnOnce() -> Result<(Vec<u64>, u64)>,
    ) -> Result<(Self, Self)> {
        let file = |space: hid_t| match space {
            H5S_PLIST => Err(unsupported(
                "a file selection in the transfer property list (H5S_PLIST)",
                "select in a file dataspace instead",
            )),
            H5S_BLOCK => Err(Error::new(ErrorKind::InvalidInput, "file dataspace")
                .because("H5S_BLOCK describes memory, not a selection in the file")),
            space => Self::of(h5, space),
        };
        let (whole, file) = if file_space == H5S_ALL {
            let (dims, count) = extent()?;
            (true, Self::block(count, &dims))
        } else {
            (false, file(file_space)?)
        };
        let mem = match mem_space {
            // In memory as in the file.
            H5S_ALL if whole => Self::block(file.count, &file.dims),
            H5S_ALL => Self::of(h5, file_space)?,
            H5S_BLOCK => Self::block(file.count, &[]),
            H5S_PLIST => return Err(Error::new(ErrorKind::InvalidInput, "memory dataspace").because("it is H5S_PLIST")),
            space => Self::of(h5, space)?,
        };
        if mem.count != file.count {
            return Err(Error::new(ErrorKind::InvalidInput, "selections").because(format!(
                "different number of elements selected in memory ({}) and file ({})",
                mem.count, file.count
            )));
        }
        Ok((mem, file))
    }
}

/// All runs of a selection.
pub fn all_runs(source: &mut dyn RunSource) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    loop {
        let before = runs.len();
        source.fetch(&mut runs)?;
        if runs.len() == before {
            return Ok(runs);
        }
    }
}

/// The dimensions of a dataspace.
pub fn dims_of(h5: &'static Api, space: hid_t) -> Result<Vec<u64>> {
    let mut dims = [0u64; RANK_MAX];
    // SAFETY: no dataspace has more than 32 dimensions; a null pointer asks for no maximum.
    let rank = unsafe { (h5.H5Sget_simple_extent_dims)(space, dims.as_mut_ptr(), std::ptr::null_mut()) };
    let rank = h5_check("H5Sget_simple_extent_dims", rank)?;
    Ok(dims[..rank as usize].to_vec())
}

/// The runs of a hyperslab that fills its bounding box, found without an iterator.
fn solid_box(h5: &'static Api, space: hid_t, kind: c_int, count: u64, dims: &[u64]) -> Result<Option<RegularRuns>> {
    if kind != H5S_SEL_HYPERSLABS {
        return Ok(None);
    }
    let (mut low, mut high) = ([0u64; RANK_MAX], [0u64; RANK_MAX]);
    // SAFETY: as in `dims_of`.
    let status = unsafe { (h5.H5Sget_select_bounds)(space, low.as_mut_ptr(), high.as_mut_ptr()) };
    h5_check("H5Sget_select_bounds", status)?;
    let rank = dims.len();
    let block: Vec<u64> = (0..rank).map(|i| high[i] - low[i] + 1).collect();
    let ones = [1u64; RANK_MAX];
    let solid = block.iter().try_fold(1u64, |product, b| product.checked_mul(*b)) == Some(count);
    Ok(solid.then(|| RegularRuns::new(dims, &low[..rank], &ones[..rank], &ones[..rank], &block)))
}

/// HDF5's own iterator.
struct Iter {
    h5: &'static Api,
    id: Hid,
    offsets: Vec<u64>,
    lengths: Vec<usize>,
}

impl Iter {
    fn new(h5: &'static Api, space: hid_t) -> Result<Self> {
        // With an element size of 1, lengths are in elements. The space outlives the iterator unchanged.
        // SAFETY: the id is a dataspace.
        let id = unsafe { (h5.H5Ssel_iter_create)(space, 1, H5S_SEL_ITER_SHARE_WITH_DATASPACE) };
        let id = h5_id(h5, "H5Ssel_iter_create", id)?;
        Ok(Self { h5, id, offsets: vec![0; SEQUENCES], lengths: vec![0; SEQUENCES] })
    }
}

impl RunSource for Iter {
    fn fetch(&mut self, out: &mut Vec<Run>) -> Result<()> {
        let (mut sequences, mut elements) = (0usize, 0usize);
        // SAFETY: both arrays have room for `SEQUENCES` entries.
        let status = unsafe {
            (self.h5.H5Ssel_iter_get_seq_list)(
                self.id.get(),
                SEQUENCES,
                usize::MAX >> 1,
                &raw mut sequences,
                &raw mut elements,
                self.offsets.as_mut_ptr(),
                self.lengths.as_mut_ptr(),
            )
        };
        h5_check("H5Ssel_iter_get_seq_list", status)?;
        let pairs = self.offsets.iter().zip(&self.lengths).take(sequences.min(SEQUENCES));
        out.extend(pairs.filter(|(_, count)| **count > 0).map(|(at, count)| Run { at: *at, count: *count as u64 }));
        Ok(())
    }
}
