//! Provides a libhdf5 for a program that has none: finds it by name, loads it, and registers this connector without a
//! plugin.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cenote::{Error, ErrorKind};

use super::api::Api;
use super::entry;
use super::types::{H5E_DEFAULT, H5P_DEFAULT, hid_t};
use crate::Result;

/// The environment variable that names a libhdf5.
pub const LIBRARY_ENV: &str = "CENOTE_HDF5_LIBRARY";

/// Its names in distributions; copies in wheels have hashes in their names.
const NAMES: [&str; 8] = [
    "libhdf5.so.320",
    "libhdf5.so.310",
    "libhdf5_serial.so.320",
    "libhdf5_serial.so.310",
    "libhdf5.so",
    "libhdf5_serial.so",
    "libhdf5_openmpi.so.310",
    "libhdf5_mpich.so.310",
];

/// Finds the copies in Python packages.
const ASK_PYTHON: &str = "\
import glob, importlib.util, os
for name in 'h5py', 'netCDF4', 'tables':
    spec = importlib.util.find_spec(name)
    if spec and spec.origin:
        top = os.path.dirname(os.path.dirname(spec.origin))
        for path in sorted(glob.glob(os.path.join(top, name.lower() + '.libs', 'libhdf5-*.so*'))):
            print(path)";

/// Loads the libhdf5 at `chosen`, or that of the environment, of the system, or of a Python package: the first that is new
/// enough.
///
/// Must run before the process has threads: it removes `HDF5_VOL_CONNECTOR` from the environment, lest HDF5 load the
/// connector a second time as a plugin.
pub fn library(chosen: Option<&Path>) -> Result<&'static Api> {
    // SAFETY: the caller states that there is one thread.
    unsafe { std::env::remove_var("HDF5_VOL_CONNECTOR") };
    let named = chosen.map(PathBuf::from).or_else(|| std::env::var_os(LIBRARY_ENV).map(PathBuf::from));
    if let Some(path) = named.filter(|path| !path.as_os_str().is_empty()) {
        return load(&path).map_err(|why| {
            Error::new(ErrorKind::Unsupported, format!("library {}", path.display()))
                .because(why)
                .try_next("name a libhdf5 1.14 or newer")
        });
    }
    let mut tried = Vec::new();
    for path in NAMES.iter().map(PathBuf::from).chain(std::iter::once_with(of_python).flatten()) {
        match load(&path) {
            Ok(api) => return Ok(api),
            Err(why) => tried.push(format!("{}: {why}", path.display())),
        }
    }
    tried.retain(|why| !why.contains("No such file"));
    let found = if tried.is_empty() { "none was found".to_owned() } else { tried.join("; ") };
    Err(Error::new(ErrorKind::NotFound, "an HDF5 library (1.14 or newer), which reads and writes native files")
        .because(format!("{found}; looked for by the system's names, and in h5py, netCDF4 and tables of `python3`"))
        .try_next(format!("name one: --hdf5 /path/to/libhdf5.so, or {LIBRARY_ENV}; `pip install h5py` brings one")))
}

/// The copies in wheels of the Python in the user's path.
fn of_python() -> Vec<PathBuf> {
    let asked = std::process::Command::new("python3").args(["-c", ASK_PYTHON]).output();
    let said = asked.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).lines().map(PathBuf::from).collect()
}

fn load(path: &Path) -> Result<&'static Api, String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "its name contains a NUL")?;
    // SAFETY: loading a library runs its initialisers; the user has named it, or it is HDF5 by its name.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: after a failure there is a message, valid until the next call.
        let why = unsafe { CStr::from_ptr(libc::dlerror()) };
        return Err(why.to_string_lossy().into_owned());
    }
    // SAFETY: looking a name up has no effect.
    let [open, register] = [c"H5open", c"H5VLregister_connector"].map(|f| unsafe { libc::dlsym(handle, f.as_ptr()) });
    if open.is_null() || register.is_null() {
        return Err("it has no HDF5 functions for connectors (older than 1.14, or something else)".into());
    }
    let class = entry::slot_for(open)?;
    let api = entry::api_of(class).ok_or("it was loaded half-way")?;
    // SAFETY: the address is that of HDF5's function of this name.
    unsafe {
        let register =
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_void, hid_t) -> hid_t>(register);
        if (api.H5open)() < 0 || register(std::ptr::from_ref(class).cast(), H5P_DEFAULT) < 0 {
            return Err("it does not take this connector".into());
        }
        // The caller reports errors.
        (api.H5Eset_auto2)(H5E_DEFAULT, None, std::ptr::null_mut());
    }
    forget_plugin(api);
    Ok(api)
}

/// Removes directories that contain this connector from HDF5's plugin path: HDF5 would offer a file that it cannot open
/// itself to a second copy of us.
fn forget_plugin(api: &Api) {
    let mut path = [0u8; 4096];
    let mut at = 0;
    // SAFETY: the buffer has the size given; an index past the end is an error.
    while let Ok(len) = usize::try_from(unsafe { (api.H5PLget)(at, path.as_mut_ptr().cast(), path.len()) }) {
        let dir = Path::new(OsStr::from_bytes(&path[..len.min(path.len() - 1)]));
        if dir.join("libcenote_hdf5.so").exists() {
            // SAFETY: a plain call with an existing index.
            if unsafe { (api.H5PLremove)(at) } < 0 {
                return;
            }
        } else {
            at += 1;
        }
    }
    // SAFETY: a plain call: the error of the last call does not matter.
    unsafe { (api.H5Eclear2)(H5E_DEFAULT) };
}
