//! Claims: which store directory has a tier open. An object service has no locks, so a copy of the store's directory,
//! or of the disk that holds it, could write below the same prefix as the store itself.
//!
//! Each opening stores an object with the next number, which must be free, and a random token; the store's directory
//! notes both first. An opening must know the token of the previous opening: of a store and its copy, only the one that
//! opened last does. The other one finds a number above its own, or another token, before it writes or deletes anything
//! more, and does neither.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cenote_model::{DeviceId, DeviceKind, Error, ErrorKind, Result, StoreId};
use parking_lot::Mutex;

use super::place::{BucketPath, Named};
use super::service::ObjectService;
use crate::sums::sum_of;
use crate::{Clock, MetaDir, SystemClock};

const MAGIC: &str = "cenote-claim 1";
const NOTE_MAGIC: &str = "cenote-claim-note 1";
/// Prefix of the names of note files; the tier's number follows.
const FILE_PREFIX: &str = "tier-claim-";
/// In a note: take the tier, whoever has it.
const TAKE_OVER: &str = "take-over";
/// A check of the claims is valid for this long before a pack is sent. A deletion always checks.
const LOOKED_FOR: Duration = Duration::from_secs(5);
/// Longest claim that is read.
const CLAIM_BYTES_MAX: u64 = 64 << 10;
/// Upper bound of the openings in a note of which it is unknown whether they reached the service.
const UNSURE_MAX: usize = 32;
/// How often an opening that finds its number taken checks again who took it.
const TRIES: u32 = 8;

/// The notes in a store's directory of what the store has claimed.
#[derive(Clone)]
pub struct ClaimNotes {
    meta: Arc<dyn MetaDir>,
    /// The directory's path, for error messages.
    dir: PathBuf,
}

impl std::fmt::Debug for ClaimNotes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimNotes").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// An opening by this directory: number and token of its claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Opening {
    number: u64,
    token: u128,
}

/// The note about one tier in the store's directory.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Note {
    /// The last opening that is known to have reached the service; then those of which that is unknown.
    openings: Vec<Opening>,
    takes_over: bool,
    /// Numbers of packs that the previous holder sent after the tier was taken over: they are ignored.
    late: Vec<Range<u64>>,
}

impl Note {
    fn encode(&self) -> Vec<u8> {
        let mut body = String::new();
        for Opening { number, token } in &self.openings {
            let _ = writeln!(body, "claim {number} {token:032x}"); // into memory
        }
        for late in &self.late {
            let _ = writeln!(body, "late {} {}", late.start, late.end);
        }
        if self.takes_over {
            body.push_str(TAKE_OVER);
            body.push('\n');
        }
        with_sum(NOTE_MAGIC, &body)
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut note = Self::default();
        for line in body_of(NOTE_MAGIC, bytes)?.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["claim", number, token] => note
                    .openings
                    .push(Opening { number: number.parse().ok()?, token: u128::from_str_radix(token, 16).ok()? }),
                ["late", start, end] => note.late.push(start.parse().ok()?..end.parse().ok()?),
                [TAKE_OVER] => note.takes_over = true,
                _ => return None,
            }
        }
        Some(note)
    }
    fn knows(&self, claim: &Claim) -> bool {
        self.openings.iter().any(|opening| opening.token == claim.token)
    }
}

fn with_sum(magic: &str, body: &str) -> Vec<u8> {
    format!("{magic}\nsum {:08x}\n{body}", sum_of(body.as_bytes())).into_bytes()
}

fn body_of<'a>(magic: &str, bytes: &'a [u8]) -> Option<&'a str> {
    let rest = std::str::from_utf8(bytes).ok()?.strip_prefix(magic)?.strip_prefix("\nsum ")?;
    let (sum, body) = (rest.get(..8)?, rest.get(8..)?.strip_prefix('\n')?);
    (u32::from_str_radix(sum, 16).ok()? == sum_of(body.as_bytes())).then_some(body)
}

impl ClaimNotes {
    /// Notes in the directory `dir`, opened as `meta`.
    pub fn new(meta: Arc<dyn MetaDir>, dir: impl Into<PathBuf>) -> Self {
        Self { meta, dir: dir.into() }
    }
    /// Name of the note file of a tier.
    fn file_name(id: DeviceId) -> String {
        format!("{FILE_PREFIX}{}", id.0)
    }
    /// Returns true for names of note files.
    pub fn is_file_name(name: &str) -> bool {
        name.starts_with(FILE_PREFIX)
    }
    /// Lets the next opening take the tier, whoever has it: the directory that had it open is gone, or is to lose it.
    pub fn take_over(&self, id: DeviceId) -> Result<()> {
        let note = match self.read(id) {
            Err(error) if error.kind() == ErrorKind::Corrupt => Note::default(), // taking over needs nothing of the note
            note => note?,
        };
        self.write(id, &Note { takes_over: true, ..note })
    }
    /// Deletes the note of a tier that was removed.
    pub fn forget(&self, id: DeviceId) -> Result<()> {
        match self.meta.remove(&Self::file_name(id)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
    fn read(&self, id: DeviceId) -> Result<Note> {
        let name = Self::file_name(id);
        match self.meta.read_file(&name) {
            Ok(bytes) => Note::decode(&bytes).ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, self.dir.join(&name).display().to_string())
                    .because("it is damaged, or of a later version")
                    .try_next(format!(
                        "if no other directory of this store is in use, `cenote adopt {}`",
                        self.dir.display()
                    ))
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Note::default()),
            Err(error) => Err(error),
        }
    }
    fn write(&self, id: DeviceId, note: &Note) -> Result<()> {
        self.meta.write_file(&Self::file_name(id), &note.encode())
    }
    /// Restores the note after an opening was refused and stored nothing. If this fails, the opening stays noted, which
    /// is harmless.
    fn put_back(&self, id: DeviceId, before: &Note) {
        let _ = if *before == Note::default() { self.forget(id) } else { self.write(id, before) };
    }
}

/// A claim, as the service stores it.
struct Claim {
    token: u128,
    /// Who claimed it and when, for error messages.
    by: String,
}

impl Claim {
    fn mine(token: u128, (store, id): (StoreId, DeviceId), notes: &ClaimNotes) -> Vec<u8> {
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let (pid, ms) = (std::process::id(), SystemClock.unix_ms());
        let dir = notes.dir.display();
        let body = format!(
            "store {store}\ndevice {}\ntoken {token:032x}\nunix-ms {ms}\nby process {pid} on {machine}, for {dir}\n",
            id.0
        );
        with_sum(MAGIC, &body)
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        let body = body_of(MAGIC, bytes)?;
        let field = |name: &str| body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Some(Self { token: u128::from_str_radix(field("token")?, 16).ok()?, by: field("by")?.to_owned() })
    }
}

/// The opening of this process.
pub(super) struct Held {
    this: Opening,
    /// The claim that must still have existed when this one was stored; `None` if there was no claim at all.
    follows: Option<u64>,
    notes: ClaimNotes,
    id: DeviceId,
    /// The previous note.
    before: Note,
    looked: Mutex<Looked>,
}

#[derive(Default)]
struct Looked {
    when: Option<Instant>,
    /// Set once another directory has the tier.
    lost: Option<Error>,
}

/// Numbers of the claims among these objects, ascending.
pub(super) fn numbers(place: &BucketPath, objects: &[(String, u64)]) -> Vec<u64> {
    let of = |(key, _): &(String, u64)| match place.named(key) {
        Some(Named::Claim(number)) => Some(number),
        _ => None,
    };
    let mut numbers: Vec<u64> = objects.iter().filter_map(of).collect();
    numbers.sort_unstable();
    numbers
}

/// Numbers of all claims, ascending; `least`: a claim known to have existed, or 0.
fn listed(service: &dyn ObjectService, place: &BucketPath, least: u64) -> Result<Vec<u64>> {
    let prefix = place.claims();
    let objects = service.list(&prefix).map_err(|refusal| place.error(&prefix, &refusal))?;
    with_unlisted(service, place, numbers(place, &objects), least)
}

/// Adds claims that a listing of Swift still lacks although they can be read: probes the next numbers.
fn with_unlisted(
    service: &dyn ObjectService,
    place: &BucketPath,
    mut numbers: Vec<u64>,
    least: u64,
) -> Result<Vec<u64>> {
    if place.kind == DeviceKind::Swift {
        let mut next = numbers.last().map_or(0, |last| *last).max(least.saturating_sub(1)) + 1;
        while is_there(service, place, next)? {
            numbers.push(next);
            next += 1;
        }
    }
    Ok(numbers)
}

fn is_there(service: &dyn ObjectService, place: &BucketPath, number: u64) -> Result<bool> {
    let key = place.claim_key(number);
    match service.get(&key, 0, 1) {
        Ok(_) => Ok(true),
        Err(refusal) if refusal.kind == ErrorKind::NotFound => Ok(false),
        Err(refusal) => Err(place.error(&key, &refusal)),
    }
}

/// The result of reading a claim.
enum ClaimRead {
    Gone,
    /// The claim cannot be decoded: damaged, or of a later version.
    Unclear,
    Clear(Claim),
}

fn read(service: &dyn ObjectService, place: &BucketPath, number: u64) -> Result<ClaimRead> {
    let key = place.claim_key(number);
    match service.get(&key, 0, CLAIM_BYTES_MAX) {
        Ok(bytes) => Ok(Claim::decode(&bytes).map_or(ClaimRead::Unclear, ClaimRead::Clear)),
        Err(refusal) if refusal.kind == ErrorKind::NotFound => Ok(ClaimRead::Gone),
        Err(refusal) => Err(place.error(&key, &refusal)),
    }
}

#[cold]
fn somebody_elses(place: &BucketPath, found: &ClaimRead, notes: &ClaimNotes) -> Error {
    let by = match found {
        ClaimRead::Clear(claim) => claim.by.as_str(),
        ClaimRead::Unclear | ClaimRead::Gone => "somebody whose claim cannot be read",
    };
    let dir = notes.dir.display();
    Error::new(ErrorKind::Exists, place.subject())
        .because(format!("it was opened last for another copy, or a later state, of this store's directory: by {by}"))
        .try_next(format!(
            "use that one instead of this; if it is gone, `cenote adopt {dir}` takes the tier for this one, after \
             which the other one writes there no more. A second store needs a tier of its own: `cenote init` with another \
             prefix, since `cenote clone` cannot copy what is in a bucket"
        ))
}

/// Claims a tier for the directory, or reports who has it. A listing made afterwards has to confirm it
/// ([`Held::confirm`]).
pub(super) fn enter(
    service: &dyn ObjectService,
    place: &BucketPath,
    (store, id): (StoreId, DeviceId),
    notes: &ClaimNotes,
) -> Result<Held> {
    let before = notes.read(id)?;
    let mut note = before.clone();
    let claim = |note: &mut Note, number: u64, follows: Option<u64>| {
        let this = Opening { number, token: drawn(place)? };
        note.openings.push(this);
        if note.openings.len() > UNSURE_MAX {
            note.openings.remove(1);
        }
        notes.write(id, note)?;
        let key = place.claim_key(number);
        let bytes = Bytes::from(Claim::mine(this.token, (store, id), notes));
        match service.put(&key, &[bytes], true) {
            Ok(()) => {
                let (notes, before) = (notes.clone(), before.clone());
                Ok(Some(Held { this, follows, notes, id, before, looked: Mutex::default() }))
            }
            Err(refusal) if refusal.kind == ErrorKind::Exists => {
                // Another directory has the number: this opening stored nothing.
                note.openings.pop();
                Ok(None)
            }
            Err(refusal) => Err(place.error(&key, &refusal)),
        }
    };
    // As a rule nobody else claimed the tier meanwhile, and one request proves it. Where listings lag behind, list
    // first.
    if let ([last], false, DeviceKind::S3 | DeviceKind::Rados | DeviceKind::Raid) =
        (&before.openings[..], before.takes_over, place.kind)
        && let Some(held) = claim(&mut note, last.number + 1, Some(last.number))?
    {
        return Ok(held);
    }
    let least = before.openings.iter().map(|opening| opening.number).max().unwrap_or(0);
    for _ in 0..TRIES {
        let last = listed(service, place, least)?.last().copied();
        if let Some(last) = last {
            let found = read(service, place, last)?;
            let is_mine = matches!(&found, ClaimRead::Clear(claim) if note.knows(claim));
            if !is_mine && !before.takes_over {
                notes.put_back(id, &before);
                return Err(somebody_elses(place, &found, notes));
            }
        }
        if let Some(held) = claim(&mut note, last.unwrap_or(0).max(least) + 1, None)? {
            return Ok(held);
        }
    }
    Err(Error::new(ErrorKind::Busy, place.subject())
        .because("others claim it at the same time, again and again")
        .try_next("see which processes open a copy of this store's directory, and stop them"))
}

fn drawn(place: &BucketPath) -> Result<u128> {
    let mut token = [0; 16];
    rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::io(place.subject(), &errno.into()))?;
    Ok(u128::from_le_bytes(token))
}

/// Fails if the tier, which is to be removed, is open for another directory.
pub(super) fn check_removal(
    service: &dyn ObjectService,
    place: &BucketPath,
    id: DeviceId,
    notes: &ClaimNotes,
) -> Result<()> {
    let note = notes.read(id)?;
    let Some(last) = listed(service, place, 0)?.last().copied() else { return Ok(()) };
    let found = read(service, place, last)?;
    let is_mine = matches!(&found, ClaimRead::Clear(claim) if note.knows(claim));
    if is_mine || note.takes_over { Ok(()) } else { Err(somebody_elses(place, &found, notes)) }
}

impl Held {
    /// Fails, and leaves no trace of this opening, if another directory had the tier when it was claimed; `numbers` are
    /// the claims listed since. Otherwise deletes the earlier claims, which this one supersedes.
    pub fn confirm(&self, service: &dyn ObjectService, place: &BucketPath, numbers: Vec<u64>) -> Result<()> {
        let others: Vec<u64> = with_unlisted(service, place, numbers, self.this.number + 1)?;
        let others: Vec<u64> = others.into_iter().filter(|number| *number != self.this.number).collect();
        let Some(last) = others.last().copied() else { return Ok(()) };
        if last > self.this.number || self.follows.is_some_and(|follows| !others.contains(&follows)) {
            let found = read(service, place, last)?;
            let key = place.claim_key(self.this.number);
            if service.delete(&key).is_ok() {
                self.notes.put_back(self.id, &self.before);
            }
            return Err(somebody_elses(place, &found, &self.notes));
        }
        for number in others {
            let key = place.claim_key(number);
            match service.delete(&key) {
                // A holder that does not list looks for its own claim: it must not outlive those between.
                Err(refusal) if place.kind == DeviceKind::Rados => return Err(place.error(&key, &refusal)),
                _ => {} // the next opening tries again
            }
        }
        Ok(())
    }
    /// Numbers of packs that a former holder sent after it had lost the tier.
    pub fn late(&self) -> &[Range<u64>] {
        &self.before.late
    }
    /// Records that the tier is open. `unlisted`: numbers between the existing packs and those of this opening; `None`
    /// if the listing may have missed a pack.
    pub fn begins(&self, unlisted: Option<Range<u64>>) -> Result<()> {
        let mut late = self.before.late.clone();
        late.extend(unlisted.filter(|range| self.before.takes_over && !range.is_empty()));
        self.notes.write(self.id, &Note { openings: vec![self.this], takes_over: false, late })
    }
    /// Fails if another directory has claimed the tier since the last known check. `surely`: asks the service now.
    pub fn check(&self, service: &dyn ObjectService, place: &BucketPath, surely: bool) -> Result<()> {
        let looked = self.looked.lock();
        if let Some(lost) = &looked.lost {
            return Err(lost.clone());
        }
        if !surely && looked.when.is_some_and(|when| when.elapsed() < LOOKED_FOR) {
            return Ok(());
        }
        drop(looked); // do not let others wait for a silent service that this call asks
        let begun = Instant::now();
        let other = self.other(service, place)?;
        let mut looked = self.looked.lock();
        let Some(other) = other else {
            looked.when = Some(begun);
            return Ok(());
        };
        let lost = somebody_elses(place, &other, &self.notes);
        tracing::error!(error = %lost, "nothing is written to this tier any more");
        looked.lost = Some(lost.clone());
        Err(lost)
    }
    /// Returns true if this claim is there and the next number is not: then there is no later one, since whoever claims
    /// a tier takes the number after the last, and deletes all earlier claims, this one first. Two reads, where a list
    /// takes time in proportion to a whole pool.
    fn is_last(&self, service: &dyn ObjectService, place: &BucketPath) -> Result<bool> {
        if is_there(service, place, self.this.number + 1)? {
            return Ok(false);
        }
        let own = read(service, place, self.this.number)?;
        Ok(matches!(own, ClaimRead::Clear(claim) if claim.token == self.this.token))
    }
    /// The claim of another directory that has the tier now.
    fn other(&self, service: &dyn ObjectService, place: &BucketPath) -> Result<Option<ClaimRead>> {
        if place.kind == DeviceKind::Rados && self.is_last(service, place)? {
            return Ok(None);
        }
        let numbers = listed(service, place, self.this.number)?;
        let last = numbers.last().copied();
        if let Some(last) = last.filter(|last| *last > self.this.number) {
            return Ok(Some(read(service, place, last)?));
        }
        match read(service, place, self.this.number)? {
            ClaimRead::Clear(claim) if claim.token == self.this.token => Ok(None),
            // Somebody deleted all claims: no other directory has one.
            ClaimRead::Gone if last.is_none() => Ok(None),
            // The claim went after the listing: whoever takes the tier deletes earlier claims.
            ClaimRead::Gone => {
                let last = listed(service, place, self.this.number)?.last().copied();
                last.map_or(Ok(ClaimRead::Gone), |last| read(service, place, last)).map(Some)
            }
            found => Ok(Some(found)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_and_claims_come_back_as_written_and_damage_is_noticed() {
        let openings = [(7, u128::MAX), (8, 3)].map(|(number, token)| Opening { number, token });
        let note = Note { openings: openings.into(), takes_over: true, late: vec![2..1001, 1500..2100] };
        let bytes = note.encode();
        assert_eq!(Note::decode(&bytes), Some(note));
        let notes = ClaimNotes::new(Arc::new(crate::mem::MemMetaDir::default()), "/a\ntoken 0/b");
        let claim = Claim::mine(9, (StoreId(1), DeviceId(2)), &notes);
        assert_eq!(Claim::decode(&claim).unwrap().token, 9);
        for (good, is_note) in [(bytes, true), (claim, false)] {
            for at in 0..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 2;
                assert!(
                    if is_note { Note::decode(&bad).is_none() } else { Claim::decode(&bad).is_none() },
                    "byte {at}"
                );
            }
        }
    }
}
