//! Virtual datasets: their elements are elements of other datasets.
//!
//! HDF5 itself projects the selections of a mapping (in the virtual dataset and in its source) onto the selection of a call
//! (`H5Sselect_project_intersection`). Each source is then read or written like any dataset, with the program's memory type
//! and buffer. This module must not know where the store keeps the sources.

mod io;
mod name;
mod source;
mod unlimited;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use cenote::{Error, ErrorKind};
use parking_lot::Mutex;

use crate::Result;
use crate::mapping::Mapping;
use crate::meta;
use crate::object::{Dataset, DatasetHeader};
use crate::props::Layout;
use crate::selection::{Along, Chosen, Corners};
use crate::space::Extent;

use super::access::{self, SourceView};
use source::{Source, Sources};

pub use io::{read, write};

/// Deepest nesting of virtual datasets as sources of virtual datasets: a cycle must end.
const DEPTH_MAX: u32 = 32;

/// Most mappings that are compared pairwise.
const PAIRS_MAX: usize = 256;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// State of an open virtual dataset.
pub struct Virtual {
    mappings: Vec<Mapping>,
    /// True if no two mappings can share an element.
    apart: bool,
    sources: Sources,
    /// By mapping: numbered sources below this are known to exist, or to be gaps.
    known: Mutex<HashMap<usize, u64>>,
}

impl Virtual {
    /// A virtual dataset with these mappings.
    pub fn new(mappings: &[Mapping]) -> Self {
        Self {
            mappings: mappings.to_vec(),
            apart: are_apart(mappings),
            sources: Sources::default(),
            known: Mutex::default(),
        }
    }

    /// Stores what sources buffer.
    pub fn flush(&self) -> Result<()> {
        self.sources.all().iter().try_for_each(|source| source.dataset.data.flush())
    }

    /// Forgets the sources: the next call looks for them again.
    pub fn refresh(&self) {
        self.sources.clear();
        self.known.lock().clear();
    }
}

/// Runs `act`, which may reach another virtual dataset.
fn deeper<T>(dataset: &Dataset, act: impl FnOnce() -> Result<T>) -> Result<T> {
    struct Up;
    impl Drop for Up {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }
    if DEPTH.get() >= DEPTH_MAX {
        return Err(Error::new(ErrorKind::LimitExceeded, dataset.name())
            .because(format!("virtual datasets are nested more than {DEPTH_MAX} deep: one may be its own source")));
    }
    DEPTH.set(DEPTH.get() + 1);
    let _up = Up;
    act()
}

/// Refuses mappings that HDF5 refuses for a new virtual dataset.
pub fn check(header: &DatasetHeader) -> Result<()> {
    let Layout::Virtual(mappings) = &header.props.layout else { return Ok(()) };
    let least = least_dims(mappings, header.extent.dims().len());
    if header.extent.dims().iter().zip(&least).any(|(dim, least)| dim < least) {
        return Err(Error::new(ErrorKind::InvalidInput, "a new dataset").because(
            "virtual dataset dimensions not large enough to contain all limited dimensions in all selections",
        ));
    }
    let rank = header.extent.dims().len();
    let fits = |mapping: &Mapping| mapping.target.extent.dims().len() == rank;
    if !mappings.iter().all(fits) {
        return Err(Error::new(ErrorKind::InvalidInput, "a new dataset")
            .because("a mapping's virtual dataspace has another number of dimensions"));
    }
    Ok(())
}

/// The smallest extent that holds the mappings' selections along their limited dimensions.
pub fn least_dims(mappings: &[Mapping], rank: usize) -> Vec<u64> {
    let mut least = vec![0; rank];
    for ends in mappings.iter().filter_map(|mapping| mapping.target.chosen.ends()) {
        for (least, end) in least.iter_mut().zip(ends).filter(|(_, end)| *end != u64::MAX) {
            *least = end.max(*least);
        }
    }
    least
}

/// The extent of a virtual dataset; along dimensions that are unlimited in a mapping, its sources determine it.
pub fn extent(dataset: &Dataset, this: &Virtual) -> Result<Extent> {
    let stored = meta::extent_get(&dataset.file, dataset.oid)?;
    let Extent::Simple { mut dims, max } = stored else { return Ok(stored) };
    if this.mappings.iter().all(|mapping| mapping.target.chosen.unlimited().is_none()) {
        return Ok(Extent::Simple { dims, max });
    }
    let view = access::view(dataset)?;
    let mut found: Vec<Option<u64>> = vec![None; dims.len()];
    deeper(dataset, || {
        for (number, mapping) in this.mappings.iter().enumerate() {
            let Some((dim, along)) = mapping.target.chosen.unlimited() else { continue };
            let end = this.end(dataset, &view, number, along)?;
            found[dim] = Some(match found[dim] {
                None => end,
                Some(other) if view.first_missing => end.min(other),
                Some(other) => end.max(other),
            });
        }
        Ok(())
    })?;
    let least = least_dims(&this.mappings, dims.len());
    for (i, end) in found.into_iter().enumerate() {
        if let Some(end) = end {
            dims[i] = end.max(least[i]).min(max[i]);
        }
    }
    Ok(Extent::Simple { dims, max })
}

impl Virtual {
    /// Opens the source of block `number` of a mapping; an only source has number 0.
    fn source(&self, of: &Dataset, view: &SourceView, mapping: &Mapping, number: u64) -> Result<Option<Arc<Source>>> {
        let (file, dataset) = (name::of_block(&mapping.file, number), name::of_block(&mapping.dataset, number));
        self.sources.get(of, view, &file, &dataset)
    }

    /// The end of a mapping's sources along the unlimited dimension of its target.
    fn end(&self, dataset: &Dataset, view: &SourceView, number: usize, along: Along) -> Result<u64> {
        let mapping = &self.mappings[number];
        if let Some((dim, source_along)) = mapping.source.chosen.unlimited() {
            let Some(source) = self.source(dataset, view, mapping, 0)? else { return Ok(0) };
            let dims = source.dataset.extent()?.dims().to_vec();
            let Some(end) = dims.get(dim) else { return Err(misfit(dataset, mapping)) };
            let slices = unlimited::slices_below(source_along, *end);
            return Ok(unlimited::extent_of(along, slices, view.first_missing));
        }
        let mut after_last = self.known.lock().get(&number).copied().unwrap_or(0);
        let mut next = after_last;
        while next - after_last <= view.gap {
            let (file, name) = (name::of_block(&mapping.file, next), name::of_block(&mapping.dataset, next));
            if source::find(dataset, view, &file, &name)?.is_some() {
                after_last = next + 1;
            }
            next += 1;
        }
        self.known.lock().insert(number, after_last);
        Ok(match after_last {
            0 => 0,
            n if view.first_missing => along.start.saturating_add(n.saturating_mul(along.stride)),
            n => along.start.saturating_add((n - 1).saturating_mul(along.stride)).saturating_add(along.block),
        })
    }
}

/// Returns true if a cheap test shows that no two mappings share an element.
fn are_apart(mappings: &[Mapping]) -> bool {
    let chosen = || mappings.iter().map(|mapping| &mapping.target.chosen).filter(|chosen| **chosen != Chosen::None);
    let Some(boxes) = chosen().map(Chosen::bounds).collect::<Option<Vec<Corners>>>() else {
        return chosen().count() <= 1;
    };
    let rank = boxes.first().map_or(0, |(low, _)| low.len());
    // Most are stacked along one dimension.
    let stacked = (0..rank).any(|dim| {
        let mut ranges: Vec<(u64, u64)> = boxes.iter().map(|(low, end)| (low[dim], end[dim])).collect();
        ranges.sort_unstable();
        ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0)
    });
    let apart = |a: &Corners, b: &Corners| (0..rank).any(|dim| a.1[dim] <= b.0[dim] || b.1[dim] <= a.0[dim]);
    let pairs_apart = || boxes.iter().enumerate().all(|(i, a)| boxes[i + 1..].iter().all(|b| apart(a, b)));
    stacked || boxes.len() <= PAIRS_MAX && pairs_apart()
}

/// Returns true if the mapping's sources are numbered.
fn is_numbered(mapping: &Mapping) -> bool {
    mapping.target.chosen.unlimited().is_some() && mapping.source.chosen.unlimited().is_none()
}

/// The dimensions of a regular selection.
fn dims_of(chosen: &Chosen) -> &[Along] {
    if let Chosen::Regular(dims) = chosen { dims } else { &[] }
}

fn misfit(dataset: &Dataset, mapping: &Mapping) -> Error {
    let source = String::from_utf8_lossy(&mapping.dataset);
    Error::new(ErrorKind::InvalidInput, dataset.name())
        .because(format!("its source {source} has another shape than the mapping says"))
        .try_next("make the virtual dataset anew")
}
