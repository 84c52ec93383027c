//! An owned HDF5 id.

use super::api::Api;
use super::types::hid_t;
use crate::Result;
use crate::error::h5_id;

/// An HDF5 id that is released when dropped.
pub struct Hid {
    id: hid_t,
    h5: &'static Api,
}

impl Hid {
    /// Takes over an id; `None` if it is invalid.
    pub fn new(h5: &'static Api, id: hid_t) -> Option<Self> {
        (id > 0).then_some(Self { id, h5 })
    }
    /// The id, still owned here.
    pub fn get(&self) -> hid_t {
        self.id
    }
    /// The id, owned by the caller from now on.
    #[must_use]
    pub fn release(self) -> hid_t {
        let id = self.id;
        std::mem::forget(self);
        id
    }
    /// Returns false if the library has dropped the id, as it does when it is closed. (`H5Iis_valid` does not know hidden
    /// ids.)
    pub fn is_valid(&self) -> bool {
        // SAFETY: a plain query of any number.
        unsafe { (self.h5.H5Iget_type)(self.id) > 0 }
    }
    /// Hides one of our ids from `H5Fget_obj_count`, which counts every id that belongs to the program.
    #[must_use]
    pub fn hidden(self) -> Self {
        if let Some(inc_ref) = self.h5.H5I_inc_ref {
            // SAFETY: the id is valid and ours: takes a reference that is not the program's, and returns one that is. The
            // latter may not exist: `H5VLget_file_type` of some versions makes hidden ids.
            unsafe {
                if (self.h5.H5Iget_ref)(self.id) > 0 && inc_ref(self.id, false) > 0 {
                    (self.h5.H5Idec_ref)(self.id);
                }
            }
        }
        self
    }
    /// The library of the id.
    pub fn h5(&self) -> &'static Api {
        self.h5
    }
}

impl Api {
    /// An id of HDF5's own connector.
    pub fn native_connector(&'static self) -> Result<Hid> {
        // Before HDF5 2.0 the global id is not visible.
        // SAFETY: plain calls; either returns an id that belongs to us.
        let id = unsafe {
            match self.H5VL_NATIVE_g() {
                id if id > 0 && (self.H5Iinc_ref)(id) > 0 => id,
                _ => (self.H5VLget_connector_id_by_name)(c"native".as_ptr()),
            }
        };
        h5_id(self, "H5VLget_connector_id_by_name", id)
    }
}

impl Drop for Hid {
    fn drop(&mut self) {
        // SAFETY: we own one reference to the id, which this returns; a library that has been closed since answers with an
        // error, which does not matter here.
        unsafe {
            if self.is_valid() {
                (self.h5.H5Idec_ref)(self.id);
            }
        }
    }
}
