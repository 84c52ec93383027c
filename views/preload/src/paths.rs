//! Which paths are ours.

use std::sync::Arc;

use posix::{Bounds, FileSystem, Follow, Ino, Spot, Start, Walked, within};

use crate::description::{Description, errno};
use crate::{kernel, place, probe, table};

/// What a path in a call is.
pub enum Way {
    /// Nothing of ours.
    Kernel,
    /// A path below a directory of ours.
    Ours(Ours),
    /// Of a descriptor of ours, since the path is empty or stands for a descriptor.
    Descriptor(Arc<Description>),
}

/// A path that begins in a directory of ours.
pub struct Ours {
    base: Ino,
    /// Path of that directory; of what was found, behind that.
    trail: Vec<u8>,
    /// The former, where it may be needed again.
    base_trail: Option<Vec<u8>>,
    /// The path from there.
    pub path: Vec<u8>,
}

/// A path or name of the program's; `ENAMETOOLONG` if it is longer than any path.
pub fn text<'a>(at: u64) -> Result<&'a [u8], i32> {
    string(at, libc::PATH_MAX as usize)
}

/// A string of the program's of less than `most` bytes; else `ENAMETOOLONG`.
pub fn string<'a>(at: u64, most: usize) -> Result<&'a [u8], i32> {
    if bad(at) {
        return Err(libc::EFAULT);
    }
    let len = probe::text_len(at, most)?;
    // SAFETY: it was just looked at; the program says that it stays as it is.
    Ok(unsafe { std::slice::from_raw_parts(at as *const u8, len) })
}

/// True for what cannot be an address of the program's.
pub fn bad(at: u64) -> bool {
    !(4096..1 << 47).contains(&at)
}

/// True if the path at `at` may be one of ours, or of a descriptor: told by as few bytes as possible.
#[inline]
fn may_be_ours(at: u64) -> bool {
    /// More than any of the other beginnings.
    const BEGINNING: usize = 8;
    let prefix = &place::place().at;
    // Where the next page begins within what is looked at here, the next look is at the whole.
    if at as usize % 4096 + prefix.len() + BEGINNING > 4096 {
        return true;
    }
    let byte = |index: usize| {
        // SAFETY: the bytes before are no NUL, so there is one more.
        unsafe { *(at as *const u8).add(index) }
    };
    if prefix.iter().enumerate().all(|(index, want)| byte(index) == *want) {
        return matches!(byte(prefix.len()), 0 | b'/');
    }
    // `//…`, `/dev/…`, `/proc/…`
    match byte(1) {
        b'/' => true,
        b'd' => byte(2) == b'e' && byte(3) == b'v' && byte(4) == b'/',
        b'p' => byte(2) == b'r' && byte(3) == b'o' && byte(4) == b'c' && byte(5) == b'/',
        _ => false,
    }
}

/// What `path` as seen from `dir` is.
#[inline]
pub fn way(dir: i32, path: u64) -> Result<Way, i32> {
    if bad(path) || probe::readable(path).is_err() {
        return Ok(Way::Kernel);
    }
    // SAFETY: a string has at least one byte.
    let first = unsafe { *(path as *const u8) };
    if first == b'/' {
        return if may_be_ours(path) { absolute(text(path)?) } else { Ok(Way::Kernel) };
    }
    if dir == libc::AT_FDCWD {
        return match place::cwd() {
            None => from_outside(dir, text(path)?),
            Some(cwd) => Ok(Way::Ours(Ours {
                base: cwd.ino,
                trail: cwd.path.clone(),
                base_trail: None,
                path: text(path)?.to_vec(),
            })),
        };
    }
    match table::get(dir) {
        None => from_outside(dir, text(path)?),
        Some(held) => {
            let path = text(path)?.to_vec();
            Ok(Way::Ours(Ours { base: held.ino(), trail: held.path.clone(), base_trail: None, path }))
        }
    }
}

/// True if a path certainly is none of ours, told without memory and locks.
pub fn is_elsewhere(dir: i32, path: u64) -> bool {
    let of_directory = || if dir == libc::AT_FDCWD { place::may_have_cwd() } else { table::may_be_ours(dir) };
    if bad(path) || probe::readable(path).is_err() {
        return !of_directory();
    }
    // SAFETY: a string has at least one byte.
    let first = unsafe { *(path as *const u8) };
    if first == b'/' {
        if !may_be_ours(path) {
            return true;
        }
        let Ok(path) = text(path) else { return false };
        let doubled = path.iter().take_while(|byte| **byte == b'/').count().saturating_sub(1);
        let path = &path[doubled..];
        return within(&place::place().at, path).is_none() && !number(path).is_some_and(table::may_be_ours);
    }
    !of_directory() && text(path).is_ok_and(|path| !names_root(path))
}

/// True if a component is named as the last one of where the root is seen.
fn names_root(path: &[u8]) -> bool {
    let at = &place::place().at;
    let last = at.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    path.len() >= last.len() && path.split(|byte| *byte == b'/').any(|name| name == last)
}

/// A path that begins in a directory of the kernel's: it leads in if it names the last component of where the root is seen, and the directory is the right one.
fn from_outside(dir: i32, path: &[u8]) -> Result<Way, i32> {
    let at = &place::place().at;
    if !names_root(path) {
        return Ok(Way::Kernel);
    }
    let mut all = directory(dir);
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => all.truncate(all.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
            name => {
                all.push(b'/');
                all.extend_from_slice(name);
            }
        }
        if let Some(rest) = within(at, &all) {
            // From here on links are looked at, so nothing is left out any more.
            let skipped = name.as_ptr() as usize - path.as_ptr() as usize + name.len();
            return Ok(Way::Ours(at_root(&[rest, &path[skipped..]].concat())?));
        }
    }
    Ok(Way::Kernel)
}

/// The path of a directory of the kernel's.
fn directory(dir: i32) -> Vec<u8> {
    let name = if dir == libc::AT_FDCWD { "/proc/self/cwd\0".to_owned() } else { format!("/proc/self/fd/{dir}\0") };
    let mut buf = [0_u8; libc::PATH_MAX as usize];
    let arguments = [libc::AT_FDCWD as u64, name.as_ptr() as u64, buf.as_mut_ptr() as u64, buf.len() as u64];
    let len = kernel::simple(libc::SYS_readlinkat, &arguments).max(0) as usize;
    let path = &buf[..len];
    if path == b"/" { Vec::new() } else { path.to_vec() }
}

/// An absolute path.
pub fn absolute(path: &[u8]) -> Result<Way, i32> {
    let doubled = path.iter().take_while(|byte| **byte == b'/').count().saturating_sub(1);
    let path = &path[doubled..];
    if let Some(rest) = within(&place::place().at, path) {
        return Ok(Way::Ours(at_root(rest)?));
    }
    Ok(descriptor(path).map_or(Way::Kernel, Way::Descriptor))
}

fn at_root(rest: &[u8]) -> Result<Ours, i32> {
    let path = if rest.is_empty() { b"/." } else { rest };
    Ok(Ours { base: place::system()?.root(), trail: place::place().at.clone(), base_trail: None, path: path.to_vec() })
}

/// What `/dev/fd/N` and the like stand for, if that is ours.
fn descriptor(path: &[u8]) -> Option<Arc<Description>> {
    table::get(number(path)?).map(|held| Arc::clone(&held))
}

/// The descriptor that such a path stands for.
fn number(path: &[u8]) -> Option<i32> {
    Some(match path {
        b"/dev/stdin" => 0,
        b"/dev/stdout" => 1,
        b"/dev/stderr" => 2,
        _ => {
            let digits = path.strip_prefix(b"/dev/fd/").or_else(|| path.strip_prefix(b"/proc/self/fd/"))?;
            std::str::from_utf8(digits).ok()?.parse().ok()?
        }
    })
}

/// A directory where a path begins was removed, and nothing is found there any more.
fn of_walk(error: posix::FsError) -> i32 {
    if error.errno == libc::ESTALE { libc::ENOENT } else { errno(error) }
}

/// Where a path led, for calls that go to the kernel if it is not ours.
pub enum To<T> {
    /// In the store.
    Ours(T),
    /// To another path.
    Other(Vec<u8>),
}

impl Ours {
    /// Where the program sees the root.
    fn start(&self) -> Start<'static> {
        Start { at: &place::place().at, base: self.base }
    }
    /// What it leads to. `self.trail` is its path then.
    pub fn find(&mut self, follow: Follow) -> Result<To<Spot<'static>>, i32> {
        let system: &'static FileSystem = place::system()?;
        if self.path.is_empty() {
            return Err(libc::ENOENT);
        }
        if self.path.len() >= libc::PATH_MAX as usize {
            return Err(libc::ENAMETOOLONG);
        }
        let walked = system.walk(&place::caller(), &self.start(), &self.path, follow, &mut self.trail);
        Ok(match walked.map_err(of_walk)? {
            Walked::Inside(spot) => To::Ours(spot),
            Walked::Outside(path) => To::Other(path),
        })
    }
    /// The directory of its last component, that component, and whether a slash follows it.
    pub fn find_parent(&mut self) -> Result<To<(Ino, Vec<u8>, bool)>, i32> {
        let system = place::system()?;
        if self.path.is_empty() {
            return Err(libc::ENOENT);
        }
        self.base_trail = Some(self.trail.clone());
        let walked = system.walk_parent(&place::caller(), &self.start(), &self.path, &mut self.trail);
        Ok(match walked.map_err(of_walk)? {
            Walked::Inside((ino, name)) => To::Ours((ino, name.to_vec(), self.path.ends_with(b"/"))),
            Walked::Outside(path) => To::Other(path),
        })
    }
    /// Goes to the directory of what its path leads to within bounds; its path is the name there from then on, and no link is left to be
    /// followed.
    pub fn narrow(&mut self, bounds: Bounds, follow: Follow) -> Result<To<()>, i32> {
        let system = place::system()?;
        if self.path.is_empty() {
            return Err(libc::ENOENT);
        }
        let (caller, start) = (place::caller(), self.start());
        let walked = system.walk_within(&caller, &start, &self.path, bounds, follow, &mut self.trail);
        Ok(match walked.map_err(of_walk)? {
            Walked::Inside((base, path)) => {
                (self.base, self.path) = (base, path);
                To::Ours(())
            }
            Walked::Outside(path) => To::Other(path),
        })
    }
    /// Goes on with a link's target, seen from the directory `parent`. The target may be no path of ours.
    pub fn follow(&mut self, parent: Ino, target: &[u8]) -> Result<Option<Vec<u8>>, i32> {
        if target.first() != Some(&b'/') {
            self.base = parent;
            self.path = target.to_vec();
            return Ok(None);
        }
        match within(&place::place().at, target) {
            Some(rest) => {
                *self = at_root(rest)?;
                Ok(None)
            }
            None => Ok(Some(target.to_vec())),
        }
    }
    /// The same as `find` after `find_parent` has moved `trail`.
    pub fn find_again(&mut self, follow: Follow) -> Result<To<Spot<'static>>, i32> {
        self.trail = self.base_trail.take().unwrap_or_else(|| std::mem::take(&mut self.trail));
        self.find(follow)
    }
    /// A component is added to its path.
    pub fn push(&mut self, name: &[u8]) {
        self.trail.push(b'/');
        self.trail.extend_from_slice(name);
    }
    /// Its path as it is known by now.
    pub fn trail(&self) -> &[u8] {
        &self.trail
    }
}
