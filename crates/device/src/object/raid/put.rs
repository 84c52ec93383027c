//! Puts: an object is cut, its parity computed, and every part written to a place of its own, all at once.

use bytes::Bytes;
use cenote_layout::{Code, StripeKey, choose_instead};
use cenote_model::{ContainerId, ErrorKind, ObjectId, ObjectKey};
use xxhash_rust::xxh3::xxh3_64;

use super::super::place::is_record;
use super::index::{Kept, Seat};
use super::part::{Edition, PartName, sums_of_pieces};
use super::service::Inner;
use super::shape::Shape;
use crate::object::service::{Answer, Refusal};

/// What the choice of places is made by: an object has all its stripes on the same places.
pub(super) fn stripe_key(key: &str) -> StripeKey {
    let object = ObjectKey { container: ContainerId(0), object: ObjectId(u128::from(xxh3_64(key.as_bytes()))) };
    StripeKey { object, stripe: 0 }
}

/// The prefix that lists the directory of a key.
pub(super) fn above(key: &str) -> &str {
    key.rfind('/').map_or("", |slash| &key[..=slash])
}

/// Takes a key off the list of puts under way.
struct Putting<'a>(&'a Inner, &'a str);

impl Drop for Putting<'_> {
    fn drop(&mut self) {
        let mut putting = self.0.putting.lock();
        if let Some(at) = putting.iter().position(|key| key == self.1) {
            putting.swap_remove(at);
        }
    }
}

impl Inner {
    pub fn put(&self, key: &str, content: &[Bytes], only_new: bool) -> Answer<()> {
        let shape = Shape::of(&self.layout, content.iter().map(|piece| piece.len() as u64).sum());
        let edition = Edition::of(self.owner, key, shape, content);
        self.putting.lock().push(key.to_owned());
        let _putting = Putting(self, key);
        if is_record(key) {
            // Another process may have stored one.
            self.refresh(above(key));
        }
        if only_new {
            self.refuse_taken(key, edition)?;
        }
        let parts = cut(shape, content)?;
        let (there, refused) = self.write_parts(key, edition, &parts);
        let (needed, all) = (shape.needed(), shape.held().count());
        // As Ceph's `min_size`: a second loss may follow at once if the layout is made for two. With one, writing goes on while a
        // place is away, as in any RAID. Who owns a tier is worth knowing with less.
        let least = if is_record(key) { needed } else { needed + usize::from(all > needed + 1) };
        if there < least {
            return Err(self.too_few_places(there, least, all, refused));
        }
        if only_new && is_record(key) {
            self.refuse_overtaken(key, edition)?;
        }
        if !only_new {
            let others: Vec<_> = self.index.lock().editions(key).to_vec();
            for other in others.iter().filter(|kept| kept.edition != edition) {
                self.delete_edition(key, other)?;
            }
        }
        if there < all {
            self.wake();
        }
        Ok(())
    }

    /// Fails if the key is taken. What an earlier attempt of the same put left is completed instead.
    fn refuse_taken(&self, key: &str, edition: Edition) -> Answer<()> {
        let all = edition.shape.held().count();
        let index = self.index.lock();
        let is_whole = |kept: &Kept| kept.count(|seat| self.is_here(seat)) == all;
        let taken = index.editions(key).iter().any(|kept| kept.edition != edition || is_whole(kept));
        if taken { Err(Refusal::new(ErrorKind::Exists, "there is an object of that name")) } else { Ok(()) }
    }
    /// Two processes may have stored a record at once. Each looks after it has written, so at least one of them finds the
    /// other's, and gives up.
    fn refuse_overtaken(&self, key: &str, edition: Edition) -> Answer<()> {
        let found = self.refresh(above(key));
        let all = found.get(key).map_or(&[][..], Vec::as_slice);
        if all.iter().all(|kept| kept.edition == edition) {
            return Ok(());
        }
        if let Some(own) = all.iter().find(|kept| kept.edition == edition) {
            self.delete_edition(key, own)?;
        }
        Err(Refusal::new(ErrorKind::Exists, "another process stored an object of that name at the same time"))
    }

    /// Writes the parts that are not there yet, each to a place that has no other part of the object; if a place fails, to
    /// another one. Returns how many are there, and why others are not.
    pub fn write_parts(&self, key: &str, edition: Edition, parts: &[Vec<Bytes>]) -> (usize, Option<String>) {
        let mut failed: Vec<Seat> = Vec::new();
        let mut refused = None;
        loop {
            let (seats, wanted) = self.assign(key, edition, &failed);
            let there = seats.iter().flatten().count() - wanted.len();
            if wanted.is_empty() {
                return (there, refused);
            }
            let written = self.write_at_once(key, edition, parts, &wanted);
            for ((part, seat), answer) in wanted.iter().zip(written) {
                match answer {
                    Ok(()) => {
                        self.chair(*seat).set_willing();
                        self.heads.drop_one(*seat, edition, *part);
                        self.index.lock().add(key, edition, *part, *seat);
                    }
                    Err(refusal) => {
                        let who = self.chair(*seat).place.who();
                        if !self.note(*seat, &refusal) {
                            tracing::warn!(place = %who, object = key, why = %refusal.cause, "a part was not written");
                            self.chair(*seat).set_unwilling(refusal.clone());
                        }
                        refused = Some(format!("{who}: {}", refusal.cause));
                        failed.push(*seat);
                    }
                }
            }
        }
    }

    /// The place of each part, and which of them are to be written.
    pub fn assign(&self, key: &str, edition: Edition, excluded: &[Seat]) -> (Vec<Option<Seat>>, Vec<(u8, Seat)>) {
        let shape = edition.shape;
        let kept = self.index.lock().edition(key, edition).cloned();
        let mut seats =
            kept.as_ref().map_or_else(|| vec![None; shape.parts()], |kept| kept.seats(|seat| self.stays(seat)));
        let candidates = self.candidates(excluded);
        let layout = shape.layout(self.layout.domain());
        let mut wanted = Vec::new();
        // One by one, as there may be fewer places than parts; data first, which are read without computing.
        for part in shape.held() {
            if seats[part].is_some() {
                continue;
            }
            let place = |(at, seat): (usize, &Option<Seat>)| match seat {
                Some(seat) => Some(self.chair(*seat).place.id()),
                None => (at != part).then(|| Self::nowhere(at)),
            };
            let kept: Vec<_> = seats.iter().enumerate().map(place).collect();
            let Ok(chosen) = choose_instead(stripe_key(key), &layout, &kept, &candidates) else { break };
            let Some(seat) = chosen.get(part).and_then(|place| self.seat_of(*place)) else { break };
            seats[part] = Some(seat);
            wanted.push((part as u8, seat));
        }
        (seats, wanted)
    }

    /// Writes parts to their places, all at once: a place of its own has a disk of its own.
    pub fn write_at_once(
        &self,
        key: &str,
        edition: Edition,
        parts: &[Vec<Bytes>],
        wanted: &[(u8, Seat)],
    ) -> Vec<Answer<()>> {
        let write = |(part, seat): (u8, Seat)| {
            let name = PartName { key: key.to_owned(), part, edition };
            let data = &parts[usize::from(part)];
            let mut pieces = vec![name.encode_head(self.owner, &sums_of_pieces(data))];
            pieces.extend_from_slice(data);
            self.chair(seat).place.put(&name.encode(), &pieces)
        };
        let Some((first, others)) = wanted.split_first() else { return Vec::new() };
        std::thread::scope(|scope| {
            let threads: Vec<_> = others.iter().map(|target| scope.spawn(move || write(*target))).collect();
            let mut answers = vec![write(*first)];
            let died = |_| Err(Refusal::passing("a thread that wrote a part ended"));
            answers.extend(threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)));
            answers
        })
    }

    #[cold]
    fn too_few_places(&self, there: usize, least: usize, all: usize, refused: Option<String>) -> Refusal {
        let kind = if self.is_full() { ErrorKind::Full } else { ErrorKind::Io };
        let (away, unwilling) = (self.who_is_away(), self.who_is_unwilling());
        let away_text = if away.is_empty() { String::new() } else { format!("; away are {away}") };
        let more = refused.filter(|why| !away.contains(why.as_str())).or(Some(unwilling));
        let more = more.filter(|why| !why.is_empty()).map_or_else(String::new, |why| format!("; {why}"));
        let cause = format!("{there} of {all} parts found a place that takes them, and {least} must{away_text}{more}");
        Refusal { kind, ..Refusal::passing(cause) }
    }
    /// Returns true if no place is away, but one has no room.
    fn is_full(&self) -> bool {
        let full = |seat: Seat| {
            let state = self.chair(seat).state.lock();
            state.unwilling.as_ref().is_some_and(|(_, why)| why.kind == ErrorKind::Full)
        };
        self.away_count() == 0 && self.seats().any(full)
    }
}

/// The bytes of each part. Data are slices of the content; parity is computed.
pub(super) fn cut(shape: Shape, content: &[Bytes]) -> Answer<Vec<Vec<Bytes>>> {
    if shape.is_copies() {
        return Ok(vec![content.to_vec(); shape.parts()]);
    }
    let data = usize::from(shape.data);
    let units = units_of(content, shape.unit() as usize);
    let mut parts: Vec<Vec<Bytes>> = vec![Vec::new(); data];
    for (number, unit) in units.iter().enumerate() {
        parts[number % data].push(unit.clone());
    }
    let parity_len = shape.part_len(data + usize::from(shape.parity) - 1) as usize;
    let mut parity = vec![vec![0; parity_len]; usize::from(shape.parity)];
    let internal = |error: cenote_model::Error| Refusal::new(ErrorKind::Internal, error.to_string());
    let code = Code::new(data, usize::from(shape.parity)).map_err(internal)?;
    if shape.parity > 0 {
        let unit = shape.unit() as usize;
        for (stripe, units) in units.chunks(data).enumerate() {
            let longest = units[0].len();
            let empty = std::iter::repeat_n(&[][..], data - units.len());
            let slices: Vec<&[u8]> = units.iter().map(|unit| &unit[..]).chain(empty).collect();
            let mut outputs: Vec<&mut [u8]> =
                parity.iter_mut().map(|part| &mut part[stripe * unit..][..longest]).collect();
            code.encode(&slices, &mut outputs).map_err(internal)?;
        }
    }
    parts.extend(parity.into_iter().map(|part| vec![Bytes::from(part)]));
    Ok(parts)
}

/// The content in units; only one that lies in two pieces is copied.
fn units_of(content: &[Bytes], unit: usize) -> Vec<Bytes> {
    let mut units = Vec::new();
    let mut begun: Vec<u8> = Vec::new();
    for piece in content {
        let mut rest = piece.clone();
        while !rest.is_empty() {
            if begun.is_empty() && rest.len() >= unit {
                units.push(rest.split_to(unit));
                continue;
            }
            let now = rest.split_to(rest.len().min(unit - begun.len()));
            begun.extend_from_slice(&now);
            if begun.len() == unit {
                units.push(std::mem::take(&mut begun).into());
            }
        }
    }
    if !begun.is_empty() {
        units.push(begun.into());
    }
    units
}
