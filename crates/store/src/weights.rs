//! The file `weights` of the store directory: the weights of users. Without it, or if it is damaged, all users have weight 1.

use cenote_model::{StoreId, UserWeight, UserWeights};

use crate::codec::{Decoded, Decoder, Encode};
use crate::sidecar::{seal, unseal};

/// The file's name.
pub(crate) const WEIGHTS: &str = "weights";
const MAGIC: [u8; 8] = *b"CENOTEW\0";
const VERSION: u32 = 1;
/// Bytes of a user in it.
const USER_BYTES: usize = 6;

/// Returns the bytes of the file.
pub(crate) fn encode(weights: &UserWeights, store: StoreId) -> Vec<u8> {
    seal(MAGIC, VERSION, store, |out| {
        out.put_u64(weights.version);
        out.put_u32(weights.users.len() as u32);
        for user in &weights.users {
            out.put_u32(user.uid);
            out.put_u16(user.weight);
        }
    })
}

/// Returns the content of the file, if it is whole and this store's.
pub(crate) fn decode(store: StoreId, bytes: &[u8]) -> Option<UserWeights> {
    let user =
        |from: &mut Decoder<'_>| -> Decoded<UserWeight> { Ok(UserWeight { uid: from.u32()?, weight: from.u16()? }) };
    let weights = unseal(MAGIC, VERSION, store, bytes, |from| {
        let version = from.u64()?;
        let count = from.count(USER_BYTES)?;
        Ok(UserWeights { version, users: (0..count).map(|_| user(from)).collect::<Decoded<_>>()? })
    });
    weights.filter(UserWeights::is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_as_written_or_not_at_all() {
        let user = |uid, weight| UserWeight { uid, weight };
        let weights = UserWeights { version: 1_790_000_000_000, users: vec![user(0, 2), user(1001, 1000)] };
        let bytes = encode(&weights, StoreId(5));
        assert_eq!(decode(StoreId(5), &bytes), Some(weights.clone()));
        assert_eq!(decode(StoreId(6), &bytes), None, "another store's");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(decode(StoreId(5), &damaged), None, "byte {at}");
            assert_eq!(decode(StoreId(5), &bytes[..at]), None, "cut at {at}");
        }
        let disordered = UserWeights { users: vec![user(9, 2), user(3, 2)], ..weights };
        assert_eq!(decode(StoreId(5), &encode(&disordered, StoreId(5))), None);
    }
}
