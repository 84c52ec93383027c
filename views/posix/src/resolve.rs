//! Path lookup for callers that see only the tree: absolute paths begin at its root.

use crate::inner::{Inner, Where};
use crate::names::{self, PATH_BYTES_MAX};
use crate::walk::{Walk, Walked, above};
use crate::{Attr, Caller, Follow, FsResult, Ino, fail};

/// Resolves a path.
pub fn resolve(fs: &Inner, caller: &Caller, base: Ino, path: &[u8], follow: Follow) -> FsResult<Attr> {
    check(path)?;
    fs.attr_of(&find(fs, caller, base, path, follow)?)
}

fn find(fs: &Inner, caller: &Caller, base: Ino, path: &[u8], follow: Follow) -> FsResult<Where> {
    let base = if path[0] == b'/' { fs.root() } else { base };
    match Walk::new(fs, caller, base, follow, &mut Vec::new()).reach(path, 0)? {
        Walked::Inside(found) => Ok(found),
        Walked::Outside(_) => fail(libc::EXDEV), // cannot happen: the walk has no path of its root
    }
}

/// Returns the parent directory of a path, and the last component.
pub fn resolve_parent<'a>(fs: &Inner, caller: &Caller, base: Ino, path: &'a [u8]) -> FsResult<(Ino, &'a [u8])> {
    check(path)?;
    let above = above(path);
    let name = path[above.len()..].split(|byte| *byte == b'/').next().unwrap_or_default();
    if name.is_empty() {
        return Ok((fs.root(), b".")); // the root itself
    }
    if name.len() > names::NAME_BYTES_MAX {
        return fail(libc::ENAMETOOLONG);
    }
    let parent = match above {
        b"" => base,
        above => find(fs, caller, base, above, Follow::Yes)?.ino(),
    };
    Ok((parent, name))
}

fn check(path: &[u8]) -> FsResult<()> {
    match path.len() {
        0 => fail(libc::ENOENT),
        PATH_BYTES_MAX.. => fail(libc::ENAMETOOLONG),
        _ => Ok(()),
    }
}
