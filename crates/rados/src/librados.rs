//! The functions of librados that this room uses, found at run time, and safe calls of them.
//!
//! All `unsafe` of the room is here. Names and signatures are those of `rados/librados.h`.
#![allow(unsafe_code, reason = "functions of a shared library, found at run time")]

use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use cenote_host::fork;

/// The file that is loaded.
const LIBRARY: &CStr = c"librados.so.2";
/// `LIBRADOS_OPERATION_FULL_TRY`: a full pool refuses at once; without it the operation waits until there is room.
const FULL_TRY: c_int = 64;
/// `LIBRADOS_CMPXATTR_OP_EQ`.
const EQUAL: u8 = 1;
/// First guess of the bytes of an attribute.
const ATTRIBUTE_BYTES: usize = 4 << 10;
/// Upper bound of the bytes of an attribute that is read.
const ATTRIBUTE_BYTES_MAX: usize = 16 << 20;

/// A positive error number of the C library.
pub type Errno = c_int;
/// A key and its value.
pub type Record = (Vec<u8>, Vec<u8>);

/// Declares the table of functions and how it is filled.
macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $out:ty)?;)*) => {
        struct Library { $($name: unsafe extern "C" fn($($arg),*) $(-> $out)?,)* }

        impl Library {
            fn find(handle: *mut c_void) -> Result<Self, String> {
                Ok(Self { $($name: {
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: the handle is open and the name ends in NUL.
                    let symbol = unsafe { libc::dlsym(handle, name.as_ptr().cast()) };
                    if symbol.is_null() {
                        return Err(format!("it is too old: it has no {}", stringify!($name)));
                    }
                    // SAFETY: librados.h declares the function of this name with this signature.
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $out)?>(symbol) }
                },)* })
            }
        }
    };
}

functions! {
    rados_create2: fn(*mut *mut c_void, *const c_char, *const c_char, u64) -> c_int;
    rados_conf_read_file: fn(*mut c_void, *const c_char) -> c_int;
    rados_conf_set: fn(*mut c_void, *const c_char, *const c_char) -> c_int;
    rados_connect: fn(*mut c_void) -> c_int;
    rados_shutdown: fn(*mut c_void);
    rados_ioctx_create: fn(*mut c_void, *const c_char, *mut *mut c_void) -> c_int;
    rados_ioctx_destroy: fn(*mut c_void);
    rados_ioctx_set_namespace: fn(*mut c_void, *const c_char);
    rados_ioctx_get_id: fn(*mut c_void) -> i64;
    rados_pool_reverse_lookup: fn(*mut c_void, i64, *mut c_char, usize) -> c_int;
    rados_create_write_op: fn() -> *mut c_void;
    rados_release_write_op: fn(*mut c_void);
    rados_write_op_assert_exists: fn(*mut c_void);
    rados_write_op_cmpxattr: fn(*mut c_void, *const c_char, u8, *const c_char, usize);
    rados_write_op_create: fn(*mut c_void, c_int, *const c_char);
    rados_write_op_write: fn(*mut c_void, *const c_char, usize, u64);
    rados_write_op_write_full: fn(*mut c_void, *const c_char, usize);
    rados_write_op_append: fn(*mut c_void, *const c_char, usize);
    rados_write_op_remove: fn(*mut c_void);
    rados_write_op_setxattr: fn(*mut c_void, *const c_char, *const c_char, usize);
    rados_write_op_omap_set2: fn(*mut c_void, *const *const c_char, *const *const c_char, *const usize, *const usize, usize);
    rados_write_op_omap_rm_keys2: fn(*mut c_void, *const *const c_char, *const usize, usize);
    rados_write_op_operate: fn(*mut c_void, *mut c_void, *const c_char, *mut libc::time_t, c_int) -> c_int;
    rados_read: fn(*mut c_void, *const c_char, *mut c_char, usize, u64) -> c_int;
    rados_stat: fn(*mut c_void, *const c_char, *mut u64, *mut libc::time_t) -> c_int;
    rados_getxattr: fn(*mut c_void, *const c_char, *const c_char, *mut c_char, usize) -> c_int;
    rados_create_read_op: fn() -> *mut c_void;
    rados_release_read_op: fn(*mut c_void);
    rados_read_op_omap_get_vals2: fn(*mut c_void, *const c_char, *const c_char, u64, *mut *mut c_void, *mut c_uchar, *mut c_int);
    rados_read_op_operate: fn(*mut c_void, *mut c_void, *const c_char, c_int) -> c_int;
    rados_omap_get_next2: fn(*mut c_void, *mut *mut c_char, *mut *mut c_char, *mut usize, *mut usize) -> c_int;
    rados_omap_get_end: fn(*mut c_void);
    rados_nobjects_list_open: fn(*mut c_void, *mut *mut c_void) -> c_int;
    rados_nobjects_list_next: fn(*mut c_void, *mut *const c_char, *mut *const c_char, *mut *const c_char) -> c_int;
    rados_nobjects_list_close: fn(*mut c_void);
}

/// Loads librados once for the life of the process; the error says why it cannot be.
fn library() -> Result<&'static Library, String> {
    static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
    let load = || {
        // SAFETY: the name ends in NUL. The library's constructors run: it is the system's own.
        let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: called after a failure on the same thread: null or a text that ends in NUL.
            let why = unsafe { libc::dlerror() };
            // SAFETY: as above, and not null.
            let text = |why| unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned();
            return Err(if why.is_null() { "it cannot be loaded".to_owned() } else { text(why) });
        }
        Library::find(handle)
    };
    LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn answer(code: c_int) -> Result<usize, Errno> {
    usize::try_from(code).map_err(|_| code.saturating_neg())
}

fn bytes(slice: &[u8]) -> (*const c_char, usize) {
    (slice.as_ptr().cast(), slice.len())
}

/// A client of a cluster.
pub struct Cluster {
    library: &'static Library,
    handle: *mut c_void,
    /// See [`fork::generation`]: librados's threads are those of the process that made the client.
    generation: u64,
}

// SAFETY: librados serves calls on one client from any thread; what is set up is set before others get it.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    /// A client of the user `client.…`, not connected yet; the error says why there is none.
    pub fn new(user: &CStr) -> Result<Self, String> {
        let library = library().map_err(|why| format!("librados cannot be used ({why})"))?;
        let mut handle = null_mut();
        // SAFETY: both texts end in NUL, and the place for the handle is this function's own.
        let code = unsafe { (library.rados_create2)(&raw mut handle, c"ceph".as_ptr(), user.as_ptr(), 0) };
        answer(code).map_err(|errno| format!("librados makes no client: error {errno}"))?;
        Ok(Self { library, handle, generation: fork::generation() })
    }
    /// Returns true in the process that made the client. In a child of it the client's threads do not exist.
    pub fn is_own(&self) -> bool {
        self.generation == fork::generation()
    }
    /// Reads a configuration file; without a path the usual ones.
    pub fn read_conf(&self, path: Option<&CStr>) -> Result<(), Errno> {
        let path = path.map_or(null(), CStr::as_ptr);
        // SAFETY: the handle lives, and the path is null or ends in NUL.
        answer(unsafe { (self.library.rados_conf_read_file)(self.handle, path) }).map(drop)
    }
    pub fn set(&self, option: &CStr, value: &CStr) -> Result<(), Errno> {
        // SAFETY: the handle lives, and both texts end in NUL.
        answer(unsafe { (self.library.rados_conf_set)(self.handle, option.as_ptr(), value.as_ptr()) }).map(drop)
    }
    pub fn connect(&self) -> Result<(), Errno> {
        // SAFETY: the handle lives and was not connected before.
        answer(unsafe { (self.library.rados_connect)(self.handle) }).map(drop)
    }
    /// Opens a namespace of a pool.
    pub fn open(self, pool: &CStr, namespace: &CStr) -> Result<Namespace, Errno> {
        let mut io = null_mut();
        // SAFETY: the handle is connected, the name ends in NUL, and the place for the result is this function's own.
        answer(unsafe { (self.library.rados_ioctx_create)(self.handle, pool.as_ptr(), &raw mut io) })?;
        // SAFETY: the context was just made, nobody else has it, and the name ends in NUL.
        unsafe { (self.library.rados_ioctx_set_namespace)(io, namespace.as_ptr()) };
        Ok(Namespace { io, cluster: self })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // In a child it stays as it is: to shut it down would wait for threads that do not exist.
        if self.is_own() {
            // SAFETY: the handle lives, no call on it is under way, and it is not used again.
            unsafe { (self.library.rados_shutdown)(self.handle) };
        }
    }
}

/// A namespace of a pool, of a connected client. Must not be used where [`Cluster::is_own`] is false.
pub struct Namespace {
    /// Dropped before the client.
    io: *mut c_void,
    cluster: Cluster,
}

// SAFETY: librados serves calls on one context from any thread as long as nobody changes its settings, and no function
// here does so.
unsafe impl Send for Namespace {}
// SAFETY: as above.
unsafe impl Sync for Namespace {}

impl Namespace {
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
    fn library(&self) -> &'static Library {
        self.cluster.library
    }
    /// Returns true if the pool is in the latest map of the cluster that this client knows.
    pub fn is_there(&self) -> bool {
        let mut name = [0u8; 256];
        // SAFETY: context and handle live; the buffer is this function's own and has this length.
        let code = unsafe {
            let id = (self.library().rados_ioctx_get_id)(self.io);
            (self.library().rados_pool_reverse_lookup)(self.cluster.handle, id, name.as_mut_ptr().cast(), name.len())
        };
        answer(code) != Err(libc::ENOENT)
    }
    /// A change of one object, empty so far.
    pub fn write_op(&self) -> WriteOp<'_> {
        // SAFETY: it takes nothing.
        WriteOp { namespace: self, op: unsafe { (self.library().rados_create_write_op)() } }
    }
    /// Up to `len` bytes from `offset` on.
    pub fn read(&self, object: &CStr, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut read = Vec::<u8>::with_capacity(len);
        let buffer = read.as_mut_ptr();
        // SAFETY: the context lives, the name ends in NUL, and the buffer has room for `len` bytes.
        let code = unsafe { (self.library().rados_read)(self.io, object.as_ptr(), buffer.cast(), len, offset) };
        let got = answer(code)?.min(len);
        // SAFETY: librados has filled that many bytes of the buffer.
        unsafe { read.set_len(got) };
        Ok(read)
    }
    /// Size in bytes.
    pub fn stat(&self, object: &CStr) -> Result<u64, Errno> {
        let (mut size, mut modified) = (0, 0);
        // SAFETY: the context lives, the name ends in NUL, and both places are this function's own.
        let code = unsafe { (self.library().rados_stat)(self.io, object.as_ptr(), &raw mut size, &raw mut modified) };
        answer(code).map(|_| size)
    }
    pub fn attribute(&self, object: &CStr, name: &CStr) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0u8; ATTRIBUTE_BYTES];
        loop {
            let buffer = value.as_mut_ptr().cast();
            // SAFETY: the context lives, both names end in NUL, and the buffer has this length.
            let code = unsafe {
                (self.library().rados_getxattr)(self.io, object.as_ptr(), name.as_ptr(), buffer, value.len())
            };
            match answer(code) {
                Err(libc::ERANGE) if value.len() < ATTRIBUTE_BYTES_MAX => value.resize(value.len() * 8, 0),
                Err(errno) => return Err(errno),
                Ok(len) => {
                    value.truncate(len);
                    return Ok(value);
                }
            }
        }
    }
    /// Up to `most` records behind a key, and whether there are more.
    pub fn records(&self, object: &CStr, after: &CStr, most: u64) -> Result<(Vec<Record>, bool), Errno> {
        let library = self.library();
        let (mut iterator, mut more, mut code) = (null_mut(), 0, 0);
        // SAFETY: the context lives, all texts end in NUL, and the places for results outlive the operation, which is
        // over when `rados_read_op_operate` returns.
        let operated = unsafe {
            let op = (library.rados_create_read_op)();
            let (iterator, more, code) = (&raw mut iterator, &raw mut more, &raw mut code);
            (library.rados_read_op_omap_get_vals2)(op, after.as_ptr(), c"".as_ptr(), most, iterator, more, code);
            let operated = (library.rados_read_op_operate)(op, self.io, object.as_ptr(), 0);
            (library.rados_release_read_op)(op);
            operated
        };
        let mut found = Vec::new();
        let outcome = answer(operated).and_then(|_| answer(code));
        while outcome.is_ok() && !iterator.is_null() {
            let (mut key, mut value, mut key_len, mut value_len) = (null_mut(), null_mut(), 0, 0);
            // SAFETY: the iterator lives, and the places for results are this loop's own.
            let code = unsafe {
                (library.rados_omap_get_next2)(
                    iterator,
                    &raw mut key,
                    &raw mut value,
                    &raw mut key_len,
                    &raw mut value_len,
                )
            };
            if code != 0 || key.is_null() {
                break;
            }
            // SAFETY: the iterator owns that many bytes of key and value until it ends.
            found.push(unsafe { (copied(key, key_len), copied(value, value_len)) });
        }
        if !iterator.is_null() {
            // SAFETY: the iterator lives and is not used again.
            unsafe { (library.rados_omap_get_end)(iterator) };
        }
        outcome.map(|_| (found, more != 0))
    }
    /// Names of all objects, in the cluster's order.
    pub fn list(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let library = self.library();
        let mut cursor = null_mut();
        // SAFETY: the context lives, and the place for the result is this function's own.
        answer(unsafe { (library.rados_nobjects_list_open)(self.io, &raw mut cursor) })?;
        let mut names = Vec::new();
        let outcome = loop {
            let mut name = null();
            // SAFETY: the cursor is open; locator and namespace are not wanted, which null says.
            let code = unsafe { (library.rados_nobjects_list_next)(cursor, &raw mut name, null_mut(), null_mut()) };
            match answer(code) {
                Err(libc::ENOENT) => break Ok(names),
                Err(errno) => break Err(errno),
                // SAFETY: the name ends in NUL and lives until the next call on the cursor.
                Ok(_) => names.push(unsafe { CStr::from_ptr(name) }.to_bytes().to_vec()),
            }
        };
        // SAFETY: the cursor is open and not used again.
        unsafe { (library.rados_nobjects_list_close)(cursor) };
        outcome
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if self.cluster.is_own() {
            // SAFETY: the context lives, no call on it is under way, and it is not used again.
            unsafe { (self.library().rados_ioctx_destroy)(self.io) };
        }
    }
}

/// Copies bytes that librados owns.
///
/// # Safety
/// `from` has `len` readable bytes, or `len` is 0.
unsafe fn copied(from: *const c_char, len: usize) -> Vec<u8> {
    if len == 0 {
        return Vec::new();
    }
    // SAFETY: by the function's contract.
    unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) }.to_vec()
}

/// Checks and changes of one object that happen together. librados copies all bytes that it is given.
pub struct WriteOp<'a> {
    namespace: &'a Namespace,
    op: *mut c_void,
}

impl WriteOp<'_> {
    fn library(&self) -> &'static Library {
        self.namespace.library()
    }
    pub fn assert_exists(&mut self) {
        // SAFETY: the operation lives.
        unsafe { (self.library().rados_write_op_assert_exists)(self.op) }
    }
    /// Creates the object; `exclusive`: only if it is absent.
    pub fn create(&mut self, exclusive: bool) {
        // SAFETY: the operation lives; null is no category.
        unsafe { (self.library().rados_write_op_create)(self.op, c_int::from(exclusive), null()) }
    }
    pub fn compare(&mut self, attribute: &CStr, expected: &[u8]) {
        let (value, len) = bytes(expected);
        // SAFETY: the operation lives, the name ends in NUL, and the value has this length.
        unsafe { (self.library().rados_write_op_cmpxattr)(self.op, attribute.as_ptr(), EQUAL, value, len) }
    }
    pub fn replace(&mut self, data: &[u8]) {
        let (data, len) = bytes(data);
        // SAFETY: the operation lives, and the data have this length.
        unsafe { (self.library().rados_write_op_write_full)(self.op, data, len) }
    }
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let (data, len) = bytes(data);
        // SAFETY: the operation lives, and the data have this length.
        unsafe { (self.library().rados_write_op_write)(self.op, data, len, offset) }
    }
    pub fn append(&mut self, data: &[u8]) {
        let (data, len) = bytes(data);
        // SAFETY: the operation lives, and the data have this length.
        unsafe { (self.library().rados_write_op_append)(self.op, data, len) }
    }
    pub fn remove(&mut self) {
        // SAFETY: the operation lives.
        unsafe { (self.library().rados_write_op_remove)(self.op) }
    }
    pub fn set_attribute(&mut self, name: &CStr, value: &[u8]) {
        let (value, len) = bytes(value);
        // SAFETY: the operation lives, the name ends in NUL, and the value has this length.
        unsafe { (self.library().rados_write_op_setxattr)(self.op, name.as_ptr(), value, len) }
    }
    pub fn set_record(&mut self, key: &[u8], value: &[u8]) {
        let ((key, key_len), (value, value_len)) = (bytes(key), bytes(value));
        let (key, value) = (&raw const key, &raw const value);
        // SAFETY: the operation lives, and all four arrays have one element, of this length.
        unsafe {
            (self.library().rados_write_op_omap_set2)(self.op, key, value, &raw const key_len, &raw const value_len, 1);
        }
    }
    pub fn remove_record(&mut self, key: &[u8]) {
        let (key, len) = bytes(key);
        // SAFETY: the operation lives, and both arrays have one element, of this length.
        unsafe { (self.library().rados_write_op_omap_rm_keys2)(self.op, &raw const key, &raw const len, 1) }
    }
    /// Carries all of it out.
    pub fn operate(self, object: &CStr) -> Result<(), Errno> {
        let (op, io, operate) = (self.op, self.namespace.io, self.library().rados_write_op_operate);
        // SAFETY: operation and context live, the name ends in NUL, and null lets the cluster choose the time.
        answer(unsafe { operate(op, io, object.as_ptr(), null_mut(), FULL_TRY) }).map(drop)
    }
}

impl Drop for WriteOp<'_> {
    fn drop(&mut self) {
        // SAFETY: the operation lives and is not used again.
        unsafe { (self.library().rados_release_write_op)(self.op) }
    }
}
