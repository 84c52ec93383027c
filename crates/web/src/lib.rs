//! A store looked at with a browser, and scraped for its metrics: HTTP on a loopback address.
//!
//! Everything here reads: no request changes anything. It must not know the engine, nor how numbers come to be, nor what
//! is done with them: it gets them from a [`Source`], and hands them out as `cenote-telemetry` writes them.
//! Whoever asks must be a user who may read the store, and must have asked for this machine (against DNS rebinding).
//! Connections, memory for each, and the time that a slow one may take are bounded: this runs inside the daemon.

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

/// Where the numbers come from.
pub trait Source: Send + Sync {
    /// The store.
    fn store(&self) -> StoreId;
    /// What it tells, with so many hot objects. May take its time; fails when the store is closed.
    fn telemetry(&self, hot: u32) -> Result<Telemetry>;
    /// May this user look?
    fn may_look(&self, uid: u32) -> bool;
}

/// A server. It ends when this is dropped.
#[derive(Debug)]
pub struct Web {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Web {
    /// Serves on a loopback address (port 0: any that is free), from a thread of its own.
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
    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// What to open in a browser.
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
