//! The life of a mount: created, served by several threads, and ended by whoever unmounts it or by this process.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cenote_posix::FileSystem;
use fuser::{Config, Filesystem, InitFlags, KernelConfig, MountOption, Session, SessionACL};

use crate::kernel::Device;
use crate::kernel::workers::{self, Numbers};
use crate::mounted;
use crate::remember::Remember;
use crate::serving::Serving;
use crate::unmount::{How, unmount};

/// Upper bound of the bytes in a request.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Upper bound of background requests of the kernel, which nobody waits for (readahead, write-back).
const BACKGROUND_MAX: u16 = 64;

/// Mount options.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "options that do not exclude one another")]
pub struct Options {
    /// The source that `mount` and `df` show.
    pub source: String,
    /// The kernel refuses changes before they become requests.
    pub is_read_only: bool,
    /// Users other than the mounting one may use it, each with its own rights. Without root this needs
    /// `user_allow_other` in `/etc/fuse.conf`.
    pub allows_others: bool,
    /// How long the kernel may cache names and attributes of `strict` directories; zero means not at all.
    pub remembers_strict: Duration,
    /// The kernel holds back writes until `fsync`, `close` or half a minute, and trusts its own sizes and times.
    pub is_write_back: bool,
    /// Programs may map files with `MAP_SHARED`. False if programs of other nodes may map the same files, with pages of another kernel: then such a
    /// mapping is `ENODEV`, but in `laminated` directories, of files opened for reading whose pages the kernel caches, and with `is_write_back`.
    pub maps_shared: bool,
    /// Passthrough: the kernel reads and writes files' bytes itself, in page caches in shared memory. For root, and not
    /// together with `is_write_back`.
    pub is_passed_through: bool,
    /// Programs on it cannot be executed.
    pub starts_no_programs: bool,
    /// Upper bound of the threads that answer requests; at least 1.
    pub threads: usize,
}

/// A mounted file system that is not served yet.
pub struct Mount {
    session: Session<Hello>,
    serving: Arc<Serving>,
    numbers: Numbers,
    stopper: Stopper,
}

/// The negotiation with the kernel at mounting. [`workers`] reads everything that comes later.
struct Hello {
    is_write_back: bool,
    maps_shared: bool,
    is_passed_through: bool,
}

impl Filesystem for Hello {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let cache = if self.is_write_back { InitFlags::FUSE_WRITEBACK_CACHE } else { InitFlags::FUSE_AUTO_INVAL_DATA };
        let shared = if self.maps_shared { InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP } else { InitFlags::empty() };
        let wanted = InitFlags::FUSE_ATOMIC_O_TRUNC
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_POSIX_LOCKS
            | InitFlags::FUSE_FLOCK_LOCKS
            | shared
            | cache;
        // Older kernels lack some capabilities and do it their way.
        for flag in wanted.iter() {
            let _ = config.add_capabilities(flag);
        }
        if self.is_passed_through {
            config
                .add_capabilities(InitFlags::FUSE_PASSTHROUGH)
                .map_err(|_| unsupported("this kernel (before 6.9)"))?;
            // Page caches are in shared memory, which is not stacked on anything.
            let _ = config.set_max_stack_depth(1);
        }
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }
}

/// Ends a mount from another thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    dir: PathBuf,
}

impl Mount {
    /// Mounts `fs` on the directory `dir`. Answers nothing before [`Mount::serve`]. `Unsupported` if passthrough was
    /// requested and is not possible.
    pub fn start(fs: FileSystem, dir: &Path, options: &Options) -> io::Result<Self> {
        let dir = dir.canonicalize()?;
        let Options { is_write_back, maps_shared, is_passed_through, .. } = *options;
        let remember = Remember { strict: options.remembers_strict, is_write_back, maps_shared };
        let serving = Arc::new(Serving::new(fs, remember));
        if is_passed_through && is_write_back {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "passthrough writes past the kernel's cache, and write-back holds writes back there: choose one, not both",
            ));
        }
        let session = Session::new(Hello { is_write_back, maps_shared, is_passed_through }, &dir, &config(options))?;
        if is_passed_through {
            let device = Device::of_mount(session.as_fd())?;
            // Dropping the session unmounts.
            device.can_pass_through().map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => unsupported("without CAP_SYS_ADMIN (root has it) the kernel"),
                _ => error,
            })?;
            serving.backings.begin(device);
        }
        serving.notify_by(session.notifier());
        read_ahead(&dir);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = options.threads.max(1);
        let numbers = Numbers { threads, at_work: processors.min(threads), request_bytes: REQUEST_BYTES_MAX as usize };
        Ok(Self { session, serving, numbers, stopper: Stopper { dir } })
    }
    /// Lets the kernel cache names and attributes while nobody else uses the store. `is_alone_until` returns whether
    /// that is so, and stores the callback that must run before it ends. Returns true if the kernel caches.
    pub fn remember_while_alone(
        &self,
        is_alone_until: impl FnOnce(Box<dyn Fn() + Send + Sync>) -> bool,
    ) -> io::Result<bool> {
        let device = Device::of_mount(self.session.as_fd())?;
        if let Err(error) = device.forget_names() {
            tracing::debug!(%error, "this kernel cannot be told to forget names; it asks for them each time");
            return Ok(false);
        }
        let serving = Arc::downgrade(&self.serving);
        self.serving.alone.begin();
        let is_alone = is_alone_until(Box::new(move || {
            let Some(serving) = serving.upgrade() else { return };
            serving.company_comes(|| {
                if let Err(error) = device.forget_names() {
                    tracing::warn!(%error, "the kernel may show old names for a while");
                }
            });
        }));
        if !is_alone {
            self.serving.alone.end(|| ());
        }
        Ok(is_alone)
    }
    /// A handle that can end the mount.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }
    /// Answers requests until the directory is unmounted; then closes files that are still open.
    pub fn serve(self) -> io::Result<()> {
        let device = Device::of_mount(self.session.as_fd())?;
        let serving = self.serving.clone();
        let putting_back = std::thread::Builder::new().name("cenote-put-back".into());
        let putting_back = putting_back.spawn(move || serving.backings.put_back())?;
        let result = workers::run(self.serving.clone(), device, self.numbers);
        self.serving.end();
        let _ = putting_back.join();
        result
    }
}

impl Stopper {
    /// Unmounts if nobody uses the mount: then [`Mount::serve`] returns. Otherwise `ResourceBusy`.
    pub fn stop(&self) -> io::Result<()> {
        unmount(&self.dir, How::Unused)
    }
    /// Unmounts although it is in use: calls fail from now on, and changes in mappings that were not written back are
    /// lost.
    pub fn force(&self) -> io::Result<()> {
        unmount(&self.dir, How::Force)
    }
}

fn unsupported(by: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("{by} cannot read and write files by itself (passthrough): mount without --passthrough"),
    )
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
    if options.starts_no_programs {
        config.mount_options.push(MountOption::NoExec);
    }
    config.acl = if options.allows_others { SessionACL::All } else { SessionACL::Owner };
    config
}

/// Sets the readahead to the bytes of one request; the kernel's default of 128 KiB would be eight requests. Only for
/// root.
fn read_ahead(dir: &Path) {
    let Some(mount) = mounted::on(dir).ok().and_then(|mounts| mounts.into_iter().next()) else { return };
    let file = format!("/sys/class/bdi/{}/read_ahead_kb", mount.device);
    if let Err(error) = std::fs::write(&file, (REQUEST_BYTES_MAX >> 10).to_string()) {
        tracing::debug!(%error, file, "the kernel reads ahead as it likes");
    }
}
