//! Decides without a lock, memory or message that a call does not concern this library. The call may come from
//! `malloc`, from the loader, from a stream's flush, or under a program's own lock, while another thread that works
//! for this library, or forks, waits for just that.
//!
//! Uncertain calls are examined in full (`dispatch`).

use crate::calls::mapping;
use crate::{context, dispatch, inside, paths, probe, table};

const HERE: i32 = libc::AT_FDCWD;

/// Returns true if the descriptor neither leads to the store nor belongs to this library.
fn is_other(fd: u64) -> bool {
    !table::may_be_ours(fd as i32) && !inside::is_ours(fd as i32)
}

fn is_elsewhere(dir: i32, path: u64) -> bool {
    paths::is_elsewhere(dir, path)
}

/// Returns true for calls that the kernel can carry out unchanged.
pub fn is_of_others(number: i64, a: &[u64; 6]) -> bool {
    let dir = a[0] as i32;
    match number {
        libc::SYS_mmap => !mapping::concerns(a) && (a[3] as i32 & libc::MAP_ANONYMOUS != 0 || is_other(a[4])),
        libc::SYS_munmap | libc::SYS_msync => !mapping::touches(a[0], a[1]),
        libc::SYS_mremap => !mapping::touches(a[0], a[1]) && !mapping::touches(a[4], a[2]),
        libc::SYS_close | libc::SYS_fcntl | libc::SYS_dup => is_other(a[0]),
        libc::SYS_dup2 | libc::SYS_dup3 | libc::SYS_sendfile | libc::SYS_tee => is_other(a[0]) && is_other(a[1]),
        libc::SYS_copy_file_range | libc::SYS_splice | libc::SYS_epoll_ctl => is_other(a[0]) && is_other(a[2]),
        libc::SYS_poll | libc::SYS_ppoll => none_is_waited_for(a[0], a[1]),
        libc::SYS_select | libc::SYS_pselect6 => none_is_in_sets(a),
        libc::SYS_getcwd => !context::may_have_cwd(),
        libc::SYS_exit_group => context::known_system().is_none(),
        libc::SYS_fsetxattr
        | libc::SYS_fgetxattr
        | libc::SYS_flistxattr
        | libc::SYS_fremovexattr
        | libc::SYS_fchdir => !context::may_have_cwd() && is_other(a[0]),
        libc::SYS_open
        | libc::SYS_creat
        | libc::SYS_stat
        | libc::SYS_lstat
        | libc::SYS_access
        | libc::SYS_truncate
        | libc::SYS_mkdir
        | libc::SYS_mknod
        | libc::SYS_rmdir
        | libc::SYS_unlink
        | libc::SYS_readlink
        | libc::SYS_chmod
        | libc::SYS_chown
        | libc::SYS_lchown
        | libc::SYS_utime
        | libc::SYS_utimes
        | libc::SYS_statfs
        | libc::SYS_chroot
        | libc::SYS_setxattr..=libc::SYS_lremovexattr => is_elsewhere(HERE, a[0]),
        libc::SYS_chdir => !context::may_have_cwd() && is_elsewhere(HERE, a[0]),
        libc::SYS_openat
        | libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_mkdirat
        | libc::SYS_mknodat
        | libc::SYS_unlinkat
        | libc::SYS_readlinkat
        | libc::SYS_fchmodat
        | libc::SYS_fchmodat2
        | libc::SYS_fchownat
        | libc::SYS_futimesat
        | libc::SYS_utimensat => is_elsewhere(dir, a[1]),
        libc::SYS_rename | libc::SYS_link => is_elsewhere(HERE, a[0]) && is_elsewhere(HERE, a[1]),
        libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat => {
            is_elsewhere(dir, a[1]) && is_elsewhere(a[2] as i32, a[3])
        }
        libc::SYS_symlink | libc::SYS_inotify_add_watch => is_elsewhere(HERE, a[1]),
        libc::SYS_symlinkat => is_elsewhere(a[1] as i32, a[2]),
        number => dispatch::gives(number) || dispatch::is_by_descriptor(number) && is_other(a[0]),
    }
}

fn none_is_waited_for(list: u64, count: u64) -> bool {
    /// Longer lists are examined in full.
    const MOST: u64 = 4096;
    let len = size_of::<libc::pollfd>() as u64;
    if count == 0 || count > MOST || probe::readable_range(list, (count * len) as usize).is_err() {
        return count == 0;
    }
    (0..count).all(|index| {
        // SAFETY: the list was just checked, and the program declares that it does not change.
        let fd = unsafe { ((list + index * len) as *const i32).read_unaligned() };
        fd < 0 || is_other(fd as u64)
    })
}

fn none_is_in_sets(a: &[u64; 6]) -> bool {
    const BITS: u64 = 64;
    let words = a[0].min(table::FDS as u64).div_ceil(BITS);
    a[1..4].iter().filter(|set| **set != 0).all(|set| {
        probe::readable_range(*set, words as usize * 8).is_ok()
            && (0..words).all(|word| {
                // SAFETY: as above.
                let mut bits = unsafe { ((set + 8 * word) as *const u64).read_unaligned() };
                while bits != 0 {
                    if !is_other(word * BITS + u64::from(bits.trailing_zeros())) {
                        return false;
                    }
                    bits &= bits - 1;
                }
                true
            })
    })
}
