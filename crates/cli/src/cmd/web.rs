//! The page in a browser: its data source and its address.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use cenote::model::{StoreId, Telemetry};
use cenote::{Result, Store};
use cenote_device::StoreDir;
use cenote_server::daemon::{Observer, Onlooker, WEB_ADDRESS_FILE};
use cenote_web::{Source, Web};
use rustix::fs::Mode;

use crate::args::HttpArg;

/// Returns the observer that serves the page with the daemon: where the command line says, otherwise
/// where it was served before.
pub fn observer(dir: &Path, http: Option<HttpArg>) -> Option<Observer> {
    match http {
        Some(HttpArg::Off) => {
            let _ = StoreDir::open(dir).and_then(|dir| dir.remove(WEB_ADDRESS_FILE));
            None
        }
        Some(HttpArg::At(address)) => Some(Arc::new({
            let dir = dir.to_owned();
            move |onlooker| {
                let web = Web::start(address, Arc::new(OfDaemon(onlooker)))?;
                // The file contains the address, not data; anybody who may reach the directory may read
                // it.
                let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
                StoreDir::open(&dir)?.write_text(WEB_ADDRESS_FILE, &web.url(), mode)?;
                tracing::info!(url = web.url(), "the page is served");
                Ok(Box::new(web))
            }
        })),
        None => {
            let address = address_in(dir)?;
            Some(Arc::new(move |onlooker| match Web::start(address, Arc::new(OfDaemon(onlooker))) {
                Ok(web) => Ok(Box::new(web)),
                Err(error) => {
                    tracing::warn!(%error, "the page is not served; the store is");
                    Ok(Box::new(()))
                }
            }))
        }
    }
}

/// Returns the argument for the command line of a background daemon.
pub fn argument(http: HttpArg) -> String {
    match http {
        HttpArg::Off => "--http=off".to_owned(),
        HttpArg::At(address) => format!("--http={address}"),
    }
}

fn address_in(dir: &Path) -> Option<SocketAddr> {
    let url = StoreDir::look(dir).and_then(|dir| dir.read_text(WEB_ADDRESS_FILE)).ok()??;
    let address: SocketAddr = url.trim_end().strip_prefix("http://")?.trim_end_matches('/').parse().ok()?;
    address.ip().is_loopback().then_some(address)
}

/// Returns the address of the page of the store in `dir`, if somebody listens there.
pub fn address_of_daemon(dir: &Path) -> Option<String> {
    let address = address_in(dir)?;
    std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_millis(500)).ok()?;
    Some(format!("http://{address}/"))
}

/// Serves the page of a store that this process has open.
pub fn of_store(store: Store, address: SocketAddr) -> Result<Web> {
    Web::start(address, Arc::new(OfStore(store)))
}

struct OfDaemon(Onlooker);

impl Source for OfDaemon {
    fn store(&self) -> StoreId {
        self.0.store()
    }
    fn telemetry(&self, hot: u32) -> Result<Telemetry> {
        self.0.telemetry(hot)
    }
    fn may_look(&self, uid: u32) -> bool {
        self.0.may_read(uid)
    }
}

struct OfStore(Store);

impl Source for OfStore {
    fn store(&self) -> StoreId {
        self.0.id()
    }
    fn telemetry(&self, hot: u32) -> Result<Telemetry> {
        self.0.telemetry(hot)
    }
    /// Allows the user who started the command, and root.
    fn may_look(&self, uid: u32) -> bool {
        uid == 0 || uid == rustix::process::geteuid().as_raw()
    }
}
