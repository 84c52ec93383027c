//! Calls that wait for descriptors: files are always ready.

use super::{Answer, Maybe, answer, put, value};
use crate::{kernel, probe, table};

const READY: i16 = libc::POLLIN | libc::POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM;
/// Upper bound of the descriptors in one call.
const MOST: u64 = 1 << 16;
/// Descriptors in a word of a `select` set.
const BITS: usize = 64;

/// `poll` and `ppoll`: `other` passes the same list to the kernel, without waiting.
pub fn poll(list: u64, count: u64, other: impl FnOnce() -> i64) -> Answer {
    let poll = || -> Maybe {
        if count == 0
            || count > MOST
            || probe::readable_range(list, count as usize * size_of::<libc::pollfd>()).is_err()
        {
            return Ok(None);
        }
        // SAFETY: the program declares that this many entries exist.
        let all = unsafe { std::slice::from_raw_parts_mut(list as *mut libc::pollfd, count as usize) };
        let ours: Vec<usize> =
            (0..all.len()).filter(|at| all[*at].fd >= 0 && table::get(all[*at].fd).is_some()).collect();
        if ours.is_empty() {
            return Ok(None);
        }
        for at in &ours {
            all[*at].fd = !all[*at].fd;
        }
        let result = other();
        let mut ready = result.max(0);
        for at in ours {
            all[at].fd = !all[at].fd;
            all[at].revents = all[at].events & READY;
            ready += i64::from(all[at].revents != 0);
        }
        Ok(Some(if result < 0 { result } else { ready }))
    };
    answer(poll())
}

/// `select` and `pselect6`: `other` passes the same sets to the kernel, without waiting.
pub fn select(count: u64, sets: [u64; 3], other: impl FnOnce() -> i64) -> Answer {
    let select = || -> Maybe {
        let words = (count as usize).div_ceil(BITS);
        let mut ours: Vec<(u64, u64)> = Vec::new(); // address of a word, and our bits in it
        for (index, set) in sets.iter().enumerate().filter(|(_, set)| **set != 0) {
            for word in 0..words {
                let at = set + 8 * word as u64;
                let bits: u64 = value(at)?;
                let mine = (0..BITS).filter(|bit| bits & (1 << bit) != 0 && word * BITS + bit < count as usize);
                let mine = mine.filter(|bit| table::get((word * BITS + bit) as i32).is_some());
                let mine = mine.fold(0, |mine, bit| mine | 1_u64 << bit);
                if mine != 0 {
                    put(at, bits & !mine)?;
                    // Files have no exceptional conditions.
                    ours.push((at, if index < 2 { mine } else { 0 }));
                }
            }
        }
        if ours.is_empty() {
            return Ok(None);
        }
        let result = other();
        let mut ready = result;
        for (at, mine) in ours {
            put(at, value::<u64>(at)? | mine)?;
            ready += i64::from(mine.count_ones());
        }
        Ok(Some(if result < 0 { result } else { ready }))
    };
    answer(select())
}

/// A zero time-out.
pub const ZERO: [i64; 2] = [0, 0];

/// `select` or `pselect6` without waiting, with the arguments in registers.
pub fn select_now(number: i64, a: &[u64; 6]) -> i64 {
    let zero = ZERO;
    kernel::simple(number, &[a[0], a[1], a[2], a[3], zero.as_ptr() as u64, a[5]])
}

/// `epoll_ctl`: refuses files, as the kernel does.
pub fn epoll_ctl(fd: i32) -> Answer {
    if table::get(fd).is_some() { Answer::Done(-i64::from(libc::EPERM)) } else { Answer::Kernel }
}
