//! Calls that set times.

use posix::{SetAttr, SetTime, Time};

use super::{Answer, Result, answer, attributes, value};
use crate::kernel;

const HERE: u64 = libc::AT_FDCWD as u64;

fn of_ns(s: i64, ns: i64) -> Result<Option<SetTime>> {
    match ns {
        libc::UTIME_NOW => Ok(Some(SetTime::Now)),
        libc::UTIME_OMIT => Ok(None),
        0..1_000_000_000 => Ok(Some(SetTime::To(Time { s, ns: ns as u32 }))),
        _ => Err(libc::EINVAL),
    }
}

fn of_us([s, us]: [i64; 2]) -> Result<Option<SetTime>> {
    if (0..1_000_000).contains(&us) { of_ns(s, us * 1000) } else { Err(libc::EINVAL) }
}

fn both(accessed: Option<SetTime>, modified: Option<SetTime>) -> SetAttr {
    SetAttr { accessed, modified, ..SetAttr::default() }
}

const NOW: Option<SetTime> = Some(SetTime::Now);

/// `utimensat`.
pub fn utimensat(dir: i32, path: u64, times: u64, flags: i32) -> Answer {
    let set = || {
        if times == 0 {
            return Ok(both(NOW, NOW));
        }
        let [a, b] = value::<[[i64; 2]; 2]>(times)?;
        Ok(both(of_ns(a[0], a[1])?, of_ns(b[0], b[1])?))
    };
    let other = |path| kernel::simple(libc::SYS_utimensat, &[HERE, path, times, flags as u64]);
    answer(set().and_then(|set| attributes::set_times(dir, path, &set, flags, other)))
}

/// `futimesat`, `utimes`.
pub fn utimes(dir: i32, path: u64, times: u64) -> Answer {
    let set = || {
        if times == 0 {
            return Ok(both(NOW, NOW));
        }
        let [a, b] = value::<[[i64; 2]; 2]>(times)?;
        Ok(both(of_us(a)?, of_us(b)?))
    };
    let other = |path| kernel::simple(libc::SYS_futimesat, &[HERE, path, times]);
    answer(set().and_then(|set| attributes::set_times(dir, path, &set, 0, other)))
}

/// `utime`.
pub fn utime(path: u64, times: u64) -> Answer {
    let set = || {
        if times == 0 {
            return Ok(both(NOW, NOW));
        }
        let [a, b] = value::<[i64; 2]>(times)?;
        Ok(both(of_ns(a, 0)?, of_ns(b, 0)?))
    };
    let other = |path| kernel::simple(libc::SYS_utime, &[path, times]);
    answer(set().and_then(|set| attributes::set_times(libc::AT_FDCWD, path, &set, 0, other)))
}
