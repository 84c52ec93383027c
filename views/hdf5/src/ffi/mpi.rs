//! The few MPI functions needed for files opened by many ranks, found at run time through the libhdf5 that brought MPI.
//!
//! MPI fixes no binary interface. In Open MPI a handle is a pointer; in MPICH and implementations with its interface (Intel,
//! Cray, MVAPICH) it is an `int`. Both fit a word here, passed by value in a register or written into a word of zeros. Of
//! the constants that differ, one is needed: the handle of `MPI_BYTE`.

use std::ffi::{CStr, c_char, c_int, c_void};

use cenote::{Error, ErrorKind};

use crate::Result;

/// An MPI handle.
pub type Word = usize;
/// Larger than the `MPI_Status` of every MPI.
type Status = [u64; 32];

type Find<'a> = &'a dyn Fn(&CStr) -> [*mut c_void; 2];

/// MPICH's `MPI_BYTE`.
const MPICH_BYTE: Word = 0x4c00_010d;

type OfComm = unsafe extern "C" fn(Word, *mut c_int) -> c_int;
type Free = unsafe extern "C" fn(*mut Word) -> c_int;
type Gather =
    unsafe extern "C" fn(*const c_void, c_int, Word, *mut c_void, c_int, Word, c_int, Word, *mut Word) -> c_int;
type Broadcast = unsafe extern "C" fn(*mut c_void, c_int, Word, c_int, Word, *mut Word) -> c_int;
type Test = unsafe extern "C" fn(*mut Word, *mut c_int, *mut Status) -> c_int;
type Finalized = unsafe extern "C" fn(*mut c_int) -> c_int;
type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;

/// The MPI of one libhdf5.
pub struct Mpi {
    rank: OfComm,
    size: OfComm,
    free: Free,
    gather: Gather,
    broadcast: Broadcast,
    test: Test,
    finalized: Finalized,
    byte: Word,
}

/// Looks up the function of that name.
macro_rules! function {
    ($find:expr, $name:literal, $kind:ty) => {{
        let address = first($find, $name);
        if address.is_null() {
            return None;
        }
        // SAFETY: it is the address of MPI's function of this name; handles are as the module says.
        unsafe { std::mem::transmute::<*mut c_void, $kind>(address) }
    }};
}

fn first(find: Find<'_>, name: &CStr) -> *mut c_void {
    let [own, global] = find(name);
    if own.is_null() { global } else { own }
}

impl Mpi {
    /// MPI, if `find` knows its functions and its handles are known here.
    pub fn find(find: Find<'_>) -> Option<Self> {
        Some(Self {
            rank: function!(find, c"MPI_Comm_rank", OfComm),
            size: function!(find, c"MPI_Comm_size", OfComm),
            free: function!(find, c"MPI_Comm_free", Free),
            gather: function!(find, c"MPI_Igather", Gather),
            broadcast: function!(find, c"MPI_Ibcast", Broadcast),
            test: function!(find, c"MPI_Test", Test),
            finalized: function!(find, c"MPI_Finalized", Finalized),
            byte: byte(find)?,
        })
    }
    /// Returns true after `MPI_Finalize`, when nothing else may be called.
    pub fn is_over(&self) -> bool {
        let mut flag = 1;
        // SAFETY: may be called at any time; the place is valid.
        unsafe { (self.finalized)(&raw mut flag) };
        flag != 0
    }
    /// This process's rank in a communicator, and the number of ranks.
    pub fn rank_and_size(&self, comm: Word) -> Result<(usize, usize)> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the communicator is valid; the places too.
        unsafe {
            check("MPI_Comm_rank", (self.rank)(comm, &raw mut rank))?;
            check("MPI_Comm_size", (self.size)(comm, &raw mut size))?;
        }
        Ok((usize::try_from(rank).unwrap_or(0), usize::try_from(size).unwrap_or(1)))
    }
    /// Frees a communicator.
    pub fn free(&self, mut comm: Word) {
        if !self.is_over() {
            // SAFETY: the communicator is valid and not used any more.
            unsafe { (self.free)(&raw mut comm) };
        }
    }
    /// Begins to gather every rank's `mine` at rank 0, into `all` there.
    ///
    /// # Safety
    /// Both buffers must live, and `mine` must not change, until the request is done.
    pub unsafe fn gather(&self, comm: Word, mine: &[u8], all: &mut [u8]) -> Result<Request> {
        let mut request = 0;
        let count = c_int::try_from(mine.len()).unwrap_or(c_int::MAX);
        // SAFETY: `all` has room for all on rank 0, and is not read elsewhere; the caller keeps both.
        let status = unsafe {
            (self.gather)(
                mine.as_ptr().cast(),
                count,
                self.byte,
                all.as_mut_ptr().cast(),
                count,
                self.byte,
                0,
                comm,
                &raw mut request,
            )
        };
        check("MPI_Igather", status).map(|()| Request(request))
    }
    /// Begins to broadcast rank 0's `bytes` to all.
    ///
    /// # Safety
    /// The buffer must live until the request is done.
    pub unsafe fn broadcast(&self, comm: Word, bytes: &mut [u8]) -> Result<Request> {
        let mut request = 0;
        let count = c_int::try_from(bytes.len()).unwrap_or(c_int::MAX);
        // SAFETY: the buffer has that many bytes; the caller keeps it.
        let status =
            unsafe { (self.broadcast)(bytes.as_mut_ptr().cast(), count, self.byte, 0, comm, &raw mut request) };
        check("MPI_Ibcast", status).map(|()| Request(request))
    }
    /// Returns true when a request is done.
    pub fn is_done(&self, request: &mut Request) -> Result<bool> {
        let mut flag = 0;
        let mut status: Status = [0; 32];
        // SAFETY: the request was made by this MPI; the places are valid and large enough.
        check("MPI_Test", unsafe { (self.test)(&raw mut request.0, &raw mut flag, &raw mut status) })?;
        Ok(flag != 0)
    }
}

/// An MPI operation in the background.
pub struct Request(Word);

/// The handle of `MPI_BYTE`: an object of this name in Open MPI; a number if the library identifies itself by a name of
/// MPICH's binary interface.
fn byte(find: Find<'_>) -> Option<Word> {
    let object = first(find, c"ompi_mpi_byte");
    if !object.is_null() {
        return Some(object as Word);
    }
    let version = function!(find, c"MPI_Get_library_version", Version);
    let mut text = [0u8; 16_384];
    let mut length = 0;
    // SAFETY: it may be called at any time; the text has at most 8,192 bytes.
    unsafe { version(text.as_mut_ptr().cast(), &raw mut length) };
    let text = String::from_utf8_lossy(&text).to_lowercase();
    ["mpich", "intel", "mvapich", "cray"].iter().any(|name| text.contains(name)).then_some(MPICH_BYTE)
}

fn check(call: &str, status: c_int) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Io, call).because(format!("MPI says error {status}")))
}
