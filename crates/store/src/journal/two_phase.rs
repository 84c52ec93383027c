//! Encodings of transactions over several homes, in records and in checkpoints.

use cenote_model::{Check, HomeId, TransactionId, Update};

use super::update::{decode_index, decode_object, decode_update, encode_index, encode_object, encode_update};
use crate::codec::{Decoded, Decoder, Encode, Malformed};

pub(crate) fn encode_transaction(bytes: &mut Vec<u8>, transaction: TransactionId) {
    bytes.put_u16(transaction.home.0);
    bytes.put_u64(transaction.session);
    bytes.put_u64(transaction.number);
}
pub(crate) fn decode_transaction(from: &mut Decoder<'_>) -> Decoded<TransactionId> {
    Ok(TransactionId { home: HomeId(from.u16()?), session: from.u64()?, number: from.u64()? })
}

pub(crate) fn encode_homes<'a>(bytes: &mut Vec<u8>, homes: impl ExactSizeIterator<Item = &'a HomeId>) {
    bytes.put_u32(homes.len() as u32);
    homes.for_each(|home| bytes.put_u16(home.0));
}
pub(crate) fn decode_homes(from: &mut Decoder<'_>) -> Decoded<Vec<HomeId>> {
    (0..from.count(2)?).map(|_| Ok(HomeId(from.u16()?))).collect()
}

/// Writes what a transaction relies on and what it changes.
pub(crate) fn encode_part(bytes: &mut Vec<u8>, checks: &[Check], updates: &[Update]) {
    bytes.put_u32(checks.len() as u32);
    for check in checks {
        encode_check(bytes, check);
    }
    bytes.put_u32(updates.len() as u32);
    for update in updates {
        encode_update(bytes, update);
    }
}
/// Reads it. Fails if it changes a container, which no such transaction does.
pub(crate) fn decode_part(from: &mut Decoder<'_>) -> Decoded<(Vec<Check>, Vec<Update>)> {
    let checks = (0..from.count(25)?).map(|_| decode_check(from)).collect::<Decoded<_>>()?;
    let updates: Vec<Update> = (0..from.count(9)?).map(|_| decode_update(from)).collect::<Decoded<_>>()?;
    if updates.iter().any(Update::is_about_container) {
        return Err(Malformed("a transaction over several homes that changes containers"));
    }
    Ok((checks, updates))
}

fn encode_check(bytes: &mut Vec<u8>, check: &Check) {
    match check {
        Check::Object { key, epoch } => {
            bytes.put_u8(1);
            encode_object(bytes, *key);
            bytes.put_u64(*epoch);
        }
        Check::Record { index, key, epoch } => {
            bytes.put_u8(2);
            encode_index(bytes, *index);
            bytes.put_bytes(key);
            bytes.put_u64(*epoch);
        }
        Check::Value { index, key, value } => {
            bytes.put_u8(3);
            encode_index(bytes, *index);
            bytes.put_bytes(key);
            bytes.put_u8(u8::from(value.is_some()));
            if let Some(value) = value {
                bytes.put_bytes(value);
            }
        }
        Check::NoKeys { index, prefix } => {
            bytes.put_u8(4);
            encode_index(bytes, *index);
            bytes.put_bytes(prefix);
        }
        Check::Size { key, size } => {
            bytes.put_u8(5);
            encode_object(bytes, *key);
            bytes.put_u64(*size);
        }
    }
}
fn decode_check(from: &mut Decoder<'_>) -> Decoded<Check> {
    Ok(match from.u8()? {
        1 => Check::Object { key: decode_object(from)?, epoch: from.u64()? },
        2 => Check::Record { index: decode_index(from)?, key: from.bytes()?.to_vec(), epoch: from.u64()? },
        3 => {
            let (index, key) = (decode_index(from)?, from.bytes()?.to_vec());
            let value = if from.flag()? { Some(from.bytes()?.to_vec()) } else { None };
            Check::Value { index, key, value }
        }
        4 => Check::NoKeys { index: decode_index(from)?, prefix: from.bytes()?.to_vec() },
        5 => Check::Size { key: decode_object(from)?, size: from.u64()? },
        _ => return Err(Malformed("an unknown premise")),
    })
}
