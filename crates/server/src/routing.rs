//! Which engine of several answers a request. A container's id modulo the number of engines is its home; what concerns
//! no container is asked of all. With one engine nothing here is called.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use cenote_model::{
    Check, ContainerId, Error, ErrorKind, FlushTarget, KeyCode, ObjectKey, Request, Response, Result, Update,
};
use cenote_store::SessionId;

use crate::across::{Across, Share};
use crate::handling::Handling;
use crate::merging::Merge;
use crate::service::{Reply, lock};

/// Who answers a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Route {
    /// The engine of this home.
    Home(usize),
    /// All of them.
    All,
    /// Each its part.
    Parts,
    /// The one that has the label.
    Label,
}

/// The home of a container.
fn home_of(container: ContainerId, homes: usize) -> usize {
    usize::from(container.engine(homes as u16))
}

/// The home of a new container: FNV-1a of its label, modulo the number of engines.
fn home_of_label(label: &str, homes: usize) -> usize {
    let hash = label
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    // The low bits alone depend on the last bytes most.
    ((hash ^ hash >> 32) % homes as u64) as usize
}

fn route(request: &Request, homes: usize) -> Route {
    let of = |container: ContainerId| Route::Home(home_of(container, homes));
    match request {
        Request::Lookup { key, .. }
        | Request::ObjectStat { key }
        | Request::Explain { key }
        | Request::Fetch { key, .. }
        | Request::Unreadable { key, .. }
        | Request::Read { key, .. } => of(key.container),
        Request::Get { index: key, .. } | Request::Next { index: key, .. } | Request::IndexExists { key } => {
            of(key.container)
        }
        Request::Prepare { checks, updates, .. } | Request::Decide { checks, updates, .. } => {
            let first = checks.iter().map(Check::container).chain(updates.iter().map(Update::container)).next();
            of(first.unwrap_or_default())
        }
        Request::Ask { transaction, .. } | Request::Forget { transaction, .. } => {
            Route::Home(usize::from(transaction.home.0) % homes)
        }
        Request::ObjectList { container, .. }
        | Request::IndexList { container, .. }
        | Request::SnapshotList { container, .. }
        | Request::SnapshotByName { container, .. }
        | Request::Lease { container, .. }
        | Request::Deposit { container, .. }
        | Request::Habit { container, .. }
        | Request::HabitLearned { container, .. } => of(*container),
        Request::ContainerById { id } | Request::ContainerContent { id, .. } | Request::SnapshotUnpin { id } => of(*id),
        Request::Flush { target } | Request::Verify { target } => match target {
            FlushTarget::Store => Route::All,
            FlushTarget::Container(id) => of(*id),
            FlushTarget::Object(key) => of(key.container),
        },
        Request::Arrange { target, .. } => target.container().map_or(Route::All, of),
        Request::Apply { .. } | Request::Unlease { .. } | Request::Touched { .. } => Route::Parts,
        Request::ContainerByLabel { .. } => Route::Label,
        // Each settles its part, if it has one.
        Request::Settle { .. }
        | Request::ContainerList { .. }
        | Request::Devices
        | Request::Stats
        | Request::Moved
        | Request::Telemetry { .. }
        | Request::Checkpoint
        | Request::PolicySet { .. }
        | Request::PolicyShow
        | Request::Weights { .. }
        | Request::RulesTry
        | Request::Progress => Route::All,
        Request::Profile { .. }
        | Request::HaReport
        | Request::ChangeCluster { .. }
        | Request::Protect { .. }
        | Request::Shutdown { .. }
        | Request::DeviceAdd { .. }
        | Request::DeviceDrain { .. }
        | Request::DeviceRemove { .. } => Route::Home(0),
    }
}

/// Answers of several engines, until all are there.
struct Gathered {
    answers: Vec<Option<Response>>,
    reply: Option<Reply>,
}

type Finish = Box<dyn FnOnce(Vec<Response>) -> Response + Send>;

/// Gathers the answers to the parts of a request.
struct Gather {
    state: Mutex<Gathered>,
    finish: Mutex<Option<Finish>>,
}

impl Gather {
    fn new(parts: usize, finish: Finish) -> Arc<Self> {
        let state = Gathered { answers: (0..parts).map(|_| None).collect(), reply: None };
        Arc::new(Self { state: Mutex::new(state), finish: Mutex::new(Some(finish)) })
    }
    /// Takes in an answer; tells whoever waits if it is the last.
    fn put(&self, part: usize, answer: Response) {
        let (answers, reply) = {
            let mut state = lock(&self.state);
            state.answers[part] = Some(answer);
            if state.reply.is_none() || state.answers.iter().any(Option::is_none) {
                return;
            }
            (std::mem::take(&mut state.answers), state.reply.take())
        };
        if let Some(reply) = reply {
            reply(self.finished(answers));
        }
    }
    /// The answer, if all parts have theirs; else it goes to the reply that `later` makes.
    fn answer(&self, later: impl FnOnce() -> Reply) -> Option<Response> {
        let answers = {
            let mut state = lock(&self.state);
            if state.answers.iter().any(Option::is_none) {
                state.reply = Some(later());
                return None;
            }
            std::mem::take(&mut state.answers)
        };
        Some(self.finished(answers))
    }
    fn finished(&self, answers: Vec<Option<Response>>) -> Response {
        let finish = lock(&self.finish).take();
        finish.map_or(Response::Done, |finish| finish(answers.into_iter().flatten().collect()))
    }
}

impl Handling<'_> {
    /// Handles a request to a store with several engines.
    pub(crate) fn route(
        &mut self,
        session: SessionId,
        seq: u64,
        request: Request,
        later: impl FnOnce() -> Reply,
    ) -> Option<Response> {
        let homes = self.service.homes.len();
        match route(&request, homes) {
            Route::Home(home) => self.handle_at(home, (session, seq), request, later),
            Route::All => {
                let merge = Merge::of(&request);
                let parts = (0..homes).map(|home| (home, request.clone())).collect();
                self.gather(session, seq, parts, Box::new(move |all| merge.merge(all)), later)
            }
            Route::Label => Some(self.by_label(session, &request)),
            Route::Parts => match request {
                Request::Apply { checks, updates, atomic } => {
                    self.apply(session, seq, (checks, updates, atomic), later)
                }
                Request::Unlease { runs } => {
                    let mut parts = vec![Vec::new(); homes];
                    if let Some(engine) = self.at(0).engine() {
                        for run in &runs {
                            parts[usize::from(engine.lent_to(run))].push(*run);
                        }
                    }
                    let parts = numbered(parts, |runs| Request::Unlease { runs });
                    self.gather(session, seq, parts, Box::new(|all| Merge::Sum.merge(all)), later)
                }
                Request::Touched { reads } => {
                    let mut parts = vec![Vec::new(); homes];
                    for read in &reads {
                        parts[home_of(read.key.container, homes)].push(*read);
                    }
                    let parts = numbered(parts, |reads| Request::Touched { reads });
                    self.gather(session, seq, parts, Box::new(|all| Merge::Sum.merge(all)), later)
                }
                other => self.at(0).handle(session, seq, other, later),
            },
        }
    }
    /// Hands each part of a request to its engine, and makes one answer of theirs.
    fn gather(
        &mut self,
        session: SessionId,
        seq: u64,
        parts: Vec<(usize, Request)>,
        finish: Finish,
        later: impl FnOnce() -> Reply,
    ) -> Option<Response> {
        let gather = Gather::new(parts.len(), finish);
        for (part, (home, request)) in parts.into_iter().enumerate() {
            let waiting = gather.clone();
            let later = || -> Reply { Box::new(move |response| waiting.put(part, response)) };
            let answer = self.handle_at(home, (session, seq), request, later);
            if let Some(answer) = answer {
                gather.put(part, answer);
            }
        }
        self.release();
        gather.answer(later)
    }
    /// Asks the home that a label's hash names, then the others: a container may have got its label later.
    fn by_label(&mut self, session: SessionId, request: &Request) -> Response {
        let Request::ContainerByLabel { label } = request else { return Response::Done };
        let homes = self.service.homes.len();
        let first = home_of_label(label, homes);
        let mut missing = None;
        for home in (0..homes).map(|step| (first + step) % homes) {
            match self.at(home).handle(session, 0, request.clone(), || Box::new(drop)) {
                Some(Response::Failed(error)) if error.kind() == ErrorKind::NotFound => {
                    missing.get_or_insert(Response::Failed(error));
                }
                Some(answer) => return answer,
                None => {}
            }
        }
        missing.unwrap_or(Response::Done)
    }
    fn apply(
        &mut self,
        session: SessionId,
        seq: u64,
        (checks, updates, atomic): (Vec<Check>, Vec<Update>, bool),
        later: impl FnOnce() -> Reply,
    ) -> Option<Response> {
        let homes = self.service.homes.len();
        let plan = match plan(&checks, &updates, atomic, homes) {
            Ok(plan) => plan,
            Err(error) => return Some(Response::Failed(error)),
        };
        let service = self.service;
        let label = updates.iter().find_map(label_of);
        let _labels = label.is_some().then(|| {
            self.release();
            lock(&service.labels)
        });
        for update in updates.iter().filter(|update| label_of(update).is_some()) {
            if let Some(error) = self.taken_elsewhere(update) {
                return Some(if atomic || updates.len() > 1 { Response::Failed(error) } else { refused() });
            }
        }
        let of = match plan {
            Plan::Split(of) => of,
            Plan::Whole(home) => {
                let request = Request::Apply { checks, updates, atomic };
                return self.handle_at(home, (session, seq), request, later);
            }
            Plan::Across => {
                self.release();
                let words = service.words.get()?;
                return Across::run(service, words, (session, seq), shares(checks, updates, homes), later);
            }
        };
        let words = Words::of(&updates, &of, homes);
        let mut parts = vec![Vec::new(); homes];
        of.iter().zip(updates).for_each(|(home, update)| parts[*home].push(update));
        let parts = numbered(parts, |updates| Request::Apply { checks: Vec::new(), updates, atomic: false });
        let present: Vec<usize> = parts.iter().map(|(home, _)| *home).collect();
        let finish = Box::new(move |all| joined(all, &present, &of, &words));
        self.gather(session, seq, parts, finish, later)
    }
    /// The error of an update that gives a container a label which one of another engine has.
    fn taken_elsewhere(&mut self, update: &Update) -> Option<Error> {
        let label = label_of(update)?;
        let homes = self.service.homes.len();
        let own = home_of_update(update, None, homes);
        let has = |home: usize| self.at(home).engine().is_some_and(|engine| engine.has_label(label));
        let is_taken = (0..homes).filter(|home| *home != own).any(has);
        is_taken.then(|| {
            Error::new(ErrorKind::Exists, format!("container `{label:.100}`"))
                .because("the label is taken")
                .try_next("use the existing one, or another name")
        })
    }
}

/// The answer to one update that is refused by itself.
fn refused() -> Response {
    Response::Applied { epoch: 0, codes: vec![KeyCode::Exists], words: Vec::new(), created: None }
}

fn label_of(update: &Update) -> Option<&str> {
    match update {
        Update::ContainerCreate { label, .. } | Update::ContainerRename { label, .. } => Some(label),
        _ => None,
    }
}

fn numbered<T>(parts: Vec<Vec<T>>, request: impl Fn(Vec<T>) -> Request) -> Vec<(usize, Request)> {
    let some = parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty());
    let mut some: Vec<_> = some.map(|(home, part)| (home, request(part))).collect();
    if some.is_empty() {
        some.push((0, request(Vec::new()))); // which the engine knows how to answer
    }
    some
}

/// Where the updates of a request go.
#[derive(Debug)]
enum Plan {
    /// All to one home.
    Whole(usize),
    /// Each to its own.
    Split(Vec<usize>),
    /// Each to its own, and all or none of them.
    Across,
}

/// The home of an update. `created`: that of the container created last in its request, which others call 0.
fn home_of_update(update: &Update, created: Option<usize>, homes: usize) -> usize {
    match update {
        Update::ContainerCreate { id: ContainerId(0), label, .. } => home_of_label(label, homes),
        _ => match update.container() {
            ContainerId(0) => created.unwrap_or(0),
            id => home_of(id, homes),
        },
    }
}

/// Plans a request. Fails if it is to be all or nothing over several homes, and cannot be.
fn plan(checks: &[Check], updates: &[Update], atomic: bool, homes: usize) -> Result<Plan> {
    let has_containers = updates.iter().any(Update::is_about_container);
    let cross = |one, other| {
        if atomic && !has_containers { Ok(Plan::Across) } else { Err(crossing(one, other, has_containers)) }
    };
    let mut created = None;
    let mut first: Option<(usize, ContainerId)> = None;
    let mut of: Vec<usize> = Vec::new();
    for (at, update) in updates.iter().enumerate() {
        let home = home_of_update(update, created, homes);
        if matches!(update, Update::ContainerCreate { .. }) {
            created = Some(home);
        }
        let (one, container) = *first.get_or_insert((home, update.container()));
        if one != home && of.is_empty() {
            if atomic || !checks.is_empty() {
                return cross(container, update.container());
            }
            of = vec![one; at];
        }
        if !of.is_empty() || one != home {
            of.push(home);
        }
    }
    for check in checks {
        let container = check.container();
        let home = home_of(container, homes);
        let (one, other) = *first.get_or_insert((home, container));
        if one != home {
            return cross(other, container);
        }
    }
    let home = first.map_or(0, |(home, _)| home);
    Ok(if of.is_empty() { Plan::Whole(home) } else { Plan::Split(of) })
}

#[cold]
fn crossing(one: ContainerId, other: ContainerId, has_containers: bool) -> Error {
    let why = if has_containers {
        "a change of containers has one engine"
    } else {
        "what is sent without waiting has one engine"
    };
    Error::new(ErrorKind::Unsupported, format!("a transaction over containers {one} and {other}"))
        .because(format!("different engines of the store have them, and {why}"))
        .try_next("commit it and wait, without changes of containers; or make the changes one by one")
}

/// The parts of a transaction over several engines, in the order of these.
fn shares(checks: Vec<Check>, updates: Vec<Update>, homes: usize) -> Vec<Share> {
    let mut all: Vec<Share> = (0..homes).map(|home| Share { home, ..Share::default() }).collect();
    for check in checks {
        all[home_of(check.container(), homes)].checks.push(check);
    }
    for update in updates {
        all[home_of(update.container(), homes)].updates.push(update);
    }
    all.retain(|share| !share.checks.is_empty() || !share.updates.is_empty());
    all
}

/// Whose version words the parts of a request answer with: of each home the objects that it writes, in order, if they
/// can be known.
struct Words(Option<Vec<usize>>);

impl Words {
    fn of(updates: &[Update], of: &[usize], homes: usize) -> Self {
        let mut seen: BTreeSet<ObjectKey> = BTreeSet::new();
        let mut order = Vec::new();
        debug_assert!(of.iter().all(|home| *home < homes));
        for (update, home) in updates.iter().zip(of) {
            match update {
                Update::Write { key, .. } if seen.insert(*key) => order.push(*home),
                Update::Write { .. }
                | Update::ObjectCreate { .. }
                | Update::ObjectKeep { .. }
                | Update::IndexCreate { .. }
                | Update::Put { .. }
                | Update::Del { .. } => {}
                _ => return Self(None),
            }
        }
        Self(Some(order))
    }
    /// One list of the words that the homes answered, in the order of the objects; empty if that is not known.
    fn joined(&self, mut all: Vec<Vec<(u64, u64)>>) -> Vec<(u64, u64)> {
        let Some(order) = &self.0 else { return Vec::new() };
        for words in &mut all {
            words.reverse();
        }
        let words: Option<Vec<_>> = order.iter().map(|home| all[*home].pop()).collect();
        words.filter(|_| all.iter().all(Vec::is_empty)).unwrap_or_default()
    }
}

/// The answer to updates that went to several homes: `present` are those homes, `of` the home of each update.
fn joined(all: Vec<Response>, present: &[usize], of: &[usize], words: &Words) -> Response {
    let homes = 1 + of.iter().copied().max().unwrap_or(0);
    let mut codes_of: Vec<std::vec::IntoIter<KeyCode>> = (0..homes).map(|_| Vec::new().into_iter()).collect();
    let mut words_of = vec![Vec::new(); homes];
    let (mut latest, mut made, mut is_mixed) = (0, None, false);
    for (home, answer) in present.iter().zip(all) {
        match answer {
            Response::Applied { epoch, codes, words, created } => {
                latest = latest.max(epoch);
                made = made.or(created);
                is_mixed |= !codes.is_empty();
                codes_of[*home] = codes.into_iter();
                words_of[*home] = words;
            }
            other => return other,
        }
    }
    let codes = if is_mixed {
        of.iter().map(|home| codes_of[*home].next().unwrap_or(KeyCode::Ok)).collect()
    } else {
        Vec::new()
    };
    Response::Applied { epoch: latest, codes, words: words.joined(words_of), created: made }
}
