//! The client: the API that programs, views and bindings use to reach a Cenote store.
//!
//! One data path serves both ways to reach a store: an engine inside this process, or a daemon behind a
//! shared-memory ring. Control messages go to whichever it is; bytes go straight to mapped segments and files.
//! This room must not know what is on media nor how messages are encoded.

use std::ops::Range;
use std::path::Path;

pub use cenote_model as model;
pub use cenote_model::{
    ContainerId, ContainerInfo, ContainerSpec, DeviceInfo, DeviceKind, DeviceSpec, Durability, Error, ErrorKind,
    Explanation, Finding, IndexId, IndexKey, KeyCode, NextFrom, ObjectId, ObjectKey, ObjectStat, Result, StoreConfig,
    StoreId, StoreStats, VerifyReport,
};

/// How to reach the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// The daemon that serves the directory if there is one; else an engine in this process, which hands the store
    /// over to a daemon as soon as a second process comes.
    #[default]
    Auto,
    /// An engine in this process; an error if another process has the store.
    InProcess,
    /// A daemon, started if there is none (it leaves when idle). Its program is what the environment variable
    /// `CENOTE_BIN` names, else `cenote` beside this program, else the first `cenote` in `PATH`.
    Daemon,
}

/// How to open a store: what can differ from process to process.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// How to reach the engine.
    pub mode: Mode,
    /// Make the store if the directory holds none.
    pub create: bool,
    /// Fail if the directory holds a store already (with `create`).
    pub create_new: bool,
    /// Refuse every change.
    pub read_only: bool,
    /// Devices and rights of a store that is to be made.
    pub config: StoreConfig,
}

/// A store. Cheap to clone; clones share one session. Safe to use after `fork`: the child gets its own session.
#[derive(Clone)]
pub struct Store;

impl Store {
    /// Opens the store in `dir`, making it (with a memory tier and a directory tier sized for this machine) if none is there.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, &OpenOptions { create: true, ..OpenOptions::default() })
    }
    /// Opens the store in `dir` as `options` say.
    pub fn open_with(dir: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        todo!()
    }
    /// An existing container.
    pub fn container(&self, label: &str) -> Result<Container> {
        todo!()
    }
    /// A new container; `ErrorKind::Exists` if the label is taken.
    pub fn create_container(&self, label: &str, spec: &ContainerSpec) -> Result<Container> {
        todo!()
    }
    /// The container of that label, made if it is not there.
    pub fn open_container(&self, label: &str, spec: &ContainerSpec) -> Result<Container> {
        todo!()
    }
    /// All containers whose label begins with `prefix`, in label order.
    pub fn containers(&self, prefix: &str) -> Result<Vec<ContainerInfo>> {
        todo!()
    }
    /// Gives a container another label.
    pub fn rename_container(&self, from: &str, to: &str) -> Result<()> {
        todo!()
    }
    /// Deletes a container with everything in it, atomically.
    pub fn delete_container(&self, label: &str) -> Result<()> {
        todo!()
    }
    /// Begins a transaction.
    pub fn begin(&self) -> Transaction {
        todo!()
    }
    /// Returns when everything acknowledged so far survives power loss.
    pub fn flush(&self) -> Result<()> {
        todo!()
    }
    /// The devices, fastest first.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        todo!()
    }
    /// Adds a device.
    pub fn add_device(&self, spec: &DeviceSpec) -> Result<()> {
        todo!()
    }
    /// Moves everything off a device.
    pub fn drain_device(&self, name: &str) -> Result<()> {
        todo!()
    }
    /// Forgets an empty device.
    pub fn remove_device(&self, name: &str) -> Result<()> {
        todo!()
    }
    /// Where each range of an object is and why.
    pub fn explain(&self, key: ObjectKey) -> Result<Explanation> {
        todo!()
    }
    /// Reads and checks everything.
    pub fn verify(&self) -> Result<VerifyReport> {
        todo!()
    }
    /// Writes a checkpoint now, so that the next opening replays nothing.
    pub fn checkpoint(&self) -> Result<()> {
        todo!()
    }
    /// Asks the daemon that serves the store in `dir` to finish what it does and leave. False if none serves it.
    pub fn stop_daemon(dir: impl AsRef<Path>) -> Result<bool> {
        todo!()
    }
    /// The store's id.
    pub fn id(&self) -> StoreId {
        todo!()
    }
    /// The directory that it was opened in.
    pub fn dir(&self) -> &Path {
        todo!()
    }
    /// How the engine is reached now: [`Mode::InProcess`] or [`Mode::Daemon`].
    pub fn reached(&self) -> Mode {
        todo!()
    }
    /// Counters.
    pub fn stats(&self) -> Result<StoreStats> {
        todo!()
    }
    /// Ends the session that this store shares with its clones, containers, objects and indices: waits for launched
    /// operations, gives leases back, and closes an engine in this process, so that the directory is free when this
    /// returns. Later calls through any of them fail with `InvalidInput`; views stay valid. A second call does nothing.
    pub fn close(&self) -> Result<()> {
        todo!()
    }
    /// Waits for every launched operation of this session.
    pub fn wait_all(&self) -> Result<()> {
        todo!()
    }
}

/// A container. Cheap to clone.
#[derive(Clone)]
pub struct Container;

impl Container {
    /// Its id, which a rename keeps.
    pub fn id(&self) -> ContainerId {
        todo!()
    }
    /// As it stands.
    pub fn info(&self) -> Result<ContainerInfo> {
        todo!()
    }
    /// Changes durability, quota, policy or owner.
    pub fn set(&self, spec: &ContainerSpec) -> Result<()> {
        todo!()
    }
    /// A new object; `id` drawn at random and `block_shift` the container's if `None`.
    pub fn create_object(&self, id: Option<ObjectId>, block_shift: Option<u8>) -> Result<Object> {
        todo!()
    }
    /// Many new objects in one journal record; a code for each.
    pub fn create_objects(&self, ids: &[ObjectId], block_shift: Option<u8>) -> Result<Vec<KeyCode>> {
        todo!()
    }
    /// A handle without a round trip; a missing object shows at first use.
    pub fn object(&self, id: ObjectId) -> Object {
        todo!()
    }
    /// Deletes an object.
    pub fn delete_object(&self, id: ObjectId) -> Result<()> {
        todo!()
    }
    /// Up to `limit` ids greater than `after`, ascending.
    pub fn objects(&self, after: Option<ObjectId>, limit: u32) -> Result<Vec<ObjectId>> {
        todo!()
    }
    /// A new index; `id` drawn at random if `None`.
    pub fn create_index(&self, id: Option<IndexId>) -> Result<Index> {
        todo!()
    }
    /// A handle without a round trip; a missing index shows at first use.
    pub fn index(&self, id: IndexId) -> Index {
        todo!()
    }
    /// The index of that id, made if it is not there.
    pub fn open_index(&self, id: IndexId) -> Result<Index> {
        todo!()
    }
    /// Deletes an index with its records.
    pub fn delete_index(&self, id: IndexId) -> Result<()> {
        todo!()
    }
    /// Up to `limit` ids greater than `after`, ascending.
    pub fn indices(&self, after: Option<IndexId>, limit: u32) -> Result<Vec<IndexId>> {
        todo!()
    }
    /// Returns when everything acknowledged so far in this container survives power loss.
    pub fn flush(&self) -> Result<()> {
        todo!()
    }
    /// Reads and checks everything in it.
    pub fn verify(&self) -> Result<VerifyReport> {
        todo!()
    }
    /// The store that it is in.
    pub fn store(&self) -> &Store {
        todo!()
    }
}

/// An object: an array of blocks with a recorded size in bytes. Cheap to clone. Calls may come from any thread.
///
/// Byte ranges need not be aligned; writers of disjoint ranges never disturb each other, whatever the block size.
#[derive(Clone)]
pub struct Object;

impl Object {
    /// Its full name.
    pub fn key(&self) -> ObjectKey {
        todo!()
    }
    /// Size, block size, use.
    pub fn stat(&self) -> Result<ObjectStat> {
        todo!()
    }
    /// Reads at a byte offset. Holes are zeros. Returns the bytes before the recorded size; the rest of `buf` is untouched.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        todo!()
    }
    /// Reads many byte ranges at once; what lies past the recorded size reads as zeros.
    pub fn readv(&self, parts: &mut [(u64, &mut [u8])]) -> Result<()> {
        todo!()
    }
    /// Writes at a byte offset: acknowledged as the container's durability says, and visible to every process.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        todo!()
    }
    /// Writes many byte ranges as one transaction.
    pub fn writev(&self, parts: &[(u64, &[u8])]) -> Result<()> {
        todo!()
    }
    /// Reads whole blocks, range after range, into `buf`; what lies past the recorded size reads as zeros.
    pub fn read_blocks(&self, ranges: &[Range<u64>], buf: &mut [u8]) -> Result<()> {
        todo!()
    }
    /// Writes whole blocks, range after range, from `bytes`, as one transaction.
    pub fn write_blocks(&self, ranges: &[Range<u64>], bytes: &[u8]) -> Result<()> {
        todo!()
    }
    /// A range by reference, without a copy, if it lies in one mapped extent. The bytes stay as they are while the view lives.
    pub fn view(&self, offset: u64, len: usize) -> Result<Option<View>> {
        todo!()
    }
    /// Room for `len` bytes in mapped memory, to be filled in place and then [`Staged::commit`]ted: a write without a copy.
    pub fn stage(&self, len: usize) -> Result<Staged> {
        todo!()
    }
    /// Starts a write. `bytes` may be reused when this returns; the write is acknowledged when the operation is waited for.
    pub fn launch_write(&self, offset: u64, bytes: &[u8]) -> Result<Op> {
        todo!()
    }
    /// Starts a read of `len` bytes; [`Op::wait_read`] gives them.
    pub fn launch_read(&self, offset: u64, len: usize) -> Result<Op> {
        todo!()
    }
    /// Sets the recorded size; what lies beyond is dropped.
    pub fn truncate(&self, size: u64) -> Result<()> {
        todo!()
    }
    /// Turns a range into a hole.
    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        todo!()
    }
    /// Returns when what was acknowledged so far survives power loss.
    pub fn flush(&self) -> Result<()> {
        todo!()
    }
}

/// Bytes of an object by reference.
pub struct View;

impl std::ops::Deref for View {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        todo!()
    }
}

/// Mapped memory to be filled and committed.
pub struct Staged;

impl Staged {
    /// The bytes to fill.
    pub fn bytes(&mut self) -> &mut [u8] {
        todo!()
    }
    /// Makes them the object's bytes at `offset`.
    pub fn commit(self, offset: u64) -> Result<()> {
        todo!()
    }
}

/// An operation in flight.
pub struct Op;

impl Op {
    /// Waits until it is acknowledged.
    pub fn wait(self) -> Result<()> {
        todo!()
    }
    /// Waits for the bytes of a [`Object::launch_read`].
    pub fn wait_read(self) -> Result<Vec<u8>> {
        todo!()
    }
    /// True if waiting would not block.
    pub fn is_done(&self) -> bool {
        todo!()
    }
    /// Calls `callback` once when it is done, from a thread of the client's.
    pub fn on_done(self, callback: impl FnOnce(Result<()>) + Send + 'static) {
        todo!()
    }
}

/// An ordered key-value index. Cheap to clone.
#[derive(Clone)]
pub struct Index;

/// A record: key and value.
pub type Record = (Vec<u8>, Vec<u8>);

impl Index {
    /// Its full name.
    pub fn key(&self) -> IndexKey {
        todo!()
    }
    /// Sets records; a code for each.
    pub fn put(&self, records: &[(&[u8], &[u8])]) -> Result<Vec<KeyCode>> {
        todo!()
    }
    /// Sets records whose keys are not there yet; [`KeyCode::Exists`] for the others.
    pub fn put_new(&self, records: &[(&[u8], &[u8])]) -> Result<Vec<KeyCode>> {
        todo!()
    }
    /// Values by key.
    pub fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        todo!()
    }
    /// One value.
    pub fn get_one(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        todo!()
    }
    /// Deletes records; [`KeyCode::NotFound`] for those not there.
    pub fn del(&self, keys: &[&[u8]]) -> Result<Vec<KeyCode>> {
        todo!()
    }
    /// Up to `limit` records from a key on.
    pub fn next(&self, from: NextFrom, limit: u32) -> Result<Vec<Record>> {
        todo!()
    }
    /// Up to `limit` records whose keys begin with `prefix`, from a key on.
    pub fn next_with_prefix(&self, prefix: &[u8], from: NextFrom, limit: u32) -> Result<Vec<Record>> {
        todo!()
    }
    /// All records whose keys begin with `prefix`, fetched as the iteration goes.
    pub fn iter(&self, prefix: &[u8]) -> impl Iterator<Item = Result<Record>> + use<> {
        std::iter::empty()
    }
    /// Starts a put.
    pub fn launch_put(&self, key: &[u8], value: &[u8]) -> Result<Op> {
        todo!()
    }
}

/// A group of updates, atomic with respect to every crash. Reads see the transaction's own writes.
/// Dropping it, or dying, leaves nothing.
pub struct Transaction;

impl Transaction {
    /// Makes `commit` fail with `Conflict` if anything read through this transaction was changed by others meanwhile.
    pub fn detect_conflicts(&mut self, on: bool) {
        todo!()
    }
    /// Writes a byte range.
    pub fn write(&mut self, object: &Object, offset: u64, bytes: &[u8]) -> Result<()> {
        todo!()
    }
    /// Reads a byte range, own writes included; like [`Object::read_at`].
    pub fn read(&mut self, object: &Object, offset: u64, buf: &mut [u8]) -> Result<usize> {
        todo!()
    }
    /// Sets the size.
    pub fn truncate(&mut self, object: &Object, size: u64) -> Result<()> {
        todo!()
    }
    /// Turns a range into a hole.
    pub fn punch(&mut self, object: &Object, offset: u64, len: u64) -> Result<()> {
        todo!()
    }
    /// Makes an object.
    pub fn create_object(
        &mut self,
        container: &Container,
        id: Option<ObjectId>,
        block_shift: Option<u8>,
    ) -> Result<Object> {
        todo!()
    }
    /// Deletes an object.
    pub fn delete_object(&mut self, object: &Object) -> Result<()> {
        todo!()
    }
    /// Makes an index.
    pub fn create_index(&mut self, container: &Container, id: Option<IndexId>) -> Result<Index> {
        todo!()
    }
    /// Deletes an index.
    pub fn delete_index(&mut self, index: &Index) -> Result<()> {
        todo!()
    }
    /// Sets a record.
    pub fn put(&mut self, index: &Index, key: &[u8], value: &[u8]) -> Result<()> {
        todo!()
    }
    /// Sets a record that must not be there yet: `commit` fails with `Exists` if it is.
    pub fn put_new(&mut self, index: &Index, key: &[u8], value: &[u8]) -> Result<()> {
        todo!()
    }
    /// A value, own puts included.
    pub fn get(&mut self, index: &Index, key: &[u8]) -> Result<Option<Vec<u8>>> {
        todo!()
    }
    /// Deletes a record; no error if it is not there.
    pub fn del(&mut self, index: &Index, key: &[u8]) -> Result<()> {
        todo!()
    }
    /// Applies everything, or nothing. Returns the epoch.
    pub fn commit(self) -> Result<u64> {
        todo!()
    }
    /// Forgets everything.
    pub fn abort(self) {}
}
