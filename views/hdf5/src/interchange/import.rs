//! Imports a native file as a file of the store: the same objects under the same numbers (their addresses), so that
//! references in raw data stay valid; chunks as stored.

use std::collections::{HashMap, VecDeque};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cenote::{Error, ErrorKind, KeyCode, Object, Store};

use super::regions::Regions;
use super::{Copied, Progress, references};
use crate::error::unsupported;
use crate::ffi::Api;
use crate::file::File;
use crate::file::incoming::Incoming;
use crate::meta::header::{self, Body as HeaderBody, Header};
use crate::meta::keys::{self, ROOT};
use crate::meta::links::{self, Target};
use crate::meta::records::Record;
use crate::meta::resolve::Location;
use crate::meta::{attrs, transact};
use crate::object::{self, Body};
use crate::{Result, blob, data, dtype, foreign};

/// Bytes of records gathered before they are sent.
const GATHERED_BYTES: usize = 256 << 10;

/// Imports the native file in the object `from` as a file of its store at `to`. Changes nothing unless everything succeeds.
pub fn import_object(h5: &'static Api, from: &Object, to: &Path) -> Result<Copied> {
    let source = crate::file::native::open_object(h5, from, to)?;
    let head = |bytes: &mut [u8]| from.read_at(0, bytes).map(|_| ());
    import_from(h5, from.container().store(), &source, &head, to, &mut |_| Ok(()))
}

/// Imports the native file at `from` as a file of `store` at `to`, replacing what is there. Changes nothing unless
/// everything succeeds.
pub fn import(h5: &'static Api, store: &Store, from: &Path, to: &Path, progress: Progress<'_>) -> Result<Copied> {
    let source = crate::file::open::open_stored(h5, store, from)?;
    let head = |bytes: &mut [u8]| user_block(store, from, bytes);
    import_from(h5, store, &source, &head, to, progress)
}

fn import_from(
    h5: &'static Api,
    store: &Store,
    source: &Arc<File>,
    read_head: &dyn Fn(&mut [u8]) -> Result<()>,
    to: &Path,
    progress: Progress<'_>,
) -> Result<Copied> {
    let Some(native) = source.native.clone() else {
        return Err(Error::new(ErrorKind::InvalidInput, format!("file {}", source.path))
            .because("it is a file of the store already"));
    };
    let fcpl = native.creation()?;
    let (_, bytes) = crate::props::file_props(h5, fcpl.get())?;
    let mut head = vec![0; bytes as usize];
    if bytes > 0 {
        read_head(&mut head)?;
    }
    let incoming = Incoming::begin(h5, store, to, fcpl.get(), head)?;
    let mut job = Import {
        source: source.clone(),
        target: incoming.file.clone(),
        gathered: Vec::new(),
        bytes: 0,
        copied: Copied::default(),
        users: HashMap::new(),
        links: HashMap::new(),
        todo: VecDeque::new(),
        regions: Regions::new(incoming.file.clone()),
    };
    job.all(progress)?;
    let copied = job.copied;
    drop(job);
    incoming.place()?;
    Ok(copied)
}

/// Reads the user block of a native file.
fn user_block(store: &Store, from: &Path, head: &mut [u8]) -> Result<()> {
    if crate::file::is_stub(from) {
        return crate::file::staged_object(store, from)?.read_at(0, head).map(|_| ());
    }
    let failed = |e: std::io::Error| Error::io(format!("file {}", from.display()), &e);
    std::fs::File::open(from).and_then(|file| file.read_exact_at(head, 0)).map_err(failed)
}

struct Import {
    source: Arc<File>,
    target: Arc<File>,
    gathered: Vec<Record>,
    bytes: usize,
    copied: Copied,
    /// Number of datasets and attributes made with each committed datatype.
    users: HashMap<u64, u32>,
    /// Number of hard links to each object met.
    links: HashMap<u64, u32>,
    todo: VecDeque<u64>,
    regions: Regions,
}

impl Import {
    fn all(&mut self, progress: Progress<'_>) -> Result<()> {
        // HDF5 counts datasets and attributes of a committed datatype among its links; here they are counted separately.
        self.links.insert(ROOT, 1);
        self.todo.push_back(ROOT);
        while let Some(oid) = self.todo.pop_front() {
            let header = header::get(&self.source, oid)?;
            let place = Location { file: self.source.clone(), oid, path: Vec::new() };
            match &header.body {
                HeaderBody::Group(_) => {
                    for (_, link) in links::list(&self.source, oid)? {
                        let Target::Hard(child) = link.target else { continue };
                        self.met(child, 1);
                    }
                    self.copied.groups += 1;
                    self.records(oid, &[keys::TAG_HEADER, keys::TAG_LINK, keys::TAG_LINK_ORDER, keys::TAG_LINK_NEXT])?;
                }
                HeaderBody::Datatype { .. } => {
                    self.copied.datatypes += 1;
                    self.records(oid, &[keys::TAG_HEADER])?;
                }
                HeaderBody::Map { .. } => {
                    return Err(Error::new(ErrorKind::Internal, "import").because("there are no maps in native files"));
                }
                HeaderBody::Dataset { .. } => {
                    self.dataset(&place, &header)?;
                    self.copied.datasets += 1;
                }
            }
            self.records(oid, &[keys::TAG_COMMENT, keys::TAG_ATTR_ORDER, keys::TAG_ATTR_NEXT])?;
            self.attributes(&place)?;
            progress(self.copied.bytes)?;
        }
        for (oid, count) in std::mem::take(&mut self.links).into_iter().filter(|(_, count)| *count != 1) {
            self.gather((keys::of(keys::TAG_REFCOUNT, oid), count.to_le_bytes().to_vec()))?;
        }
        for (oid, count) in std::mem::take(&mut self.users) {
            self.gather((keys::of(keys::TAG_USERS, oid), count.to_le_bytes().to_vec()))?;
        }
        for record in self.regions.records()? {
            self.gather(record)?;
        }
        if let Some(native) = &self.source.native {
            self.gather((keys::of(keys::TAG_ALIAS, native.root), ROOT.to_le_bytes().to_vec()))?;
        }
        self.send()
    }

    fn gather(&mut self, record: Record) -> Result<()> {
        self.bytes += record.0.len() + record.1.len();
        self.gathered.push(record);
        if self.bytes >= GATHERED_BYTES { self.send() } else { Ok(()) }
    }
    fn send(&mut self) -> Result<()> {
        let puts: Vec<(&[u8], &[u8])> = self.gathered.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        if let Some(i) = self.target.meta.put(&puts)?.iter().position(|code| *code != KeyCode::Ok) {
            return Err(Error::new(ErrorKind::LimitExceeded, format!("a record of {}", self.source.path))
                .because(format!("a name or value of {} bytes is too long", puts[i].0.len() + puts[i].1.len()))
                .try_next("names may have 64,000 bytes, attributes 16 MiB"));
        }
        self.gathered.clear();
        self.bytes = 0;
        Ok(())
    }
    /// Copies an object's records with these tags unchanged.
    fn records(&mut self, oid: u64, tags: &[u8]) -> Result<()> {
        for tag in tags {
            for record in self.source.meta.iter(&keys::of(*tag, oid)) {
                self.gather(record?)?;
            }
        }
        Ok(())
    }

    fn attributes(&mut self, place: &Location) -> Result<()> {
        let Some(native) = self.source.native.clone() else { return Ok(()) };
        for (name, mut attr) in attrs::list(&self.source, place.oid)? {
            let what = || format!("attribute `{}` of {}", String::from_utf8_lossy(&name), self.source.path);
            self.check(&attr.dtype, what)?;
            self.uses(attr.committed);
            attr.value = Some(foreign::attr::stored(&native, place, &name, &attr)?);
            self.gather((keys::named(keys::TAG_ATTR, place.oid, &name), attr.encode()))?;
            self.copied.attributes += 1;
            let dtype = dtype::decode(native.h5, &attr.dtype)?;
            if references(native.h5, dtype.get())?.regions {
                self.regions.look_at(&native, place.oid, Some(&name), dtype.get(), &attr.extent)?;
            }
        }
        Ok(())
    }
    fn uses(&mut self, committed: u64) {
        if committed != 0 {
            *self.users.entry(committed).or_default() += 1;
            self.met(committed, 0);
        }
    }
    /// Notes an object to be copied, and adds to its number of links.
    fn met(&mut self, oid: u64, links: u32) {
        let count = self.links.entry(oid).or_insert_with(|| {
            self.todo.push_back(oid);
            0
        });
        *count += links;
    }
    /// Refuses references to the native file itself.
    fn check(&self, encoded: &[u8], what: impl FnOnce() -> String) -> Result<()> {
        let h5 = self.source.h5;
        if references(h5, dtype::decode(h5, encoded)?.get())?.others {
            return Err(unsupported(
                format!("{}: importing references of HDF5 1.12's kind", what()),
                "read it where it is: the connector opens native files",
            ));
        }
        Ok(())
    }

    fn dataset(&mut self, place: &Location, header: &Header) -> Result<()> {
        let HeaderBody::Dataset { dtype, committed, props, extent } = &header.body else { return Ok(()) };
        let h5 = self.source.h5;
        let path = crate::meta::resolve::search_path;
        self.check(dtype, || format!("dataset {:?} of {}", path(&self.source, place.oid), self.source.path))?;
        self.uses(*committed);
        self.send()?;
        let target = self.target.clone();
        let fixed = object::DatasetHeader {
            dtype: dtype::decode(h5, dtype)?,
            committed: *committed,
            props: props.clone(),
            extent: extent.clone(),
        };
        transact(&target, |tx| {
            tx.put(&target.meta, &keys::of(keys::TAG_HEADER, place.oid), &header.encode())?;
            if props.layout.is_resizable() {
                crate::meta::extent_put_in(tx, &target, place.oid, extent)?;
            }
            data::create(tx, &target, place.oid, &fixed)
        })?;
        let to = Location { file: target.clone(), oid: place.oid, path: Vec::new() };
        let (Body::Dataset(from), Body::Dataset(copy)) = (object::open(place)?, object::open(&to)?) else {
            return Err(Error::new(ErrorKind::Internal, "import").because("the source of a dataset is not a dataset"));
        };
        let copied = blob::with_file(&target, || data::copy(&from, &copy));
        let bytes = data::storage_size(&from);
        place.file.shared.closed(place.oid);
        target.shared.closed(place.oid);
        copied?;
        self.copied.bytes += bytes?;
        if references(h5, fixed.dtype.get())?.regions
            && let Some(native) = self.source.native.clone()
        {
            self.regions.look_at(&native, place.oid, None, fixed.dtype.get(), extent)?;
        }
        Ok(())
    }
}
