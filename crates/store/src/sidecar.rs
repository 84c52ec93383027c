//! Files of the store directory on which nothing depends: what engines have learned.
//!
//! A file that is missing, damaged or of another version or store is ignored.

use cenote_model::StoreId;

use crate::codec::{Decoded, Decoder, Encode, Malformed};
use crate::sums::sum_of;

/// Bytes before the store's id: magic, version, checksum of all bytes with zeros in its place.
const HEAD: usize = 16;

/// Returns a file with this content.
pub(crate) fn seal(magic: [u8; 8], version: u32, store: StoreId, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = magic.to_vec();
    out.put_u32(version);
    out.put_u32(0);
    out.put_u128(store.0);
    body(&mut out);
    let sum = sum_of(&out);
    out[12..HEAD].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Returns the content of such a file, if it is whole and this store's.
pub(crate) fn unseal<T>(
    magic: [u8; 8],
    version: u32,
    store: StoreId,
    bytes: &[u8],
    body: impl FnOnce(&mut Decoder<'_>) -> Decoded<T>,
) -> Option<T> {
    let mut plain = bytes.get(..HEAD)?.to_vec();
    let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    plain[12..HEAD].fill(0);
    plain.extend_from_slice(&bytes[HEAD..]);
    if plain[..8] != magic || number(8) != version || sum_of(&plain) != number(12) {
        return None;
    }
    let read = |from: &mut Decoder<'_>| -> Decoded<T> {
        if from.u128()? != store.0 {
            return Err(Malformed("another store's"));
        }
        let all = body(from)?;
        from.end()?;
        Ok(all)
    };
    read(&mut Decoder::new(&bytes[HEAD..])).ok()
}
