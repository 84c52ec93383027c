//! Paths of a program that sees the tree at some place among other directories, without a kernel that would lead it there: they may lead out again.

use crate::inner::{Inner, Where};
use crate::names::PATH_BYTES_MAX;
use crate::resolve::LINKS_MAX;
use crate::ways::Grounds;
use crate::{Attr, Caller, Follow, FsResult, Ino, Kind, fail, streams, top};

/// Where a path led.
#[derive(Debug)]
pub enum Walked<T> {
    /// To something in the tree.
    Inside(T),
    /// Out of it, by a symbolic link or `..`: to this path, of which nothing was looked at.
    Outside(Vec<u8>),
}

/// Where a walk begins.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The path at which the program sees the root, without a slash at the end.
    pub at: &'a [u8],
    /// The directory that relative paths begin in. Absolute ones are not let in here.
    pub base: Ino,
}

/// What a walk is kept within (`openat2`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// No symbolic link is followed: `ELOOP`.
    pub no_links: bool,
    /// It leads nowhere out of the directory that it begins in: `EXDEV`.
    pub beneath: bool,
    /// That directory is its root, of absolute links and of what would be above.
    pub in_root: bool,
}

/// What a path led to.
pub struct Spot<'a> {
    fs: &'a Inner,
    found: Where,
}

impl Spot<'_> {
    /// Its number.
    pub fn ino(&self) -> Ino {
        self.found.ino()
    }
    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.found.kind()
    }
    /// What `stat` tells.
    pub fn attr(&self) -> FsResult<Attr> {
        self.fs.attr_of(&self.found)
    }
    /// Where a symbolic link leads.
    pub fn target(&self) -> &[u8] {
        self.found.target()
    }
}

/// See [`crate::FileSystem::walk`].
pub fn walk<'a>(
    fs: &'a Inner,
    caller: &Caller,
    start: &Start<'_>,
    path: &[u8],
    follow: Follow,
    trail: &mut Vec<u8>,
) -> FsResult<Walked<Spot<'a>>> {
    let known = above(path).len();
    walk_on(fs, caller, start, path, known, follow, trail)
}

/// The part of a walk that may be known, and is to be known from then on.
struct Known<'p> {
    path: &'p [u8],
    grounds: Grounds,
    /// Where the trail of what is walked begins.
    trail: usize,
}

impl Known<'_> {
    /// A name in a directory is about to be looked for. False: a way through it cannot be kept.
    fn note(&mut self, fs: &Inner, dir: Ino, name: &[u8]) -> FsResult<bool> {
        match fs.split(dir)? {
            Some((tree, _)) if streams::shows(fs, &tree) => return Ok(false),
            Some((tree, number)) => self.grounds.rely_on(&tree, number)?,
            None => match top::label_holds_until(fs, name) {
                Some(until) => self.grounds.hold_until(until),
                None => return Ok(false),
            },
        }
        Ok(name != b"..")
    }
}

/// The same; the first `known` bytes of the path, a directory's, may be known as a whole.
fn walk_on<'a>(
    fs: &'a Inner,
    caller: &Caller,
    start: &Start<'_>,
    path: &[u8],
    known: usize,
    follow: Follow,
    trail: &mut Vec<u8>,
) -> FsResult<Walked<Spot<'a>>> {
    let (mut ino, mut found) = (start.base, None);
    let (mut own, mut pos, mut links) = (None::<Vec<u8>>, 0, 0);
    let mut walked = None;
    if known > 0 {
        match fs.ways.get(caller, start.base, &path[..known]) {
            Some(way) => {
                (ino, pos) = (way.to, known);
                trail.extend_from_slice(&way.trail);
            }
            None => walked = Some(Known { path: &path[..known], grounds: Grounds::default(), trail: trail.len() }),
        }
    }
    loop {
        let all = own.as_deref().unwrap_or(path);
        let begin = all[pos..].iter().position(|byte| *byte != b'/').map(|skip| pos + skip);
        if let Some(done) = walked.take_if(|_| begin.is_none_or(|begin| begin >= known)) {
            fs.ways.put(caller, start.base, done.path, done.grounds, ino, trail[done.trail..].to_vec());
        }
        let Some(begin) = begin else { break };
        let end = all[begin..].iter().position(|byte| *byte == b'/').map_or(all.len(), |len| begin + len);
        let (name, rest) = (&all[begin..end], &all[end..]);
        pos = end;
        if name == b"." {
            continue;
        }
        if name == b".." && ino == fs.root() {
            return Ok(Walked::Outside(above_root(start.at, rest)));
        }
        if let Some(part) = &mut walked
            && !part.note(fs, ino, name)?
        {
            walked = None;
        }
        let next = fs.find_in(caller, ino, name)?;
        if let (Some(part), Where::In(tree, _)) = (&mut walked, &next) {
            part.grounds.rely_on_nodes(tree)?;
        }
        let is_last = rest.iter().all(|byte| *byte == b'/');
        if next.kind() == Kind::Symlink && (!is_last || !rest.is_empty() || follow == Follow::Yes) {
            links += 1;
            walked = None;
            if links > LINKS_MAX {
                return fail(libc::ELOOP);
            }
            let target = [next.target(), rest].concat();
            if target.len() >= PATH_BYTES_MAX {
                return fail(libc::ENAMETOOLONG);
            }
            pos = 0;
            if target.first() == Some(&b'/') {
                let Some(within) = within(start.at, &target) else { return Ok(Walked::Outside(target)) };
                pos = target.len() - within.len();
                (ino, found) = (fs.root(), None);
                trail.clear();
                trail.extend_from_slice(start.at);
            }
            own = Some(target);
            continue;
        }
        if !rest.is_empty() && next.kind() != Kind::Directory {
            return fail(libc::ENOTDIR);
        }
        if name == b".." {
            trail.truncate(trail.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
        } else {
            trail.push(b'/');
            trail.extend_from_slice(name);
        }
        ino = next.ino();
        found = Some(next);
    }
    let found = match found {
        Some(found) => found,
        None => fs.find(ino)?,
    };
    Ok(Walked::Inside(Spot { fs, found }))
}

/// What comes before a path's last component, with the slash.
fn above(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let begin = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    &path[..begin]
}

/// What follows `at` in an absolute path that begins with it.
pub fn within<'a>(at: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(at)?;
    (rest.is_empty() || rest[0] == b'/').then_some(rest)
}

/// See [`crate::FileSystem::walk_parent`].
pub fn walk_parent<'p>(
    fs: &Inner,
    caller: &Caller,
    start: &Start<'_>,
    path: &'p [u8],
    trail: &mut Vec<u8>,
) -> FsResult<Walked<(Ino, &'p [u8])>> {
    if path.len() >= PATH_BYTES_MAX {
        return fail(libc::ENAMETOOLONG);
    }
    let above = above(path);
    let begin = above.len();
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let name = path.get(begin..end).unwrap_or_default();
    if name.is_empty() {
        return Ok(Walked::Inside((start.base, b".")));
    }
    if above.is_empty() {
        return Ok(Walked::Inside((start.base, name)));
    }
    if let Some(way) = fs.ways.get(caller, start.base, above) {
        trail.extend_from_slice(&way.trail);
        return Ok(Walked::Inside((way.to, name)));
    }
    Ok(match walk_on(fs, caller, start, above, above.len(), Follow::Yes, trail)? {
        Walked::Inside(spot) if spot.kind() == Kind::Directory => Walked::Inside((spot.ino(), name)),
        Walked::Inside(_) => return fail(libc::ENOTDIR),
        Walked::Outside(above) => Walked::Outside([&above[..], b"/", &path[begin..]].concat()),
    })
}

/// See [`crate::FileSystem::walk_within`].
pub fn walk_within(
    fs: &Inner,
    caller: &Caller,
    start: &Start<'_>,
    path: &[u8],
    bounds: Bounds,
    follow: Follow,
    trail: &mut Vec<u8>,
) -> FsResult<Walked<(Ino, Vec<u8>)>> {
    if path.len() >= PATH_BYTES_MAX {
        return fail(libc::ENAMETOOLONG);
    }
    let (mut path, mut pos, mut links) = (path.to_vec(), 0, 0);
    let base_trail = trail.len();
    // Directories on the way down: what is above is not asked for, so who moves one meanwhile leads nobody out.
    let mut dirs = vec![start.base];
    loop {
        let dir = *dirs.last().unwrap_or(&start.base);
        let Some(begin) = path[pos..].iter().position(|byte| *byte != b'/').map(|skip| pos + skip) else {
            return Ok(Walked::Inside((dir, b".".to_vec())));
        };
        let end = path[begin..].iter().position(|byte| *byte == b'/').map_or(path.len(), |len| begin + len);
        let (name, rest) = (&path[begin..end], &path[end..]);
        pos = end;
        if name == b"." {
            continue;
        }
        if name == b".." {
            let is_bounded = bounds.beneath || bounds.in_root;
            if dirs.len() == 1 && bounds.beneath {
                return fail(libc::EXDEV);
            }
            if dirs.len() == 1 && !is_bounded && dir == fs.root() {
                return Ok(Walked::Outside(above_root(start.at, rest)));
            }
            let above = fs.find_in(caller, dir, name)?.ino();
            if dirs.len() > 1 {
                dirs.pop();
            } else if !is_bounded {
                dirs = vec![above];
            } else {
                continue; // the root of a walk is above itself
            }
            trail.truncate(trail.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
            continue;
        }
        let is_last = rest.iter().all(|byte| *byte == b'/');
        let next = match fs.find_in(caller, dir, name) {
            Err(error) if is_last && error.errno == libc::ENOENT => None, // it may be made
            next => Some(next?),
        };
        let Some(next) =
            next.filter(|next| next.kind() == Kind::Symlink && (!rest.is_empty() || follow == Follow::Yes) || !is_last)
        else {
            return Ok(Walked::Inside((dir, path[begin..].to_vec())));
        };
        if next.kind() == Kind::Directory {
            trail.push(b'/');
            trail.extend_from_slice(name);
            dirs.push(next.ino());
            continue;
        }
        if next.kind() != Kind::Symlink {
            return fail(libc::ENOTDIR);
        }
        links += 1;
        if bounds.no_links || links > LINKS_MAX {
            return fail(libc::ELOOP);
        }
        let target = [next.target(), rest].concat();
        if target.len() >= PATH_BYTES_MAX {
            return fail(libc::ENAMETOOLONG);
        }
        pos = 0;
        if target.first() == Some(&b'/') {
            if bounds.beneath {
                return fail(libc::EXDEV);
            }
            if bounds.in_root {
                dirs.truncate(1);
                trail.truncate(base_trail);
            } else {
                let Some(within) = within(start.at, &target) else { return Ok(Walked::Outside(target)) };
                pos = target.len() - within.len();
                dirs = vec![fs.root()];
                trail.clear();
                trail.extend_from_slice(start.at);
            }
        }
        path = target;
    }
}

/// Where `..` of the root leads, and `rest` from there.
fn above_root(at: &[u8], rest: &[u8]) -> Vec<u8> {
    let above = at.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let mut outside = at[..above].to_vec();
    outside.extend_from_slice(if above == 0 && rest.is_empty() { b"/" } else { rest });
    outside
}
