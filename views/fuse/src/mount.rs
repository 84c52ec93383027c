//! A mount's life: begun, served by several threads, ended by whoever unmounts it or by us.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cenote_posix::FileSystem;
use fuser::{Config, MountOption, Session, SessionACL};

use crate::mounted;
use crate::remember::Remember;
use crate::requests::REQUEST_BYTES_MAX;
use crate::serving::Serving;
use crate::unmount::{How, unmount};

/// How a file system is mounted.
#[derive(Clone, Debug)]
pub struct Options {
    /// What `mount` and `df` show as the source.
    pub source: String,
    /// The kernel refuses changes before anybody asks us.
    pub is_read_only: bool,
    /// Users other than the one who mounts may use it, each with its own rights. Who is not root needs `user_allow_other` in `/etc/fuse.conf`.
    pub allows_others: bool,
    /// How long names and attributes of `strict` directories may be remembered, in place of not at all.
    pub remembers_strict: Duration,
    /// The kernel holds back what is written until `fsync`, `close` or half a minute, and believes its own sizes and times.
    pub is_write_back: bool,
    /// Threads that answer requests; at least 1.
    pub threads: usize,
}

/// A file system that is mounted, and waits to be served.
pub struct Mount {
    session: Session<Serving>,
    stopper: Stopper,
}

/// Ends a mount from another thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    dir: PathBuf,
}

impl Mount {
    /// Mounts `fs` on the directory `dir`. Nothing is answered before [`Mount::serve`].
    pub fn start(fs: FileSystem, dir: &Path, options: &Options) -> io::Result<Self> {
        let dir = dir.canonicalize()?;
        if options.is_write_back && !options.allows_others && !rustix::process::geteuid().is_root() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "what the kernel writes back later it writes as root, who may not use this mount: allow others",
            ));
        }
        let remember = Remember { strict: options.remembers_strict, is_write_back: options.is_write_back };
        let notifier = Arc::new(OnceLock::new());
        let session = Session::new(Serving::new(fs, remember, notifier.clone()), &dir, &config(options))?;
        let _ = notifier.set(session.notifier());
        read_ahead(&dir);
        Ok(Self { session, stopper: Stopper { dir } })
    }
    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }
    /// Answers requests until the directory is unmounted; then files that are still open are closed.
    pub fn serve(self) -> io::Result<()> {
        self.session.run()
    }
}

impl Stopper {
    /// Unmounts if nobody uses it: then [`Mount::serve`] returns. `ResourceBusy` otherwise.
    pub fn stop(&self) -> io::Result<()> {
        unmount(&self.dir, How::Unused)
    }
    /// Takes it away from whoever uses it: their calls fail from now on, and what they mapped and changed since it was last written back is lost.
    pub fn force(&self) -> io::Result<()> {
        unmount(&self.dir, How::Force)
    }
}

fn config(options: &Options) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.replace(',', "_")),
        MountOption::CUSTOM("subtype=cenote".into()),
        MountOption::DefaultPermissions,
    ];
    if options.is_read_only {
        config.mount_options.push(MountOption::RO);
    }
    config.acl = if options.allows_others { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    config
}

/// Reads ahead as much as one request carries; the kernel's own 128 KiB would be eight requests. Only root may ask for it.
fn read_ahead(dir: &Path) {
    let Some(mount) = mounted::on(dir).ok().and_then(|mounts| mounts.into_iter().next()) else { return };
    let file = format!("/sys/class/bdi/{}/read_ahead_kb", mount.device);
    if let Err(error) = std::fs::write(&file, (REQUEST_BYTES_MAX >> 10).to_string()) {
        tracing::debug!(%error, file, "the kernel reads ahead as it likes");
    }
}
