//! Repair: parts that are missing or bad are made again from the others, the object that survives the fewest further losses
//! first; and the check that finds bad parts which nobody reads, such as parity.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cenote_layout::Code;
use cenote_model::ErrorKind;

use super::get::PartTrouble;
use super::index::{Kept, Seat};
use super::part::{Edition, PartName};
use super::service::Inner;
use crate::object::service::{Answer, Refusal};

/// How often the repair looks, when nothing wakes it.
const TICK: Duration = Duration::from_secs(1);
/// How often it looks at places that are there: their room changes, and a disk that nobody uses may go.
const LOOK: Duration = Duration::from_secs(10);
/// How often it looks for debts though nothing happened: a place may be away for long enough by now.
const REPAIR: Duration = Duration::from_secs(30);
/// A round of the check begins so long after the last one, and the first one so long after the opening.
const CHECK_AFTER: Duration = Duration::from_hours(24);
const CHECK_FIRST_AFTER: Duration = Duration::from_hours(1);
/// The check reads for so long in each tick.
const CHECK_FOR: Duration = Duration::from_millis(50);
/// A call that checks and repairs takes about so long.
const MEND_FOR: Duration = Duration::from_secs(1);
/// Where such a call begins when everything is checked: behind all keys.
const CHECKED: &str = "~";
/// Bytes of a part that are checked at a time.
const CHECK_BYTES: u64 = 4 << 20;
/// An interrupted put leaves parts of few objects. More than this are a loss, and may come back with a disk.
const REMAINS_MAX: usize = 16;

/// What an object lacks.
struct Debt {
    /// How many more losses it survives.
    spare: usize,
    key: String,
    kept: Kept,
    /// The parts that are to be made.
    parts: Vec<u8>,
    /// All of them are there, on places that leave.
    moves: bool,
}

/// All that is wrong with the objects.
#[derive(Default)]
struct Debts {
    due: Vec<Debt>,
    /// Objects that lack parts on places that are expected back.
    waiting: usize,
    /// Objects that cannot be read now.
    stuck: Vec<(String, Kept)>,
    /// Parts that lie on two places.
    twice: Vec<(String, Edition, u8, Seat)>,
}

impl Inner {
    /// The thread of the repair.
    pub fn work_on(&self) {
        let (mut looked, mut repaired) = (Instant::now(), None::<Instant>);
        let mut check_at = Instant::now() + CHECK_FIRST_AFTER;
        let mut next_key: Option<String> = None;
        let mut leaving = Vec::new();
        while !self.closing.load(Ordering::Relaxed) {
            let is_stirred = {
                let mut stirred = self.stirred.lock();
                if !*stirred {
                    self.stir.wait_for(&mut stirred, TICK);
                }
                std::mem::take(&mut *stirred)
            };
            if self.closing.load(Ordering::Relaxed) {
                return;
            }
            self.survey();
            if looked.elapsed() >= LOOK {
                self.seats().filter(|seat| self.is_here(*seat)).for_each(|seat| self.look_at(seat));
                looked = Instant::now();
            }
            let now_leaving = self.leaving();
            let is_stirred = is_stirred || now_leaving != leaving;
            leaving = now_leaving;
            if is_stirred || repaired.is_none_or(|last| last.elapsed() >= REPAIR) {
                self.repair(None);
                repaired = Some(Instant::now());
            }
            if Instant::now() >= check_at {
                next_key = self.check_some(&next_key.take().unwrap_or_default(), Instant::now() + CHECK_FOR);
                if next_key.is_none() {
                    check_at = Instant::now() + CHECK_AFTER;
                }
            }
        }
    }

    /// Makes missing and bad parts again. With a time until which somebody waits for it, as fast as it can, also those on
    /// places that went away just now; else slowly. Returns false if the time was too short.
    fn repair(&self, until: Option<Instant>) -> bool {
        let asked = until.is_some();
        if asked {
            let stuck = self.debts(true).stuck.into_iter().map(|(key, _)| key);
            let only_bad = self.index.lock().only_bad();
            for key in stuck.chain(only_bad) {
                if self.pardon(&key) {
                    self.check_object(&key);
                }
            }
        }
        let Debts { due: mut debts, waiting, stuck, twice } = self.debts(asked);
        debts.sort_by_key(|debt| debt.spare);
        let moves = debts.iter().filter(|debt| debt.moves).count();
        self.tally.debts.store((debts.len() - moves + waiting) as u64, Ordering::Relaxed);
        self.tally.moves.store(moves as u64, Ordering::Relaxed);
        let only_bad = self.index.lock().only_bad().len();
        self.tally.stuck.store((stuck.len() + only_bad) as u64, Ordering::Relaxed);
        let mut done = 0;
        for debt in &debts {
            let begun = Instant::now();
            let is_late = done > 0 && until.is_some_and(|until| begun >= until);
            if is_late || self.closing.load(Ordering::Relaxed) {
                return false;
            }
            match self.make_again(debt) {
                Ok(true) => {
                    done += 1;
                    let open = if debt.moves { &self.tally.moves } else { &self.tally.debts };
                    open.fetch_sub(1, Ordering::Relaxed);
                }
                Ok(false) => {} // no place takes it
                Err(refusal) => {
                    tracing::warn!(object = debt.key, why = %refusal.cause, "its parts were not made again");
                }
            }
            if !asked {
                self.pause(begun.elapsed());
            }
        }
        if done > 0 {
            tracing::info!(objects = done, of = debts.len(), "parts that were missing or bad were made again");
        }
        self.drop_replaced();
        // What was copied from a place that leaves goes from there at once.
        let twice = if done > 0 && !self.leaving().is_empty() { self.debts(asked).twice } else { twice };
        for (key, edition, part, seat) in twice {
            self.drop_twin(&key, edition, part, seat);
        }
        self.collect_remains(stuck);
        true
    }
    /// Checks every part of every object, then makes again what is missing or bad: some now, from where the previous call
    /// ended. Returns where to go on, or `None` at the end.
    pub fn mend_some(&self, from: Option<&str>) -> Option<String> {
        let until = Instant::now() + MEND_FOR;
        if from.is_none() {
            self.refresh("");
        }
        if let Some(next) = self.check_some(from.unwrap_or_default(), until) {
            return Some(next);
        }
        (!self.repair(Some(until))).then(|| CHECKED.to_owned())
    }
    fn pause(&self, worked: Duration) {
        let permille = self.pace.repair_permille.clamp(1, 1000);
        let until = Instant::now() + worked * (1000 - permille) / permille;
        while Instant::now() < until && !self.closing.load(Ordering::Relaxed) {
            std::thread::sleep((until - Instant::now()).min(Duration::from_millis(20)));
        }
    }

    fn debts(&self, asked: bool) -> Debts {
        let mut all = Debts::default();
        let putting = self.putting.lock().clone();
        let here: Vec<bool> = self.seats().map(|seat| self.is_here(seat)).collect();
        let stays: Vec<bool> = self.seats().map(|seat| self.stays(seat)).collect();
        let lost: Vec<bool> = self.seats().map(|seat| asked || self.chair(seat).is_lost(self.pace.away_for)).collect();
        let index = self.index.lock();
        for (key, kept) in index.iter() {
            let shape = kept.edition.shape;
            let seats = kept.seats(|seat| here[usize::from(seat)]);
            let staying = kept.seats(|seat| stays[usize::from(seat)]);
            let (there, needed) = (seats.iter().flatten().count(), shape.needed());
            let kept_well = staying.iter().flatten().count();
            if (kept_well == shape.held().count() && kept.at.len() == kept_well) || putting.contains(key) {
                continue;
            }
            if there < needed {
                all.stuck.push((key.clone(), kept.clone()));
                continue;
            }
            let is_expected =
                |part: usize| kept.at.iter().any(|(at, seat)| usize::from(*at) == part && !lost[usize::from(*seat)]);
            let (waiting, parts): (Vec<usize>, Vec<usize>) = shape
                .held()
                .filter(|part| staying[*part].is_none())
                .partition(|part| seats[*part].is_none() && is_expected(*part));
            if !parts.is_empty() {
                let moves = parts.iter().all(|part| seats[*part].is_some());
                let parts = parts.into_iter().map(|part| part as u8).collect();
                all.due.push(Debt { spare: there - needed, key: key.clone(), kept: kept.clone(), parts, moves });
            } else if !waiting.is_empty() {
                all.waiting += 1;
            } else {
                let twins = kept
                    .at
                    .iter()
                    .filter(|(part, seat)| here[usize::from(*seat)] && staying[usize::from(*part)] != Some(*seat));
                all.twice.extend(twins.map(|(part, seat)| (key.clone(), kept.edition, *part, *seat)));
            }
        }
        all
    }

    /// Makes parts of an object again. Returns false if some found no place.
    fn make_again(&self, debt: &Debt) -> Answer<bool> {
        let Debt { key, kept, parts, .. } = debt;
        let edition = kept.edition;
        // What is deleted meanwhile must not come back.
        let _alone = self.repairing.lock();
        let Some(kept) = self.index.lock().edition(key, edition).cloned() else { return Ok(true) };
        let (_, wanted) = self.assign(key, edition, &[]);
        let wanted: Vec<(u8, Seat)> = wanted.into_iter().filter(|(part, _)| parts.contains(part)).collect();
        if wanted.is_empty() {
            return Ok(false);
        }
        let numbers: Vec<u8> = wanted.iter().map(|(part, _)| *part).collect();
        let made = self.rebuild_parts(key, &kept, &numbers)?;
        let mut all = vec![Vec::new(); edition.shape.parts()];
        for (part, bytes) in made {
            self.tally.bytes_made.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            all[usize::from(part)] = vec![bytes];
        }
        let mut failed = None;
        for ((part, seat), answer) in wanted.iter().zip(self.write_at_once(key, edition, &all, &wanted)) {
            match answer {
                Ok(()) => {
                    self.chair(*seat).set_willing();
                    self.tally.parts_made.fetch_add(1, Ordering::Relaxed);
                    self.heads.drop_one(*seat, edition, *part);
                    self.index.lock().add(key, edition, *part, *seat);
                    self.drop_bad(key, edition, *part);
                }
                Err(refusal) => {
                    if !self.note(*seat, &refusal) {
                        self.chair(*seat).set_unwilling(refusal.clone());
                    }
                    failed = Some(refusal);
                }
            }
        }
        match failed {
            Some(refusal) => Err(refusal),
            None => Ok(wanted.len() == parts.len()),
        }
    }
    /// Deletes files of bad parts that were made again while their own places were away.
    fn drop_replaced(&self) {
        let bad = self.index.lock().all_bad();
        for (key, edition, part, seat) in bad.into_iter().filter(|(.., seat)| self.is_here(*seat)) {
            let _alone = self.repairing.lock();
            let is_bad = self.index.lock().bad_of(&key, edition).contains(&(part, seat));
            let kept = self.index.lock().edition(&key, edition).cloned().filter(|_| is_bad);
            let is_replaced = kept.is_some_and(|kept| kept.seats(|at| self.is_here(at))[usize::from(part)].is_some());
            let name = PartName { key: key.clone(), part, edition }.encode();
            if is_replaced && self.chair(seat).place.delete(&name).is_ok() {
                self.index.lock().remove(&key, edition, part, seat);
            }
        }
    }
    /// Deletes files of a bad part that was made again on another place.
    fn drop_bad(&self, key: &str, edition: Edition, part: u8) {
        let bad = self.index.lock().bad_of(key, edition);
        for (_, seat) in bad.into_iter().filter(|(at, _)| *at == part) {
            let name = PartName { key: key.to_owned(), part, edition }.encode();
            if self.chair(seat).place.delete(&name).is_ok() {
                self.index.lock().remove(key, edition, part, seat);
            }
        }
    }

    /// The bytes of parts, from those of the others.
    fn rebuild_parts(&self, key: &str, kept: &Kept, wanted: &[u8]) -> Answer<Vec<(u8, Bytes)>> {
        let shape = kept.edition.shape;
        let seats = kept.seats(|seat| self.is_here(seat));
        let read = |part: usize, seat: Seat| {
            let name = PartName { key: key.to_owned(), part: part as u8, edition: kept.edition };
            self.read_part(seat, &name, 0..name.part_len()).map_err(|trouble| {
                self.note_trouble(key, kept.edition, part as u8, seat, trouble);
                Refusal::passing("one of the parts that it is made from turned out to be missing or bad")
            })
        };
        // What moves is only copied.
        let (moving, missing): (Vec<u8>, Vec<u8>) =
            wanted.iter().partition(|part| seats[usize::from(**part)].is_some());
        let moved = |part: u8| {
            let seat = seats[usize::from(part)].ok_or_else(|| self.too_few_parts(kept))?;
            Ok((part, read(usize::from(part), seat)?))
        };
        let mut made: Vec<(u8, Bytes)> = moving.into_iter().map(moved).collect::<Answer<_>>()?;
        if missing.is_empty() {
            return Ok(made);
        }
        let mut bytes: Vec<Option<Bytes>> = vec![None; shape.parts()];
        let sources = shape.held().filter_map(|part| Some((part, seats[part]?)));
        for (part, seat) in sources.take(shape.needed()) {
            bytes[part] = Some(read(part, seat)?);
        }
        if shape.is_copies() {
            let copy = bytes.into_iter().flatten().next().ok_or_else(|| self.too_few_parts(kept))?;
            made.extend(missing.into_iter().map(|part| (part, copy.clone())));
            return Ok(made);
        }
        let is_empty = |part: usize| part < usize::from(shape.data) && shape.part_len(part) == 0;
        let present: Vec<Option<&[u8]>> = (0..shape.parts())
            .map(|part| if is_empty(part) { Some(&[][..]) } else { bytes[part].as_deref() })
            .collect();
        let internal = |error: cenote_model::Error| Refusal::new(ErrorKind::Internal, error.to_string());
        let code = Code::new(usize::from(shape.data), usize::from(shape.parity)).map_err(internal)?;
        // One by one: a short data part is wanted to its own length.
        for part in missing {
            let mut out = vec![0; shape.part_len(usize::from(part)) as usize];
            code.rebuild(&present, &mut [(usize::from(part), &mut out[..])]).map_err(internal)?;
            made.push((part, out.into()));
        }
        Ok(made)
    }

    /// Deletes a part that lies on another place, too.
    fn drop_twin(&self, key: &str, edition: Edition, part: u8, seat: Seat) {
        let _alone = self.repairing.lock();
        let name = PartName { key: key.to_owned(), part, edition };
        let other = self.index.lock().edition(key, edition).and_then(|kept| {
            kept.at
                .iter()
                .find(|(at, other)| *at == part && *other != seat && self.stays(*other))
                .map(|(_, other)| *other)
        });
        // Only after the other one was read as a whole.
        let is_good = other.is_some_and(|other| self.check_part(other, &name).is_ok());
        if is_good && self.chair(seat).place.delete(&name.encode()).is_ok() {
            self.index.lock().remove(key, edition, part, seat);
        }
    }

    /// Deletes what interrupted puts left, some time after it was seen first with all places there.
    fn collect_remains(&self, stuck: Vec<(String, Kept)>) {
        if self.away_count() > 0 || stuck.len() > REMAINS_MAX {
            for (key, kept) in &stuck {
                self.index.lock().set_too_few(key, kept.edition, None);
            }
            return;
        }
        for (key, kept) in stuck {
            let has_bad = !self.index.lock().bad_of(&key, kept.edition).is_empty();
            if has_bad || self.putting.lock().contains(&key) {
                continue; // a loss
            }
            let since = kept.too_few_since.unwrap_or_else(Instant::now);
            self.index.lock().set_too_few(&key, kept.edition, Some(since));
            if since.elapsed() >= self.pace.remains_for {
                tracing::info!(object = key, "the remains of an interrupted put are deleted");
                let _alone = self.repairing.lock();
                let _ = self.delete_edition(&key, &kept); // the next round tries again
            }
        }
    }
}

impl Inner {
    /// Reads and checks every part of objects from a key on; returns the next key, or `None` after the last.
    fn check_some(&self, from: &str, until: Instant) -> Option<String> {
        let keys = self.index.lock().keys();
        for (number, key) in keys.into_iter().filter(|key| key.as_str() >= from).enumerate() {
            if number > 0 && Instant::now() >= until || self.closing.load(Ordering::Relaxed) {
                return Some(key);
            }
            self.check_object(&key);
        }
        None
    }
    fn check_object(&self, key: &str) {
        let all = self.index.lock().editions(key).to_vec();
        for kept in all {
            for (part, seat) in kept.at.iter().copied().filter(|(_, seat)| self.is_here(*seat)) {
                let name = PartName { key: key.to_owned(), part, edition: kept.edition };
                let Err(trouble) = self.check_part(seat, &name) else { continue };
                // It may have been deleted meanwhile.
                let is_known = self.index.lock().edition(key, kept.edition).is_some();
                if is_known {
                    self.note_trouble(key, kept.edition, part, seat, trouble);
                }
            }
        }
    }
    fn check_part(&self, seat: Seat, name: &PartName) -> Result<(), PartTrouble> {
        self.heads.drop_one(seat, name.edition, name.part);
        let mut at = 0;
        loop {
            let end = (at + CHECK_BYTES).min(name.part_len());
            self.read_part(seat, name, at..end)?;
            at = end;
            if at >= name.part_len() {
                return Ok(());
            }
        }
    }
}
