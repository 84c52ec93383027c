//! Dispatches each system call to its implementation.

use std::panic::{AssertUnwindSafe, catch_unwind};

use posix::Follow;

use crate::calls::bytes::{self, FilePosition};
use crate::calls::xattrs::{self, Of};
use crate::calls::{
    Answer, attributes, copying, descriptors, directories, locks, mapping, names, opening, process, times, waiting,
};
use crate::entry::{self, DESCRIPTOR, LOOK, Registers};
use crate::inside::{self, Inside};
use crate::{context, fork, kernel, limit, pass, signals, users};

/// Calls that concern this library if the descriptor in their first argument is one of the store's.
const BY_DESCRIPTOR: [i64; 32] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_ioctl,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_dup,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_getdents,
    libc::SYS_getdents64,
    libc::SYS_fchmod,
    libc::SYS_fchown,
    libc::SYS_fstatfs,
    libc::SYS_fsetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_fremovexattr,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_fallocate,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
];

/// Calls that must be examined: by path, by several descriptors, or because they change cached state.
const LOOKED_AT: [i64; 80] = [
    libc::SYS_setrlimit,
    libc::SYS_prlimit64,
    libc::SYS_rt_sigaction,
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_ctl,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_splice,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit_group,
    libc::SYS_truncate,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_chmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_fchownat,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_utimensat,
    libc::SYS_statfs,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_umask,
    libc::SYS_chroot,
    libc::SYS_inotify_add_watch,
    libc::SYS_setns,
    libc::SYS_tee,
    libc::SYS_memfd_create,
    libc::SYS_eventfd2,
];

/// Calls that change the identity of the process.
const IDENTITY: [i64; 9] = [
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setgroups,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
];

/// Calls that return descriptors: this library's own are moved out of the way.
const GIVING: [i64; 9] = [
    libc::SYS_socket,
    libc::SYS_accept4,
    libc::SYS_recvmsg,
    libc::SYS_epoll_create1,
    libc::SYS_timerfd_create,
    libc::SYS_pidfd_open,
    libc::SYS_io_uring_setup,
    libc::SYS_userfaultfd,
    libc::SYS_inotify_init1,
];

/// Selects the calls that are intercepted.
pub fn choose() {
    let looked_at = LOOKED_AT.iter().chain(&IDENTITY).chain(&GIVING).map(|number| (*number, LOOK));
    for (number, way) in BY_DESCRIPTOR.iter().map(|number| (*number, DESCRIPTOR)).chain(looked_at) {
        // SAFETY: before the C library's calls come here.
        unsafe { entry::CENOTE_WAYS[number as usize] = way };
    }
}

/// Returns true for calls that only return descriptors.
pub fn gives(number: i64) -> bool {
    GIVING.contains(&number) || matches!(number, libc::SYS_memfd_create | libc::SYS_eventfd2)
}

/// Returns true for calls about the descriptor in their first argument.
pub fn is_by_descriptor(number: i64) -> bool {
    BY_DESCRIPTOR.contains(&number)
}

/// Carries out a call; 0: the kernel has to do it.
pub extern "C" fn dispatch(registers: &mut Registers) -> u32 {
    let (number, a) = (registers.rax as i64, registers.args);
    if inside::is_inside() && !matches!(number, libc::SYS_execve | libc::SYS_execveat) {
        return own(registers);
    }
    // An uncertain call is examined in full; setting signals takes no lock either.
    if pass::is_of_others(number, &a) {
        return 0;
    }
    let inside = Inside::enter();
    let answer = catch_unwind(AssertUnwindSafe(|| call(number, &a)));
    drop(inside);
    if !inside::is_inside() {
        signals::let_in();
    }
    match answer {
        Ok(Answer::Kernel) => 0,
        Ok(Answer::Done(result)) => {
            registers.rax = result as u64;
            1
        }
        Ok(Answer::Open(path, flags)) => {
            // A signal may come meanwhile: its handler is the program's.
            let opened = kernel::simple(libc::SYS_openat, &[HERE as u64, path.as_ptr() as u64, flags as u64, 0]);
            registers.rax = opened as u64;
            // Free this library's memory where no handler can intervene.
            let inside = Inside::enter();
            drop(path);
            drop(inside);
            signals::let_in();
            1
        }
        Err(_) => {
            registers.rax = -i64::from(libc::EIO) as u64;
            1
        }
    }
}

/// A call by this library's own code.
fn own(registers: &mut Registers) -> u32 {
    let (number, a) = (registers.rax as i64, registers.args);
    let gives = match number {
        libc::SYS_open | libc::SYS_openat | libc::SYS_openat2 | libc::SYS_memfd_create | libc::SYS_eventfd2 => true,
        libc::SYS_fcntl => matches!(a[1] as i32, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC),
        libc::SYS_recvmsg => false,
        libc::SYS_close => {
            inside::forget(a[0] as i32);
            return 0;
        }
        number => GIVING.contains(&number),
    };
    if !gives && number != libc::SYS_recvmsg {
        return 0;
    }
    // SAFETY: as this library's own code requested.
    let result = unsafe { kernel::call(number, a) };
    registers.rax = if gives && result >= 0 { i64::from(inside::move_away(result as i32)) } else { result } as u64;
    if number == libc::SYS_recvmsg && result >= 0 {
        // SAFETY: the kernel has just filled this message.
        unsafe { move_received(a[1] as *const libc::msghdr) };
    }
    1
}

/// Moves descriptors that came with a message.
///
/// # Safety
/// `recvmsg` must have filled the message.
unsafe fn move_received(message: *const libc::msghdr) {
    // SAFETY: the kernel has filled it; the descriptor numbers are changed in place.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header);
                let len = (*header).cmsg_len - (data as usize - header as usize);
                for index in 0..len / size_of::<i32>() {
                    let at = data.add(index * size_of::<i32>());
                    let fd = inside::move_away(i32::from_ne_bytes(at.cast::<[u8; 4]>().read()));
                    at.cast::<[u8; 4]>().write(fd.to_ne_bytes());
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

const HERE: i32 = libc::AT_FDCWD;
const NO_FOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;

fn call(number: i64, a: &[u64; 6]) -> Answer {
    if number == libc::SYS_fcntl && locks_wait(a[1] as i32) || matches!(number, libc::SYS_flock | libc::SYS_splice) {
        return by_descriptor(number, a); // may wait: must not block `fork`
    }
    match number {
        // None of these waits for `fork`. A child of `vfork` would keep the gate closed for its parent.
        libc::SYS_execve => return process::exec((HERE, a[0], 0), a[1], a[2]),
        libc::SYS_execveat => return process::exec((a[0] as i32, a[1], a[4] as i32), a[2], a[3]),
        libc::SYS_rt_sigaction => return signals::action(a[0] as i32, a[1], a[2], a[3]),
        libc::SYS_umask => {
            context::set_umask(a[0] as u32);
            return Answer::Kernel;
        }
        libc::SYS_setrlimit | libc::SYS_prlimit64 => {
            // SAFETY: as the program requested.
            let result = unsafe { kernel::call(number, *a) };
            limit::look();
            return Answer::Done(result);
        }
        _ => {}
    }
    let _at_work = fork::at_work();
    match number {
        libc::SYS_open | libc::SYS_creat | libc::SYS_openat | libc::SYS_openat2 | libc::SYS_close => opened(number, a),
        libc::SYS_stat => attributes::stat(HERE, a[0], a[1], 0),
        libc::SYS_lstat => attributes::stat(HERE, a[0], a[1], NO_FOLLOW),
        libc::SYS_newfstatat => attributes::stat(a[0] as i32, a[1], a[2], a[3] as i32),
        libc::SYS_statx => attributes::statx(a[0] as i32, a[1], a[2] as i32, a[3] as u32, a[4]),
        libc::SYS_mmap => mapping::mmap(a),
        libc::SYS_munmap => mapping::munmap(a),
        libc::SYS_mremap => mapping::mremap(a),
        libc::SYS_msync => mapping::msync(a),
        libc::SYS_exit_group => process::end(),
        number if IDENTITY.contains(&number) => {
            users::before();
            // SAFETY: as the program requested.
            let result = unsafe { kernel::call(number, *a) };
            context::forget_caller();
            Answer::Done(result)
        }
        libc::SYS_setxattr..=libc::SYS_fremovexattr => xattr(number, a),
        _ => match by_descriptor(number, a) {
            Answer::Kernel => by_name(number, a),
            done => done,
        },
    }
}

fn locks_wait(command: i32) -> bool {
    matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW)
}

fn opened(number: i64, a: &[u64; 6]) -> Answer {
    match number {
        libc::SYS_open => opening::openat(HERE, a[0], a[1] as i32, a[2] as u32),
        libc::SYS_creat => opening::openat(HERE, a[0], libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, a[1] as u32),
        libc::SYS_openat => opening::openat(a[0] as i32, a[1], a[2] as i32, a[3] as u32),
        libc::SYS_openat2 => opening::openat2(a[0] as i32, a[1], a[2], a[3]),
        _ => descriptors::close(a[0] as i32),
    }
}

fn by_descriptor(number: i64, a: &[u64; 6]) -> Answer {
    let fd = a[0] as i32;
    match number {
        libc::SYS_read => bytes::read(fd, a[1], a[2], FilePosition::Offset),
        libc::SYS_write => bytes::write(fd, a[1], a[2], FilePosition::Offset),
        libc::SYS_pread64 => bytes::read(fd, a[1], a[2], FilePosition::At(a[3] as i64)),
        libc::SYS_pwrite64 => bytes::write(fd, a[1], a[2], FilePosition::At(a[3] as i64)),
        libc::SYS_readv => bytes::readv(fd, a[1], a[2], FilePosition::Offset),
        libc::SYS_writev => bytes::writev(fd, a[1], a[2], FilePosition::Offset),
        libc::SYS_preadv => bytes::readv(fd, a[1], a[2], FilePosition::At(a[3] as i64)),
        libc::SYS_pwritev => bytes::writev(fd, a[1], a[2], FilePosition::At(a[3] as i64)),
        libc::SYS_preadv2 => bytes::preadv2(fd, a[1], a[2], a[3], a[5] as i32),
        libc::SYS_pwritev2 => bytes::pwritev2(fd, a[1], a[2], a[3], a[5] as i32),
        libc::SYS_lseek => bytes::lseek(fd, a[1] as i64, a[2] as i32),
        libc::SYS_fstat => attributes::fstat(fd, a[1]),
        libc::SYS_ioctl => descriptors::ioctl(fd, a[1], a[2]),
        libc::SYS_dup => descriptors::dup(fd),
        libc::SYS_dup2 => descriptors::dup3(fd, a[1] as i32, None),
        libc::SYS_dup3 => descriptors::dup3(fd, a[1] as i32, Some(a[2] as i32)),
        libc::SYS_fcntl => descriptors::fcntl(fd, a[1] as i32, a[2]),
        libc::SYS_close_range => descriptors::close_range(a[0] as u32, a[1] as u32, a[2] as i32),
        libc::SYS_flock => locks::flock(fd, a[1] as i32),
        libc::SYS_fsync => bytes::sync(fd, false),
        libc::SYS_sync_file_range => bytes::sync_range(fd, a[1] as i64, a[2] as i64, a[3]),
        libc::SYS_fdatasync | libc::SYS_syncfs => bytes::sync(fd, true),
        libc::SYS_ftruncate => attributes::ftruncate(fd, a[1] as i64),
        libc::SYS_getdents => directories::getdents(fd, a[1], a[2], true),
        libc::SYS_getdents64 => directories::getdents(fd, a[1], a[2], false),
        libc::SYS_fchmod => attributes::fchmod(fd, a[1] as u32),
        libc::SYS_fchown => attributes::fchown(fd, a[1] as u32, a[2] as u32),
        libc::SYS_fstatfs => attributes::fstatfs(fd, a[1]),
        libc::SYS_fadvise64 => bytes::advise(fd, a[3] as i32),
        libc::SYS_readahead => bytes::readahead(fd),
        libc::SYS_fallocate => bytes::fallocate(fd, a[1] as i32, a[2] as i64, a[3] as i64),
        libc::SYS_fchdir => directories::fchdir(fd),
        libc::SYS_copy_file_range => copying::copy_file_range((fd, a[1]), (a[2] as i32, a[3]), a[4], a[5] as u32),
        libc::SYS_sendfile => copying::sendfile(fd, a[1] as i32, a[2], a[3]),
        libc::SYS_splice => copying::splice((fd, a[1]), (a[2] as i32, a[3]), a[4], a[5] as u32),
        libc::SYS_tee => copying::tee(fd, a[1] as i32),
        libc::SYS_epoll_ctl => waiting::epoll_ctl(a[2] as i32),
        libc::SYS_poll => waiting::poll(a[0], a[1], || kernel::simple(libc::SYS_poll, &[a[0], a[1], 0])),
        libc::SYS_ppoll => {
            let zero = waiting::ZERO;
            waiting::poll(a[0], a[1], || {
                kernel::simple(libc::SYS_ppoll, &[a[0], a[1], zero.as_ptr() as u64, a[3], a[4]])
            })
        }
        libc::SYS_select | libc::SYS_pselect6 => {
            waiting::select(a[0], [a[1], a[2], a[3]], || waiting::select_now(number, a))
        }
        _ => Answer::Kernel,
    }
}

fn by_name(number: i64, a: &[u64; 6]) -> Answer {
    let (dir, mode) = (a[0] as i32, a[1] as u32);
    match number {
        libc::SYS_access => attributes::access(HERE, a[0], a[1] as i32, 0),
        libc::SYS_faccessat => attributes::access(dir, a[1], a[2] as i32, 0),
        libc::SYS_faccessat2 => attributes::access(dir, a[1], a[2] as i32, a[3] as i32),
        libc::SYS_truncate => attributes::truncate(a[0], a[1] as i64),
        libc::SYS_statfs => attributes::statfs(a[0], a[1]),
        libc::SYS_getcwd => directories::getcwd(a[0], a[1]),
        libc::SYS_chdir => directories::chdir(a[0]),
        libc::SYS_rename => names::rename((HERE, a[0]), (HERE, a[1]), 0),
        libc::SYS_renameat => names::rename((dir, a[1]), (a[2] as i32, a[3]), 0),
        libc::SYS_renameat2 => names::rename((dir, a[1]), (a[2] as i32, a[3]), a[4] as u32),
        libc::SYS_mkdir => names::mkdir(HERE, a[0], mode),
        libc::SYS_mkdirat => names::mkdir(dir, a[1], a[2] as u32),
        libc::SYS_mknod => names::mknod(HERE, a[0], mode, a[2]),
        libc::SYS_mknodat => names::mknod(dir, a[1], a[2] as u32, a[3]),
        libc::SYS_rmdir => names::unlink(HERE, a[0], libc::AT_REMOVEDIR),
        libc::SYS_unlink => names::unlink(HERE, a[0], 0),
        libc::SYS_unlinkat => names::unlink(dir, a[1], a[2] as i32),
        libc::SYS_link => names::link((HERE, a[0]), (HERE, a[1]), 0),
        libc::SYS_linkat => names::link((dir, a[1]), (a[2] as i32, a[3]), a[4] as i32),
        libc::SYS_symlink => names::symlink(a[0], HERE, a[1]),
        libc::SYS_symlinkat => names::symlink(a[0], a[1] as i32, a[2]),
        libc::SYS_readlink => names::readlink(HERE, a[0], a[1], a[2] as i64),
        libc::SYS_readlinkat => names::readlink(dir, a[1], a[2], a[3] as i64),
        libc::SYS_chmod => attributes::chmod(HERE, a[0], mode, 0),
        libc::SYS_fchmodat => attributes::chmod(dir, a[1], a[2] as u32, 0),
        libc::SYS_fchmodat2 => attributes::chmod(dir, a[1], a[2] as u32, a[3] as i32),
        libc::SYS_chown => attributes::chown(HERE, a[0], (mode, a[2] as u32), 0),
        libc::SYS_lchown => attributes::chown(HERE, a[0], (mode, a[2] as u32), NO_FOLLOW),
        libc::SYS_fchownat => attributes::chown(dir, a[1], (a[2] as u32, a[3] as u32), a[4] as i32),
        libc::SYS_utime => times::utime(a[0], a[1]),
        libc::SYS_utimes => times::utimes(HERE, a[0], a[1]),
        libc::SYS_futimesat => times::utimes(dir, a[1], a[2]),
        libc::SYS_utimensat => times::utimensat(dir, a[1], a[2], a[3] as i32),
        libc::SYS_inotify_add_watch => attributes::unsupported(a[1], libc::ENOSPC),
        libc::SYS_chroot => attributes::unsupported(a[0], libc::EPERM),
        _ => Answer::Kernel,
    }
}

fn xattr(number: i64, a: &[u64; 6]) -> Answer {
    // In each family: by path, by path without following, by descriptor.
    let of = match (number - libc::SYS_setxattr) % 3 {
        0 => Of::Path(a[0], Follow::Yes),
        1 => Of::Path(a[0], Follow::No),
        _ => Of::Fd(a[0] as i32),
    };
    match (number - libc::SYS_setxattr) / 3 {
        0 => xattrs::set(of, a[1], a[2], a[3], a[4] as i32),
        1 => xattrs::get(of, a[1], a[2], a[3]),
        2 => xattrs::list(of, a[1], a[2]),
        _ => xattrs::remove(of, a[1]),
    }
}
