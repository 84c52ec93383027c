//! The transport to a daemon: two rings in shared memory for messages, a socket for descriptors.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use cenote_device::control::ClientFile;
use cenote_device::{SegmentFile, SegmentMode, store_dir};
use cenote_host::fork::CloseInChild;
use cenote_model::{DeviceId, Error, ErrorKind, HomeId, Request, Response, Result};
use cenote_rpc::{Connection, Consumer, Doorbell, Frame, Producer, Waker};
use cenote_server::Host;
use cenote_server::daemon::{SOCKET, ring_memories};
use cenote_wire::{
    Assembly, Greeting, MESSAGE_BYTES_MAX, bytes_in_frame, decode_bytes, decode_greeting, decode_response,
    encode_greeting, encode_request, parts,
};

use super::attachment::Attachment;
use super::readers::{Readers, Valid};
use super::transport::{Done, Pending, Traffic, Transport, Unsent};
use crate::sync::lock;

/// Time without an answer on the socket after which a daemon counts as dead.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval of a sleeping reader's checks that the daemon is alive.
const LIVENESS_EVERY: Duration = Duration::from_millis(5);

/// A daemon behind its socket and rings.
pub(super) struct Remote {
    // Fields drop in order: the registration goes before the descriptor.
    _close_in_child: Option<CloseInChild>,
    socket: Mutex<Connection>,
    outbox: Mutex<Producer>,
    inbox: Mutex<Inbox>,
    pending: Mutex<Table>,
    /// The other end is gone; no more responses come.
    is_broken: AtomicBool,
    /// No more requests are accepted.
    is_retired: AtomicBool,
    traffic: Traffic,
}

struct Inbox {
    responses: Consumer,
    assembly: Assembly,
}

/// Pending requests by number. Responses arrive nearly in order, so this is a short queue.
#[derive(Default)]
struct Table {
    first: u64,
    waiting: VecDeque<Option<(Vec<u8>, Done)>>,
    spare: Vec<Vec<u8>>,
}

impl Table {
    fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }
    fn put(&mut self, pending: Pending) {
        if self.waiting.is_empty() {
            self.first = pending.seq;
        }
        while self.first + (self.waiting.len() as u64) < pending.seq {
            self.waiting.push_back(None);
        }
        self.waiting.push_back(Some((pending.message, pending.done)));
    }
    fn take(&mut self, seq: u64) -> Option<Done> {
        let at = seq.checked_sub(self.first)? as usize;
        let (mut message, done) = self.waiting.get_mut(at)?.take()?;
        while let Some(None) = self.waiting.front() {
            self.waiting.pop_front();
            self.first += 1;
        }
        if self.spare.len() < 32 && message.capacity() <= 160 << 10 {
            message.clear();
            self.spare.push(message);
        }
        Some(done)
    }
    fn take_all(&mut self) -> Vec<Pending> {
        let first = self.first;
        let numbered = std::mem::take(&mut self.waiting).into_iter().enumerate();
        let present =
            numbered.filter_map(|(at, waiting)| waiting.map(|(message, done)| (first + at as u64, message, done)));
        present.map(|(seq, message, done)| Pending { seq, message, done }).collect()
    }
}

/// The result of a connection to a daemon, or to a process that holds the store alone.
pub(super) enum Reached {
    Daemon(Box<Attachment>),
    /// The store is being handed over to a daemon: try again in a moment.
    Moving,
    /// A daemon is there, and does not reach the home of another node.
    Away(Error),
    /// A daemon is there, and the home of another node is lost for good.
    Lost(Error),
}

/// Connects to the process that listens in `dir`. `NotFound` or `Disconnected` if there is none.
pub(super) fn connect(dir: &Path, home: HomeId, read_only: bool, traffic: &Traffic) -> Result<Reached> {
    refuse_as_root(dir)?;
    let connection = Connection::connect(dir, SOCKET, PATIENCE).map_err(|error| shut_out(dir, error))?;
    let close_in_child = CloseInChild::new(&connection);
    say(&connection, &Greeting::Hello { nonce: traffic.nonce, read_only, home })?;
    let (greeting, frame) = hear(&connection)?;
    let (store, instance, write, bound, engines, place) = match greeting {
        Greeting::Welcome { store, instance, write, bound, engines, place } => {
            (store, instance, write, bound, engines, place)
        }
        Greeting::Moving => return Ok(Reached::Moving),
        Greeting::Lost(error) => return Ok(Reached::Lost(error)),
        Greeting::Refused(error) if home != HomeId(0) => return Ok(Reached::Away(error)),
        Greeting::Refused(error) => return Err(error),
        _ => return Err(nonsense()),
    };
    let [table, file, bell, alive] = <[_; 4]>::try_from(frame.fds).map_err(|_| nonsense())?;
    let file = ClientFile::map_held(file, alive)?;
    let [requests, responses] = ring_memories(&file)?;
    let valid = match (place.far, place.leased) {
        (true, _) => Valid::UntilTold,
        (false, true) => Valid::UntilTime,
        (false, false) => Valid::Always,
    };
    let readers = Readers::new(table, file, valid)?;
    let remote = Remote {
        _close_in_child: close_in_child,
        socket: Mutex::new(connection),
        outbox: Mutex::new(Producer::new(requests, Waker::Doorbell(Doorbell::from_fd(bell)))?),
        inbox: Mutex::new(Inbox { responses: Consumer::new(responses)?, assembly: Assembly::default() }),
        pending: Mutex::default(),
        is_broken: AtomicBool::new(false),
        is_retired: AtomicBool::new(false),
        traffic: traffic.clone(),
    };
    let attachment = Attachment { store, transport: Arc::new(remote), readers, instance, write, bound, engines, place };
    Ok(Reached::Daemon(Box::new(attachment)))
}

/// Adds the owner of the store to the error of a user without access.
fn shut_out(dir: &Path, error: Error) -> Error {
    let uid = rustix::process::geteuid().as_raw();
    let owner = std::fs::metadata(dir).map_or(uid, |meta| std::os::unix::fs::MetadataExt::uid(&meta));
    if error.kind() != ErrorKind::PermissionDenied || !error.next_step().is_empty() || owner == uid {
        return error;
    }
    Error::new(ErrorKind::PermissionDenied, format!("store {}", dir.display()))
        .because(format!("it is user {owner}'s, and user {uid} is not among its readers and writers"))
        .try_next(format!(
            "use a store of your own (CENOTE_STORE), or one that was made with `cenote init --reader {uid}` or `--writer {uid}`"
        ))
}

/// Root must not follow the owner of a foreign directory, unless asked to.
fn refuse_as_root(dir: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    match std::fs::metadata(dir).map(|meta| std::os::unix::fs::MetadataExt::uid(&meta)) {
        Ok(owner) if !store_dir::is_trusted(owner) => {
            Err(store_dir::not_trusted(format!("store directory {}", dir.display()), owner))
        }
        _ => Ok(()), // an invisible directory is reported by a later step
    }
}

/// Returns true if the process that listens in `dir` is letting go of the store. Requests nothing.
pub(super) fn is_moving(dir: &Path) -> bool {
    let ask = || {
        let connection = Connection::connect(dir, SOCKET, PATIENCE)?;
        say(&connection, &Greeting::Bye)?;
        hear(&connection)
    };
    matches!(ask(), Ok((Greeting::Moving, _)))
}

fn say(connection: &Connection, greeting: &Greeting) -> Result<()> {
    let mut bytes = Vec::new();
    encode_greeting(greeting, &mut bytes);
    connection.send(&[&bytes], &[], PATIENCE)
}

fn hear(connection: &Connection) -> Result<(Greeting, Frame)> {
    let frame = connection
        .receive(PATIENCE)?
        .ok_or_else(|| Error::new(ErrorKind::Disconnected, "daemon").because("it does not answer on its socket"))?;
    Ok((decode_greeting(&frame.bytes)?, frame))
}

#[cold]
fn nonsense() -> Error {
    Error::new(ErrorKind::Internal, "daemon").because("its greeting makes no sense")
}

impl Remote {
    /// Puts a message into the ring. Takes in responses while there is no room: the daemon may wait for that.
    fn push(&self, ring: &mut Producer, message: &[u8]) {
        for (flag, piece) in parts(message, ring.frame_max()) {
            loop {
                match ring.try_push(&[&[flag], piece]) {
                    Ok(true) => break,
                    Ok(false) => {
                        ring.publish();
                        self.drain();
                        if self.is_broken() || ring.wait_room(Duration::from_millis(1)).is_err() {
                            return self.set_broken();
                        }
                        if self.is_daemon_gone() {
                            return self.set_broken();
                        }
                    }
                    Err(_) => return self.set_broken(),
                }
            }
        }
    }
    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }
    /// Marks the ring as broken. Its messages stay pending, and go to the next daemon.
    fn set_broken(&self) {
        self.is_broken.store(true, Ordering::Release);
    }
    fn is_daemon_gone(&self) -> bool {
        match self.socket.try_lock() {
            Ok(socket) => socket.is_peer_gone(),
            Err(_) => false, // another thread uses the socket
        }
    }
    /// Takes in the available responses, unless another thread does.
    fn drain(&self) -> usize {
        match self.inbox.try_lock() {
            Ok(mut inbox) => self.drain_inbox(&mut inbox),
            Err(TryLockError::Poisoned(inbox)) => self.drain_inbox(&mut inbox.into_inner()),
            Err(TryLockError::WouldBlock) => 0,
        }
    }
    fn drain_inbox(&self, inbox: &mut Inbox) -> usize {
        let mut count = 0;
        loop {
            let decoded = match inbox.responses.take_cut(bytes_in_frame) {
                Ok(Some((head, Some(bytes)))) if inbox.assembly.is_empty() => Ok(Some(decode_bytes(head, bytes))),
                Ok(Some((head, Some(bytes)))) => inbox.assembly.take(&[head, &bytes].concat(), decode_response),
                Ok(Some((frame, None))) => inbox.assembly.take(frame, decode_response),
                Ok(None) => break,
                Err(_) => {
                    self.set_broken();
                    break;
                }
            };
            match decoded {
                Ok(Some(Ok((seq, response)))) => {
                    let done = lock(&self.pending).take(seq);
                    // Without `done` the request was answered twice, by the previous daemon and by this one.
                    if let Some(done) = done {
                        done(response);
                    }
                    count += 1;
                }
                Ok(None) => {}
                Ok(Some(Err(error))) | Err(error) => {
                    tracing::warn!(%error, "the daemon's answer cannot be read");
                    self.set_broken();
                    break;
                }
            }
        }
        inbox.responses.release();
        if count > 0 {
            self.traffic.arrivals.note();
        }
        count
    }
    /// Takes in responses within `patience`, as the one thread that reads.
    fn lead(&self, patience: Duration) {
        let mut inbox = lock(&self.inbox);
        if self.drain_inbox(&mut inbox) > 0 || self.is_broken() || patience.is_zero() {
            return;
        }
        match inbox.responses.wait(patience.min(LIVENESS_EVERY)) {
            Ok(true) => drop(self.drain_inbox(&mut inbox)),
            Ok(false) if self.is_daemon_gone() => {
                self.drain_inbox(&mut inbox); // responses sent before the end
                self.set_broken();
            }
            Ok(false) => {}
            Err(_) => self.set_broken(),
        }
    }
}

impl Transport for Remote {
    fn submit(&self, request: Request, done: Done) -> Result<(), Unsent> {
        let mut ring = lock(&self.outbox);
        if self.is_retired.load(Ordering::Acquire) || self.is_broken() {
            return Err(Unsent { request, done });
        }
        let seq = self.traffic.seq.fetch_add(1, Ordering::Relaxed);
        let mut message = lock(&self.pending).buffer();
        encode_request(seq, &request, &mut message);
        if message.len() > MESSAGE_BYTES_MAX {
            drop(ring);
            done(Response::Failed(
                Error::new(ErrorKind::LimitExceeded, "request")
                    .because(format!("it has {} bytes; a message has at most {MESSAGE_BYTES_MAX}", message.len()))
                    .try_next("split it"),
            ));
            return Ok(());
        }
        if message.len() < ring.frame_max() {
            // The common case: one frame, copied into the ring before the message is stored.
            if let Ok(true) = ring.try_push(&[&[cenote_wire::PART_LAST], &message]) {
                lock(&self.pending).put(Pending { seq, message, done });
                ring.publish();
                return Ok(());
            }
        }
        let copy = message.clone();
        lock(&self.pending).put(Pending { seq, message, done });
        self.push(&mut ring, &copy);
        ring.publish();
        Ok(())
    }
    fn is_gone(&self) -> bool {
        self.is_broken() || self.is_daemon_gone()
    }
    fn announce(&self) {
        // A thread that holds the ring is just sending, which also wakes the daemon.
        if let Ok(mut ring) = self.outbox.try_lock() {
            ring.announce();
        }
    }
    fn progress(&self, seen: u64, patience: Duration) -> bool {
        if self.traffic.arrivals.begin_leading(seen, patience) {
            self.lead(patience);
            self.traffic.arrivals.end_leading();
        }
        !self.is_broken()
    }
    fn segment(&self, device: DeviceId, number: u64) -> Result<(SegmentFile, bool)> {
        let socket = lock(&self.socket);
        say(&socket, &Greeting::Segment { device, number })?;
        let (greeting, frame) = hear(&socket)?;
        match greeting {
            Greeting::SegmentIs { data_offset, len, mode, write } => {
                let mode = SegmentMode::from_code(mode).ok_or_else(nonsense)?;
                let fd = frame.fds.into_iter().next().ok_or_else(nonsense)?;
                Ok((SegmentFile { fd: Arc::new(fd), data_offset, len, mode }, write))
            }
            Greeting::Refused(error) => Err(error),
            _ => Err(nonsense()),
        }
    }
    fn retire(&self) -> Vec<Pending> {
        // With the lock on the ring: no thread is in the middle of a push.
        let _ring = lock(&self.outbox);
        self.is_retired.store(true, Ordering::Release);
        lock(&self.pending).take_all()
    }
    fn close(&self) -> Result<()> {
        self.is_retired.store(true, Ordering::Release);
        // Requests in the ring come first: the daemon may see the farewell before them.
        for _ in 0..100 {
            if lock(&self.outbox).is_drained().unwrap_or(true) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let socket = lock(&self.socket);
        let _ = say(&socket, &Greeting::Bye);
        socket.shutdown();
        Ok(())
    }
    fn resend(&self, pending: Vec<Pending>) {
        let mut ring = lock(&self.outbox);
        for pending in pending {
            let message = pending.message.clone();
            lock(&self.pending).put(pending);
            self.push(&mut ring, &message);
        }
        ring.publish();
    }
    fn take_back(&self) {
        lock(&self.outbox).take_back();
    }
    fn host(&self) -> Option<&Host> {
        None
    }
}

#[cfg(test)]
mod tests {
    use cenote_rpc::Listener;

    use super::*;

    #[test]
    fn who_lets_go_of_the_store_is_known_from_others() {
        let dir = std::env::temp_dir().join(format!("cenote-moving-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert!(!is_moving(&dir), "nobody listens");
        let listener = Listener::bind(&dir, SOCKET).unwrap();
        let refused = Greeting::Refused(Error::new(ErrorKind::PermissionDenied, "a test"));
        for (greeting, expected) in [(Greeting::Moving, true), (refused, false)] {
            let is_moving = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let connection = listener.accept(Duration::from_secs(20)).unwrap().unwrap();
                    assert!(matches!(hear(&connection).unwrap().0, Greeting::Bye));
                    say(&connection, &greeting).unwrap();
                });
                is_moving(&dir)
            });
            assert_eq!(is_moving, expected);
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
