//! Extended attributes.

use crate::layouts;
use crate::records::{Node, keys};
use crate::rights::{self, READ, WRITE};
use crate::tree::{Change, FoundNode, Tree};
use crate::{Caller, Consistency, FsResult, Kind, SetXattr, fail};

/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Maximum length of a value in bytes.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Consistency of a directory; not a record.
const CONSISTENCY: &[u8] = b"user.cenote.consistency";
/// Capabilities: what a program run from a file may do besides. Changes of the bytes or the owner remove them, whoever
/// makes them.
pub const CAPABILITIES: &[u8] = b"security.capability";

/// Returns true if a file has capabilities.
pub fn has_capabilities(tree: &Tree, found: &FoundNode) -> FsResult<bool> {
    let may_have = found.node.kind == Kind::File && found.node.has_xattrs;
    Ok(may_have && tree.nodes().get_one(&keys::xattr(found.ino, CAPABILITIES))?.is_some())
}

impl Consistency {
    /// Returns the name: `strict`, `commit`, `laminated`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Commit => "commit",
            Self::Laminated => "laminated",
        }
    }
    /// Parses a name.
    pub fn from_word(word: &[u8]) -> Option<Self> {
        [Self::Strict, Self::Commit, Self::Laminated].into_iter().find(|one| one.word().as_bytes() == word)
    }
}

/// Returns an error if `caller` may not access attributes of that name (`mask`: read or write).
fn check(caller: &Caller, node: &Node, name: &[u8], mask: u32) -> FsResult<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return fail(libc::ERANGE);
    }
    let is_write = mask == WRITE;
    let refused = if is_write { libc::EPERM } else { libc::ENODATA };
    if let Some(rest) = name.strip_prefix(b"user.") {
        if rest.is_empty() {
            return fail(libc::EINVAL);
        }
        if !matches!(node.kind, Kind::File | Kind::Directory) {
            return fail(refused);
        }
        if is_write && node.kind == Kind::Directory && node.mode & rights::STICKY != 0 && !caller.owns(node) {
            return fail(libc::EPERM);
        }
        return rights::need(caller, node, mask);
    }
    if name.starts_with(b"trusted.") {
        return if caller.uid == 0 { Ok(()) } else { fail(refused) };
    }
    if name.starts_with(b"security.") {
        // A kernel that checks rights removes capabilities on behalf of whoever changes a file.
        return if !is_write || caller.is_above() { Ok(()) } else { fail(libc::EPERM) };
    }
    if name.starts_with(b"cenote.") && caller.is_checked {
        return Ok(());
    }
    fail(libc::EOPNOTSUPP)
}

/// Returns true if attributes of that name are listed to `caller`.
fn is_shown(caller: &Caller, node: &Node, name: &[u8]) -> bool {
    if name.starts_with(b"trusted.") {
        return caller.uid == 0;
    }
    if name.starts_with(b"cenote.") {
        return caller.is_checked;
    }
    !name.starts_with(b"user.") || matches!(node.kind, Kind::File | Kind::Directory)
}

/// Returns the value of an attribute.
pub fn get(tree: &Tree, caller: &Caller, found: &FoundNode, name: &[u8]) -> FsResult<Vec<u8>> {
    check(caller, &found.node, name, READ)?;
    if name == CONSISTENCY && found.node.kind == Kind::Directory {
        return Ok(found.node.consistency.word().into());
    }
    if name == layouts::XATTR && found.node.kind == Kind::Directory {
        return layouts::get(found);
    }
    if found.node.has_xattrs {
        if let Some(value) = tree.nodes().get_one(&keys::xattr(found.ino, name))? {
            return Ok(value);
        }
        // If the file was deleted since the lookup, its attributes went with it: then return that it is gone.
        tree.find(found.ino)?;
    }
    fail(libc::ENODATA)
}

/// Sets an attribute.
pub fn set(tree: &Tree, caller: &Caller, ino: u64, name: &[u8], value: &[u8], how: SetXattr) -> FsResult<()> {
    if value.len() > VALUE_BYTES_MAX {
        return fail(libc::E2BIG);
    }
    tree.make(None, 0o755)?;
    tree.change(|change| {
        let found = tree.find(ino)?;
        check(caller, &found.node, name, WRITE)?;
        if name == layouts::XATTR {
            layouts::check_directory(&found)?;
            check_owner(tree, caller, &found)?;
            match how {
                SetXattr::New if found.node.layout.is_some() => return fail(libc::EEXIST),
                SetXattr::Replace if found.node.layout.is_none() => return fail(libc::ENODATA),
                _ => {}
            }
            return set_layout(change, ino, layouts::wanted(tree, value)?);
        }
        if name == CONSISTENCY && found.node.kind == Kind::Directory {
            check_owner(tree, caller, &found)?;
            let Some(consistency) = Consistency::from_word(value) else { return fail(libc::EINVAL) };
            let now = change.now;
            let node = change.dir_mut(ino)?;
            (node.consistency, node.changed) = (consistency, now);
            return Ok(());
        }
        tree.check_changes(&found)?;
        let key = keys::xattr(ino, name);
        let is_there = found.node.has_xattrs && tree.nodes().get_one(&key)?.is_some();
        match how {
            SetXattr::New if is_there => return fail(libc::EEXIST),
            SetXattr::Replace if !is_there => return fail(libc::ENODATA),
            SetXattr::New => change.txn.put_new(tree.nodes(), &key, value)?,
            SetXattr::Any | SetXattr::Replace => change.txn.put(tree.nodes(), &key, value)?,
        }
        let node = Node { has_xattrs: true, changed: change.now, ..found.node.clone() };
        change.put_node(&found, &node)
    })?;
    if name == CAPABILITIES
        && let Some(live) = tree.live(ino)
    {
        live.note_capabilities();
    }
    Ok(())
}

/// Checks that the caller may change what a directory passes on to what is made in it.
fn check_owner(tree: &Tree, caller: &Caller, found: &FoundNode) -> FsResult<()> {
    if !caller.owns(&found.node) {
        return fail(libc::EPERM);
    }
    if tree.common.options.is_read_only { fail(libc::EROFS) } else { Ok(()) }
}

fn set_layout(change: &mut Change<'_>, dir: u64, layout: Option<Box<str>>) -> FsResult<()> {
    let now = change.now;
    let node = change.dir_mut(dir)?;
    (node.layout, node.changed) = (layout, now);
    Ok(())
}

/// Lists the names of all attributes.
pub fn list(tree: &Tree, caller: &Caller, found: &FoundNode) -> FsResult<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    if found.node.kind == Kind::Directory && found.node.consistency != Consistency::Strict {
        names.push(CONSISTENCY.to_vec());
    }
    if found.node.layout.is_some() {
        names.push(layouts::XATTR.to_vec());
    }
    if found.node.has_xattrs {
        for record in tree.nodes().iter(&keys::xattrs(found.ino)) {
            let key = record?.0;
            let name = keys::xattr_name(&key);
            if is_shown(caller, &found.node, name) {
                names.push(name.to_vec());
            }
        }
        // A deleted file gives an error, not part of a list.
        tree.find(found.ino)?;
    }
    Ok(names)
}

/// Removes an attribute.
pub fn remove(tree: &Tree, caller: &Caller, ino: u64, name: &[u8]) -> FsResult<()> {
    tree.change(|change| {
        let found = tree.find(ino)?;
        check(caller, &found.node, name, WRITE)?;
        if name == layouts::XATTR && found.node.layout.is_some() {
            check_owner(tree, caller, &found)?;
            return set_layout(change, ino, None);
        }
        tree.check_changes(&found)?;
        let key = keys::xattr(ino, name);
        if !found.node.has_xattrs || tree.nodes().get_one(&key)?.is_none() {
            return fail(libc::ENODATA);
        }
        change.txn.del(tree.nodes(), &key)?;
        let node = Node { changed: change.now, ..found.node.clone() };
        change.put_node(&found, &node)
    })
}
