//! Encryption of the secrets of access keys, since all readers of the store can read its records.
//!
//! AES-256-GCM under the store's secret, which only its owner's processes get ([`cenote::Store::secret`]). An
//! encrypted secret reveals nothing to others, and is not valid under another key's id.

use std::sync::Arc;

use cenote::{Error, ErrorKind, Result, Store};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Encrypts and decrypts.
#[derive(Clone)]
pub(crate) struct Seal(Arc<LessSafeKey>);

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    pub fn of(store: &Store) -> Result<Self> {
        Self::with(&store.secret()?)
    }
    fn with(secret: &[u8; 32]) -> Result<Self> {
        let key = UnboundKey::new(&AES_256_GCM, secret).map_err(|_| failed("a key of another length"))?;
        Ok(Self(Arc::new(LessSafeKey::new(key))))
    }
    /// Encrypts the secret of the key `id`: returns random nonce, ciphertext and tag in base64.
    pub fn close(&self, id: &str, secret: &str) -> Result<String> {
        let mut nonce = [0; NONCE_LEN];
        let drawn = rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty());
        if drawn.map_err(|error| Error::io("random numbers", &error.into()))? != NONCE_LEN {
            return Err(failed("too few random numbers"));
        }
        let mut bytes = secret.as_bytes().to_vec();
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(id.as_bytes()), &mut bytes)
            .map_err(|_| failed("the secret is too long"))?;
        Ok(base64_simd::STANDARD.encode_to_string([&nonce[..], &bytes].concat()))
    }
    /// Decrypts a secret.
    pub fn open(&self, id: &str, sealed: &str) -> Result<String> {
        let opened = || {
            let bytes = base64_simd::STANDARD.decode_to_vec(sealed).ok()?;
            let (nonce, bytes) = bytes.split_first_chunk::<NONCE_LEN>()?;
            let mut bytes = bytes.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let plain = self.0.open_in_place(nonce, Aad::from(id.as_bytes()), &mut bytes).ok()?;
            String::from_utf8(plain.to_vec()).ok()
        };
        opened().ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("S3 key `{id}`"))
                .because("it was sealed with a secret other than the store's, or it was altered")
                .try_next("restore the file `secret` of the store's directory from a copy, or make a new key: `cenote s3 key rotate USER`")
        })
    }
}

#[cold]
fn failed(why: &str) -> Error {
    Error::new(ErrorKind::Internal, "seal of S3 keys").because(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_secret_opens_and_only_for_the_same_key() {
        let (one, other) = (Seal::with(&[1; 32]).unwrap(), Seal::with(&[2; 32]).unwrap());
        let sealed = one.close("ID", "secret").unwrap();
        assert!(!sealed.contains("secret"));
        assert_ne!(one.close("ID", "secret").unwrap(), sealed, "a nonce is never used twice");
        assert_eq!(one.open("ID", &sealed).unwrap(), "secret");
        for error in [one.open("IE", &sealed), other.open("ID", &sealed), one.open("ID", "AAAA"), one.open("ID", "")] {
            assert_eq!(error.unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }
}
