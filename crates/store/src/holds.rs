//! What prepared transactions hold: objects, records and indices that nobody else changes, and that nobody reads if the
//! transaction changes them, until its outcome is known. This module must not know how a transaction is decided.

use std::collections::BTreeMap;

use cenote_model::{Check, ContainerId, IndexKey, ObjectKey, Request, TransactionId, Update};

/// Something that a request changes or looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part<'a> {
    Object(ObjectKey),
    Record(IndexKey, &'a [u8]),
    Index(IndexKey),
    /// All records whose keys begin so.
    Prefix(IndexKey, &'a [u8]),
    /// Everything in a container.
    Container(ContainerId),
    /// The snapshots of a container. A change of one relies on everything in the container.
    Snapshots(ContainerId),
}

impl Part<'_> {
    fn container(self) -> ContainerId {
        match self {
            Self::Object(key) => key.container,
            Self::Record(index, _) | Self::Index(index) | Self::Prefix(index, _) => index.container,
            Self::Container(id) | Self::Snapshots(id) => id,
        }
    }
}

/// Who holds one thing.
#[derive(Default, Debug)]
struct Hold {
    changed_by: Option<TransactionId>,
    relied_on_by: Vec<TransactionId>,
}

impl Hold {
    fn add(&mut self, transaction: TransactionId, changes: bool) {
        if changes {
            self.changed_by = Some(transaction);
        } else if !self.relied_on_by.contains(&transaction) {
            self.relied_on_by.push(transaction);
        }
    }
    fn remove(&mut self, transaction: TransactionId) -> bool {
        self.changed_by = self.changed_by.filter(|by| *by != transaction);
        self.relied_on_by.retain(|by| *by != transaction);
        self.changed_by.is_none() && self.relied_on_by.is_empty()
    }
    /// A transaction that keeps others from changing this, or from looking at it.
    fn against(&self, changes: bool) -> Option<TransactionId> {
        self.changed_by.or_else(|| if changes { self.relied_on_by.first().copied() } else { None })
    }
}

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Holds {
    objects: BTreeMap<ObjectKey, Hold>,
    records: BTreeMap<(IndexKey, Vec<u8>), Hold>,
    indices: BTreeMap<IndexKey, Hold>,
    prefixes: Vec<(IndexKey, Vec<u8>, TransactionId)>,
    /// Whole containers: changed by a rollback, relied on by a new snapshot.
    containers: BTreeMap<ContainerId, Hold>,
}

impl Holds {
    /// Holds what a transaction concerns.
    pub fn add(&mut self, transaction: TransactionId, checks: &[Check], updates: &[Update]) {
        each_part(checks, updates, &mut |part, changes| {
            match part {
                Part::Object(key) => self.objects.entry(key).or_default().add(transaction, changes),
                Part::Record(index, key) => {
                    self.records.entry((index, key.to_vec())).or_default().add(transaction, changes);
                }
                Part::Index(key) => self.indices.entry(key).or_default().add(transaction, changes),
                Part::Prefix(index, prefix) => self.prefixes.push((index, prefix.to_vec(), transaction)),
                Part::Container(id) => self.containers.entry(id).or_default().add(transaction, changes),
                Part::Snapshots(id) => self.containers.entry(id).or_default().add(transaction, false),
            }
            None::<()>
        });
    }
    /// Lets go of what [`Holds::add`] was given.
    pub fn remove(&mut self, transaction: TransactionId, checks: &[Check], updates: &[Update]) {
        each_part(checks, updates, &mut |part, _| {
            match part {
                Part::Object(key) => drop_if(&mut self.objects, &key, transaction),
                Part::Record(index, key) => drop_if(&mut self.records, &(index, key.to_vec()), transaction),
                Part::Index(key) => drop_if(&mut self.indices, &key, transaction),
                Part::Container(id) | Part::Snapshots(id) => drop_if(&mut self.containers, &id, transaction),
                Part::Prefix(..) => {}
            }
            None::<()>
        });
        self.prefixes.retain(|(.., by)| *by != transaction);
    }
    /// The transaction that keeps this request waiting, and what it holds, as text. Requests about transactions
    /// themselves wait for none but their parts.
    pub fn against(&self, request: &Request) -> Option<(TransactionId, String)> {
        if self.is_empty() {
            return None;
        }
        let look = |part| self.find(part, false);
        match request {
            Request::Apply { checks, updates, .. }
            | Request::Prepare { checks, updates, .. }
            | Request::Decide { checks, updates, .. } => self.against_updates(checks, updates),
            Request::Lookup { key, .. } | Request::ObjectStat { key } | Request::Read { key, .. } => {
                look(Part::Object(*key))
            }
            Request::Get { index, keys } => keys.iter().find_map(|key| look(Part::Record(*index, key))),
            Request::Next { index, prefix, .. } => look(Part::Prefix(*index, prefix)),
            Request::IndexExists { key } => look(Part::Index(*key)),
            Request::ObjectList { container, .. } | Request::IndexList { container, .. } => {
                look(Part::Container(*container))
            }
            Request::ContainerContent { id, .. } => look(Part::Container(*id)),
            Request::SnapshotList { container, .. } | Request::SnapshotByName { container, .. } => {
                look(Part::Snapshots(*container))
            }
            _ => None,
        }
    }
    /// The same for a transaction.
    pub fn against_updates(&self, checks: &[Check], updates: &[Update]) -> Option<(TransactionId, String)> {
        if self.is_empty() {
            return None;
        }
        each_part(checks, updates, &mut |part, changes| self.find(part, changes))
    }
    fn is_empty(&self) -> bool {
        self.objects.is_empty()
            && self.records.is_empty()
            && self.indices.is_empty()
            && self.prefixes.is_empty()
            && self.containers.is_empty()
    }
    fn find(&self, part: Part<'_>, changes: bool) -> Option<(TransactionId, String)> {
        let whole = self.containers.get(&part.container()).and_then(|hold| hold.against(changes));
        let by = match part {
            _ if whole.is_some() => whole?,
            Part::Object(key) => self.objects.get(&key)?.against(changes)?,
            Part::Record(index, key) => self.against_record(index, key, changes)?,
            Part::Index(index) => {
                let whole = self.indices.get(&index).and_then(|hold| hold.against(changes));
                let within = || if changes { self.against_prefix(index, b"", true) } else { None };
                whole.or_else(within)?
            }
            Part::Prefix(index, prefix) => {
                let whole = self.indices.get(&index).and_then(|hold| hold.against(changes));
                whole.or_else(|| self.against_prefix(index, prefix, changes))?
            }
            Part::Container(id) => self.against_container(id, changes)?,
            Part::Snapshots(id) if changes => self.against_container(id, true)?,
            Part::Snapshots(id) => self.containers.get(&id)?.against(true)?, // what it holds may be a snapshot
        };
        Some((by, name(part)))
    }
    fn against_record(&self, index: IndexKey, key: &[u8], changes: bool) -> Option<TransactionId> {
        let whole = self.indices.get(&index).and_then(|hold| hold.against(changes));
        let itself = || self.records.get(&(index, key.to_vec())).and_then(|hold| hold.against(changes));
        let relied = || {
            let covers =
                |(of, prefix, _): &&(IndexKey, Vec<u8>, TransactionId)| *of == index && key.starts_with(prefix);
            self.prefixes.iter().find(covers).map(|(.., by)| *by)
        };
        whole.or_else(itself).or_else(|| if changes { relied() } else { None })
    }
    fn against_prefix(&self, index: IndexKey, prefix: &[u8], changes: bool) -> Option<TransactionId> {
        let from = (index, prefix.to_vec());
        let mut within =
            self.records.range(from..).take_while(|((of, key), _)| *of == index && key.starts_with(prefix));
        let held = within.find_map(|(_, hold)| hold.against(changes));
        held.or_else(|| {
            let of_index = self.prefixes.iter().find(|(of, ..)| changes && *of == index);
            of_index.map(|(.., by)| *by)
        })
    }
    fn against_container(&self, id: ContainerId, changes: bool) -> Option<TransactionId> {
        let objects = self.objects.iter().filter(|(key, _)| key.container == id).map(|(_, hold)| hold);
        let records = self.records.iter().filter(|((of, _), _)| of.container == id).map(|(_, hold)| hold);
        let indices = self.indices.iter().filter(|(key, _)| key.container == id).map(|(_, hold)| hold);
        let held = objects.chain(records).chain(indices).find_map(|hold| hold.against(changes));
        held.or_else(|| {
            let relied = self.prefixes.iter().find(|(of, ..)| changes && of.container == id);
            relied.map(|(.., by)| *by)
        })
    }
}

fn drop_if<K: Ord>(all: &mut BTreeMap<K, Hold>, key: &K, transaction: TransactionId) {
    if all.get_mut(key).is_some_and(|hold| hold.remove(transaction)) {
        all.remove(key);
    }
}

/// Calls `each` with what checks and updates concern, and whether they change it, until it returns something.
fn each_part<T>(checks: &[Check], updates: &[Update], each: &mut impl FnMut(Part<'_>, bool) -> Option<T>) -> Option<T> {
    for check in checks {
        let found = match check {
            Check::Object { key, .. } | Check::Size { key, .. } => each(Part::Object(*key), false),
            Check::Record { index, key, .. } | Check::Value { index, key, .. } => {
                each(Part::Record(*index, key), false)
            }
            Check::NoKeys { index, prefix } => each(Part::Prefix(*index, prefix), false),
        };
        if found.is_some() {
            return found;
        }
    }
    updates.iter().find_map(|update| match update {
        Update::ContainerCreate { .. } | Update::ContainerRename { .. } | Update::Fill { .. } => None,
        Update::SnapshotCreate { of, .. } | Update::SnapshotDelete { of, .. } => each(Part::Snapshots(*of), true),
        Update::ContainerSet { .. } | Update::ContainerDelete { .. } | Update::SnapshotRollback { .. } => {
            each(Part::Container(update.container()), true)
        }
        Update::ObjectCreate { key, .. }
        | Update::ObjectKeep { key, .. }
        | Update::ObjectDelete { key }
        | Update::Write { key, .. }
        | Update::Punch { key, .. }
        | Update::Truncate { key, .. } => each(Part::Object(*key), true),
        Update::Share { to, from, .. } => each(Part::Object(*to), true).or_else(|| each(Part::Object(*from), false)),
        Update::IndexCreate { key } | Update::IndexDelete { key } => each(Part::Index(*key), true),
        Update::Put { index, key, .. } | Update::Del { index, key } => each(Part::Record(*index, key), true),
    })
}

#[cold]
fn name(part: Part<'_>) -> String {
    match part {
        Part::Object(key) => format!("object {key}"),
        Part::Record(index, key) => {
            format!("record `{}` of index {index}", crate::apply::shortened_bytes(key))
        }
        Part::Index(key) | Part::Prefix(key, _) => format!("index {key}"),
        Part::Container(id) | Part::Snapshots(id) => format!("container {id}"),
    }
}

#[cfg(test)]
mod tests {
    use cenote_model::{HomeId, IndexId, NextFrom, ObjectId};

    use super::*;

    fn index(n: u128) -> IndexKey {
        IndexKey { container: ContainerId(4), index: IndexId(n) }
    }
    fn put(n: u128, key: &[u8]) -> Update {
        Update::Put { index: index(n), key: key.to_vec(), value: vec![1], only_new: false }
    }
    fn id(number: u64) -> TransactionId {
        TransactionId { home: HomeId(2), session: 1, number }
    }
    fn apply(updates: Vec<Update>) -> Request {
        Request::Apply { checks: Vec::new(), updates, atomic: true }
    }
    fn next(prefix: &[u8]) -> Request {
        Request::Next { index: index(1), from: NextFrom::Start, prefix: prefix.to_vec(), limit: 9, bytes_max: 99 }
    }
    fn get(key: &[u8]) -> Request {
        Request::Get { index: index(1), keys: vec![b"other".to_vec(), key.to_vec()] }
    }

    #[test]
    fn what_is_changed_keeps_readers_and_writers_away_and_what_is_relied_on_only_writers() {
        let object = ObjectKey { container: ContainerId(4), object: ObjectId(7) };
        let checks = [
            Check::Record { index: index(1), key: b"read".to_vec(), epoch: 3 },
            Check::NoKeys { index: index(1), prefix: b"none/".to_vec() },
        ];
        let updates = [put(1, b"written"), Update::Truncate { key: object, size: 0 }];
        let mut holds = Holds::default();
        assert!(holds.against(&get(b"written")).is_none());
        holds.add(id(1), &checks, &updates);
        let waits = |request: &Request| holds.against(request).is_some();
        assert!(waits(&get(b"written")) && waits(&next(b"wr")) && waits(&next(b"")));
        assert!(!waits(&get(b"read")) && !waits(&next(b"re")) && !waits(&get(b"none/a")));
        assert!(waits(&apply(vec![put(1, b"written")])) && waits(&apply(vec![put(1, b"read")])));
        assert!(waits(&apply(vec![put(1, b"none/a")])) && !waits(&apply(vec![put(1, b"free"), put(2, b"read")])));
        assert!(waits(&apply(vec![Update::IndexDelete { key: index(1) }])));
        assert!(!waits(&Request::IndexExists { key: index(1) }) && waits(&Request::ObjectStat { key: object }));
        assert!(waits(&Request::ContainerContent { id: ContainerId(4), limit: 1, bytes_max: 1 }));
        assert!(waits(&apply(vec![Update::ContainerDelete { id: ContainerId(4) }])));
        assert!(!waits(&apply(vec![Update::ContainerDelete { id: ContainerId(5) }])));
        assert!(!waits(&Request::Stats));
        let (by, what) = holds.against(&get(b"written")).unwrap();
        assert_eq!((by, what.contains("`written`")), (id(1), true));
        holds.add(id(2), &checks[..1], &[]);
        holds.remove(id(1), &checks, &updates);
        assert!(holds.against(&get(b"written")).is_none());
        assert_eq!(holds.against(&apply(vec![put(1, b"read")])).unwrap().0, id(2), "another one relies on it still");
        holds.remove(id(2), &checks[..1], &[]);
        assert!(holds.is_empty());
    }

    #[test]
    fn a_new_snapshot_can_be_read_past_but_nothing_changes_in_its_container() {
        let mut holds = Holds::default();
        let of = ContainerId(4);
        let make = Update::SnapshotCreate { of, id: ContainerId(9), name: "s".into(), replace: false, unix_ms: 1 };
        let list = Request::SnapshotList { container: of, after: None, limit: 1 };
        let object = ObjectKey { container: of, object: ObjectId(1) };
        holds.add(id(1), &[], std::slice::from_ref(&make));
        assert!(holds.against(&get(b"a")).is_none() && holds.against(&next(b"")).is_none());
        assert!(holds.against(&Request::ObjectStat { key: object }).is_none());
        assert!(holds.against(&Request::ObjectList { container: of, after: None, limit: 1 }).is_none());
        assert!(holds.against(&list).is_some(), "whoever looks for the snapshot waits");
        for change in [put(1, b"a"), Update::ObjectCreate { key: object, block_shift: 12 }, make.clone()] {
            assert!(holds.against(&apply(vec![change])).is_some());
        }
        let elsewhere =
            Update::ObjectCreate { key: ObjectKey { container: ContainerId(5), ..object }, block_shift: 12 };
        assert!(holds.against(&apply(vec![elsewhere])).is_none());
        holds.remove(id(1), &[], &[make]);
        let back = Update::SnapshotRollback { of, name: "s".into() };
        holds.add(id(2), &[], std::slice::from_ref(&back));
        assert!(holds.against(&get(b"a")).is_some() && holds.against(&list).is_some());
        assert!(holds.against(&Request::ObjectStat { key: object }).is_some());
        holds.remove(id(2), &[], &[back]);
        assert!(holds.is_empty());
        holds.add(id(3), &[], &[put(1, b"a")]);
        assert!(holds.against(&list).is_none(), "the snapshots that there are do not change");
    }

    #[test]
    fn a_new_index_is_held_as_a_whole() {
        let mut holds = Holds::default();
        let updates = [Update::IndexCreate { key: index(1) }, put(1, b"a")];
        holds.add(id(1), &[], &updates);
        assert!(holds.against(&Request::IndexExists { key: index(1) }).is_some());
        assert!(holds.against(&get(b"z")).is_some() && holds.against(&next(b"z")).is_some());
        assert!(holds.against(&apply(vec![put(1, b"z")])).is_some());
        holds.remove(id(1), &[], &updates);
        assert!(holds.is_empty());
    }
}
