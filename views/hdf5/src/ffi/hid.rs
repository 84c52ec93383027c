//! An owned HDF5 id.

use super::api::Api;
use super::types::hid_t;

/// An HDF5 id that is released when dropped.
pub struct Hid {
    id: hid_t,
    h5: &'static Api,
}

impl Hid {
    /// Takes over an id; `None` if it is no id.
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
    /// The library that it belongs to.
    pub fn h5(&self) -> &'static Api {
        self.h5
    }
}

impl Drop for Hid {
    fn drop(&mut self) {
        // SAFETY: the id was given to us with one reference, which this returns; a library that has been closed since
        // then answers with an error, which is of no consequence here.
        unsafe {
            if (self.h5.H5Iis_valid)(self.id) > 0 {
                (self.h5.H5Idec_ref)(self.id);
            }
        }
    }
}
