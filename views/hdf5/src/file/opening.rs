//! Turns what was found or made into an open file.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cenote::{Container, ContainerId, Index, Store};
use parking_lot::Mutex;

use crate::Result;
use crate::error::h5_id;
use crate::ffi::Api;
use crate::ffi::types::{H5F_ACC_RDWR, hid_t};
use crate::meta::records::Meta;
use crate::team::{self, Team};

use super::ahead::Ahead;
use super::at_path::AtPath;
use super::checkpoint::Writing;
use super::creation;
use super::in_use::InUse;
use super::shared::Shared;
use super::superblock::{SUPER_INDEX, Super};
use super::writers::First;
use super::{Core, File, path};

/// A file that was found or made, before it counts as open.
pub(super) struct Opening<'a> {
    pub store: Store,
    pub store_path: PathBuf,
    pub container: Container,
    pub sup: Super,
    pub meta: Index,
    pub path: PathBuf,
    pub user_block: u64,
    pub name: &'a [u8],
    pub intent: u32,
    pub fapl: hid_t,
    pub fcpl: Option<hid_t>,
    pub team: Option<Arc<Team>>,
    /// Its first writer, this process, if the file was made.
    pub first: Option<First>,
    pub writing: Option<Writing>,
    /// The file's own container, if `container` is a snapshot of it.
    pub home: ContainerId,
    /// The file's stub, held open.
    pub in_use: Option<Arc<InUse>>,
}

impl Opening<'_> {
    /// A file in a container, read by this process alone, without name and user block; the caller sets what differs.
    pub fn new(
        store: Store,
        store_path: PathBuf,
        container: Container,
        sup: Super,
        meta: Index,
        path: PathBuf,
        fapl: hid_t,
    ) -> Self {
        Self {
            home: container.id(),
            in_use: None,
            store,
            store_path,
            container,
            sup,
            meta,
            path,
            user_block: 0,
            name: b"",
            intent: 0,
            fapl,
            fcpl: None,
            team: None,
            first: None,
            writing: None,
        }
    }
}

pub(super) fn finish(h5: &'static Api, o: Opening<'_>) -> Result<Arc<File>> {
    // SAFETY: the ids are those that HDF5 passed; the name ends in NUL.
    let (fapl, fcpl, connector) = unsafe {
        (
            h5_id(h5, "H5Pcopy", (h5.H5Pcopy)(o.fapl))?,
            o.fcpl.map(|id| h5_id(h5, "H5Pcopy", (h5.H5Pcopy)(id))).transpose()?,
            h5_id(h5, "H5VLget_connector_id_by_name", (h5.H5VLget_connector_id_by_name)(c"cenote".as_ptr()))?,
        )
    };
    creation::settle_page_buffer(&Meta::stored(o.meta.clone()), h5, fapl.get())?;
    let ahead = Ahead::new(&o.container, o.container.index(SUPER_INDEX), o.meta.clone());
    let shared = Shared::join(o.store_path, &o.container, o.sup.generation, (o.meta, ahead));
    let meta = Meta::stored(shared.meta().clone());
    let writable = shared.may_write(o.intent & H5F_ACC_RDWR != 0);
    if writable {
        shared.writer_opened();
        shared.write_for_readers(o.in_use.as_ref().is_some_and(|in_use| in_use.is_swmr()));
    }
    let intent = if writable { o.intent | H5F_ACC_RDWR } else { o.intent };
    let file = Arc::new(File {
        h5,
        core: Core {
            store: o.store,
            container: o.container,
            meta,
            generation: o.sup.generation,
            uuid: o.sup.uuid,
            state: o.sup.state,
            path: path::label(&o.path),
            writable,
            shared,
            in_use: o.in_use,
        },
        native: None,
        name: o.name.to_vec(),
        at_path: AtPath::new(o.user_block),
        no_attrs_hint: AtomicBool::default(),
        intent: AtomicU32::new(intent),
        fapl,
        fcpl,
        connector,
        is_parallel: o.team.is_some() || team::is_mpio(h5, o.fapl),
        team: o.team,
        is_atomic: AtomicBool::new(false),
        regions: crate::regions::Regions::default(),
        writing: o.writing,
        handles: Mutex::default(),
    });
    if let Some(team) = &file.team {
        file.shared.ahead().never_alone(team.pending().filter(|_| writable))?;
    }
    match o.first {
        Some(first) => file.shared.ahead().begun(&first)?,
        None if writable => file.shared.ahead().precondition().map(drop)?,
        None => {}
    }
    Ok(file)
}

/// Opens the same file again (`H5Freopen`).
pub fn reopen(file: &Arc<File>) -> Result<Arc<File>> {
    if file.native.is_some() {
        return super::native::reopen(file);
    }
    let team = if file.team.is_some() { Team::of(file.h5, file.fapl.get())? } else { None };
    finish(
        file.h5,
        Opening {
            store: file.store.clone(),
            store_path: file.shared.store_path().to_path_buf(),
            container: file.container.clone(),
            sup: Super {
                is_published: file.writing.is_some(),
                state: file.state,
                ..Super::new(file.uuid, file.generation)
            },
            meta: file.meta.index().clone(),
            path: path::of_label(&file.path),
            user_block: file.at_path.user_block,
            name: &file.name,
            intent: file.intent.load(Ordering::Relaxed),
            fapl: file.fapl.get(),
            fcpl: file.fcpl.as_ref().map(crate::ffi::Hid::get),
            team,
            first: None,
            writing: file.writing.as_ref().map(Writing::again),
            home: file.container.id(),
            in_use: file.in_use.clone(),
        },
    )
}
