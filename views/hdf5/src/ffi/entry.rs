//! The two functions that HDF5 looks up in a plugin, and how the plugin finds the libhdf5 that called it.
//!
//! Several libhdf5 may share one process (h5py, netCDF4 and PyTables each bring their own), and all load this one
//! library. The caller's return address tells which libhdf5 asks; each gets a slot with its own function table and
//! its own class table, whose callbacks carry the slot's number as a const parameter.

use std::ffi::{CStr, CString, OsStr, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::LibraryVersion;
use super::api::Api;
use super::class::ConnectorClass;

/// Most libhdf5 in one process.
pub const SLOTS_MAX: usize = 8;

static APIS: [AtomicPtr<Api>; SLOTS_MAX] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SLOTS_MAX];
static LOADED: Mutex<Vec<(usize, &'static ConnectorClass)>> = Mutex::new(Vec::new());

// A class table is never written after it is made, and its pointers point to statics and functions.
// SAFETY: see the line above.
unsafe impl Sync for ConnectorClass {}
// SAFETY: as above.
unsafe impl Send for ConnectorClass {}

/// The function table of a slot.
///
/// # Panics
/// If the slot was never filled, which cannot happen: its callbacks are not handed out before.
pub fn api(slot: usize) -> &'static Api {
    let api = APIS[slot].load(Ordering::Acquire);
    assert!(!api.is_null(), "callback of an empty slot");
    // SAFETY: it was leaked by `slot_for` and is never freed.
    unsafe { &*api }
}

/// Tells HDF5 that this is a VOL connector (`H5PL_TYPE_VOL`).
#[unsafe(no_mangle)]
pub extern "C" fn H5PLget_plugin_type() -> c_int {
    1
}

/// Returns the connector class made for the caller's libhdf5.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C" fn H5PLget_plugin_info() -> *const c_void {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("mov rdi, [rsp]", "jmp {f}", f = sym info_for_caller);
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("mov x0, x30", "b {f}", f = sym info_for_caller);
}

extern "C" fn info_for_caller(return_address: *const c_void) -> *const c_void {
    let found = std::panic::catch_unwind(|| slot_for(return_address));
    match found {
        Ok(Ok(class)) => std::ptr::from_ref(class).cast(),
        Ok(Err(why)) => {
            // No error stack exists yet.
            eprintln!("cenote: the HDF5 connector cannot serve this program: {why}");
            std::ptr::null()
        }
        Err(_) => std::ptr::null(),
    }
}

/// The class table for the libhdf5 that contains an address.
pub(super) fn slot_for(return_address: *const c_void) -> Result<&'static ConnectorClass, String> {
    let library = Library::of(return_address)?;
    let mut loaded = LOADED.lock().map_err(|_| "an earlier attempt to load failed half-way")?;
    if let Some((_, class)) = loaded.iter().find(|(base, _)| *base == library.base) {
        return Ok(class);
    }
    let slot = loaded.len();
    if slot == SLOTS_MAX {
        return Err(format!("this process holds more than {SLOTS_MAX} copies of libhdf5"));
    }
    let version = library.version()?;
    if version < LibraryVersion::new(1, 14) {
        return Err(format!("{} is HDF5 {version}; VOL connectors need 1.14 or newer", library.name.to_string_lossy()));
    }
    let lookup = |name: &CStr| library.symbol(name);
    // SAFETY: the addresses come from the dynamic linker, by name, out of a libhdf5.
    let api = unsafe { Api::load(slot, version, &lookup) }
        .map_err(|missing| format!("{} lacks the function {missing}", library.name.to_string_lossy()))?;
    APIS[slot].store(Box::into_raw(Box::new(api)), Ordering::Release);
    let class: &'static ConnectorClass = Box::leak(Box::new(crate::vol::class(slot)));
    loaded.push((library.base, class));
    Ok(class)
}

/// The function table of the libhdf5 to which a class table belongs.
pub(super) fn api_of(class: &'static ConnectorClass) -> Option<&'static Api> {
    let loaded = LOADED.lock().ok()?;
    loaded.iter().position(|(_, known)| std::ptr::eq(*known, class)).map(api)
}

/// The class table of a slot, once filled.
pub fn class_of(slot: usize) -> Option<&'static ConnectorClass> {
    LOADED.lock().ok()?.get(slot).map(|(_, class)| *class)
}

/// The file of a libhdf5 in this process; `None` if it is part of a program.
pub fn file_of(h5: &Api) -> Option<PathBuf> {
    let library = Library::of(h5.H5open as *const c_void).ok()?;
    let path = PathBuf::from(OsStr::from_bytes(library.name.to_bytes()));
    path.file_name()?.to_str()?.starts_with("libhdf5").then_some(path)
}

/// A libhdf5 in this process.
struct Library {
    base: usize,
    name: CString,
    handle: *mut c_void,
}

impl Library {
    fn of(address: *const c_void) -> Result<Self, String> {
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: any address may be asked about; `info` is written if the result is not 0.
        if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
            return Err("the caller's libhdf5 is not a loaded object (statically linked without symbols?)".into());
        }
        // SAFETY: dladdr has filled it.
        let info = unsafe { info.assume_init() };
        let base = info.dli_fbase as usize;
        // SAFETY: the name of a loaded object is a C string that lives as long as the object.
        let name = unsafe { CStr::from_ptr(info.dli_fname) }.to_owned();
        // SAFETY: RTLD_NOLOAD only finds what is loaded already.
        let mut handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW) };
        if handle.is_null() {
            // A program that has libhdf5 linked in statically: its own symbols are in the global scope.
            // SAFETY: a null name asks for the program itself.
            handle = unsafe { libc::dlopen(std::ptr::null(), libc::RTLD_NOW) };
        }
        if handle.is_null() {
            return Err(format!("{} cannot be opened by the dynamic linker", name.to_string_lossy()));
        }
        Ok(Self { base, name, handle })
    }
    /// The library's own symbol, and the one in the program's global scope (a copy-relocated variable).
    fn symbol(&self, name: &CStr) -> [*mut c_void; 2] {
        // SAFETY: looking a name up has no effect.
        unsafe { [libc::dlsym(self.handle, name.as_ptr()), libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr())] }
    }
    fn version(&self) -> Result<LibraryVersion, String> {
        let f = self.symbol(c"H5get_libversion")[0];
        if f.is_null() {
            return Err(format!(
                "{} has HDF5 in it and does not show its functions: link it with libhdf5.so (h5cc -shlib), or with -rdynamic",
                self.name.to_string_lossy()
            ));
        }
        // SAFETY: the address is that of HDF5's function of this name.
        let f = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint) -> c_int>(f)
        };
        let mut version = LibraryVersion::default();
        // SAFETY: three valid places for the numbers.
        if unsafe { f(&raw mut version.major, &raw mut version.minor, &raw mut version.release) } < 0 {
            return Err("H5get_libversion failed".into());
        }
        Ok(version)
    }
}
