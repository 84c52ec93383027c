//! Creating, opening and removing a device.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use cenote_codec::{u16_at, u128_at};
use cenote_model::{DeviceId, DeviceKind, DeviceSpec, Error, ErrorKind, Result, StoreId};
use parking_lot::Mutex;

use super::catalogue;
use super::claim::{self, ClaimNotes, Held};
use super::device::{BucketState, UNIT_BYTES};
use super::map::{Map, Piece};
use super::pack::{Owner, Run, Table, decode_head, decode_pack};
use super::place::{BucketPath, Named};
use super::service::ObjectService;
use crate::sums::sum_of;

const OWNER_MAGIC: [u8; 8] = *b"CENOTOWN";
const OWNER_VERSION: u32 = 1;
const OWNER_BYTES: usize = 64;
/// First read of a pack: most tables end before this offset.
const FIRST_LOOK_BYTES: u64 = 16 << 10;
const LOOKS_AT_ONCE: usize = 8;
/// Gap between the numbers of two lives: packs of the previous life that are still in flight have numbers below
/// those of this one.
const SEQUENCES_LEFT_OUT: u64 = 1000;
const UNLISTED_BEFORE: u64 = 32;
const UNLISTED_AFTER: u64 = 8;

fn owner_of(store: StoreId, device: DeviceId, spec: &DeviceSpec, place: &BucketPath) -> Result<Owner> {
    let capacity = spec.capacity_bytes - spec.capacity_bytes % u64::from(UNIT_BYTES);
    if capacity == 0 {
        return Err(Error::new(ErrorKind::InvalidInput, place.subject())
            .because(format!("a capacity of {} bytes", spec.capacity_bytes))
            .try_next(format!("give it at least {UNIT_BYTES} bytes")));
    }
    Ok(Owner { store, device, kind: spec.kind, capacity })
}

fn encode_owner(owner: &Owner) -> Bytes {
    let mut out = vec![0; OWNER_BYTES];
    out[0..8].copy_from_slice(&OWNER_MAGIC);
    out[8..12].copy_from_slice(&OWNER_VERSION.to_le_bytes());
    out[16..32].copy_from_slice(&owner.store.0.to_le_bytes());
    out[32..34].copy_from_slice(&owner.device.0.to_le_bytes());
    out[34] = owner.kind as u8;
    let sum = sum_of(&out[..OWNER_BYTES - 4]);
    out[OWNER_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    out.into()
}

/// Decodes the owner of a prefix.
fn decode_owner(bytes: &[u8]) -> Result<(StoreId, DeviceId), String> {
    if bytes.len() != OWNER_BYTES || bytes[..8] != OWNER_MAGIC {
        return Err("the object is not one of Cenote's".into());
    }
    if sum_of(&bytes[..OWNER_BYTES - 4]).to_le_bytes() != bytes[OWNER_BYTES - 4..] {
        return Err("its checksum does not match".into());
    }
    if bytes[8..12] != OWNER_VERSION.to_le_bytes() {
        return Err("it was written by another version".into());
    }
    Ok((StoreId(u128_at(bytes, 16)), DeviceId(u16_at(bytes, 32))))
}

/// The owner of the prefix; `None` if there is none.
fn read_owner(service: &dyn ObjectService, place: &BucketPath) -> Result<Option<(StoreId, DeviceId)>> {
    let key = place.owner_key();
    match service.get(&key, 0, OWNER_BYTES as u64 + 1) {
        Ok(bytes) => decode_owner(&bytes).map(Some).map_err(|why| place.damaged(&key, why)),
        Err(refusal) if refusal.kind == ErrorKind::NotFound => Ok(None),
        Err(refusal) => Err(place.error(&key, &refusal)),
    }
}

#[cold]
fn owned_by_other(place: &BucketPath, (store, device): (StoreId, DeviceId)) -> Error {
    Error::new(ErrorKind::Exists, place.subject())
        .because(format!("it holds device {device} of store {store}"))
        .try_next("choose another prefix, or delete what is there if nobody needs it")
}

/// An opened device: its owner, its state, and its claim.
pub(super) type OpenedBucket = (Owner, BucketState, Option<Held>);

fn claimed(
    service: &dyn ObjectService,
    place: &BucketPath,
    who: (StoreId, DeviceId),
    notes: Option<&ClaimNotes>,
) -> Result<Option<Held>> {
    notes.map(|notes| claim::enter(service, place, who, notes)).transpose()
}

/// Checks that the claims listed after the tier was claimed leave it to this directory.
fn confirm(
    service: &dyn ObjectService,
    place: &BucketPath,
    held: Option<&Held>,
    objects: &[(String, u64)],
) -> Result<()> {
    held.map_or(Ok(()), |held| held.confirm(service, place, claim::numbers(place, objects)))
}

fn begins(held: Option<&Held>, unlisted: Option<Range<u64>>) -> Result<()> {
    held.map_or(Ok(()), |held| held.begins(unlisted))
}

/// Creates an empty device.
pub(super) fn create(
    service: &dyn ObjectService,
    place: &BucketPath,
    (store, id, spec): (StoreId, DeviceId, &DeviceSpec),
    notes: Option<&ClaimNotes>,
) -> Result<OpenedBucket> {
    let owner = owner_of(store, id, spec, place)?;
    match read_owner(service, place)? {
        Some(other) if other != (store, id) => return Err(owned_by_other(place, other)),
        Some(_) => {}
        None => {
            let key = place.owner_key();
            if let Err(refusal) = service.put(&key, &[encode_owner(&owner)], true) {
                let found = if refusal.kind == ErrorKind::Exists { read_owner(service, place)? } else { None };
                match found {
                    Some(other) if other == (store, id) => {}
                    Some(other) => return Err(owned_by_other(place, other)),
                    None => return Err(place.error(&key, &refusal)),
                }
            }
        }
    }
    // Before anything is deleted: another directory may have the tier.
    let held = claimed(service, place, (store, id), notes)?;
    let left = list(service, place)?;
    confirm(service, place, held.as_ref(), &left)?;
    report_foreign(place, &left);
    for (key, _) in left.into_iter().filter(|(key, _)| place.named(key).is_some_and(|named| !named.is_claim())) {
        service.delete(&key).map_err(|refusal| place.error(&key, &refusal))?;
    }
    begins(held.as_ref(), None)?;
    Ok((owner, BucketState::new(Map::default(), 1), held))
}

/// Deletes what [`create`] and the device stored, and nothing else.
pub(super) fn remove(
    service: &dyn ObjectService,
    place: &BucketPath,
    (store, id): (StoreId, DeviceId),
    notes: Option<&ClaimNotes>,
) -> Result<()> {
    let owner = read_owner(service, place)?;
    if let Some(other) = owner.filter(|owner| *owner != (store, id)) {
        return Err(owned_by_other(place, other));
    }
    if let Some(notes) = notes {
        claim::check_removal(service, place, id, notes)?;
    }
    let listed = list(service, place)?.into_iter().map(|(key, _)| key);
    let mut keys: Vec<(Named, String)> = listed.filter_map(|key| Some((place.named(&key)?, key))).collect();
    // The claims and the owner go last: as long as anything remains, they name its owner.
    keys.sort_by_key(|(named, _)| named.is_claim());
    for key in keys.into_iter().map(|(_, key)| key).chain(owner.map(|_| place.owner_key())) {
        service.delete(&key).map_err(|refusal| place.error(&key, &refusal))?;
    }
    notes.map_or(Ok(()), |notes| notes.forget(id))
}

/// All objects below the prefix of the device.
fn list(service: &dyn ObjectService, place: &BucketPath) -> Result<Vec<(String, u64)>> {
    service.list(&place.own).map_err(|refusal| place.error(&place.own, &refusal))
}

fn report_foreign(place: &BucketPath, found: &[(String, u64)]) {
    let mut foreign = found.iter().filter(|(key, _)| place.named(key).is_none()).map(|(key, _)| key);
    if let Some(first) = foreign.next() {
        let others = foreign.count();
        tracing::warn!("{}: `{first}` and {others} others are not Cenote's; they are left alone", place.subject());
    }
}

/// Opens an existing device.
pub(super) fn open(
    service: &dyn ObjectService,
    place: &BucketPath,
    (store, id, spec): (StoreId, DeviceId, &DeviceSpec),
    notes: Option<&ClaimNotes>,
) -> Result<OpenedBucket> {
    let owner = owner_of(store, id, spec, place)?;
    let found = read_owner(service, place)?;
    if let Some(other) = found.filter(|found| *found != (store, id)) {
        return Err(Error::new(ErrorKind::Corrupt, place.subject())
            .because(format!("it belongs to device {} of store {}", other.1, other.0))
            .try_next("check the path of the tier: another store's objects are there"));
    }
    if found.is_none() {
        let objects = list(service, place)?;
        if !objects.iter().any(|(key, _)| place.named(key).is_some_and(|named| !named.is_claim())) {
            return Err(Error::new(ErrorKind::NotFound, place.subject())
                .because("nothing of this device is there")
                .try_next(format!("check bucket, prefix and endpoint; restore `{}` from a copy", place.owner_key())));
        }
        tracing::warn!("{}: somebody deleted `{}`; it is written again", place.subject(), place.owner_key());
        let key = place.owner_key();
        service.put(&key, &[encode_owner(&owner)], true).map_err(|refusal| place.error(&key, &refusal))?;
    }
    // Before listing, since a previous holder may write and delete until then.
    let held = claimed(service, place, (store, id), notes)?;
    let objects = list(service, place)?;
    confirm(service, place, held.as_ref(), &objects)?;
    report_foreign(place, &objects);
    let late = held.as_ref().map_or(&[][..], |held| held.late());
    let state = rebuild(service, place, &owner, &objects, late)?;
    // Swift's listings lag behind: an object that appears later may have existed all the time.
    let begun = state.filling.sequence;
    let unlisted = (owner.kind != DeviceKind::Swift).then(|| begun.saturating_sub(SEQUENCES_LEFT_OUT) + 1..begun);
    begins(held.as_ref(), unlisted)?;
    Ok((owner, state, held))
}

/// Builds the map from the tables of all packs except late ones.
fn rebuild(
    service: &dyn ObjectService,
    place: &BucketPath,
    owner: &Owner,
    objects: &[(String, u64)],
    late: &[Range<u64>],
) -> Result<BucketState> {
    let mut packs: BTreeMap<u64, u64> = BTreeMap::new();
    let mut catalogues = Vec::new();
    for (key, bytes) in objects {
        match place.named(key) {
            Some(Named::Pack(sequence)) => drop(packs.insert(sequence, *bytes)),
            Some(Named::Catalogue(sequence)) => catalogues.push((sequence, *bytes)),
            Some(Named::Claim(_)) | None => {}
        }
    }
    catalogues.sort_unstable();
    let is_late = |sequence: &u64, _: &mut u64| late.iter().any(|range| range.contains(sequence));
    let unwanted: Vec<u64> = packs.extract_if(.., is_late).map(|(sequence, _)| sequence).collect();
    let last = packs.last_key_value().map_or(0, |(last, _)| *last).max(catalogues.last().map_or(0, |(last, _)| *last));
    // New packs get no number that is ignored, whatever was deleted.
    let last = late.iter().fold(last, |last, range| last.max(range.end));
    let catalogue = catalogues.last().map(|(sequence, _)| *sequence);
    let mut known = BTreeMap::new();
    if let Some((sequence, bytes)) = catalogues.last() {
        known = read_catalogue(service, place, owner, *sequence, *bytes)?;
    }
    let listed =
        packs.iter().filter(|(sequence, _)| !known.contains_key(sequence)).map(|(s, bytes)| (*s, Some(*bytes)));
    let mut unknown: Vec<(u64, Option<u64>)> = listed.collect();
    let uncatalogued = unknown.len();
    if owner.kind == DeviceKind::Swift && last > 0 {
        unknown
            .extend(unlisted(last).filter(|sequence| !packs.contains_key(sequence)).map(|sequence| (sequence, None)));
    }
    let (read, shadow) = read_tables(service, place, owner, &unknown)?;
    known.retain(|sequence, _| packs.contains_key(sequence));
    let last = read.last().map_or(last, |(newest, _)| last.max(*newest));
    known.extend(read);
    let mut state = BucketState::new(assemble(known), last + SEQUENCES_LEFT_OUT);
    (state.shadow, state.catalogue, state.uncatalogued) = (shadow, catalogue, uncatalogued);
    state.unwanted = unwanted;
    for (sequence, _) in catalogues.iter().rev().skip(1) {
        // An old catalogue is harmless.
        let _ = service.delete(&place.catalogue_key(*sequence));
    }
    Ok(state)
}

/// Numbers to probe: a listing of Swift may lack objects of the last moments although they can be read.
fn unlisted(last: u64) -> impl Iterator<Item = u64> {
    let next_life = last + SEQUENCES_LEFT_OUT;
    (last.saturating_sub(UNLISTED_BEFORE).max(1)..=last + UNLISTED_AFTER).chain(next_life..next_life + UNLISTED_AFTER)
}

/// The map of these packs: of bytes in several packs, those born later win, then those packed later.
fn assemble(tables: BTreeMap<u64, Table>) -> Map {
    let mut map = Map::default();
    let mut runs: Vec<(u64, Run)> = Vec::new();
    for (sequence, table) in tables {
        runs.extend(table.runs.iter().map(|run| (sequence, *run)));
        map.add_pack(sequence, Some(Arc::new(table)));
    }
    runs.sort_by_key(|(sequence, run)| (run.born, *sequence, run.at));
    for (pack, run) in runs {
        map.cover(run.offset, Piece { pack, at: run.at, len: run.len }, 0);
    }
    map
}

/// The tables in a catalogue; none if it is damaged, since every pack has its own.
fn read_catalogue(
    service: &dyn ObjectService,
    place: &BucketPath,
    owner: &Owner,
    sequence: u64,
    bytes: u64,
) -> Result<BTreeMap<u64, Table>> {
    let key = place.catalogue_key(sequence);
    match service.get(&key, 0, bytes) {
        Ok(bytes) => Ok(catalogue::decode(&bytes, owner).unwrap_or_else(|why| {
            tracing::warn!("{}: {why}; the tables of all packs are read instead", place.object(&key));
            BTreeMap::new()
        })),
        Err(refusal) if refusal.kind == ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(refusal) => Err(place.error(&key, &refusal)),
    }
}

type Tables = (Vec<(u64, Table)>, Option<(u64, Error)>);

/// The tables of packs, read in parallel; and the latest pack that cannot be decoded, with the cause.
fn read_tables(
    service: &dyn ObjectService,
    place: &BucketPath,
    owner: &Owner,
    packs: &[(u64, Option<u64>)],
) -> Result<Tables> {
    let (next, read) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..packs.len().min(LOOKS_AT_ONCE) {
            scope.spawn(|| {
                while let Some((sequence, bytes)) = packs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let table = read_table(service, place, owner, *sequence, *bytes);
                    read.lock().push((*sequence, table));
                }
            });
        }
    });
    let mut tables: Tables = (Vec::new(), None);
    let mut read = read.into_inner();
    read.sort_unstable_by_key(|(sequence, _)| *sequence);
    for (sequence, table) in read {
        match table {
            Ok(Some(table)) => tables.0.push((sequence, table)),
            Ok(None) => {} // deleted since the listing
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::warn!("{error}");
                if tables.1.as_ref().is_none_or(|(latest, _)| sequence > *latest) {
                    tables.1 = Some((sequence, error));
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(tables)
}

fn read_table(
    service: &dyn ObjectService,
    place: &BucketPath,
    owner: &Owner,
    sequence: u64,
    object_bytes: Option<u64>,
) -> Result<Option<Table>> {
    let key = place.pack_key(sequence);
    let damaged = |why: String| place.damaged(&key, why);
    let look = |len: u64| match service.get(&key, 0, len) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(refusal) if refusal.kind == ErrorKind::NotFound => Ok(None),
        Err(refusal) => Err(place.error(&key, &refusal)),
    };
    let Some(mut bytes) = look(FIRST_LOOK_BYTES.min(object_bytes.unwrap_or(u64::MAX)))? else { return Ok(None) };
    let head = decode_head(&bytes, owner).map_err(damaged)?;
    if head.sequence != sequence {
        return Err(damaged(format!("it is pack {}", head.sequence)));
    }
    if head.bytes() > bytes.len() as u64 {
        let Some(more) = look(head.bytes())? else { return Ok(None) };
        bytes = more;
    }
    let table = decode_pack(&head, &bytes, owner).map_err(damaged)?;
    if let Some(object_bytes) = object_bytes.filter(|bytes| *bytes != table.object_bytes()) {
        return Err(damaged(format!("it has {object_bytes} bytes instead of {}", table.object_bytes())));
    }
    Ok(Some(table))
}
