//! Files made away from their place: under a temporary label, moved to their place when complete and on media.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote::{CONTAINER_MODE_PRIVATE, Container, ContainerSpec, ErrorKind, Index, IndexId, Object, Store};

use super::creation::Creation;
use super::identity::{self, StubTarget, There};
use super::making::{begin_generation, metadata, new_uuid};
use super::open::{label_of, staged_id};
use super::opening::{Opening, finish};
use super::shared::Shared;
use super::stub::{self, Seen, Stub};
use super::superblock::{STATE_KEY, SUPER_INDEX, SUPER_KEY, Super};
use super::writers::First;
use super::{File, path, random_u64};
use super::{in_use, kept};
use crate::Result;
use crate::error::h5_id;
use crate::ffi::Api;
use crate::ffi::types::{H5F_ACC_RDWR, hid_t};
use crate::props::{GroupProps, ObjectProps, file_props};

/// Separates a file's final label from what tells concurrent makings of it apart. No path contains a NUL.
const MARK: &str = "\u{1}making-";

/// A container and a stub that are being made. Dropped before [`Making::place`], they are deleted with all that was written.
pub struct Making {
    /// The container that is written.
    pub container: Container,
    store: Store,
    store_path: PathBuf,
    stub: Stub,
    path: PathBuf,
    /// The user block's bytes.
    head: Vec<u8>,
    placed: bool,
}

impl Making {
    /// Begins a file that will be at `path`. `staged`: it holds the bytes of a native file.
    pub(super) fn begin(store: &Store, path: &Path, staged: bool, head: Vec<u8>) -> Result<Self> {
        let path = path::absolute(path)?;
        let store_path = path::absolute(store.dir())?;
        sweep(store, &path)?;
        let label = format!("{}{MARK}{}-{:x}", label_of(&path), std::process::id(), random_u64()?);
        let uuid = new_uuid()?;
        let (user_block, home) = (head.len() as u64, store_path.display().to_string());
        let container = {
            let spec = ContainerSpec { mode: CONTAINER_MODE_PRIVATE, ..ContainerSpec::default() };
            store.create_container(&label, &spec)?
        };
        let (id, state) = (Some(container.id()), 1);
        let stub = Stub { uuid, container: id, state, path: path::label(&path), store: home, user_block, staged };
        Ok(Self { container, store: store.clone(), store_path, stub, path, head, placed: false })
    }
    /// Makes it an empty file; returns its superblock and its metadata index.
    fn generation(&self, props: (&GroupProps, Creation)) -> Result<(Super, Index, First)> {
        let sup = Super { state: self.stub.state, ..Super::new(self.stub.uuid, random_u64()?) };
        let meta = metadata(&self.container, sup.generation);
        let first = begin_generation(&self.store, &self.container, sup, &meta, props, true)?;
        Ok((sup, meta, first))
    }
    /// Begins a copy of a file: writes a superblock with that generation, and makes an empty metadata index.
    pub(super) fn begin_copy(&self, store: &Store, generation: u64) -> Result<Index> {
        let sup = Super { state: self.stub.state, ..Super::new(self.stub.uuid, generation) };
        let supers = self.container.open_index(SUPER_INDEX)?;
        let mut tx = store.begin();
        let meta = tx.create_index(&self.container, Some(IndexId(u128::from(generation))))?;
        tx.put(&supers, SUPER_KEY, &sup.encode())?;
        tx.put(&supers, STATE_KEY, &identity::record(sup.state))?;
        tx.commit()?;
        Ok(meta)
    }
    /// Moves the file to its place, replacing what is there, once all of it survives power loss.
    pub fn place(mut self) -> Result<()> {
        self.container.flush()?;
        let old = match stub::look(&self.path)? {
            Seen::Stub(stub) => match identity::know(&self.store, &self.store_path, &self.path, &stub)? {
                StubTarget::File(There { container: old, .. }) | StubTarget::Stale(old, _) => Some(old.id()),
                StubTarget::Copy(..) | StubTarget::Nothing => None,
            },
            _ => None,
        };
        if old.is_some_and(|old| Shared::is_open(&self.store_path, old)) {
            return Err(cenote::Error::new(ErrorKind::Busy, format!("file {}", self.path.display()))
                .because("it is open in this process"));
        }
        let beside = beside(&self.path, self.stub.uuid);
        let made = stub::make(&beside)?;
        let placed = self.with_head(&made).and_then(|()| self.swap(&made, &beside));
        if placed.is_err() {
            // Report the first error, not one of this removal.
            let _ = std::fs::remove_file(&beside);
        }
        self.placed = placed.is_ok();
        placed?;
        // The replaced file may have another hard link; if not, it is deleted.
        old.map_or(Ok(()), |old| kept::free_if_gone(&self.store, &self.store_path, old))
    }
    fn with_head(&self, made: &std::fs::File) -> Result<()> {
        let written = made.write_all_at(&self.head, 0).and_then(|()| self.stub.put(made));
        in_use::touch(made);
        written.map_err(|e| stub::create_error(&self.path, &e))
    }
    fn swap(&self, made: &std::fs::File, beside: &Path) -> Result<()> {
        kept::keep(&self.store_path, self.container.id(), self.stub.uuid, (made, &self.path), true);
        identity::give_label(&self.store, self.container.id(), &self.path)?;
        self.container.flush()?;
        std::fs::rename(beside, &self.path).map_err(|e| stub::create_error(&self.path, &e))
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if !self.placed {
            // What cannot be deleted now is swept when this file is next made.
            let _ = self.store.delete_container_by_id(self.container.id());
        }
    }
}

/// A file of the store that is being made.
pub struct Incoming {
    /// The file, open for writing.
    pub file: Arc<File>,
    making: Making,
}

impl Incoming {
    /// Begins a file that will be at `path`, with these creation properties and this user block.
    pub fn begin(h5: &'static Api, store: &Store, path: &Path, fcpl: hid_t, head: Vec<u8>) -> Result<Self> {
        let making = Making::begin(store, path, false, head)?;
        let (root, user_block) = file_props(h5, fcpl)?;
        let (sup, meta, first) = making.generation((&root, Creation::of(h5, fcpl)?))?;
        // SAFETY: a plain call.
        let fapl = h5_id(h5, "H5Pcreate", unsafe { (h5.H5Pcreate)(h5.H5P_CLS_FILE_ACCESS_ID_g()) })?;
        let (store, store_path, container) = (store.clone(), making.store_path.clone(), making.container.clone());
        let opening = Opening {
            user_block,
            name: making.path.as_os_str().as_encoded_bytes(),
            intent: H5F_ACC_RDWR,
            first: Some(first),
            ..Opening::new(store, store_path, container, sup, meta, making.path.clone(), fapl.get())
        };
        Ok(Self { file: finish(h5, opening)?, making })
    }
    /// Moves the file to its place, see [`Making::place`].
    pub fn place(self) -> Result<()> {
        self.file.settle()?;
        drop(self.file);
        self.making.place()
    }
}

/// A native file whose bytes come into the store unchanged.
pub struct Staging {
    /// The object that gets the bytes.
    pub object: Object,
    making: Making,
}

impl Staging {
    /// Begins a file that will be at `path`.
    pub fn begin(store: &Store, path: &Path) -> Result<Self> {
        let making = Making::begin(store, path, true, Vec::new())?;
        let object = ObjectProps { track_times: false, attr_order: 0, attr_phase: (8, 6) };
        let root = GroupProps { object, link_order: 0, link_phase: (8, 6), est_link_info: (4, 8), heap_size_hint: 0 };
        let (sup, ..) = making.generation((&root, Creation::defaults()))?;
        let object = making.container.create_object(Some(staged_id(sup.generation)), None)?;
        Ok(Self { object, making })
    }
    /// Moves the file to its place, see [`Making::place`].
    pub fn place(self) -> Result<()> {
        self.making.place()
    }
}

fn beside(path: &Path, uuid: u128) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".part-{:08x}", uuid as u32));
    path.with_file_name(name)
}

/// Deletes what dead processes left over when making this file.
fn sweep(store: &Store, path: &Path) -> Result<()> {
    let prefix = format!("{}{MARK}", label_of(path));
    for left in store.containers(&prefix)? {
        let maker = left.label[prefix.len()..].split('-').next().and_then(|pid| pid.parse::<i32>().ok());
        // SAFETY: signal 0 only asks whether there is such a process.
        let lives = maker.is_some_and(|pid| pid > 0 && unsafe { libc::kill(pid, 0) } == 0);
        if !lives {
            match store.delete_container(&left.label) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}
