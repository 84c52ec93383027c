//! Extents: the current and maximum dimensions of datasets and attributes.

use std::ffi::c_int;

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::error::{h5_check, h5_id};
use crate::ffi::types::{H5S_NULL, H5S_SCALAR, H5S_SIMPLE, hid_t};
use crate::ffi::{Api, Hid};
use crate::meta::bytes::{Encode, Reader};

/// `H5S_MAX_RANK`.
const RANK_MAX: usize = 32;

/// The shape of a dataset or attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Extent {
    /// No elements and no shape.
    Null,
    /// One element.
    Scalar,
    /// An array; `u64::MAX` as a maximum means unlimited.
    Simple {
        /// Current dimensions.
        dims: Vec<u64>,
        /// Maximum dimensions.
        max: Vec<u64>,
    },
}

impl Extent {
    /// Reads the extent of a dataspace.
    pub fn of(h5: &'static Api, space: hid_t) -> Result<Self> {
        // SAFETY: plain queries of an id that the caller was given.
        let class = unsafe { (h5.H5Sget_simple_extent_type)(space) };
        match class {
            H5S_NULL => Ok(Self::Null),
            H5S_SCALAR => Ok(Self::Scalar),
            H5S_SIMPLE => {
                // SAFETY: as above; the arrays have the rank's length.
                unsafe {
                    let rank = h5_check("H5Sget_simple_extent_ndims", (h5.H5Sget_simple_extent_ndims)(space))?;
                    let (mut dims, mut max) = (vec![0; rank as usize], vec![0; rank as usize]);
                    h5_check(
                        "H5Sget_simple_extent_dims",
                        (h5.H5Sget_simple_extent_dims)(space, dims.as_mut_ptr(), max.as_mut_ptr()),
                    )?;
                    Ok(Self::Simple { dims, max })
                }
            }
            _ => Err(Error::new(ErrorKind::InvalidInput, "dataspace").because("it has no extent")),
        }
    }
    /// A new dataspace of this extent.
    pub fn space(&self, h5: &'static Api) -> Result<Hid> {
        // SAFETY: the arrays have the rank's length.
        let id = unsafe {
            match self {
                Self::Null => (h5.H5Screate)(H5S_NULL),
                Self::Scalar => (h5.H5Screate)(H5S_SCALAR),
                Self::Simple { dims, max } => (h5.H5Screate_simple)(dims.len() as c_int, dims.as_ptr(), max.as_ptr()),
            }
        };
        h5_id(h5, "H5Screate", id)
    }
    /// Current dimensions; empty for a scalar.
    pub fn dims(&self) -> &[u64] {
        match self {
            Self::Simple { dims, .. } => dims,
            _ => &[],
        }
    }
    /// Maximum dimensions; empty for a scalar.
    pub fn max_dims(&self) -> &[u64] {
        match self {
            Self::Simple { max, .. } => max,
            _ => &[],
        }
    }
    /// Number of elements; `u64::MAX` if there are more (HDF5 allows that for chunked datasets).
    pub fn npoints(&self) -> u64 {
        self.counted().unwrap_or(u64::MAX)
    }
    /// Number of elements, if 64 bits can hold it.
    pub fn counted(&self) -> Option<u64> {
        match self {
            Self::Null => Some(0),
            Self::Scalar => Some(1),
            Self::Simple { dims, .. } if dims.contains(&0) => Some(0),
            Self::Simple { dims, .. } => dims.iter().try_fold(1u64, |product, n| product.checked_mul(*n)),
        }
    }
    /// Appends the encoding.
    pub fn encode(&self, w: &mut Vec<u8>) {
        match self {
            Self::Null => w.put_u8(0),
            Self::Scalar => w.put_u8(1),
            Self::Simple { dims, max } => {
                w.put_u8(2);
                w.put_u8(dims.len() as u8);
                dims.iter().chain(max).for_each(|n| w.put_u64(*n));
            }
        }
    }
    /// Reads an encoding.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self> {
        match r.u8()? {
            0 => Ok(Self::Null),
            1 => Ok(Self::Scalar),
            2 => {
                let rank = usize::from(r.u8()?);
                let mut all = Vec::with_capacity(2 * rank);
                for _ in 0..2 * rank {
                    all.push(r.u64()?);
                }
                let max = all.split_off(rank);
                if rank > RANK_MAX {
                    return Err(r.malformed("an extent of more dimensions than any dataspace"));
                }
                Ok(Self::Simple { dims: all, max })
            }
            _ => Err(r.malformed("extent of an unknown kind")),
        }
    }
}
