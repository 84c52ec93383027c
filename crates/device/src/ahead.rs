//! Memory made present before anybody writes to it.
//!
//! A page of shared memory that nobody touched is zeroed when it is first used, and each process maps small pages one by
//! one. Made ahead, in huge pages where the machine has them, it costs a writer neither. Knows nothing of what is free:
//! it fills holes of the file from the begin on, as the allocator hands out memory.

use cenote_model::Result;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::io::fail;
use crate::map::{HUGE_BYTES, Mapping};
use crate::{SegmentFile, SegmentMode};

const HUGE: u64 = HUGE_BYTES as u64;

/// Bytes of a segment's data that are in memory.
pub fn present_bytes(file: &SegmentFile) -> Result<u64> {
    let stat = rustix::fs::fstat(&*file.fd).map_err(|errno| fail("a memory segment", errno))?;
    Ok((stat.st_blocks as u64 * 512).min(file.len))
}

/// Makes up to `bytes_max` bytes present where the segment's data have their first hole; changes no byte. How many there
/// are now that were not: 0 if there is no hole, or no memory for it.
///
/// `from`: offset in the data before which there is none, at first 0; it moves on, since what is present stays so and
/// looking through it takes as long as it has pages.
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
    // One page of each stretch first: where none is present the kernel makes no huge one.
    let whole = len / HUGE_BYTES * HUGE_BYTES;
    let firsts = (0..whole).step_by(HUGE_BYTES).try_for_each(|at| map.populate(at as u64, 1));
    let is_huge = firsts.is_ok() && map.collapse(0, whole);
    let rest = if is_huge { whole } else { 0 };
    // What cannot be had now is had, or refused, when somebody writes there.
    let _ = map.populate(rest as u64, len - rest);
    Ok(present_bytes(file)?.saturating_sub(before))
}

/// Offset in the file of the first hole at or after `from` in the data; their end if there is none.
fn first_hole(file: &SegmentFile, from: u64) -> Result<u64> {
    let end = file.data_offset + file.len;
    match rustix::fs::seek(&*file.fd, SeekFrom::Hole(file.data_offset + from)) {
        Ok(hole) => Ok(hole.min(end)),
        Err(Errno::NXIO) => Ok(end),
        Err(errno) => Err(fail("a memory segment", errno)),
    }
}

/// Makes huge pages of up to `bytes_max` bytes from offset `from` in the data on, as far as they are present; changes no
/// byte. What was first written through the file is in small pages, which every process has to map one by one. `from` moves on
/// past what was looked at, huge pages that could not be had included. False if the next hole, or the end, is reached.
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
