//! The ranks of an MPI program that have opened one file together (`H5Pset_fapl_mpio`).
//!
//! HDF5 requires such programs to make every call that changes metadata on all ranks, with the same arguments. So that
//! this costs one change and not one per rank, such a call is a *round*: every rank tells rank 0 which call it makes (a
//! gather); rank 0 makes the call after all have arrived, and sends the outcome to all (a broadcast). No rank changes
//! anything before all have arrived, so that between two such calls every rank sees the same file, however far ahead one
//! is. A failure is the same failure on all ranks, and ranks that make different calls get an error instead of an endless
//! wait. Raw data need no rounds: what a rank has written is in the store when its call returns, or in a table that the
//! others check ([`pending`]).
//!
//! This module must not know what a call does. MPI is in [`crate::ffi::mpi`].

pub mod pending;
mod round;
pub mod wire;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::error::{h5_check, h5_failed};
use crate::ffi::Api;
use crate::ffi::mpi::{Mpi, Word};
use crate::ffi::types::hid_t;
use crate::file::File;
use crate::meta::objects;

use pending::Pending;
pub use round::{Call, Marks};
use round::{Record, Verdict};
use wire::Wire;

/// The environment variable that says how ranks change metadata: `independent`, or together (the default).
pub const MPI_ENV: &str = "CENOTE_HDF5_MPI";

/// The ranks of an MPI program with one open file.
pub struct Team {
    mpi: &'static Mpi,
    comm: Word,
    rank: usize,
    size: usize,
    /// Set after ranks made different calls, or MPI failed: no more rounds.
    parted: AtomicBool,
    /// What its ranks have launched, if they share a table for it.
    pending: OnceLock<Arc<Pending>>,
}

thread_local! {
    /// This thread is making a call for all ranks: calls inside it are not rounds of their own.
    static ACTING: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if the driver of these access properties is MPI-IO.
pub fn is_mpio(h5: &'static Api, fapl: hid_t) -> bool {
    // SAFETY: plain queries. In HDF5 1.14 a driver's id comes from its init function.
    unsafe {
        let driver = (h5.H5Pget_driver)(fapl);
        let mpio = h5.H5FD_mpio_init.map_or_else(|| h5.H5FD_MPIO_id_g(), |init| init());
        driver > 0 && (driver == mpio || driver == h5.H5FD_MPIO_id_g())
    }
}

impl Team {
    /// The ranks of the communicator in these access properties; `None` without one, or with only this process in it. All
    /// ranks must make this call.
    pub fn of(h5: &'static Api, fapl: hid_t) -> Result<Option<Arc<Self>>> {
        if !is_mpio(h5, fapl) {
            return Ok(None);
        }
        let (Some(get), Some(mpi)) = (h5.H5Pget_fapl_mpio, &h5.mpi) else {
            return Err(Error::new(ErrorKind::Unsupported, "the MPI-IO driver")
                .because("the MPI library of this program is neither Open MPI nor one with MPICH's binary interface")
                .try_next("use one of these, or open the file without H5Pset_fapl_mpio"));
        };
        let mut comm: Word = 0;
        // SAFETY: the place has room for a handle of either kind; null: the info object is not asked for.
        h5_check("H5Pget_fapl_mpio", unsafe { get(fapl, &raw mut comm, std::ptr::null_mut()) })?;
        if comm == 0 {
            return Err(h5_failed("H5Pget_fapl_mpio"));
        }
        // From here on the team frees it when dropped.
        let mut team = Self { mpi, comm, rank: 0, size: 1, parted: AtomicBool::new(false), pending: OnceLock::new() };
        (team.rank, team.size) = mpi.rank_and_size(comm)?;
        Ok((team.size > 1).then(|| Arc::new(team)))
    }

    /// Makes a call of all ranks once: rank 0 runs `work` after all have arrived, and all get its outcome. `work` gets the
    /// marks of all ranks ([`Call::marked`]).
    pub fn once<T: Wire>(&self, call: &Call<'_>, work: impl FnOnce(&Marks) -> Result<T>) -> Result<T> {
        if ACTING.get() {
            return work(&Marks::default());
        }
        self.round(call, None, work)
    }

    /// Like [`Team::once`], but only if ranks change metadata together.
    pub fn once_unless_independent<T: Wire>(
        &self,
        call: &Call<'_>,
        work: impl FnOnce(&Marks) -> Result<T>,
    ) -> Result<T> {
        if is_independent() { work(&Marks::default()) } else { self.once(call, work) }
    }

    /// Returns this rank's value if every rank has one, else the first failing rank's error.
    pub fn agree<T>(&self, kind: &'static str, mine: Result<T>) -> Result<T> {
        if ACTING.get() {
            return mine;
        }
        let agreed = self.round(&Call::new(kind), mine.as_ref().err(), |_| Ok(()));
        mine.and_then(|mine| agreed.map(|()| mine))
    }

    /// Makes the shared memory for launched writes, on rank 0. The others [join](Team::share_at) it at this address.
    pub fn share(&self) -> Option<pending::Address> {
        let made = Arc::new(Pending::make(self.size)?);
        Some(self.pending.get_or_init(|| made).address())
    }
    /// Joins the shared memory of rank 0, see [`Team::share`].
    pub fn share_at(&self, at: pending::Address) {
        if let Some(joined) = Pending::join(at, self.rank, self.size) {
            self.pending.get_or_init(|| Arc::new(joined));
        }
    }
    /// What its ranks have launched.
    pub fn pending(&self) -> Option<&Arc<Pending>> {
        self.pending.get()
    }

    /// Returns true on the rank that carries out calls.
    pub fn acts(&self) -> bool {
        self.rank == 0
    }

    fn round<T: Wire>(
        &self,
        call: &Call<'_>,
        failure: Option<&Error>,
        work: impl FnOnce(&Marks) -> Result<T>,
    ) -> Result<T> {
        if self.parted.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::InvalidInput, call.to_string())
                .because("the ranks of this program did not make the same calls on this file"));
        }
        if self.mpi.is_over() {
            return Err(Error::new(ErrorKind::InvalidInput, call.to_string())
                .because("MPI_Finalize was called before the file was closed"));
        }
        let done = self.round_now(call, failure, work);
        // A failure of rank 0's call comes as a verdict; this is a failure of MPI itself.
        done.inspect_err(|_| self.parted.store(true, Ordering::Relaxed))?
            .take(|| self.parted.store(true, Ordering::Relaxed))
    }

    fn round_now<T: Wire>(
        &self,
        call: &Call<'_>,
        failure: Option<&Error>,
        work: impl FnOnce(&Marks) -> Result<T>,
    ) -> Result<Verdict<T>> {
        let all = self.gather(call, Record::of(call, failure))?;
        if self.rank > 0 {
            return Verdict::decode(&self.broadcast(call, Vec::new())?);
        }
        let verdict = match Record::judge(&all) {
            Some(verdict) => verdict,
            None => Verdict::Done(act(call, || work(&Record::marks_of_all(&all)))),
        };
        self.broadcast(call, verdict.encode())?;
        Ok(verdict)
    }
}

/// Makes a call for all ranks. A panic counts as a failure, since all wait for the outcome.
fn act<T>(call: &Call<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    ACTING.set(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    ACTING.set(false);
    done.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Internal, call.to_string())
            .because("a bug in the connector (it panicked)")
            .try_next("report this with the program that shows it"))
    })
}

/// Returns true if each rank changes metadata by itself.
pub fn is_independent() -> bool {
    static INDEPENDENT: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os(MPI_ENV).is_some_and(|value| value == "independent"));
    *INDEPENDENT
}

impl Drop for Team {
    fn drop(&mut self) {
        self.mpi.free(self.comm);
    }
}

impl Team {
    /// Returns true if all ranks can still be expected to arrive where this one is.
    pub fn is_together(&self) -> bool {
        !self.mpi.is_over() && !self.parted.load(Ordering::Relaxed) && !is_independent()
    }
}

/// The collective part of closing a file: afterwards the data of every rank are stored, and objects that lost their last
/// link while a rank had them open are deleted.
pub fn close(file: &Arc<File>, team: &Team, stored: Result<()>) -> Result<()> {
    if team.mpi.is_over() {
        return stored;
    }
    let stored = team.agree("file_close", stored);
    if team.parted.load(Ordering::Relaxed) || !file.writable || is_independent() {
        return stored;
    }
    let call = Call::new("file_close").about("deleting").marked(file.shared.open_marks());
    let deleted = team.once(&call, |marks| {
        file.shared.with_elsewhere(marks, || {
            file.shared
                .take_postponed()
                .into_iter()
                .filter(|oid| !marks.may_have(*oid))
                .try_for_each(|oid| objects::delete_if_unlinked(file, oid))
        })
    });
    stored.and(deleted)
}
