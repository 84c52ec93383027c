//! An index: ordered records.

use std::sync::Arc;

use cenote_model::{
    Error, ErrorKind, IndexId, IndexKey, KEY_BYTES_MAX, KeyCode, NextFrom, Records, Request, Response, Result, Update,
    VALUE_BYTES_MAX,
};

use crate::answer::surprise;
use crate::container::Container;
use crate::link::Link;
use crate::link::queue::Together;
use crate::link::subject::Subject;
use crate::op::Op;
use crate::records::{CacheAnswer, LOAD_BYTES, LOAD_RECORDS, RecordCache, Stamp};
use crate::session::Session;
use crate::store::Store;

/// Largest number of bytes of records in one message.
const MESSAGE_BYTES: usize = 512 << 10;
/// Largest number of records in one message.
const MESSAGE_RECORDS: usize = 1024;
/// Records fetched at a time by an iteration.
const PAGE: u32 = 512;

/// An ordered key-value index. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Index {
    container: Container,
    id: IndexId,
    /// The cached records, if this handle has a cache.
    cache: Option<Arc<RecordCache>>,
}

/// The result of [`Index::version`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexVersion(pub(crate) Stamp);

impl IndexVersion {
    /// Returns true if exactly one change lies between the two.
    pub fn is_right_before(self, next: Self) -> bool {
        self.0.is_before(next.0)
    }
}

/// A record: key and value.
pub type Record = (Vec<u8>, Vec<u8>);

/// A record that was set or deleted.
type Change = (Vec<u8>, Option<Vec<u8>>);

/// A value and its epoch.
pub(crate) type Versioned = (Vec<u8>, u64);

impl Index {
    pub(crate) fn new(container: &Container, id: IndexId) -> Self {
        Self { container: container.clone(), id, cache: None }
    }
    /// Returns a handle of the same index with a cache for records, shared by its clones and by transactions that read
    /// through them: a read of cached records needs no message. Changes of other processes are seen as without the
    /// cache, but each one empties it. It pays for indices that are read more often than other processes change them.
    #[must_use]
    pub fn remembering(mut self) -> Self {
        self.cache = Some(Arc::default());
        self
    }
    pub(crate) fn with_cache(mut self, cache: Arc<RecordCache>) -> Self {
        self.cache = Some(cache);
        self
    }
    /// Pins the index: only this process changes it, until `guard` is changed; `seen` is the version of `guard` at the
    /// time when that was verified. In an index with a cache, cached records then hold without a look at its version
    /// word, and transactions on it can be pipelined ([`crate::Transaction::launch`]).
    pub fn pin(&self, guard: &Index, seen: IndexVersion) -> Result<()> {
        let session = self.container.store().session()?;
        if let Some(cache) = &self.cache {
            cache.pin(&self.home(&session).channel, self.key(), guard.key(), seen.0);
        }
        Ok(())
    }
    /// Ends a pin.
    pub fn unpin(&self) {
        if let Some(cache) = &self.cache {
            cache.unpin();
        }
    }
    /// Returns true while a pin of this process holds.
    pub fn is_pinned(&self) -> bool {
        let Some(cache) = &self.cache else { return false };
        self.container.store().session().is_ok_and(|session| cache.is_pinned(&self.home(&session).channel, self.key()))
    }
    /// Returns the version, by a look at shared memory without a message. Equal versions: no change in between.
    pub fn version(&self) -> Result<IndexVersion> {
        Ok(IndexVersion(Stamp::now(&self.home(&*self.container.store().session()?).channel, self.key())))
    }
    pub(crate) fn cache(&self) -> Option<&Arc<RecordCache>> {
        self.cache.as_ref()
    }
    /// Returns the full name.
    pub fn key(&self) -> IndexKey {
        IndexKey { container: self.container.id(), index: self.id }
    }
    /// The link to the engine of this index.
    #[inline]
    fn home<'a>(&self, session: &'a Session) -> &'a Link {
        session.home(self.container.id())
    }
    /// Returns the store of this index.
    pub fn store(&self) -> &Store {
        self.container.store()
    }
    pub(crate) fn name(&self) -> String {
        format!("index {} of {}", self.id, self.container.name())
    }
    /// Sets records. Returns a code for each.
    pub fn put(&self, records: &[(&[u8], &[u8])]) -> Result<Vec<KeyCode>> {
        self.put_all(records, false)
    }
    /// Sets records with new keys; the code is [`KeyCode::Exists`] for keys that exist.
    pub fn put_new(&self, records: &[(&[u8], &[u8])]) -> Result<Vec<KeyCode>> {
        self.put_all(records, true)
    }
    fn put_all(&self, records: &[(&[u8], &[u8])], only_new: bool) -> Result<Vec<KeyCode>> {
        let put = |(key, value): &(&[u8], &[u8])| Update::Put {
            index: self.key(),
            key: key.to_vec(),
            value: value.to_vec(),
            only_new,
        };
        let is_valid = |(key, value): &(&[u8], &[u8])| check_key(key).is_ok() && value.len() <= VALUE_BYTES_MAX;
        self.change(records, is_valid, |(key, value)| key.len() + value.len(), put)
    }
    /// Deletes records; the code is [`KeyCode::NotFound`] for missing records.
    pub fn del(&self, keys: &[&[u8]]) -> Result<Vec<KeyCode>> {
        let del = |key: &&[u8]| Update::Del { index: self.key(), key: key.to_vec() };
        self.change(keys, |key| check_key(key).is_ok(), |key| key.len(), del)
    }
    /// Sends changes in messages of bounded size; invalid ones are answered without a message.
    fn change<T>(
        &self,
        all: &[T],
        is_valid: impl Fn(&T) -> bool,
        bytes: impl Fn(&T) -> usize,
        update: impl Fn(&T) -> Update,
    ) -> Result<Vec<KeyCode>> {
        let session = self.container.store().session()?;
        self.home(&session).channel.check_writable()?;
        let _under_way = self.cache.as_ref().map(RecordCache::begin_change);
        let stamp = self.cache.as_ref().map(|cache| cache.stamp(&self.home(&session).channel, self.key()));
        let mut codes = vec![KeyCode::Invalid; all.len()];
        let mut next = 0;
        loop {
            let (mut updates, mut places, mut size) = (Vec::new(), Vec::new(), 0);
            while next < all.len() && updates.len() < MESSAGE_RECORDS && size < MESSAGE_BYTES {
                if is_valid(&all[next]) {
                    size += bytes(&all[next]);
                    updates.push(update(&all[next]));
                    places.push(next);
                }
                next += 1;
            }
            if updates.is_empty() {
                return Ok(codes);
            }
            // Only changes that fit into one message are cached.
            let kept = stamp.filter(|_| updates.len() == all.len()).map(|stamp| (stamp, updates.clone()));
            match self.home(&session).request(Request::Apply { checks: Vec::new(), updates, atomic: false })? {
                Response::Applied { codes: answers, .. } => {
                    if let (Some((before, updates)), Some(cache)) = (&kept, &self.cache)
                        && answers.iter().all(|code| *code == KeyCode::Ok)
                    {
                        let changes = updates.iter().filter_map(record_of);
                        cache.changed(*before, cache.stamp(&self.home(&session).channel, self.key()), false, changes);
                    } else if let Some(cache) = &self.cache {
                        cache.unpin(); // it was not told of these changes
                    }
                    for (position, place) in places.into_iter().enumerate() {
                        codes[place] = answers.get(position).copied().unwrap_or(KeyCode::Ok);
                    }
                    self.check_there(self.home(&session), &codes)?;
                }
                other => return Err(surprise("codes", &other)),
            }
        }
    }
    /// The error for a change of a record in a missing index, which must not pass for a missing record.
    fn check_there(&self, link: &Link, codes: &[KeyCode]) -> Result<()> {
        if !codes.contains(&KeyCode::NotFound) {
            return Ok(());
        }
        match link.channel.ask(Request::IndexExists { key: self.key() })? {
            Response::Exists(false) => {
                Err(Error::new(ErrorKind::NotFound, self.name()).try_next("make it: `create_index` or `open_index`"))
            }
            _ => Ok(()),
        }
    }
    /// Returns values by key.
    pub fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        if let Some(known) = self.get_known(keys)? {
            return Ok(known);
        }
        Ok(self.get_with_epochs(keys)?.into_iter().map(|found| found.map(|(value, _)| value)).collect())
    }
    /// Returns the values from the cache, all or none.
    #[allow(clippy::type_complexity, reason = "that they are known, and that they are there, are two questions")]
    pub(crate) fn get_known(&self, keys: &[&[u8]]) -> Result<Option<Vec<Option<Vec<u8>>>>> {
        let Some(cache) = &self.cache else { return Ok(None) };
        let session = self.container.store().session()?;
        for key in keys {
            check_key(key)?;
        }
        let mut answer = cache.get(cache.stamp(&self.home(&session).channel, self.key()), keys);
        if let CacheAnswer::Load(from) = answer {
            self.load(self.home(&session), cache, &from)?;
            answer = cache.get(cache.stamp(&self.home(&session).channel, self.key()), keys);
        }
        match answer {
            CacheAnswer::Hit(values) => Ok(Some(values)),
            _ => Ok(None),
        }
    }
    /// Loads many records, most likely all, of an index with a cache.
    fn load(&self, link: &Link, cache: &RecordCache, from: &NextFrom) -> Result<()> {
        let asked = cache.stamp(&link.channel, self.key());
        let request = Request::Next {
            index: self.key(),
            from: from.clone(),
            prefix: Vec::new(),
            limit: LOAD_RECORDS,
            bytes_max: LOAD_BYTES,
        };
        match link.request(request)? {
            Response::Records { records, more } => cache.learn_many(asked, from, &records, more),
            other => return Err(surprise("records", &other)),
        }
        Ok(())
    }
    pub(crate) fn get_with_epochs(&self, keys: &[&[u8]]) -> Result<Vec<Option<Versioned>>> {
        let session = self.container.store().session()?;
        for key in keys {
            check_key(key)?;
        }
        let asked = self.cache.as_ref().map(|cache| (cache, cache.stamp(&self.home(&session).channel, self.key())));
        let mut all = Vec::new();
        let every_key = keys;
        for keys in keys.chunks(MESSAGE_RECORDS) {
            let mut rest = keys;
            let mut at_once = rest.len();
            while !rest.is_empty() {
                let some = &rest[..at_once.min(rest.len())];
                let request = Request::Get { index: self.key(), keys: some.iter().map(|key| key.to_vec()).collect() };
                match self.home(&session).request(request) {
                    Ok(Response::Values(mut values)) if values.len() == some.len() => {
                        rest = &rest[some.len()..];
                        if all.is_empty() {
                            all = values;
                        } else {
                            all.append(&mut values);
                        }
                    }
                    Ok(other) => return Err(surprise("values", &other)),
                    // The values are too large for one answer.
                    Err(error) if error.kind() == ErrorKind::LimitExceeded && some.len() > 1 => {
                        at_once = some.len() / 2;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        if let Some((cache, asked)) = asked {
            let pairs = every_key.iter().zip(&all);
            cache.learn(asked, pairs.map(|(key, found)| (*key, found.as_ref().map(|(value, _)| &value[..]))));
        }
        Ok(all)
    }
    /// Returns one value.
    pub fn get_one(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(cache) = &self.cache else {
            return Ok(self.get_with_epochs(&[key])?.pop().flatten().map(|(value, _)| value));
        };
        let session = self.container.store().session()?;
        if let Some(known) = cache.get_one(cache.stamp(&self.home(&session).channel, self.key()), key) {
            return Ok(known);
        }
        drop(session);
        Ok(self.get(&[key])?.pop().flatten())
    }
    /// Returns up to `limit` records from a key on.
    pub fn next(&self, from: NextFrom, limit: u32) -> Result<Records> {
        self.next_with_prefix(&[], from, limit)
    }
    /// Returns up to `limit` records whose keys begin with `prefix`, from a key on.
    pub fn next_with_prefix(&self, prefix: &[u8], from: NextFrom, limit: u32) -> Result<Records> {
        let mut all = Records::default();
        let mut from = from;
        while all.len() < limit as usize {
            let (records, more) = self.page(prefix, from, limit - all.len() as u32)?;
            let last = records.last().filter(|_| more).map(|(key, _)| key.to_vec());
            if all.is_empty() {
                all = records;
            } else {
                all.append(&records);
            }
            match last {
                Some(last) => from = NextFrom::After(last),
                None => break,
            }
        }
        Ok(all)
    }
    fn page(&self, prefix: &[u8], from: NextFrom, limit: u32) -> Result<(Records, bool)> {
        if let NextFrom::At(key) | NextFrom::After(key) = &from {
            check_key(key)?;
        }
        let session = self.container.store().session()?;
        let mut asked = None;
        if let Some(cache) = &self.cache {
            let mut answer =
                cache.next(cache.stamp(&self.home(&session).channel, self.key()), prefix, &from, limit as usize);
            if let CacheAnswer::Load(end) = answer {
                self.load(self.home(&session), cache, &end)?;
                answer =
                    cache.next(cache.stamp(&self.home(&session).channel, self.key()), prefix, &from, limit as usize);
            }
            if let CacheAnswer::Hit(found) = answer {
                return Ok(found);
            }
            let whole = matches!(from, NextFrom::Start).then(|| cache.stamp(&self.home(&session).channel, self.key()));
            asked = whole.map(|asked| (cache, asked));
        }
        let bytes_max = MESSAGE_BYTES as u32;
        let request = Request::Next { index: self.key(), from, prefix: prefix.to_vec(), limit, bytes_max };
        match self.home(&session).request(request)? {
            Response::Records { records, more } => {
                if let Some((cache, asked)) = asked
                    && !more
                {
                    cache.learn_prefix(asked, prefix, &records);
                }
                Ok((records, more))
            }
            other => Err(surprise("records", &other)),
        }
    }
    /// Iterates over all records whose keys begin with `prefix`; fetches them in pages.
    pub fn iter(&self, prefix: &[u8]) -> impl Iterator<Item = Result<Record>> + use<> {
        let (index, prefix) = (self.clone(), prefix.to_vec());
        let mut from = Some(NextFrom::Start);
        let mut page = Vec::new().into_iter();
        std::iter::from_fn(move || {
            loop {
                if let Some(record) = page.next() {
                    return Some(Ok(record));
                }
                let (records, more) = match index.page(&prefix, from.take()?, PAGE) {
                    Ok(answer) => answer,
                    Err(error) => return Some(Err(error)),
                };
                from = records.last().filter(|_| more).map(|(key, _)| NextFrom::After(key.to_vec()));
                page = records.to_vec().into_iter();
            }
        })
    }
    /// Starts a put.
    pub fn launch_put(&self, key: &[u8], value: &[u8]) -> Result<Op> {
        let session = self.container.store().session()?;
        self.home(&session).channel.check_writable()?;
        check_key(key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::new(ErrorKind::InvalidInput, self.name())
                .because(format!("a value of {} bytes; at most {VALUE_BYTES_MAX} are allowed", value.len())));
        }
        let update = Update::Put { index: self.key(), key: key.to_vec(), value: value.to_vec(), only_new: false };
        let subject = Subject::Put { index: self.key(), bytes: (key.len() + value.len()) as u64 };
        if let Some(cache) = &self.cache {
            cache.unpin(); // the cache is not told of this
        }
        let ticket = self.home(&session).queue.push(vec![update], vec![subject], 0, &Together::Not);
        self.home(&session).keep();
        Ok(Op::of(&session, self.container.id(), Some(ticket)))
    }
}

/// The record that an update sets or deletes.
fn record_of(update: &Update) -> Option<Change> {
    match update {
        Update::Put { key, value, .. } => Some((key.clone(), Some(value.clone()))),
        Update::Del { key, .. } => Some((key.clone(), None)),
        _ => None,
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, "index key")
        .because(format!("it has {} bytes; at most {KEY_BYTES_MAX} are allowed", key.len())))
}
