//! The stub: a small POSIX file at the path of an HDF5 file that lives in a store.
//!
//! It begins with the HDF5 signature (netCDF looks at it before it opens a file), goes on as text for people, and names
//! the file's id. It decides whether the file exists: who removes it removes the file, who renames it renames the file.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use cenote::{Error, ErrorKind};

use crate::Result;

const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
/// The line after the signature. Its first byte stands where a native file has its superblock version; no version is 10.
const MARK: &[u8] = b"\ncenote-hdf5-stub 1\n";
const READ_MAX: u64 = 64 << 10;

/// What a stub says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stub {
    /// The file's id.
    pub uuid: u128,
    /// The path that the file had when the stub was written (as in the container's label).
    pub path: String,
    /// The store's directory.
    pub store: String,
}

/// What is at a path.
#[derive(PartialEq, Eq, Debug)]
pub enum Seen {
    /// A file of ours.
    Stub(Stub),
    /// A native HDF5 file.
    Native,
    /// Some other file.
    Other,
    /// Nothing.
    Nothing,
}

impl Stub {
    fn text(&self) -> Vec<u8> {
        let mut out = SIGNATURE.to_vec();
        out.extend_from_slice(MARK);
        out.extend_from_slice(
            format!(
                "This HDF5 file lives in a Cenote store; this text only stands for it.\n\
                 Read it with any HDF5 program through the cenote VOL connector:\n\
                 \x20 HDF5_PLUGIN_PATH=<directory of libcenote_hdf5.so> HDF5_VOL_CONNECTOR='cenote store={}'\n\
                 Removing this stub removes the file; renaming it renames the file. Do not copy it.\n\
                 file-id: {:032x}\npath: {}\nstore: {}\n",
                self.store, self.uuid, self.path, self.store
            )
            .as_bytes(),
        );
        out
    }
    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes.strip_prefix(SIGNATURE)?.strip_prefix(MARK)?).ok()?;
        let field = |name: &str| text.lines().rev().find_map(|line| line.strip_prefix(name));
        Some(Self {
            uuid: u128::from_str_radix(field("file-id: ")?, 16).ok()?,
            path: field("path: ")?.to_owned(),
            store: field("store: ")?.to_owned(),
        })
    }
    /// Writes the stub at `path`. `new`: it must not be there yet.
    pub fn write(&self, path: &Path, new: bool) -> Result<()> {
        let mut options = fs::OpenOptions::new();
        options.write(true).mode(0o666);
        if new {
            options.create_new(true)
        } else {
            options.create(true).truncate(true)
        };
        let wrap = |e: std::io::Error| create_error(path, &e);
        let mut file = options.open(path).map_err(wrap)?;
        file.write_all(&self.text()).map_err(wrap)
    }
}

/// The refusal to create a file, in the words that HDF5's own drivers use (h5py reads the number).
pub fn create_error(path: &Path, e: &std::io::Error) -> Error {
    os_error("unable to create file", path, e)
}

/// The refusal to open a file, in the words that HDF5's own drivers use.
pub fn open_error(path: &Path, e: &std::io::Error) -> Error {
    os_error("unable to open file", path, e)
}

fn os_error(what: &str, path: &Path, e: &std::io::Error) -> Error {
    let message = e.to_string();
    let message = message.split(" (os error").next().unwrap_or_default();
    let base = Error::io(String::new(), e);
    Error::new(base.kind(), format!("{what}: name = '{}'", path.display()))
        .because(format!("errno = {}, error message = '{message}'", e.raw_os_error().unwrap_or(0)))
}

/// Looks at what is at `path`.
pub fn look(path: &Path) -> Result<Seen> {
    use std::io::Read;
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Seen::Nothing),
        Err(e) => return Err(open_error(path, &e)),
    };
    let mut bytes = Vec::new();
    match file.take(READ_MAX).read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(e) => return Err(open_error(path, &e)),
    }
    Ok(match Stub::parse(&bytes) {
        Some(stub) => Seen::Stub(stub),
        None if has_native_signature(&bytes) => Seen::Native,
        None => Seen::Other,
    })
}

/// A native file's signature is at 0, 512, 1024, 2048, …: behind a user block.
fn has_native_signature(bytes: &[u8]) -> bool {
    let mut at = 0;
    while at + SIGNATURE.len() <= bytes.len() {
        if bytes[at..].starts_with(SIGNATURE) {
            return true;
        }
        at = if at == 0 { 512 } else { at * 2 };
    }
    false
}

/// The error for a path that holds no file of ours.
pub fn refuse(path: &Path, seen: &Seen) -> Error {
    match seen {
        Seen::Nothing => open_error(path, &std::io::Error::from_raw_os_error(libc::ENOENT)),
        Seen::Native => Error::new(ErrorKind::Unsupported, format!("file {}", path.display()))
            .because("it is a native HDF5 file, which the cenote connector reads and does not change")
            .try_next("unset HDF5_VOL_CONNECTOR to change or delete it"),
        _ => Error::new(ErrorKind::Corrupt, format!("unable to open file: name = '{}'", path.display()))
            .because("file signature not found: it is neither an HDF5 file nor the stub of one in a Cenote store"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_is_read_back_and_begins_like_hdf5() {
        let stub = Stub { uuid: 0xfeed << 96, path: "/data/run 1.h5".into(), store: "/scratch/store".into() };
        let text = stub.text();
        assert!(text.starts_with(SIGNATURE) && text.len() > 9);
        assert_eq!(Stub::parse(&text), Some(stub));
        assert_eq!(Stub::parse(b"\x89HDF\r\n\x1a\n\0\0\0"), None);
        assert!(has_native_signature(b"\x89HDF\r\n\x1a\n\0\0\0"));
        assert!(!has_native_signature(b"CDF\x01"));
    }
}
