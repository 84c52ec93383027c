//! The records of a native file's metadata (object headers, links, attributes), made when first asked for.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Arc, Weak};

use cenote::{Error, ErrorKind};
use parking_lot::Mutex;

use super::{Native, call, info};
use crate::error::h5_id;
use crate::ffi::Hid;
use crate::ffi::types::{
    H5_INDEX_NAME, H5_ITER_NATIVE, H5A_info_t, H5G_info_t, H5I_DATASET, H5I_DATATYPE, H5I_GROUP, H5L_TYPE_HARD,
    H5L_TYPE_SOFT, H5L_info2_t, H5O_INFO_BASIC, H5O_INFO_TIME, H5P_DEFAULT, herr_t, hid_t,
};
use crate::file::File;
use crate::meta::attrs::Attr;
use crate::meta::header::{Body, Header};
use crate::meta::keys;
use crate::meta::links::{Link, Target};
use crate::meta::records::{Record, Source};
use crate::props::{DatasetProps, GroupProps, ObjectProps};
use crate::space::Extent;
use crate::vol::oid_of;
use crate::{Result, dtype};

/// The part of an object whose records are made together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Part {
    Header,
    Links,
    Attributes,
}

impl Part {
    /// The part to which records with this tag belong; `None` for records that native files do not have.
    fn of(tag: u8) -> Option<Self> {
        match tag {
            keys::TAG_HEADER | keys::TAG_REFCOUNT | keys::TAG_EXTENT | keys::TAG_COMMENT => Some(Self::Header),
            keys::TAG_LINK | keys::TAG_LINK_ORDER | keys::TAG_LINK_NEXT => Some(Self::Links),
            keys::TAG_ATTR | keys::TAG_ATTR_ORDER | keys::TAG_ATTR_NEXT => Some(Self::Attributes),
            _ => None,
        }
    }
}

#[derive(Default)]
struct CachedRecords {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    parts: HashSet<(u64, Part)>,
}

/// Makes records of a native file's metadata.
pub struct NativeRecords {
    native: Arc<Native>,
    /// The open file of the records; conversions need it.
    file: Weak<File>,
    known: Mutex<CachedRecords>,
}

impl Source for NativeRecords {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if !self.know(key)? {
            return Ok(None);
        }
        Ok(self.known.lock().records.get(key).cloned())
    }
    fn with_prefix(&self, prefix: &[u8]) -> Result<Vec<Record>> {
        if !self.know(prefix)? {
            return Ok(Vec::new());
        }
        let known = self.known.lock();
        let from = known.records.range::<[u8], _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded));
        Ok(from.take_while(|(key, _)| key.starts_with(prefix)).map(|(k, v)| (k.clone(), v.clone())).collect())
    }
}

/// Links or attributes as HDF5 lists them.
type Listed<T> = Vec<(CString, T)>;

impl NativeRecords {
    /// Records of `native` for its open file `file`.
    pub fn new(native: Arc<Native>, file: Weak<File>) -> Self {
        Self { native, file, known: Mutex::default() }
    }
    /// Makes the records of a key's part. Returns false if no such records exist.
    fn know(&self, key: &[u8]) -> Result<bool> {
        let (Some(part), Some(number)) = (key.first().and_then(|tag| Part::of(*tag)), key.get(1..9)) else {
            return Ok(false);
        };
        let oid = number.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        if self.known.lock().parts.contains(&(oid, part)) {
            return Ok(true);
        }
        // Made without the lock: HDF5 may call back.
        let object = self.native.object(oid)?;
        // SAFETY: a plain query.
        let kind = unsafe { (self.native.h5.H5Iget_type)(object.get()) };
        let mut made = Vec::new();
        match part {
            Part::Header => self.header(oid, object.get(), kind, &mut made)?,
            Part::Links if kind == H5I_GROUP => self.links(oid, object.get(), &mut made)?,
            Part::Links => {}
            Part::Attributes => self.attributes(oid, object.get(), &mut made)?,
        }
        let mut known = self.known.lock();
        known.records.extend(made);
        known.parts.insert((oid, part));
        Ok(true)
    }
    fn file(&self) -> Result<Arc<File>> {
        self.file.upgrade().ok_or_else(|| Error::new(ErrorKind::Internal, self.native.name()).because("it is closed"))
    }
    fn named(&self, oid: u64) -> String {
        format!("object at address {oid} of {}", self.native.name())
    }
    /// The id returned by an HDF5 call.
    fn id(&self, oid: u64, act: impl FnOnce() -> hid_t) -> Result<Hid> {
        let h5 = self.native.h5;
        h5_id(h5, "an HDF5 call", call(h5, || self.named(oid), act)?)
    }

    fn header(&self, oid: u64, object: hid_t, kind: c_int, made: &mut Vec<Record>) -> Result<()> {
        let (h5, file) = (self.native.h5, self.file()?);
        let info = info(h5, object, H5O_INFO_BASIC | H5O_INFO_TIME, || self.named(oid))?;
        // SAFETY: plain queries of ids of this scope.
        let body = unsafe {
            match kind {
                H5I_GROUP => {
                    let plist = self.id(oid, || (h5.H5Gget_create_plist)(object))?;
                    Body::Group(GroupProps::of(h5, plist.get())?)
                }
                H5I_DATASET => {
                    let stated = self.id(oid, || (h5.H5Dget_type)(object))?;
                    let space = self.id(oid, || (h5.H5Dget_space)(object))?;
                    let plist = self.id(oid, || (h5.H5Dget_create_plist)(object))?;
                    let encoded = dtype::encode(h5, stated.get())?;
                    let plain = dtype::decode(h5, &encoded)?;
                    let props = DatasetProps::of(&file, plist.get(), plain.get())?;
                    let extent = Extent::of(h5, space.get())?;
                    let mut w = Vec::new();
                    extent.encode(&mut w);
                    made.push((keys::extent(oid), w));
                    Body::Dataset { dtype: encoded, committed: self.committed(stated.get())?, props, extent }
                }
                H5I_DATATYPE => {
                    let plist = self.id(oid, || (h5.H5Tget_create_plist)(object))?;
                    let props = ObjectProps::of(h5, plist.get())?;
                    Body::Datatype { dtype: dtype::encode(h5, object)?, props }
                }
                other => {
                    return Err(Error::new(ErrorKind::Unsupported, self.named(oid))
                        .because(format!("it is an object of a kind ({other}) that HDF5 adds")));
                }
            }
        };
        made.push((keys::of(keys::TAG_HEADER, oid), Header { born_unix_s: info.ctime, body }.encode()));
        made.push((keys::of(keys::TAG_REFCOUNT, oid), info.rc.to_le_bytes().to_vec()));
        let comment = self.comment(oid, object)?;
        if !comment.is_empty() {
            made.push((keys::of(keys::TAG_COMMENT, oid), comment));
        }
        Ok(())
    }

    /// The number of the committed datatype; 0 if the datatype is not committed.
    fn committed(&self, dtype: hid_t) -> Result<u64> {
        // SAFETY: a plain query.
        if unsafe { (self.native.h5.H5Tcommitted)(dtype) } > 0 { self.native.oid(dtype) } else { Ok(0) }
    }

    fn comment(&self, oid: u64, object: hid_t) -> Result<Vec<u8>> {
        let h5 = self.native.h5;
        let ask = |buf: &mut [u8]| {
            let to = if buf.is_empty() { std::ptr::null_mut() } else { buf.as_mut_ptr().cast() };
            // SAFETY: the buffer has the size given; an empty one asks for the length alone.
            call(h5, || self.named(oid), || unsafe { (h5.H5Oget_comment)(object, to, buf.len()) as i64 })
        };
        let len = ask(&mut [])? as usize;
        if len == 0 {
            return Ok(Vec::new());
        }
        let mut text = vec![0; len + 1];
        ask(&mut text)?;
        text.truncate(len);
        Ok(text)
    }

    fn links(&self, oid: u64, group: hid_t, made: &mut Vec<Record>) -> Result<()> {
        unsafe extern "C" fn each(_: hid_t, name: *const c_char, info: *const H5L_info2_t, to: *mut c_void) -> herr_t {
            // SAFETY: HDF5 passes a name and a description, and the list given below.
            unsafe { (*to.cast::<Listed<H5L_info2_t>>()).push((CStr::from_ptr(name).to_owned(), *info)) };
            0
        }
        let h5 = self.native.h5;
        let mut all: Listed<H5L_info2_t> = Vec::new();
        let to = (&raw mut all).cast();
        call(
            h5,
            || self.named(oid),
            || {
                // SAFETY: the callback gets back the pointer to the list, which outlives the call.
                i64::from(unsafe {
                    (h5.H5Literate2)(group, H5_INDEX_NAME, H5_ITER_NATIVE, std::ptr::null_mut(), Some(each), to)
                })
            },
        )?;
        for (name, info) in all {
            let order = info.corder_valid.then_some(info.corder as u64);
            let target = match info.kind {
                // SAFETY: a hard link's description has a token.
                H5L_TYPE_HARD => Target::Hard(self.native.number(oid_of(unsafe { &info.u.token }))),
                kind => {
                    // SAFETY: any other link's has the size of its value.
                    let mut value = self.link_value(oid, group, &name, unsafe { info.u.val_size })?;
                    if kind == H5L_TYPE_SOFT {
                        value.pop_if(|last| *last == 0);
                        Target::Soft(value)
                    } else {
                        Target::User(kind as u8, value)
                    }
                }
            };
            if let Some(order) = order {
                made.push((keys::ordered(keys::TAG_LINK_ORDER, oid, order), name.as_bytes().to_vec()));
            }
            let link = Link { target, order, cset: info.cset as u8 };
            made.push((keys::named(keys::TAG_LINK, oid, name.as_bytes()), link.encode()));
        }
        let mut info = H5G_info_t::default();
        // SAFETY: the place is valid.
        call(h5, || self.named(oid), || i64::from(unsafe { (h5.H5Gget_info)(group, &raw mut info) }))?;
        if info.max_corder > 0 {
            made.push((keys::of(keys::TAG_LINK_NEXT, oid), info.max_corder.to_le_bytes().to_vec()));
        }
        Ok(())
    }

    fn link_value(&self, oid: u64, group: hid_t, name: &CStr, bytes: usize) -> Result<Vec<u8>> {
        let h5 = self.native.h5;
        let mut value = vec![0u8; bytes];
        let named = || format!("link `{}` of {}", name.to_string_lossy(), self.named(oid));
        // SAFETY: the buffer has the size given.
        let mut get =
            || unsafe { (h5.H5Lget_val)(group, name.as_ptr(), value.as_mut_ptr().cast(), bytes, H5P_DEFAULT) };
        call(h5, named, || i64::from(get()))?;
        Ok(value)
    }

    fn attributes(&self, oid: u64, object: hid_t, made: &mut Vec<Record>) -> Result<()> {
        unsafe extern "C" fn each(_: hid_t, name: *const c_char, info: *const H5A_info_t, to: *mut c_void) -> herr_t {
            // SAFETY: HDF5 passes a name and a description, and the list given below.
            unsafe { (*to.cast::<Listed<H5A_info_t>>()).push((CStr::from_ptr(name).to_owned(), *info)) };
            0
        }
        let h5 = self.native.h5;
        let mut all: Listed<H5A_info_t> = Vec::new();
        let to = (&raw mut all).cast();
        call(
            h5,
            || self.named(oid),
            || {
                // SAFETY: the callback gets back the pointer to the list, which outlives the call.
                i64::from(unsafe {
                    (h5.H5Aiterate2)(object, H5_INDEX_NAME, H5_ITER_NATIVE, std::ptr::null_mut(), Some(each), to)
                })
            },
        )?;
        let mut next = 0;
        for (i, (name, info)) in all.into_iter().enumerate() {
            let order = if info.corder_valid { u64::from(info.corder) } else { i as u64 };
            next = next.max(order + 1);
            // SAFETY: plain calls with ids of this scope.
            let (stated, space) = unsafe {
                let attr = self.id(oid, || (h5.H5Aopen)(object, name.as_ptr(), H5P_DEFAULT))?;
                let stated = self.id(oid, || (h5.H5Aget_type)(attr.get()))?;
                (stated, self.id(oid, || (h5.H5Aget_space)(attr.get()))?)
            };
            let attr = Attr {
                uid: i as u64 + 1,
                order,
                cset: info.cset as u8,
                dtype: dtype::encode(h5, stated.get())?,
                committed: self.committed(stated.get())?,
                extent: Extent::of(h5, space.get())?,
                value: None, // read in place: see `super::attr`
            };
            made.push((keys::ordered(keys::TAG_ATTR_ORDER, oid, order), name.as_bytes().to_vec()));
            made.push((keys::named(keys::TAG_ATTR, oid, name.as_bytes()), attr.encode()));
        }
        made.push((keys::of(keys::TAG_ATTR_NEXT, oid), next.to_le_bytes().to_vec()));
        Ok(())
    }
}
