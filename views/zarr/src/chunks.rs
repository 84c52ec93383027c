//! Chunks: as stored by HDF5 where codecs are shared, else unfiltered on the way.

use cenote::{Error, ErrorKind, Result};
use cenote_hdf5::data::plain::{part_of, read_heap};

use crate::codecs::Sharing;
use crate::dtype::Elem;
use crate::node::Array;
use crate::{grid, invalid, refused};

/// Most bytes of strings read at once.
const STRINGS_BYTES_MAX: u64 = 256 << 20;

impl Array {
    /// Coordinates in the dataset's own grid; `None` outside the array.
    fn own_coords<'a>(&self, coords: &'a [u64]) -> Option<&'a [u64]> {
        let (own, inner) = coords.split_at_checked(self.dims.len())?;
        let is_inside = own.iter().zip(grid::counts(&self.dims, &self.chunk)).all(|(x, n)| *x < n);
        (is_inside && inner.len() == self.dtype.inner.len() && inner.iter().all(|x| *x == 0)).then_some(own)
    }
    /// A chunk's bytes for Zarr; `None` if it was never written.
    pub fn chunk(&self, coords: &[u64]) -> Result<Option<Vec<u8>>> {
        let Some(own) = self.own_coords(coords) else { return Ok(None) };
        if self.data.chunk.is_none() {
            return self.piece(own)?.map(|bytes| self.told(bytes)).transpose();
        }
        let Some((stored, mask)) = self.data.read_chunk(own)? else { return Ok(None) };
        match (&self.sharing, mask) {
            (Sharing::Shared(_), 0) => Ok(Some(stored)),
            (Sharing::Shared(_), _) => {
                // A filter was left out of this chunk, which Zarr cannot express.
                let image = self.plain(stored, mask)?;
                Ok(Some(self.data.pipeline.encode(&image, 0)?.0))
            }
            (Sharing::Converted(_), _) => self.told(self.plain(stored, mask)?).map(Some),
        }
    }
    fn plain(&self, stored: Vec<u8>, mask: u32) -> Result<Vec<u8>> {
        self.data.pipeline.decode(stored, mask, self.chunk_bytes(), false)
    }
    /// A whole piece of a run; past the end it is fill.
    fn piece(&self, coords: &[u64]) -> Result<Option<Vec<u8>>> {
        let Some((first, count, whole)) = grid::run(&self.dims, &self.chunk, coords) else { return Ok(None) };
        let (size, used) = (self.dtype.bytes(), (count * self.dtype.bytes()) as usize);
        let mut bytes = vec![0; (whole * size) as usize];
        self.data.read_run(first * size, &mut bytes[..used])?;
        let blank = self.data.blank(bytes.len());
        bytes[used..].copy_from_slice(&blank[used..]);
        // The bytes alone do not show whether anything was ever written.
        let is_there = bytes != blank || self.data.run_was_written()?;
        Ok(is_there.then_some(bytes))
    }
    /// Converts elements from stored form to Zarr's: strings are gathered.
    fn told(&self, elements: Vec<u8>) -> Result<Vec<u8>> {
        if self.dtype.elem != Elem::Text {
            return Ok(elements);
        }
        let parts: Vec<Option<(u64, u64)>> = elements.chunks_exact(self.dtype.bytes() as usize).map(part_of).collect();
        let end = |(at, len): (u64, u64)| at.saturating_add(len);
        let (from, to) = (
            parts.iter().flatten().map(|part| part.0).min().unwrap_or(0),
            parts.iter().flatten().map(|part| end(*part)).max().unwrap_or(0),
        );
        let sum: u64 = parts.iter().flatten().map(|part| part.1).sum();
        // Strings of a chunk are mostly adjacent.
        let is_dense = to - from <= STRINGS_BYTES_MAX && to - from <= sum.saturating_mul(4) + (1 << 20);
        let mut dense = vec![0; if is_dense { (to - from) as usize } else { 0 }];
        read_heap(&self.core, self.oid, from, &mut dense)?;
        let mut out = (parts.len() as u32).to_le_bytes().to_vec();
        for part in parts {
            let (at, len) = part.unwrap_or((from, 0));
            out.extend_from_slice(&(len as u32).to_le_bytes());
            if is_dense {
                out.extend_from_slice(&dense[(at - from) as usize..][..len as usize]);
                continue;
            }
            if len > STRINGS_BYTES_MAX {
                return Err(Error::new(ErrorKind::LimitExceeded, self.name()).because("a string is too long"));
            }
            let begin = out.len();
            out.resize(begin + len as usize, 0);
            read_heap(&self.core, self.oid, at, &mut out[begin..])?;
        }
        Ok(out)
    }
    /// Length of the bytes that `chunk` would return, without reading them where it is known; `None` if the chunk does
    /// not exist.
    pub fn chunk_len(&self, coords: &[u64]) -> Result<Option<u64>> {
        let Some(own) = self.own_coords(coords) else { return Ok(None) };
        if self.dtype.elem == Elem::Text {
            return Ok(self.chunk(coords)?.map(|bytes| bytes.len() as u64));
        }
        if self.data.chunk.is_none() {
            return Ok(self.data.run_was_written()?.then_some(self.chunk_bytes() as u64));
        }
        let stored = self.data.chunk_bytes(own)?;
        Ok(match self.sharing {
            Sharing::Shared(_) => stored,
            Sharing::Converted(_) => stored.map(|_| self.chunk_bytes() as u64),
        })
    }
    /// Grid coordinates of all existing chunks.
    pub fn chunks(&self) -> Result<Vec<Vec<u64>>> {
        let inner = vec![0; self.dtype.inner.len()];
        let with_inner = |own: Vec<u64>| [&own[..], &inner].concat();
        if self.data.chunk.is_some() {
            return Ok(self.data.chunks()?.into_iter().map(with_inner).collect());
        }
        if !self.data.run_was_written()? {
            return Ok(Vec::new());
        }
        let counts = grid::counts(&self.dims, &self.chunk);
        let all: u64 = counts.iter().product();
        let at = |mut number: u64| {
            let mut coords = vec![0; counts.len()];
            for i in (0..counts.len()).rev() {
                coords[i] = number % counts[i];
                number /= counts[i];
            }
            with_inner(coords)
        };
        Ok((0..all).map(at).collect())
    }

    /// Writes a chunk that Zarr encoded.
    pub fn set_chunk(&self, coords: &[u64], bytes: &[u8]) -> Result<()> {
        let Some(own) = self.own_coords(coords) else {
            return Err(invalid(self.name(), format!("chunk {coords:?} is outside of its shape {:?}", self.shape())));
        };
        if self.dtype.elem == Elem::Text {
            return Err(refused(
                format!("writing a chunk of {}", self.name()),
                "its elements are strings of variable length, which HDF5 keeps apart",
                "write them by HDF5",
            ));
        }
        let is_plain = self.data.pipeline.is_empty() || matches!(self.sharing, Sharing::Converted(_));
        if is_plain && bytes.len() != self.chunk_bytes() {
            let cause = format!("a chunk of {} bytes where {} belong", bytes.len(), self.chunk_bytes());
            return Err(invalid(self.name(), cause));
        }
        if self.data.chunk.is_none() {
            let Some((first, count, _)) = grid::run(&self.dims, &self.chunk, own) else { return Ok(()) };
            let size = self.dtype.bytes();
            return self.data.write_run(first * size, &bytes[..(count * size) as usize]);
        }
        self.data.write_chunk(own, |dims| self.stored(own, dims, bytes))
    }
    /// The stored form of a chunk: everything outside the extent must be fill, on which HDF5 relies when a dataset
    /// grows.
    fn stored(&self, own: &[u64], dims: &[u64], bytes: &[u8]) -> Result<Vec<u8>> {
        let is_shared = matches!(self.sharing, Sharing::Shared(_));
        let is_whole = own.iter().zip(&self.chunk).zip(dims).all(|((x, c), dim)| (x + 1).saturating_mul(*c) <= *dim);
        if is_shared && (is_whole || !self.data.pipeline.is_ours()) {
            // Chunks that only HDF5 can decode are stored unchanged.
            return Ok(bytes.to_vec());
        }
        let mut image = if is_shared { self.plain(bytes.to_vec(), 0)? } else { bytes.to_vec() };
        let changed = !is_whole && self.data.clear_outside(own, dims, &mut image)?;
        if is_shared && !changed {
            return Ok(bytes.to_vec());
        }
        let (stored, left_out) = self.data.pipeline.encode(&image, 0)?;
        if left_out == 0 {
            return Ok(stored);
        }
        Err(Error::new(ErrorKind::Internal, self.name()).because("a filter was left out of a chunk"))
    }
    /// Resets a chunk to its state before anything was written. Returns false if it was in that state.
    pub fn drop_chunk(&self, coords: &[u64]) -> Result<bool> {
        let Some(own) = self.own_coords(coords) else { return Ok(false) };
        if self.data.chunk.is_some() {
            return self.data.drop_chunk(own);
        }
        if self.dtype.elem == Elem::Text {
            return Err(refused(format!("deleting a chunk of {}", self.name()), "HDF5 keeps its strings apart", ""));
        }
        let Some((first, count, _)) = grid::run(&self.dims, &self.chunk, own) else { return Ok(false) };
        if !self.data.run_was_written()? {
            return Ok(false);
        }
        let size = self.dtype.bytes();
        self.data.write_run(first * size, &self.data.blank((count * size) as usize)).map(|()| true)
    }
}
