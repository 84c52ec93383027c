//! A connection that is closed when nothing moves on it: whoever neither sends nor takes anything holds nothing for long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Times are set anew at most so often.
const GRAIN: Duration = Duration::from_secs(1);

/// A stream with a limit for how long it may wait in each direction.
pub struct Patient<S> {
    inner: S,
    limit: Duration,
    reading: Alarm,
    writing: Alarm,
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
        Self { inner, limit, reading: Alarm::new(limit), writing: Alarm::new(limit) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match Pin::new(&mut this.inner).poll_read(cx, buf) {
            Poll::Ready(done) => {
                this.reading.rest();
                Poll::Ready(done)
            }
            // While an answer goes out, nobody need send anything: then writing is what is waited for.
            Poll::Pending if this.writing.is_set => Poll::Pending,
            Poll::Pending => this.reading.poll(this.limit, cx).map(Err),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
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
        Pin::new(&mut self.inner).poll_shutdown(cx)
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
}
