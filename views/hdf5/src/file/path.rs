//! Absolute, normalised paths, which decide whether two names are the same file.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use cenote::{Error, ErrorKind};

use crate::Result;

/// Most dangling symbolic links that are followed in sequence.
const LINKS_MAX: u32 = 40;
/// Prefix of labels whose path is not plain text; no other absolute path begins so.
const ENCODED: &str = "//";

/// The absolute path without `.` and `..`; symbolic links are followed as far as the path exists. A path that cannot be a file
/// stays whole, so that the system reports why.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    let whole = if path.is_absolute() {
        path.to_path_buf()
    } else {
        std::env::current_dir().map_err(|e| Error::io("the current directory", &e))?.join(path)
    };
    Ok(followed(whole, LINKS_MAX))
}

fn followed(whole: PathBuf, left: u32) -> PathBuf {
    let bytes = whole.as_os_str().as_bytes();
    let is_directory = bytes.ends_with(b"/") || bytes.ends_with(b"/.");
    let (Some(parent), Some(name), false) = (whole.parent(), whole.file_name(), is_directory) else {
        // Only a directory may have such a name.
        return whole.canonicalize().unwrap_or(whole);
    };
    // The last name on its own: for a file that does not exist yet and is about to be made, no more can be resolved.
    let Ok(parent) = parent.canonicalize() else { return whole };
    let here = parent.join(name);
    match here.read_link() {
        // Creating the file creates it where the link leads.
        Ok(target) if left > 0 => here.canonicalize().unwrap_or_else(|_| followed(parent.join(target), left - 1)),
        _ => here,
    }
}

/// Returns true if both are names of one file.
pub fn is_same(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    matches!((a.metadata(), b.metadata()), (Ok(a), Ok(b)) if (a.dev(), a.ino()) == (b.dev(), b.ino()))
}

/// A file name as given by HDF5.
pub fn from_bytes(name: &[u8]) -> Result<&Path> {
    if name.is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "file name").because("it is empty"));
    }
    Ok(Path::new(OsStr::from_bytes(name)))
}

/// The path as text for labels. A path that is not UTF-8 is encoded so that no other path has the same label.
pub fn label(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    std::str::from_utf8(bytes).map_or_else(|_| encoded(bytes), str::to_owned)
}

/// The path in a label.
pub fn of_label(label: &str) -> PathBuf {
    let Some(rest) = label.strip_prefix(ENCODED) else { return PathBuf::from(label) };
    let (mut bytes, mut out) = (rest.as_bytes(), Vec::new());
    while let Some((byte, behind)) = bytes.split_first() {
        let two = behind.get(..2).filter(|_| *byte == b'%');
        let coded = two.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        out.push(coded.unwrap_or(*byte));
        bytes = if coded.is_some() { &behind[2..] } else { behind };
    }
    PathBuf::from(OsString::from_vec(out))
}

/// A label as one line of text.
pub fn line(label: &str) -> String {
    if label.contains(char::is_control) { encoded(label.as_bytes()) } else { label.to_owned() }
}

/// The label in a line of text.
pub fn of_line(line: &str) -> String {
    label(&of_label(line))
}

fn encoded(path: &[u8]) -> String {
    let mut out = ENCODED.to_owned();
    for byte in path {
        if byte.is_ascii_graphic() && *byte != b'%' {
            out.push(char::from(*byte));
        } else {
            // Writing to a string never fails.
            let _ = write!(out, "%{byte:02x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_file_become_one_path() {
        let dir = std::env::temp_dir().canonicalize().unwrap();
        let plain = absolute(&dir.join("no-such-file.h5")).unwrap();
        assert_eq!(absolute(&dir.join("./no-such-file.h5")).unwrap(), plain);
        assert_eq!(absolute(&dir.join("../").join(dir.file_name().unwrap()).join("no-such-file.h5")).unwrap(), plain);
        // The system must refuse a path in no directory, or one that must be a directory.
        for refused in ["/no/such/../dir/f", "/no/such/"] {
            assert_eq!(absolute(Path::new(refused)).unwrap().as_os_str(), refused);
        }
    }

    #[test]
    fn a_link_that_leads_to_nothing_yet_names_what_will_be_there() {
        let dir = std::env::temp_dir().canonicalize().unwrap().join(format!("cenote-path-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::os::unix::fs::symlink("second.h5", dir.join("first.h5")).unwrap();
        std::os::unix::fs::symlink(dir.join("real.h5"), dir.join("second.h5")).unwrap();
        std::os::unix::fs::symlink("round.h5", dir.join("round.h5")).unwrap();
        assert_eq!(absolute(&dir.join("first.h5")).unwrap(), dir.join("real.h5"));
        assert_eq!(absolute(&dir.join("round.h5")).unwrap(), dir.join("round.h5"));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn no_two_paths_have_one_label() {
        let paths =
            [&b"/a/\xff.h5"[..], b"/a/%ff.h5", b"/a/%25ff.h5", b"/a/\xff%ff.h5", b"/a/\xff%", b"/a b\n/\xc3\xa9"];
        let mut labels = std::collections::BTreeSet::new();
        for bytes in paths {
            let path = Path::new(OsStr::from_bytes(bytes));
            let label = label(path);
            assert_eq!(of_label(&label), path);
            assert_eq!((of_line(&line(&label)), line(&label).lines().count()), (label.clone(), 1));
            assert!(labels.insert(label));
        }
    }
}
