//! The places of a tier: which are there, which are away and since when, and what becomes of a place that comes back.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use cenote_layout::Candidate;
use cenote_model::{DeviceId, ErrorKind, NodeId};
use parking_lot::Mutex;

use super::index::Seat;
use super::part::PartName;
use super::place::{Look, Place};
use super::service::Inner;
use crate::object::service::{Answer, Refusal};

/// Most deletions that are made up for when a place comes back. More only leave garbage.
const MISSED_MAX: usize = 1 << 16;

/// A place, and what is known of it.
pub(super) struct Chair {
    pub place: Arc<dyn Place>,
    pub state: Mutex<ChairState>,
    /// Only one thread looks at a time.
    looking: Mutex<()>,
    /// Reads under way.
    pub reads: std::sync::atomic::AtomicU32,
}

#[derive(Default)]
pub(super) struct ChairState {
    pub looked: Option<Instant>,
    pub look: Look,
    /// Why it is away, and since when; `None` if it is there.
    pub away: Option<(Instant, Refusal)>,
    /// It refused a part.
    pub unwilling: Option<(Instant, Refusal)>,
    /// What was deleted while it was away.
    missed: Vec<String>,
}

impl Chair {
    pub fn new(place: Arc<dyn Place>) -> Self {
        Self { place, state: Mutex::default(), looking: Mutex::default(), reads: 0.into() }
    }
    pub fn is_here(&self) -> bool {
        let state = self.state.lock();
        state.looked.is_some() && state.away.is_none()
    }
    /// Returns true if it is away for so long that its parts should be made elsewhere.
    pub fn is_lost(&self, after: std::time::Duration) -> bool {
        self.state.lock().away.as_ref().is_some_and(|(since, _)| since.elapsed() >= after)
    }
    pub fn set_away(&self, why: Refusal) {
        let mut state = self.state.lock();
        state.looked = Some(Instant::now());
        if state.away.is_none() {
            tracing::warn!(place = %self.place.who(), why = %why.cause, "a place is away");
        }
        let since = state.away.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        state.away = Some((since, why));
    }
    pub fn set_willing(&self) {
        self.state.lock().unwilling = None;
    }
    pub fn set_unwilling(&self, why: Refusal) {
        self.state.lock().unwilling = Some((Instant::now(), why));
    }
    pub fn miss(&self, name: String) {
        let mut state = self.state.lock();
        if state.missed.len() < MISSED_MAX {
            state.missed.push(name);
        }
    }
    /// Its share of new parts; 0 if it takes none now. One without room is asked all the same, so that the error says why.
    fn weight(&self, spared_for: std::time::Duration) -> u64 {
        let state = self.state.lock();
        let is_unwilling = state.unwilling.as_ref().is_some_and(|(when, _)| when.elapsed() < spared_for);
        let takes = state.looked.is_some() && state.away.is_none() && !is_unwilling && !self.place.leaves();
        if takes { (state.look.free_bytes >> 20).max(1) } else { 0 }
    }
}

impl Inner {
    pub fn chair(&self, seat: Seat) -> &Chair {
        &self.chairs[usize::from(seat)]
    }
    pub fn seats(&self) -> impl Iterator<Item = Seat> + use<> {
        0..self.chairs.len() as Seat
    }
    pub fn is_here(&self, seat: Seat) -> bool {
        self.chair(seat).is_here()
    }
    /// Returns true if it is there, and what it has may stay there.
    pub fn stays(&self, seat: Seat) -> bool {
        let chair = self.chair(seat);
        chair.is_here() && !chair.place.leaves()
    }
    /// The places that are about to leave the tier, or have left it.
    pub fn leaving(&self) -> Vec<Seat> {
        self.seats().filter(|seat| self.chair(*seat).place.leaves()).collect()
    }
    pub fn away_count(&self) -> usize {
        self.seats().filter(|seat| !self.is_here(*seat)).count()
    }

    /// Looks at places that nobody has looked at, and again at those that are away. A look takes its time, so one thread
    /// does it while the others go by what is known.
    pub fn survey(&self) {
        for seat in self.seats() {
            let chair = self.chair(seat);
            let (is_known, is_due) = {
                let state = chair.state.lock();
                let due = |looked: Instant| state.away.is_some() && looked.elapsed() >= self.pace.look_again;
                (state.looked.is_some(), state.looked.is_none_or(due))
            };
            if is_due {
                let looking = if is_known { chair.looking.try_lock() } else { Some(chair.looking.lock()) };
                if looking.is_some() && (is_known || chair.state.lock().looked.is_none()) {
                    self.look_at(seat);
                }
            }
        }
    }

    /// Looks at a place now; one that comes back is listed before it counts as there.
    pub fn look_at(&self, seat: Seat) {
        let chair = self.chair(seat);
        match chair.place.look().and_then(|look| self.welcome(seat).map(|()| look)) {
            Ok(look) => {
                let mut state = chair.state.lock();
                let is_new = state.looked.is_none() || state.away.is_some();
                if state.away.is_some() {
                    tracing::info!(place = %chair.place.who(), "a place is back");
                }
                (state.looked, state.look, state.away) = (Some(Instant::now()), look, None);
                drop(state);
                if is_new {
                    self.wake();
                }
            }
            Err(why) => {
                let was_here = chair.is_here();
                chair.set_away(why);
                if was_here {
                    self.wake();
                }
            }
        }
    }
    /// Lists a place that was away, or that nobody has listed.
    fn welcome(&self, seat: Seat) -> Answer<()> {
        let chair = self.chair(seat);
        if chair.is_here() {
            return Ok(());
        }
        let missed = std::mem::take(&mut chair.state.lock().missed);
        for name in &missed {
            // What stays is garbage, which the device finds as such.
            let _ = chair.place.delete(name);
        }
        let changes = self.index.lock().changes(seat);
        let parts = self.list_place(seat, "")?;
        let mut index = self.index.lock();
        if index.changes(seat) == changes {
            index.lose(seat);
            let changes = index.changes(seat);
            index.listed(seat, "", &parts, changes);
        }
        drop(index);
        self.heads.forget(seat);
        Ok(())
    }
    /// The parts that a place has below a prefix; other files are left alone.
    pub fn list_place(&self, seat: Seat, prefix: &str) -> Answer<Vec<PartName>> {
        let names = self.chair(seat).place.list(prefix)?;
        let parts = names.iter().filter_map(|name| PartName::decode(name));
        Ok(parts.filter(|part| part.key.starts_with(prefix)).collect())
    }
    /// Notes what a refusal says of a place. Returns true if it is away.
    pub fn note(&self, seat: Seat, refusal: &Refusal) -> bool {
        let is_gone = matches!(refusal.kind, ErrorKind::Disconnected | ErrorKind::Corrupt);
        if is_gone {
            self.chair(seat).set_away(refusal.clone());
            self.wake();
        }
        is_gone
    }

    /// The places that may take a part.
    pub fn candidates(&self, excluded: &[Seat]) -> Vec<Candidate> {
        let candidate = |seat: Seat| {
            let chair = self.chair(seat);
            let weight = if excluded.contains(&seat) { 0 } else { chair.weight(self.pace.spared_for) };
            Candidate { place: chair.place.id(), weight }
        };
        self.seats().map(candidate).collect()
    }
    pub fn seat_of(&self, place: cenote_layout::Place) -> Option<Seat> {
        self.seats().find(|seat| self.chair(*seat).place.id() == place)
    }
    /// A place that is none, for a part that lies nowhere.
    pub fn nowhere(part: usize) -> cenote_layout::Place {
        cenote_layout::Place { node: NodeId(u16::MAX - part as u16), device: DeviceId(u16::MAX) }
    }

    /// The places that are away, with the causes.
    pub fn who_is_away(&self) -> String {
        let mut text = String::new();
        for seat in self.seats() {
            let chair = self.chair(seat);
            let state = chair.state.lock();
            if let Some((_, why)) = &state.away {
                let separator = if text.is_empty() { "" } else { "; " };
                let _ = write!(text, "{separator}{}: {}", chair.place.who(), why.cause); // into memory
            }
        }
        text
    }
    /// The places that took no part lately, with the causes.
    pub fn who_is_unwilling(&self) -> String {
        let mut text = String::new();
        for seat in self.seats() {
            let chair = self.chair(seat);
            let state = chair.state.lock();
            if let (None, Some((_, why))) = (&state.away, &state.unwilling) {
                let separator = if text.is_empty() { "" } else { "; " };
                let _ = write!(text, "{separator}{}: {}", chair.place.who(), why.cause); // into memory
            }
        }
        text
    }
    /// The refusal of a request that needs more places than are there.
    #[cold]
    pub fn too_many_away(&self) -> Refusal {
        let (away, all) = (self.away_count(), self.chairs.len());
        let most = self.layout.losses_max();
        Refusal::passing(format!(
            "{away} of its {all} places are away, and the layout {} survives the loss of {most}: {}",
            super::words(&self.layout),
            self.who_is_away()
        ))
    }
}
