//! Watch over connections whose threads are in a call of the store: how long they take, and whether the client is
//! still there.
//!
//! Each connection is served on its own thread, where calls may wait for the store. A thread in a call cannot notice
//! its client, so a separate task watches both: work for a client that left ends at its next step, and a call that
//! takes too long loses its connection and its place.

use std::cell::RefCell;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use s3s::{S3Result, s3_error};
use tokio::sync::OwnedSemaphorePermit;

/// Interval of checks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Maximum duration of one call of the store for a waiting client.
pub const CALL_MAX: Duration = Duration::from_mins(2);
/// Maximum number of connections dropped during a call that still runs; beyond it, further calls keep their places.
pub const ABANDONED_MAX: usize = 256;

/// A connection.
pub struct Conversation {
    made: Instant,
    /// Milliseconds from its creation to the beginning of the current step, plus one; 0 between steps.
    since_ms: AtomicU64,
    /// The client no longer waits for an answer.
    is_left: AtomicBool,
    socket: TcpStream,
    /// Its place among all connections; `None`: taken away.
    place: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Conversation {
    /// Returns how long the current step has taken so far.
    fn busy(&self) -> Option<Duration> {
        let since = self.since_ms.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.made.elapsed().saturating_sub(Duration::from_millis(since)))
    }
    fn is_closed_by_peer(&self) -> bool {
        match self.socket.peek(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

thread_local! {
    static HERE: RefCell<Option<Arc<Conversation>>> = const { RefCell::new(None) };
}

/// Returns false if this thread works for a client that has left.
fn is_wanted() -> bool {
    HERE.with_borrow(|here| here.as_ref().is_none_or(|one| !one.is_left.load(Ordering::Relaxed)))
}

/// Returns an error if the client has left: to be called between the steps of long work.
pub fn check() -> S3Result<()> {
    if is_wanted() { Ok(()) } else { Err(s3_error!(RequestTimeout, "the client has left")) }
}

/// A connection's future, run on its own thread.
pub struct Steps<F> {
    inner: Pin<Box<F>>,
    of: Arc<Conversation>,
}

impl<F: Future> Steps<F> {
    /// Wraps a future.
    pub fn new(inner: F, of: Arc<Conversation>) -> Self {
        HERE.set(Some(of.clone()));
        Self { inner: Box::pin(inner), of }
    }
}

impl<F> Drop for Steps<F> {
    fn drop(&mut self) {
        HERE.set(None);
    }
}

impl<F: Future> Future for Steps<F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        this.of.since_ms.store(this.of.made.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
        let polled = this.inner.as_mut().poll(cx);
        this.of.since_ms.store(0, Ordering::Relaxed);
        polled
    }
}

/// All connections.
#[derive(Default)]
pub struct Watch(Mutex<Vec<Weak<Conversation>>>);

impl Watch {
    /// Adds a connection.
    pub fn add(&self, stream: &impl AsFd, place: OwnedSemaphorePermit) -> io::Result<Arc<Conversation>> {
        let socket = TcpStream::from(stream.as_fd().try_clone_to_owned()?);
        let one = Arc::new(Conversation {
            made: Instant::now(),
            since_ms: AtomicU64::new(0),
            is_left: AtomicBool::new(false),
            socket,
            place: Mutex::new(Some(place)),
        });
        self.0.lock().push(Arc::downgrade(&one));
        Ok(one)
    }
    /// Watches all connections for as long as it is polled.
    pub async fn look_after(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look(CALL_MAX);
        }
    }
    fn look(&self, most: Duration) {
        let mut all = Vec::new();
        self.0.lock().retain(|one| one.upgrade().inspect(|one| all.push(one.clone())).is_some());
        let mut abandoned = all.iter().filter(|one| one.place.lock().is_none()).count();
        for one in all {
            let Some(busy) = one.busy().filter(|busy| *busy >= LOOK_EVERY.min(most)) else { continue };
            if one.is_closed_by_peer() {
                one.is_left.store(true, Ordering::Relaxed);
            }
            if busy >= most && abandoned < ABANDONED_MAX && one.place.lock().take().is_some() {
                abandoned += 1;
                one.is_left.store(true, Ordering::Relaxed);
                let _ = one.socket.shutdown(Shutdown::Both);
                tracing::warn!(
                    seconds = busy.as_secs(),
                    abandoned,
                    "a call of the store is not over: its client was let go"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tokio::sync::Semaphore;

    use super::*;

    /// Creates a connection in a call: its client, and the conversation.
    fn busy(watch: &Watch, room: &Arc<Semaphore>) -> (TcpStream, Arc<Conversation>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let one = watch.add(&server, room.clone().try_acquire_owned().unwrap()).unwrap();
        one.since_ms.store(1, Ordering::Relaxed);
        std::thread::sleep(LOOK_EVERY);
        (client, one)
    }

    #[test]
    fn a_client_that_left_is_noticed_in_the_middle_of_a_call() {
        let (watch, room) = (Watch::default(), Arc::new(Semaphore::new(1)));
        let (client, one) = busy(&watch, &room);
        let _steps = Steps::new(std::future::pending::<()>(), one.clone());
        watch.look(CALL_MAX);
        assert!(is_wanted());
        drop(client);
        watch.look(CALL_MAX);
        assert!(!is_wanted());
        assert_eq!(room.available_permits(), 0, "the call goes on, and has its place");
    }

    #[test]
    fn a_call_that_is_not_over_loses_its_connection_and_its_place() {
        let (watch, room) = (Watch::default(), Arc::new(Semaphore::new(1)));
        let (mut client, one) = busy(&watch, &room);
        watch.look(Duration::from_millis(100));
        assert_eq!(room.available_permits(), 1);
        assert_eq!(io::Read::read(&mut client, &mut [0]).unwrap(), 0, "whoever waits is told");
        one.since_ms.store(0, Ordering::Relaxed);
        assert!(one.busy().is_none());
    }
}
