//! Paths: components, symbolic links, rights on the way.

use std::borrow::Cow;
use std::collections::VecDeque;

use crate::inner::{Inner, Where};
use crate::names::{self, PATH_BYTES_MAX};
use crate::{Attr, Caller, Follow, FsResult, Ino, Kind, fail};

/// Symbolic links that are followed on one way.
pub const LINKS_MAX: u32 = 40;

/// What a path leads to.
pub fn resolve(fs: &Inner, caller: &Caller, base: Ino, path: &[u8], follow: Follow) -> FsResult<Attr> {
    match walk(fs, caller, base, path, follow)? {
        (Some(found), _) => fs.attr_of(&found),
        (None, at) => fs.attr(at),
    }
}

/// Where a path leads: what was found last, none if that was no name, and its number.
fn walk(fs: &Inner, caller: &Caller, base: Ino, path: &[u8], follow: Follow) -> FsResult<(Option<Where>, Ino)> {
    if path.is_empty() {
        return fail(libc::ENOENT);
    }
    if path.len() >= PATH_BYTES_MAX {
        return fail(libc::ENAMETOOLONG);
    }
    let mut at = if path[0] == b'/' { fs.root() } else { base };
    let mut rest: VecDeque<Cow<'_, [u8]>> = components(path).map(Cow::Borrowed).collect();
    let mut must_be_directory = ends_in_directory(path);
    let mut links = 0;
    let mut last: Option<Where> = None;
    while let Some(name) = rest.pop_front() {
        let found = fs.find_in(caller, at, &name)?;
        let is_last = rest.is_empty();
        if found.kind() == Kind::Symlink && (!is_last || must_be_directory || follow == Follow::Yes) {
            links += 1;
            if links > LINKS_MAX {
                return fail(libc::ELOOP);
            }
            let target = found.target();
            if target.len() + rest.iter().map(|name| name.len() + 1).sum::<usize>() >= PATH_BYTES_MAX {
                return fail(libc::ENAMETOOLONG);
            }
            must_be_directory |= is_last && ends_in_directory(target);
            if target.first() == Some(&b'/') {
                at = fs.root();
            }
            for name in components(target).rev() {
                rest.push_front(Cow::Owned(name.to_vec()));
            }
            last = None;
            continue;
        }
        if (!is_last || must_be_directory) && found.kind() != Kind::Directory {
            return fail(libc::ENOTDIR);
        }
        at = found.ino();
        last = Some(found);
    }
    Ok((last, at))
}

/// The directory of a path's last component, and that component.
pub fn resolve_parent<'a>(fs: &Inner, caller: &Caller, base: Ino, path: &'a [u8]) -> FsResult<(Ino, &'a [u8])> {
    if path.is_empty() {
        return fail(libc::ENOENT);
    }
    if path.len() >= PATH_BYTES_MAX {
        return fail(libc::ENAMETOOLONG);
    }
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let begin = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let (above, name) = (&path[..begin], &path[begin..end]);
    if name.is_empty() {
        return Ok((fs.root(), b".")); // the root itself
    }
    if name.len() > names::NAME_BYTES_MAX {
        return fail(libc::ENAMETOOLONG);
    }
    let parent = match above {
        b"" => base,
        above => walk(fs, caller, base, above, Follow::Yes)?.1,
    };
    Ok((parent, name))
}

fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

fn ends_in_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.") || path == b"."
}
