//! The stub, a placeholder: a small POSIX file at the path of an HDF5 file that lives in a store.
//!
//! It begins with the HDF5 signature (netCDF looks at it before it opens a file), goes on as text for people, and names
//! the file's id, its container and its state. The stub decides whether the file exists: removing or renaming it removes
//! or renames the file. [`super::identity`] decides what a stub stands for, and whether it is a copy.

use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use cenote::{ContainerId, Error, ErrorKind};

use super::path;
use crate::Result;

const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
/// The line after the signature. A native file has its superblock version in the first byte; no version is 10.
const MARK: &[u8] = b"\ncenote-hdf5-stub 2\n";
/// The line in stubs that name neither container nor state.
const MARK_1: &[u8] = b"\ncenote-hdf5-stub 1\n";
/// The line in a stub that stands for a snapshot (written by `cenote snapshot open`).
const SNAPSHOT_MARK: &[u8] = b"\ncenote-hdf5-snapshot 1\n";
const READ_MAX: usize = 64 << 10;
/// Bytes of the first read; most stubs are shorter.
const READ_FIRST: usize = 2048;

/// Content of a stub.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stub {
    /// The file's id.
    pub uuid: u128,
    /// The file's container; `None` in stubs of version 1.
    pub container: Option<ContainerId>,
    /// How often the file was opened for writing or re-created: tells a stale copy from the file. 0 in stubs of version 1.
    pub state: u64,
    /// The file's path when the stub was written (as in the container's label).
    pub path: String,
    /// The store's directory.
    pub store: String,
    /// Length of the user block, in bytes: the program's own bytes before the stub.
    pub user_block: u64,
    /// True if the store has the bytes of a native file.
    pub staged: bool,
}

/// What is at a path.
#[derive(PartialEq, Eq, Debug)]
pub enum Seen {
    /// A file of a store.
    Stub(Stub),
    /// A snapshot of such a file: the path in the file's label, and the snapshot's name.
    Snapshot(String, String),
    /// A native HDF5 file.
    Native,
    /// An empty file, which opening for writing makes an HDF5 file.
    Empty,
    /// Some other file.
    Other,
    /// Nothing.
    Nothing,
}

impl Stub {
    fn text(&self) -> Vec<u8> {
        let mut out = SIGNATURE.to_vec();
        out.extend_from_slice(MARK);
        let container = self.container.map_or(String::new(), |id| format!("container: {}\n", id.0));
        out.extend_from_slice(
            format!(
                "This HDF5 file lives in a Cenote store; this text only stands for it.\n\
                 Read it with any HDF5 program through the cenote VOL connector:\n\
                 \x20 HDF5_PLUGIN_PATH=<directory of libcenote_hdf5.so> HDF5_VOL_CONNECTOR='cenote store={}'\n\
                 Removing this stub removes the file; renaming it renames the file. Copy it with `cenote cp`.\n\
                 {}file-id: {:032x}\n{container}state: {}\npath: {}\nstore: {}\n",
                path::line(&self.store),
                if self.staged { "kind: staged bytes\n" } else { "" },
                self.uuid,
                self.state,
                path::line(&self.path),
                path::line(&self.store)
            )
            .as_bytes(),
        );
        out
    }
    fn parse(bytes: &[u8], user_block: u64) -> Option<Self> {
        let behind = bytes.strip_prefix(SIGNATURE)?;
        let (text, is_first) = match behind.strip_prefix(MARK) {
            Some(text) => (text, false),
            None => (behind.strip_prefix(MARK_1)?, true),
        };
        let text = std::str::from_utf8(text).ok()?;
        let field = |name: &str| text.lines().rev().find_map(|line| line.strip_prefix(name));
        Some(Self {
            uuid: u128::from_str_radix(field("file-id: ")?, 16).ok()?,
            container: if is_first { None } else { Some(ContainerId(field("container: ")?.parse().ok()?)) },
            state: if is_first { 0 } else { field("state: ")?.parse().ok()? },
            path: path::of_line(field("path: ")?),
            store: path::of_line(field("store: ")?),
            user_block,
            staged: field("kind: ") == Some("staged bytes"),
        })
    }
    /// Writes the stub into a file in place of the old one; the user block stays.
    pub fn put(&self, file: &fs::File) -> std::io::Result<()> {
        let text = self.text();
        // In a new file, the hole before the text is the user block.
        file.write_all_at(&text, self.user_block)?;
        file.set_len(self.user_block + text.len() as u64)
    }
    /// Writes the stub into an empty file.
    pub fn put_into_empty(&self, file: &fs::File) -> std::io::Result<()> {
        file.write_all_at(&self.text(), self.user_block)
    }
    /// Reads the stub in an open file.
    pub fn read(file: &fs::File, path: &Path) -> Result<Option<Self>> {
        Ok(match look_in(file, path)? {
            Seen::Stub(stub) => Some(stub),
            _ => None,
        })
    }
}

/// Makes a file at `path`, which must not exist.
pub fn make(path: &Path) -> Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o666);
    options.open(path).map_err(|e| create_error(path, &e))
}

/// Returns true if a native file, or the stub of a staged one, is at `path`: both are only read.
pub fn is_native(path: &Path) -> bool {
    match look(path) {
        Ok(Seen::Native) => true,
        Ok(Seen::Stub(stub)) => stub.staged,
        _ => false,
    }
}

/// The error for a file that cannot be created, in the words of HDF5's own drivers (h5py reads the number).
pub fn create_error(path: &Path, e: &std::io::Error) -> Error {
    os_error("unable to create file", path, e)
}

/// The error for a file that cannot be opened, in the words of HDF5's own drivers.
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

/// Looks at the file at `path`: the signature is at 0, or after a user block at 512, 1024, 2048, ….
pub fn look(path: &Path) -> Result<Seen> {
    match open_quietly(path) {
        Ok(file) => look_in(&file, path),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Seen::Nothing),
        Err(e) => Err(open_error(path, &e)),
    }
}

/// Opens a file for reading without changing its access time, if this user may: to [`super::kept`], a changed time means a
/// copy.
pub fn open_quietly(path: &Path) -> std::io::Result<fs::File> {
    match fs::OpenOptions::new().read(true).custom_flags(libc::O_NOATIME).open(path) {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => fs::File::open(path),
        opened => opened,
    }
}

/// Finds out what an open file is.
pub fn look_in(file: &fs::File, path: &Path) -> Result<Seen> {
    look_into(file, path).map(|(seen, _)| seen)
}

/// Finds out what an open file is, and its file status from right before.
pub fn look_into(file: &fs::File, path: &Path) -> Result<(Seen, fs::Metadata)> {
    let about = file.metadata().map_err(|e| open_error(path, &e))?;
    Ok((look_for(file, about.len(), path)?, about))
}

fn look_for(file: &fs::File, size: u64, path: &Path) -> Result<Seen> {
    let wrap = |e: std::io::Error| open_error(path, &e);
    let mut at = 0;
    loop {
        // Reads most stubs whole.
        let mut few = [0; READ_FIRST];
        let (len, is_end) = read_most(file, &mut few, at, size).map_err(wrap)?;
        let begin = &few[..len];
        // Reading a directory fails here.
        if begin.starts_with(SIGNATURE) {
            let is_ours = [MARK, MARK_1, SNAPSHOT_MARK].iter().any(|mark| begin[SIGNATURE.len()..].starts_with(mark));
            if is_end || !is_ours {
                return Ok(parse(begin, at));
            }
            let mut bytes = vec![0; READ_MAX];
            let (len, _) = read_most(file, &mut bytes, at, size).map_err(wrap)?;
            return Ok(parse(&bytes[..len], at));
        }
        at = if at == 0 { 512 } else { at * 2 };
        if at >= size {
            return Ok(if size == 0 { Seen::Empty } else { Seen::Other });
        }
    }
}

/// Parses bytes that begin with the signature.
fn parse(bytes: &[u8], user_block: u64) -> Seen {
    match parse_snapshot(bytes) {
        Some((path, name)) => Seen::Snapshot(path, name),
        None => Stub::parse(bytes, user_block).map_or(Seen::Native, Seen::Stub),
    }
}

fn parse_snapshot(bytes: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(bytes.strip_prefix(SIGNATURE)?.strip_prefix(SNAPSHOT_MARK)?).ok()?;
    let field = |name: &str| text.lines().rev().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    Some((path::of_line(&field("path: ")?), field("snapshot: ")?))
}

/// Reads until the buffer or the file ends; returns true at the end of the file. A file of `size` bytes counts as
/// read when these are read, without another call.
fn read_most(file: &fs::File, bytes: &mut [u8], at: u64, size: u64) -> std::io::Result<(usize, bool)> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], at + done as u64) {
            Ok(0) => return Ok((done, true)),
            Ok(n) => done += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if at + done as u64 == size {
            return Ok((done, true));
        }
    }
    Ok((done, false))
}

/// The error for a path that holds no file of a store.
pub fn refuse(path: &Path, seen: &Seen) -> Error {
    match seen {
        Seen::Nothing => open_error(path, &std::io::Error::from_raw_os_error(libc::ENOENT)),
        Seen::Native => Error::new(ErrorKind::Unsupported, format!("file {}", path.display()))
            .because("it is a native HDF5 file, which the cenote connector reads and does not change")
            .try_next("unset HDF5_VOL_CONNECTOR to change or delete it"),
        Seen::Snapshot(of, name) => Error::new(ErrorKind::PermissionDenied, format!("file {}", path.display()))
            .because(format!("it is the stub of snapshot `{name}` of {of}, which is read-only"))
            .try_next("remove this stub as any file; `cenote snapshot delete` deletes the snapshot"),
        _ => Error::new(ErrorKind::Corrupt, format!("unable to open file: name = '{}'", path.display()))
            .because("file signature not found: it is neither an HDF5 file nor the stub of one in a Cenote store"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_is_read_back_and_begins_like_hdf5() {
        let stub = Stub {
            uuid: 0xfeed << 96,
            container: Some(ContainerId(17)),
            state: 3,
            path: "/data/run 1.h5".into(),
            store: "/scratch/store".into(),
            user_block: 0,
            staged: true,
        };
        let text = stub.text();
        assert!(text.starts_with(SIGNATURE) && text.len() > 9);
        assert_eq!(Stub::parse(&text, 0), Some(stub));
        assert_eq!(Stub::parse(b"\x89HDF\r\n\x1a\n\0\0\0", 0), None);
    }

    #[test]
    fn stubs_of_the_version_before_are_read() {
        let text = b"\x89HDF\r\n\x1a\n\ncenote-hdf5-stub 1\nwords\nfile-id: 0f\npath: /a b\nstore: /s\n";
        let stub = Stub::parse(text, 0).unwrap();
        assert_eq!((stub.uuid, stub.container, stub.state, &*stub.path, &*stub.store), (15, None, 0, "/a b", "/s"));
    }

    #[test]
    fn a_stub_is_found_behind_a_user_block_which_stays_when_it_is_written_anew() {
        let dir = std::env::temp_dir().join(format!("cenote-stub-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("f.h5");
        for user_block in [0, 512, 2048, 1 << 20] {
            let (container, path_of, store) = (Some(ContainerId(1)), "/a".to_owned(), "/s".to_owned());
            let stub = Stub { uuid: 7, container, state: 9, path: path_of, store, user_block, staged: false };
            let _ = fs::remove_file(&path);
            stub.put(&make(&path).unwrap()).unwrap();
            fs::OpenOptions::new()
                .write(true)
                .open(&path)
                .unwrap()
                .write_all_at(&[b'X'; 9][..user_block.min(9) as usize], 0)
                .unwrap();
            let seen = look(&path).unwrap();
            assert!(matches!(&seen, Seen::Stub(found) if *found == stub), "{user_block}");
            let renamed = Stub { path: "/b".into(), ..stub };
            renamed.put(&fs::OpenOptions::new().write(true).open(&path).unwrap()).unwrap();
            assert_eq!(look(&path).unwrap(), Seen::Stub(renamed));
            assert!(user_block == 0 || fs::read(&path).unwrap().starts_with(b"XXXXXXXXX"));
        }
        fs::write(&path, [&[0; 512][..], SIGNATURE, &[0; 40]].concat()).unwrap();
        assert_eq!(look(&path).unwrap(), Seen::Native);
        fs::write(&path, b"CDF\x01").unwrap();
        assert_eq!(look(&path).unwrap(), Seen::Other);
        fs::remove_dir_all(&dir).unwrap();
    }
}
