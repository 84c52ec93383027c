//! Sources of a virtual dataset: finds them, opens them, and keeps them open as long as the dataset is open.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use cenote::{Error, ErrorKind};
use parking_lot::Mutex;

use crate::Result;
use crate::data::access::{SOURCES_ENV, SourceView};
use crate::error::h5_id;
use crate::ffi::types::H5P_DEFAULT;
use crate::file::{File, beside, path, search};
use crate::meta::resolve::{self, Location};
use crate::meta::{header, keys, objects};
use crate::object::{self, Body, Dataset};

/// An open source. Counts as an open object, so that it survives the removal of its last link.
pub struct Source {
    /// The dataset.
    pub dataset: Dataset,
}

impl Drop for Source {
    fn drop(&mut self) {
        let file = &self.dataset.file;
        if file.shared.closed(self.dataset.oid) && file.writable {
            // The next deletion, or the file's next creation, sweeps what a failure leaves behind.
            let _ = objects::delete_if_unlinked(file, self.dataset.oid);
        }
    }
}

/// Names of a file and of a dataset in it.
type Names = (Vec<u8>, Vec<u8>);

/// The open sources, by names of file and dataset.
#[derive(Default)]
pub struct Sources {
    open: Mutex<HashMap<Names, Arc<Source>>>,
}

impl Sources {
    /// Opens a source or returns the open one; `None` if no such file or dataset exists.
    pub fn get(&self, of: &Dataset, view: &SourceView, file: &[u8], dataset: &[u8]) -> Result<Option<Arc<Source>>> {
        let key = (file.to_vec(), dataset.to_vec());
        if let Some(known) = self.open.lock().get(&key) {
            return Ok(Some(known.clone()));
        }
        let Some(place) = find(of, view, file, dataset)? else { return Ok(None) };
        let Body::Dataset(mut opened) = object::open(&place)? else { return Ok(None) };
        let h5 = of.h5();
        // Nested virtual datasets use the same view.
        let dapl = of.dapl.as_ref().map(|dapl| {
            // SAFETY: a plain call.
            h5_id(h5, "H5Pcopy", unsafe { (h5.H5Pcopy)(dapl.get()) })
        });
        let source = |dapl| {
            opened.dapl = dapl;
            Arc::new(Source { dataset: *opened })
        };
        let source = match dapl.transpose() {
            Ok(dapl) => source(dapl),
            Err(error) => {
                drop(source(None));
                return Err(error);
            }
        };
        self.open.lock().insert(key, source.clone());
        Ok(Some(source))
    }

    /// All open sources.
    pub fn all(&self) -> Vec<Arc<Source>> {
        self.open.lock().values().cloned().collect()
    }

    /// Closes all sources.
    pub fn clear(&self) {
        self.open.lock().clear();
    }
}

/// Where a source is; `None` if no such file or dataset exists.
pub fn find(of: &Dataset, view: &SourceView, file: &[u8], dataset: &[u8]) -> Result<Option<Location>> {
    let Some(file) = file_of(&of.file, view, file)? else { return Ok(None) };
    let root = Location { file, oid: keys::ROOT, path: b"/".to_vec() };
    let found = match resolve::resolve_as(&root, dataset, true, H5P_DEFAULT).and_then(resolve::ResolvedPath::place) {
        Ok(place) => place,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_dataset = matches!(header::get(&found.file, found.oid)?.body, header::Body::Dataset { .. });
    Ok(is_dataset.then_some(found))
}

/// The file with that name; `None` if it does not exist. A file that cannot be opened is an error: its data would look missing.
fn file_of(from: &Arc<File>, view: &SourceView, name: &[u8]) -> Result<Option<Arc<File>>> {
    if name == b"." {
        return Ok(Some(from.clone()));
    }
    let named = path::from_bytes(name)?;
    for place in search::places(SOURCES_ENV, view.prefix.as_deref(), &from.path, named) {
        if let Some(file) = open_at(from, &place)? {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

fn open_at(from: &Arc<File>, place: &Path) -> Result<Option<Arc<File>>> {
    if !place.exists() {
        return Ok(None);
    }
    beside::open_named(from, place).map(Some).map_err(|error| {
        Error::new(error.kind(), format!("a source of a virtual dataset of file {}", from.path))
            .because(error.to_string())
            .try_next("make it readable, or take it out of the mapping")
    })
}
