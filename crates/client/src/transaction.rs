//! A transaction: updates gathered here, and applied by the engine as one.

mod concerns;
mod homes;
mod launching;
mod snapshots;

use std::collections::HashMap;
use std::sync::Arc;

use cenote_host::fork;
use cenote_model::{
    Check, ContainerId, DeviceId, Error, ErrorKind, IndexId, IndexKey, OBJECT_BYTES_MAX, ObjectId, ObjectKey, Request,
    Response, Result, Run, TRANSACTION_UPDATES_MAX, Update,
};

use crate::answer::surprise;
use crate::container::Container;
use crate::containers::without_label;
use crate::data::{read, source, write};
use crate::index::{Index, check_key};
use crate::map::cache::Version;
use crate::map::pieces::{Pieces, Source};
use crate::object::{Object, flush};
use crate::records::{self, RecordCache};
use crate::session::Session;
use crate::store::{Store, check_value};
use concerns::{bytes_of, changed_objects, has_several_homes, one_home};

/// Small, created for each transaction, and keyed by values of this process itself.
type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A group of updates, atomic with respect to every crash. Reads see the transaction's own writes. A drop, or the death
/// of the process, leaves nothing.
pub struct Transaction {
    store: Store,
    session: Option<Arc<Session>>,
    updates: Vec<Update>,
    /// Space of its writes, given back without a commit.
    runs: Vec<(ContainerId, Run)>,
    objects: Map<ObjectKey, ObjectOverlay>,
    indices: Map<IndexKey, IndexOverlay>,
    detect: bool,
    checks: Vec<Check>,
    /// Objects with write-through: the commit waits until they survive power loss.
    durable: Vec<ObjectKey>,
    /// Copies of its writes, for a session that cannot read them in place.
    own: Vec<Box<[u8]>>,
}

/// The transaction's changes of one object.
struct ObjectOverlay {
    /// Created here: there is nothing below.
    fresh: bool,
    deleted: bool,
    /// Bytes of the object below that are still visible.
    below: u64,
    /// The size if it was truncated or created here; otherwise the least size.
    size: u64,
    truncated: bool,
    pieces: Pieces,
    /// Ranges that become shared at the commit.
    shared: Vec<(u64, u64)>,
}

/// The transaction's changes of one index.
#[derive(Default)]
struct IndexOverlay {
    fresh: bool,
    deleted: bool,
    changed: Map<Vec<u8>, Option<Vec<u8>>>,
    /// The cache for the changes.
    cache: Option<Arc<RecordCache>>,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("updates", &self.updates.len()).finish_non_exhaustive()
    }
}

impl ObjectOverlay {
    fn new(fresh: bool) -> Self {
        let below = if fresh { 0 } else { u64::MAX };
        Self { fresh, deleted: false, below, size: 0, truncated: fresh, pieces: Pieces::default(), shared: Vec::new() }
    }
}

impl Transaction {
    pub(crate) fn new(store: &Store) -> Self {
        Self {
            store: store.clone(),
            session: None,
            updates: Vec::new(),
            runs: Vec::new(),
            objects: Map::default(),
            indices: Map::default(),
            detect: false,
            checks: Vec::new(),
            durable: Vec::new(),
            own: Vec::new(),
        }
    }
    /// Makes `commit` fail with `Conflict` if anything read through this transaction from now on has changed by then.
    pub fn detect_conflicts(&mut self, on: bool) {
        self.detect = on;
    }
    fn session(&mut self) -> Result<Arc<Session>> {
        if let Some(session) = &self.session {
            if session.generation != fork::generation() {
                return Err(Error::new(ErrorKind::InvalidInput, "transaction")
                    .because("it was begun before the process forked, and belongs to the parent")
                    .try_next("begin another in the child"));
            }
            session.root().channel.check_open()?;
            return Ok(session.clone());
        }
        let session = self.store.session()?.clone();
        self.session = Some(session.clone());
        Ok(session)
    }
    /// Returns the session, for a change in a store.
    fn changing(&mut self, store: &Store) -> Result<Arc<Session>> {
        let session = self.session()?;
        if self.updates.is_empty() {
            session.root().channel.check_writable()?;
        }
        if !store.is_same_handle(&self.store) && store.id() != self.store.id() {
            return Err(Error::new(ErrorKind::InvalidInput, "transaction")
                .because("a transaction belongs to one store; this is of another"));
        }
        if self.updates.len() + 2 > TRANSACTION_UPDATES_MAX {
            return Err(Error::new(ErrorKind::LimitExceeded, "transaction")
                .because(format!("it has {} updates already", self.updates.len()))
                .try_next("commit, and go on in another one"));
        }
        Ok(session)
    }
    /// Returns a container that it changes, whose home commits the transaction.
    fn container(&self) -> ContainerId {
        let of_object = self.objects.keys().next().map(|key| key.container);
        of_object.or_else(|| self.indices.keys().next().map(|key| key.container)).unwrap_or_default()
    }
    fn overlay(&mut self, object: &Object) -> Result<&mut ObjectOverlay> {
        let overlay = self.objects.entry(object.key()).or_insert_with(|| ObjectOverlay::new(false));
        if overlay.deleted { Err(deleted(object.name())) } else { Ok(overlay) }
    }
    fn records(&mut self, index: &Index) -> Result<&mut IndexOverlay> {
        let records = self.indices.entry(index.key()).or_default();
        if let Some(cache) = index.cache() {
            records.cache = Some(cache.clone());
        }
        if records.deleted { Err(deleted(index.name())) } else { Ok(records) }
    }
    /// Writes a byte range.
    pub fn write(&mut self, object: &Object, offset: u64, bytes: &[u8]) -> Result<()> {
        let session = self.changing(object.container().store())?;
        let (cache, arena) = (object.cache(&session), object.arena(&session));
        write::check_range(object.home(&session), &cache, offset, bytes.len() as u64)?;
        self.overlay(object)?;
        let through = object.written_through().filter(|key| !self.durable.contains(key));
        self.durable.extend(through);
        let target = write::Target { object: &cache, container: object.container().id(), arena: &arena };
        let mut at = offset;
        for stored in write::store(object.home(&session), &target, bytes, write::SendMode::WrittenLater)? {
            self.runs.push((object.container().id(), stored.run));
            stored.write_out()?;
            let len = u64::from(stored.len);
            let source = if object.home(&session).channel.is_bound() {
                // It is read before the daemon lets this session read it: from the transaction's own memory.
                let (from, to) = ((at - offset) as usize, (at - offset + len) as usize);
                let own: Box<[u8]> = bytes[from..to].into();
                let source = Source::Mapped(own.as_ptr() as usize, DeviceId(0));
                self.own.push(own);
                source
            } else {
                stored.source
            };
            let overlay = self.overlay(object)?;
            overlay.pieces.set(at, len, source);
            overlay.size = overlay.size.max(at + len);
            self.updates.push(Update::Write { key: object.key(), offset: at, extent: stored.extent });
            at += len;
        }
        Ok(())
    }
    /// Reads a byte range, own writes included; like [`Object::read_at`].
    pub fn read(&mut self, object: &Object, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let session = self.session()?;
        let cache = object.cache(&session);
        if self.detect && !self.objects.get(&object.key()).is_some_and(|overlay| overlay.fresh) {
            self.check_object(object)?;
        }
        let Some(overlay) = self.objects.get(&object.key()) else { return object.read_at(offset, buf) };
        if overlay.deleted {
            return Err(deleted(object.name()));
        }
        if overlay.shared.iter().any(|(from, to)| offset < *to && *from < offset.saturating_add(buf.len() as u64)) {
            return Err(Error::new(ErrorKind::Unsupported, object.name())
                .because("this transaction made a range of it that of another object")
                .try_next("read it after the commit"));
        }
        let visible = overlay.below.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (mut size, mut filled) = (overlay.size, 0);
        if !overlay.fresh {
            let done = read::read_at(object.home(&session), &cache, offset, &mut buf[..visible])?;
            filled = done.bytes;
            if !overlay.truncated {
                size = size.max(done.size);
            }
        }
        let len = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let buf = &mut buf[..len];
        if filled < len {
            buf[filled..].fill(0);
        }
        source::copy_parts(object.home(&session), &cache, offset, &overlay.pieces.overlaps(offset, len), buf)?;
        Ok(len)
    }
    /// Records the object's version before its first read.
    fn check_object(&mut self, object: &Object) -> Result<()> {
        let key = object.key();
        let known = |check: &Check| matches!(check, Check::Object { key: checked, .. } if *checked == key);
        if self.checks.iter().any(known) {
            return Ok(());
        }
        let epoch = match object.stat() {
            Ok(stat) => stat.epoch,
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        self.checks.push(Check::Object { key, epoch });
        Ok(())
    }
    /// Sets the size.
    pub fn truncate(&mut self, object: &Object, size: u64) -> Result<()> {
        self.changing(object.container().store())?;
        let overlay = self.overlay(object)?;
        overlay.below = overlay.below.min(size);
        overlay.truncated = true;
        overlay.size = size;
        overlay.pieces.set(size, OBJECT_BYTES_MAX.saturating_sub(size), Source::Hole);
        self.updates.push(Update::Truncate { key: object.key(), size });
        Ok(())
    }
    /// Turns a range into a hole.
    pub fn punch(&mut self, object: &Object, offset: u64, len: u64) -> Result<()> {
        let session = self.changing(object.container().store())?;
        write::check_range(object.home(&session), &object.cache(&session), offset, len)?;
        self.overlay(object)?.pieces.set(offset, len, Source::Hole);
        self.updates.push(Update::Punch { key: object.key(), offset, len });
        Ok(())
    }
    /// Makes `[at, at + len)` of an object equal to `[offset, offset + len)` of `from` at the commit, as
    /// [`Object::share_from`] does; `commit` fails with `InvalidInput` if `from` ends before. The range cannot be read
    /// in this transaction.
    pub fn share(&mut self, object: &Object, at: u64, from: &Object, offset: u64, len: u64) -> Result<()> {
        let session = self.changing(object.container().store())?;
        write::check_range(object.home(&session), &object.cache(&session), at, len)?;
        write::check_range(from.home(&session), &from.cache(&session), offset, len)?;
        let overlay = self.overlay(object)?;
        overlay.shared.push((at, at + len));
        overlay.size = overlay.size.max(at + len);
        let through = object.written_through().filter(|key| !self.durable.contains(key));
        self.durable.extend(through);
        self.updates.push(Update::Share { to: object.key(), at, from: from.key(), offset, len });
        Ok(())
    }
    /// Creates an object.
    pub fn create_object(
        &mut self,
        container: &Container,
        id: Option<ObjectId>,
        block_shift: Option<u8>,
    ) -> Result<Object> {
        self.changing(container.store())?;
        let block_shift = container.block_shift(block_shift)?;
        let object = container.object(id.unwrap_or_else(|| ObjectId(crate::ids::random())));
        self.objects.insert(object.key(), ObjectOverlay::new(true));
        self.updates.push(Update::ObjectCreate { key: object.key(), block_shift });
        Ok(object)
    }
    /// Keeps all bytes of an object that this transaction creates on a tier of its home, as [`Store::set_layout`] and pins do. `commit` fails with
    /// `NotFound` if the home has no such tier.
    pub fn keep_object(&mut self, object: &Object, device: DeviceId) -> Result<()> {
        self.changing(object.container().store())?;
        self.updates.push(Update::ObjectKeep { key: object.key(), device });
        Ok(())
    }
    /// Deletes an object.
    pub fn delete_object(&mut self, object: &Object) -> Result<()> {
        self.changing(object.container().store())?;
        self.overlay(object)?.deleted = true;
        self.updates.push(Update::ObjectDelete { key: object.key() });
        Ok(())
    }
    /// Creates an index.
    pub fn create_index(&mut self, container: &Container, id: Option<IndexId>) -> Result<Index> {
        self.changing(container.store())?;
        let index = container.index(id.unwrap_or_else(|| IndexId(crate::ids::random())));
        self.indices.insert(index.key(), IndexOverlay { fresh: true, ..IndexOverlay::default() });
        self.updates.push(Update::IndexCreate { key: index.key() });
        Ok(index)
    }
    /// Deletes an index.
    pub fn delete_index(&mut self, index: &Index) -> Result<()> {
        self.changing(index.store())?;
        self.records(index)?.deleted = true;
        self.updates.push(Update::IndexDelete { key: index.key() });
        Ok(())
    }
    /// Deletes a container and its whole content, on the conditions of this transaction, which then changes nothing
    /// else: otherwise `commit` fails with `InvalidInput`.
    pub fn delete_container(&mut self, container: &Container) -> Result<()> {
        self.changing(container.store())?;
        self.updates.push(Update::ContainerDelete { id: container.id() });
        Ok(())
    }
    /// Sets a record.
    pub fn put(&mut self, index: &Index, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_record(index, key, value, false)
    }
    /// Sets a new record: `commit` fails with `Exists` if it exists.
    pub fn put_new(&mut self, index: &Index, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_record(index, key, value, true)
    }
    fn put_record(&mut self, index: &Index, key: &[u8], value: &[u8], only_new: bool) -> Result<()> {
        self.changing(index.store())?;
        check_key(key)?;
        check_value(value, || index.name())?;
        self.records(index)?.changed.insert(key.to_vec(), Some(value.to_vec()));
        self.updates.push(Update::Put { index: index.key(), key: key.to_vec(), value: value.to_vec(), only_new });
        Ok(())
    }
    /// Returns a value, own puts included.
    pub fn get(&mut self, index: &Index, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.session()?;
        if let Some(records) = self.indices.get(&index.key()) {
            if records.deleted {
                return Err(deleted(index.name()));
            }
            if let Some(changed) = records.changed.get(key) {
                return Ok(changed.clone());
            }
            if records.fresh {
                return Ok(None);
            }
        }
        if let Some(known) = index.get_known(&[key])?.and_then(|mut values| values.pop())
            && (!self.detect || records::is_checkable(known.as_deref()))
        {
            if self.detect {
                self.checks.push(Check::Value { index: index.key(), key: key.to_vec(), value: known.clone() });
            }
            return Ok(known);
        }
        let found = index.get_with_epochs(&[key])?.pop().flatten();
        if self.detect {
            let epoch = found.as_ref().map_or(0, |(_, epoch)| *epoch);
            self.checks.push(Check::Record { index: index.key(), key: key.to_vec(), epoch });
        }
        Ok(found.map(|(value, _)| value))
    }
    /// Makes `commit` fail with `Conflict` unless the record has this value at that time (`None`: does not exist).
    pub fn expect(&mut self, index: &Index, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.session()?;
        check_key(key)?;
        self.checks.push(Check::Value { index: index.key(), key: key.to_vec(), value: value.map(<[u8]>::to_vec) });
        Ok(())
    }
    /// Makes `commit` fail with `Conflict` if a record's key begins with `prefix` at that time. This concerns the state
    /// before the transaction: records that it deletes count, records that it puts do not.
    pub fn expect_none(&mut self, index: &Index, prefix: &[u8]) -> Result<()> {
        self.session()?;
        check_key(prefix)?;
        self.checks.push(Check::NoKeys { index: index.key(), prefix: prefix.to_vec() });
        Ok(())
    }
    /// Makes `commit` fail with `Conflict` unless the object has this size in bytes at that time.
    pub fn expect_size(&mut self, object: &Object, size: u64) -> Result<()> {
        self.session()?;
        self.checks.push(Check::Size { key: object.key(), size });
        Ok(())
    }
    /// Deletes an existing record, as [`Transaction::expect`] ensures; a missing record is no error by itself.
    pub fn del_expected(&mut self, index: &Index, key: &[u8]) -> Result<()> {
        self.changing(index.store())?;
        check_key(key)?;
        self.records(index)?.changed.insert(key.to_vec(), None);
        self.updates.push(Update::Del { index: index.key(), key: key.to_vec() });
        Ok(())
    }
    /// Deletes a record; no error if it is missing.
    pub fn del(&mut self, index: &Index, key: &[u8]) -> Result<()> {
        self.changing(index.store())?;
        check_key(key)?;
        if self.records(index)?.changed.insert(key.to_vec(), None) == Some(None) {
            return Ok(()); // deleted here already
        }
        self.updates.push(Update::Del { index: index.key(), key: key.to_vec() });
        Ok(())
    }
    /// Applies everything, or nothing. Returns the epoch; over several homes that of the last one.
    pub fn commit(mut self) -> Result<u64> {
        let session = self.session()?;
        if self.updates.is_empty() && self.checks.is_empty() {
            return self.store.stats().map(|stats| stats.epoch);
        }
        match self.updates[..] {
            [Update::ContainerDelete { id }] => without_label(&session, id, || self.carry_out(&session)),
            _ => self.carry_out(&session),
        }
    }
    fn carry_out(mut self, session: &Arc<Session>) -> Result<u64> {
        let updates = std::mem::take(&mut self.updates);
        let checks = std::mem::take(&mut self.checks);
        if has_several_homes(&updates, &checks) {
            return self.commit_over_homes(session, checks, updates);
        }
        let link = one_home(session, &updates, &checks)?;
        let (changed, instance) = (changed_objects(&updates), link.channel.attachment().instance);
        let stamp = |index: &IndexKey, records: &IndexOverlay| {
            records.cache.as_ref().map(|cache| cache.stamp(&link.channel, *index))
        };
        let _under_way: Vec<_> =
            self.indices.values().filter_map(|records| records.cache.as_ref().map(RecordCache::begin_change)).collect();
        let before: Vec<_> = self.indices.iter().map(|(index, records)| stamp(index, records)).collect();
        // On failure the drop of `self` gives the space back.
        match link.request(Request::Apply { checks, updates, atomic: true })? {
            Response::Applied { epoch, words, .. } => {
                self.runs.clear();
                if changed.len() == words.len() && link.channel.attachment().instance == instance {
                    for (key, (before, after)) in changed.iter().zip(&words) {
                        self.learn(session, *key, Version { instance, word: *before }, *after);
                    }
                }
                for ((index, records), before) in self.indices.iter_mut().zip(before) {
                    // A deleted index has another word now, so its cache is void.
                    if let (Some(cache), Some(before), false) = (&records.cache, before, records.deleted) {
                        let now = cache.stamp(&link.channel, *index);
                        cache.changed(before, now, records.fresh, records.changed.drain());
                    }
                }
                self.durable.iter().try_for_each(|key| flush(link, *key))?;
                Ok(epoch)
            }
            other => Err(surprise("an epoch", &other)),
        }
    }
    /// Returns true if it has no changes yet.
    pub fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }
    /// Caches its changes of an object, if there was no other change in between.
    fn learn(&self, session: &Session, key: ObjectKey, before: Version, after: u64) {
        let Some(overlay) = self.objects.get(&key).filter(|it| !it.deleted && it.shared.is_empty()) else { return };
        if session.home(key.container).channel.is_bound() {
            return; // its pieces name this transaction's own memory
        }
        let cache = session.object(key);
        let pieces: Vec<(u64, u64, Source)> = overlay.pieces.iter().collect();
        if overlay.fresh {
            let pieces = pieces.into_iter().filter(|(_, _, source)| !matches!(source, Source::Hole)).collect();
            cache.learn(Version { word: after, ..before }, overlay.size, 0, u64::MAX, pieces);
        } else if !overlay.truncated && !pieces.iter().any(|(_, _, source)| matches!(source, Source::Hole)) {
            cache.apply(before.word, after, pieces.iter().cloned());
        }
    }
    /// Returns the approximate bytes that it writes to objects and indices.
    pub fn bytes(&self) -> u64 {
        self.updates.iter().map(bytes_of).sum()
    }
    /// Drops all changes.
    pub fn abort(self) {}
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(session) = &self.session
            && session.generation == fork::generation()
            && !self.runs.is_empty()
        {
            for (container, run) in self.runs.drain(..) {
                let link = session.home(container);
                link.channel.unlease_later(run);
                link.keep();
            }
        }
    }
}

#[cold]
fn deleted(name: String) -> Error {
    Error::new(ErrorKind::NotFound, name).because("this transaction deleted it")
}
