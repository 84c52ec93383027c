//! Changing the extent of chunked datasets.
//!
//! Whatever lies outside the extent is always fill, also in chunks at the edge. So growing needs no work; shrinking
//! drops the chunks outside and erases the outer part of those at the new edge, all in one transaction.

use std::sync::Arc;

use cenote::{Error, ErrorKind, Transaction};

use super::body::Body;
use super::chunked::{Chunked, fill_bytes};
use super::place::ChunkRecord;
use super::{transfer, virt};
use crate::Result;
use crate::meta;
use crate::object::Dataset;
use crate::props::Layout;
use crate::space::Extent;

/// Changes the extent, see [`super::set_extent`].
pub fn set_extent(dataset: &Dataset, dims: &[u64]) -> Result<()> {
    let state = &dataset.data;
    let bad = |cause: &str| Err(Error::new(ErrorKind::InvalidInput, state.place.name()).because(cause));
    let max = dataset.header.extent.max_dims();
    if dims.len() != max.len() {
        return bad("the new extent has another number of dimensions");
    }
    if matches!(state.body, Body::External(_) | Body::Virtual(_)) {
        return set_plain(dataset, dims);
    }
    let Body::Chunked(chunks) = &state.body else {
        return bad("only chunked datasets can be resized");
    };
    if dims.iter().zip(max).any(|(d, m)| d > m) {
        return bad("dimension cannot exceed the existing maximal size");
    }
    let extent = Extent::Simple { dims: dims.to_vec(), max: max.to_vec() };
    if extent.counted().is_none() {
        return Err(Error::new(ErrorKind::LimitExceeded, state.place.name())
            .because(format!("an extent of {dims:?} has more than 2^64 elements"))
            .try_next("make it smaller"));
    }
    chunks.flush_aside()?;
    let place = &state.place;
    super::geometry::Geometry::new(dims, &chunks.facts.chunk)?;
    place.wait_for_all_others()?;
    let old = meta::extent_get(&place.file, place.oid)?;
    if old.dims().iter().zip(dims).all(|(old, new)| old <= new)
        && (old.dims() == dims || place.file.shared.hold_extent(place.oid, &extent)?)
    {
        return chunks.geometry().map(|_: Arc<_>| ());
    }
    place.file.shared.show_extents(Some(place.oid))?;
    place.transact(|tx| {
        let old = meta::extent_get_in(tx, &place.file, place.oid)?;
        if old.dims() == dims {
            return Ok(());
        }
        if old.dims().iter().zip(dims).any(|(old, new)| new < old) {
            chunks.erase_outside(tx, dims)?;
            let generation = place.count(tx.get(place.index(), &place.generation_key())?.as_deref())? + 1;
            tx.put(place.index(), &place.generation_key(), &generation.to_le_bytes())?;
        }
        meta::extent_put_in(tx, &place.file, place.oid, &extent)
    })?;
    chunks.geometry().map(|_: Arc<_>| ())
}

/// Changes the extent of a dataset whose elements are elsewhere.
fn set_plain(dataset: &Dataset, dims: &[u64]) -> Result<()> {
    let (place, max) = (&dataset.data.place, dataset.header.extent.max_dims());
    let bad = |cause: &str| Err(Error::new(ErrorKind::InvalidInput, place.name()).because(cause));
    if dims.iter().zip(max).any(|(d, m)| d > m) {
        return bad("dimension cannot exceed the existing maximal size");
    }
    if let Layout::Virtual(mappings) = &dataset.header.props.layout
        && dims.iter().zip(virt::least_dims(mappings, dims.len())).any(|(dim, least)| *dim < least)
    {
        return bad("virtual dataset dimensions not large enough to contain all limited dimensions in all selections");
    }
    let extent = Extent::Simple { dims: dims.to_vec(), max: max.to_vec() };
    place.transact(|tx| meta::extent_put_in(tx, &place.file, place.oid, &extent))
}

impl Chunked {
    /// Drops or erases what lies outside `dims`.
    fn erase_outside(&self, tx: &mut Transaction, dims: &[u64]) -> Result<()> {
        let (rank, mut dropped) = (dims.len(), false);
        for record in self.place.index().iter(&self.place.chunk_prefix()) {
            let (key, value) = record?;
            let coords = self.place.chunk_coords(&key, rank)?;
            // The part of the chunk that stays, per dimension.
            let keep: Vec<u64> = (0..rank)
                .map(|i| dims[i].saturating_sub(coords[i].saturating_mul(self.facts.chunk[i])).min(self.facts.chunk[i]))
                .collect();
            let record = self.record(&value)?;
            if keep.contains(&0) {
                tx.del(self.place.index(), &key)?;
                tx.punch(&self.object, self.slot_offset(record.slot)?, record.bytes)?;
                dropped = true;
            } else if keep != self.facts.chunk {
                self.erase_in_chunk(tx, &key, &keep)?;
            }
        }
        if dropped { tx.put(self.place.index(), &self.place.had_key(), &[]) } else { Ok(()) }
    }

    fn erase_in_chunk(&self, tx: &mut Transaction, key: &[u8], keep: &[u64]) -> Result<()> {
        // Read again through the transaction, so that a concurrent writer makes it start again.
        let Some(value) = tx.get(self.place.index(), key)? else { return Ok(()) };
        let record = self.record(&value)?;
        if self.facts.pipeline.is_empty() {
            let offset = self.slot_offset(record.slot)?;
            let mut image = vec![0; self.facts.chunk_bytes as usize];
            let got = tx.read(&self.object, offset, &mut image)?.min(image.len());
            image[got..].fill(0);
            self.erase(&mut image, keep);
            return tx.write(&self.object, offset, &image);
        }
        let mut image = self.load_for_edit(u64::MAX, &record, key)?;
        self.erase(&mut image, keep);
        let (stored, mask) = self.encode(&image)?;
        self.put_chunk(tx, Some(record), key, record.slot, &stored, mask).map(|_| ())
    }

    /// Sets everything of a chunk to fill, except its first `keep` elements along each dimension.
    fn erase(&self, image: &mut [u8], keep: &[u64]) {
        erase(image, &self.facts.chunk, keep, self.facts.element_bytes, self.facts.fill.as_deref());
    }

    /// Copies every chunk, stored bytes and record, to another dataset with an equal header.
    pub(super) fn copy_to(&self, to: &Self) -> Result<()> {
        self.flush_aside()?;
        let rank = self.facts.chunk.len();
        for record in self.place.index().iter(&self.place.chunk_prefix()) {
            let (key, value) = record?;
            let coords = self.place.chunk_coords(&key, rank)?;
            let record: ChunkRecord = self.record(&value)?;
            let mut bytes = vec![0; record.bytes as usize];
            transfer::read_range(&self.object, self.slot_offset(record.slot)?, &mut bytes)?;
            let mut tx = to.place.store().begin();
            tx.write(&to.object, to.slot_offset(record.slot)?, &bytes)?;
            tx.put(to.place.index(), &to.place.chunk_key(&coords), &value)?;
            tx.commit()?;
        }
        Ok(())
    }
}

/// Erases the outer part of a chunk, see [`Chunked::erase`].
pub(super) fn erase(image: &mut [u8], chunk: &[u64], keep: &[u64], size: usize, fill: Option<&[u8]>) {
    let row = chunk[chunk.len() - 1] as usize * size;
    for (number, bytes) in image.chunks_exact_mut(row).enumerate() {
        let mut rest = number as u64;
        let inside = (0..chunk.len() - 1).rev().all(|i| {
            let x = rest % chunk[i];
            rest /= chunk[i];
            x < keep[i]
        });
        let from = if inside { keep[chunk.len() - 1] as usize * size } else { 0 };
        fill_bytes(&mut bytes[from..], fill);
    }
}
