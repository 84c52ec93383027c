//! A container: its objects, its indices, its settings.

use std::sync::Arc;

use cenote_model::{
    BLOCK_SHIFT_MAX, BLOCK_SHIFT_MIN, ContainerId, ContainerInfo, ContainerSpec, Error, ErrorKind, FlushTarget, HomeId,
    IndexId, IndexKey, KeyCode, ObjectId, ObjectKey, Request, Response, Result, Update, VerifyReport,
};

use crate::answer::surprise;
use crate::index::Index;
use crate::link::arena::Class;
use crate::link::queue::Together;
use crate::link::subject::Subject;
use crate::object::Object;
use crate::op::Op;
use crate::session::Session;
use crate::session::pins::Pin;
use crate::store::Store;

/// Objects created by one message.
const CREATES_MAX: usize = 4096;

/// A container. Cheap to clone.
#[derive(Clone)]
pub struct Container {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub store: Store,
    pub id: ContainerId,
    pub label: Arc<str>,
    pub class: Class,
    pub block_shift: u8,
    pub had_quota: bool,
    pub had_spec: Option<ContainerSpec>,
    /// Set for a snapshot, which stays in the store as long as this pin.
    _pin: Option<Pin>,
}

impl std::fmt::Debug for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Container")
            .field("id", &self.inner.id)
            .field("label", &self.inner.label)
            .finish_non_exhaustive()
    }
}

impl Container {
    pub(crate) fn new(store: &Store, session: &Session, info: &ContainerInfo) -> Self {
        Self::with(store, session, info, None)
    }
    /// A handle for a snapshot, which `pin` keeps in the store.
    pub(crate) fn pinned(store: &Store, session: &Session, info: &ContainerInfo, pin: Pin) -> Self {
        Self::with(store, session, info, Some(pin))
    }
    fn with(store: &Store, session: &Session, info: &ContainerInfo, pin: Option<Pin>) -> Self {
        let label: Arc<str> = info.label.as_str().into();
        session.shared.names.learn_label(info.id, &label);
        let engine = session.engine_of(info.id);
        let class = Class { durability: info.spec.durability, policy: info.spec.policy.clone(), engine };
        let block_shift = info.spec.block_shift;
        let had_quota = info.spec.quota_bytes != 0;
        let had_spec = Some(info.spec.clone());
        let inner =
            Inner { store: store.clone(), id: info.id, label, class, block_shift, had_quota, had_spec, _pin: pin };
        Self { inner: Arc::new(inner) }
    }
    pub(crate) fn nowhere(store: &Store, label: &str) -> Self {
        Self::unasked(store, ContainerId(u64::MAX), label, 0)
    }
    /// See [`Store::container_numbered`].
    pub(crate) fn numbered(store: &Store, id: ContainerId) -> Self {
        let engine = store.session().map_or(0, |session| session.engine_of(id));
        Self::unasked(store, id, &format!("number {}", id.0), engine)
    }
    fn unasked(store: &Store, id: ContainerId, label: &str, engine: u16) -> Self {
        let spec = cenote_model::ContainerSpec::default();
        let class = Class { durability: spec.durability, policy: spec.policy, engine };
        let block_shift = spec.block_shift;
        let (label, had_quota) = (label.into(), false);
        let inner =
            Inner { store: store.clone(), id, label, class, block_shift, had_quota, had_spec: None, _pin: None };
        Self { inner: Arc::new(inner) }
    }
    /// Returns the id, which a rename keeps.
    pub fn id(&self) -> ContainerId {
        self.inner.id
    }
    /// Returns the label at the time when this handle was made.
    pub fn label(&self) -> &str {
        &self.inner.label
    }
    /// Returns true if the container had a quota when this handle was made. [`Container::info`] returns the current
    /// one.
    pub fn had_quota(&self) -> bool {
        self.inner.had_quota
    }
    /// Returns the settings at the time when this handle was made, if they were known then. For a new container these
    /// are the requested settings, without the owner and group that it got by default. [`Container::info`] returns the
    /// current ones.
    pub fn had_spec(&self) -> Option<&ContainerSpec> {
        self.inner.had_spec.as_ref()
    }
    /// Returns the home in a cluster that has the container; 0 in a store by itself.
    pub fn home(&self) -> HomeId {
        self.inner.id.home()
    }
    /// Returns the current state.
    pub fn info(&self) -> Result<ContainerInfo> {
        self.inner.store.container_info(self.id())
    }
    /// Changes durability, quota, policy, owner, group or mode.
    pub fn set(&self, spec: &ContainerSpec) -> Result<()> {
        self.inner.store.change(Update::ContainerSet { id: self.id(), spec: spec.clone() }, || self.name())
    }
    /// Creates an object. If `None`, `id` is drawn at random and `block_shift` is the container's.
    pub fn create_object(&self, id: Option<ObjectId>, block_shift: Option<u8>) -> Result<Object> {
        let (object, op) = self.launch_create(id, block_shift)?;
        op.wait()?;
        Ok(object)
    }
    /// Starts the creation of an object. The handle may be used at once: operations on it follow its creation.
    pub fn launch_create(&self, id: Option<ObjectId>, block_shift: Option<u8>) -> Result<(Object, Op)> {
        let block_shift = self.block_shift(block_shift)?;
        let object = self.object(id.unwrap_or_else(|| ObjectId(crate::ids::random())));
        let session = self.inner.store.session()?;
        session.home(self.id()).channel.check_writable()?;
        let update = Update::ObjectCreate { key: object.key(), block_shift };
        let subject = Subject::Create(object.cache(&session));
        let ticket = session.home(self.id()).queue.push(vec![update], vec![subject], 0, &Together::Not);
        session.home(self.id()).keep();
        Ok((object, Op::of(&session, self.id(), Some(ticket))))
    }
    /// Creates many objects. Returns a code for each.
    pub fn create_objects(&self, ids: &[ObjectId], block_shift: Option<u8>) -> Result<Vec<KeyCode>> {
        let block_shift = self.block_shift(block_shift)?;
        let session = self.inner.store.session()?;
        session.home(self.id()).channel.check_writable()?;
        let mut all = Vec::with_capacity(ids.len());
        for ids in ids.chunks(CREATES_MAX) {
            let key = |object: &ObjectId| ObjectKey { container: self.id(), object: *object };
            let updates = ids.iter().map(|id| Update::ObjectCreate { key: key(id), block_shift }).collect();
            match session.home(self.id()).request(Request::Apply { checks: Vec::new(), updates, atomic: false })? {
                Response::Applied { codes, .. } if codes.is_empty() => all.resize(all.len() + ids.len(), KeyCode::Ok),
                Response::Applied { mut codes, .. } => all.append(&mut codes),
                other => return Err(surprise("codes", &other)),
            }
        }
        Ok(all)
    }
    /// Returns a handle without a round trip; a missing object is reported at first use.
    pub fn object(&self, id: ObjectId) -> Object {
        Object::new(self, id)
    }
    /// Deletes an object.
    pub fn delete_object(&self, id: ObjectId) -> Result<()> {
        let key = ObjectKey { container: self.id(), object: id };
        self.inner.store.change(Update::ObjectDelete { key }, || format!("object {id} of {}", self.name()))
    }
    /// Returns up to `limit` ids greater than `after`, ascending.
    pub fn objects(&self, after: Option<ObjectId>, limit: u32) -> Result<Vec<ObjectId>> {
        match self.inner.store.session()?.home(self.id()).request(Request::ObjectList {
            container: self.id(),
            after,
            limit,
        })? {
            Response::Objects(ids) => Ok(ids),
            other => Err(surprise("object ids", &other)),
        }
    }
    /// Creates an index; if `None`, `id` is drawn at random.
    pub fn create_index(&self, id: Option<IndexId>) -> Result<Index> {
        let index = self.index(id.unwrap_or_else(|| IndexId(crate::ids::random())));
        self.inner.store.change(Update::IndexCreate { key: index.key() }, || index.name())?;
        Ok(index)
    }
    /// Returns a handle without a round trip; a missing index is reported at first use.
    pub fn index(&self, id: IndexId) -> Index {
        Index::new(self, id)
    }
    /// Opens the index with this id, or creates it if it does not exist.
    pub fn open_index(&self, id: IndexId) -> Result<Index> {
        let index = self.index(id);
        match self.inner.store.session()?.home(self.id()).request(Request::IndexExists { key: index.key() })? {
            Response::Exists(true) => return Ok(index),
            Response::Exists(false) => {}
            other => return Err(surprise("whether it exists", &other)),
        }
        match self.create_index(Some(id)) {
            Err(error) if error.kind() == ErrorKind::Exists => Ok(index), // another process was faster
            result => result,
        }
    }
    /// Deletes an index and its records.
    pub fn delete_index(&self, id: IndexId) -> Result<()> {
        let key = IndexKey { container: self.id(), index: id };
        self.inner.store.change(Update::IndexDelete { key }, || self.index(id).name())
    }
    /// Returns up to `limit` ids greater than `after`, ascending.
    pub fn indices(&self, after: Option<IndexId>, limit: u32) -> Result<Vec<IndexId>> {
        match self.inner.store.session()?.home(self.id()).request(Request::IndexList {
            container: self.id(),
            after,
            limit,
        })? {
            Response::Indices(ids) => Ok(ids),
            other => Err(surprise("index ids", &other)),
        }
    }
    /// Returns when everything acknowledged so far in this container survives power loss.
    pub fn flush(&self) -> Result<()> {
        self.inner.store.flush_target(FlushTarget::Container(self.id()))
    }
    /// Reads and verifies the whole content.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.inner.store.verify_target(FlushTarget::Container(self.id()))
    }
    /// Returns the store of this container.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }
    /// The container's name in errors.
    pub(crate) fn name(&self) -> String {
        format!("container `{}`", self.inner.label)
    }
    /// Returns the block size to use, or an error if the requested one is invalid.
    pub(crate) fn block_shift(&self, asked: Option<u8>) -> Result<u8> {
        let shift = asked.unwrap_or(self.inner.block_shift);
        if (BLOCK_SHIFT_MIN..=BLOCK_SHIFT_MAX).contains(&shift) {
            return Ok(shift);
        }
        Err(Error::new(ErrorKind::InvalidInput, format!("block size of 2^{shift} bytes"))
            .because(format!("blocks have 2^{BLOCK_SHIFT_MIN} to 2^{BLOCK_SHIFT_MAX} bytes")))
    }
}
