//! A connection that is closed when nothing moves on it: whoever neither sends nor takes anything holds nothing for long. And one that is not closed in
//! the face of a client that is still sending: it would lose the answer that is on its way.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Times are set anew at most so often.
const GRAIN: Duration = Duration::from_secs(1);
/// A client that was answered before it was done may go on sending for so long; nobody looks at it.
const LINGER_MAX: Duration = Duration::from_secs(30);
/// If it sends nothing for so long, that is the end.
const LINGER_STILL: Duration = Duration::from_secs(5);
/// Bytes thrown away at a time.
const SINK_BYTES: usize = 16 << 10;

/// A stream with a limit for how long it may wait in each direction.
pub struct Patient<S> {
    inner: S,
    limit: Duration,
    reading: Alarm,
    writing: Alarm,
    is_more: More,
    /// Until when the client may go on, once the connection is shut down.
    lingers: Option<Instant>,
}

/// Whether a client may have more to send of what it began: so from the first byte of a request until somebody says that the request is whole.
#[derive(Clone, Default)]
pub struct More(Arc<AtomicBool>);

impl More {
    /// A request is whole, or not.
    pub fn set(&self, is_more: bool) {
        self.0.store(is_more, Ordering::Relaxed);
    }
}

/// When waiting ends.
struct Alarm {
    sleep: Pin<Box<Sleep>>,
    /// Something is waited for.
    is_set: bool,
}

impl Alarm {
    fn new(limit: Duration) -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(limit)), is_set: false }
    }
    /// Something moved.
    fn rest(&mut self) {
        self.is_set = false;
    }
    /// Nothing moves: waits, but not for ever.
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
    /// Lets `inner` wait for `limit` at most.
    pub fn new(inner: S, limit: Duration) -> Self {
        let (reading, writing) = (Alarm::new(limit), Alarm::new(limit));
        Self { inner, limit, reading, writing, is_more: More::default(), lingers: None }
    }
    /// Whether more is to come.
    pub fn more(&self) -> More {
        self.is_more.clone()
    }
}

impl<S: AsyncRead + Unpin> Patient<S> {
    /// Throws away what comes, until the client has ended too, or for long enough.
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
            // While an answer goes out, nobody need send anything: then writing is what is waited for.
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
