//! Old region references of an imported native file. They keep their 12 bytes, as raw data do; their targets, read from
//! the native file's heap, become records under the same numbers.

use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::Arc;

use cenote::{Error, ErrorKind};

use super::remap;
use crate::ffi::Hid;
use crate::ffi::types::{H5P_DEFAULT, H5S_ALL, hid_t};
use crate::file::File;
use crate::foreign::{self, Native};
use crate::meta::records::Record;
use crate::regions::records::REFERENCE_BYTES;
use crate::regions::{REGION, Serialiser};
use crate::space::Extent;
use crate::{Result, dtype};

/// Most bytes of elements, which are all read at once.
const BYTES_MAX: u64 = 1 << 30;

type Reference = [u8; REFERENCE_BYTES];

/// Targets of the references met.
pub struct Regions {
    target: Arc<File>,
    met: HashSet<Reference>,
    serialiser: Option<Serialiser>,
}

impl Regions {
    /// For an import into `target`.
    pub fn new(target: Arc<File>) -> Self {
        Self { target, met: HashSet::new(), serialiser: None }
    }
    /// Looks for references in an attribute, or in a dataset's raw data.
    pub fn look_at(
        &mut self,
        native: &Native,
        oid: u64,
        attr: Option<&[u8]>,
        dtype: hid_t,
        extent: &Extent,
    ) -> Result<()> {
        let h5 = native.h5;
        let named = || format!("region references in object {oid:x} of {}", native.name());
        let bytes = extent.npoints().saturating_mul(dtype::size(h5, dtype)? as u64);
        if bytes > BYTES_MAX {
            return Err(Error::new(ErrorKind::LimitExceeded, named())
                .because(format!("they would take {bytes} bytes of memory at once"))
                .try_next("read the file where it is: the connector opens native files"));
        }
        let count = extent.npoints() as usize;
        let (mut elements, object, space) = (vec![0u8; bytes as usize], native.object(oid)?, extent.space(h5)?);
        let at = elements.as_mut_ptr().cast::<c_void>();
        if let Some(name) = attr {
            foreign::attr::read(native, oid, name, dtype, at)?;
        } else {
            // SAFETY: the elements are as many as the dataset has, of that type.
            let read = || unsafe { (h5.H5Dread)(object.get(), dtype, H5S_ALL, H5S_ALL, H5P_DEFAULT, at) };
            foreign::call(h5, named, || i64::from(read()))?;
        }
        let looked = remap(h5, dtype, &mut elements, count, &mut |reference| match Reference::try_from(&*reference) {
            Ok(region) => self.note(native, &region),
            Err(_) => Ok(()),
        });
        // SAFETY: the elements are valid ones of the type and space, made by HDF5.
        unsafe { (h5.H5Treclaim)(dtype, space.get(), H5P_DEFAULT, at) };
        looked
    }

    fn note(&mut self, native: &Native, region: &Reference) -> Result<()> {
        if *region == [0; REFERENCE_BYTES] || !self.met.insert(*region) {
            return Ok(());
        }
        let (h5, file, at) = (native.h5, native.id(), region.as_ptr().cast::<c_void>());
        // SAFETY: the reference has its size, and is only read.
        let space = foreign::tried(h5, || unsafe { (h5.H5Rget_region)(file, REGION, at) });
        // SAFETY: as above.
        let object = foreign::tried(h5, || unsafe { (h5.H5Rdereference2)(file, H5P_DEFAULT, REGION, at) });
        // A dangling reference stays dangling.
        let (Some(space), Some(object)) =
            (space.ok().and_then(|id| Hid::new(h5, id)), object.ok().and_then(|id| Hid::new(h5, id)))
        else {
            return Ok(());
        };
        if self.serialiser.is_none() {
            self.serialiser = Some(Serialiser::new(&self.target)?);
        }
        match &mut self.serialiser {
            Some(serialiser) => serialiser.add(*region, native.oid(object.get())?, space.get()),
            None => Ok(()),
        }
    }

    /// The records of the references met.
    pub fn records(&mut self) -> Result<Vec<Record>> {
        self.serialiser.take().map_or(Ok(Vec::new()), Serialiser::records)
    }
}
