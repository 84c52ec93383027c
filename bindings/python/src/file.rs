//! Open files, without buffering.

use std::sync::{Arc, PoisonError, RwLock};

use cenote_posix::{Allocate, Caller, File, FsError, OpenFlags, SetAttr};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::buffer::Bytes;
use crate::errors::{invalid, raise_os};
use crate::file_info::FileStat;
use crate::files::FsPath;
use crate::view::{Held, View};

/// An open file of a store: reads and writes at offsets, without buffering. `Store.files.open` wraps it in a Python file.
#[pyclass(frozen, module = "cenote")]
pub struct RawFile {
    /// None once closed.
    file: RwLock<Option<Arc<File>>>,
    path: FsPath,
    caller: Caller,
    flags: OpenFlags,
}

/// Parses a mode of the built-in `open`.
pub fn open_flags(mode: &str) -> PyResult<OpenFlags> {
    let has = |c: char| mode.contains(c);
    let kinds = ['r', 'w', 'a', 'x'].into_iter().filter(|c| has(*c)).count();
    if kinds != 1 || mode.chars().any(|c| !"rwaxb+".contains(c)) {
        return Err(invalid(format!("mode {mode:?}"), "it is not one of r, w, a, x, with + and b or without"));
    }
    Ok(OpenFlags {
        read: has('r') || has('+'),
        write: !has('r') || has('+'),
        append: has('a'),
        truncate: has('w'),
        create: !has('r'),
        exclusive: has('x'),
        sync: false,
    })
}

impl RawFile {
    /// Wraps an open file.
    pub fn new(file: File, path: FsPath, caller: Caller) -> Self {
        let flags = file.flags();
        Self { file: RwLock::new(Some(Arc::new(file))), path, caller, flags }
    }
    fn open_file(&self) -> PyResult<Arc<File>> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner).clone();
        file.ok_or_else(|| pyo3::exceptions::PyValueError::new_err("I/O operation on closed file"))
    }
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&File) -> Result<T, FsError> + Send) -> PyResult<T> {
        let file = self.open_file()?;
        py.detach(|| work(&file)).map_err(|error| raise_os(error, Some(&self.path)))
    }
}

#[pymethods]
impl RawFile {
    /// The path by which it was opened.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<Py<PyString>> {
        self.path.text(py)
    }
    /// True once it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.file.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }
    /// True if it was opened for reading.
    #[getter]
    fn readable(&self) -> bool {
        self.flags.read
    }
    /// True if it was opened for writing.
    #[getter]
    fn writable(&self) -> bool {
        self.flags.write
    }
    /// True if every write goes to the end.
    #[getter]
    fn appends(&self) -> bool {
        self.flags.append
    }
    /// Its present `stat`.
    fn stat(&self, py: Python<'_>) -> PyResult<FileStat> {
        self.with(py, |file| file.attr().map(FileStat::from))
    }
    /// Its present size in bytes.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |file| file.attr().map(|attr| attr.size_bytes))
    }
    /// Read up to `size` bytes from `offset`: fewer only at the end.
    fn pread<'py>(&self, py: Python<'py>, size: usize, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        // Allocate nothing for bytes past the end.
        let left = self.size(py)?.saturating_sub(offset);
        let size = size.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut got = 0;
        let whole = PyBytes::new_with(py, size, |buf| {
            got = self.with(py, |file| file.read_at(buf, offset))?;
            Ok(())
        })?;
        if got == size { Ok(whole) } else { Ok(PyBytes::new(py, &whole.as_bytes()[..got])) }
    }
    /// Fill a writable buffer with the bytes from `offset` on; returns how many there were.
    fn preadinto(&self, py: Python<'_>, buffer: Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let mut bytes = Bytes::to_fill(&buffer)?;
        self.with(py, |file| file.read_at(bytes.as_mut_slice(), offset))
    }
    /// Write a buffer at `offset`, in one update.
    fn pwrite(&self, py: Python<'_>, buffer: Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let bytes = Bytes::of(&buffer)?;
        self.with(py, |file| file.write_at(bytes.as_slice(), offset))?;
        Ok(bytes.as_slice().len())
    }
    /// Write a buffer at the end, also with concurrent appends; returns its offset.
    fn append(&self, py: Python<'_>, buffer: Bound<'_, PyAny>) -> PyResult<u64> {
        let bytes = Bytes::of(&buffer)?;
        self.with(py, |file| file.append(bytes.as_slice()))
    }
    /// The bytes by reference if they are in one piece of mapped memory, else a copy. They do not change while the view
    /// lives. size: to the end if None.
    #[pyo3(signature = (offset = 0, size = None))]
    fn view(&self, py: Python<'_>, offset: u64, size: Option<usize>) -> PyResult<View> {
        let held = self.with(py, |file| {
            let left = file.attr()?.size_bytes.saturating_sub(offset);
            let len = size.unwrap_or(usize::MAX).min(usize::try_from(left).unwrap_or(usize::MAX));
            if let Some(view) = file.view(offset, len)? {
                return Ok(Held::Store(view));
            }
            let mut bytes = vec![0; len];
            let got = file.read_at(&mut bytes, offset)?;
            bytes.truncate(got);
            Ok(Held::Copy(bytes))
        })?;
        Ok(View::new(held))
    }
    /// Set its size, in bytes.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        let set = SetAttr { size_bytes: Some(size), ..SetAttr::default() };
        self.with(py, |file| file.set_attr(&self.caller, &set).map(drop))
    }
    /// Where the next data begin, at or after `offset`; raises OSError (ENXIO) past the last.
    fn next_data(&self, py: Python<'_>, offset: u64) -> PyResult<u64> {
        self.with(py, |file| file.next_data(offset))
    }
    /// Where the next hole begins, at or after `offset`; the end counts as one.
    fn next_hole(&self, py: Python<'_>, offset: u64) -> PyResult<u64> {
        self.with(py, |file| file.next_hole(offset))
    }
    /// Make a hole of `size` bytes at `offset`; the file's size stays.
    fn punch(&self, py: Python<'_>, offset: u64, size: u64) -> PyResult<()> {
        self.with(py, |file| file.allocate(Allocate::Punch, offset, size))
    }
    /// Copy bytes from another open file of the store, without moving them where the store can; returns how many.
    fn copy_from(&self, py: Python<'_>, source: &RawFile, source_offset: u64, offset: u64, size: u64) -> PyResult<u64> {
        let from = source.open_file()?;
        self.with(py, |file| file.copy_from(&from, source_offset, offset, size))
    }
    /// Return when written data survive power loss.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |file| file.sync(false))
    }
    /// In a directory of consistency "commit": show others what was written.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, File::flush)
    }
    /// Close it. Raises the error of an earlier write, if there was one.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(file) = self.file.write().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        // Another thread that uses it closes it when done.
        let Some(file) = Arc::into_inner(file) else { return Ok(()) };
        py.detach(|| file.close()).map_err(|error| raise_os(error, Some(&self.path)))
    }
    fn __repr__(&self) -> String {
        format!("<cenote.RawFile {}>", String::from_utf8_lossy(&self.path.0))
    }
}
