//! Transfers for another thread: elements without conversion, in a layout that needs nothing of libhdf5.
//!
//! What only libhdf5 knows (selections, types, transfer properties) is asked in advance.

use std::sync::Arc;

use super::Io;
use super::body::{Body, DatasetState};
use super::io::{Options, Types, extent, types};
use super::memory::Memory;
use super::runs::{Pair, Zip};
use super::select::Selection;
use super::transform;
use crate::Result;
use crate::ffi::types::hid_t;

/// Most pairs of a transfer laid out in advance.
const PAIRS_MAX: usize = 64 << 10;

/// Direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To memory.
    Read,
    /// From memory.
    Write,
}

/// A transfer laid out in advance.
pub struct Later {
    direction: Direction,
    pieces: Vec<Piece>,
    skip_checksums: bool,
}

struct Piece {
    state: Arc<DatasetState>,
    pairs: Vec<Pair>,
    dims: Vec<u64>,
    apart: bool,
    user: Memory,
}

// SAFETY: the program promises that its buffer stays, and is left alone, until it has waited for the transfer.
unsafe impl Send for Piece {}

/// Lays a transfer out; `None` if another thread cannot carry it out.
pub fn later(parts: &[Io<'_>], dxpl: hid_t, direction: Direction) -> Result<Option<Later>> {
    let Some(first) = parts.first() else { return Ok(None) };
    let h5 = first.dataset.h5();
    if transform::is_asked(h5, dxpl) {
        return Ok(None);
    }
    let options = Options::of(h5, dxpl);
    let mut pieces = Vec::with_capacity(parts.len());
    for io in parts {
        let state = &io.dataset.data;
        if io.buf.is_null() || !is_ours_alone(&state.body) || !matches!(types(io)?, Types::Same) {
            return Ok(None);
        }
        let (mut mem, mut file) = Selection::pair(h5, io.mem_space, io.file_space, || extent(io))?;
        let (apart, dims) = (mem.distinct, std::mem::take(&mut file.dims));
        let mut pairs = Vec::new();
        let count = Zip::new(&mut *mem.runs, &mut *file.runs).fill(&mut pairs, u64::MAX, PAIRS_MAX)?;
        if count < file.count {
            return Ok(None);
        }
        // SAFETY: HDF5's caller promises a buffer for the memory selection, which was checked against its extent.
        let user = unsafe { Memory::new(io.buf.cast(), state.element_bytes) };
        pieces.push(Piece { state: state.clone(), pairs, dims, apart, user });
    }
    Ok(Some(Later { direction, pieces, skip_checksums: options.skip_checksums }))
}

/// Returns true if stored elements are read and written without a call of libhdf5.
fn is_ours_alone(body: &Body) -> bool {
    match body {
        Body::Plain { .. } => true,
        Body::Blocks { chunks, .. } | Body::Chunked(chunks) => chunks.facts.native.is_none(),
        _ => false,
    }
}

impl Later {
    /// Carries out the transfer.
    pub fn run(self) -> Result<()> {
        for piece in self.pieces.iter().filter(|piece| !piece.pairs.is_empty()) {
            let Piece { state, pairs, dims, apart, user } = piece;
            match self.direction {
                Direction::Read => state.read(pairs, dims, *user, *apart, self.skip_checksums)?,
                Direction::Write => {
                    state.write(pairs, dims, *user)?;
                    state.show_extent()?;
                }
            }
        }
        Ok(())
    }
}
