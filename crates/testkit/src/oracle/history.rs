//! The acknowledged history, and the states that it allows after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cenote_model::{Check, ContainerId, Durability, KeyCode};

use super::observed::{Lenience, Observed, ObservedContainer};
use super::state::{Change, ContainerState, Outcome, StoreState};

/// The allowed prefixes of each container, with their states.
type Prefixes = BTreeMap<ContainerId, BTreeMap<usize, ContainerState>>;

/// One applied request.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The epoch that the store assigned to it.
    pub epoch: u64,
    /// Its changes (without refused updates of a vector).
    pub changes: Vec<Change>,
    /// Its containers, each once.
    pub containers: BTreeSet<ContainerId>,
    /// False for a vector of independent updates, of which power loss may keep some and lose others.
    pub atomic: bool,
    /// Its containers that were `Sync` after it: an answer means that they are on media up to it.
    pub sync: BTreeSet<ContainerId>,
    /// It deleted a `Sync` container, or changed one's durability: an answer means that the journal is on media.
    pub ends_sync: bool,
    /// True once the store answered.
    pub acked: bool,
}

/// The model together with the history since the last state that is known to be on media.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// State before `entries[0]`; all of it survives anything.
    base: StoreState,
    /// Number of the first entry: entries are numbered over the whole run.
    first: usize,
    entries: Vec<Entry>,
    /// State after all entries: what any reader sees now.
    current: StoreState,
    /// For each container, the number of entries (counted from the beginning) that must survive power loss.
    floors: BTreeMap<ContainerId, usize>,
    /// Number of entries of the journal itself that must survive power loss, whatever happens to the content of
    /// containers.
    journal_floor: usize,
    /// Containers that were `Scratch` at any time since `base`.
    scratch: BTreeSet<ContainerId>,
}

impl Oracle {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }
    /// The state that any reader sees now.
    pub fn current(&self) -> &StoreState {
        &self.current
    }
    /// Number of entries so far.
    pub fn len(&self) -> usize {
        self.first + self.entries.len()
    }
    /// Returns true if nothing was ever applied.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Predicts the answer to a request, without applying it.
    pub fn predict(&self, checks: &[Check], changes: &[Change], atomic: bool) -> (Outcome, StoreState) {
        if !checks.iter().all(|check| self.current.holds(check)) {
            return (Outcome::Conflict, StoreState::default());
        }
        let mut next = self.current.clone();
        let mut codes = Vec::with_capacity(changes.len());
        for change in changes {
            let code = next.change(change, u64::MAX);
            // A transaction that deletes a missing record has done its work.
            let fine = code == KeyCode::Ok || (code == KeyCode::NotFound && deletes_missing_record(&next, change));
            if atomic && !fine {
                return (Outcome::Refused(code), StoreState::default());
            }
            codes.push(code);
        }
        (Outcome::Applied(codes), next)
    }
    /// Records that the store applied a request: these changes took effect at this epoch. Returns the entry's number.
    pub fn applied(&mut self, epoch: u64, changes: Vec<Change>, atomic: bool) -> usize {
        let containers: BTreeSet<ContainerId> = changes.iter().map(Change::container).collect();
        let before = self.sync_among(&containers);
        for change in &changes {
            self.current.change(change, epoch);
            self.note_scratch(change.container());
        }
        let sync = self.sync_among(&containers);
        let ends_sync = !before.is_subset(&sync);
        self.entries.push(Entry { epoch, changes, containers, atomic, sync, ends_sync, acked: false });
        self.len() - 1
    }
    fn note_scratch(&mut self, id: ContainerId) {
        if self.current.containers.get(&id).is_some_and(|c| c.spec.durability == Durability::Scratch) {
            self.scratch.insert(id);
        }
    }
    /// Records that the store answered that request. For a `Sync` container an answer means that the update is on
    /// media.
    pub fn acked(&mut self, number: usize) {
        let Some(entry) = number.checked_sub(self.first).and_then(|at| self.entries.get_mut(at)) else { return };
        entry.acked = true;
        if entry.ends_sync {
            self.journal_floor = self.journal_floor.max(number + 1);
        }
        let Some(entry) = self.entries.get(number - self.first) else { return };
        // A container that is no longer `Sync` when the answer comes promises less.
        for id in self.sync_among(&entry.sync.clone()) {
            self.raise_floor(id, number + 1);
        }
    }
    fn sync_among(&self, ids: &BTreeSet<ContainerId>) -> BTreeSet<ContainerId> {
        let sync = |id: &&ContainerId| {
            self.current.containers.get(id).is_some_and(|container| container.spec.durability == Durability::Sync)
        };
        ids.iter().filter(sync).copied().collect()
    }
    /// Records that a flush of this container (or, with `None`, of all) is done; it was requested when the oracle had
    /// `upto` entries.
    pub fn flushed(&mut self, container: Option<ContainerId>, upto: usize) {
        if let Some(id) = container {
            self.raise_floor(id, upto);
        } else {
            let all: BTreeSet<ContainerId> = (self.base.containers.keys().copied())
                .chain(self.entries.iter().flat_map(|e| e.containers.iter().copied()))
                .collect();
            for id in all {
                self.raise_floor(id, upto);
            }
        }
    }
    fn raise_floor(&mut self, id: ContainerId, upto: usize) {
        let floor = self.floors.entry(id).or_default();
        *floor = (*floor).max(upto);
    }
    /// Forgets that the last request was answered: for damage that looks like an unfinished write of it. Returns false
    /// if there is none.
    pub fn forget_last_answer(&mut self) -> bool {
        self.entries.last_mut().map(|entry| entry.acked = false).is_some()
    }
    /// Takes over what only the store knows: the epochs of updates that were never answered (0 in the model) and,
    /// without `strict`, all epochs. With `strict` any other epoch must be unchanged.
    fn adopt_epochs(&mut self, observed: &Observed, strict: bool) -> Result<(), String> {
        let settle = |epoch: &mut u64, found: u64, what: &dyn Fn() -> String| {
            if strict && *epoch != 0 && *epoch != found {
                return Err(format!("{} has epoch {found}, expected {epoch}", what()));
            }
            *epoch = found;
            Ok(())
        };
        for (id, container) in &mut self.current.containers {
            let Some(found) = observed.containers.get(id) else { continue };
            let container = Arc::make_mut(container);
            for (name, (_, content)) in &mut container.snapshots {
                let Some((_, found)) = found.snapshots.get(name) else { continue };
                let content = Arc::make_mut(content);
                for (id, object) in &mut content.objects {
                    object.epoch = found.objects.get(id).map_or(object.epoch, |found| found.epoch);
                }
                for (id, records) in &mut content.indices {
                    let Some(found) = found.indices.get(id) else { continue };
                    for (key, record) in records {
                        record.1 = found.get(key).map_or(record.1, |found| found.1);
                    }
                }
            }
            for (id, object) in &mut container.objects {
                if let Some(found) = found.objects.get(id) {
                    settle(&mut object.epoch, found.epoch, &|| format!("object {id}"))?;
                }
            }
            for (id, records) in &mut container.indices {
                let Some(found) = found.indices.get(id) else { continue };
                for (key, record) in records {
                    if let Some(found) = found.get(key) {
                        settle(&mut record.1, found.1, &|| format!("record {key:?} of index {id}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks the store after its processes died and it was opened again. Returns the number of surviving entries.
    ///
    /// The store's epoch gives that number: it alone distinguishes updates that change nothing from lost updates.
    pub fn after_process_death(&mut self, observed: &Observed) -> Result<usize, String> {
        let acked = self.entries.iter().rposition(|e| e.acked).map_or(0, |at| at + 1);
        let reached = match observed.epoch {
            0 => None,
            epoch => Some(self.entries.partition_point(|entry| entry.epoch <= epoch)),
        };
        let mut state = self.base.clone();
        let (mut longest, mut difference) = (None, String::new());
        for at in 0..=self.entries.len() {
            if let Some(entry) = at.checked_sub(1).map(|before| &self.entries[before]) {
                for change in &entry.changes {
                    state.change(change, entry.epoch);
                }
            }
            if at >= acked && reached.is_none_or(|reached| reached == at) {
                match observed.compare(&state) {
                    Ok(()) => longest = Some((at, state.clone())),
                    Err(why) => difference = why,
                }
            }
        }
        if let Some((at, state)) = longest {
            let survived = self.cut(at, state);
            self.adopt_epochs(observed, true)?;
            return Ok(survived);
        }
        let first = self.first;
        Err(format!(
            "after process death: no prefix with the {} acknowledged of {} entries matches (its epoch {} makes {}): {difference}",
            first + acked,
            self.len(),
            observed.epoch,
            first + reached.unwrap_or(0),
        ))
    }
    fn cut(&mut self, at: usize, state: StoreState) -> usize {
        self.entries.truncate(at);
        self.current = state;
        let len = self.len();
        for floor in self.floors.values_mut().chain([&mut self.journal_floor]) {
            *floor = (*floor).min(len);
        }
        len
    }

    /// Checks the store after a power loss. The state found becomes the base: all of it came from media.
    ///
    /// Which containers exist follows from the journal, which is cut at one position for all; the content of a
    /// container, its label and its settings may be cut earlier, for each container at its own position.
    pub fn after_power_loss(&mut self, observed: &Observed) -> Result<(), String> {
        let journal = self.journal_end(observed)?;
        let mut allowed: Prefixes = BTreeMap::new();
        for (id, found) in &observed.containers {
            allowed.insert(*id, self.allowed_prefixes(*id, found, journal)?);
        }
        let chosen = self.agree(&allowed)?;
        let mut state = StoreState::default();
        for (id, at) in chosen {
            let content = allowed.get_mut(&id).and_then(|prefixes| prefixes.remove(&at));
            let (Some(mut container), Some(found)) = (content, observed.containers.get(&id)) else { continue };
            container.label.clone_from(&found.label);
            container.spec = found.spec.clone();
            state.containers.insert(id, Arc::new(container));
        }
        self.first = self.len();
        self.entries.clear();
        self.floors.clear();
        self.current = state;
        self.adopt_epochs(observed, false)?;
        self.base = self.current.clone();
        self.scratch.clear();
        let all: Vec<ContainerId> = self.current.containers.keys().copied().collect();
        for id in all {
            self.note_scratch(id);
        }
        Ok(())
    }
    /// The first difference in the existing containers if the journal ended at `at`. A container created with a label
    /// that another one had given up may be missing, unless it was promised.
    fn compare_existence(&self, observed: &Observed, state: &StoreState, at: usize) -> Result<(), String> {
        if let Some(id) = observed.containers.keys().find(|id| !state.containers.contains_key(id)) {
            return Err(format!("container {id} should not be there"));
        }
        let mut labels = BTreeSet::new();
        if let Some(twice) = observed.containers.values().find(|container| !labels.insert(&container.label)) {
            return Err(format!("two containers have the label `{}`", twice.label));
        }
        for (id, expected) in &state.containers {
            if !observed.containers.contains_key(id) && !self.may_be_unmade(*id, at) {
                return Err(format!("container {id} `{}` is missing", expected.label));
            }
        }
        // The content of scratch containers follows nothing, their labels and settings the journal.
        for (id, expected) in state.containers.iter().filter(|(id, _)| self.scratch.contains(id)) {
            let Some(found) = observed.containers.get(id) else { continue };
            let made_unique = found.label.strip_suffix(&format!("~{id}")) == Some(&expected.label);
            if !made_unique || found.spec.durability != expected.spec.durability {
                found.compare_settings(expected).map_err(|why| format!("container {id} {why}"))?;
            }
        }
        Ok(())
    }
    fn may_be_unmade(&self, id: ContainerId, at: usize) -> bool {
        let floor = self.floors.get(&id).copied().unwrap_or(0).saturating_sub(self.first);
        let made = |change: &Change| match change {
            Change::ContainerCreate { id: made, label, .. } if *made == id => Some(label.clone()),
            _ => None,
        };
        let mut state = self.base.clone();
        let mut given_up: BTreeSet<String> = BTreeSet::new();
        for (number, entry) in self.entries[..at].iter().enumerate() {
            if let Some(label) = entry.changes.iter().find_map(made) {
                return given_up.contains(&label) && floor <= number;
            }
            for change in entry.changes.iter().filter(|change| change.is_about_container()) {
                if let Change::ContainerRename { id, .. } = change {
                    given_up.extend(state.containers.get(id).map(|container| container.label.clone()));
                }
                state.change(change, entry.epoch);
            }
        }
        false
    }
    /// The latest position at which the journal can have ended for these containers to exist.
    fn journal_end(&self, observed: &Observed) -> Result<usize, String> {
        let floor = self.floors.values().copied().max().unwrap_or(0).max(self.journal_floor).saturating_sub(self.first);
        let mut state = StoreState::default();
        for (id, container) in &self.base.containers {
            let bare =
                ContainerState { label: container.label.clone(), spec: container.spec.clone(), ..Default::default() };
            state.containers.insert(*id, Arc::new(bare));
        }
        let (mut latest, mut difference) = (None, String::new());
        for at in 0..=self.entries.len() {
            if let Some(entry) = at.checked_sub(1).map(|before| &self.entries[before]) {
                for change in entry.changes.iter().filter(|change| change.is_about_container()) {
                    state.change(change, entry.epoch);
                }
            }
            if at < floor {
                continue;
            }
            match self.compare_existence(observed, &state, at) {
                Ok(()) => latest = Some(at),
                Err(text) => difference = text,
            }
        }
        let (low, high) = (self.first + floor, self.len());
        latest.ok_or_else(|| {
            format!("after power loss: no journal of {low}..={high} entries has these containers; newest: {difference}")
        })
    }
    /// The prefixes (as number of entries, relative to `first`) whose content of this container equals the observation.
    fn allowed_prefixes(
        &self,
        id: ContainerId,
        found: &ObservedContainer,
        journal: usize,
    ) -> Result<BTreeMap<usize, ContainerState>, String> {
        let floor = self.floors.get(&id).copied().unwrap_or(0).saturating_sub(self.first);
        let lenience = Lenience { objects_may_be_gone: self.scratch.contains(&id) };
        // Only this container, so that labels of others do not block its changes.
        let mut state = StoreState::default();
        if let Some(container) = self.base.containers.get(&id) {
            state.containers.insert(id, container.clone());
        }
        let mut allowed = BTreeMap::new();
        let mut differences: Vec<String> = Vec::new();
        let mut verdict = None;
        for at in 0..=journal {
            if at > 0 && self.entries[at - 1].containers.contains(&id) {
                verdict = None;
                let entry = &self.entries[at - 1];
                for change in entry.changes.iter().filter(|c| c.container() == id) {
                    state.change(change, entry.epoch);
                }
            }
            let Some(expected) = state.containers.get(&id).filter(|_| at >= floor) else { continue };
            let matches = verdict.get_or_insert_with(|| {
                let settled = if self.scratch.contains(&id) { Ok(()) } else { found.compare_settings(expected) };
                let difference = settled.and_then(|()| found.compare_content(expected, lenience));
                difference.map_err(|why| differences.push(format!("{}: {why}", self.first + at))).is_ok()
            });
            if *matches {
                let mut container = ContainerState::clone(expected);
                found.forget_missing(&mut container);
                allowed.insert(at, container);
            }
        }
        if allowed.is_empty() {
            let (low, high) = (self.first + floor, self.first + journal);
            return Err(format!(
                "after power loss: container {id}: no prefix of {low}..={high} entries matches: {}",
                differences.join("; ")
            ));
        }
        Ok(allowed)
    }
    /// The greatest choice of a prefix for each container in which every transaction is whole or absent.
    fn agree(&self, allowed: &Prefixes) -> Result<BTreeMap<ContainerId, usize>, String> {
        let mut chosen: BTreeMap<ContainerId, usize> =
            allowed.iter().map(|(id, prefixes)| (*id, *prefixes.keys().next_back().unwrap_or(&0))).collect();
        loop {
            let mut lowered = false;
            for (at, entry) in self.entries.iter().enumerate() {
                let parts: Vec<ContainerId> = (entry.containers.iter().copied())
                    .filter(|id| !self.scratch.contains(id) && chosen.contains_key(id))
                    .collect();
                let absent = parts.iter().any(|id| chosen[id] <= at);
                if !entry.atomic || parts.len() < 2 || !absent {
                    continue;
                }
                for id in parts.iter().filter(|id| chosen[*id] > at).copied().collect::<Vec<_>>() {
                    let Some((lower, _)) = allowed[&id].range(..=at).next_back() else {
                        return Err(format!(
                            "after power loss: the transaction of epoch {} over {:?} is torn: {id} has it",
                            entry.epoch, entry.containers
                        ));
                    };
                    chosen.insert(id, *lower);
                    lowered = true;
                }
            }
            if !lowered {
                return Ok(chosen);
            }
        }
    }
}

/// Returns true for the deletion of a missing record from an existing index.
fn deletes_missing_record(state: &StoreState, change: &Change) -> bool {
    matches!(change, Change::Del { index, .. } if state.index(*index).is_some())
}
