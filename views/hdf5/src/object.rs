//! Open objects to which HDF5 holds pointers: files, groups, datasets, committed datatypes, maps and attributes.

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use cenote::{Error, ErrorKind};
use parking_lot::Mutex;

use crate::Result;
use crate::data;
use crate::ffi::types::{H5I_ATTR, H5I_DATASET, H5I_DATATYPE, H5I_FILE, H5I_GROUP, H5I_MAP, H5T_COMPOUND};
use crate::ffi::{Api, Hid};
use crate::file::{File, mounts};
use crate::meta::resolve::{self, Location};
use crate::meta::{header, objects};
use crate::props::{DatasetProps, GroupProps, ObjectProps};
use crate::space::Extent;
use crate::vol::facade::{self, Facade};

/// Addresses of all handles that HDF5 has from us: any other pointer is not ours.
static LIVE: LazyLock<Mutex<HashSet<usize>>> = LazyLock::new(Mutex::default);

/// Target of this connector's object pointers in HDF5.
#[repr(C)]
pub struct Handle {
    facade: Facade,
    /// The open object.
    pub body: Body,
    /// The libhdf5 that has the handle.
    pub h5: &'static Api,
    /// True after closing it has failed once.
    has_refused: AtomicBool,
}

/// The open object of a handle.
pub enum Body {
    /// An open file.
    File(Arc<File>),
    /// An open group.
    Group(Group),
    /// An open dataset.
    Dataset(Box<Dataset>),
    /// An open committed datatype.
    Datatype(Datatype),
    /// An open map.
    Map(Box<Map>),
    /// An open attribute.
    Attr(Attr),
    /// The file inside stored datatypes: stands for the file of the current conversion on this thread.
    Anchor,
}

/// An open group.
pub struct Group {
    /// The group's place.
    pub place: Location,
    /// Creation properties.
    pub props: GroupProps,
}

/// An open committed datatype.
pub struct Datatype {
    /// The datatype's place.
    pub place: Location,
    /// Encoded datatype.
    pub encoded: Vec<u8>,
    /// Creation properties.
    pub props: ObjectProps,
}

/// An open map.
pub struct Map {
    /// The map's place.
    pub place: Location,
    /// Datatype of keys.
    pub key_type: Hid,
    /// The key type without padding between fields, so that equal keys are equal bytes.
    pub key_packed: Hid,
    /// Datatype of values.
    pub value_type: Hid,
    /// Creation properties.
    pub props: ObjectProps,
}

impl Map {
    /// A map with these encoded datatypes (the caller counts it as open).
    pub fn new(place: Location, key: &[u8], value: &[u8], props: ObjectProps) -> Result<Self> {
        let h5 = place.file.h5;
        let key_type = crate::dtype::decode(h5, key)?.hidden();
        let key_packed = crate::dtype::copy(h5, key_type.get())?.hidden();
        // SAFETY: a plain call with a type of our own.
        unsafe {
            if (h5.H5Tdetect_class)(key_packed.get(), H5T_COMPOUND) > 0 {
                crate::h5_check("H5Tpack", (h5.H5Tpack)(key_packed.get()))?;
            }
        }
        let value_type = crate::dtype::decode(h5, value)?.hidden();
        Ok(Self { place, key_type, key_packed, value_type, props })
    }
}

/// An open attribute.
pub struct Attr {
    /// The object that has it.
    pub place: Location,
    /// Its name when it was opened.
    pub name: Mutex<Vec<u8>>,
    /// Distinguishes it from others of the same name.
    pub uid: u64,
    /// Its datatype.
    pub dtype: Hid,
    /// The committed datatype given at creation; 0 if none.
    pub committed: u64,
    /// Its shape.
    pub extent: Extent,
}

/// An open dataset. `data` keeps its state in [`Dataset::data`].
pub struct Dataset {
    /// Its file.
    pub file: Arc<File>,
    /// Its object number; also the number of its main raw-data object.
    pub oid: u64,
    /// Absolute path by which it was opened; empty if unknown.
    pub path: Vec<u8>,
    /// Its constant properties.
    pub header: DatasetHeader,
    /// State of the raw-data module.
    pub data: Arc<data::DatasetState>,
    /// Access properties.
    pub dapl: Option<Hid>,
}

/// The constant properties of a dataset, decoded.
pub struct DatasetHeader {
    /// The dataset's datatype as the user gave it, in memory form (variable-length parts are pointers); [`crate::dtype::disk`]
    /// makes the stored form.
    pub dtype: Hid,
    /// The committed datatype given at creation; 0 if none.
    pub committed: u64,
    /// Creation properties: layout, chunk shape, filters, fill value.
    pub props: DatasetProps,
    /// Extent at creation; the maximum dimensions never change, current dimensions do (see [`Dataset::extent`]).
    pub extent: Extent,
}

impl Dataset {
    /// The libhdf5 that has it open.
    pub fn h5(&self) -> &'static Api {
        self.file.h5
    }
    /// The present extent in the store (other processes may have changed it).
    pub fn extent(&self) -> Result<Extent> {
        data::extent(self)
    }
    /// The dataset's name for errors.
    pub fn name(&self) -> String {
        if self.path.is_empty() {
            format!("dataset {:016x} of file {}", self.oid, self.file.path)
        } else {
            format!("dataset {} of file {}", String::from_utf8_lossy(&self.path), self.file.path)
        }
    }
    /// The dataset's place.
    pub fn place(&self) -> Location {
        Location { file: self.file.clone(), oid: self.oid, path: self.path.clone() }
    }
}

impl Handle {
    /// Makes a handle; HDF5 gets the pointer and returns it for closing.
    pub fn new(h5: &'static Api, body: Body) -> *mut Self {
        let facade = match &body {
            Body::File(_) => facade::of_file(),
            Body::Datatype(_) => facade::of_datatype(),
            _ => facade::of_object(),
        };
        let pointer = Box::into_raw(Box::new(Self { facade, body, h5, has_refused: AtomicBool::new(false) }));
        LIVE.lock().insert(pointer as usize);
        pointer
    }
    /// The handle behind a pointer from HDF5; an error if it is not one of ours.
    pub fn at<'a>(pointer: *mut c_void) -> Result<&'a Self> {
        if !LIVE.lock().contains(&(pointer as usize)) {
            return Err(Error::new(ErrorKind::InvalidInput, "object")
                .because("it is not an open object of the cenote connector (is it in a native file?)"));
        }
        // SAFETY: it is in the table, so it was made by `new` and not yet closed; HDF5 closes nothing it still uses.
        Ok(unsafe { &*pointer.cast::<Self>() })
    }
    /// Returns true the first time. A file that cannot be closed reports an error once and stays open, as in HDF5; the next time
    /// it is closed in any case, since HDF5 tries again and again when the program ends.
    pub fn may_refuse(&self) -> bool {
        !self.has_refused.swap(true, Ordering::Relaxed)
    }
    /// Takes back a handle. Deletes the object if it was unlinked meanwhile and this was its last handle.
    ///
    /// Errors are reported when the file is flushed or closed: if closing an object failed, HDF5 would free its own part but
    /// keep the id, and the program would crash at the next use of it.
    pub fn close(pointer: *mut c_void) -> Result<()> {
        // Store what is still buffered first.
        if let Body::Dataset(d) = &Self::at(pointer)?.body
            && let Err(error) = data::close(d)
        {
            d.file.shared.tell_later(error);
        }
        if !LIVE.lock().remove(&(pointer as usize)) {
            return Err(Error::new(ErrorKind::InvalidInput, "object").because("it is not open"));
        }
        // SAFETY: it was in the table, so it was made by `new`; removing it made this call its only owner.
        let handle = unsafe { Box::from_raw(pointer.cast::<Self>()) };
        if let Body::File(file) = &handle.body {
            file.handle_closed(pointer.cast());
            Self::dissolve_mounts(file);
            return Ok(());
        }
        let Ok(place) = handle.place() else { return Ok(()) };
        if let Body::Attr(attr) = &handle.body {
            place.file.shared.attr_closed(attr.uid);
        }
        Self::dissolve_mounts(&place.file);
        if !matches!(handle.body, Body::Attr(_)) && place.file.shared.closed(place.oid) && place.file.writable {
            if place.file.team.is_some() && !crate::team::is_independent() {
                // Other ranks may still have it open.
                place.file.shared.postpone(place.oid);
            } else {
                let deleted = objects::delete_if_unlinked(&place.file, place.oid);
                deleted.unwrap_or_else(|error| place.file.shared.tell_later(error));
            }
        }
        Ok(())
    }
    /// Closes files mounted in each other once no object of any of them is open.
    fn dissolve_mounts(file: &Arc<File>) {
        mounts::dissolve_if_unused(file, |is_inside| {
            LIVE.lock().iter().any(|address| {
                // SAFETY: what is in the table is live, and stays while the table is locked.
                let handle = unsafe { &*(*address as *const Self) };
                !matches!(handle.body, Body::Anchor) && handle.file().is_ok_and(|file| is_inside(&file))
            })
        });
    }
    /// The object's file.
    pub fn file(&self) -> Result<Arc<File>> {
        match &self.body {
            Body::File(file) => Ok(file.clone()),
            Body::Group(g) => Ok(g.place.file.clone()),
            Body::Dataset(d) => Ok(d.file.clone()),
            Body::Datatype(t) => Ok(t.place.file.clone()),
            Body::Map(m) => Ok(m.place.file.clone()),
            Body::Attr(a) => Ok(a.place.file.clone()),
            Body::Anchor => crate::blob::current_file().ok_or_else(|| {
                Error::new(ErrorKind::InvalidInput, "stored datatype")
                    .because("it is used outside of reading and writing through the connector")
            }),
        }
    }
    /// The object; for a file its root group, for an attribute the object that has it.
    pub fn place(&self) -> Result<Location> {
        Ok(match &self.body {
            Body::Group(g) => g.place.clone(),
            Body::Dataset(d) => d.place(),
            Body::Datatype(t) => t.place.clone(),
            Body::Map(m) => m.place.clone(),
            Body::Attr(a) => a.place.clone(),
            Body::File(_) | Body::Anchor => resolve::root_of(&self.file()?),
        })
    }
    /// `H5I_type_t`.
    pub fn id_type(&self) -> c_int {
        match self.body {
            Body::File(_) | Body::Anchor => H5I_FILE,
            Body::Group(_) => H5I_GROUP,
            Body::Dataset(_) => H5I_DATASET,
            Body::Datatype(_) => H5I_DATATYPE,
            Body::Map(_) => H5I_MAP,
            Body::Attr(_) => H5I_ATTR,
        }
    }
}

/// Opens the object at `place`, of any kind.
pub fn open(place: &Location) -> Result<Body> {
    let file = &place.file;
    let head = header::get(file, place.oid)?;
    let body = match head.body {
        header::Body::Group(props) => Body::Group(Group { place: place.clone(), props }),
        header::Body::Datatype { dtype, props } => {
            Body::Datatype(Datatype { place: place.clone(), encoded: dtype, props })
        }
        header::Body::Map { key, value, props } => Body::Map(Box::new(Map::new(place.clone(), &key, &value, props)?)),
        header::Body::Dataset { dtype, committed, props, extent } => {
            let dtype = crate::dtype::decode(file.h5, &dtype)?.hidden();
            Body::Dataset(Box::new(open_dataset(place, DatasetHeader { dtype, committed, props, extent })?))
        }
    };
    file.shared.opened(place.oid, false);
    Ok(body)
}

/// An open dataset from its decoded header (the caller counts it as open).
pub fn open_dataset(place: &Location, header: DatasetHeader) -> Result<Dataset> {
    let data = Arc::new(data::open(&place.file, place.oid, &header)?);
    Ok(Dataset { file: place.file.clone(), oid: place.oid, path: place.path.clone(), header, data, dapl: None })
}
