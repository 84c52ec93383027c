//! The catalogue: the tables of all packs in one object, so that opening the device need not read
//! each pack's table.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cenote_codec::{Encode as _, u32_at, u64_at};
use cenote_model::Result;
use parking_lot::MutexGuard;

use super::device::{BucketState, Inner};
use super::pack::{self, DATA_BYTES_MAX, HEADER_BYTES, Owner, Table, encode_owner, encode_table};
use crate::sums::sum_of;

const MAGIC: [u8; 8] = *b"CENOTMAP";
const VERSION: u32 = 1;
const ENTRY_BYTES: usize = 32;

/// Writes a catalogue of all packs that the service has, and deletes the previous one.
pub(super) fn write(inner: &Inner, mut state: MutexGuard<'_, BucketState>) -> Result<()> {
    let tables: Vec<(u64, Arc<Table>)> = state
        .map
        .packs()
        .filter(|(sequence, _)| !state.sealed.contains_key(sequence))
        .filter_map(|(sequence, pack)| Some((sequence, Arc::clone(pack.table.as_ref()?))))
        .collect();
    let (sequence, before) = (state.sequence(), state.catalogue);
    let counted = std::mem::take(&mut state.uncatalogued);
    drop(state);
    let tables = within(tables, inner.service.object_bytes_max());
    let (head, body) = encode(&inner.owner, inner.life, sequence, &tables);
    let key = inner.place.catalogue_key(sequence);
    let put = || inner.service.put(&key, &[head, body], true).map_err(|refusal| inner.place.error(&key, &refusal));
    if let Err(error) = inner.check_held(true).and_then(|()| put()) {
        inner.state.lock().uncatalogued += counted;
        return Err(error);
    }
    inner.state.lock().catalogue = Some(sequence);
    if let Some(before) = before {
        let key = inner.place.catalogue_key(before);
        inner.service.delete(&key).map_err(|refusal| inner.place.error(&key, &refusal))?;
    }
    Ok(())
}

/// The tables that an object of this size has room for, the oldest first. Opening the device reads the others one by one.
fn within(mut tables: Vec<(u64, Arc<Table>)>, object_bytes_max: u64) -> Vec<(u64, Arc<Table>)> {
    let mut bytes = HEADER_BYTES as u64;
    tables.retain(|(_, table)| {
        bytes += ENTRY_BYTES as u64 + table.data_offset - HEADER_BYTES as u64;
        bytes <= object_bytes_max
    });
    tables
}

fn encode(owner: &Owner, life: u128, sequence: u64, tables: &[(u64, Arc<Table>)]) -> (Bytes, Bytes) {
    let mut body = Vec::new();
    for (sequence, table) in tables {
        body.put_u64(*sequence);
        body.put_u64(table.data_offset);
        body.put_u64(table.data_bytes);
        body.put_u32(table.runs.len() as u32);
        body.put_u32(table.sums.len() as u32);
        encode_table(table, &mut body);
    }
    let mut head = vec![0; HEADER_BYTES];
    head[0..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
    encode_owner(owner, life, &mut head);
    head[64..72].copy_from_slice(&sequence.to_le_bytes());
    head[72..80].copy_from_slice(&(body.len() as u64).to_le_bytes());
    head[80..84].copy_from_slice(&(tables.len() as u32).to_le_bytes());
    head[120..124].copy_from_slice(&sum_of(&body).to_le_bytes());
    let sum = sum_of(&head[..HEADER_BYTES - 4]);
    head[HEADER_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    (head.into(), body.into())
}

/// Decodes a catalogue.
pub(super) fn decode(bytes: &[u8], owner: &Owner) -> Result<BTreeMap<u64, Table>, String> {
    pack::check_head(bytes, MAGIC, VERSION, owner)?;
    let (head, mut body) = bytes.split_at(HEADER_BYTES);
    let packs = u32_at(head, 80);
    if body.len() as u64 != u64_at(head, 72) || sum_of(body) != u32_at(head, 120) {
        return Err("the checksum of its tables does not match".into());
    }
    let mut tables = BTreeMap::new();
    for _ in 0..packs {
        let nonsense = || "it contradicts itself".to_owned();
        let (entry, rest) = body.split_at_checked(ENTRY_BYTES).ok_or_else(nonsense)?;
        let (sequence, data_offset, data_bytes) = (u64_at(entry, 0), u64_at(entry, 8), u64_at(entry, 16));
        let counts = u64_at(entry, 24);
        let (runs, sums) = (counts as u32, (counts >> 32) as u32);
        let table_bytes = data_offset.checked_sub(HEADER_BYTES as u64).ok_or_else(nonsense)?;
        let (table, rest) = rest.split_at_checked(table_bytes as usize).ok_or_else(nonsense)?;
        if data_bytes > DATA_BYTES_MAX {
            return Err(nonsense());
        }
        let table = pack::decode_table(table, (runs, sums), (data_offset, data_bytes), sequence, owner.capacity)?;
        tables.insert(sequence, table);
        body = rest;
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::pack::Filling;
    use cenote_model::{DeviceId, DeviceKind, StoreId};

    #[test]
    fn comes_back_as_written_and_every_flipped_bit_is_noticed() {
        let owner = Owner { store: StoreId(7), device: DeviceId(2), kind: DeviceKind::Swift, capacity: 1 << 30 };
        let table = |sequence| {
            let mut pack = Filling::new(sequence);
            pack.push(sequence * 4096, sequence, &[1; 5000]);
            pack.push(0, 1, &vec![2; 70_000]);
            Arc::new(pack.seal(&owner, 1).0)
        };
        let tables: Vec<_> = [3, 8, 11].map(|sequence| (sequence, table(sequence))).into();
        let (head, body) = encode(&owner, 1, 12, &tables);
        let good = [head, body].concat();
        let decoded = decode(&good, &owner).unwrap();
        assert!(decoded.into_iter().map(|(sequence, table)| (sequence, Arc::new(table))).eq(tables));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad, &owner).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(decode(&good[..len], &owner).is_err(), "{len} bytes");
        }
    }
}
