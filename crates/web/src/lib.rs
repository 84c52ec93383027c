//! A web page and metrics of a store: HTTP on a loopback address.
//!
//! Everything here is read-only: no request changes anything. This room must not know the engine, the origin of the
//! numbers, or their use: it gets them from a [`Source`], and sends them in the formats of `cenote-telemetry`. A client
//! must be a user who may read the store, and its request must name this machine as host (against DNS rebinding).
//! Connections, memory for each, and the time of a slow client are bounded: this runs inside the daemon.

mod answer;
mod body;
mod connection;
mod page;
mod peer;
mod sample;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use cenote_model::{Error, ErrorKind, Result, StoreId, Telemetry};
use tokio::sync::oneshot;

use sample::Sampler;

/// The source of the numbers.
pub trait Source: Send + Sync {
    /// The store.
    fn store(&self) -> StoreId;
    /// Its telemetry, with this many hot objects. May take some time; fails when the store is closed.
    fn telemetry(&self, hot: u32) -> Result<Telemetry>;
    /// Returns true if this user may read the store.
    fn may_look(&self, uid: u32) -> bool;
}

/// A server. It ends when this value is dropped.
#[derive(Debug)]
pub struct Web {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Web {
    /// Serves on a loopback address (port 0: any free one), on a thread of its own.
    pub fn start(address: SocketAddr, source: Arc<dyn Source>) -> Result<Self> {
        let subject = || format!("web address {address}");
        if !address.ip().is_loopback() {
            return Err(Error::new(ErrorKind::InvalidInput, subject())
                .because("it is no loopback address, and the page has no passwords")
                .try_next("use 127.0.0.1, and `ssh -L` to look from another machine"));
        }
        let failed = |error: std::io::Error| {
            let next = "choose another port; 0 takes one that is free";
            Error::io(subject(), &error).try_next(next)
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(1)
            .thread_name("cenote-web-ask")
            .build()
            .map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            let serving = connection::serve(listener, address, Arc::new(Sampler::new(source)));
            runtime.block_on(async {
                let serving = tokio::spawn(serving);
                let _ = stopped.await;
                serving.abort();
            });
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("cenote-web".into()).spawn(run).map_err(failed)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }
    /// The address that it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// The URL for a browser.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
