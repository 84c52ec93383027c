//! Access properties of datasets: how sources of virtual datasets are viewed, and where files named by a dataset are looked
//! for.

use std::ffi::CString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::body::Body;
use crate::Result;
use crate::error::{h5_check, h5_id};
use crate::ffi::Hid;
use crate::file::search;
use crate::mapping::name_of;
use crate::object::Dataset;

/// `H5D_VDS_FIRST_MISSING`.
const FIRST_MISSING: i32 = 0;
/// `H5D_VDS_LAST_AVAILABLE`.
const LAST_AVAILABLE: i32 = 1;
/// Directories that are searched for sources of virtual datasets.
pub const SOURCES_ENV: &str = "HDF5_VDS_PREFIX";
/// Directory to which names of raw data files are relative.
const RAW_ENV: &str = "HDF5_EXTFILE_PREFIX";

/// How a virtual dataset views its sources.
pub struct SourceView {
    /// The extent ends where the first source is missing, instead of where the last one ends.
    pub first_missing: bool,
    /// Number of consecutive numbered sources that may be missing before the search for more ends.
    pub gap: u64,
    /// Directory that is searched for sources.
    pub prefix: Option<PathBuf>,
}

/// The view of a virtual dataset.
pub fn view(dataset: &Dataset) -> Result<SourceView> {
    let (mut view, mut gap) = (LAST_AVAILABLE, 0);
    if let Some(dapl) = &dataset.dapl {
        let h5 = dataset.h5();
        // SAFETY: queries of a dataset access property list; the places are valid.
        unsafe {
            h5_check("H5Pget_virtual_view", (h5.H5Pget_virtual_view)(dapl.get(), &raw mut view))?;
            let status = (h5.H5Pget_virtual_printf_gap)(dapl.get(), &raw mut gap);
            h5_check("H5Pget_virtual_printf_gap", status)?;
        }
    }
    let first_missing = view == FIRST_MISSING;
    Ok(SourceView { first_missing, gap: if first_missing { 0 } else { gap }, prefix: sources_prefix(dataset)? })
}

fn sources_prefix(dataset: &Dataset) -> Result<Option<PathBuf>> {
    let h5 = dataset.h5();
    prefix(dataset, SOURCES_ENV, |dapl| {
        // SAFETY: a query of a dataset access property list; the place has the size given.
        name_of("H5Pget_virtual_prefix", |to, n| unsafe { (h5.H5Pget_virtual_prefix)(dapl.get(), to, n) })
    })
}

/// Directory to which the names of a dataset's raw data files are relative; `None` is the current directory.
pub fn raw_prefix(dataset: &Dataset) -> Result<Option<PathBuf>> {
    let h5 = dataset.h5();
    prefix(dataset, RAW_ENV, |dapl| {
        // SAFETY: a query of a dataset access property list; the place has the size given.
        name_of("H5Pget_efile_prefix", |to, n| unsafe { (h5.H5Pget_efile_prefix)(dapl.get(), to, n) })
    })
}

/// The prefix from the environment, or else from the access properties.
fn prefix(dataset: &Dataset, env: &str, of: impl Fn(&Hid) -> Result<Vec<u8>>) -> Result<Option<PathBuf>> {
    let prefix = match (search::variable(env), &dataset.dapl) {
        (Some(prefix), _) => prefix.into_vec(),
        (None, Some(dapl)) => of(dapl)?,
        (None, None) => return Ok(None),
    };
    Ok(search::expand(&prefix, &dataset.file.path))
}

/// See [`super::access_plist`].
pub fn plist(dataset: &Dataset) -> Result<Hid> {
    let h5 = dataset.h5();
    let c_path =
        |path: Option<PathBuf>| CString::new(path.unwrap_or_default().as_os_str().as_bytes()).unwrap_or_default();
    let (sources, raw) = (c_path(sources_prefix(dataset)?), c_path(raw_prefix(dataset)?));
    // SAFETY: plain calls with a list of ours; the strings live across the calls.
    unsafe {
        let plist = match &dataset.dapl {
            Some(kept) => h5_id(h5, "H5Pcopy", (h5.H5Pcopy)(kept.get()))?,
            None => h5_id(h5, "H5Pcreate", (h5.H5Pcreate)(h5.H5P_CLS_DATASET_ACCESS_ID_g()))?,
        };
        let id = plist.get();
        h5_check("H5Pset_virtual_prefix", (h5.H5Pset_virtual_prefix)(id, sources.as_ptr()))?;
        h5_check("H5Pset_efile_prefix", (h5.H5Pset_efile_prefix)(id, raw.as_ptr()))?;
        // For other datasets HDF5 reports what it does by itself.
        let view = match &dataset.data.body {
            Body::Virtual(_) => view(dataset)?,
            _ => SourceView { first_missing: false, gap: 0, prefix: None },
        };
        let how = if view.first_missing { FIRST_MISSING } else { LAST_AVAILABLE };
        h5_check("H5Pset_virtual_view", (h5.H5Pset_virtual_view)(id, how))?;
        h5_check("H5Pset_virtual_printf_gap", (h5.H5Pset_virtual_printf_gap)(id, view.gap))?;
        Ok(plist)
    }
}
