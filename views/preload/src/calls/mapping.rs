//! Files in the program's memory.

use super::{Answer, Maybe, answer};
use crate::description::{Description, errno};
use crate::{kernel, table};

/// Bytes that are read at a time.
const PIECE: usize = 8 << 20;
const PAGE: u64 = 4096;

/// `mmap`.
pub fn mmap(a: &[u64; 6]) -> Answer {
    let flags = a[3] as i32;
    if flags & libc::MAP_ANONYMOUS != 0 {
        return Answer::Kernel;
    }
    let Some(open) = table::get(a[4] as i32) else { return Answer::Kernel };
    answer(map(&open, a))
}

fn map(open: &Description, a: &[u64; 6]) -> Maybe {
    let [at, len, protection, flags, _, offset] = *a;
    let (protection, flags) = (protection as i32, flags as i32);
    let file = open.file_or(libc::ENODEV)?;
    let kind = flags & libc::MAP_TYPE;
    if len == 0
        || offset % PAGE != 0
        || !matches!(kind, libc::MAP_PRIVATE | libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE)
    {
        return Err(libc::EINVAL);
    }
    if !file.flags().read {
        return Err(libc::EACCES);
    }
    if kind != libc::MAP_PRIVATE && protection & libc::PROT_WRITE != 0 {
        return Err(if file.flags().write { libc::ENODEV } else { libc::EACCES });
    }
    let flags = (flags & !libc::MAP_TYPE) | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let got = kernel::simple_or(libc::SYS_mmap, &[at, len, writable, flags as u64, u64::MAX, 0])? as u64;
    let filled = fill(file, got, len, offset);
    let protected = kernel::simple_or(libc::SYS_mprotect, &[got, len, protection as u64]);
    match filled.and(protected) {
        Ok(_) => Ok(Some(got as i64)),
        Err(errno) => {
            kernel::simple(libc::SYS_munmap, &[got, len]);
            Err(errno)
        }
    }
}

/// Reads the file into new memory.
fn fill(file: &posix::File, at: u64, len: u64, offset: u64) -> Result<i64, i32> {
    let mut done = 0;
    while done < len {
        let piece = PIECE.min((len - done) as usize);
        // SAFETY: the kernel has just given this memory.
        let buf = unsafe { std::slice::from_raw_parts_mut((at + done) as *mut u8, piece) };
        let read = file.read_at(buf, offset + done).map_err(errno)?;
        if read == 0 {
            break;
        }
        done += read as u64;
    }
    Ok(0)
}
