//! Selections in our own encoding: the selection of a virtual dataset's mapping, or of a region reference, in a dataspace.
//!
//! HDF5's own encoding depends on the version that writes it. This module must not know files, datasets or the store.

use std::ffi::c_int;

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::error::{h5_check, h5_failed};
use crate::ffi::types::{
    H5S_SEL_ALL, H5S_SEL_HYPERSLABS, H5S_SEL_NONE, H5S_SEL_POINTS, H5S_SELECT_OR, H5S_SELECT_SET, H5S_SIMPLE,
    H5S_UNLIMITED, hid_t,
};
use crate::ffi::{Api, Hid};
use crate::meta::bytes::{Encode, Reader};
use crate::space::Extent;

/// One dimension of a regular hyperslab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Along {
    /// First index.
    pub start: u64,
    /// Distance between the starts of two blocks.
    pub stride: u64,
    /// Number of blocks, or `H5S_UNLIMITED`.
    pub count: u64,
    /// Indices per block, or `H5S_UNLIMITED`.
    pub block: u64,
}

/// A box: first and last index along each dimension.
pub type Corners = (Vec<u64>, Vec<u64>);

/// A selection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Chosen {
    /// Nothing.
    None,
    /// Everything.
    All,
    /// A regular hyperslab.
    Regular(Vec<Along>),
    /// Any other hyperslab, as a list of blocks.
    Blocks(Vec<Corners>),
    /// Points, in order.
    Points(Vec<Vec<u64>>),
}

/// A dataspace: extent and selection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Its extent.
    pub extent: Extent,
    /// The selection in it.
    pub chosen: Chosen,
}

impl Along {
    /// Returns true if its size is unlimited.
    pub fn is_unlimited(&self) -> bool {
        self.count == H5S_UNLIMITED || self.block == H5S_UNLIMITED
    }
}

impl Shape {
    /// The shape of a dataspace, including the offset of its selection.
    pub fn of(h5: &'static Api, space: hid_t) -> Result<Self> {
        Ok(Self { extent: Extent::of(h5, space)?, chosen: Chosen::of(h5, space)? })
    }
    /// Makes a dataspace.
    pub fn space(&self, h5: &'static Api) -> Result<Hid> {
        let space = self.extent.space(h5)?;
        self.chosen.apply(h5, space.get())?;
        Ok(space)
    }
    /// Appends the encoding.
    pub fn encode(&self, w: &mut Vec<u8>) {
        self.extent.encode(w);
        self.chosen.encode(w);
    }
    /// Reads an encoding.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { extent: Extent::decode(r)?, chosen: Chosen::decode(r)? })
    }
}

impl Chosen {
    /// The selection of a dataspace.
    pub fn of(h5: &'static Api, space: hid_t) -> Result<Self> {
        // SAFETY: plain queries of an id that the caller was given.
        unsafe {
            if (h5.H5Sget_simple_extent_type)(space) != H5S_SIMPLE {
                let none = (h5.H5Sget_select_type)(space) == H5S_SEL_NONE;
                return Ok(if none { Self::None } else { Self::All });
            }
            match (h5.H5Sget_select_type)(space) {
                H5S_SEL_NONE => Ok(Self::None),
                H5S_SEL_ALL => Ok(Self::All),
                H5S_SEL_POINTS => points_of(h5, space),
                H5S_SEL_HYPERSLABS if (h5.H5Sis_regular_hyperslab)(space) > 0 => regular_of(h5, space),
                H5S_SEL_HYPERSLABS => blocks_of(h5, space),
                _ => Err(h5_failed("H5Sget_select_type")),
            }
        }
    }

    /// Applies the selection to a dataspace.
    pub fn apply(&self, h5: &'static Api, space: hid_t) -> Result<()> {
        // SAFETY: lists have as many entries as the dataspace has dimensions, which `fits` has checked.
        unsafe {
            let rank = h5_check("H5Sget_simple_extent_ndims", (h5.H5Sget_simple_extent_ndims)(space))? as usize;
            if !self.fits(rank) {
                return Err(Error::new(ErrorKind::InvalidInput, "selection")
                    .because(format!("it does not fit a dataspace of {rank} dimensions")));
            }
            match self {
                Self::None => h5_check("H5Sselect_none", (h5.H5Sselect_none)(space)).map(|_| ()),
                Self::All => h5_check("H5Sselect_all", (h5.H5Sselect_all)(space)).map(|_| ()),
                Self::Regular(dims) => select(h5, space, H5S_SELECT_SET, dims),
                Self::Blocks(blocks) => {
                    h5_check("H5Sselect_none", (h5.H5Sselect_none)(space))?;
                    for (low, high) in blocks {
                        let along = low.iter().zip(high).map(|(low, high)| {
                            let block = high.saturating_sub(*low).saturating_add(1);
                            Along { start: *low, stride: block, count: 1, block }
                        });
                        select(h5, space, H5S_SELECT_OR, &along.collect::<Vec<_>>())?;
                    }
                    Ok(())
                }
                Self::Points(points) => {
                    let coords: Vec<u64> = points.iter().flatten().copied().collect();
                    let status = (h5.H5Sselect_elements)(space, H5S_SELECT_SET, points.len(), coords.as_ptr());
                    h5_check("H5Sselect_elements", status).map(|_| ())
                }
            }
        }
    }

    fn fits(&self, rank: usize) -> bool {
        match self {
            Self::None | Self::All => true,
            Self::Regular(dims) => dims.len() == rank,
            Self::Blocks(blocks) => blocks.iter().all(|(low, high)| low.len() == rank && high.len() == rank),
            Self::Points(points) => !points.is_empty() && points.iter().all(|point| point.len() == rank),
        }
    }

    /// The unlimited dimension, if there is one.
    pub fn unlimited(&self) -> Option<(usize, Along)> {
        let Self::Regular(dims) = self else { return None };
        dims.iter().copied().enumerate().find(|(_, along)| along.is_unlimited())
    }

    /// Elements in one block along the unlimited dimension; `None` without one.
    pub fn block_elements(&self) -> Option<u64> {
        let (open, along) = self.unlimited()?;
        let Self::Regular(dims) = self else { return None };
        let others = dims.iter().enumerate().filter(|(dim, _)| *dim != open).map(|(_, a)| a.count.checked_mul(a.block));
        others.chain([Some(along.block)]).try_fold(1u64, |product, n| product.checked_mul(n?))
    }

    /// One past the last index along each dimension, `H5S_UNLIMITED` where unlimited; `None` if that depends on the
    /// extent, or if nothing is selected.
    pub fn ends(&self) -> Option<Vec<u64>> {
        let most = |ends: &mut dyn Iterator<Item = &Vec<u64>>| {
            ends.fold(None, |most: Option<Vec<u64>>, end| {
                let end = end.iter().map(|x| x.saturating_add(1));
                Some(match most {
                    None => end.collect(),
                    Some(most) => most.into_iter().zip(end).map(|(a, b)| a.max(b)).collect(),
                })
            })
        };
        match self {
            Self::None | Self::All => None,
            Self::Regular(dims) => Some(dims.iter().map(end_of).collect()),
            Self::Blocks(blocks) => most(&mut blocks.iter().map(|(_, high)| high)),
            Self::Points(points) => most(&mut points.iter()),
        }
    }

    /// First index, and one past the last, along each dimension; `None` if that depends on the extent.
    pub fn bounds(&self) -> Option<Corners> {
        let least = |lows: &mut dyn Iterator<Item = &Vec<u64>>| {
            lows.fold(None, |least: Option<Vec<u64>>, low| {
                Some(least.map_or_else(|| low.clone(), |least| least.iter().zip(low).map(|(a, b)| *a.min(b)).collect()))
            })
        };
        let lows = match self {
            Self::None | Self::All => None,
            Self::Regular(dims) => Some(dims.iter().map(|along| along.start).collect()),
            Self::Blocks(blocks) => least(&mut blocks.iter().map(|(low, _)| low)),
            Self::Points(points) => least(&mut points.iter()),
        };
        lows.zip(self.ends())
    }

    /// Appends the encoding.
    pub fn encode(&self, w: &mut Vec<u8>) {
        match self {
            Self::None => w.put_u8(0),
            Self::All => w.put_u8(1),
            Self::Regular(dims) => {
                w.put_u8(2);
                w.put_u8(dims.len() as u8);
                for d in dims {
                    for n in [d.start, d.stride, d.count, d.block] {
                        w.put_u64(n);
                    }
                }
            }
            Self::Blocks(blocks) => {
                w.put_u8(3);
                w.put_u8(blocks.first().map_or(0, |(low, _)| low.len()) as u8);
                w.put_u32(blocks.len() as u32);
                blocks.iter().flat_map(|(low, high)| low.iter().chain(high)).for_each(|n| w.put_u64(*n));
            }
            Self::Points(points) => {
                w.put_u8(4);
                w.put_u8(points.first().map_or(0, Vec::len) as u8);
                w.put_u32(points.len() as u32);
                points.iter().flatten().for_each(|n| w.put_u64(*n));
            }
        }
    }

    /// Reads an encoding.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let words = |n: usize, r: &mut Reader<'_>| (0..n).map(|_| r.u64()).collect::<Result<Vec<u64>>>();
        Ok(match r.u8()? {
            0 => Self::None,
            1 => Self::All,
            2 => {
                let rank = r.u8()?;
                let along = |r: &mut Reader<'_>| {
                    Ok(Along { start: r.u64()?, stride: r.u64()?, count: r.u64()?, block: r.u64()? })
                };
                Self::Regular((0..rank).map(|_| along(r)).collect::<Result<_>>()?)
            }
            3 => {
                let (rank, n) = list_head(r)?;
                Self::Blocks((0..n).map(|_| Ok((words(rank, r)?, words(rank, r)?))).collect::<Result<_>>()?)
            }
            4 => {
                let (rank, n) = list_head(r)?;
                Self::Points((0..n).map(|_| words(rank, r)).collect::<Result<_>>()?)
            }
            _ => return Err(r.malformed("a selection of an unknown kind")),
        })
    }
}

/// Rank and length of a list of coordinates: each entry takes bytes, so that a damaged length ends with the record.
fn list_head(r: &mut Reader<'_>) -> Result<(usize, u32)> {
    let (rank, n) = (usize::from(r.u8()?), r.u32()?);
    if rank == 0 && n > 0 {
        return Err(r.malformed("a selection of places without coordinates"));
    }
    Ok((rank, n))
}

fn end_of(along: &Along) -> u64 {
    if along.is_unlimited() {
        return H5S_UNLIMITED;
    }
    along.start.saturating_add(along.count.saturating_sub(1).saturating_mul(along.stride)).saturating_add(along.block)
}

/// Selects, or adds, a regular hyperslab.
fn select(h5: &'static Api, space: hid_t, how: c_int, dims: &[Along]) -> Result<()> {
    let list = |of: fn(&Along) -> u64| dims.iter().map(of).collect::<Vec<u64>>();
    let (start, stride) = (list(|d| d.start), list(|d| d.stride));
    let (count, block) = (list(|d| d.count), list(|d| d.block));
    // SAFETY: the caller has checked that the dataspace has as many dimensions.
    let status = unsafe {
        (h5.H5Sselect_hyperslab)(space, how, start.as_ptr(), stride.as_ptr(), count.as_ptr(), block.as_ptr())
    };
    h5_check("H5Sselect_hyperslab", status).map(|_| ())
}

fn rank_of(h5: &'static Api, space: hid_t) -> Result<usize> {
    // SAFETY: a plain query.
    Ok(h5_check("H5Sget_simple_extent_ndims", unsafe { (h5.H5Sget_simple_extent_ndims)(space) })? as usize)
}

/// The first selected index along each dimension, including the selection's offset.
fn low_of(h5: &'static Api, space: hid_t, rank: usize) -> Result<Vec<u64>> {
    let (mut low, mut high) = (vec![0; rank], vec![0; rank]);
    // SAFETY: the lists have an entry for each dimension.
    let status = unsafe { (h5.H5Sget_select_bounds)(space, low.as_mut_ptr(), high.as_mut_ptr()) };
    h5_check("H5Sget_select_bounds", status)?;
    Ok(low)
}

fn regular_of(h5: &'static Api, space: hid_t) -> Result<Chosen> {
    let rank = rank_of(h5, space)?;
    let mut lists = [const { [0u64; 32] }; 4];
    let [start, stride, count, block] = &mut lists;
    // SAFETY: no dataspace has more than 32 dimensions.
    let status = unsafe {
        (h5.H5Sget_regular_hyperslab)(
            space,
            start.as_mut_ptr(),
            stride.as_mut_ptr(),
            count.as_mut_ptr(),
            block.as_mut_ptr(),
        )
    };
    h5_check("H5Sget_regular_hyperslab", status)?;
    let low = low_of(h5, space, rank)?;
    let [_, stride, count, block] = lists;
    let along = |i: usize| Along { start: low[i], stride: stride[i], count: count[i], block: block[i] };
    Ok(Chosen::Regular((0..rank).map(along).collect()))
}

/// HDF5's `lists`, moved by the selection's offset.
fn moved(lists: &[u64], rank: usize, low: &[u64]) -> Vec<Vec<u64>> {
    let first: Vec<u64> = (0..rank).map(|i| lists.iter().skip(i).step_by(rank).min().copied().unwrap_or(0)).collect();
    let place = |list: &[u64]| (0..rank).map(|i| list[i].wrapping_sub(first[i]).wrapping_add(low[i])).collect();
    lists.chunks_exact(rank).map(place).collect()
}

fn blocks_of(h5: &'static Api, space: hid_t) -> Result<Chosen> {
    let rank = rank_of(h5, space)?;
    // SAFETY: the list has room for two corners of each block.
    let list = unsafe {
        let n = u64::try_from((h5.H5Sget_select_hyper_nblocks)(space))
            .map_err(|_| h5_failed("H5Sget_select_hyper_nblocks"))?;
        let mut list = vec![0u64; n as usize * rank * 2];
        let status = (h5.H5Sget_select_hyper_blocklist)(space, 0, n, list.as_mut_ptr());
        h5_check("H5Sget_select_hyper_blocklist", status)?;
        list
    };
    let corners = moved(&list, rank, &low_of(h5, space, rank)?);
    Ok(Chosen::Blocks(corners.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()))
}

fn points_of(h5: &'static Api, space: hid_t) -> Result<Chosen> {
    let rank = rank_of(h5, space)?;
    // SAFETY: the list has room for each point.
    let list = unsafe {
        let n = u64::try_from((h5.H5Sget_select_elem_npoints)(space))
            .map_err(|_| h5_failed("H5Sget_select_elem_npoints"))?;
        let mut list = vec![0u64; n as usize * rank];
        let status = (h5.H5Sget_select_elem_pointlist)(space, 0, n, list.as_mut_ptr());
        h5_check("H5Sget_select_elem_pointlist", status)?;
        list
    };
    Ok(Chosen::Points(moved(&list, rank, &low_of(h5, space, rank)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_survive_encoding() {
        let along = Along { start: 1, stride: 4, count: H5S_UNLIMITED, block: 2 };
        for chosen in [
            Chosen::None,
            Chosen::All,
            Chosen::Regular(vec![along, Along { count: 3, ..along }]),
            Chosen::Blocks(vec![(vec![1, 2], vec![3, 4]), (vec![7, 8], vec![7, 9])]),
            Chosen::Points(vec![vec![5, 6], vec![1, 2]]),
        ] {
            let mut w = Vec::new();
            chosen.encode(&mut w);
            assert_eq!(Chosen::decode(&mut Reader::of("test", &w)).unwrap(), chosen);
            assert!(Chosen::decode(&mut Reader::of("test", &w[..w.len() - 1])).is_err());
        }
        assert!(Chosen::decode(&mut Reader::of("test", &[4, 0, 255, 255, 255, 255])).is_err());
    }

    #[test]
    fn bounds_hold_all_that_is_selected() {
        let blocks = Chosen::Blocks(vec![(vec![1, 5], vec![3, 5]), (vec![2, 0], vec![2, 2])]);
        assert_eq!(blocks.bounds(), Some((vec![1, 0], vec![4, 6])));
        assert_eq!(Chosen::All.bounds(), None);
    }

    #[test]
    fn ends_are_one_past_the_last_index_and_offsets_move_all() {
        let along = Along { start: 1, stride: 4, count: 3, block: 2 };
        let open = Along { count: H5S_UNLIMITED, ..along };
        assert_eq!(Chosen::Regular(vec![along, open]).ends(), Some(vec![11, H5S_UNLIMITED]));
        assert_eq!(Chosen::Regular(vec![along, open]).unlimited(), Some((1, open)));
        assert_eq!(Chosen::Regular(vec![along, open]).block_elements(), Some(12));
        assert_eq!(Chosen::Blocks(vec![(vec![1], vec![3]), (vec![0], vec![2])]).ends(), Some(vec![4]));
        assert_eq!(moved(&[2, 5, 4, 6], 2, &[3, 5]), [[3, 5], [5, 6]]);
    }
}
