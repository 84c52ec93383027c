//! Objects: reads and writes of byte ranges, with and without copies.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use cenote::{Error, ErrorKind, ObjectId};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::Bytes;
use crate::convert::durability;
use crate::errors::raise;
use crate::in_place::InPlaceWrite;
use crate::info::ObjectStat;
use crate::op::{Op, ReadOp};
use crate::view::{Held, View};

/// Up to this size a read allocates the requested bytes; longer reads ask for the object's size first.
const TRUSTED_BYTES: usize = 1 << 20;

/// An array of bytes with a recorded size, up to 2**63 bytes, sparse. Any thread may call it.
///
/// Byte ranges need not be aligned; writers of disjoint ranges never disturb each other.
///
///     >>> obj = store.container("runs").create_object()
///     >>> obj.write(4, b"sparse")
///     >>> obj.size, obj.read(), obj.read(4, 3)
///     (10, b'\x00\x00\x00\x00sparse', b'spa')
///     >>> bytes(memoryview(obj.view(4, 6)))
///     b'sparse'
///     >>> op = obj.launch_write(0, b"soon")
///     >>> op.wait()
///     >>> obj.append(b"!"), obj.read()
///     (10, b'soonsparse!')
#[pyclass(frozen, module = "cenote")]
pub struct Object(pub cenote::Object);

impl Object {
    /// Length from `offset` to the end, at most `size`.
    fn length(&self, offset: u64, size: Option<usize>) -> cenote::Result<usize> {
        match size {
            Some(size) if size <= TRUSTED_BYTES => Ok(size),
            _ => {
                let there = self.0.size()?.saturating_sub(offset);
                let wanted = size.map_or(there, |size| there.min(size as u64));
                // May exceed memory: Python reports a failed allocation.
                Ok(usize::try_from(wanted).unwrap_or(usize::MAX))
            }
        }
    }
}

#[pymethods]
impl Object {
    /// Its id, as 32 hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.0.key().object.to_string()
    }
    /// Its recorded size in bytes.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.0.size()).map_err(raise)
    }
    /// Size, block size, use.
    fn stat(&self, py: Python<'_>) -> PyResult<ObjectStat> {
        py.detach(|| self.0.stat()).map(ObjectStat::from).map_err(raise)
    }
    /// The same object with another write mode than the container's default: "sync" (write-through: on a persistent tier,
    /// acknowledged when it survives power loss), "async" (write-back) or "bypass" (to the lowest persistent tier, past the
    /// buffers). Refused where that is less than the container promises, and in scratch containers.
    fn buffered(&self, mode: &str) -> PyResult<Self> {
        self.0.buffered(durability(mode)?).map(Self).map_err(raise)
    }
    /// Read `size` bytes from `offset`, or to the end if None. Holes are zeros; shorter at the object's end.
    #[pyo3(signature = (offset = 0, size = None))]
    fn read<'py>(&self, py: Python<'py>, offset: u64, size: Option<usize>) -> PyResult<Bound<'py, PyBytes>> {
        let length = py.detach(|| self.length(offset, size)).map_err(raise)?;
        let mut got = 0;
        let whole = PyBytes::new_with(py, length, |buf| {
            got = py.detach(|| self.0.read_at(offset, buf)).map_err(raise)?;
            Ok(())
        })?;
        if got == length { Ok(whole) } else { Ok(PyBytes::new(py, &whole.as_bytes()[..got])) }
    }
    /// Fill `buffer` (bytearray, memoryview, array, ...) from `offset` on, without an intermediate copy.
    /// Returns the number of bytes before the recorded size; the rest of the buffer is untouched.
    fn readinto(&self, py: Python<'_>, offset: u64, buffer: Bound<'_, PyAny>) -> PyResult<usize> {
        let mut bytes = Bytes::to_fill(&buffer)?;
        py.detach(|| self.0.read_at(offset, bytes.as_mut_slice())).map_err(raise)
    }
    /// Write a buffer (bytes, bytearray, memoryview, array, ...) at `offset`, without an intermediate copy.
    /// Acknowledged according to the container's durability, and visible to every process.
    fn write(&self, py: Python<'_>, offset: u64, buffer: Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = Bytes::of(&buffer)?;
        py.detach(|| self.0.write_at(offset, bytes.as_slice())).map_err(raise)
    }
    /// Write many `(offset, buffer)` in one transaction.
    fn writev(&self, py: Python<'_>, parts: Vec<(u64, Bound<'_, PyAny>)>) -> PyResult<()> {
        let held = parts
            .iter()
            .map(|(offset, buffer)| Ok((*offset, Bytes::of(buffer)?)))
            .collect::<PyResult<Vec<(u64, Bytes)>>>()?;
        py.detach(|| {
            let parts: Vec<(u64, &[u8])> = held.iter().map(|(offset, bytes)| (*offset, bytes.as_slice())).collect();
            self.0.writev(&parts)
        })
        .map_err(raise)
    }
    /// Fill many `(offset, buffer)` at once; bytes past the recorded size read as zeros.
    fn readv(&self, py: Python<'_>, parts: Vec<(u64, Bound<'_, PyAny>)>) -> PyResult<()> {
        let mut held = parts
            .iter()
            .map(|(offset, buffer)| Ok((*offset, Bytes::to_fill(buffer)?)))
            .collect::<PyResult<Vec<(u64, Bytes)>>>()?;
        py.detach(|| {
            let mut parts: Vec<(u64, &mut [u8])> =
                held.iter_mut().map(|(offset, bytes)| (*offset, bytes.as_mut_slice())).collect();
            self.0.readv(&mut parts)
        })
        .map_err(raise)
    }
    /// Reserve `size` bytes in the store's memory, to be filled in place and then committed: a write without a copy.
    fn write_in_place(&self, py: Python<'_>, size: usize) -> PyResult<InPlaceWrite> {
        py.detach(|| self.0.write_in_place(size)).map(|write| InPlaceWrite::new(write, size)).map_err(raise)
    }
    /// A range by reference: `memoryview(obj.view(...))`, `numpy.frombuffer(obj.view(...), dtype)`.
    ///
    /// Without a copy if it is in one piece of mapped memory; else a copy, or Unsupported if `copy` is false.
    /// The bytes do not change while the view, or anything made from it, lives.
    #[pyo3(signature = (offset = 0, size = None, copy = true))]
    fn view(&self, py: Python<'_>, offset: u64, size: Option<usize>, copy: bool) -> PyResult<View> {
        py.detach(|| {
            let stat = self.0.stat()?;
            let there = stat.size.saturating_sub(offset);
            let length = usize::try_from(size.map_or(there, |size| there.min(size as u64))).unwrap_or(usize::MAX);
            if let Some(view) = self.0.view(offset, length)? {
                return Ok(View::new(Held::Store(view)));
            }
            if !copy {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("view of {length} bytes at {offset} of {}", self.0.key()),
                )
                .because("the range is not in one piece of mapped memory")
                .try_next("ask for a smaller range, or leave copy=True"));
            }
            let mut bytes = vec![0; length];
            let got = self.0.read_at(offset, &mut bytes)?;
            bytes.truncate(got);
            Ok(View::new(Held::Copy(bytes)))
        })
        .map_err(raise)
    }
    /// Start a write. The buffer may be reused afterwards; the write is acknowledged when `Op.wait` returns.
    fn launch_write(&self, py: Python<'_>, offset: u64, buffer: Bound<'_, PyAny>) -> PyResult<Op> {
        let bytes = Bytes::of(&buffer)?;
        py.detach(|| self.0.launch_write(offset, bytes.as_slice())).map(Op::new).map_err(raise)
    }
    /// Start a read of `size` bytes; `ReadOp.wait` returns them.
    fn launch_read(&self, py: Python<'_>, offset: u64, size: usize) -> PyResult<ReadOp> {
        py.detach(|| self.0.launch_read(offset, size)).map(ReadOp::new).map_err(raise)
    }
    /// Set the recorded size; bytes beyond it are dropped.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        py.detach(|| self.0.truncate(size)).map_err(raise)
    }
    /// Turn a range into a hole.
    fn punch(&self, py: Python<'_>, offset: u64, size: u64) -> PyResult<()> {
        py.detach(|| self.0.punch(offset, size)).map_err(raise)
    }
    /// Write at the end, wherever that is by then; returns the offset. When several processes append at once, the bytes of each
    /// are there whole, once, in some order.
    fn append(&self, py: Python<'_>, buffer: Bound<'_, PyAny>) -> PyResult<u64> {
        let bytes = Bytes::of(&buffer)?;
        py.detach(|| self.0.append(bytes.as_slice())).map_err(raise)
    }
    /// The first offset with data at or after `offset`; None if there is none before the end.
    fn next_data(&self, py: Python<'_>, offset: u64) -> PyResult<Option<u64>> {
        py.detach(|| self.0.next_data(offset)).map_err(raise)
    }
    /// The first offset in a hole at or after `offset`, or the size if there is none before it; None from the end on.
    fn next_hole(&self, py: Python<'_>, offset: u64) -> PyResult<Option<u64>> {
        py.detach(|| self.0.next_hole(offset)).map_err(raise)
    }
    /// Copy `size` bytes at `offset` of `source` to `at`; returns how many: fewer if `source` ends before. No bytes are copied if
    /// both are of one container, or `source` of a snapshot of it.
    #[pyo3(signature = (at, source, offset=0, size=None))]
    fn copy_from(&self, py: Python<'_>, at: u64, source: &Self, offset: u64, size: Option<u64>) -> PyResult<u64> {
        py.detach(|| self.0.copy_from(at, &source.0, offset, size.unwrap_or(1 << 62))).map_err(raise)
    }
    /// Return when everything acknowledged so far survives power loss.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.flush()).map_err(raise)
    }
    fn __repr__(&self) -> String {
        format!("<cenote.Object {}>", self.0.key())
    }
    fn __eq__(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
    fn __hash__(&self) -> u64 {
        self.0.key().word_hash()
    }
}

/// Objects of a container, by ascending id.
#[pyclass(frozen, module = "cenote")]
pub struct Objects {
    container: cenote::Container,
    state: Mutex<ObjectsCursor>,
}

struct ObjectsCursor {
    after: Option<ObjectId>,
    page: VecDeque<ObjectId>,
}

impl Objects {
    /// Objects after an id, or all.
    pub fn new(container: cenote::Container, after: Option<ObjectId>) -> Self {
        Self { container, state: Mutex::new(ObjectsCursor { after, page: VecDeque::new() }) }
    }
}

#[pymethods]
impl Objects {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Object>> {
        const PAGE: u32 = 4096;
        // Locked only while detached: a lock held while waiting for the GIL would stop every thread.
        let next = py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.page.is_empty() {
                state.page = self.container.objects(state.after, PAGE)?.into();
                state.after = state.page.back().copied().or(state.after);
            }
            Ok(state.page.pop_front())
        });
        Ok(next.map_err(raise)?.map(|id| Object(self.container.object(id))))
    }
}
