//! A store directory whose changes go to mirrors.

use std::sync::Arc;

use cenote_model::Result;

use super::change::Change;
use super::{Kinds, Stream};
use crate::{LogFile, MetaDir};

/// Most bytes of a part of a file.
pub(super) const PART_BYTES: usize = 1 << 20;

/// Passes everything on to another directory, and notes the changes of files that `kinds` knows.
pub struct MirroredFiles {
    inner: Arc<dyn MetaDir>,
    stream: Arc<Stream>,
    kinds: Kinds,
}

impl MirroredFiles {
    /// Notes changes of `inner` in `stream`.
    pub fn new(inner: Arc<dyn MetaDir>, stream: Arc<Stream>, kinds: Kinds) -> Self {
        Self { inner, stream, kinds }
    }
    fn is_kept(&self, name: &str) -> bool {
        (self.kinds)(name).is_some()
    }
    fn log(&self, name: &str, inner: Box<dyn LogFile>) -> Box<dyn LogFile> {
        if !self.is_kept(name) {
            return inner;
        }
        Box::new(MirroredLog { inner, name: name.to_owned(), stream: self.stream.clone() })
    }
}

/// Appends a whole file as parts.
pub(super) fn put_file(name: &str, bytes: &[u8], out: &mut Vec<u8>) {
    let mut parts = bytes.chunks(PART_BYTES).peekable();
    if parts.peek().is_none() {
        Change::FilePart { name, bytes: b"", is_last: true }.encode(out);
    }
    while let Some(bytes) = parts.next() {
        Change::FilePart { name, bytes, is_last: parts.peek().is_none() }.encode(out);
    }
}

impl MetaDir for MirroredFiles {
    fn create_log(&self, name: &str, capacity: u64) -> Result<Box<dyn LogFile>> {
        let made = self.inner.create_log(name, capacity)?;
        if self.is_kept(name) {
            self.stream.put(&Change::Log { name, capacity });
        }
        Ok(self.log(name, made))
    }
    fn open_log(&self, name: &str) -> Result<Box<dyn LogFile>> {
        Ok(self.log(name, self.inner.open_log(name)?))
    }
    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.inner.write_file(name, bytes)?;
        if self.is_kept(name) {
            self.stream.put_with(|out| {
                put_file(name, bytes, out);
                Ok(())
            })?;
        }
        Ok(())
    }
    fn read_file(&self, name: &str) -> Result<Vec<u8>> {
        self.inner.read_file(name)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)?;
        if self.is_kept(name) {
            self.stream.put(&Change::Remove { name });
        }
        Ok(())
    }
}

struct MirroredLog {
    inner: Box<dyn LogFile>,
    name: String,
    stream: Arc<Stream>,
}

impl LogFile for MirroredLog {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write(offset, bytes)?;
        self.stream.put(&Change::LogWrite { name: &self.name, offset, bytes });
        Ok(())
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read(offset, buf)
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn data_from(&self, offset: u64) -> Option<u64> {
        self.inner.data_from(offset)
    }
}
