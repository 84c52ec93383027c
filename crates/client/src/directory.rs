//! The labels of a cluster's containers. They are one name space, which the first home keeps in a container of its own: an
//! index from labels to ids, and one from ids to labels. A container exists for others from the moment that its label is
//! here; at its own home it has a label that nobody asks for. So each change of the name space is one transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_model::{
    Check, ContainerId, ContainerInfo, ContainerSpec, Error, ErrorKind, IndexId, IndexKey, KeyCode, NextFrom, Request,
    Response, Result, Update,
};

use crate::answer::surprise;
use crate::link::Link;
use crate::session::Session;

/// Label of the container with the directory.
const LABEL: &str = ".cenote-labels";
const BY_LABEL: IndexId = IndexId(1);
const BY_ID: IndexId = IndexId(2);
/// Records per request.
const PAGE: u32 = 1000;
const PAGE_BYTES: u32 = 1 << 20;

/// The directory; see the module.
pub(crate) struct Directory<'a> {
    link: &'a Arc<Link>,
    container: ContainerId,
}

impl<'a> Directory<'a> {
    /// The directory of the store's cluster; `None` if the store is no part of one.
    pub fn of(session: &'a Session) -> Option<Self> {
        let first = session.links.first()?;
        Some(Self { link: session.links.to(first), container: ContainerId::first_of(first) })
    }
    fn index(&self, index: IndexId) -> IndexKey {
        IndexKey { container: self.container, index }
    }
    fn get(&self, index: IndexId, key: Vec<u8>) -> Result<Option<Vec<u8>>> {
        match self.link.request(Request::Get { index: self.index(index), keys: vec![key] })? {
            Response::Values(values) => Ok(values.into_iter().next().flatten().map(|(value, _)| value)),
            other => Err(surprise("values", &other)),
        }
    }
    /// The container of that label.
    pub fn find(&self, label: &str) -> Result<Option<ContainerId>> {
        let id = |value: Vec<u8>| value.try_into().ok().map(|id| ContainerId(u64::from_be_bytes(id)));
        Ok(self.get(BY_LABEL, label.into())?.and_then(id))
    }
    /// The label of a container.
    pub fn label_of(&self, id: ContainerId) -> Result<Option<String>> {
        let label = self.get(BY_ID, key_of(id))?;
        Ok(label.and_then(|label| String::from_utf8(label).ok()))
    }
    /// Returns true for the container of the directory itself.
    pub fn is_its(&self, id: ContainerId) -> bool {
        self.container == id
    }
    /// All labels that begin with `prefix`, in order, with their containers.
    pub fn walk(&self, prefix: &str) -> Result<Vec<(String, ContainerId)>> {
        let mut all = Vec::new();
        let mut from = NextFrom::Start;
        loop {
            let request = Request::Next {
                index: self.index(BY_LABEL),
                from,
                prefix: prefix.into(),
                limit: PAGE,
                bytes_max: PAGE_BYTES,
            };
            let Response::Records { records, more } = self.link.request(request)? else {
                return Err(damaged("its answer makes no sense"));
            };
            for (label, id) in records.iter() {
                let id = id.try_into().map_err(|_| damaged("a record of it is no id"))?;
                let label = std::str::from_utf8(label).map_err(|_| damaged("a record of it is no label"))?;
                all.push((label.to_owned(), ContainerId(u64::from_be_bytes(id))));
            }
            let Some((last, _)) = records.last().filter(|_| more) else { return Ok(all) };
            from = NextFrom::After(last.to_vec());
        }
    }
    fn change(&self, checks: Vec<Check>, updates: Vec<Update>) -> Result<()> {
        self.link.channel.check_writable()?;
        self.link.request(Request::Apply { checks, updates, atomic: true }).map(drop)
    }
    fn labelled(&self, label: &str, id: Option<ContainerId>) -> Check {
        Check::Value { index: self.index(BY_LABEL), key: label.into(), value: id.map(key_of) }
    }
    fn entries(&self, label: &str, id: ContainerId) -> Vec<Update> {
        let put = |index, key: Vec<u8>, value: Vec<u8>| Update::Put { index, key, value, only_new: false };
        vec![
            put(self.index(BY_LABEL), label.into(), key_of(id)),
            put(self.index(BY_ID), key_of(id), label.as_bytes().to_vec()),
        ]
    }
    /// Gives a label to a container. `Exists` if another has it.
    pub fn enter(&self, label: &str, id: ContainerId) -> Result<()> {
        let done = self.change(vec![self.labelled(label, None)], self.entries(label, id));
        done.map_err(|error| if error.kind() == ErrorKind::Conflict { taken(label) } else { error })
    }
    /// Gives another label to a container. `Exists` if another has it, `NotFound` if the container is gone.
    pub fn rename(&self, id: ContainerId, to: &str) -> Result<()> {
        loop {
            let from = self.label_of(id)?.ok_or_else(|| unknown(&format!("{id}")))?;
            if from == to {
                return Ok(());
            }
            if self.find(to)?.is_some() {
                return Err(taken(to));
            }
            let checks = vec![self.labelled(&from, Some(id)), self.labelled(to, None)];
            let mut updates = self.entries(to, id);
            updates.insert(0, Update::Del { index: self.index(BY_LABEL), key: from.into_bytes() });
            match self.change(checks, updates) {
                Err(error) if error.kind() == ErrorKind::Conflict => {} // somebody was faster: look again
                done => return done,
            }
        }
    }
    /// Takes a container's label away, and returns it; `None` if it has none.
    pub fn remove(&self, id: ContainerId) -> Result<Option<String>> {
        loop {
            let Some(label) = self.label_of(id)? else { return Ok(None) };
            let checks = vec![self.labelled(&label, Some(id))];
            let del = |index, key| Update::Del { index: self.index(index), key };
            match self.change(checks, vec![del(BY_LABEL, label.clone().into_bytes()), del(BY_ID, key_of(id))]) {
                Err(error) if error.kind() == ErrorKind::Conflict => {} // renamed meanwhile
                done => return done.map(|()| Some(label)),
            }
        }
    }
    /// Makes the directory of a new cluster, unless it is there.
    pub fn make(&self) -> Result<()> {
        let container = self.container;
        match self.link.request(Request::ContainerById { id: container }) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            found => return found.map(drop),
        }
        let key = |index| IndexKey { container: ContainerId(0), index };
        let spec = ContainerSpec::default();
        let updates = vec![
            Update::ContainerCreate { id: ContainerId(0), label: LABEL.into(), spec },
            Update::IndexCreate { key: key(BY_LABEL) },
            Update::IndexCreate { key: key(BY_ID) },
        ];
        self.link.channel.check_writable()?;
        match self.link.request(Request::Apply { checks: Vec::new(), updates, atomic: true })? {
            Response::Applied { created: Some(id), .. } if id == container => Ok(()),
            Response::Applied { codes, .. } if codes.contains(&KeyCode::Exists) => Ok(()),
            _ => Err(damaged("the first container of the first home is another one")),
        }
    }
}

/// The containers of a cluster with their labels, from those that each home tells.
pub(crate) fn join(labels: Vec<(String, ContainerId)>, told: Vec<ContainerInfo>) -> Vec<ContainerInfo> {
    let mut told: BTreeMap<ContainerId, ContainerInfo> = told.into_iter().map(|info| (info.id, info)).collect();
    // A label without a container: it is being deleted.
    let found = |(label, id)| told.remove(&id).map(|info| ContainerInfo { label, ..info });
    labels.into_iter().filter_map(found).collect()
}

fn key_of(id: ContainerId) -> Vec<u8> {
    id.0.to_be_bytes().to_vec()
}

#[cold]
pub(crate) fn taken(label: &str) -> Error {
    Error::new(ErrorKind::Exists, format!("container `{label:.100}`"))
        .because("the label is taken")
        .try_next("use the existing one, or another name")
}

#[cold]
pub(crate) fn unknown(label: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("container `{label:.100}`"))
        .because("no container of the cluster has this label")
        .try_next("list the containers: `cenote ls`")
}

#[cold]
fn damaged(why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "the directory of labels of this cluster").because(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_containers_with_a_label_are_listed_by_it() {
        let info = |id, label: &str| ContainerInfo {
            id: ContainerId(id),
            label: label.into(),
            spec: ContainerSpec::default(),
            objects: 3,
            indices: 0,
            records: 0,
            stored_bytes: 0,
        };
        let labels = vec![("a".to_owned(), ContainerId(2)), ("b".to_owned(), ContainerId(9))];
        let joined = join(labels, vec![info(1, "x\u{1f}1"), info(2, "y\u{1f}2")]);
        assert_eq!(joined.len(), 1);
        assert_eq!((joined[0].label.as_str(), joined[0].id), ("a", ContainerId(2)));
    }
}
