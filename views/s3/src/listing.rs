//! Pages of keys: prefix, delimiter, start, limit.

use cenote_posix::{Attr, Ino, Kind};
use s3s::{S3Result, s3_error};

use crate::alive;
use crate::failure::{failed, is_gone};
use crate::gateway::{Gateway, is_aborted};
use crate::meta::{MARKER, Meta};
use crate::walk::{Node, Tree, Walk, successor};

/// S3's limit of keys in a page.
pub const KEYS_MAX: usize = 1000;

/// Parameters of a page.
#[derive(Clone, Default, Debug)]
pub struct Wanted {
    /// Only keys with this prefix.
    pub prefix: String,
    /// Keys with this text after the prefix are grouped up to and including it; empty for none.
    pub delimiter: String,
    /// Start after this key, or after all keys with this common prefix.
    pub after: Option<String>,
    /// Maximum number of keys and common prefixes.
    pub limit: usize,
}

/// A page.
pub struct Page<T> {
    /// Keys.
    pub items: Vec<(String, T)>,
    /// Common prefixes.
    pub prefixes: Vec<String>,
    /// The page's last key or common prefix, if more follow.
    pub next: Option<String>,
}

impl Wanted {
    /// Checks the requested limit.
    pub fn limit(asked: Option<i32>) -> S3Result<usize> {
        match asked {
            None => Ok(KEYS_MAX),
            Some(asked) => usize::try_from(asked).map(|asked| asked.min(KEYS_MAX)).map_err(|_| {
                s3_error!(InvalidArgument, "Argument maxKeys must be an integer between 0 and 2147483647")
            }),
        }
    }
    /// Returns the common prefix of a key, if it has one.
    pub fn common<'a>(&self, key: &'a str) -> Option<&'a str> {
        if self.delimiter.is_empty() {
            return None;
        }
        let behind = key.get(self.prefix.len()..)?;
        behind.find(&self.delimiter).map(|at| &key[..self.prefix.len() + at + self.delimiter.len()])
    }
    /// Returns where the wanted keys begin; `None` if there are none.
    pub fn begins(&self) -> Option<String> {
        let Some(after) = self.after.as_deref().filter(|after| *after >= self.prefix.as_str()) else {
            return Some(self.prefix.clone());
        };
        let is_common = after.starts_with(&self.prefix) && self.common(after) == Some(after);
        // Keys contain no NUL, so the smallest key after this one begins with it and this character.
        if is_common { successor(after) } else { Some(format!("{after}\u{1}")) }
    }
    /// Takes a page from a walk.
    pub fn page<T: Tree>(&self, tree: &T, root: T::Directory) -> S3Result<Page<T::Item>> {
        let mut page = Page { items: Vec::new(), prefixes: Vec::new(), next: None };
        let Some(begin) = self.begins() else { return Ok(page) };
        if self.limit == 0 {
            return Ok(page);
        }
        let mut walk = Walk::new(tree, root, &begin, self.limit + 1)?;
        let mut last: Option<String> = None;
        while let Some((key, item)) = walk.next()? {
            alive::check()?;
            if !key.starts_with(&self.prefix) {
                break;
            }
            if page.items.len() + page.prefixes.len() >= self.limit {
                page.next = last;
                break;
            }
            if let Some(common) = self.common(&key) {
                walk.skip(common)?;
                page.prefixes.push(common.to_owned());
                last = Some(common.to_owned());
            } else {
                last = Some(key.clone());
                page.items.push((key, item));
            }
        }
        Ok(page)
    }
}

/// The files of a bucket.
pub struct Files<'a>(pub &'a Gateway);

/// A listed key.
pub struct Item {
    /// Attributes of the file, or of the directory that is a key.
    pub attr: Attr,
    /// Metadata of a directory that is a key.
    pub marker: Option<Meta>,
}

impl Files<'_> {
    fn node_of(name: Vec<u8>, attr: Attr) -> Option<Node<Ino, Item>> {
        let name = String::from_utf8(name).ok()?;
        match attr.kind {
            Kind::File => Some(Node { name, key: Some(Item { attr, marker: None }), below: None }),
            Kind::Directory => Some(Node { name, key: None, below: Some(attr.ino) }),
            _ => None,
        }
    }
}

impl Tree for Files<'_> {
    type Directory = Ino;
    type Item = Item;
    fn page(&self, of: &Ino, after: Option<&[u8]>, limit: usize) -> S3Result<(Vec<Node<Ino, Item>>, Option<Vec<u8>>)> {
        let entries = match self.0.fs.list(*of, after, limit) {
            Err(error) if is_gone(&error) => Vec::new(), // deleted meanwhile
            entries => entries.map_err(|error| failed(&error, "directory"))?,
        };
        let end = entries.last().filter(|_| entries.len() >= limit).map(|(name, _)| name.clone());
        Ok((entries.into_iter().filter_map(|(name, attr)| Self::node_of(name, attr)).collect(), end))
    }
    fn node(&self, of: &Ino, name: &str) -> S3Result<Option<Node<Ino, Item>>> {
        if name.is_empty() || name.len() > 255 || name == "." || name == ".." || name.contains('\0') {
            return Ok(None);
        }
        match self.0.fs.lookup(&self.0.me, *of, name.as_bytes()) {
            Ok(attr) => Ok(Self::node_of(name.as_bytes().to_vec(), attr)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(failed(&error, name)),
        }
    }
    fn own(&self, directory: &Ino) -> S3Result<Option<Item>> {
        let value = match self.0.xattr(*directory, MARKER) {
            Err(error) if is_aborted(&error) => None, // deleted meanwhile
            value => value?,
        };
        let Some(value) = value else { return Ok(None) };
        let attr = match self.0.fs.attr(*directory) {
            Err(error) if is_gone(&error) => return Ok(None),
            attr => attr.map_err(|error| failed(&error, "directory"))?,
        };
        Ok(Some(Item { attr, marker: Some(Meta::decode(&value).unwrap_or_default()) }))
    }
}

/// Encodes a text for `encoding-type=url`.
pub fn url_encoded(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' | b'*' => {
                encoded.push(char::from(byte));
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_begin_behind_what_was_given() {
        let wanted = |prefix: &str, delimiter: &str, after: Option<&str>| Wanted {
            prefix: prefix.into(),
            delimiter: delimiter.into(),
            after: after.map(Into::into),
            limit: 10,
        };
        assert_eq!(wanted("p/", "", None).begins().unwrap(), "p/");
        assert_eq!(wanted("p/", "", Some("a")).begins().unwrap(), "p/");
        assert_eq!(wanted("p/", "", Some("p/x")).begins().unwrap(), "p/x\u{1}");
        assert_eq!(wanted("", "/", Some("a/")).begins().unwrap(), "a0");
        assert_eq!(wanted("", "/", Some("a/b")).begins().unwrap(), "a/b\u{1}");
        assert_eq!(wanted("p", "z", None).common("pxzy"), Some("pxz"));
        assert_eq!(wanted("p/", "/", None).common("p/x"), None);
        assert_eq!(url_encoded("a b/\u{e9}+"), "a%20b/%C3%A9%2B");
        assert_eq!(Wanted::limit(Some(5000)).unwrap(), 1000);
        assert!(Wanted::limit(Some(-1)).is_err());
    }
}
