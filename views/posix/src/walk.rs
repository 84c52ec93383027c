//! Path walk: components, symbolic links, rights on the way. One walk serves callers that see only the tree ([`crate::resolve`]) and programs that
//! see it at some place among other directories without a kernel to lead them there: their paths may lead out again.

use crate::cached_paths::Grounds;
use crate::inner::{Inner, Where};
use crate::names::PATH_BYTES_MAX;
use crate::{Attr, Caller, Follow, FsResult, Ino, Kind, fail, images, top};

/// Maximum number of symbolic links followed in one walk.
const LINKS_MAX: u32 = 40;

/// Result of a walk.
#[derive(Debug)]
pub enum Walked<T> {
    /// In the tree.
    Inside(T),
    /// Outside the tree, by a symbolic link or `..`: this path, not looked up.
    Outside(Vec<u8>),
}

/// Start of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Path at which the program sees the root, without a trailing slash.
    pub at: &'a [u8],
    /// Directory in which relative paths begin. The caller must not pass absolute ones.
    pub base: Ino,
}

/// Limits of a walk (`openat2`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// No symbolic link is followed: `ELOOP`.
    pub no_links: bool,
    /// The path must not leave the directory in which it begins: `EXDEV`.
    pub beneath: bool,
    /// That directory is the root, for absolute links and for `..` above it.
    pub in_root: bool,
}

/// Result of a path lookup.
pub struct Spot<'a> {
    fs: &'a Inner,
    found: Where,
}

impl Spot<'_> {
    /// Returns the inode number.
    pub fn ino(&self) -> Ino {
        self.found.ino()
    }
    /// Returns the file type.
    pub fn kind(&self) -> Kind {
        self.found.kind()
    }
    /// Returns the attributes.
    pub fn attr(&self) -> FsResult<Attr> {
        self.fs.attr_of(&self.found)
    }
    /// Returns a symbolic link's target.
    pub fn target(&self) -> &[u8] {
        self.found.target()
    }
}

/// The part of a walk that may be cached, or is to be cached afterwards.
struct CachedPart<'p> {
    path: &'p [u8],
    grounds: Grounds,
    /// Start of the cached part's trail.
    trail: usize,
}

impl<'p> CachedPart<'p> {
    fn new(path: &'p [u8], trail: usize) -> Self {
        Self { path, grounds: Grounds::default(), trail }
    }
    /// Records a lookup of a name in a directory. Returns false if a path through it cannot be cached.
    fn note(&mut self, fs: &Inner, dir: Ino, name: &[u8]) -> FsResult<bool> {
        match fs.split(dir)? {
            Some((tree, _)) if images::shows(fs, &tree) => return Ok(false),
            Some((tree, number)) => self.grounds.rely_on(&tree, number)?,
            None => match top::label_holds_until(fs, name) {
                Some(until) => self.grounds.hold_until(until),
                None => return Ok(false),
            },
        }
        Ok(name != b"..")
    }
}

/// Where a walk ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// At the target of the path, which must exist.
    Target,
    /// At the directory of the last component, which need not exist; a symbolic link there is followed if it is to be followed.
    Parent,
}

/// A walk along a path.
pub struct Walk<'a, 'w> {
    fs: &'a Inner,
    caller: &'w Caller,
    base: Ino,
    /// Path at which the program sees the root. `None`: the program sees only the tree, so no path leads out.
    at: Option<&'w [u8]>,
    bounds: Bounds,
    follow: Follow,
    /// The current position as a path.
    trail: &'w mut Vec<u8>,
    trail_begin: usize,
    /// The current position; `found` is the node, if it was looked up.
    ino: Ino,
    found: Option<Where>,
    /// Within bounds: the directories on the way down. Parents are taken from here rather than looked up, so that a concurrent rename leads nobody
    /// out.
    above: Vec<Ino>,
    links: u32,
}

impl<'a, 'w> Walk<'a, 'w> {
    /// Creates a walk from `base` that sees only the tree.
    pub fn new(fs: &'a Inner, caller: &'w Caller, base: Ino, follow: Follow, trail: &'w mut Vec<u8>) -> Self {
        let trail_begin = trail.len();
        let (at, bounds) = (None, Bounds::default());
        Self {
            fs,
            caller,
            base,
            at,
            bounds,
            follow,
            trail,
            trail_begin,
            ino: base,
            found: None,
            above: Vec::new(),
            links: 0,
        }
    }
    /// Sets the path at which the root is seen.
    fn seen_at(self, at: &'w [u8]) -> Self {
        Self { at: Some(at), ..self }
    }
    /// Returns the target of the path.
    pub fn reach(mut self, path: &[u8], known: usize) -> FsResult<Walked<Where>> {
        if let Walked::Outside(path) = self.run(path, known, End::Target)? {
            return Ok(Walked::Outside(path));
        }
        Ok(Walked::Inside(match self.found {
            Some(found) => found,
            None => self.fs.find(self.ino)?,
        }))
    }
    /// Returns the directory of the path's last component, and that component with what follows it.
    fn reach_parent(mut self, path: &[u8]) -> FsResult<Walked<(Ino, Vec<u8>)>> {
        Ok(match self.run(path, 0, End::Parent)? {
            Walked::Inside(name) => Walked::Inside((self.ino, name)),
            Walked::Outside(path) => Walked::Outside(path),
        })
    }
    /// Walks the path. The first `known` bytes, the path of a directory, may be cached as a whole. Returns the name left at the end.
    fn run(&mut self, path: &[u8], known: usize, end: End) -> FsResult<Walked<Vec<u8>>> {
        let fs = self.fs;
        let (mut own, mut pos) = (None::<Vec<u8>>, 0);
        let mut walked = None;
        if known > 0 {
            match fs.paths.get(self.caller, self.base, &path[..known]) {
                Some(cached) => {
                    (self.ino, pos) = (cached.to, known);
                    self.trail.extend_from_slice(&cached.trail);
                }
                None => {
                    walked = Some(CachedPart::new(&path[..known], self.trail.len()));
                }
            }
        }
        loop {
            let all = own.as_deref().unwrap_or(path);
            let begin = all[pos..].iter().position(|byte| *byte != b'/').map(|skip| pos + skip);
            if let Some(done) = walked.take_if(|_| begin.is_none_or(|begin| begin >= known)) {
                fs.paths.put(
                    self.caller,
                    self.base,
                    done.path,
                    done.grounds,
                    self.ino,
                    self.trail[done.trail..].to_vec(),
                );
            }
            let Some(begin) = begin else { return Ok(Walked::Inside(b".".to_vec())) };
            pos = all[begin..].iter().position(|byte| *byte == b'/').map_or(all.len(), |len| begin + len);
            let (name, rest) = (&all[begin..pos], &all[pos..]);
            if name == b"." {
                continue;
            }
            if name == b".." && (self.bounds.beneath || self.bounds.in_root) {
                self.climb()?;
                continue;
            }
            if let Some(at) = self.at.filter(|_| name == b".." && self.ino == fs.root()) {
                return Ok(Walked::Outside(above_root(at, rest)));
            }
            if let Some(part) = &mut walked
                && !part.note(fs, self.ino, name)?
            {
                walked = None;
            }
            let is_last = end == End::Parent && name != b".." && rest.iter().all(|byte| *byte == b'/');
            let next = match fs.find_in(self.caller, self.ino, name) {
                Err(error) if is_last && error.errno == libc::ENOENT => None, // it may be created
                next => Some(next?),
            };
            if let (Some(part), Some(Where::In(tree, _))) = (&mut walked, &next) {
                part.grounds.rely_on_nodes(tree)?;
            }
            let next = next.filter(|next| !is_last || self.follows(next, rest));
            let Some(next) = next else { return Ok(Walked::Inside(all[begin..].to_vec())) };
            if self.follows(&next, rest) {
                walked = None;
                match self.redirect(&next, rest)? {
                    Walked::Inside((target, from)) => (own, pos) = (Some(target), from),
                    Walked::Outside(path) => return Ok(Walked::Outside(path)),
                }
                continue;
            }
            if !rest.is_empty() && next.kind() != Kind::Directory {
                return fail(libc::ENOTDIR);
            }
            self.enter(name, next);
        }
    }
    fn follows(&self, next: &Where, rest: &[u8]) -> bool {
        next.kind() == Kind::Symlink && (!rest.is_empty() || self.follow == Follow::Yes)
    }
    /// Steps to what was found under this name.
    fn enter(&mut self, name: &[u8], next: Where) {
        if name == b".." {
            self.shorten_trail();
        } else {
            self.trail.push(b'/');
            self.trail.extend_from_slice(name);
        }
        if self.bounds.beneath || self.bounds.in_root {
            self.above.push(self.ino);
        }
        self.ino = next.ino();
        self.found = Some(next);
    }
    /// Handles `..` within bounds. The directory in which the walk began is its own parent, or has none.
    fn climb(&mut self) -> FsResult<()> {
        if self.above.is_empty() && self.bounds.beneath {
            return fail(libc::EXDEV);
        }
        self.fs.find_in(self.caller, self.ino, b"..")?; // checks the right to search the directory
        if let Some(above) = self.above.pop() {
            (self.ino, self.found) = (above, None);
            self.shorten_trail();
        }
        Ok(())
    }
    /// Follows a symbolic link. Returns the remaining path and where its next component begins, or the path outside the tree.
    fn redirect(&mut self, link: &Where, rest: &[u8]) -> FsResult<Walked<(Vec<u8>, usize)>> {
        self.links += 1;
        if self.bounds.no_links || self.links > LINKS_MAX {
            return fail(libc::ELOOP);
        }
        let target = [link.target(), rest].concat();
        if target.len() >= PATH_BYTES_MAX {
            return fail(libc::ENAMETOOLONG);
        }
        if target.first() != Some(&b'/') {
            return Ok(Walked::Inside((target, 0)));
        }
        if self.bounds.beneath {
            return fail(libc::EXDEV);
        }
        let mut from = 0;
        if self.bounds.in_root {
            self.ino = self.base;
            self.above.clear();
            self.trail.truncate(self.trail_begin);
        } else {
            if let Some(at) = self.at {
                let Some(within) = within(at, &target) else { return Ok(Walked::Outside(target)) };
                from = target.len() - within.len();
            }
            self.ino = self.fs.root();
            self.trail.clear();
            self.trail.extend_from_slice(self.at.unwrap_or_default());
        }
        self.found = None;
        Ok(Walked::Inside((target, from)))
    }
    fn shorten_trail(&mut self) {
        self.trail.truncate(self.trail.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
    }
}

/// Implements [`crate::FileSystem::walk`].
pub fn walk<'a>(
    fs: &'a Inner,
    caller: &Caller,
    start: &Start<'_>,
    path: &[u8],
    follow: Follow,
    trail: &mut Vec<u8>,
) -> FsResult<Walked<Spot<'a>>> {
    let walk = Walk::new(fs, caller, start.base, follow, trail).seen_at(start.at);
    Ok(match walk.reach(path, above(path).len())? {
        Walked::Inside(found) => Walked::Inside(Spot { fs, found }),
        Walked::Outside(path) => Walked::Outside(path),
    })
}

/// Implements [`crate::FileSystem::walk_parent`].
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
    let name = path[begin..].split(|byte| *byte == b'/').next().unwrap_or_default();
    if name.is_empty() {
        return Ok(Walked::Inside((start.base, b".")));
    }
    if above.is_empty() {
        return Ok(Walked::Inside((start.base, name)));
    }
    if let Some(cached) = fs.paths.get(caller, start.base, above) {
        trail.extend_from_slice(&cached.trail);
        return Ok(Walked::Inside((cached.to, name)));
    }
    let walk = Walk::new(fs, caller, start.base, Follow::Yes, trail).seen_at(start.at);
    Ok(match walk.reach(above, above.len())? {
        Walked::Inside(found) if found.kind() == Kind::Directory => Walked::Inside((found.ino(), name)),
        Walked::Inside(_) => return fail(libc::ENOTDIR),
        Walked::Outside(above) => Walked::Outside([&above[..], b"/", &path[begin..]].concat()),
    })
}

/// Implements [`crate::FileSystem::walk_within`].
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
    let walk = Walk::new(fs, caller, start.base, follow, trail).seen_at(start.at);
    Walk { bounds, ..walk }.reach_parent(path)
}

/// Returns what precedes a path's last component, with the slash.
pub fn above(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let begin = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    &path[..begin]
}

/// Returns what follows `at` in an absolute path that begins with it.
pub fn within<'a>(at: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(at)?;
    (rest.is_empty() || rest[0] == b'/').then_some(rest)
}

/// Returns where `..` of the root leads, with `rest` appended.
fn above_root(at: &[u8], rest: &[u8]) -> Vec<u8> {
    let above = at.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let mut outside = at[..above].to_vec();
    outside.extend_from_slice(if above == 0 && rest.is_empty() { b"/" } else { rest });
    outside
}
