//! TCP under an [`Endpoint`].

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, Result};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvFlags, SocketAddrAny, SocketFlags, SocketType};

use super::endpoint::{Endpoint, Event};
use super::hello::Introduction;
use super::key::ClusterKey;
use super::outbound::SLICES_MAX;
use super::tls::{self, Role, Tls};
use crate::socket::{send, wait_for};

/// Most reads and writes of a turn, so that one connection does not keep others from theirs.
const TURN: usize = 8;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// How long bytes may stay without an acknowledgement before the system gives the connection up. The cluster notices
/// silence long before.
const UNACKNOWLEDGED_MS: u32 = 30_000;

fn subject(peer: SocketAddr) -> String {
    format!("node at {peer}")
}

#[cold]
fn fail(peer: SocketAddr, errno: Errno) -> Error {
    let error = match errno {
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => {
            Error::new(ErrorKind::Disconnected, subject(peer)).because("it closed the connection")
        }
        Errno::CONNREFUSED => Error::new(ErrorKind::Disconnected, subject(peer))
            .because("the host is there, and nothing listens on that port"),
        Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH => {
            Error::new(ErrorKind::Disconnected, subject(peer)).because(format!("it cannot be reached: {errno}"))
        }
        _ => Error::io(subject(peer), &errno.into()),
    };
    error.try_next("`cenote cluster status` shows which nodes are alive")
}

#[cold]
fn late(peer: SocketAddr, what: &str) -> Error {
    Error::new(ErrorKind::Disconnected, subject(peer))
        .because(format!("{what} in time"))
        .try_next("`cenote cluster status` shows which nodes are alive")
}

/// Why nothing can be read or written.
enum Broken {
    Errno(Errno),
    /// Encryption: why.
    Tls(&'static str),
}

fn broken(error: &std::io::Error) -> Broken {
    if let Some(why) = tls::reason(error) {
        return Broken::Tls(why);
    }
    Broken::Errno(match error.kind() {
        std::io::ErrorKind::WouldBlock => Errno::AGAIN,
        std::io::ErrorKind::UnexpectedEof => Errno::CONNRESET,
        _ => Errno::from_io_error(error).unwrap_or(Errno::IO),
    })
}

impl Broken {
    #[cold]
    fn error(self, peer: SocketAddr) -> Error {
        match self {
            Self::Errno(errno) => fail(peer, errno),
            Self::Tls(why) => Error::new(ErrorKind::PermissionDenied, subject(peer))
                .because(why)
                .try_next("copy `cluster.key` and the file `cluster` of another node: all need the same key, and the same `encrypt`"),
        }
    }
}

fn receive(socket: &OwnedFd, spaces: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<usize, Errno> {
    rustix::net::recvmsg(socket, spaces, &mut RecvAncillaryBuffer::default(), flags).map(|done| done.bytes)
}

fn new_socket(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

/// Accepts connections from other nodes.
#[derive(Debug)]
pub struct TcpListener {
    socket: OwnedFd,
    address: SocketAddr,
}

impl TcpListener {
    /// Listens on an address; port 0 lets the system choose one.
    pub fn bind(address: SocketAddr) -> Result<Self> {
        let fail = |errno: Errno| {
            Error::io(format!("address {address}"), &errno.into())
                .try_next("choose another port, or port 0 for any, or see who listens there: `ss -ltnp`")
        };
        let socket = new_socket(&address).map_err(fail)?;
        // A daemon that is started again must not wait for old connections to be forgotten.
        sockopt::set_socket_reuseaddr(&socket, true).map_err(fail)?;
        rustix::net::bind(&socket, &address).map_err(fail)?;
        rustix::net::listen(&socket, BACKLOG).map_err(fail)?;
        let bound = rustix::net::getsockname(&socket).map_err(fail)?;
        let address = SocketAddr::try_from(bound).map_err(fail)?;
        Ok(Self { socket, address })
    }
    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// The next connection, or `None` after `timeout`. The other end has proved nothing yet.
    pub fn accept(&self, who: Introduction, key: &ClusterKey, timeout: Duration) -> Result<Option<TcpConnection>> {
        let fail = |errno: Errno| Error::io(format!("address {}", self.address), &errno.into());
        let deadline = Instant::now() + timeout;
        loop {
            match rustix::net::acceptfrom_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok((socket, peer)) => {
                    let peer = peer.map(SocketAddrAny::try_into).and_then(Result::ok).unwrap_or(self.address);
                    return TcpConnection::of(socket, peer, Role::Server, who, key).map(Some);
                }
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
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A connection to another node. Nothing of it blocks but [`TcpConnection::open`] and [`TcpConnection::wait`].
pub struct TcpConnection {
    socket: OwnedFd,
    peer: SocketAddr,
    endpoint: Endpoint,
    tls: Option<Tls>,
    /// There may be something to read: the last read filled its space, or `poll` said so since.
    may_read: bool,
    /// The socket itself waits in reads that may.
    reads_wait: bool,
}

impl TcpConnection {
    fn of(socket: OwnedFd, peer: SocketAddr, role: Role, who: Introduction, key: &ClusterKey) -> Result<Self> {
        let set = || {
            // Frames are gathered here already.
            sockopt::set_tcp_nodelay(&socket, true)?;
            sockopt::set_tcp_user_timeout(&socket, UNACKNOWLEDGED_MS)
        };
        set().map_err(|errno| fail(peer, errno))?;
        let (endpoint, tls) = (Endpoint::new(role, who, key)?, key.tls(role)?);
        Ok(Self { socket, peer, endpoint, tls, may_read: true, reads_wait: false })
    }
    /// Connects to a node, and proves that both have the key. `Disconnected` if it cannot be reached within `timeout`.
    pub fn connect(peer: SocketAddr, who: Introduction, key: &ClusterKey, timeout: Duration) -> Result<Self> {
        let deadline = Instant::now() + timeout;
        let socket = new_socket(&peer).map_err(|errno| fail(peer, errno))?;
        match rustix::net::connect(&socket, &peer) {
            Ok(()) => {}
            Err(Errno::INPROGRESS | Errno::INTR) => {
                let ready = wait_for(&socket, PollFlags::OUT, deadline).map_err(|errno| fail(peer, errno))?;
                if ready.is_empty() {
                    return Err(late(peer, "it did not answer"));
                }
                let outcome = sockopt::socket_error(&socket).map_err(|errno| fail(peer, errno))?;
                outcome.map_err(|errno| fail(peer, errno))?;
            }
            Err(errno) => return Err(fail(peer, errno)),
        }
        let mut connection = Self::of(socket, peer, Role::Client, who, key)?;
        connection.open(deadline.saturating_duration_since(Instant::now()))?;
        Ok(connection)
    }
    /// Waits until both ends have proved that they have the key, and returns who the other is. A server calls this for
    /// each accepted connection.
    pub fn open(&mut self, timeout: Duration) -> Result<Introduction> {
        let deadline = Instant::now() + timeout;
        loop {
            self.turn()?;
            if let Some(Event::Opened(peer)) = self.endpoint.next_event() {
                return Ok(peer);
            }
            if Instant::now() >= deadline {
                return Err(late(self.peer, "it did not prove that it has the cluster's key"));
            }
            self.wait(deadline.saturating_duration_since(Instant::now()))?;
        }
    }
    /// The other end's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
    /// The protocol: what is to be sent, and what happened.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }
    /// Tells that the socket is ready to be read, for callers that wait for many connections at once.
    pub fn set_readable(&mut self) {
        self.may_read = true;
    }
    /// From now on, [`TcpConnection::wait`] reads what it waits for, for up to `patience`: one call of the system fewer for each
    /// message. For a thread that has nothing else to wait for.
    pub fn wait_in_reads(&mut self, patience: Duration) -> Result<()> {
        if self.tls.is_some() {
            return Ok(()); // it reads as long as there is something
        }
        let set = || {
            sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, Some(patience))?;
            rustix::io::ioctl_fionbio(&self.socket, false)
        };
        set().map_err(|errno| fail(self.peer, errno))?;
        self.reads_wait = true;
        Ok(())
    }
    /// Returns what the socket has to be waited for.
    pub fn wanted(&mut self) -> PollFlags {
        let mut slices = Vec::with_capacity(SLICES_MAX);
        self.endpoint.slices(&mut slices);
        let is_writing = !slices.is_empty() || self.tls.as_ref().is_some_and(Tls::wants_write);
        if is_writing { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
    }
    /// Reads what [`TcpConnection::wait`] found, and writes what is possible without waiting. Returns true if there may be
    /// more to do at once.
    pub fn turn(&mut self) -> Result<bool> {
        let is_reading = if self.may_read { self.read(false) } else { Ok(false) };
        // What has arrived may have made frames ready; after an error, the one that says why.
        let is_writing = self.write();
        let is_reading = is_reading?;
        Ok(is_writing? || is_reading)
    }
    /// Reads what is there, and waits for the first of it if it may. Returns true if the system may have more.
    fn read(&mut self, may_wait: bool) -> Result<bool> {
        // What came before the end, or a failure, is dealt with first: the next turn finds that again.
        let mut any = false;
        for _ in 0..TURN {
            let flags = if may_wait && !any { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            let (first, second) = self.endpoint.spaces();
            let room = first.len() + second.len();
            let mut spaces = [IoSliceMut::new(first), IoSliceMut::new(second)];
            let spaces = if spaces[0].is_empty() { &mut spaces[1..] } else { &mut spaces[..] };
            let read = match &mut self.tls {
                Some(tls) => tls.read(&self.socket, spaces).map_err(|error| broken(&error)),
                None => receive(&self.socket, spaces, flags).map_err(Broken::Errno),
            };
            match read {
                Ok(0) if any => return Ok(true),
                Ok(0) => return Err(fail(self.peer, Errno::CONNRESET)),
                Ok(count) => {
                    self.endpoint.received(count)?;
                    any = true;
                    // What TLS gives says nothing of what the socket has.
                    if count < room && self.tls.is_none() {
                        self.may_read = false;
                        return Ok(false);
                    }
                }
                Err(Broken::Errno(Errno::INTR)) => {}
                Err(Broken::Errno(Errno::AGAIN)) => {
                    self.may_read = false;
                    return Ok(false);
                }
                Err(_) if any => return Ok(true),
                Err(broken) => return Err(broken.error(self.peer)),
            }
        }
        Ok(true)
    }
    /// Returns true if the system may take more.
    fn write(&mut self) -> Result<bool> {
        if let Some(tls) = &mut self.tls {
            tls.flush(&self.socket).map_err(|error| broken(&error).error(self.peer))?;
        }
        for _ in 0..TURN {
            let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(SLICES_MAX);
            self.endpoint.slices(&mut slices);
            let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
            if wanted == 0 {
                return Ok(false);
            }
            let sent = match &mut self.tls {
                Some(tls) => tls.write(&self.socket, &slices).map_err(|error| broken(&error)),
                None => send(&self.socket, &slices).map_err(Broken::Errno),
            };
            match sent {
                Ok(count) => {
                    drop(slices);
                    self.endpoint.written(count);
                }
                Err(Broken::Errno(Errno::INTR)) => {}
                Err(Broken::Errno(Errno::AGAIN)) => return Ok(false),
                Err(broken) => return Err(broken.error(self.peer)),
            }
        }
        Ok(true)
    }
    /// Waits until there is something to read, or room for what is to be written.
    pub fn wait(&mut self, timeout: Duration) -> Result<()> {
        if self.may_read && self.tls.is_some() {
            return Ok(()); // it may have bytes that the socket has no more
        }
        let flags = self.wanted();
        if self.reads_wait && !flags.contains(PollFlags::OUT) {
            return self.read(true).map(drop);
        }
        let done = wait_for(&self.socket, flags, Instant::now() + timeout).map_err(|errno| fail(self.peer, errno))?;
        // A hang-up or an error is found by reading.
        self.may_read |= done.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
        Ok(())
    }
}

impl AsFd for TcpConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::Class;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn ends_that_wait_in_reads_hear_everything_and_wait_no_longer_than_they_said() {
        let listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let (address, brief) = (listener.address(), Duration::from_millis(20));
        let key = || ClusterKey::from_bytes([1; 32]);
        let who = |node| Introduction { cluster: 77, node, incarnation: u64::from(node), view: 5 };
        for key in [key(), key().encrypting().unwrap()] {
            let next = |end: &mut TcpConnection| loop {
                end.turn()?;
                if let Some(Event::Message(message)) = end.endpoint().next_event() {
                    return Ok::<_, Error>(message.bytes);
                }
                end.wait(brief)?;
            };
            std::thread::scope(|scope| {
                let serve = scope.spawn(|| {
                    let mut end = listener.accept(who(2), &key, PATIENCE).unwrap().unwrap();
                    end.open(PATIENCE).unwrap();
                    end.wait_in_reads(brief).unwrap();
                    while let Ok(bytes) = next(&mut end) {
                        end.endpoint().send(Class::Bulk, bytes).unwrap();
                    }
                });
                let mut end = TcpConnection::connect(address, who(1), &key, PATIENCE).unwrap();
                end.wait_in_reads(brief).unwrap();
                for len in (0..300_000).step_by(7919) {
                    end.endpoint().send(Class::Bulk, vec![len as u8; len]).unwrap();
                    assert_eq!(next(&mut end).unwrap(), vec![len as u8; len]);
                }
                let begin = Instant::now();
                end.wait(brief).unwrap();
                assert!(begin.elapsed() < PATIENCE);
                drop(end);
                serve.join().unwrap();
            });
        }
    }
}
