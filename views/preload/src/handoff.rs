//! What the next program in this process has to know of the one before: descriptors that stay open, and the working directory.
//!
//! It lies in a file in memory, whose descriptor a variable of the environment names; offsets lie in another (`shared`).

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use posix::Ino;

use crate::description::{Description, What};
use crate::place::{self, Cwd};
use crate::shared::{self, Shared};
use crate::{inside, kernel, table};

/// The variable.
pub const VARIABLE: &str = "CENOTE_HANDOFF";
const MAGIC: u64 = 0x3174_6f6e_6563;

/// What was written for the next program, and its descriptors, which are closed if there is none after all.
#[derive(Default)]
pub struct Handoff {
    /// The descriptor of what was written.
    pub fd: i32,
    offsets: i32,
}

impl Drop for Handoff {
    fn drop(&mut self) {
        kernel::close(self.fd);
        if self.offsets >= 0 {
            kernel::close(self.offsets);
        }
    }
}

/// A descriptor that the next program gets, out of its way.
fn inherited(fd: i32) -> Result<i32, i32> {
    let floor = inside::floor() as u64;
    kernel::simple_or(libc::SYS_fcntl, &[fd as u64, libc::F_DUPFD as u64, floor]).map(|fd| fd as i32)
}

fn put(all: &mut Vec<u8>, numbers: &[u64], text: &[u8]) {
    for number in numbers.iter().chain([&(text.len() as u64)]) {
        all.extend_from_slice(&number.to_le_bytes());
    }
    all.extend_from_slice(text);
}

/// Writes down what the next program has to know; none if that is nothing.
pub fn write() -> Result<Option<Handoff>, i32> {
    let stays = |fd: i32| {
        kernel::simple(libc::SYS_fcntl, &[fd as u64, libc::F_GETFD as u64]) & i64::from(libc::FD_CLOEXEC) == 0
    };
    let open: Vec<(i32, Arc<Description>)> = table::all().into_iter().filter(|(fd, _)| stays(*fd)).collect();
    let cwd = place::cwd();
    if open.is_empty() && cwd.is_none() {
        return Ok(None);
    }
    let mut entries = Vec::new();
    for (fd, open) in &open {
        let kind = match &open.what {
            What::File(_) => 0_u64,
            What::Directory(_) => 1,
            What::Path => 2,
        };
        let flags = open.flags.load(Ordering::Relaxed);
        let offset = open.share().ok_or(libc::ENOMEM)?.index();
        put(&mut entries, &[*fd as u64, kind, flags as u64, open.ino().0, u64::from(offset)], &open.path);
    }
    let offsets = if open.is_empty() { -1 } else { inherited(shared::fd())? };
    let mut all = Vec::new();
    put(&mut all, &[MAGIC, i64::from(offsets) as u64], b"");
    let (ino, path) = cwd.as_ref().map_or((0, &b""[..]), |cwd| (cwd.ino.0, &cwd.path[..]));
    put(&mut all, &[ino], path);
    all.extend_from_slice(&entries);
    let made = kernel::simple_or(libc::SYS_memfd_create, &[c"cenote handoff".as_ptr() as u64, 0])? as i32;
    kernel::simple(libc::SYS_write, &[made as u64, all.as_ptr() as u64, all.len() as u64]);
    let fd = inherited(made);
    kernel::close(made);
    Ok(Some(Handoff { fd: fd?, offsets }))
}

/// Takes from the front of what was written.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }
    fn text(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(text)
    }
}

/// Takes up what the program before has left, if it has.
pub fn read() {
    let Some(fd) = std::env::var_os(VARIABLE) else { return };
    // SAFETY: called before the program's first instruction, when nobody else looks at the environment.
    unsafe { std::env::remove_var(VARIABLE) };
    let Some(fd) = std::str::from_utf8(fd.as_bytes()).ok().and_then(|fd| fd.parse::<i32>().ok()) else { return };
    kernel::simple(libc::SYS_lseek, &[fd as u64, 0, libc::SEEK_SET as u64]);
    let all = kernel::read_fd(fd);
    let mut reader = Reader(&all);
    if reader.number() != Some(MAGIC) {
        return; // some other file: not ours to close
    }
    kernel::close(fd);
    let _ = take(&mut reader);
}

fn take(reader: &mut Reader<'_>) -> Option<()> {
    let offsets = reader.number()? as i32;
    reader.text()?;
    if offsets >= 0 {
        shared::adopt(offsets);
    }
    let (ino, path) = (Ino(reader.number()?), reader.text()?);
    if !path.is_empty() {
        place::set_cwd(Some(Arc::new(Cwd { ino, path: path.to_vec() })));
    }
    while !reader.0.is_empty() {
        let [fd, kind, flags, ino, offset] = [(); 5].map(|()| reader.number());
        let (fd, flags, ino) = (fd? as i32, flags? as i32, Ino(ino?));
        let path = reader.text()?.to_vec();
        let what = match kind? {
            0 => What::File(crate::description::Later::of(ino, flags, &path)),
            1 => What::Directory(parking_lot::Mutex::new(None)),
            _ => What::Path,
        };
        let open = Description::new(what, ino, path, flags);
        if let Some(shared) = Shared::at(offset? as u32) {
            open.adopt(shared);
        }
        table::put(fd, Arc::new(open));
    }
    Some(())
}
