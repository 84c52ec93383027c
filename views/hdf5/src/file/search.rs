//! Where to look for a file named by another: sources of virtual datasets, external raw data files, targets of external links.
//! The rules and environment variables are HDF5's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::path;

/// Stands for the directory of the naming file at the beginning of a prefix.
const ORIGIN: &[u8] = b"${ORIGIN}";

/// Expands `${ORIGIN}` in a prefix to the directory of the file at `from`. `None` if the prefix names nothing.
pub fn expand(prefix: &[u8], from: &str) -> Option<PathBuf> {
    if prefix.is_empty() || prefix == b"." {
        return None;
    }
    let Some(rest) = prefix.strip_prefix(ORIGIN) else { return Some(PathBuf::from(OsStr::from_bytes(prefix))) };
    let mut whole = directory(from).into_os_string().into_vec();
    whole.push(b'/');
    whole.extend_from_slice(rest);
    Some(PathBuf::from(OsString::from_vec(whole)))
}

/// The directory of the file with this label.
fn directory(from: &str) -> PathBuf {
    path::of_label(from).parent().unwrap_or(Path::new("/")).to_path_buf()
}

/// The value of an environment variable; `None` if it is unset or empty.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Places where a file `named` by the file at `from` may be, in HDF5's order: an absolute name itself, below each directory of
/// the environment variable, below the prefix of the access properties, beside the naming file, and the name as given.
pub fn places(env: &str, prefix: Option<&Path>, from: &str, named: &Path) -> Vec<PathBuf> {
    let mut places = Vec::new();
    let mut rest = named;
    if named.is_absolute() {
        places.push(named.to_path_buf());
        // Files that moved together are found by their last name component.
        rest = named.file_name().map_or(named, Path::new);
    }
    if let Some(list) = variable(env) {
        let directories = list.as_bytes().split(|byte| *byte == b':').filter(|one| !one.is_empty());
        places.extend(directories.map(|one| Path::new(OsStr::from_bytes(one)).join(rest)));
    }
    places.extend(prefix.map(|prefix| prefix.join(rest)));
    places.push(directory(from).join(rest));
    places.push(rest.to_path_buf());
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_the_directory_of_the_naming_file() {
        assert_eq!(expand(b"${ORIGIN}/sub", "/data/run/f.h5"), Some(PathBuf::from("/data/run/sub")));
        assert_eq!(expand(b"${ORIGIN}", "/data/run/f.h5"), Some(PathBuf::from("/data/run")));
        assert_eq!(expand(b"there", "/data/run/f.h5"), Some(PathBuf::from("there")));
        assert_eq!((expand(b".", "/f"), expand(b"", "/f")), (None, None));
    }

    #[test]
    fn places_are_tried_in_order() {
        let none = "CENOTE_TEST_NO_SUCH_VARIABLE";
        let places = |prefix, named| places(none, prefix, "/data/f.h5", Path::new(named));
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(places(None, "a/b.h5"), paths(&["/data/a/b.h5", "a/b.h5"]));
        assert_eq!(places(Some(Path::new("/pre")), "b.h5"), paths(&["/pre/b.h5", "/data/b.h5", "b.h5"]));
        assert_eq!(places(None, "/old/b.h5"), paths(&["/old/b.h5", "/data/b.h5", "b.h5"]));
    }
}
