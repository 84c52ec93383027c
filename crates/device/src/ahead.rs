//! Faults in memory before anybody writes to it (pre-faulting).
//!
//! The kernel zeroes a page of shared memory at its first use, and each process maps small pages one by one. Memory
//! that is faulted in ahead, in huge pages where the machine has them, spares writers both costs. This room does not
//! know which space is free: it fills holes of the file from the start on, in the order in which the allocator hands
//! out memory.

use cenote_model::Result;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::io::fail;
use crate::map::{HUGE_BYTES, Mapping};
use crate::{SegmentFile, SegmentMode};

const HUGE: u64 = HUGE_BYTES as u64;

/// Resident bytes of a segment's data.
pub fn present_bytes(file: &SegmentFile) -> Result<u64> {
    let stat = rustix::fs::fstat(&*file.fd).map_err(|errno| fail("a memory segment", errno))?;
    Ok((stat.st_blocks as u64 * 512).min(file.len))
}

/// Faults in up to `bytes_max` bytes at the first hole of the segment's data; changes no byte. Returns how many bytes
/// became present: 0 if there is no hole or no memory for it.
///
/// `from`: offset in the data before which there is no hole, at first 0. The call advances it: present pages stay
/// present, and scanning them takes time proportional to their number.
pub fn fill_first_hole(file: &SegmentFile, from: &mut u64, bytes_max: u64) -> Result<u64> {
    if file.mode != SegmentMode::Mapped || !file.data_offset.is_multiple_of(HUGE) {
        return Ok(0);
    }
    let before = present_bytes(file)?;
    let end = file.data_offset + file.len;
    let hole = first_hole(file, *from)?;
    *from = hole - file.data_offset;
    if hole == end {
        return Ok(0);
    }
    let begin = hole / HUGE * HUGE;
    let len = (end - begin).min(bytes_max.next_multiple_of(HUGE)) as usize;
    let map = Mapping::new(&*file.fd, begin, len, true).map_err(|errno| fail("a memory segment", errno))?;
    // Fault in one page of each stretch first: the kernel makes no huge page where no page is present.
    let whole = len / HUGE_BYTES * HUGE_BYTES;
    let firsts = (0..whole).step_by(HUGE_BYTES).try_for_each(|at| map.populate(at as u64, 1));
    let is_huge = firsts.is_ok() && map.collapse(0, whole);
    let rest = if is_huge { whole } else { 0 };
    // An error here is harmless: the write itself gets this memory or fails.
    let _ = map.populate(rest as u64, len - rest);
    Ok(present_bytes(file)?.saturating_sub(before))
}

/// Offset in the file of the first hole at or after `from` in the data; the end of the data if there is none.
fn first_hole(file: &SegmentFile, from: u64) -> Result<u64> {
    let end = file.data_offset + file.len;
    match rustix::fs::seek(&*file.fd, SeekFrom::Hole(file.data_offset + from)) {
        Ok(hole) => Ok(hole.min(end)),
        Err(Errno::NXIO) => Ok(end),
        Err(errno) => Err(fail("a memory segment", errno)),
    }
}

/// Makes huge pages of up to `bytes_max` present bytes from offset `from` in the data on; changes no byte. Bytes first
/// written through the file lie in small pages, which every process maps one by one. Advances `from` past what was
/// examined, including huge pages that the kernel refused. Returns false at the next hole or at the end.
pub fn make_huge(file: &SegmentFile, from: &mut u64, bytes_max: u64) -> Result<bool> {
    if file.mode != SegmentMode::Mapped || !file.data_offset.is_multiple_of(HUGE) {
        return Ok(false);
    }
    let begin = file.data_offset + *from;
    let len = (first_hole(file, *from)? - begin).min(bytes_max) / HUGE * HUGE;
    if len == 0 {
        return Ok(false);
    }
    let map = Mapping::new(&*file.fd, begin, len as usize, true).map_err(|errno| fail("a memory segment", errno))?;
    map.collapse(0, len as usize);
    *from += len;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn holes_are_filled_from_the_begin_and_bytes_stay() {
        let fd = memfd_create("ahead", MemfdFlags::CLOEXEC).expect("a memfd");
        let len = 3 * HUGE + 8192;
        ftruncate(&fd, HUGE + len).expect("its size");
        rustix::io::pwrite(&fd, b"here", HUGE + 5000).expect("written");
        let file = SegmentFile { fd: Arc::new(fd), data_offset: HUGE, len, mode: SegmentMode::Mapped };
        assert_eq!(present_bytes(&file).expect("asked"), 4096);
        let (mut present, mut from) = (4096, 0);
        for _ in 0..8 {
            let more = fill_first_hole(&file, &mut from, HUGE).expect("filled");
            assert!(more <= HUGE, "no more than asked for: {more}");
            present += more;
            assert_eq!(present_bytes(&file).expect("asked"), present);
        }
        assert_eq!(present, len, "all of it in the end");
        assert_eq!(fill_first_hole(&file, &mut from, HUGE).expect("nothing to do"), 0);
        let mut back = [0u8; 6];
        rustix::io::pread(&*file.fd, &mut back, HUGE + 4999).expect("read");
        assert_eq!(&back, b"\0here\0");
    }

    #[test]
    fn bytes_stay_in_huge_pages() {
        let fd = memfd_create("huge", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&fd, 8 * HUGE).expect("its size");
        let bytes: Vec<u8> = (0..3 * HUGE).map(|at| (at / 1000) as u8).collect();
        rustix::io::pwrite(&fd, &bytes, HUGE).expect("written");
        let file = SegmentFile { fd: Arc::new(fd), data_offset: HUGE, len: 6 * HUGE, mode: SegmentMode::Mapped };
        let (mut from, mut steps) = (0, 0);
        while make_huge(&file, &mut from, 2 * HUGE).expect("no error, huge pages or not") {
            steps += 1;
        }
        assert_eq!((from, steps), (3 * HUGE, 2), "up to the hole");
        assert_eq!(present_bytes(&file).expect("asked"), 3 * HUGE, "and nothing else");
        let mut found = vec![0; bytes.len()];
        rustix::io::pread(&*file.fd, &mut found, HUGE).expect("read");
        assert!(found == bytes);
    }
}
