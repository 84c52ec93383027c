//! A unix socket that carries frames with descriptors, and reports the peer's credentials.
//!
//! A frame is: length of the bytes (u32), number of descriptors (u16), version (u16), then the bytes. All
//! little-endian.
#![allow(unsafe_code, reason = "no safe interface gives the credentials of a process that this one cannot see")]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// Longest frame.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// Upper bound of the descriptors with one frame.
pub const FRAME_FDS_MAX: usize = 64;
const FRAME_VERSION: u16 = 1;
const HEADER_BYTES: usize = 8;
/// The receive buffer grows as bytes arrive, so that a length alone costs nothing.
const GROW_BYTES: usize = 1 << 20;

/// The peer's credentials, as the kernel recorded them when the connection was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Process id, as seen from here; 0 if it is not visible (in another container).
    pub pid: u32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

/// A received frame.
#[derive(Debug, Default)]
pub struct Frame {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The descriptors that came with it.
    pub fds: Vec<OwnedFd>,
}

/// The socket's address through its open directory: short, however long the path is.
fn address(dir: &OwnedFd, name: &str) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

/// Opens the socket file itself, whatever the name refers to a moment later. `LOOP` for a link.
fn open_socket(dir: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let found = rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    match FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) {
        FileType::Socket => Ok(found),
        FileType::Symlink => Err(Errno::LOOP),
        _ => Err(Errno::NOTSOCK),
    }
}

fn at(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn open_dir(dir: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Accepts connections on a socket in a directory.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    dir: OwnedFd,
    path: PathBuf,
    name: String,
    /// Inode number of the socket's file.
    inode: u64,
}

impl Listener {
    /// Binds `name` in `dir`, replacing a socket that a dead process left there: the caller holds the store's lock.
    /// Anyone who can reach the directory may connect; the caller judges the credentials of each accepted connection.
    pub fn bind(dir: &Path, name: &str) -> Result<Self> {
        let path = dir.join(name);
        let fail = |errno: Errno| Error::io(format!("socket {}", path.display()), &errno.into());
        let dir = open_dir(dir).map_err(fail)?;
        let socket = new_socket().map_err(fail)?;
        match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(fail(errno)),
        }
        rustix::net::bind(&socket, &address(&dir, name).map_err(fail)?).map_err(fail)?;
        let made = open_socket(&dir, name).map_err(fail)?;
        rustix::fs::chmod(at(&made), Mode::from_raw_mode(0o666)).map_err(fail)?;
        rustix::net::listen(&socket, 128).map_err(fail)?;
        let inode = rustix::fs::fstat(&made).map_err(fail)?.st_ino;
        Ok(Self { socket, dir, path, name: name.to_owned(), inode })
    }
    /// The next connection, or `None` after `timeout`.
    pub fn accept(&self, timeout: Duration) -> Result<Option<Connection>> {
        let fail = |errno: Errno| Error::io(format!("socket {}", self.path.display()), &errno.into());
        let deadline = Instant::now() + timeout;
        loop {
            match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => return Ok(Some(Connection { socket, path: self.path.clone() })),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => {
                    if wait_for(&self.socket, PollFlags::IN, deadline).map_err(fail)?.is_empty() {
                        return Ok(None);
                    }
                }
                Err(errno) => return Err(fail(errno)),
            }
        }
    }
    /// Removes the socket's file, unless another process has bound the name since.
    pub fn unlink(&self) {
        let found = rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| found.st_ino == self.inode) {
            let _ = rustix::fs::unlinkat(&self.dir, &self.name, AtFlags::empty());
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns what of `flags` a descriptor is ready for; nothing if the deadline passes first. A hang-up counts as ready: the
/// next call reports it.
pub(crate) fn wait_for(fd: impl AsFd, flags: PollFlags, deadline: Instant) -> Result<PollFlags, Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds = [PollFd::new(&fd, flags)];
        match poll(&mut fds, Some(&timeout)) {
            Err(Errno::INTR) => {}
            done => return done.map(|_| fds[0].revents()),
        }
    }
}

/// Sends without a signal if the other end is gone. Does not wait.
pub(crate) fn send(socket: impl AsFd, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)
}

/// A connection. Frames arrive whole, or the connection is unusable: after any error but a timeout before a frame's
/// first byte, drop it.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    path: PathBuf,
}

impl Connection {
    /// Connects to `name` in `dir`. `NotFound` if there is no socket, `Disconnected` if nobody listens on it,
    /// `PermissionDenied` if the name is a link, or if the listener is neither the directory's owner nor this user
    /// nor root.
    pub fn connect(dir: &Path, name: &str, timeout: Duration) -> Result<Self> {
        let path = dir.join(name);
        let fail = |errno: Errno| match errno {
            Errno::CONNREFUSED => Error::new(ErrorKind::Disconnected, format!("socket {}", path.display()))
                .because("nobody listens on it"),
            Errno::AGAIN => Error::new(ErrorKind::Busy, format!("socket {}", path.display()))
                .because("too many connections are waiting to be accepted"),
            _ => Error::io(format!("socket {}", path.display()), &errno.into()),
        };
        let dir = open_dir(dir).map_err(fail)?;
        let found = open_socket(&dir, name).map_err(|errno| match errno {
            Errno::LOOP | Errno::NOTSOCK => {
                refused(&path, "it is no socket").try_next("no store makes it so: look who did, and remove it")
            }
            _ => fail(errno),
        })?;
        let owner = rustix::fs::fstat(&dir).map_err(fail)?.st_uid;
        let address = SocketAddrUnix::new(at(&found)).map_err(fail)?;
        let socket = new_socket().map_err(fail)?;
        let deadline = Instant::now() + timeout;
        loop {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => return Self { socket, path }.checked(owner),
                Err(Errno::INTR) => {}
                // The backlog is full, and there is nothing to poll on.
                Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
                Err(errno) => return Err(fail(errno)),
            }
        }
    }
    /// The same connection by a descriptor from this number on, out of the way of the program that this process runs; as it
    /// was if there is none.
    #[must_use]
    pub fn raised(self, lowest: i32) -> Self {
        if self.socket.as_raw_fd() >= lowest {
            return self;
        }
        match rustix::io::fcntl_dupfd_cloexec(&self.socket, lowest) {
            Ok(socket) => Self { socket, ..self },
            Err(_) => self,
        }
    }
    /// Checks the listener: anybody who may create names in the directory could listen there.
    fn checked(self, owner: u32) -> Result<Self> {
        let uid = self.peer()?.uid;
        if [0, owner, rustix::process::geteuid().as_raw()].contains(&uid) {
            return Ok(self);
        }
        let why = format!("user {uid} listens there, and the directory belongs to user {owner}");
        Err(refused(&self.path, &why)
            .try_next("find out who that is, and why; then start a daemon: `cenote serve DIR`"))
    }
    /// A pair of connected ends, for tests and for children.
    pub fn pair() -> Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|errno| Error::io("socket pair", &errno.into()))?;
        let path = PathBuf::from("pair");
        Ok((Self { socket: one, path: path.clone() }, Self { socket: other, path }))
    }
    /// The peer's credentials.
    pub fn peer(&self) -> Result<Credentials> {
        let mut cred = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        let fd = self.socket.as_raw_fd();
        // SAFETY: the descriptor is open; the kernel writes at most `len` bytes, which the structure has.
        let done =
            unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut cred).cast(), &raw mut len) };
        if done != 0 {
            let error = std::io::Error::last_os_error();
            return Err(self.fail(Errno::from_io_error(&error).unwrap_or(Errno::IO)));
        }
        Ok(Credentials { pid: cred.pid.cast_unsigned(), uid: cred.uid, gid: cred.gid })
    }
    /// The peer's supplementary groups.
    pub fn peer_groups(&self) -> Result<Vec<u32>> {
        /// More than any process can be in.
        const GROUPS_MAX: usize = 65_536;
        let fd = self.socket.as_raw_fd();
        let mut groups: Vec<u32> = vec![0; 64];
        loop {
            let mut len = size_of_val(groups.as_slice()) as libc::socklen_t;
            // SAFETY: the descriptor is open; the kernel writes at most `len` bytes, which the vector has.
            let done = unsafe {
                libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERGROUPS, groups.as_mut_ptr().cast(), &raw mut len)
            };
            let count = len as usize / size_of::<u32>();
            if done == 0 {
                groups.truncate(count);
                return Ok(groups);
            }
            let error = std::io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() || count > GROUPS_MAX {
                return Err(self.fail(Errno::from_io_error(&error).unwrap_or(Errno::IO)));
            }
            groups.resize(count, 0); // the kernel returned the actual number
        }
    }
    /// Waits for the next frame, or the end of the connection, as a system call of a program waits: a signal handler ends it
    /// (`EINTR`) unless it was installed with `SA_RESTART`.
    ///
    /// # Errors
    /// Those of `recv`.
    pub fn wait_as_program(&self) -> std::io::Result<()> {
        rustix::io::ioctl_fionbio(&self.socket, false)?;
        let heard = rustix::net::recv(&self.socket, &mut [0; 1], RecvFlags::PEEK);
        rustix::io::ioctl_fionbio(&self.socket, true)?;
        heard.map(drop).map_err(Into::into)
    }
    /// Waits for the next frame, or the end of the connection. Returns false if neither comes in time.
    pub fn is_readable_within(&self, patience: Duration) -> bool {
        let flags = PollFlags::IN | PollFlags::RDHUP;
        wait_for(&self.socket, flags, Instant::now() + patience).map_or(true, |ready| !ready.is_empty())
    }
    /// Returns true if the peer has closed its end or died.
    pub fn is_peer_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(gone)
    }
    /// Closes both directions; the peer and threads that wait on the connection notice.
    pub fn shutdown(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
    #[cold]
    fn fail(&self, errno: Errno) -> Error {
        let subject = format!("connection {}", self.path.display());
        match errno {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => {
                Error::new(ErrorKind::Disconnected, subject).because("the peer is gone")
            }
            _ => Error::io(subject, &errno.into()),
        }
    }
    #[cold]
    fn bad(&self, cause: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupt, format!("connection {}", self.path.display())).because(cause)
    }
    #[cold]
    fn late(&self) -> Error {
        Error::new(ErrorKind::Busy, format!("connection {}", self.path.display())).because("the peer does not answer")
    }
    /// Sends a frame made of the parts, with descriptors (of which the peer gets copies).
    pub fn send(&self, parts: &[&[u8]], fds: &[BorrowedFd<'_>], timeout: Duration) -> Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len > FRAME_BYTES_MAX || fds.len() > FRAME_FDS_MAX {
            return Err(Error::new(ErrorKind::LimitExceeded, format!("connection {}", self.path.display()))
                .because(format!("a frame of {len} bytes with {} descriptors", fds.len())));
        }
        let mut header = [0; HEADER_BYTES];
        header[0..4].copy_from_slice(&(len as u32).to_le_bytes());
        header[4..6].copy_from_slice(&(fds.len() as u16).to_le_bytes());
        header[6..8].copy_from_slice(&FRAME_VERSION.to_le_bytes());
        let deadline = Instant::now() + timeout;
        let mut slices: Vec<&[u8]> = Vec::with_capacity(parts.len() + 1);
        slices.push(&header);
        slices.extend(parts);
        let mut fds = fds;
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match self.send_some(rest, fds) {
                Ok(n) => {
                    fds = &[]; // sent with the first byte
                    rest = advance(rest, n);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if wait_for(&self.socket, PollFlags::OUT, deadline).map_err(|errno| self.fail(errno))?.is_empty() {
                        return Err(self.late());
                    }
                }
                Err(errno) => return Err(self.fail(errno)),
            }
        }
        Ok(())
    }
    fn send_some(&self, slices: &[&[u8]], fds: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
        let slices: Vec<IoSlice<'_>> = slices.iter().take(64).map(|slice| IoSlice::new(slice)).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FRAME_FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        rustix::net::sendmsg(&self.socket, &slices, &mut control, SendFlags::NOSIGNAL)
    }
    /// The next frame. `Ok(None)` if none began within `timeout`; `Disconnected` if the peer is gone.
    pub fn receive(&self, timeout: Duration) -> Result<Option<Frame>> {
        let deadline = Instant::now() + timeout;
        let mut header = [0; HEADER_BYTES];
        let mut frame = Frame::default();
        let mut have = 0;
        while have < HEADER_BYTES {
            match self.receive_some(&mut header[have..], &mut frame.fds, deadline)? {
                Some(n) => have += n,
                None if have == 0 => return Ok(None),
                None => return Err(self.late()),
            }
        }
        let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let fds = u16::from_le_bytes([header[4], header[5]]);
        let version = u16::from_le_bytes([header[6], header[7]]);
        if version != FRAME_VERSION {
            return Err(Error::new(ErrorKind::VersionMismatch, format!("connection {}", self.path.display()))
                .because(format!("frames of version {version}, this program knows {FRAME_VERSION}"))
                .try_next("use one version of Cenote for all processes of a store"));
        }
        if len > FRAME_BYTES_MAX || usize::from(fds) != frame.fds.len() {
            return Err(self.bad(format!("a frame of {len} bytes with {} of {fds} descriptors", frame.fds.len())));
        }
        let mut have = 0;
        while have < len {
            if frame.bytes.len() == have {
                frame.bytes.resize(len.min(have + GROW_BYTES), 0);
            }
            match self.receive_some(&mut frame.bytes[have..], &mut Vec::new(), deadline)? {
                Some(n) => have += n,
                None => return Err(self.late()),
            }
        }
        Ok(Some(frame))
    }
    /// Receives some bytes; `None` when the deadline passes first.
    fn receive_some(&self, buf: &mut [u8], fds: &mut Vec<OwnedFd>, deadline: Instant) -> Result<Option<usize>> {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FRAME_FDS_MAX))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let outcome = rustix::net::recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(buf)],
                &mut control,
                RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
            );
            match outcome {
                Ok(message) => {
                    for message in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(received) = message {
                            fds.extend(received);
                        }
                    }
                    if message.flags.contains(ReturnFlags::CTRUNC) || fds.len() > FRAME_FDS_MAX {
                        return Err(self.bad("too many descriptors"));
                    }
                    if message.bytes == 0 {
                        return Err(self.fail(Errno::CONNRESET));
                    }
                    return Ok(Some(message.bytes));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if wait_for(&self.socket, PollFlags::IN, deadline).map_err(|errno| self.fail(errno))?.is_empty() {
                        return Ok(None);
                    }
                }
                Err(errno) => return Err(self.fail(errno)),
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cold]
fn refused(path: &Path, cause: &str) -> Error {
    Error::new(ErrorKind::PermissionDenied, format!("socket {}", path.display())).because(cause)
}

/// The slices without their first `n` bytes.
fn advance<'a, 'b>(mut slices: &'a mut [&'b [u8]], mut n: usize) -> &'a mut [&'b [u8]] {
    while let Some(first) = slices.first_mut() {
        if n < first.len() {
            *first = &first[n..];
            break;
        }
        n -= first.len();
        slices = &mut slices[1..];
    }
    slices
}
