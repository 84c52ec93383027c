//! External raw data files (`H5Pset_external`): plain files that other programs read and write too.
//!
//! A dataset's bytes are the segments in order. As in HDF5, reading past the end of a file gives zeros and writing extends
//! it; a missing file is an error when read and is created when written. This module must not know datatypes or selections.

use std::fs::File as PlainFile;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cenote::{Error, ErrorKind};

use super::access;
use super::memory::Memory;
use super::runs::Pair;
use crate::Result;
use crate::mapping::Segment;
use crate::object::{Dataset, DatasetHeader};

/// The files of one open dataset.
pub struct External {
    segments: Vec<Segment>,
    /// Directory to which names are relative; set once the access properties are known.
    prefix: OnceLock<Option<PathBuf>>,
}

/// The part of a transfer that lies in one segment.
#[derive(PartialEq, Eq, Debug)]
struct Piece {
    segment: usize,
    /// Byte offset in the file.
    at: u64,
    /// Byte offset in the buffer.
    from: usize,
    bytes: usize,
}

/// Refuses a new dataset that HDF5 would refuse.
pub fn check(header: &DatasetHeader, segments: &[Segment], element_bytes: usize) -> Result<()> {
    let bad = |cause: &str| Err(Error::new(ErrorKind::InvalidInput, "a new dataset").because(cause));
    let (dims, max) = (header.extent.dims(), header.extent.max_dims());
    if dims.iter().zip(max).skip(1).any(|(dim, max)| max > dim) {
        return bad("only the first dimension can be extendible");
    }
    let room = total(segments);
    if max.first() == Some(&u64::MAX) {
        return if room == u64::MAX { Ok(()) } else { bad("unlimited dataspace but finite storage") };
    }
    let bytes = max.iter().try_fold(element_bytes as u64, |product, dim| product.checked_mul(*dim));
    match bytes {
        None => bad("dataspace * type size overflowed"),
        Some(bytes) if bytes > room => bad("dataspace size exceeds external storage size"),
        Some(_) => Ok(()),
    }
}

fn total(segments: &[Segment]) -> u64 {
    segments.iter().fold(0, |sum: u64, segment| sum.saturating_add(segment.bytes))
}

/// Cuts `bytes` bytes from `offset` of the dataset into pieces of segments.
fn pieces(segments: &[Segment], offset: u64, bytes: usize) -> Option<Vec<Piece>> {
    let (mut out, mut begin, mut from) = (Vec::new(), 0u64, 0usize);
    for (number, segment) in segments.iter().enumerate() {
        let end = begin.saturating_add(segment.bytes);
        let at = offset + from as u64;
        if from < bytes && at < end {
            let here = usize::try_from(end - at).unwrap_or(usize::MAX).min(bytes - from);
            out.push(Piece { segment: number, at: segment.offset as u64 + (at - begin), from, bytes: here });
            from += here;
        }
        begin = end;
    }
    (from == bytes).then_some(out)
}

impl External {
    /// The files with these segments.
    pub fn new(segments: &[Segment]) -> Self {
        Self { segments: segments.to_vec(), prefix: OnceLock::new() }
    }

    /// Sets the directory to which names are relative: from the environment, or else from the access properties.
    pub fn settle(&self, dataset: &Dataset) -> Result<()> {
        if self.prefix.get().is_some() {
            return Ok(());
        }
        let _ = self.prefix.set(access::raw_prefix(dataset)?);
        Ok(())
    }

    fn path(&self, segment: &Segment) -> PathBuf {
        let name = Path::new(std::ffi::OsStr::from_bytes(&segment.name));
        match self.prefix.get() {
            Some(Some(prefix)) => prefix.join(name),
            _ => name.to_path_buf(),
        }
    }

    /// Reads stored elements.
    pub fn read(&self, pairs: &[Pair], mem: Memory) -> Result<()> {
        self.each(pairs, mem.element_bytes(), false, |file, piece, pair, path| {
            let to = &mut mem.get_mut(pair.mem, pair.count)[piece.from..piece.from + piece.bytes];
            read_or_zeros(file, to, piece.at).map_err(|e| os_error("read error in", path, &e))
        })
    }

    /// Writes stored elements.
    pub fn write(&self, pairs: &[Pair], mem: Memory) -> Result<()> {
        self.each(pairs, mem.element_bytes(), true, |file, piece, pair, path| {
            let from = &mem.get(pair.mem, pair.count)[piece.from..piece.from + piece.bytes];
            file.write_all_at(from, piece.at).map_err(|e| os_error("write error in", path, &e))
        })
    }

    /// Calls `act` for each piece, with its file open.
    fn each(
        &self,
        pairs: &[Pair],
        element_bytes: usize,
        writing: bool,
        act: impl Fn(&PlainFile, &Piece, &Pair, &Path) -> Result<()>,
    ) -> Result<()> {
        let mut open: Option<(usize, PlainFile, PathBuf)> = None;
        for pair in pairs {
            let (offset, bytes) = (pair.file * element_bytes as u64, pair.count as usize * element_bytes);
            let pieces = pieces(&self.segments, offset, bytes).ok_or_else(|| {
                Error::new(ErrorKind::InvalidInput, "external raw data").because("past logical end of file")
            })?;
            for piece in &pieces {
                if open.as_ref().is_none_or(|(number, ..)| *number != piece.segment) {
                    let path = self.path(&self.segments[piece.segment]);
                    let mut options = std::fs::OpenOptions::new();
                    options.read(true).write(writing).create(writing).truncate(false).mode(0o666);
                    let file = options.open(&path).map_err(|e| os_error("unable to open", &path, &e))?;
                    open = Some((piece.segment, file, path));
                }
                if let Some((_, file, path)) = &open {
                    act(file, piece, pair, path)?;
                }
            }
        }
        Ok(())
    }
}

fn read_or_zeros(file: &PlainFile, to: &mut [u8], mut at: u64) -> std::io::Result<()> {
    let mut done = 0;
    while done < to.len() {
        match file.read_at(&mut to[done..], at) {
            Ok(0) => {
                to[done..].fill(0);
                return Ok(());
            }
            Ok(n) => (done, at) = (done + n, at + n as u64),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn os_error(what: &str, path: &Path, e: &std::io::Error) -> Error {
    Error::io(format!("{what} external raw data file {}", path.display()), e)
        .try_next("check the file, H5Pset_efile_prefix and HDF5_EXTFILE_PREFIX")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_are_cut_where_segments_end() {
        let segment = |offset, bytes| Segment { name: b"f".to_vec(), offset, bytes };
        let segments = [segment(100, 10), segment(0, 5), segment(7, u64::MAX)];
        let piece = |segment, at, from, bytes| Piece { segment, at, from, bytes };
        assert_eq!(pieces(&segments, 2, 4), Some(vec![piece(0, 102, 0, 4)]));
        let all = vec![piece(0, 108, 0, 2), piece(1, 0, 2, 5), piece(2, 7, 7, 3)];
        assert_eq!(pieces(&segments, 8, 10), Some(all));
        assert_eq!(pieces(&segments[..2], 8, 10), None);
        assert_eq!(total(&segments), u64::MAX);
    }
}
