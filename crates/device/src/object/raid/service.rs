//! The service: whole objects by key, each spread over places.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use cenote_layout::Layout;
use cenote_model::{Error, ErrorKind, Result};
use parking_lot::{Condvar, Mutex};

use super::index::{Index, Kept, Seat};
use super::part::{Edition, Owner, PartName};
use super::place::{Pace, Place, is_plain_name};
use super::places::Chair;
use crate::object::service::{Answer, ObjectService, Refusal};

/// Heads of parts that are kept in memory, at most.
const HEADS_MAX: usize = 8192;

/// An object service that spreads each object over places by a layout.
pub struct RaidService {
    pub(super) inner: Arc<Inner>,
    /// The repair; `None` if it works only when asked.
    worker: Option<std::thread::JoinHandle<()>>,
}

pub(super) struct Inner {
    pub owner: Owner,
    pub layout: Layout,
    pub chairs: Vec<Chair>,
    pub pace: Pace,
    pub index: Mutex<Index>,
    pub heads: Heads,
    pub tally: Tally,
    /// Keys that are being put: what lies there in part is no remains.
    pub putting: Mutex<Vec<String>>,
    pub repairing: Mutex<()>,
    pub closing: AtomicBool,
    /// Something changed that the repair should look at.
    pub stirred: Mutex<bool>,
    pub stir: Condvar,
}

/// What was done since the tier was opened, and what is to be done.
#[derive(Default)]
pub(super) struct Tally {
    /// Objects that lack parts, as the last look found them.
    pub debts: AtomicU64,
    /// Objects with parts on places that leave.
    pub moves: AtomicU64,
    /// Objects with too few parts.
    pub stuck: AtomicU64,
    pub parts_made: AtomicU64,
    pub bytes_made: AtomicU64,
    pub bad_parts: AtomicU64,
}

/// Checksums of the parts that were read lately.
#[derive(Default)]
pub(super) struct Heads(Mutex<HashMap<PartId, Arc<Vec<u32>>>>);

/// A part in memory: its place, edition and number. The id of the edition is of the key, too.
type PartId = (Seat, Edition, u8);

impl Heads {
    pub fn get(&self, seat: Seat, name: &PartName) -> Option<Arc<Vec<u32>>> {
        self.0.lock().get(&(seat, name.edition, name.part)).cloned()
    }
    pub fn put(&self, seat: Seat, name: &PartName, sums: Arc<Vec<u32>>) {
        let mut heads = self.0.lock();
        if heads.len() >= HEADS_MAX {
            heads.clear();
        }
        heads.insert((seat, name.edition, name.part), sums);
    }
    pub fn drop_one(&self, seat: Seat, edition: Edition, part: u8) {
        self.0.lock().remove(&(seat, edition, part));
    }
    pub fn forget(&self, seat: Seat) {
        self.0.lock().retain(|(at, ..), _| *at != seat);
    }
}

impl RaidService {
    /// The service on these places. Looks at none of them yet.
    ///
    /// # Errors
    /// `InvalidInput` if the layout needs more places, in as many failure domains.
    pub fn new(owner: Owner, layout: Layout, places: Vec<Arc<dyn Place>>, pace: Pace) -> Result<Self> {
        check_count(&layout, &places)?;
        let inner = Arc::new(Inner {
            owner,
            layout,
            chairs: places.into_iter().map(Chair::new).collect(),
            pace,
            index: Mutex::default(),
            heads: Heads::default(),
            tally: Tally::default(),
            putting: Mutex::default(),
            repairing: Mutex::default(),
            closing: AtomicBool::new(false),
            stirred: Mutex::new(false),
            stir: Condvar::new(),
        });
        Ok(Self { inner, worker: None })
    }
    /// Looks at all places. Refuses with `Corrupt` if one of them is something else than this place, with `NotFound` if
    /// nothing of the tier is at any of them, and for the moment if too many are away.
    pub fn enter(&self) -> Answer<()> {
        let inner = &self.inner;
        inner.survey();
        let wrong = inner.chairs.iter().find_map(|chair| {
            let why = chair.state.lock().away.as_ref().map(|(_, why)| why.clone());
            why.filter(|why| why.kind == ErrorKind::Corrupt).map(|why| (chair.place.who(), why))
        });
        if let Some((who, why)) = wrong {
            return Err(Refusal::new(ErrorKind::Corrupt, format!("at {who}: {}", why.cause)));
        }
        if inner.away_count() == inner.chairs.len() {
            let cause = format!("nothing of it is at any of its places: {}", inner.who_is_away());
            return Err(Refusal::new(ErrorKind::NotFound, cause));
        }
        inner.enough_for_lists()
    }
    /// Begins to repair in the background.
    #[must_use]
    pub fn working(mut self) -> Self {
        if self.inner.pace.background {
            let inner = Arc::clone(&self.inner);
            // Without a thread, repair works when it is asked for.
            self.worker = std::thread::Builder::new().name("cenote-raid".into()).spawn(move || inner.work_on()).ok();
        }
        self
    }
    /// Where everything is, for tests and statistics.
    pub fn state(&self) -> RaidState {
        let index = self.inner.index.lock();
        let mut state = RaidState { objects: index.len(), bad_parts: index.bad_parts(), ..RaidState::default() };
        for (_, kept) in index.iter() {
            let (there, all) = (kept.count(|seat| self.inner.is_here(seat)), kept.edition.shape.held().count());
            state.lacking += usize::from(there < all);
            state.unreadable += usize::from(there < kept.edition.shape.needed());
        }
        drop(index);
        state.away = self.inner.away_count();
        state.parts_made = self.inner.tally.parts_made.load(Ordering::Relaxed);
        state
    }
}

/// The objects of a tier and their parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RaidState {
    /// Objects of which there is any part.
    pub objects: usize,
    /// Of these, how many lack a part.
    pub lacking: usize,
    /// Of these, how many have too few parts to be read.
    pub unreadable: usize,
    /// Parts that are there and cannot be used.
    pub bad_parts: usize,
    /// Places that are away.
    pub away: usize,
    /// Parts that were made again since the tier was opened.
    pub parts_made: u64,
}

impl Drop for RaidService {
    fn drop(&mut self) {
        self.inner.closing.store(true, Ordering::Relaxed);
        self.inner.wake();
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

fn check_count(layout: &Layout, places: &[Arc<dyn Place>]) -> Result<()> {
    let candidates: Vec<cenote_layout::Candidate> =
        places.iter().map(|place| cenote_layout::Candidate { place: place.id(), weight: 1 }).collect();
    let key = super::put::stripe_key("");
    if cenote_layout::choose(key, layout, &candidates).is_ok() {
        return Ok(());
    }
    let (needed, there) = (layout.parts(), places.len());
    Err(Error::new(ErrorKind::InvalidInput, format!("layout {}", super::words(layout)))
        .because(format!("it needs {needed} places, and path= names {there}"))
        .try_next("name more directories, with `:` between them, or choose a layout of fewer parts"))
}

impl Inner {
    pub fn wake(&self) {
        *self.stirred.lock() = true;
        self.stir.notify_all();
    }
    /// Fails if objects may exist of which no place that is there has enough.
    pub fn enough_for_lists(&self) -> Answer<()> {
        if self.away_count() > self.layout.losses_max() { Err(self.too_many_away()) } else { Ok(()) }
    }
    pub fn is_complete(&self, kept: &Kept) -> bool {
        kept.count(|seat| self.is_here(seat)) >= kept.edition.shape.needed()
    }

    /// Lists every place that is there, and returns the parts by key.
    pub fn refresh(&self, prefix: &str) -> BTreeMap<String, Vec<Kept>> {
        let mut found = Index::default();
        for seat in self.seats().filter(|seat| self.is_here(*seat)) {
            let changes = self.index.lock().changes(seat);
            match self.list_place(seat, prefix) {
                Ok(parts) => {
                    let mut index = self.index.lock();
                    index.listed(seat, prefix, &parts, changes);
                    // Bad parts, too: an object is there if it may be read once more.
                    found.listed(seat, prefix, &parts, 0);
                }
                Err(refusal) => {
                    // A place that cannot be listed is of no use now.
                    let is_away = self.note(seat, &refusal);
                    if !is_away {
                        self.chair(seat).set_away(refusal);
                    }
                }
            }
        }
        let keys = found.keys();
        keys.into_iter().map(|key| (key.clone(), found.editions(&key).to_vec())).collect()
    }

    /// The edition of an object that is to be read; `None` if there is no such object.
    pub fn found(&self, key: &str) -> Answer<Option<Kept>> {
        let index = self.index.lock();
        let editions = index.editions(key);
        let mut complete = editions.iter().filter(|kept| self.is_complete(kept));
        match (complete.next(), complete.next()) {
            (Some(kept), None) => Ok(Some(kept.clone())),
            (Some(_), Some(_)) => Err(two_of_one_key()),
            (None, _) => {
                let first = editions.first().cloned();
                drop(index);
                match first {
                    Some(kept) => Err(self.too_few_parts(&kept)),
                    _ if self.away_count() > self.layout.losses_max() => Err(self.too_many_away()),
                    _ => Ok(None),
                }
            }
        }
    }
    #[cold]
    pub fn too_few_parts(&self, kept: &Kept) -> Refusal {
        let shape = kept.edition.shape;
        let (there, needed, all) = (kept.count(|seat| self.is_here(seat)), shape.needed(), shape.held().count());
        let away = self.who_is_away();
        let cause = format!("{needed} of its {all} parts are needed and {there} are there");
        if away.is_empty() {
            return Refusal::new(ErrorKind::Corrupt, format!("{cause}, though no place is away"));
        }
        Refusal::passing(format!("{cause}; away are {away}"))
    }
}

#[cold]
fn two_of_one_key() -> Refusal {
    Refusal::new(
        ErrorKind::Corrupt,
        "its places have two objects of this name: two stores write there, or a place was copied",
    )
}

pub(super) fn check_key(key: &str) -> Answer<()> {
    if is_plain_name(key) && !key.contains('@') {
        return Ok(());
    }
    Err(Refusal::new(ErrorKind::InvalidInput, format!("`{key}` is no name for an object")))
}

impl ObjectService for RaidService {
    fn put(&self, key: &str, parts: &[Bytes], only_new: bool) -> Answer<()> {
        check_key(key)?;
        self.inner.survey();
        self.inner.put(key, parts, only_new)
    }
    fn get(&self, key: &str, from: u64, len: u64) -> Answer<Bytes> {
        check_key(key)?;
        self.inner.survey();
        self.inner.get(key, from, len)
    }
    fn list(&self, prefix: &str) -> Answer<Vec<(String, u64)>> {
        let inner = &self.inner;
        inner.survey();
        let found = inner.refresh(prefix);
        // A place may have gone meanwhile.
        inner.enough_for_lists()?;
        let whole =
            |all: &Vec<Kept>| all.iter().find(|kept| inner.is_complete(kept)).map(|kept| kept.edition.shape.len);
        Ok(found.into_iter().filter_map(|(key, all)| Some((key, whole(&all)?))).collect())
    }
    fn delete(&self, key: &str) -> Answer<()> {
        check_key(key)?;
        self.inner.survey();
        self.inner.delete(key)
    }
    fn note(&self) -> String {
        self.inner.text()
    }
    fn mend(&self, from: Option<&str>) -> Answer<Option<String>> {
        self.inner.survey();
        Ok(self.inner.mend_some(from))
    }
}

impl Inner {
    pub fn delete(&self, key: &str) -> Answer<()> {
        if super::super::place::is_record(key) {
            // Another process may have stored it.
            self.refresh(super::put::above(key));
        }
        // No part is made again meanwhile.
        let _alone = self.repairing.lock();
        let all = self.index.lock().editions(key).to_vec();
        for kept in all {
            self.delete_edition(key, &kept)?;
        }
        Ok(())
    }
    /// Deletes the parts of an edition. A place that is away is told when it comes back.
    pub fn delete_edition(&self, key: &str, kept: &Kept) -> Answer<()> {
        let mut refused = None;
        let also = self.index.lock().bad_of(key, kept.edition);
        for (part, seat) in kept.at.iter().copied().chain(also) {
            let name = kept.name(key, part);
            let chair = self.chair(seat);
            if !chair.is_here() {
                chair.miss(name);
                self.index.lock().remove(key, kept.edition, part, seat);
                continue;
            }
            match chair.place.delete(&name) {
                Ok(()) => self.index.lock().remove(key, kept.edition, part, seat),
                Err(refusal) if self.note(seat, &refusal) => {
                    chair.miss(name);
                    self.index.lock().remove(key, kept.edition, part, seat);
                }
                Err(refusal) => {
                    refused = Some(Refusal { cause: format!("{}: {}", chair.place.who(), refusal.cause), ..refusal });
                }
            }
            self.heads.drop_one(seat, kept.edition, part);
        }
        refused.map_or(Ok(()), Err)
    }

    /// A few words on what is wrong, and on what is being done.
    pub fn text(&self) -> String {
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (debts, made, stuck) = (count(&self.tally.debts), count(&self.tally.parts_made), count(&self.tally.stuck));
        let away = self.who_is_away();
        let state = if away.is_empty() && debts + stuck == 0 { "" } else { "DEGRADED: " };
        let leaving = self.leaving();
        let staying = self.chairs.len() - leaving.len();
        let mut text = format!("{state}{} on {staying} places", super::words(&self.layout));
        let mut add = |more: String| {
            let _ = write!(text, "; {more}"); // into memory
        };
        if !away.is_empty() {
            add(format!("away: {away}"));
        }
        let unwilling = self.who_is_unwilling();
        if !unwilling.is_empty() {
            add(format!("takes no new parts: {unwilling}"));
        }
        if debts > 0 {
            add(format!("{debts} objects lack parts"));
        }
        let moves = count(&self.tally.moves);
        if moves > 0 {
            let who: Vec<String> = leaving.iter().map(|seat| self.chair(*seat).place.who()).collect();
            add(format!("parts of {moves} objects move away from {}", who.join(", ")));
        }
        if made > 0 {
            add(format!("{made} parts made again ({})", cenote_model::size::human(count(&self.tally.bytes_made))));
        }
        if stuck > 0 {
            add(format!("{stuck} objects have too few parts to be read"));
        }
        if count(&self.tally.bad_parts) > 0 {
            add(format!("{} bad parts found", count(&self.tally.bad_parts)));
        }
        if let Some(shared) = self.shared_disk() {
            add(shared);
        }
        text
    }
    /// Names two places that are lost together.
    fn shared_disk(&self) -> Option<String> {
        let mut seen: Vec<(u64, String)> = Vec::new();
        for chair in &self.chairs {
            let Some(system) = chair.state.lock().look.file_system else { continue };
            if let Some((_, other)) = seen.iter().find(|(before, _)| *before == system) {
                return Some(format!("{other} and {} are on one file system, and lost together", chair.place.who()));
            }
            seen.push((system, chair.place.who()));
        }
        None
    }
}
