//! A stream that closes a connection on which nothing moves, so that an idle client does not hold resources for long. It also does not close while the
//! client is still sending, which would lose the answer in transit.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Granularity of timer resets.
const GRAIN: Duration = Duration::from_secs(1);
/// How long a client that was answered early may go on sending; its bytes are ignored.
const LINGER_MAX: Duration = Duration::from_secs(30);
/// How long such a client may send nothing before the connection closes.
const LINGER_STILL: Duration = Duration::from_secs(5);
/// Bytes discarded at a time.
const SINK_BYTES: usize = 16 << 10;

/// A stream with a time limit for waiting in each direction.
pub struct Patient<S> {
    inner: S,
    limit: Duration,
    reading: Alarm,
    writing: Alarm,
    is_more: More,
    /// Deadline for the client after the connection is shut down.
    lingers: Option<Instant>,
}

/// Whether a client may send more of a request it began: true from the first byte of a request until [`More::set`] says that it is whole.
#[derive(Clone, Default)]
pub struct More(Arc<AtomicBool>);

impl More {
    /// Records whether more is to come.
    pub fn set(&self, is_more: bool) {
        self.0.store(is_more, Ordering::Relaxed);
    }
}

/// Time limit of a wait.
struct Alarm {
    sleep: Pin<Box<Sleep>>,
    /// A wait is in progress.
    is_set: bool,
}

impl Alarm {
    fn new(limit: Duration) -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(limit)), is_set: false }
    }
    /// Ends the wait: something moved.
    fn rest(&mut self) {
        self.is_set = false;
    }
    /// Waits, up to the limit.
    fn poll(&mut self, limit: Duration, cx: &mut Context<'_>) -> Poll<io::Error> {
        let deadline = Instant::now() + limit;
        if !self.is_set {
            self.is_set = true;
            if deadline.saturating_duration_since(self.sleep.deadline()) > GRAIN || self.sleep.is_elapsed() {
                self.sleep.as_mut().reset(deadline);
            }
        }
        ready!(self.sleep.as_mut().poll(cx));
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "nothing moved for too long"))
    }
}

impl<S> Patient<S> {
    /// Limits the waits of `inner` to `limit`.
    pub fn new(inner: S, limit: Duration) -> Self {
        let (reading, writing) = (Alarm::new(limit), Alarm::new(limit));
        Self { inner, limit, reading, writing, is_more: More::default(), lingers: None }
    }
    /// Returns the shared flag whether more is to come.
    pub fn more(&self) -> More {
        self.is_more.clone()
    }
}

impl<S: AsyncRead + Unpin> Patient<S> {
    /// Discards what arrives until the client closes too, or the time is over.
    fn linger(&mut self, end: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let mut sink = [MaybeUninit::uninit(); SINK_BYTES];
        loop {
            let mut buf = ReadBuf::uninit(&mut sink);
            match Pin::new(&mut self.inner).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() && Instant::now() < end => self.reading.rest(),
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.reading.poll(LINGER_STILL, cx).map(drop),
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        match Pin::new(&mut this.inner).poll_read(cx, buf) {
            Poll::Ready(done) => {
                this.reading.rest();
                if buf.filled().len() > before {
                    this.is_more.set(true);
                }
                Poll::Ready(done)
            }
            // While an answer goes out, the client need not send anything: then only the wait for writing counts.
            Poll::Pending if this.writing.is_set => Poll::Pending,
            Poll::Pending => this.reading.poll(this.limit, cx).map(Err),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        match Pin::new(&mut this.inner).poll_write(cx, buf) {
            Poll::Ready(done) => {
                this.writing.rest();
                this.reading.rest();
                Poll::Ready(done)
            }
            Poll::Pending => this.writing.poll(this.limit, cx).map(Err),
        }
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        match Pin::new(&mut this.inner).poll_write_vectored(cx, bufs) {
            Poll::Ready(done) => {
                this.writing.rest();
                this.reading.rest();
                Poll::Ready(done)
            }
            Poll::Pending => this.writing.poll(this.limit, cx).map(Err),
        }
    }
    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let end = if let Some(end) = this.lingers {
            end
        } else {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
            if !this.is_more.0.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
            this.reading = Alarm::new(LINGER_STILL);
            *this.lingers.insert(Instant::now() + LINGER_MAX)
        };
        this.linger(end, cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn whoever_is_still_is_let_go() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (near, mut far) = tokio::io::duplex(64);
            let mut near = Patient::new(near, Duration::from_millis(1500));
            far.write_all(b"x").await.unwrap();
            assert_eq!(near.read_u8().await.unwrap(), b'x');
            let start = Instant::now();
            assert_eq!(near.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert!(start.elapsed() < Duration::from_secs(4));
            let error = near.write_all(&[0; 4096]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "nobody takes what is written");
        });
    }

    #[test]
    fn whoever_is_still_sending_may() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (near, mut far) = tokio::io::duplex(64);
            let mut near = Patient::new(near, Duration::from_mins(1));
            far.write_all(b"x").await.unwrap();
            assert_eq!(near.read_u8().await.unwrap(), b'x');
            let sent = async {
                far.write_all(&[0; 4096]).await.unwrap();
                tokio::time::sleep(Duration::from_millis(200)).await;
                far.write_all(&[0; 4096]).await.unwrap();
                drop(far);
            };
            let (shut, ()) = tokio::join!(near.shutdown(), sent);
            shut.unwrap();
        });
    }

    #[test]
    fn nobody_waits_for_a_client_that_is_done() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (near, mut far) = tokio::io::duplex(64);
            let mut near = Patient::new(near, Duration::from_mins(1));
            far.write_all(b"x").await.unwrap();
            assert_eq!(near.read_u8().await.unwrap(), b'x');
            near.more().set(false);
            let start = Instant::now();
            near.shutdown().await.unwrap();
            assert!(start.elapsed() < LINGER_STILL);
        });
    }

    #[test]
    fn nobody_waits_for_ever() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (near, mut far) = tokio::io::duplex(64);
            let mut near = Patient::new(near, Duration::from_mins(1));
            far.write_all(b"x").await.unwrap();
            assert_eq!(near.read_u8().await.unwrap(), b'x');
            let start = Instant::now();
            near.shutdown().await.unwrap();
            assert!(start.elapsed() < LINGER_STILL + Duration::from_secs(3));
        });
    }
}
