//! Creates a container together with its first indices and records, or opens one together with its first content, with
//! one message each. This room must not know the meaning of records.

use std::sync::Arc;

use cenote_model::{
    ContainerId, ContainerInfo, ContainerSpec, Error, IndexId, IndexKey, Records, Request, Response, Result, Update,
};

use crate::answer::{is_refusal, surprise};
use crate::container::Container;
use crate::containers::drop_container;
use crate::data::source;
use crate::directory::{self, Directory};
use crate::index::{Index, IndexVersion, check_key};
use crate::labels;
use crate::link::Link;
use crate::map::cache::Version;
use crate::records::{LOAD_BYTES, LOAD_RECORDS, RecordCache, Stamp};
use crate::store::{Store, check_label, check_value};

/// The first records of an index of a new container.
pub type FirstRecords<'a> = (IndexId, Vec<(&'a [u8], Vec<u8>)>);

/// An index that was created with its container.
#[derive(Clone, Debug)]
pub struct FirstIndex {
    /// The index caches its records ([`Index::remembering`]), all of which are known.
    pub index: Index,
    /// The version after its creation; `None` if unknown.
    pub version: Option<IndexVersion>,
}

/// A container and its first content at the time of the request.
#[derive(Clone, Debug)]
pub struct Content {
    /// The container.
    pub container: Container,
    indices: Vec<(Index, Records, bool)>,
}

impl Content {
    /// Returns all records of an index; `None` if it does not exist, or has more records than the answer held.
    pub fn records(&self, id: IndexId) -> Option<&Records> {
        let (_, records, is_whole) = self.indices.iter().find(|(index, ..)| index.key().index == id)?;
        Some(records).filter(|_| *is_whole)
    }
    /// Returns an index that caches its records ([`Index::remembering`]) and starts with those of the answer.
    pub fn index(&self, id: IndexId) -> Index {
        let known = self.indices.iter().find(|(index, ..)| index.key().index == id);
        known.map_or_else(|| self.container.index(id).remembering(), |(index, ..)| index.clone())
    }
}

impl Store {
    /// Creates a container; `ErrorKind::Exists` if the label is taken.
    pub fn create_container(&self, label: &str, spec: &ContainerSpec) -> Result<Container> {
        self.create_container_with(label, spec, &[]).map(|(container, _)| container)
    }
    /// Creates a container with its first indices and their records, all or nothing; `ErrorKind::Exists` if the label
    /// is taken.
    pub fn create_container_with(
        &self,
        label: &str,
        spec: &ContainerSpec,
        indices: &[FirstRecords<'_>],
    ) -> Result<(Container, Vec<FirstIndex>)> {
        check_label(label)?;
        let session = self.session()?;
        let directory = Directory::of(&session);
        let inner = match &directory {
            Some(directory) if directory.find(label)?.is_some() => return Err(directory::taken(label)),
            Some(_) => labels::inner_label(label, crate::ids::random() as u64),
            None => label.into(),
        };
        let id = ContainerId(0); // the engine chooses
        let mut updates = vec![Update::ContainerCreate { id, label: inner, spec: spec.clone() }];
        for (index, records) in indices {
            let key = IndexKey { container: id, index: *index };
            updates.push(Update::IndexCreate { key });
            for (record, value) in records {
                check_key(record)?;
                check_value(value, || format!("index {index} of container `{label}`"))?;
                let value = value.clone();
                updates.push(Update::Put { index: key, key: record.to_vec(), value, only_new: false });
            }
        }
        let instance = session.root().channel.attachment().instance;
        let applied = apply(session.root(), updates, || format!("container `{label}`"))?;
        let Response::Applied { words, created: Some(id), .. } = applied else {
            return Err(surprise("a container", &applied));
        };
        if let Some(directory) = &directory {
            // Until then nobody knows of it.
            directory.enter(label, id).inspect_err(|_| drop_container(&session, id))?;
        }
        let spec = spec.clone();
        let info = ContainerInfo { id, label: label.into(), spec, objects: 0, indices: 0, records: 0, stored_bytes: 0 };
        let container = Container::new(self, &session, &info);
        let is_told = words.len() == indices.len();
        let known = indices.iter().enumerate().map(|(at, (index, records))| {
            let index = container.index(*index).remembering();
            let word = words.get(at).filter(|_| is_told);
            let version =
                word.map(|(before, after)| (Stamp { instance, word: *before }, Stamp { instance, word: *after }));
            if let (Some((before, after)), Some(cache)) = (version, index.cache()) {
                let changes = records.iter().map(|(key, value)| (key.to_vec(), Some(value.clone())));
                cache.changed(before, after, true, changes);
            }
            FirstIndex { index, version: version.map(|(_, after)| IndexVersion(after)) }
        });
        let known = known.collect();
        Ok((container, known))
    }
    /// Opens an existing container by its id, together with its first content: the records of its first indices, and
    /// the maps of its first small objects, which later reads find in the cache. One message is enough to read most of
    /// a small container.
    pub fn container_content(&self, id: ContainerId) -> Result<Content> {
        let session = self.session()?;
        let link = session.home(id);
        let instance = link.channel.attachment().instance;
        let request = Request::ContainerContent { id, limit: LOAD_RECORDS, bytes_max: LOAD_BYTES };
        let mut found = match link.request(request)? {
            Response::Content(found) => *found,
            other => return Err(surprise("what is in a container", &other)),
        };
        if let Some(directory) = Directory::of(&session) {
            found.info.label = directory.label_of(id)?.ok_or_else(|| directory::unknown(&id.to_string()))?;
        }
        let container = Container::new(self, &session, &found.info);
        let is_current = link.channel.attachment().is_current() && link.channel.attachment().instance == instance;
        for (object, map) in found.maps.iter().filter(|_| is_current) {
            // Unreachable bytes are an error for their reader.
            if let Ok(pieces) = source::resolve(link, map) {
                let cache = container.object(*object).cache(&session);
                cache.learn(Version { instance, word: map.version }, map.size, 0, map.covered_to, pieces);
            }
        }
        let indices = found.indices.into_iter().map(|told| {
            let stamp = Stamp { instance, word: told.version };
            let cache = is_current.then(|| RecordCache::loaded(stamp, &told.records, told.more));
            let index = container.index(told.id).with_cache(Arc::new(cache.unwrap_or_default()));
            (index, told.records, !told.more)
        });
        let indices = indices.collect();
        Ok(Content { container, indices })
    }
}

/// Applies updates atomically; `subject` names the object of the change in errors.
pub(crate) fn apply(link: &Link, updates: Vec<Update>, subject: impl FnOnce() -> String) -> Result<Response> {
    link.channel.check_writable()?;
    // Atomic, so that a refusal states its cause.
    match link.request(Request::Apply { checks: Vec::new(), updates, atomic: true }) {
        // The engine knows containers by number.
        Err(error) if is_refusal(&error) => {
            Err(Error::new(error.kind(), subject()).because(error.cause()).try_next(error.next_step()))
        }
        result => result,
    }
}
