//! Which directory of a store a tier is open for. An object service knows no locks, so a copy of the store's directory, or of the
//! disk that it is on, could write below the same prefix as the store itself.
//!
//! Each opening stores an object with the next number, which nobody may have stored yet, and a token drawn at random; the store's
//! directory notes the token first. Who opens it must know the token of the opening before: of a store and its copy only the one that
//! opened last does. The other one finds a number above its own before it writes on, or deletes anything, and does neither.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cenote_model::{DeviceId, DeviceKind, Error, ErrorKind, Result, StoreId};
use parking_lot::Mutex;

use super::place::{Named, Place};
use super::service::ObjectService;
use crate::sums::sum_of;
use crate::{Clock, MetaDir, SystemClock};

const MAGIC: &str = "cenote-claim 1";
const NOTE_MAGIC: &str = "cenote-claim-note 1";
/// Names of the files with notes begin so, and go on with the tier's number.
const FILE_PREFIX: &str = "tier-claim-";
/// In a note: whoever has the tier, it is taken.
const TAKE_OVER: &str = "take-over";
/// So long after a look nobody looks again before a pack is sent. What is deleted is always looked for.
const LOOKED_FOR: Duration = Duration::from_secs(5);
/// Longest claim that is read.
const CLAIM_BYTES_MAX: u64 = 64 << 10;

/// Where a store notes what it has claimed: its directory.
#[derive(Clone)]
pub struct ClaimNotes {
    meta: Arc<dyn MetaDir>,
    /// For a person.
    dir: PathBuf,
}

impl std::fmt::Debug for ClaimNotes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimNotes").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// What the store's directory says of one tier.
#[derive(Default, PartialEq, Eq, Debug)]
struct Note {
    /// Tokens of openings of this directory: the last one, and the one before if it is not known whether the last got to the service.
    tokens: Vec<u128>,
    takes_over: bool,
    /// The first number that a pack of the last opening could have; 0 if that is not known.
    begins: u64,
}

impl Note {
    fn encode(&self) -> Vec<u8> {
        let mut body = String::new();
        for token in &self.tokens {
            body += &format!("token {token:032x}\n");
        }
        if self.begins > 0 {
            body += &format!("begins {}\n", self.begins);
        }
        if self.takes_over {
            body += &format!("{TAKE_OVER}\n");
        }
        with_sum(NOTE_MAGIC, &body)
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut note = Self::default();
        for line in body_of(NOTE_MAGIC, bytes)?.lines() {
            match line.split_once(' ') {
                Some(("token", token)) => note.tokens.push(u128::from_str_radix(token, 16).ok()?),
                Some(("begins", number)) => note.begins = number.parse().ok()?,
                None if line == TAKE_OVER => note.takes_over = true,
                _ => return None,
            }
        }
        Some(note)
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
    /// Notes in the directory `dir`, which is `meta`.
    pub fn new(meta: Arc<dyn MetaDir>, dir: impl Into<PathBuf>) -> Self {
        Self { meta, dir: dir.into() }
    }
    /// Name of the file that is about a tier.
    fn file_name(id: DeviceId) -> String {
        format!("{FILE_PREFIX}{}", id.0)
    }
    /// True for names of such files.
    pub fn is_file_name(name: &str) -> bool {
        name.starts_with(FILE_PREFIX)
    }
    /// The next opening of the tier takes it, whoever has it: the directory that it was open for is gone, or is to lose it.
    pub fn take_over(&self, id: DeviceId) -> Result<()> {
        let note = self.read(id)?;
        self.write(id, &Note { takes_over: true, ..note })
    }
    /// The tier is gone.
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
}

/// An opening, as the service has it.
struct Claim {
    token: u128,
    /// By whom and when, for a person.
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

/// An opening of this process.
pub(super) struct Held {
    number: u64,
    token: u128,
    /// The first number that a pack of the opening before could have; 0 if that is not known.
    pub begun: u64,
    dir: PathBuf,
    looked: Mutex<Looked>,
}

struct Looked {
    when: Instant,
    /// Somebody else has it.
    lost: Option<Error>,
}

/// The numbers among these keys, in order.
fn numbers(place: &Place, keys: &[(String, u64)]) -> Vec<u64> {
    let of = |(key, _): &(String, u64)| match place.named(key) {
        Some(Named::Claim(number)) => Some(number),
        _ => None,
    };
    let mut numbers: Vec<u64> = keys.iter().filter_map(of).collect();
    numbers.sort_unstable();
    numbers
}

/// The numbers of all claims, in order; `least`: one that there was.
fn listed(service: &dyn ObjectService, place: &Place, least: u64) -> Result<Vec<u64>> {
    let prefix = place.claims();
    let keys = service.list(&prefix).map_err(|refusal| place.error(&prefix, &refusal))?;
    let mut numbers = numbers(place, &keys);
    if place.kind == DeviceKind::Swift {
        // What was stored in the last moments may not be listed yet, although it can be read.
        let mut next = numbers.last().map_or(0, |last| *last).max(least) + 1;
        while is_there(service, place, next)? {
            numbers.push(next);
            next += 1;
        }
    }
    Ok(numbers)
}

fn is_there(service: &dyn ObjectService, place: &Place, number: u64) -> Result<bool> {
    let key = place.claim_key(number);
    match service.get(&key, 0, 1) {
        Ok(_) => Ok(true),
        Err(refusal) if refusal.kind == ErrorKind::NotFound => Ok(false),
        Err(refusal) => Err(place.error(&key, &refusal)),
    }
}

fn read(service: &dyn ObjectService, place: &Place, number: u64) -> Result<Option<Claim>> {
    let key = place.claim_key(number);
    match service.get(&key, 0, CLAIM_BYTES_MAX) {
        Ok(bytes) => Ok(Claim::decode(&bytes)),
        Err(refusal) if refusal.kind == ErrorKind::NotFound => Ok(None),
        Err(refusal) => Err(place.error(&key, &refusal)),
    }
}

#[cold]
fn somebody_elses(place: &Place, by: Option<&Claim>, dir: &std::path::Path) -> Error {
    let by = by.map_or_else(|| "somebody whose claim cannot be read".to_owned(), |claim| claim.by.clone());
    let dir = dir.display();
    Error::new(ErrorKind::Exists, place.subject())
        .because(format!("it was opened last for another copy of this store's directory: by {by}"))
        .try_next(format!(
            "use that one, and delete the copy; `cenote adopt {dir}` takes the tier back for this one, after which the other one \
             writes there no more; `cenote clone` makes a store of its own of a copy whose tiers are in its directory"
        ))
}

/// Claims a tier for the directory, or says who has it.
pub(super) fn enter(
    service: &dyn ObjectService,
    place: &Place,
    (store, id): (StoreId, DeviceId),
    notes: &ClaimNotes,
) -> Result<Held> {
    let note = notes.read(id)?;
    let numbers = listed(service, place, 0)?;
    let last = numbers.last().copied();
    let mut known = note.tokens.clone();
    if let Some(last) = last {
        let claim = read(service, place, last)?;
        let is_mine = claim.as_ref().is_some_and(|claim| known.contains(&claim.token));
        if !is_mine && !note.takes_over {
            return Err(somebody_elses(place, claim.as_ref(), &notes.dir));
        }
        known.retain(|token| claim.as_ref().is_some_and(|claim| claim.token == *token));
    }
    let mut token = [0; 16];
    rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::io(place.subject(), &errno.into()))?;
    let token = u128::from_le_bytes(token);
    known.push(token);
    notes.write(id, &Note { tokens: known, ..note })?;
    let number = last.map_or(1, |last| last + 1);
    let key = place.claim_key(number);
    let bytes = Bytes::from(Claim::mine(token, (store, id), notes));
    let stored = service.put(&key, &[bytes], true);
    // Of a service that looks first and stores then, two may be told that theirs was new.
    let found = match &stored {
        Err(refusal) if refusal.kind != ErrorKind::Exists => return Err(place.error(&key, refusal)),
        _ => read(service, place, number)?,
    };
    if found.as_ref().is_none_or(|found| found.token != token) {
        return Err(somebody_elses(place, found.as_ref(), &notes.dir));
    }
    for before in numbers {
        // They say no more than the last one.
        let _ = service.delete(&place.claim_key(before));
    }
    let looked = Mutex::new(Looked { when: Instant::now(), lost: None });
    Ok(Held { number, token, begun: note.begins, dir: notes.dir.clone(), looked })
}

/// An error if the tier, which is to be removed, is open for another directory.
pub(super) fn check_removal(
    service: &dyn ObjectService,
    place: &Place,
    id: DeviceId,
    notes: &ClaimNotes,
) -> Result<()> {
    let Some(last) = listed(service, place, 0)?.last().copied() else { return Ok(()) };
    let (claim, note) = (read(service, place, last)?, notes.read(id)?);
    let is_mine = claim.as_ref().is_some_and(|claim| note.tokens.contains(&claim.token));
    if is_mine || note.takes_over { Ok(()) } else { Err(somebody_elses(place, claim.as_ref(), &notes.dir)) }
}

impl Held {
    /// The tier is open, and its packs have numbers from this one on.
    pub fn begins(&self, notes: &ClaimNotes, id: DeviceId, begins: u64) -> Result<()> {
        notes.write(id, &Note { tokens: vec![self.token], takes_over: false, begins })
    }
    /// An error if somebody else has claimed the tier since, as far as it is known. `surely`: as it is now.
    pub fn check(&self, service: &dyn ObjectService, place: &Place, surely: bool) -> Result<()> {
        let mut looked = self.looked.lock();
        if let Some(lost) = &looked.lost {
            return Err(lost.clone());
        }
        if !surely && looked.when.elapsed() < LOOKED_FOR {
            return Ok(());
        }
        if let Some(last) = listed(service, place, 0)?.last().copied().filter(|last| *last > self.number) {
            let lost = somebody_elses(place, read(service, place, last)?.as_ref(), &self.dir);
            tracing::error!(error = %lost, "nothing is written to this tier any more");
            looked.lost = Some(lost.clone());
            return Err(lost);
        }
        looked.when = Instant::now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_and_claims_come_back_as_written_and_damage_is_noticed() {
        let note = Note { tokens: vec![7, u128::MAX], takes_over: true, begins: 1001 };
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
