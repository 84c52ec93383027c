//! The unread rest of a request's body when its answer is ready: a short rest is read, otherwise the answer says that the connection ends.
//!
//! This module knows connections of HTTP/1.1, but not what requests mean.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HeaderMap, HeaderValue};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;

/// Maximum number of bytes read after the answer is ready, so that the connection can serve the next request.
const REST_BYTES_MAX: u64 = 256 << 10;
/// Time limit for the rest.
const REST_PATIENCE: Duration = Duration::from_millis(500);

/// A request's body that is handed back when its reader is done with it.
pub struct Watched {
    body: Option<Incoming>,
    rest: Rest,
}

/// Where a body is handed back.
#[derive(Clone)]
pub struct Rest(Arc<Left>);

struct Left {
    body: Mutex<Option<Incoming>>,
    /// The client sends the body only after an interim answer (`Expect: 100-continue`).
    expects: bool,
    /// Reading has begun, which told the client to go on.
    is_begun: AtomicBool,
    /// The body ended with an error.
    is_broken: AtomicBool,
}

/// Wraps the body of a request; also returns where its rest will be.
pub fn watch(headers: &HeaderMap, body: Incoming) -> (Watched, Rest) {
    let expects = headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let [is_begun, is_broken] = [false, false].map(AtomicBool::new);
    let rest = Rest(Arc::new(Left { body: Mutex::new(None), expects, is_begun, is_broken }));
    (Watched { body: Some(body), rest: rest.clone() }, rest)
}

impl Rest {
    /// Reads a short rest; returns true if the whole body has arrived. If not, or if the client must not reuse this connection, adds `Connection:
    /// close` to the answer.
    pub async fn settle(&self, answer: &mut HeaderMap) -> bool {
        let left = self.0.body.lock().take();
        let is_begun = self.0.is_begun.load(Ordering::Relaxed);
        let is_whole = match left {
            _ if self.0.is_broken.load(Ordering::Relaxed) => false,
            // It was read to its end and dropped, or there was none.
            None => true,
            Some(body) if body.is_end_stream() => true,
            // Reading would ask the client to send it.
            Some(_) if self.0.expects && !is_begun => false,
            Some(body) => finish(body).await,
        };
        // A client that asked whether to go on and was answered at once must close this connection: the `botocore` in `aws-cli`, after an empty PUT,
        // takes the status of this answer for that of the next such request, and finds no headers in it (boto/botocore#3755).
        if !is_whole || (self.0.expects && !is_begun) {
            answer.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        is_whole
    }
}

/// Reads the rest of a body, if it is short and arrives soon.
async fn finish(mut body: Incoming) -> bool {
    if Body::size_hint(&body).lower() > REST_BYTES_MAX {
        return false;
    }
    let all = async {
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            read += frame.data_ref().map_or(0, Bytes::len) as u64;
            if read > REST_BYTES_MAX {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(REST_PATIENCE, all).await.unwrap_or(false)
}

impl Body for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        if !body.is_end_stream() {
            this.rest.0.is_begun.store(true, Ordering::Relaxed);
        }
        let polled = Pin::new(&mut *body).poll_frame(cx);
        match &polled {
            Poll::Ready(None) => this.body = None,
            Poll::Ready(Some(Err(_))) => this.rest.0.is_broken.store(true, Ordering::Relaxed),
            _ => {}
        }
        polled
    }
    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }
    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        *self.rest.0.body.lock() = self.body.take();
    }
}
