//! Reading and writing: combines selections, conversion and layout.

use std::ffi::c_int;
use std::sync::Arc;

use cenote::{Error, ErrorKind};

use super::Io;
use super::body::{Body, DatasetState};
use super::convert::{Background, Conversion};
use super::heap::Session;
use super::memory::Memory;
use super::queries;
use super::references;
use super::runs::{Pair, Zip};
use super::select::Selection;
use super::virt::{self, Virtual};
use crate::Result;
use crate::dtype;
use crate::error::quietly;
use crate::ffi::Api;
use crate::ffi::types::{H5D_FILL_VALUE_USER_DEFINED, H5P_DEFAULT, H5T_FLOAT, H5T_INTEGER, hid_t};
use crate::file::File;

/// Most pairs laid out at a time.
const PAIRS_MAX: usize = 256 << 10;

/// `H5Z_DISABLE_EDC`.
const EDC_DISABLED: c_int = 0;

/// What the transfer property list asks for.
pub(super) struct Options {
    dxpl: hid_t,
    pub(super) skip_checksums: bool,
}

impl Options {
    pub(super) fn of(h5: &'static Api, dxpl: hid_t) -> Self {
        if dxpl == H5P_DEFAULT || dxpl == h5.H5P_LST_DATASET_XFER_ID_g() {
            return Self { dxpl, skip_checksums: false };
        }
        // SAFETY: a plain query of a property list.
        let checks = quietly(h5, || unsafe { (h5.H5Pget_edc_check)(dxpl) });
        Self { dxpl, skip_checksums: checks == EDC_DISABLED }
    }
}

/// A transfer about to begin.
struct Transfer<'a> {
    state: &'a DatasetState,
    mem: Selection,
    file: Selection,
    user: *mut u8,
    options: &'a Options,
}

/// The size of old references that are read as new ones, see [`references::read_as_new`].
fn old_references(io: &Io<'_>) -> Option<usize> {
    references::read_as_new(io.dataset.h5(), io.dataset.header.dtype.get(), io.mem_type)
}

/// Reads every part.
pub fn read(parts: &[Io<'_>], dxpl: hid_t) -> Result<()> {
    if parts.iter().any(|io| matches!(io.dataset.data.body, Body::Native(_))) {
        return parts.iter().try_for_each(|io| match &io.dataset.data.body {
            Body::Native(native) => native.read(io, dxpl),
            _ => read(std::slice::from_ref(io), dxpl),
        });
    }
    let check = |io: &Io<'_>| match types(io)? {
        Types::Differ(pair) if old_references(io).is_none() => {
            Conversion::new(io.dataset.h5(), pair.stored.get(), pair.memory.get()).map(drop)
        }
        _ => Ok(()),
    };
    each(parts, dxpl, virt::read, check, |io, transfer| {
        queries::check_readable(io.dataset)?;
        match (types(io)?, old_references(io)) {
            (Types::Same, _) => transfer.read_direct(),
            (Types::Differ(_), Some(bytes)) => transfer.read_references(&io.dataset.file, bytes),
            (Types::Differ(pair), None) => {
                let conversion = Conversion::new(io.dataset.h5(), pair.stored.get(), pair.memory.get())?;
                if zeros_stay_zeros(io) || queries::may_be_allocated(io.dataset)? {
                    return transfer.read_converted(&conversion, pair.has_blobs, true);
                }
                // As in HDF5 for a dataset without storage: fields that it lacks become zeros in memory; without a fill
                // value set by the program all fields do, whatever the types.
                if io.dataset.header.props.fill_status == H5D_FILL_VALUE_USER_DEFINED {
                    return transfer.read_converted(&conversion, pair.has_blobs, false);
                }
                transfer.read_zeros(&conversion)
            }
        }
    })
}

/// Returns true for numbers: they read the same with and without storage.
fn zeros_stay_zeros(io: &Io<'_>) -> bool {
    // SAFETY: a plain query of a datatype of the dataset's.
    matches!(unsafe { (io.dataset.h5().H5Tget_class)(io.dataset.header.dtype.get()) }, H5T_INTEGER | H5T_FLOAT)
}

/// Writes every part.
pub fn write(parts: &[Io<'_>], dxpl: hid_t) -> Result<()> {
    let check = |io: &Io<'_>| match types(io)? {
        Types::Differ(pair) => Conversion::new(io.dataset.h5(), pair.memory.get(), pair.stored.get()).map(drop),
        Types::Same => Ok(()),
    };
    each(parts, dxpl, virt::write, check, |io, transfer| match types(io)? {
        Types::Same => transfer.write_direct(),
        Types::Differ(pair) => {
            let conversion = Conversion::new(io.dataset.h5(), pair.memory.get(), pair.stored.get())?;
            transfer.write_converted(&conversion, pair.has_blobs)
        }
    })
}

fn each(
    parts: &[Io<'_>],
    dxpl: hid_t,
    in_sources: impl Fn(&Io<'_>, &Virtual, hid_t) -> Result<()>,
    check_types: impl Fn(&Io<'_>) -> Result<()>,
    act: impl Fn(&Io<'_>, Transfer<'_>) -> Result<()>,
) -> Result<()> {
    let Some(first) = parts.first() else { return Ok(()) };
    let h5 = first.dataset.h5();
    let options = Options::of(h5, dxpl);
    for io in parts {
        let state = &io.dataset.data;
        match &state.body {
            Body::External(files) => files.settle(io.dataset)?,
            Body::Virtual(this) => {
                in_sources(io, this, dxpl)?;
                continue;
            }
            _ => {}
        }
        let (mem, file) = Selection::pair(h5, io.mem_space, io.file_space, || extent(io))?;
        if file.count == 0 {
            // Types that do not convert are an error all the same.
            check_types(io)?;
            continue;
        }
        if io.buf.is_null() {
            return Err(Error::new(ErrorKind::InvalidInput, io.dataset.name()).because("no buffer was given"));
        }
        act(io, Transfer { state, mem, file, user: io.buf.cast(), options: &options })?;
    }
    Ok(())
}

/// Present dimensions and number of elements of a dataset.
pub(super) fn extent(io: &Io<'_>) -> Result<(Vec<u64>, u64)> {
    let dims = match &io.dataset.data.body {
        Body::Empty => return Ok((Vec::new(), 0)),
        Body::Chunked(chunks) => chunks.geometry()?.dims().to_vec(),
        Body::External(_) => io.dataset.extent()?.dims().to_vec(),
        _ => io.dataset.header.extent.dims().to_vec(),
    };
    let count = dims.iter().fold(1, |product: u64, d| product.saturating_mul(*d));
    Ok((dims, count))
}

pub(super) enum Types {
    /// Elements in memory have the stored form.
    Same,
    Differ(dtype::Pair),
}

pub(super) fn types(io: &Io<'_>) -> Result<Types> {
    let (h5, header) = (io.dataset.h5(), &io.dataset.header);
    let equal = |a: hid_t, b: hid_t| {
        // SAFETY: both ids are datatypes.
        unsafe { (h5.H5Tequal)(a, b) > 0 }
    };
    if !io.dataset.data.blobs && equal(header.dtype.get(), io.mem_type) {
        return Ok(Types::Same);
    }
    let pair = dtype::pair(&io.dataset.file, header.dtype.get(), io.mem_type)?;
    if !pair.has_blobs && equal(pair.stored.get(), pair.memory.get()) {
        return Ok(Types::Same);
    }
    Ok(Types::Differ(pair))
}

impl Transfer<'_> {
    /// The program's buffer as elements of `bytes` each.
    fn user(&self, bytes: usize) -> Memory {
        // SAFETY: HDF5's caller promises a buffer for the memory selection, which was checked against its extent.
        unsafe { Memory::new(self.user, bytes) }
    }

    fn write_direct(mut self) -> Result<()> {
        let user = self.user(self.state.element_bytes);
        let mut zip = Zip::new(&mut *self.mem.runs, &mut *self.file.runs);
        let mut pairs = Vec::new();
        while zip.fill(&mut pairs, u64::MAX, PAIRS_MAX)? > 0 {
            self.state.write(&pairs, &self.file.dims, user)?;
            pairs.clear();
        }
        Ok(())
    }

    fn read_direct(mut self) -> Result<()> {
        let user = self.user(self.state.element_bytes);
        let (apart, skip) = (self.mem.distinct, self.options.skip_checksums);
        let mut zip = Zip::new(&mut *self.mem.runs, &mut *self.file.runs);
        let mut pairs = Vec::new();
        while zip.fill(&mut pairs, u64::MAX, PAIRS_MAX)? > 0 {
            self.state.read(&pairs, &self.file.dims, user, apart, skip)?;
            pairs.clear();
        }
        Ok(())
    }

    fn write_converted(mut self, conversion: &Conversion, blobs: bool) -> Result<()> {
        let user = self.user(conversion.from_bytes);
        let batch = self.state.batch_elements(&self.file.dims);
        let mut zip = Zip::new(&mut *self.mem.runs, &mut *self.file.runs);
        let (mut pairs, mut scratch, mut background) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            pairs.clear();
            let count = zip.fill(&mut pairs, batch, PAIRS_MAX)? as usize;
            if count == 0 {
                return Ok(());
            }
            scratch.resize(count * conversion.room(), 0);
            gather(user, &pairs, Memory::scratch(&mut scratch, conversion.from_bytes));
            pack(&mut pairs);
            prepare(&mut background, conversion, count);
            if conversion.background == Background::Elements {
                let old = Memory::scratch(&mut background, conversion.to_bytes);
                self.state.read(&pairs, &self.file.dims, old, true, self.options.skip_checksums)?;
            }
            convert(self.state, self.options, conversion, blobs, count, &mut scratch, &mut background)?;
            let stored = Memory::scratch(&mut scratch, conversion.to_bytes);
            self.state.write(&pairs, &self.file.dims, stored)?;
        }
    }

    /// Reads old references, of `old_bytes` each, as new ones.
    fn read_references(mut self, file: &Arc<File>, old_bytes: usize) -> Result<()> {
        let user = self.user(references::NEW_BYTES);
        let batch = self.state.batch_elements(&self.file.dims);
        let mut zip = Zip::new(&mut *self.mem.runs, &mut *self.file.runs);
        let mut pairs = Vec::new();
        loop {
            pairs.clear();
            let count = zip.fill(&mut pairs, batch, PAIRS_MAX)? as usize;
            if count == 0 {
                return Ok(());
            }
            let places = pairs.clone();
            pack(&mut pairs);
            let mut stored = vec![0; count * old_bytes];
            let room = Memory::scratch(&mut stored, old_bytes);
            self.state.read(&pairs, &self.file.dims, room, true, self.options.skip_checksums)?;
            let mut new = references::new_ones(file, &stored, old_bytes)?;
            scatter(Memory::scratch(&mut new, references::NEW_BYTES), &places, user);
        }
    }

    fn read_zeros(mut self, conversion: &Conversion) -> Result<()> {
        let user = self.user(conversion.to_bytes);
        let mut zip = Zip::new(&mut *self.mem.runs, &mut *self.file.runs);
        let mut pairs = Vec::new();
        while zip.fill(&mut pairs, u64::MAX, PAIRS_MAX)? > 0 {
            pairs.drain(..).for_each(|pair| user.get_mut(pair.mem, pair.count).fill(0));
        }
        Ok(())
    }

    /// Reads with conversion. With `kept`, fields that the dataset lacks keep their values in memory; otherwise they
    /// become zeros.
    fn read_converted(mut self, conversion: &Conversion, blobs: bool, kept: bool) -> Result<()> {
        let user = self.user(conversion.to_bytes);
        let batch = self.state.batch_elements(&self.file.dims);
        let mut zip = Zip::new(&mut *self.mem.runs, &mut *self.file.runs);
        let (mut pairs, mut scratch, mut background) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            pairs.clear();
            let count = zip.fill(&mut pairs, batch, PAIRS_MAX)? as usize;
            if count == 0 {
                return Ok(());
            }
            prepare(&mut background, conversion, count);
            if conversion.background == Background::Elements && kept {
                gather(user, &pairs, Memory::scratch(&mut background, conversion.to_bytes));
            }
            let places = pairs.clone();
            pack(&mut pairs);
            scratch.clear();
            scratch.resize(count * conversion.room(), 0);
            let stored = Memory::scratch(&mut scratch, conversion.from_bytes);
            self.state.read(&pairs, &self.file.dims, stored, true, self.options.skip_checksums)?;
            convert(self.state, self.options, conversion, blobs, count, &mut scratch, &mut background)?;
            scatter(Memory::scratch(&mut scratch, conversion.to_bytes), &places, user);
        }
    }
}

/// Converts `count` packed elements in place; variable-length parts go to or come from the dataset's heap.
fn convert(
    state: &DatasetState,
    options: &Options,
    conversion: &Conversion,
    blobs: bool,
    count: usize,
    scratch: &mut [u8],
    background: &mut [u8],
) -> Result<()> {
    let mut run = || conversion.run(count, scratch, background, options.dxpl);
    if !blobs {
        return run();
    }
    // Two threads that share a handle get a lease each; HDF5 allows one at a time anyway.
    let session = Session::new(&state.place, std::mem::take(&mut *state.lease.lock()));
    let (done, session) = session.run(run);
    let lease = session.finish()?;
    *state.lease.lock() = lease;
    done
}

fn prepare(background: &mut Vec<u8>, conversion: &Conversion, count: usize) {
    background.clear();
    if conversion.background != Background::No {
        background.resize(count * conversion.room(), 0);
    }
}

/// Replaces positions in memory by positions in packed scratch.
fn pack(pairs: &mut [Pair]) {
    let mut next = 0;
    for pair in pairs {
        pair.mem = next;
        next += pair.count;
    }
}

/// Copies the elements of `pairs` from the program's memory into packed scratch.
fn gather(user: Memory, pairs: &[Pair], scratch: Memory) {
    let mut next = 0;
    for pair in pairs {
        scratch.get_mut(next, pair.count).copy_from_slice(user.get(pair.mem, pair.count));
        next += pair.count;
    }
}

/// Copies packed scratch to the program's memory, as `pairs` say.
fn scatter(scratch: Memory, pairs: &[Pair], user: Memory) {
    let mut next = 0;
    for pair in pairs {
        user.get_mut(pair.mem, pair.count).copy_from_slice(scratch.get(next, pair.count));
        next += pair.count;
    }
}
