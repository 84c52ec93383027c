//! Connections: who may open one, how many, and for how long.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::sample::Sampler;
use crate::{answer, peer};

/// Upper bound of concurrent connections. A page takes one or two.
const CONNECTIONS_MAX: usize = 64;
/// Time limit for a request's head; a connection without one is closed.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// A client that does not read for this long is disconnected.
const UNREAD_MS_MAX: u32 = 20_000;
/// Longest life of a connection. A browser's stream reconnects by itself.
const LIFE: Duration = Duration::from_hours(1);
/// Upper bound of a request's head, and of unsent bytes.
const BUFFER_BYTES: usize = 16 << 10;
/// Pause after a failure to accept: most likely too many open files.
const PAUSE: Duration = Duration::from_millis(200);

pub async fn serve(listener: TcpListener, local: SocketAddr, sampler: Arc<Sampler>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!(%error, "there is no web page"),
    };
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Ok(place) = room.clone().try_acquire_owned() else {
            let _ =
                stream.try_write(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            continue;
        };
        let sampler = sampler.clone();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(LIFE, converse(stream, from, local, sampler)).await;
            drop(place);
        });
    }
}

async fn converse(stream: TcpStream, from: SocketAddr, local: SocketAddr, sampler: Arc<Sampler>) {
    let uid = peer::uid_of(from, local);
    let may_look = uid.is_some_and(|uid| sampler.may_look(uid));
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNREAD_MS_MAX);
    let service = service_fn(move |request| {
        let sampler = sampler.clone();
        async move { Ok::<_, Infallible>(answer::answer(&request, may_look, &sampler).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a web connection ended");
    }
}
