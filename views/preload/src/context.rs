//! The path at which the program sees the store, the store, and the program's working directory and user as the store
//! needs them.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use cenote::{ErrorKind, Mode, OpenOptions, Store};
use parking_lot::Mutex;
use posix::{Caller, Consistency, FileSystem, Ino, Options};

use crate::inside::{self, Inside};
use crate::{kernel, table};

/// Settings from the environment.
pub struct Settings {
    /// Path at which the root appears: absolute, without a slash at the end.
    pub at: Vec<u8>,
    store: PathBuf,
    options: Options,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();
static SYSTEM: OnceLock<FileSystem> = OnceLock::new();

/// Names of variables that children get as well.
pub const VARIABLES: [&str; 8] = [
    "CENOTE_STORE",
    "CENOTE_AT",
    "CENOTE_CONTAINER",
    "CENOTE_CONSISTENCY",
    "CENOTE_READ_ONLY",
    "CENOTE_BIN",
    "CENOTE_QUIET",
    "CENOTE_IDLE_EXIT",
];
/// Default path of the root.
const AT: &[u8] = b"/cenote";

/// The variables for children, in the form `NAME=value`, as they were at the start: programs may clear their
/// environment.
static GIVEN: OnceLock<Vec<(&'static str, Vec<u8>)>> = OnceLock::new();

/// See [`VARIABLES`].
pub fn given() -> &'static [(&'static str, Vec<u8>)] {
    GIVEN.get().map_or(&[], |given| given)
}

/// Returns true if the user wants no messages on standard error.
pub fn is_quiet() -> bool {
    std::env::var_os("CENOTE_QUIET").is_some()
}

fn variable(name: &str) -> Option<Vec<u8>> {
    std::env::var_os(name).map(OsStringExt::into_vec).filter(|value| !value.is_empty())
}

/// Reads the environment. Returns false if there is no store to show.
pub fn begin() -> bool {
    let Some(store) = variable("CENOTE_STORE") else { return false };
    let store = PathBuf::from(std::ffi::OsString::from_vec(store));
    let mut at = variable("CENOTE_AT").unwrap_or_else(|| AT.to_vec());
    while at.last() == Some(&b'/') {
        at.pop();
    }
    if at.first() != Some(&b'/') {
        kernel::say("CENOTE_AT is to be an absolute path other than `/`: the store is not shown");
        return false;
    }
    let consistency = match variable("CENOTE_CONSISTENCY").as_deref() {
        Some(b"commit") => Consistency::Commit,
        _ => Consistency::Strict,
    };
    let container = variable("CENOTE_CONTAINER").and_then(|label| String::from_utf8(label).ok());
    let is_read_only = variable("CENOTE_READ_ONLY").is_some_and(|value| value != b"0");
    let options = Options { is_read_only, container, consistency, ..Options::default() };
    let store = std::path::absolute(&store).unwrap_or(store);
    let given = VARIABLES
        .iter()
        .filter_map(|name| variable(name).map(|value| (*name, [name.as_bytes(), b"=", &value[..]].concat())));
    let _ = GIVEN.set(given.collect());
    SETTINGS.set(Settings { at, store, options }).is_ok()
}

/// The settings from the environment.
pub fn settings() -> &'static Settings {
    SETTINGS.get().expect("set before any call comes here")
}

/// The store, if it is open already.
pub fn known_system() -> Option<&'static FileSystem> {
    SYSTEM.get()
}

/// The store's trees. Opens the store on the first call; returns an error number if that fails.
pub fn system() -> Result<&'static FileSystem, i32> {
    static OPENING: Mutex<()> = Mutex::new(());
    static SAID: AtomicBool = AtomicBool::new(false);
    if let Some(system) = SYSTEM.get() {
        return Ok(system);
    }
    let _one = OPENING.lock();
    if let Some(system) = SYSTEM.get() {
        return Ok(system);
    }
    let _inside = Inside::enter();
    let _occupied = inside::Occupied::all();
    let settings = settings();
    let options =
        OpenOptions { mode: Mode::Daemon, read_only: settings.options.is_read_only, ..OpenOptions::default() };
    let opened = Store::open_with(&settings.store, &options).map_err(|error| {
        let errno = if error.kind() == ErrorKind::PermissionDenied { libc::EACCES } else { libc::EIO };
        (errno, error.to_string())
    });
    let system = opened.and_then(|store| {
        let options = Options { descriptors_from: inside::floor(), ..settings.options.clone() };
        FileSystem::new(&store, options).map_err(|error| (error.errno, error.to_string()))
    });
    match system {
        Ok(system) => {
            crate::fork::attached();
            Ok(SYSTEM.get_or_init(|| system))
        }
        Err((errno, cause)) => {
            if !SAID.swap(true, Ordering::Relaxed) {
                kernel::say(&format!("{}: {cause}", String::from_utf8_lossy(&settings.at)));
            }
            Err(errno)
        }
    }
}

/// A working directory in the store.
#[derive(Debug)]
pub struct Cwd {
    /// Its inode number.
    pub ino: Ino,
    /// Its path.
    pub path: Vec<u8>,
}

static CWD: ArcSwapOption<Cwd> = ArcSwapOption::const_empty();
static HAS_CWD: AtomicBool = AtomicBool::new(false);

/// The working directory, if it is in the store.
#[inline]
pub fn cwd() -> Option<Arc<Cwd>> {
    if table::CENOTE_OVERLAYS.load(Ordering::Relaxed) > 0
        && let Some(Some(own)) = table::with_overlay(|overlay| overlay.cwd.clone())
    {
        return own;
    }
    if HAS_CWD.load(Ordering::Relaxed) { CWD.load_full() } else { None }
}

/// Returns false if the working directory is certainly outside the store.
#[inline]
pub fn may_have_cwd() -> bool {
    HAS_CWD.load(Ordering::Relaxed) || table::is_changed()
}

/// Sets the working directory; `None`: it is outside the store.
pub fn set_cwd(cwd: Option<Arc<Cwd>>) {
    if cwd.is_none() && self::cwd().is_none() {
        return;
    }
    let mut cwd = Some(cwd);
    if table::with_new_overlay(|overlay| overlay.cwd = cwd.take()).is_none() {
        let cwd = cwd.flatten();
        HAS_CWD.store(cwd.is_some(), Ordering::Relaxed);
        CWD.store(cwd);
    }
}

static CALLER: ArcSwapOption<Caller> = ArcSwapOption::const_empty();

/// The user that this process acts as.
#[inline]
pub fn caller() -> Arc<Caller> {
    CALLER.load_full().unwrap_or_else(look_at_caller)
}

#[cold]
fn look_at_caller() -> Arc<Caller> {
    let mut groups = [0_u32; 1024];
    let count = kernel::simple(libc::SYS_getgroups, &[groups.len() as u64, groups.as_mut_ptr() as u64]);
    let caller = Arc::new(Caller {
        uid: kernel::simple(libc::SYS_geteuid, &[]) as u32,
        gid: kernel::simple(libc::SYS_getegid, &[]) as u32,
        groups: Arc::from(&groups[..count.max(0) as usize]),
        is_checked: false,
    });
    CALLER.store(Some(caller.clone()));
    caller
}

/// Forgets the cached user, since the process may act as another one from now on.
pub fn forget_caller() {
    CALLER.store(None);
}

/// A caller with all rights, for operations that were permitted already.
pub fn checked_caller() -> Caller {
    Caller { is_checked: true, ..Caller::clone(&caller()) }
}

static UMASK: AtomicU32 = AtomicU32::new(u32::MAX);

/// The bits that are removed from the mode of new files.
pub fn umask() -> u32 {
    let known = UMASK.load(Ordering::Relaxed);
    if known != u32::MAX {
        return known;
    }
    let status = kernel::read_all(c"/proc/self/status");
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Umask:"));
    let digits = line.unwrap_or(b"0022").iter().filter(|byte| byte.is_ascii_digit());
    let mask = digits.fold(0, |mask, digit| mask * 8 + u32::from(digit - b'0'));
    UMASK.store(mask, Ordering::Relaxed);
    mask
}

/// Records a change of the umask.
pub fn set_umask(mask: u32) {
    UMASK.store(mask & 0o777, Ordering::Relaxed);
}

/// The device number of the trees, which the kernel uses for nothing else here.
pub fn device() -> u64 {
    static DEVICE: AtomicI32 = AtomicI32::new(0);
    let known = DEVICE.load(Ordering::Relaxed);
    if known != 0 {
        return known as u64;
    }
    let store = settings().store.as_os_str().as_encoded_bytes();
    let hash = store.iter().fold(5381_u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(*byte));
    // Major numbers from 384 to 511 are assigned to character devices only.
    let device = libc::makedev(384 + (hash >> 8) % 127, hash & 0xff) as i32;
    DEVICE.store(device, Ordering::Relaxed);
    device as u64
}
