//! Absolute, normalised paths: what makes two names the same file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use cenote::{Error, ErrorKind};

use crate::Result;

/// The absolute path without `.` and `..`; symbolic links are followed as far as the path exists.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    if let Ok(real) = path.canonicalize() {
        return Ok(real);
    }
    let whole = if path.is_absolute() {
        path.to_path_buf()
    } else {
        std::env::current_dir().map_err(|e| Error::io("the current directory", &e))?.join(path)
    };
    if let (Some(parent), Some(name)) = (whole.parent(), whole.file_name())
        && let Ok(real) = parent.canonicalize()
    {
        return Ok(real.join(name));
    }
    let mut out = PathBuf::new();
    for part in whole.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

/// A file name as HDF5 gave it.
pub fn from_bytes(name: &[u8]) -> Result<&Path> {
    if name.is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "file name").because("it is empty"));
    }
    Ok(Path::new(OsStr::from_bytes(name)))
}

/// The path as text for labels: bytes that are not UTF-8 are written as `%xx`, and so is `%` before two hex digits.
pub fn label(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes
            .iter()
            .map(|b| if b.is_ascii_graphic() { char::from(*b).to_string() } else { format!("%{b:02x}") })
            .collect(),
    }
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
        assert_eq!(absolute(Path::new("/no/such/../dir/./f")).unwrap(), Path::new("/no/dir/f"));
    }
}
