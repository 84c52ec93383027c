//! What of a request's body is left when its answer is ready: it is read on if it is little, or the answer says that the connection ends with it.
//!
//! This knows HTTP/1.1's connections; what requests mean is not known here.

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

/// Bytes that are read after the answer is ready, so that the connection can serve the next request.
const REST_BYTES_MAX: u64 = 256 << 10;
/// How long the rest may take to come.
const REST_PATIENCE: Duration = Duration::from_millis(500);

/// A request's body that comes back when whoever reads it is done with it.
pub struct Watched {
    body: Option<Incoming>,
    rest: Rest,
}

/// Where a body comes back to.
#[derive(Clone)]
pub struct Rest(Arc<Left>);

struct Left {
    body: Mutex<Option<Incoming>>,
    /// The client sends the body when it hears that it should go on.
    expects: bool,
    /// Somebody began to read, at which the client was told to go on.
    is_begun: AtomicBool,
    /// It came to a bad end.
    is_broken: AtomicBool,
}

/// The body of a request, and where what is left of it will be.
pub fn watch(headers: &HeaderMap, body: Incoming) -> (Watched, Rest) {
    let expects = headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let [is_begun, is_broken] = [false, false].map(AtomicBool::new);
    let rest = Rest(Arc::new(Left { body: Mutex::new(None), expects, is_begun, is_broken }));
    (Watched { body: Some(body), rest: rest.clone() }, rest)
}

impl Rest {
    /// True if all of the body has come. If not, or if the client must not go on with this connection, its answer says so.
    pub async fn settle(&self, answer: &mut HeaderMap) -> bool {
        let left = self.0.body.lock().take();
        let is_begun = self.0.is_begun.load(Ordering::Relaxed);
        let is_whole = match left {
            _ if self.0.is_broken.load(Ordering::Relaxed) => false,
            // It was read to its end and let go, or there was none.
            None => true,
            Some(body) if body.is_end_stream() => true,
            // To read would be to ask for it.
            Some(_) if self.0.expects && !is_begun => false,
            Some(body) => finish(body).await,
        };
        // Who asked whether to go on and was answered at once ends this connection: `botocore` as `aws-cli` has it in itself, after an empty PUT, takes
        // the status of this answer for that of the next one that it asks so, and finds no headers in it (boto/botocore#3755).
        if !is_whole || (self.0.expects && !is_begun) {
            answer.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        is_whole
    }
}

/// Reads what is left of a body, if it is little and comes soon.
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
