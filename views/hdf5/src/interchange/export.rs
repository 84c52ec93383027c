//! Exports a file of the store as a native file: the same objects, links, attributes and properties; chunks as stored.
//!
//! First makes all objects and links, groups in order; then attributes and raw data, because a reference can only be written
//! once its target has an address.

use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, c_char, c_void};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote::{Error, ErrorKind, Store};
use parking_lot::Mutex;

use super::{Copied, Progress, references, remap};
use crate::error::{h5_check, h5_id, unsupported};
use crate::ffi::types::{
    H5_INDEX_CRT_ORDER, H5_ITER_INC, H5F_ACC_TRUNC, H5F_CLOSE_STRONG, H5O_INFO_BASIC, H5O_token_t, H5P_DEFAULT, hid_t,
};
use crate::ffi::{Api, Hid};
use crate::file::{File, open, path};
use crate::foreign::making::{self, Making};
use crate::foreign::{self, info, written};
use crate::meta::header::{self, Body as HeaderBody};
use crate::meta::keys::{self, ROOT};
use crate::meta::links::{self, Link, Target};
use crate::meta::resolve::{self, Location};
use crate::meta::{attrs, extent_get, objects};
use crate::object::{self, Body};
use crate::regions::records::{self, REFERENCE_BYTES as REGION_BYTES};
use crate::regions::{self, REGION};
use crate::{Result, blob, data, dtype, value};

/// `H5F_LIBVER_V18`, and the newest of HDF5 1.14 and 2.
const FORMAT_LOW: i32 = 1;
const FORMATS_HIGH: [i32; 2] = [6, 5];

/// Exports the file of `store` at `from` to a native file at `to`, replacing what is there unless that is a file of a store.
/// Changes nothing unless everything succeeds.
pub fn export(h5: &'static Api, store: &Store, from: &Path, to: &Path, progress: Progress<'_>) -> Result<Copied> {
    let source = open::open_stored(h5, store, from)?;
    if source.native.is_some() {
        return Err(Error::new(ErrorKind::InvalidInput, format!("file {}", from.display()))
            .because("it is a native HDF5 file already")
            .try_next("copy it; one that is staged: `cenote unstage`"));
    }
    if crate::file::is_stub(to) {
        return Err(Error::new(ErrorKind::Exists, format!("file {}", to.display()))
            .because("there is a file of a Cenote store, which a native file would not replace but hide")
            .try_next("name another, or remove that one first"));
    }
    let beside = beside(to);
    let made = make(h5, &source, Onto::Path(&beside), progress);
    let placed = made.and_then(|copied| {
        let failed = |e: std::io::Error| Error::io(format!("file {}", to.display()), &e);
        fs::File::open(&beside).and_then(|file| file.sync_all()).map_err(failed)?;
        fs::rename(&beside, to).map_err(failed)?;
        Ok(copied)
    });
    if placed.is_err() {
        // Report the first error, not one of this removal.
        let _ = fs::remove_file(&beside);
    }
    placed
}

pub(super) fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".part-{}", std::process::id()));
    path.with_file_name(name)
}

/// Where the native file is made.
#[derive(Clone, Copy)]
pub(super) enum Onto<'a> {
    /// In the file system.
    Path(&'a Path),
    /// In the store, with raw data in place.
    Store(&'a Arc<Mutex<Making>>),
}

pub(super) fn make(h5: &'static Api, source: &Arc<File>, to: Onto<'_>, progress: Progress<'_>) -> Result<Copied> {
    let HeaderBody::Group(root) = header::get(source, ROOT)?.body else {
        return Err(Error::new(ErrorKind::Corrupt, source.path.clone()).because("its root is not a group"));
    };
    let name = match to {
        Onto::Path(path) => c_string(path.as_os_str().as_encoded_bytes())?,
        Onto::Store(_) => c_string(source.path.as_bytes())?,
    };
    let fcpl = root.plist(h5, h5.H5P_CLS_FILE_CREATE_ID_g())?;
    crate::file::creation::onto(source, fcpl.get())?;
    let connector = foreign::connector(h5)?;
    // SAFETY: plain calls with ids of this scope.
    let fapl = unsafe {
        let fapl = h5_id(h5, "H5Pcreate", (h5.H5Pcreate)(h5.H5P_CLS_FILE_ACCESS_ID_g()))?;
        h5_check("H5Pset_vol", (h5.H5Pset_vol)(fapl.get(), connector.get(), std::ptr::null()))?;
        h5_check("H5Pset_fclose_degree", (h5.H5Pset_fclose_degree)(fapl.get(), H5F_CLOSE_STRONG))?;
        let bound = |high| {
            written(
                h5,
                || "the file format".into(),
                || i64::from((h5.H5Pset_libver_bounds)(fapl.get(), FORMAT_LOW, high)),
            )
        };
        FORMATS_HIGH.into_iter().find_map(|high| bound(high).ok());
        fapl
    };
    let shown = || format!("native file {}", name.to_string_lossy());
    // SAFETY: the name ends in NUL.
    let create = || unsafe { (h5.H5Fcreate)(name.as_ptr(), H5F_ACC_TRUNC, fcpl.get(), fapl.get()) };
    let file = match to {
        Onto::Path(_) => written(h5, shown, create)?,
        Onto::Store(making) => making::making(h5, fapl.get(), making, || written(h5, shown, create))?,
    };
    let mut job = Export {
        h5,
        source: source.clone(),
        file,
        making: if let Onto::Store(making) = to { Some(making.clone()) } else { None },
        tokens: HashMap::new(),
        made: Vec::new(),
        held: HashMap::new(),
        copied: Copied::default(),
    };
    let done = job.all(progress);
    let copied = job.copied;
    drop(job);
    // SAFETY: the id is ours; closing it closes what is open in the file.
    let closed = written(h5, shown, || i64::from(unsafe { (h5.H5Fclose)(file) }));
    done.and(closed)?;
    copy_user_block(source, to)?;
    Ok(copied)
}

/// Copies the user block: the program's bytes before the stub.
fn copy_user_block(source: &File, to: Onto<'_>) -> Result<()> {
    let mut head = vec![0; source.at_path.user_block as usize];
    if head.is_empty() {
        return Ok(());
    }
    let failed = |e: std::io::Error| Error::io(format!("user block of file {}", source.path), &e);
    fs::File::open(path::of_label(&source.path)).and_then(|file| file.read_exact_at(&mut head, 0)).map_err(failed)?;
    match to {
        Onto::Path(to) => {
            fs::OpenOptions::new().write(true).open(to).and_then(|file| file.write_all_at(&head, 0)).map_err(failed)
        }
        Onto::Store(making) => {
            making.lock().keep(0, &head);
            Ok(())
        }
    }
}

fn c_string(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| Error::new(ErrorKind::InvalidInput, "name").because("it contains a NUL"))
}

struct Export {
    h5: &'static Api,
    source: Arc<File>,
    /// The native file.
    file: hid_t,
    /// Set if the native file is made in the store.
    making: Option<Arc<Mutex<Making>>>,
    /// Tokens of the objects in it.
    tokens: HashMap<u64, H5O_token_t>,
    /// Objects in the order of their creation.
    made: Vec<u64>,
    /// Committed datatypes that have no link yet.
    held: HashMap<u64, Hid>,
    copied: Copied,
}

impl Export {
    fn all(&mut self, progress: Progress<'_>) -> Result<()> {
        let root = info(self.h5, self.file, H5O_INFO_BASIC, || "root group".into())?;
        self.tokens.insert(ROOT, root.token);
        self.made.push(ROOT);
        self.copied.groups += 1;
        let mut groups = VecDeque::from([ROOT]);
        while let Some(oid) = groups.pop_front() {
            let group = self.open(oid)?;
            let order = i32::from(links::is_ordered(&self.source, oid)?);
            for (name, link) in links::list_in(&self.source, oid, order, H5_ITER_INC)? {
                self.link(group.get(), &name, &link, &mut groups)?;
            }
            progress(0)?;
        }
        for oid in std::mem::take(&mut self.made) {
            let object = self.open(oid)?;
            self.attributes(oid, object.get())?;
            if let Some(comment) = self.source.meta.get_one(&keys::of(keys::TAG_COMMENT, oid))? {
                let text = c_string(&comment)?;
                // SAFETY: the text ends in NUL.
                self.done(oid, || i64::from(unsafe { (self.h5.H5Oset_comment)(object.get(), text.as_ptr()) }))?;
            }
            self.raw_data(oid, object.get())?;
            progress(self.copied.bytes)?;
        }
        Ok(())
    }

    fn named(&self, oid: u64) -> String {
        let path = resolve::search_path(&self.source, oid).ok().flatten().unwrap_or_default();
        format!("exporting `{}` of file {}", String::from_utf8_lossy(&path), self.source.path)
    }
    fn done(&self, oid: u64, act: impl FnOnce() -> i64) -> Result<i64> {
        written(self.h5, || self.named(oid), act)
    }
    fn id(&self, oid: u64, act: impl FnOnce() -> hid_t) -> Result<Hid> {
        h5_id(self.h5, "an HDF5 call", self.done(oid, act)?)
    }
    /// Opens an object that was made.
    fn open(&self, oid: u64) -> Result<Hid> {
        let token = *self.tokens.get(&oid).ok_or_else(|| crate::meta::gone(&self.source, oid))?;
        // SAFETY: a plain call.
        self.id(oid, || unsafe { (self.h5.H5Oopen_by_token)(self.file, token) })
    }

    fn link(&mut self, group: hid_t, name: &[u8], link: &Link, groups: &mut VecDeque<u64>) -> Result<()> {
        let h5 = self.h5;
        let text = c_string(name)?;
        let shown = || format!("exporting link `{}` of file {}", String::from_utf8_lossy(name), self.source.path);
        // SAFETY: plain calls.
        let lcpl = unsafe {
            let lcpl = h5_id(h5, "H5Pcreate", (h5.H5Pcreate)(h5.H5P_CLS_LINK_CREATE_ID_g()))?;
            (h5.H5Pset_char_encoding)(lcpl.get(), i32::from(link.cset));
            lcpl
        };
        let (at, lcpl) = (text.as_ptr(), lcpl.get());
        // SAFETY: all strings end in NUL and live across the calls.
        unsafe {
            match &link.target {
                Target::Hard(child) => {
                    let object =
                        if self.tokens.contains_key(child) { self.open(*child)? } else { self.make(*child, groups)? };
                    let shown =
                        || format!("exporting link `{}` of file {}", String::from_utf8_lossy(name), self.source.path);
                    written(h5, shown, || i64::from((h5.H5Olink)(object.get(), group, at, lcpl, H5P_DEFAULT)))?;
                    self.held.remove(child);
                }
                Target::Soft(target) => {
                    let target = c_string(target)?;
                    written(h5, shown, || {
                        i64::from((h5.H5Lcreate_soft)(target.as_ptr(), group, at, lcpl, H5P_DEFAULT))
                    })?;
                }
                Target::User(64, value) => {
                    let (file, path) = resolve::external_parts(value)?;
                    let (file, path) = (c_string(file)?, c_string(path)?);
                    let (file, path): (*const c_char, *const c_char) = (file.as_ptr(), path.as_ptr());
                    let make = || (h5.H5Lcreate_external)(file, path, group, at, lcpl, H5P_DEFAULT);
                    written(h5, shown, || i64::from(make()))?;
                }
                Target::User(class, _) => {
                    return Err(unsupported(format!("{}: a user-defined link of class {class}", shown()), "remove it"));
                }
            }
        }
        Ok(())
    }

    /// Makes an object without a link.
    fn make(&mut self, oid: u64, groups: &mut VecDeque<u64>) -> Result<Hid> {
        let h5 = self.h5;
        // SAFETY: plain calls with ids of this scope.
        let made = unsafe {
            match header::get(&self.source, oid)?.body {
                HeaderBody::Group(props) => {
                    let plist = props.plist(h5, h5.H5P_CLS_GROUP_CREATE_ID_g())?;
                    groups.push_back(oid);
                    self.copied.groups += 1;
                    self.id(oid, || (h5.H5Gcreate_anon)(self.file, plist.get(), H5P_DEFAULT))?
                }
                HeaderBody::Datatype { dtype, props } => {
                    let made = dtype::decode(h5, &dtype)?;
                    let plist = props.plist(h5, h5.H5P_CLS_DATATYPE_CREATE_ID_g())?;
                    let commit = || (h5.H5Tcommit_anon)(self.file, made.get(), plist.get(), H5P_DEFAULT);
                    self.done(oid, || i64::from(commit()))?;
                    self.copied.datatypes += 1;
                    made
                }
                HeaderBody::Map { .. } => {
                    return Err(unsupported(
                        format!("{}: a map, which native files cannot have", self.named(oid)),
                        "delete it, or copy its pairs into a dataset",
                    ));
                }
                HeaderBody::Dataset { dtype, committed, props, .. } => {
                    let plain = dtype::decode(h5, &dtype)?;
                    let plist = props.plist(&self.source, plain.get())?;
                    let space = extent_get(&self.source, oid)?.space(h5)?;
                    let stated = self.committed(committed, plain, groups)?;
                    self.copied.datasets += 1;
                    let (stated, space) = (stated.get(), space.get());
                    self.id(oid, || (h5.H5Dcreate_anon)(self.file, stated, space, plist.get(), H5P_DEFAULT))?
                }
            }
        };
        let token = info(h5, made.get(), H5O_INFO_BASIC, || self.named(oid))?.token;
        self.tokens.insert(oid, token);
        self.made.push(oid);
        Ok(made)
    }

    /// The corresponding committed datatype in the native file, or the type itself.
    fn committed(&mut self, oid: u64, plain: Hid, groups: &mut VecDeque<u64>) -> Result<Hid> {
        if oid == 0 || header::find(&self.source, oid)?.is_none() {
            return Ok(plain);
        }
        if !self.tokens.contains_key(&oid) {
            let made = self.make(oid, groups)?;
            self.held.insert(oid, made);
        }
        self.open(oid)
    }

    /// The address in the native file for an object number.
    fn address(&self, oid: u64) -> Result<u64> {
        if oid == 0 {
            return Ok(0);
        }
        let oid = objects::canonical(&self.source, oid)?;
        // A dangling reference stays a null reference.
        Ok(self.tokens.get(&oid).map_or(0, crate::vol::oid_of))
    }
    /// Turns a reference in the file of the store into one in the native file.
    fn redirect(&self, reference: &mut [u8]) -> Result<()> {
        if let Ok(region) = <[u8; REGION_BYTES]>::try_from(&*reference) {
            reference.copy_from_slice(&self.region(&region)?);
        } else if let Some(number) = reference.first_chunk_mut::<8>() {
            *number = self.address(u64::from_ne_bytes(*number))?.to_ne_bytes();
        }
        Ok(())
    }
    /// Turns an old region reference into one in the native file.
    fn region(&self, region: &[u8; REGION_BYTES]) -> Result<[u8; REGION_BYTES]> {
        let mut made = [0; REGION_BYTES];
        let Some(oid) = records::dataset(&self.source, region)? else { return Ok(made) };
        if !self.tokens.contains_key(&oid) {
            return Ok(made);
        }
        let (object, space) = (self.open(oid)?, regions::selection_in(&self.source, region)?);
        let place = made.as_mut_ptr().cast();
        // SAFETY: the place has the size of such a reference; the name ends in NUL.
        let create = || unsafe { (self.h5.H5Rcreate)(place, object.get(), c".".as_ptr(), REGION, space.get()) };
        self.done(oid, || i64::from(create()))?;
        Ok(made)
    }
    /// Refuses types that a native file would need in another form. Returns true if there are old references.
    fn check(&self, dtype: hid_t, what: impl FnOnce() -> String) -> Result<bool> {
        let found = references(self.h5, dtype)?;
        if found.others {
            return Err(unsupported(format!("{}: references of HDF5 1.12's kind", what()), "copy the file without it"));
        }
        Ok(found.objects || found.regions)
    }

    fn attributes(&mut self, oid: u64, object: hid_t) -> Result<()> {
        let h5 = self.h5;
        let all = attrs::list_in(&self.source, oid, H5_INDEX_CRT_ORDER, H5_ITER_INC)?;
        self.copied.attributes += all.len() as u64;
        for (name, attr) in all {
            let shown = || format!("attribute `{}`, {}", String::from_utf8_lossy(&name), self.named(oid));
            let dtype = dtype::decode(h5, &attr.dtype)?;
            let has_references = self.check(dtype.get(), shown)?;
            let text = c_string(&name)?;
            let space = attr.extent.space(h5)?;
            let stated = match self.tokens.get(&attr.committed) {
                Some(_) if attr.committed != 0 => self.open(attr.committed)?,
                _ => dtype::copy(h5, dtype.get())?,
            };
            // SAFETY: plain calls with ids of this scope; the name ends in NUL.
            let made = unsafe {
                let acpl = h5_id(h5, "H5Pcreate", (h5.H5Pcreate)(h5.H5P_CLS_ATTRIBUTE_CREATE_ID_g()))?;
                (h5.H5Pset_char_encoding)(acpl.get(), i32::from(attr.cset));
                let (stated, space) = (stated.get(), space.get());
                let make = || (h5.H5Acreate2)(object, text.as_ptr(), stated, space, acpl.get(), H5P_DEFAULT);
                h5_id(h5, "H5Acreate2", written(h5, shown, make)?)?
            };
            let Some(stored) = &attr.value else { continue };
            let count = attr.extent.npoints() as usize;
            let mut elements = vec![0u8; dtype::size(h5, dtype.get())? * count.max(1)];
            let at = elements.as_mut_ptr().cast::<c_void>();
            value::load(&self.source, dtype.get(), stored, count, dtype.get(), at)?;
            if has_references {
                remap(h5, dtype.get(), &mut elements[..], count, &mut |reference| self.redirect(reference))?;
            }
            // SAFETY: the elements are as many as the space has, of that type; they are freed afterwards.
            let wrote = written(h5, shown, || i64::from(unsafe { (h5.H5Awrite)(made.get(), dtype.get(), at) }));
            // SAFETY: as above.
            unsafe { (h5.H5Treclaim)(dtype.get(), space.get(), H5P_DEFAULT, at) };
            wrote?;
        }
        Ok(())
    }

    fn raw_data(&mut self, oid: u64, native: hid_t) -> Result<()> {
        let h5 = self.h5;
        let HeaderBody::Dataset { .. } = header::get(&self.source, oid)?.body else { return Ok(()) };
        let place = Location { file: self.source.clone(), oid, path: Vec::new() };
        let Body::Dataset(from) = object::open(&place)? else { return Ok(()) };
        let dtype = from.header.dtype.get();
        let given = self.check(dtype, || self.named(oid)).and_then(|has_references| {
            let size = dtype::size(h5, dtype)?;
            let mut fix = |elements: &mut [u8]| {
                let count = elements.len() / size;
                remap(h5, dtype, elements, count, &mut |reference| self.redirect(reference))
            };
            let fix: Option<data::Fix<'_>> = if has_references { Some(&mut fix) } else { None };
            blob::with_file(&self.source, || data::give(&from, native, fix, self.making.as_deref()))?;
            data::storage_size(&from)
        });
        self.source.shared.closed(oid);
        self.copied.bytes += given?;
        Ok(())
    }
}

/// Approximate bytes that an export will copy: the file's size in the store.
pub fn stored_bytes(h5: &'static Api, store: &Store, from: &Path) -> Result<u64> {
    let file = open::open_stored(h5, store, from)?;
    if file.native.is_some() {
        return Ok(0);
    }
    Ok(file.container.info()?.stored_bytes)
}
