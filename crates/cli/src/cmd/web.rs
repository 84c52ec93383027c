//! The page in a browser: what it is fed with, and where people find it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote::model::{StoreId, Telemetry};
use cenote::{Error, Result, Store};
use cenote_server::daemon::Onlooker;
use cenote_web::{Source, Web};

/// In the store's directory, while a daemon serves the page: where.
const ADDRESS_FILE: &str = "web-address";

/// A page that a daemon serves. Ends when dropped.
pub struct Page {
    _web: Web,
    file: PathBuf,
}

impl Page {
    /// Begins to serve, and writes down where.
    pub fn of_daemon(dir: &Path, address: SocketAddr, onlooker: Onlooker) -> Result<Self> {
        let web = Web::start(address, Arc::new(OfDaemon(onlooker)))?;
        let file = dir.join(ADDRESS_FILE);
        std::fs::write(&file, web.url()).map_err(|error| Error::io(file.display().to_string(), &error))?;
        Ok(Self { _web: web, file })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Where a daemon says that it serves the page of the store in `dir`, if somebody listens there.
pub fn address_of_daemon(dir: &Path) -> Option<String> {
    let url = std::fs::read_to_string(dir.join(ADDRESS_FILE)).ok()?;
    let address: SocketAddr = url.strip_prefix("http://")?.trim_end().trim_end_matches('/').parse().ok()?;
    // A daemon that was killed leaves the file behind.
    std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_millis(500)).ok()?;
    Some(url.trim_end().to_owned())
}

/// Serves the page of a store that this process has opened.
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
    /// Who started the command, and root.
    fn may_look(&self, uid: u32) -> bool {
        uid == 0 || uid == rustix::process::geteuid().as_raw()
    }
}
