//! Walking paths: from a location along links to an object.

use std::sync::Arc;

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::error::TOO_MANY_LINKS;
use crate::ffi::types::{H5P_DEFAULT, hid_t};
use crate::file::{File, mounts};
use crate::udlink;

use super::keys::ROOT;
use super::links::{self, Link, Target};

/// Maximum number of soft and external links in one path, as in HDF5.
pub const LINKS_MAX: u32 = 16;

/// An object in a file, with the path by which it was reached (empty: unknown).
#[derive(Clone)]
pub struct Location {
    /// The file.
    pub file: Arc<File>,
    /// The object.
    pub oid: u64,
    /// Absolute path, if known.
    pub path: Vec<u8>,
}

/// Result of walking a path.
pub struct ResolvedPath {
    /// The file (another one after an external link).
    pub file: Arc<File>,
    /// The group that holds the last link; the location itself for `.` and `/`.
    pub group: u64,
    /// Name of the last link; empty for `.` and `/`.
    pub name: Vec<u8>,
    /// The last link, if it exists.
    pub link: Option<Link>,
    /// The object, if it exists (the last link is followed if requested).
    pub oid: Option<u64>,
    /// Absolute path by which it was reached; empty if unknown.
    pub path: Vec<u8>,
}

impl ResolvedPath {
    /// The object as a place; an error if there is none.
    pub fn place(self) -> Result<Location> {
        match self.oid {
            Some(oid) => Ok(Location { file: self.file, oid, path: self.path }),
            None => Err(not_found(&self.file, &self.path, &self.name)),
        }
    }
}

/// The error for a path that leads nowhere.
pub fn not_found(file: &File, path: &[u8], name: &[u8]) -> Error {
    let path = if path.is_empty() { name } else { path };
    Error::new(ErrorKind::NotFound, format!("`{}` in file {}", String::from_utf8_lossy(path), file.path))
        .because(format!("object '{}' doesn't exist", String::from_utf8_lossy(name)))
}

/// `base/name`, absolute; empty if the base is unknown.
pub fn join(base: &[u8], name: &[u8]) -> Vec<u8> {
    if base.is_empty() {
        return Vec::new();
    }
    let mut path = base.to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// The components of a path, without empty ones and dots.
pub fn components(path: &[u8]) -> Vec<&[u8]> {
    path.split(|b| *b == b'/').filter(|c| !c.is_empty() && *c != b".").collect()
}

/// State of a walk.
struct Walk {
    /// Number of soft and external links that may still be followed.
    links_left: u32,
    /// Link access properties, which say how files of external links are opened.
    lapl: hid_t,
    /// External and user-defined links that cannot be followed count as missing, not as errors.
    is_lenient: bool,
}

/// Walks `path` from `from`. `follow_last`: also follows a soft or external link at the end. A missing last component is
/// not an error here; an earlier missing one is.
pub fn resolve(from: &Location, path: &[u8], follow_last: bool) -> Result<ResolvedPath> {
    resolve_as(from, path, follow_last, H5P_DEFAULT)
}

/// Like [`resolve`], with link access properties.
pub fn resolve_as(from: &Location, path: &[u8], follow_last: bool, lapl: hid_t) -> Result<ResolvedPath> {
    walk(from, path, follow_last, &mut Walk { links_left: LINKS_MAX, lapl, is_lenient: false })
}

/// Returns true if the path leads to an object. As in HDF5, an external link that cannot be followed, for whatever reason,
/// gives false; a missing group before the last component is an error.
pub fn leads_to_object(from: &Location, path: &[u8], lapl: hid_t) -> Result<bool> {
    let mut way = Walk { links_left: LINKS_MAX, lapl, is_lenient: true };
    Ok(walk(from, path, true, &mut way)?.oid.is_some())
}

/// Where absolute paths begin: the file's root group, or that of the file in which it is mounted.
pub fn root_of(file: &Arc<File>) -> Location {
    Location { file: mounts::top(file), oid: ROOT, path: b"/".to_vec() }
}

fn walk(from: &Location, path: &[u8], follow_last: bool, way: &mut Walk) -> Result<ResolvedPath> {
    let mut at = if path.first() == Some(&b'/') { root_of(&from.file) } else { from.clone() };
    let parts = components(path);
    let mut found = ResolvedPath {
        file: at.file.clone(),
        group: at.oid,
        name: Vec::new(),
        link: None,
        oid: Some(at.oid),
        path: at.path.clone(),
    };
    // `a/.` names the object, not the link that leads to it.
    let dotted = names_no_link(path);
    for (i, part) in parts.iter().enumerate() {
        let last = i + 1 == parts.len() && !dotted;
        let Some(oid) = found.oid else { return Err(not_found(&found.file, &found.path, &found.name)) };
        at = Location { file: found.file.clone(), oid, path: found.path.clone() };
        found = step(&at, part, follow_last || !last, way)?;
    }
    if dotted && !parts.is_empty() {
        found.group = found.oid.ok_or_else(|| not_found(&found.file, &found.path, &found.name))?;
        found.name.clear();
        found.link = None;
    }
    Ok(found)
}

/// Returns true for a path whose last component is a dot: HDF5 drops the dot, but does not treat the component before it as
/// the last.
pub fn names_no_link(path: &[u8]) -> bool {
    path.split(|b| *b == b'/').rfind(|c| !c.is_empty()) == Some(b".")
}

fn step(at: &Location, name: &[u8], follow: bool, way: &mut Walk) -> Result<ResolvedPath> {
    let link = links::get(&at.file, at.oid, name)?;
    let mut found = ResolvedPath {
        file: at.file.clone(),
        group: at.oid,
        name: name.to_vec(),
        link: link.clone(),
        oid: None,
        path: join(&at.path, name),
    };
    let Some(link) = link else {
        return match super::header::get(&at.file, at.oid)?.body {
            super::header::Body::Group(_) => Ok(found),
            _ => Err(links::not_a_group(&at.file, at.oid)),
        };
    };
    match link.target {
        Target::Hard(oid) => found.oid = Some(oid),
        _ if !follow => {}
        _ if way.links_left == 0 => {
            return Err(Error::new(ErrorKind::LimitExceeded, format!("`{}`", String::from_utf8_lossy(&found.path)))
                .because(format!(
                    "{TOO_MANY_LINKS}: more than {LINKS_MAX} soft or external links on the way (a cycle?)"
                )));
        }
        Target::Soft(target) => {
            way.links_left -= 1;
            let end = walk(at, &target, true, way)?;
            found.oid = end.oid;
            found.file = end.file;
        }
        Target::User(class, value) => match leave(at, name, class, &value, way) {
            Ok(end) => {
                found.path.clone_from(&end.path);
                found.oid = end.oid;
                found.file = end.file;
            }
            Err(_) if way.is_lenient => {}
            Err(error) => return Err(error),
        },
    }
    if follow && let Some(oid) = &mut found.oid {
        mounts::traverse(&mut found.file, oid);
    }
    Ok(found)
}

/// Follows an external or user-defined link of the group `at`.
fn leave(at: &Location, name: &[u8], class: u8, value: &[u8], way: &mut Walk) -> Result<ResolvedPath> {
    way.links_left -= 1;
    if class == 64 {
        let (file, target) = external_parts(value)?;
        let other = crate::file::beside::open_external(&at.file, file, way.lapl)?;
        return walk(&Location { file: other, oid: ROOT, path: b"/".to_vec() }, target, true, way);
    }
    let end = udlink::follow(&udlink::Link { group: at, name, class, value }, way.lapl)?;
    let (group, name, link) = (end.oid, Vec::new(), None);
    Ok(ResolvedPath { file: end.file, group, name, link, oid: Some(end.oid), path: end.path })
}

/// File name and path in the value of an external link (a version byte, then two C strings).
pub fn external_parts(value: &[u8]) -> Result<(&[u8], &[u8])> {
    let bad = || Error::new(ErrorKind::Corrupt, "external link").because("its value is not two strings");
    let rest = value.get(1..).ok_or_else(bad)?;
    let mut parts = rest.splitn(3, |b| *b == 0);
    match (parts.next(), parts.next()) {
        (Some(file), Some(object)) => Ok((file, object)),
        _ => Err(bad()),
    }
}

/// Some path to an object, found by visiting the file from its root; `None` if no link leads to it.
pub fn search_path(file: &Arc<File>, oid: u64) -> Result<Option<Vec<u8>>> {
    if oid == ROOT {
        return Ok(Some(b"/".to_vec()));
    }
    let mut seen = std::collections::HashSet::from([ROOT]);
    let mut todo = std::collections::VecDeque::from([(ROOT, b"/".to_vec())]);
    while let Some((group, path)) = todo.pop_front() {
        for (name, link) in links::list(file, group)? {
            let Target::Hard(child) = link.target else { continue };
            let child_path = join(&path, &name);
            if child == oid {
                return Ok(Some(child_path));
            }
            if seen.insert(child) {
                todo.push_back((child, child_path));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_and_joined_as_hdf5_does() {
        assert_eq!(components(b"/a//b/./c/"), [b"a".as_slice(), b"b", b"c"]);
        assert!(components(b"/.//").is_empty());
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
        assert!(join(b"", b"b").is_empty());
    }

    #[test]
    fn an_external_link_is_a_file_and_a_path() {
        assert_eq!(external_parts(b"\0f.h5\0/x\0").unwrap(), (b"f.h5".as_slice(), b"/x".as_slice()));
        assert!(external_parts(b"\0f.h5").is_err());
    }
}
