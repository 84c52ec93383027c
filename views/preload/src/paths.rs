//! Classifies paths: in the store or not.

use std::sync::Arc;

use posix::{Bounds, FileSystem, Follow, Ino, Spot, Start, Walked, within};

use crate::description::{Description, errno};
use crate::{context, kernel, probe, table};

/// What a path in a call refers to.
pub enum PathClass {
    /// Nothing of the store.
    Kernel,
    /// A path below a directory of the store.
    Store(StorePath),
    /// A descriptor of the store, since the path is empty or stands for a descriptor.
    Descriptor(Arc<Description>),
}

/// A path that begins in a directory of the store.
pub struct StorePath {
    base: Ino,
    /// Path of that directory; after a search, the path of the result.
    trail: Vec<u8>,
    /// The directory's path, where it may be needed again.
    base_trail: Option<Vec<u8>>,
    /// The path relative to that directory.
    pub path: Vec<u8>,
}

/// A path or name in the program's memory; `ENAMETOOLONG` if it is longer than any path.
pub fn text<'a>(at: u64) -> Result<&'a [u8], i32> {
    string(at, libc::PATH_MAX as usize)
}

/// A string in the program's memory of less than `most` bytes; otherwise `ENAMETOOLONG`.
pub fn string<'a>(at: u64, most: usize) -> Result<&'a [u8], i32> {
    if bad(at) {
        return Err(libc::EFAULT);
    }
    let len = probe::text_len(at, most)?;
    // SAFETY: it was just checked; the program declares that it does not change.
    Ok(unsafe { std::slice::from_raw_parts(at as *const u8, len) })
}

/// Returns true if this cannot be an address of the program.
pub fn bad(at: u64) -> bool {
    !(4096..1 << 47).contains(&at)
}

/// Returns true if the path at `at` may lead to the store or to a descriptor; reads as few bytes as possible.
#[inline]
fn may_be_ours(at: u64) -> bool {
    /// At least the length of the other beginnings.
    const BEGINNING: usize = 8;
    let prefix = &context::settings().at;
    // If the next page begins within the bytes to be read here, examine the whole path.
    if at as usize % 4096 + prefix.len() + BEGINNING > 4096 {
        return true;
    }
    let byte = |index: usize| {
        // SAFETY: the previous bytes are not NUL, so there is one more.
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

/// Classifies `path` as seen from `dir`.
#[inline]
pub fn classify(dir: i32, path: u64) -> Result<PathClass, i32> {
    if bad(path) || probe::readable(path).is_err() {
        return Ok(PathClass::Kernel);
    }
    // SAFETY: a string has at least one byte.
    let first = unsafe { *(path as *const u8) };
    if first == b'/' {
        return if may_be_ours(path) { absolute(text(path)?) } else { Ok(PathClass::Kernel) };
    }
    if dir == libc::AT_FDCWD {
        return match context::cwd() {
            None => from_outside(dir, text(path)?),
            Some(cwd) => Ok(PathClass::Store(StorePath {
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
            Ok(PathClass::Store(StorePath { base: held.ino(), trail: held.path.clone(), base_trail: None, path }))
        }
    }
}

/// Returns true if a path certainly does not concern the store; uses neither memory nor locks.
pub fn is_elsewhere(dir: i32, path: u64) -> bool {
    let of_directory = || if dir == libc::AT_FDCWD { context::may_have_cwd() } else { table::may_be_ours(dir) };
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
        return within(&context::settings().at, path).is_none() && !number(path).is_some_and(table::may_be_ours);
    }
    !of_directory() && text(path).is_ok_and(|path| !names_root(path))
}

/// Returns true if a component is named like the last component of the path at which the root appears.
fn names_root(path: &[u8]) -> bool {
    let at = &context::settings().at;
    let last = at.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    path.len() >= last.len() && path.split(|byte| *byte == b'/').any(|name| name == last)
}

/// Classifies a path that begins in a directory of the kernel: it leads into the store if it names the last component
/// of the path at which the root appears, in the right directory.
fn from_outside(dir: i32, path: &[u8]) -> Result<PathClass, i32> {
    let at = &context::settings().at;
    if !names_root(path) {
        return Ok(PathClass::Kernel);
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
            // From here on links are followed, so nothing may be left out.
            let skipped = name.as_ptr() as usize - path.as_ptr() as usize + name.len();
            return Ok(PathClass::Store(at_root(&[rest, &path[skipped..]].concat())?));
        }
    }
    Ok(PathClass::Kernel)
}

/// The path of a directory of the kernel.
fn directory(dir: i32) -> Vec<u8> {
    let name = if dir == libc::AT_FDCWD { "/proc/self/cwd\0".to_owned() } else { format!("/proc/self/fd/{dir}\0") };
    let mut buf = [0_u8; libc::PATH_MAX as usize];
    let arguments = [libc::AT_FDCWD as u64, name.as_ptr() as u64, buf.as_mut_ptr() as u64, buf.len() as u64];
    let len = kernel::simple(libc::SYS_readlinkat, &arguments).max(0) as usize;
    let path = &buf[..len];
    if path == b"/" { Vec::new() } else { path.to_vec() }
}

/// Classifies an absolute path.
pub fn absolute(path: &[u8]) -> Result<PathClass, i32> {
    let doubled = path.iter().take_while(|byte| **byte == b'/').count().saturating_sub(1);
    let path = &path[doubled..];
    if let Some(rest) = within(&context::settings().at, path) {
        return Ok(PathClass::Store(at_root(rest)?));
    }
    Ok(descriptor(path).map_or(PathClass::Kernel, PathClass::Descriptor))
}

fn at_root(rest: &[u8]) -> Result<StorePath, i32> {
    let path = if rest.is_empty() { b"/." } else { rest };
    Ok(StorePath {
        base: context::system()?.root(),
        trail: context::settings().at.clone(),
        base_trail: None,
        path: path.to_vec(),
    })
}

/// The store's description for `/dev/fd/N` and the like, if there is one.
fn descriptor(path: &[u8]) -> Option<Arc<Description>> {
    table::get(number(path)?).map(|held| Arc::clone(&held))
}

/// The descriptor number in such a path.
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

/// The error of a walk: a removed starting directory means that nothing is found.
fn of_walk(error: posix::FsError) -> i32 {
    if error.errno == libc::ESTALE { libc::ENOENT } else { errno(error) }
}

/// Where a path leads, for calls that go to the kernel if that is outside the store.
pub enum To<T> {
    /// In the store.
    Store(T),
    /// To another path.
    Other(Vec<u8>),
}

impl StorePath {
    /// The start of a walk.
    fn start(&self) -> Start<'static> {
        Start { at: &context::settings().at, base: self.base }
    }
    /// Finds the target. Afterwards `self.trail` is its path.
    pub fn find(&mut self, follow: Follow) -> Result<To<Spot<'static>>, i32> {
        let system: &'static FileSystem = context::system()?;
        if self.path.is_empty() {
            return Err(libc::ENOENT);
        }
        if self.path.len() >= libc::PATH_MAX as usize {
            return Err(libc::ENAMETOOLONG);
        }
        let walked = system.walk(&context::caller(), &self.start(), &self.path, follow, &mut self.trail);
        Ok(match walked.map_err(of_walk)? {
            Walked::Inside(spot) => To::Store(spot),
            Walked::Outside(path) => To::Other(path),
        })
    }
    /// The directory of the last component, that component, and whether a slash follows it.
    pub fn find_parent(&mut self) -> Result<To<(Ino, Vec<u8>, bool)>, i32> {
        let system = context::system()?;
        if self.path.is_empty() {
            return Err(libc::ENOENT);
        }
        self.base_trail = Some(self.trail.clone());
        let walked = system.walk_parent(&context::caller(), &self.start(), &self.path, &mut self.trail);
        Ok(match walked.map_err(of_walk)? {
            Walked::Inside((ino, name)) => To::Store((ino, name.to_vec(), self.path.ends_with(b"/"))),
            Walked::Outside(path) => To::Other(path),
        })
    }
    /// Resolves the path within bounds, up to the directory of its target; afterwards the path is the name there,
    /// without a link left to follow.
    pub fn narrow(&mut self, bounds: Bounds, follow: Follow) -> Result<To<()>, i32> {
        let system = context::system()?;
        if self.path.is_empty() {
            return Err(libc::ENOENT);
        }
        let (caller, start) = (context::caller(), self.start());
        let walked = system.walk_within(&caller, &start, &self.path, bounds, follow, &mut self.trail);
        Ok(match walked.map_err(of_walk)? {
            Walked::Inside((base, path)) => {
                (self.base, self.path) = (base, path);
                To::Store(())
            }
            Walked::Outside(path) => To::Other(path),
        })
    }
    /// Continues with a link's target, seen from the directory `parent`. Returns the target if it is not in the store.
    pub fn follow(&mut self, parent: Ino, target: &[u8]) -> Result<Option<Vec<u8>>, i32> {
        if target.first() != Some(&b'/') {
            self.base = parent;
            self.path = target.to_vec();
            return Ok(None);
        }
        match within(&context::settings().at, target) {
            Some(rest) => {
                *self = at_root(rest)?;
                Ok(None)
            }
            None => Ok(Some(target.to_vec())),
        }
    }
    /// Like [`StorePath::find`], after [`StorePath::find_parent`] has moved `trail`.
    pub fn find_again(&mut self, follow: Follow) -> Result<To<Spot<'static>>, i32> {
        self.trail = self.base_trail.take().unwrap_or_else(|| std::mem::take(&mut self.trail));
        self.find(follow)
    }
    /// Appends a component to the trail.
    pub fn push(&mut self, name: &[u8]) {
        self.trail.push(b'/');
        self.trail.extend_from_slice(name);
    }
    /// The trail so far.
    pub fn trail(&self) -> &[u8] {
        &self.trail
    }
}
