//! How a holder comes to a store: makes the head, or raises its term and seals the logs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, Result};
use cenote_rados::{Answer, Change, Check, Pool, Refusal, RefusalKind};

use super::RadosPlace;
use super::copy::LocalCopy;
use super::head::{
    CHANGE, FORMAT, FORMAT_TEXT, HEAD, HOLDER, Holder, Kind, Record, TERM, decode_holder, encode_holder, term_of,
};
use super::parts;
use super::tenure::{Tenure, until_answered};
use crate::{Clock, SystemClock};

/// Records that one operation reads.
const RECORDS: usize = 500;
/// Beyond the trust of the former holder: the clock that is read for each record is coarse.
const MARGIN: Duration = Duration::from_millis(20);
/// How long after an opening what earlier holders left is looked for.
const TIDY_AFTER: Duration = Duration::from_secs(1);

/// What the head says of its holder.
pub(super) struct Found {
    pub term: u64,
    pub holder: Holder,
    pub nonce: String,
}

/// A term that was raised.
pub(super) struct Claimed {
    pub tenure: Tenure,
    pub wait: Wait,
}

/// Until when the former holder may take changes without asking the pool.
pub(super) struct Wait(Option<Instant>);

impl Wait {
    /// Waits for it.
    pub fn pass(&self) {
        if let Some(until) = self.0 {
            thread::sleep(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// Sends a request that changes nothing, until it is answered.
fn ask<T>(place: &RadosPlace, send: impl FnMut(&dyn Pool) -> Answer<T>) -> Result<T> {
    until_answered(place.pool.as_ref(), &place.subject, place.timing.patience, send)
}

fn this_holder(place: &RadosPlace, term: u64) -> Holder {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let dir = place.local.parent().unwrap_or(&place.local);
    Holder {
        term,
        host: host.trim().to_owned(),
        pid: std::process::id(),
        dir: dir.display().to_string(),
        since_unix_ms: SystemClock.unix_ms(),
        trust_ms: place.timing.trust.as_millis() as u64,
        is_released: false,
    }
}

fn draw_nonce() -> String {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds its hash maps from the system's source of randomness.
    let random = || std::collections::hash_map::RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

/// Makes the head of a new store. `Exists` if there is one.
pub(super) fn create(place: &RadosPlace) -> Result<Tenure> {
    let (term, nonce, proved_ms) = (1_u64, draw_nonce(), Tenure::clock());
    let holder = this_holder(place, term);
    LocalCopy::expect(&place.local, &nonce)?;
    let text = encode_holder(&holder, &nonce);
    let changes = [
        Change::Create,
        Change::SetAttribute(TERM, &term.to_le_bytes()),
        Change::SetAttribute(CHANGE, &term.to_le_bytes()),
        Change::SetAttribute(HOLDER, text.as_bytes()),
        Change::SetRecord(FORMAT, FORMAT_TEXT.as_bytes()),
    ];
    let mut is_unsure = false;
    let made = ask(place, |pool| {
        let answer = pool.change(HEAD, &[Check::Absent], &changes);
        match answer {
            // An earlier attempt may have made it.
            Err(refusal) if refusal.kind == RefusalKind::Exists && is_unsure => {
                let found = look_once(pool)?;
                if found.nonce == nonce { Ok(()) } else { Err(refusal) }
            }
            Err(refusal) => {
                is_unsure |= refusal.kind == RefusalKind::Unanswered;
                Err(refusal)
            }
            Ok(()) => Ok(()),
        }
    });
    made.map(|()| Tenure::new(place, holder, nonce, proved_ms))
}

/// Fails if no store can be made here: there is one, or the pool does not take what stores keep in it. Leaves nothing.
pub(super) fn check_free(place: &RadosPlace) -> Result<()> {
    match look(place) {
        Ok(found) => return Err(super::taken(place, &found)),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    let object = format!("probe-{}", draw_nonce());
    let made = ask(place, |pool| {
        match pool.change(&object, &[], &[Change::Create, Change::SetRecord(FORMAT, FORMAT_TEXT.as_bytes())]) {
            // A pool without records refuses them as if they were absent.
            Err(refusal) if refusal.kind == RefusalKind::NotFound => {
                Err(Refusal { kind: RefusalKind::Unsupported, ..refusal })
            }
            answer => answer,
        }
    });
    let gone = ask(place, |pool| match pool.change(&object, &[], &[Change::Remove]) {
        Err(refusal) if refusal.kind == RefusalKind::NotFound => Ok(()),
        answer => answer,
    });
    made.and(gone)
}

/// Reads who has the store. `NotFound` if there is none.
pub(super) fn look(place: &RadosPlace) -> Result<Found> {
    ask(place, look_once).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::new(ErrorKind::NotFound, place.subject.clone())
            .because("no store has its home there")
            .try_next("check pool and name (`rados -p POOL ls --all`), or make a store: `cenote init DIR --on rados:POOL/NAME`"),
        _ => error,
    })
}

fn look_once(pool: &dyn Pool) -> Answer<Found> {
    let term = pool.attribute(HEAD, TERM)?.unwrap_or_default();
    let term = <[u8; 8]>::try_from(term.as_slice()).map(u64::from_le_bytes);
    let term = term.map_err(|_| Refusal::new(RefusalKind::Failed, "the object `head` there is no home of a store"))?;
    let holder = pool.attribute(HEAD, HOLDER)?.unwrap_or_default();
    let (holder, nonce) = decode_holder(term, &holder);
    Ok(Found { term, holder, nonce })
}

/// Returns true if the head names any file: a creation that was interrupted leaves none.
pub(super) fn names_files(place: &RadosPlace) -> Result<bool> {
    Ok(ask(place, |pool| pool.records(HEAD, FORMAT, 1))?.iter().any(|(name, _)| name != FORMAT))
}

/// Raises the term. `Busy` if somebody else does so at the same time. `is_own`: the former holder was this directory,
/// whose lock the caller has, so that nobody is left of it.
pub(super) fn raise(place: &RadosPlace, found: &Found, is_own: bool) -> Result<Claimed> {
    let (term, nonce, proved_ms) = (found.term + 1, draw_nonce(), Tenure::clock());
    LocalCopy::expect(&place.local, &nonce)?;
    let holder = this_holder(place, term);
    let text = encode_holder(&holder, &nonce);
    let before = found.term.to_le_bytes();
    let changes = [Change::SetAttribute(TERM, &term.to_le_bytes()), Change::SetAttribute(HOLDER, text.as_bytes())];
    ask(place, |pool| match pool.change(HEAD, &[Check::Attribute(TERM, &before)], &changes) {
        // An earlier attempt may have raised it.
        Err(refusal) if refusal.kind == RefusalKind::Refused => {
            if look_once(pool)?.nonce == nonce {
                Ok(())
            } else {
                Err(refusal)
            }
        }
        answer => answer,
    })
    .map_err(|error| match error.kind() {
        ErrorKind::Busy => Error::new(ErrorKind::Busy, place.subject.clone())
            .because("another process opens it at this moment")
            .try_next("look who has it then, and try again if it should be here"),
        _ => error,
    })?;
    let trust = Duration::from_millis(found.holder.trust_ms) + MARGIN;
    let wait = Wait((!is_own && !found.holder.is_released).then(|| Instant::now() + trust));
    Ok(Claimed { tenure: Tenure::new(place, holder, nonce, proved_ms), wait })
}

/// Reads the names of the files, and seals all logs: nothing that an earlier holder sent changes them from here on.
pub(super) fn seal(tenure: &Tenure) -> Result<Vec<(String, Record)>> {
    let records = records(tenure)?;
    for (name, record) in records.iter().filter(|(_, record)| record.kind == Kind::Log) {
        for part in 0..parts::count(record) {
            seal_part(tenure, name, &parts::name(&record.object, part))?;
        }
    }
    Ok(records)
}

fn records(tenure: &Tenure) -> Result<Vec<(String, Record)>> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let some = tenure.persist(|pool| pool.records(HEAD, &after, RECORDS))?;
        let is_last = some.len() < RECORDS;
        for (name, value) in some {
            match name.as_str() {
                FORMAT => check_format(tenure, &value)?,
                _ => all.push((name.clone(), Record::decode(&tenure.subject, &name, &value)?)),
            }
            after = name;
        }
        if is_last {
            return Ok(all);
        }
    }
}

fn check_format(tenure: &Tenure, text: &[u8]) -> Result<()> {
    if text == FORMAT_TEXT.as_bytes() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::VersionMismatch, tenure.subject.clone())
        .because(format!("its format is `{}`, this version knows `{FORMAT_TEXT}`", String::from_utf8_lossy(text)))
        .try_next("open the store with the version that had it last"))
}

/// Raises the term of a part, but never lowers it: two openings may do so at the same time.
fn seal_part(tenure: &Tenure, file: &str, part: &str) -> Result<()> {
    let mine = tenure.term.to_le_bytes();
    loop {
        let found = tenure.persist(|pool| pool.attribute(part, TERM)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::new(ErrorKind::Corrupt, format!("file `{file}` of {}", tenure.subject))
                .because(format!("its object {part} is missing"))
                .try_next("check the pool: `ceph -s`, `rados -p POOL ls`"),
            _ => error,
        })?;
        let before = found.unwrap_or_default();
        match <[u8; 8]>::try_from(before.as_slice()).map_or(0, u64::from_le_bytes) {
            term if term == tenure.term => return Ok(()),
            term if term > tenure.term => return Err(tenure.lose()),
            _ => {}
        }
        let answer = tenure.persist(|pool| {
            match pool.change(part, &[Check::Attribute(TERM, &before)], &[Change::SetAttribute(TERM, &mine)]) {
                Err(refusal) if refusal.kind == RefusalKind::Refused => Ok(()), // the next turn reads why
                answer => answer,
            }
        });
        answer?;
    }
}

/// Removes, without haste, what earlier holders wrote and nothing names. `named`: the objects that the head named after
/// the term was raised. Nobody names another object of an earlier term any more.
pub(super) fn tidy_later(tenure: &Arc<Tenure>, named: BTreeSet<String>) {
    let weak = Arc::downgrade(tenure);
    let tidy = move || {
        // Of a command that is done in a moment nothing is under way when its process ends, and the library with it.
        thread::sleep(TIDY_AFTER);
        let Some(tenure) = weak.upgrade() else { return };
        let (pool, term) = (Arc::clone(&tenure.pool), tenure.term);
        drop(tenure);
        let Ok(all) = pool.list() else { return };
        for object in strays(&all, &named, term) {
            let Some(tenure) = weak.upgrade() else { return };
            parts::remove_object(&tenure, object);
        }
    };
    // Without the thread the next opening does it.
    let _ = thread::Builder::new().name("cenote-tidy".into()).spawn(tidy);
}

/// Removes what nothing names, of any term: the store is being destroyed.
pub(super) fn remove_strays(tenure: &Tenure) -> Result<()> {
    let all = tenure.persist(|pool| pool.list())?;
    for object in strays(&all, &BTreeSet::new(), tenure.term + 1) {
        parts::remove_object(tenure, object);
    }
    Ok(())
}

/// The objects of earlier terms that nothing names.
fn strays<'a>(all: &'a [String], named: &BTreeSet<String>, term: u64) -> Vec<&'a String> {
    let is_old = |object: &&String| term_of(object).is_some_and(|of| of < term);
    let is_named = |object: &&String| object.split('.').next().is_some_and(|base| named.contains(base));
    all.iter().filter(|object| is_old(object) && !is_named(object)).collect()
}
