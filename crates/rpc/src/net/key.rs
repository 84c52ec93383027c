//! The key of a cluster.

use std::fmt::{self, Write as _};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use cenote_model::{Error, ErrorKind, Result};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::tls::{Role, Tls, TlsKeys};

/// Bytes of a key, and of a proof.
pub(super) const KEY_BYTES: usize = 32;

/// The secret that all nodes of a cluster share. Whoever has it is a node of the cluster.
#[derive(Clone)]
pub struct ClusterKey {
    bytes: [u8; KEY_BYTES],
    /// For connections that are encrypted.
    tls: Option<Arc<TlsKeys>>,
}

impl PartialEq for ClusterKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for ClusterKey {}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(..)") // it must not get into logs
    }
}

/// Random bytes from the system's generator.
pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::io("the system's random numbers", &errno.into())),
        }
    }
    Ok(bytes)
}

impl ClusterKey {
    /// A key from bytes.
    pub const fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self { bytes, tls: None }
    }
    /// Draws a key.
    pub fn draw() -> Result<Self> {
        random().map(Self::from_bytes)
    }
    /// The same key, with which connections are encrypted. All nodes of a cluster have to do the same.
    pub fn encrypting(self) -> Result<Self> {
        let tls = TlsKeys::from_seed(&self.derive("encryption between nodes, 1"))?;
        Ok(Self { tls: Some(Arc::new(tls)), ..self })
    }
    /// TLS for a new connection, if connections are encrypted.
    pub(super) fn tls(&self, role: Role) -> Result<Option<Tls>> {
        self.tls.as_ref().map(|keys| keys.begin(role)).transpose()
    }
    /// The key as 64 hexadecimal digits.
    pub fn to_hex(&self) -> String {
        let mut hex = String::with_capacity(2 * KEY_BYTES + 1);
        for byte in self.bytes {
            let _ = write!(hex, "{byte:02x}"); // a string takes it
        }
        hex
    }
    /// The reverse of [`ClusterKey::to_hex`]; `None` if these are not 64 hexadecimal digits.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let digits = hex.as_bytes();
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        let mut bytes = [0; KEY_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Some(Self::from_bytes(bytes))
    }
    /// Writes the key to a new file that only this user reads. `Exists` if there is such a file.
    pub fn create_file(&self, path: &Path) -> Result<()> {
        let fail = |error: std::io::Error| {
            if error.kind() == std::io::ErrorKind::AlreadyExists {
                return Error::new(ErrorKind::Exists, format!("cluster key {}", path.display()))
                    .try_next("use that key, or give the new one another name");
            }
            Error::io(format!("cluster key {}", path.display()), &error)
        };
        let mut hex = self.to_hex();
        hex.push('\n');
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(fail)?;
        file.write_all(hex.as_bytes()).and_then(|()| file.sync_all()).map_err(fail)
    }
    /// Reads a key from a file of 64 hexadecimal digits. `PermissionDenied` if others may read or change the file.
    pub fn from_file(path: &Path) -> Result<Self> {
        let subject = || format!("cluster key {}", path.display());
        let file = std::fs::File::open(path).map_err(|error| Error::io(subject(), &error))?;
        let meta = file.metadata().map_err(|error| Error::io(subject(), &error))?;
        let user = rustix::process::geteuid().as_raw();
        if meta.mode() & 0o077 != 0 || meta.uid() != user && meta.uid() != 0 {
            return Err(Error::new(ErrorKind::PermissionDenied, subject())
                .because(format!("user {} has it, with mode {:04o}", meta.uid(), meta.mode() & 0o7777))
                .try_next("make it yours alone: `chmod 600`; draw another if somebody may have read it"));
        }
        let mut text = String::new();
        // A file of any length may be there by mistake: read no more than tells a key from it.
        file.take(4 * KEY_BYTES as u64).read_to_string(&mut text).map_err(|error| Error::io(subject(), &error))?;
        Self::from_hex(text.trim()).ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, subject())
                .because("it is not 64 hexadecimal digits")
                .try_next("copy the key file of the cluster's first node")
        })
    }
    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.bytes).expect("HMAC takes keys of any length");
        for part in parts {
            mac.update(part);
        }
        mac
    }
    /// Derives a secret for another purpose, which tells nothing of the key.
    pub fn derive(&self, purpose: &str) -> [u8; KEY_BYTES] {
        self.prove(&[b"cenote: derived for ", purpose.as_bytes()])
    }
    /// Proves knowledge of the key: HMAC-SHA256 (RFC 2104) of the parts, whose lengths must be fixed.
    pub(super) fn prove(&self, parts: &[&[u8]]) -> [u8; KEY_BYTES] {
        self.mac(parts).finalize().into_bytes().into()
    }
    /// Checks such a proof in constant time.
    pub(super) fn holds(&self, parts: &[&[u8]], proof: &[u8]) -> bool {
        self.mac(parts).verify_slice(proof).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn is_kept_in_a_file_for_its_user_alone() {
        let dir = std::env::temp_dir().join(format!("cenote-key-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("key");
        let key = ClusterKey::draw().unwrap();
        key.create_file(&path).unwrap();
        assert_eq!(ClusterKey::from_file(&path).unwrap(), key);
        assert_eq!(key.create_file(&path).unwrap_err().kind(), ErrorKind::Exists);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(ClusterKey::from_file(&path).unwrap_err().kind(), ErrorKind::PermissionDenied);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        for bad in ["", "00", &"0g".repeat(32), &"00".repeat(33), &"é".repeat(32)] {
            std::fs::write(&path, bad).unwrap();
            assert_eq!(ClusterKey::from_file(&path).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad:?}");
        }
        assert_eq!(ClusterKey::from_file(&dir.join("none")).unwrap_err().kind(), ErrorKind::NotFound);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn is_not_shown() {
        assert_eq!(format!("{:?}", ClusterKey::from_bytes([7; KEY_BYTES])), "ClusterKey(..)");
    }

    /// RFC 4231, test case 2, whose key is padded with zeros here, which HMAC does itself.
    #[test]
    fn proofs_are_hmac_sha_256() {
        let mut bytes = [0; KEY_BYTES];
        bytes[..4].copy_from_slice(b"Jefe");
        let key = ClusterKey::from_bytes(bytes);
        let proof = key.prove(&[b"what do ya want ", b"for nothing?"]);
        assert_eq!(proof[..8], [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e]);
        assert!(key.holds(&[b"what do ya want for nothing?"], &proof));
        assert!(!key.holds(&[b"what do ya want for nothing!"], &proof));
    }
}
