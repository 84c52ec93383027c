//! Mapping of keys to paths and back.
//!
//! A key is the path from the bucket's root: `a/b.dat` is the file `b.dat` in the directory `a`. A key with a trailing slash is a
//! directory. Keys that cannot be paths are refused, so that no two keys are the same file and no key leads out of its bucket.

use s3s::{S3Result, s3_error};

/// S3's limit of a key in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// POSIX's limit of a name in bytes.
const NAME_BYTES_MAX: usize = 255;

/// A parsed key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyPath<'a> {
    key: &'a str,
    /// The key ends with a slash: it is a directory.
    pub is_directory: bool,
}

impl<'a> KeyPath<'a> {
    /// Parses a key, if it can be a path.
    pub fn parse(key: &'a str) -> S3Result<Self> {
        if key.len() > KEY_BYTES_MAX {
            return Err(s3_error!(KeyTooLongError, "the key has {} bytes; {KEY_BYTES_MAX} is the most", key.len()));
        }
        let (path, is_directory) = key.strip_suffix('/').map_or((key, false), |path| (path, true));
        for name in path.split('/') {
            let cause = match name {
                "" => "two slashes in a row, or one at the beginning,",
                "." | ".." => "`.` or `..` between slashes",
                _ if name.len() > NAME_BYTES_MAX => "more than 255 bytes between slashes",
                _ if name.contains('\0') => "a NUL byte",
                _ => continue,
            };
            return Err(s3_error!(
                InvalidArgument,
                "keys are paths of files here, and no path has {cause}: key `{}`",
                key.escape_default()
            ));
        }
        Ok(Self { key: path, is_directory })
    }
    /// Returns the parent directories, outermost first.
    pub fn directories(self) -> impl Iterator<Item = &'a str> {
        self.key.rsplit_once('/').map(|(way, _)| way.split('/')).into_iter().flatten()
    }
    /// Returns the last name.
    pub fn last(self) -> &'a str {
        self.key.rsplit_once('/').map_or(self.key, |(_, last)| last)
    }
    /// Returns all names, outermost first.
    pub fn names(self) -> impl Iterator<Item = &'a str> {
        self.key.split('/')
    }
}

/// Returns whether a bucket of this name may be created: what S3 allows, so that every client can reach it.
pub fn may_be_made(bucket: &str) -> bool {
    let bytes = bucket.as_bytes();
    (3..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && !bucket.contains("..")
        && !bucket.contains(".-")
        && !bucket.contains("-.")
        && bucket.parse::<std::net::Ipv4Addr>().is_err()
        && !bucket.starts_with("xn--")
}

/// Returns whether a container of this label is a bucket: any that is a directory at the top.
pub fn may_be_bucket(label: &str) -> bool {
    !label.is_empty() && label.len() <= NAME_BYTES_MAX && !label.contains(['/', '\0']) && label != "." && label != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_paths_and_nothing_else() {
        let path = KeyPath::parse("a/b c/d.txt").unwrap();
        assert_eq!(path.directories().collect::<Vec<_>>(), ["a", "b c"]);
        assert_eq!((path.last(), path.is_directory), ("d.txt", false));
        let path = KeyPath::parse("a/b/").unwrap();
        assert_eq!((path.directories().collect::<Vec<_>>(), path.last(), path.is_directory), (vec!["a"], "b", true));
        assert_eq!(KeyPath::parse("x").unwrap().directories().count(), 0);
        for bad in ["", "/", "/a", "a//b", "a//", "..", "a/../b", "a/./b", ".", "a/..", "a\0b"] {
            assert_eq!(KeyPath::parse(bad).unwrap_err().code().as_str(), "InvalidArgument", "{bad:?}");
        }
        assert!(KeyPath::parse(&"x".repeat(255)).is_ok());
        assert!(KeyPath::parse(&"x".repeat(256)).is_err());
        assert_eq!(KeyPath::parse(&"x/".repeat(513)).unwrap_err().code().as_str(), "KeyTooLongError");
        assert!(KeyPath::parse("...").is_ok());
    }

    #[test]
    fn buckets_have_names_that_every_client_accepts() {
        for good in ["abc", "a-b.c", "0bucket", "my-bucket-1"] {
            assert!(may_be_made(good), "{good}");
        }
        for bad in ["ab", "Abc", "a_b", "-ab", "ab-", "a..b", "192.168.1.1", "a.-b", &"x".repeat(64), ".", "../x"] {
            assert!(!may_be_made(bad), "{bad}");
        }
        assert!(may_be_bucket("Results_1"));
        assert!(!may_be_bucket("a/b") && !may_be_bucket(".."));
    }
}
