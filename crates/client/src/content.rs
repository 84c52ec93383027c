//! A container whole: made with its first indices and records, or found with what it begins with, by one message each.
//! This room must not know what records mean.

use std::sync::Arc;

use cenote_model::{
    ContainerId, ContainerInfo, ContainerSpec, Error, IndexId, IndexKey, Records, Request, Response, Result, Update,
};

use crate::answer::{is_refusal, surprise};
use crate::container::Container;
use crate::data::source;
use crate::index::{Index, IndexVersion, check_key};
use crate::link::Link;
use crate::map::cache::Version;
use crate::records::{LOAD_BYTES, LOAD_RECORDS, RecordCache, Stamp};
use crate::store::{Store, check_label, check_value};

/// An index that a new container is to begin with, and its records.
pub type FirstRecords<'a> = (IndexId, Vec<(&'a [u8], Vec<u8>)>);

/// An index that was made with its container.
#[derive(Clone, Debug)]
pub struct FirstIndex {
    /// Remembers ([`Index::remembering`]), and knows all its records.
    pub index: Index,
    /// Its version when it was made; none if that is not known.
    pub version: Option<IndexVersion>,
}

/// A container, and what it began with when it was asked for.
#[derive(Clone, Debug)]
pub struct Content {
    /// The container.
    pub container: Container,
    indices: Vec<(Index, Records, bool)>,
}

impl Content {
    /// All records of an index; none if it is not there, or has more than came.
    pub fn records(&self, id: IndexId) -> Option<&Records> {
        let (_, records, is_whole) = self.indices.iter().find(|(index, ..)| index.key().index == id)?;
        Some(records).filter(|_| *is_whole)
    }
    /// An index that remembers ([`Index::remembering`]), and knows what came.
    pub fn index(&self, id: IndexId) -> Index {
        let known = self.indices.iter().find(|(index, ..)| index.key().index == id);
        known.map_or_else(|| self.container.index(id).remembering(), |(index, ..)| index.clone())
    }
}

impl Store {
    /// A new container; `ErrorKind::Exists` if the label is taken.
    pub fn create_container(&self, label: &str, spec: &ContainerSpec) -> Result<Container> {
        self.create_container_with(label, spec, &[]).map(|(container, _)| container)
    }
    /// A new container with its first indices and their records, all or nothing; `ErrorKind::Exists` if the label is taken.
    pub fn create_container_with(
        &self,
        label: &str,
        spec: &ContainerSpec,
        indices: &[FirstRecords<'_>],
    ) -> Result<(Container, Vec<FirstIndex>)> {
        check_label(label)?;
        let id = ContainerId(0); // the engine chooses
        let mut updates = vec![Update::ContainerCreate { id, label: label.into(), spec: spec.clone() }];
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
        let session = self.session()?;
        let instance = session.root().channel.attachment().instance;
        let applied = apply(session.root(), updates, || format!("container `{label}`"))?;
        let Response::Applied { words, created: Some(id), .. } = applied else {
            return Err(surprise("a container", &applied));
        };
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
    /// An existing container by its id, with what it begins with: the records of its first indices, and where the bytes of its first
    /// small objects are, which reads of them know from then on. One message for who is about to read most of a small container.
    pub fn container_content(&self, id: ContainerId) -> Result<Content> {
        let session = self.session()?;
        let instance = session.root().channel.attachment().instance;
        let request = Request::ContainerContent { id, limit: LOAD_RECORDS, bytes_max: LOAD_BYTES };
        let found = match session.root().request(request)? {
            Response::Content(found) => *found,
            other => return Err(surprise("what is in a container", &other)),
        };
        let container = Container::new(self, &session, &found.info);
        let is_current = session.root().channel.attachment().is_current()
            && session.root().channel.attachment().instance == instance;
        for (object, map) in found.maps.iter().filter(|_| is_current) {
            // What is out of reach is an error for who reads it.
            if let Ok(pieces) = source::resolve(session.root(), map) {
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

/// Applies updates as one; `subject` names what they are about.
pub(crate) fn apply(link: &Link, updates: Vec<Update>, subject: impl FnOnce() -> String) -> Result<Response> {
    link.channel.check_writable()?;
    // Atomic, so that a refusal says why.
    match link.request(Request::Apply { checks: Vec::new(), updates, atomic: true }) {
        // The engine knows containers by number.
        Err(error) if is_refusal(&error) => {
            Err(Error::new(error.kind(), subject()).because(error.cause()).try_next(error.next_step()))
        }
        result => result,
    }
}
