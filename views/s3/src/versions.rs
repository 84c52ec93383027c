//! Old versions and delete markers, kept beside the tree where no path leads.
//!
//! A key's versions are files of a directory `v`, with names that sort the newest first; its directory has the key's last name and, in `d`, the keys
//! below it. The current version of a key is the file at its path, always newer than those. If there is no such file, the newest of those is a
//! delete marker (or somebody removed the file through another view, and then there is no current version).

use cenote_posix::{Attr, Ino, Kind, Make, OpenFlags, Over, Rename, Time};
use s3s::S3Result;

use crate::bucket::Bucket;
use crate::failure::{failed, is_gone};
use crate::gateway::{Gateway, again, vanished};
use crate::meta::{META, Meta, now};
use crate::name::KeyPath;
use crate::walk::{Node, Tree};

/// Version id of what was put without versioning.
pub const NULL: &str = "null";
const NULL_SUFFIX: &str = ".null";
const VERSIONS: &str = "versions";
const OF_KEY: &str = "v";
const BELOW: &str = "d";
/// Versions fetched at a time.
const PAGE: usize = 1000;

/// An old version or a delete marker.
pub struct Old {
    /// Its name in the directory of versions.
    pub name: String,
    /// Its file.
    pub attr: Attr,
    /// Its metadata.
    pub meta: Meta,
}

impl Old {
    /// Returns its id as clients know it.
    pub fn id(&self) -> &str {
        id_of(&self.name)
    }
}

/// Returns the id of a version by the name of its file.
pub fn id_of(name: &str) -> &str {
    if name.ends_with(NULL_SUFFIX) { NULL } else { name }
}

/// Returns a name that sorts before those of all earlier times.
fn at(time: Time) -> String {
    let ns = (time.s as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(time.ns));
    format!("{:016x}", u64::MAX - ns)
}

/// Returns a new version's id.
pub fn new_id() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static LAST: AtomicU64 = AtomicU64::new(0);
    let time = now();
    let ns = time.s as u64 * 1_000_000_000 + u64::from(time.ns);
    // Ids of this process never share a time, so that their order is that of the requests.
    let last = LAST.fetch_max(ns, Ordering::Relaxed);
    let ns = if last >= ns { LAST.fetch_add(1, Ordering::Relaxed) + 1 } else { ns };
    let mut salt = [0; 4];
    let _ = rustix::rand::getrandom(&mut salt, rustix::rand::GetRandomFlags::empty());
    format!("{:016x}{}", u64::MAX - ns, crate::meta::hex(&salt))
}

/// Returns the name under which a current version is kept when another replaces it.
pub fn kept_name(meta: Option<&Meta>, attr: &Attr) -> String {
    match meta.and_then(|meta| meta.version.as_deref()).filter(|id| is_id(id)) {
        Some(id) => id.to_owned(),
        None => format!("{}00000000{NULL_SUFFIX}", at(attr.modified)),
    }
}

/// Returns whether a text can be the id of a version: nothing else is ever looked up.
pub fn is_id(text: &str) -> bool {
    text == NULL
        || (text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase()))
}

impl Gateway {
    /// Returns a directory of the bucket that no path leads to.
    pub fn behind(&self, bucket: &Bucket, name: &str, makes: bool) -> S3Result<Option<Ino>> {
        let back = self.fs.private_dir(bucket.root).map_err(|error| failed(&error, &bucket.name))?;
        self.step(back, name, makes)
    }
    /// Removes a bucket's empty directories that no path leads to.
    pub fn drop_behind(&self, bucket: &Bucket) -> S3Result<()> {
        let back = self.fs.private_dir(bucket.root).map_err(|error| failed(&error, &bucket.name))?;
        for name in ["uploads", VERSIONS] {
            match self.fs.rmdir(&self.me, back, name.as_bytes()) {
                Err(error) if !is_gone(&error) => return Err(failed(&error, &bucket.name)),
                _ => {}
            }
        }
        Ok(())
    }
    /// Looks up a directory, and creates it if wanted.
    fn step(&self, at: Ino, name: &str, makes: bool) -> S3Result<Option<Ino>> {
        loop {
            match self.fs.lookup(&self.me, at, name.as_bytes()) {
                Ok(attr) if attr.kind == Kind::Directory => return Ok(Some(attr.ino)),
                Ok(_) => return Ok(None),
                Err(error) if is_gone(&error) && !makes => return Ok(None),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(failed(&error, name)),
            }
            let what = Make { kind: Kind::Directory, mode: 0o700, rdev: 0, target: Vec::new() };
            match self.fs.make(&self.me, at, name.as_bytes(), &what) {
                Ok(attr) => return Ok(Some(attr.ino)),
                Err(error) if error.errno == libc::EEXIST => {}
                Err(error) if is_gone(&error) => return Err(vanished(name)),
                Err(error) => return Err(failed(&error, name)),
            }
        }
    }
    /// Returns the directory of all versions of a bucket's keys, if it exists.
    pub fn versions_root(&self, bucket: &Bucket) -> S3Result<Option<Ino>> {
        self.behind(bucket, VERSIONS, false)
    }
    /// Returns the directory of a key's versions.
    pub fn versions_of(&self, bucket: &Bucket, path: KeyPath<'_>, makes: bool) -> S3Result<Option<Ino>> {
        let Some(mut at) = self.behind(bucket, VERSIONS, makes)? else { return Ok(None) };
        for (depth, name) in path.names().enumerate() {
            if depth > 0 {
                let Some(below) = self.step(at, BELOW, makes)? else { return Ok(None) };
                at = below;
            }
            let Some(node) = self.step(at, name, makes)? else { return Ok(None) };
            at = node;
        }
        self.step(at, OF_KEY, makes)
    }
    /// Returns the content of a directory of versions, the newest first.
    pub fn versions_in(&self, directory: Ino) -> S3Result<Vec<Old>> {
        again(|| {
            let mut all = Vec::new();
            let mut after: Option<Vec<u8>> = None;
            loop {
                let page = match self.fs.list(directory, after.as_deref(), PAGE) {
                    Err(error) if is_gone(&error) => return Ok(all),
                    page => page.map_err(|error| failed(&error, "versions"))?,
                };
                let Some((last, _)) = page.last() else { return Ok(all) };
                after = Some(last.clone());
                let is_end = page.len() < PAGE;
                for (name, attr) in page {
                    let Ok(name) = String::from_utf8(name) else { continue };
                    let meta = self.meta(attr.ino)?.unwrap_or_default();
                    all.push(Old { name, attr, meta });
                }
                if is_end {
                    return Ok(all);
                }
            }
        })
    }
    /// Returns the newest in a directory of versions.
    pub fn newest_in(&self, directory: Ino) -> S3Result<Option<Old>> {
        again(|| {
            let page = match self.fs.list(directory, None, 1) {
                Err(error) if is_gone(&error) => return Ok(None),
                page => page.map_err(|error| failed(&error, "versions"))?,
            };
            let Some((name, attr)) = page.into_iter().next() else { return Ok(None) };
            let meta = self.meta(attr.ino)?.unwrap_or_default();
            Ok(String::from_utf8(name).ok().map(|name| Old { name, attr, meta }))
        })
    }
    /// Returns a version in a directory by the id that clients know.
    pub fn version_in(&self, directory: Ino, id: &str) -> S3Result<Option<Old>> {
        again(|| {
            if id == NULL {
                return Ok(self.versions_in(directory)?.into_iter().find(|old| old.id() == NULL));
            }
            match self.fs.lookup(&self.me, directory, id.as_bytes()) {
                Ok(attr) => {
                    let meta = self.meta(attr.ino)?.unwrap_or_default();
                    Ok(Some(Old { name: id.to_owned(), attr, meta }))
                }
                Err(error) if is_gone(&error) => Ok(None),
                Err(error) => Err(failed(&error, id)),
            }
        })
    }
    /// Creates a delete marker; returns its id.
    pub fn mark_deleted(&self, bucket: &Bucket, directory: Ino, is_null: bool, owner: &str) -> S3Result<String> {
        let id = new_id();
        let name = if is_null { format!("{id}{NULL_SUFFIX}") } else { id.clone() };
        let time = now();
        let meta = Meta {
            is_delete_marker: true,
            version: (!is_null).then(|| id.clone()),
            owner: owner.to_owned(),
            began: Some((time.s, time.ns)),
            ..Meta::default()
        };
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let file =
            self.fs.open_unnamed(&self.me, bucket.root, flags, 0o600).map_err(|error| failed(&error, "deletion"))?;
        self.fs
            .place(&self.me, &file, (directory, name.as_bytes()), &[(META, &meta.encode())], Over::Any, None)
            .map_err(|error| failed(&error, "deletion"))?;
        Ok(if is_null { NULL.to_owned() } else { id })
    }
    /// Deletes a version permanently.
    pub fn drop_version(&self, directory: Ino, name: &str) -> S3Result<()> {
        match self.fs.unlink(&self.me, directory, name.as_bytes()) {
            Err(error) if is_gone(&error) => Ok(()),
            done => done.map_err(|error| failed(&error, name)),
        }
    }
    /// Deletes what has no version id in a directory of versions.
    pub fn drop_null(&self, directory: Ino, except: Option<&str>) -> S3Result<()> {
        for old in self.versions_in(directory)? {
            if old.id() == NULL && except != Some(old.name.as_str()) {
                self.drop_version(directory, &old.name)?;
            }
        }
        Ok(())
    }
    /// Makes the newest old version current, unless it is a delete marker or something is at the key's path.
    pub fn promote(&self, bucket: &Bucket, path: KeyPath<'_>, key: &str, directory: Ino) -> S3Result<()> {
        let Some(newest) = self.newest_in(directory)?.filter(|newest| !newest.meta.is_delete_marker) else {
            return Ok(());
        };
        let parent = self.make_parent(&self.me, bucket, path, key)?;
        let to = (parent, path.last().as_bytes());
        match self.fs.rename(&self.me, (directory, newest.name.as_bytes()), to, Rename::Keep) {
            Err(error) if error.errno == libc::EEXIST => Ok(()),
            done => done.map_err(|error| failed(&error, key)),
        }
    }
    /// Removes directories of versions that are empty now.
    pub fn prune_versions(&self, bucket: &Bucket, path: KeyPath<'_>) -> S3Result<()> {
        let Some(mut at) = self.behind(bucket, VERSIONS, false)? else { return Ok(()) };
        let mut way: Vec<(Ino, &str)> = Vec::new();
        for (depth, name) in path.names().enumerate() {
            for step in [BELOW, name].into_iter().skip(usize::from(depth == 0)) {
                let Some(next) = self.step(at, step, false)? else { return Ok(()) };
                way.push((at, step));
                at = next;
            }
        }
        way.push((at, OF_KEY));
        for (parent, name) in way.into_iter().rev() {
            match self.fs.rmdir(&self.me, parent, name.as_bytes()) {
                Err(error) if !is_gone(&error) => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The keys of a bucket that have old versions.
pub struct Versioned<'a>(pub &'a Gateway);

impl Versioned<'_> {
    fn node_of(&self, name: Vec<u8>, node: Ino) -> S3Result<Option<Node<Ino, Ino>>> {
        let Ok(name) = String::from_utf8(name) else { return Ok(None) };
        let key = self.0.step(node, OF_KEY, false)?;
        let below = self.0.step(node, BELOW, false)?;
        Ok(Some(Node { name, key, below }))
    }
}

impl Tree for Versioned<'_> {
    type Directory = Ino;
    type Item = Ino;
    fn page(&self, of: &Ino, after: Option<&[u8]>, limit: usize) -> S3Result<(Vec<Node<Ino, Ino>>, Option<Vec<u8>>)> {
        let entries = match self.0.fs.list(*of, after, limit) {
            Err(error) if is_gone(&error) => Vec::new(),
            entries => entries.map_err(|error| failed(&error, "versions"))?,
        };
        let end = entries.last().filter(|_| entries.len() >= limit).map(|(name, _)| name.clone());
        let mut nodes = Vec::new();
        for (name, attr) in entries {
            nodes.extend(self.node_of(name, attr.ino)?);
        }
        Ok((nodes, end))
    }
    fn node(&self, of: &Ino, name: &str) -> S3Result<Option<Node<Ino, Ino>>> {
        if name.is_empty() || name.len() > 255 || name == "." || name == ".." {
            return Ok(None);
        }
        match self.0.step(*of, name, false)? {
            Some(node) => self.node_of(name.as_bytes().to_vec(), node),
            None => Ok(None),
        }
    }
    fn own(&self, _directory: &Ino) -> S3Result<Option<Ino>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_ids_sort_first() {
        let ids: Vec<String> = (0..1000).map(|_| new_id()).collect();
        assert!(ids.is_sorted_by(|a, b| a > b), "each id sorts before those made earlier");
        assert!(ids.iter().all(|id| is_id(id)));
        for bad in ["", "..", "../../x", "NULL", &"A".repeat(24), &"0".repeat(23)] {
            assert!(!is_id(bad), "{bad}");
        }
    }
}
