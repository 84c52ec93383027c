//! Reading and writing virtual datasets, part by part.

use std::sync::Arc;

use cenote::{Error, ErrorKind};

use super::source::Source;
use super::{Virtual, deeper, dims_of, is_numbered, misfit, unlimited};
use crate::data::access::{self, SourceView};
use crate::data::runs::Run;
use crate::data::select::{self, Selection};
use crate::data::{self, Io};
use crate::error::{h5_check, h5_failed, h5_id, quietly};
use crate::ffi::types::{H5D_FILL_VALUE_UNDEFINED, H5S_ALL, H5S_BLOCK, H5S_SELECT_AND, H5S_SELECT_OR, hid_t};
use crate::ffi::{Api, Hid};
use crate::mapping::Mapping;
use crate::object::Dataset;
use crate::selection::Chosen;
use crate::space::Extent;
use crate::value::{self, Stored};
use crate::{Result, blob, dtype};

/// Elements filled at a time.
const FILL_ELEMENTS: usize = 16 << 10;

/// The selections of a call.
struct Selections {
    mem: Hid,
    file: Hid,
    count: u64,
    dims: Vec<u64>,
    /// First and last index in the file along each dimension.
    low: Vec<u64>,
    high: Vec<u64>,
}

/// The part of a call that one source provides or takes.
struct Part {
    source: Arc<Source>,
    mem: Hid,
    file: Hid,
    count: u64,
}

/// Reads; elements without a source get the fill value.
pub fn read(io: &Io<'_>, this: &Virtual, dxpl: hid_t) -> Result<()> {
    let Some((asked, parts)) = prepare(io, this)? else { return Ok(()) };
    deeper(io.dataset, || {
        parts
            .iter()
            .try_for_each(|part| blob::with_file(&part.source.dataset.file, || data::read(&[part.io(io)], dxpl)))
    })?;
    // Counts prove nothing if an element may be in two parts.
    if (this.apart || parts.len() == 1) && parts.iter().map(|part| part.count).sum::<u64>() == asked.count {
        return Ok(());
    }
    fill(io, &asked, &parts)
}

/// Writes; every element must have a source.
pub fn write(io: &Io<'_>, this: &Virtual, dxpl: hid_t) -> Result<()> {
    let Some((asked, parts)) = prepare(io, this)? else { return Ok(()) };
    let mapped: u64 = parts.iter().map(|part| part.count).sum();
    if mapped != asked.count {
        return Err(Error::new(ErrorKind::InvalidInput, io.dataset.name())
            .because(format!(
                "write requested to unmapped portion of virtual dataset: {} elements, of which sources hold {mapped}",
                asked.count
            ))
            .try_next("make the missing sources, or write less"));
    }
    deeper(io.dataset, || {
        parts.iter().try_for_each(|part| {
            let source = &part.source.dataset;
            source.file.need_writable("writing to a source of a virtual dataset")?;
            blob::with_file(&source.file, || data::write(&[part.io(io)], dxpl))
        })
    })
}

impl Part {
    fn io(&self, whole: &Io<'_>) -> Io<'_> {
        Io {
            dataset: &self.source.dataset,
            mem_type: whole.mem_type,
            mem_space: self.mem.get(),
            file_space: self.file.get(),
            buf: whole.buf,
        }
    }
}

/// The selection of a call and the sources' parts of it; `None` if it selects nothing.
fn prepare(io: &Io<'_>, this: &Virtual) -> Result<Option<(Selections, Vec<Part>)>> {
    let Some(asked) = asked(io)? else { return Ok(None) };
    if io.buf.is_null() {
        return Err(Error::new(ErrorKind::InvalidInput, io.dataset.name()).because("no buffer was given"));
    }
    let view = access::view(io.dataset)?;
    let finder = Finder { dataset: io.dataset, this, view: &view, asked: &asked };
    let mut parts = Vec::new();
    for mapping in &this.mappings {
        finder.find(mapping, &mut parts)?;
    }
    Ok(Some((asked, parts)))
}

fn asked(io: &Io<'_>) -> Result<Option<Selections>> {
    let h5 = io.dataset.h5();
    let extent = || Ok((io.dataset.extent()?.dims().to_vec(), io.dataset.extent()?.npoints()));
    // Checks both selections.
    let count = Selection::pair(h5, io.mem_space, io.file_space, extent)?.1.count;
    if count == 0 {
        return Ok(None);
    }
    let copy = |space: hid_t| {
        // SAFETY: the id is a dataspace, which the call above has checked.
        h5_id(h5, "H5Scopy", unsafe { (h5.H5Scopy)(space) })
    };
    let file = if io.file_space == H5S_ALL { io.dataset.extent()?.space(h5)? } else { copy(io.file_space)? };
    let mem = match io.mem_space {
        H5S_ALL => copy(file.get())?,
        H5S_BLOCK => Extent::Simple { dims: vec![count], max: vec![count] }.space(h5)?,
        space => copy(space)?,
    };
    let dims = Extent::of(h5, file.get())?.dims().to_vec();
    let (mut low, mut high) = (vec![0; dims.len()], vec![0; dims.len()]);
    if !dims.is_empty() {
        // SAFETY: the lists have an entry for each dimension.
        let status = unsafe { (h5.H5Sget_select_bounds)(file.get(), low.as_mut_ptr(), high.as_mut_ptr()) };
        h5_check("H5Sget_select_bounds", status)?;
    }
    Ok(Some(Selections { mem, file, count, dims, low, high }))
}

/// Finds the parts of a call.
struct Finder<'a> {
    dataset: &'a Dataset,
    this: &'a Virtual,
    view: &'a SourceView,
    asked: &'a Selections,
}

impl Finder<'_> {
    fn h5(&self) -> &'static Api {
        self.dataset.h5()
    }

    fn source(&self, mapping: &Mapping, number: u64) -> Result<Option<Arc<Source>>> {
        self.this.source(self.dataset, self.view, mapping, number)
    }

    fn find(&self, mapping: &Mapping, parts: &mut Vec<Part>) -> Result<()> {
        if is_numbered(mapping) {
            return self.find_numbered(mapping, parts);
        }
        if !self.may_meet(&mapping.target.chosen) {
            return Ok(());
        }
        if mapping.target.chosen.unlimited().is_some() {
            return self.find_unlimited(mapping, parts);
        }
        let target = self.target(&self.asked.dims, std::slice::from_ref(&mapping.target.chosen))?;
        let open = || self.source(mapping, 0);
        let source_of = |source: &Source| {
            let space = source.dataset.extent()?.space(self.h5())?;
            mapping.source.chosen.apply(self.h5(), space.get()).map_err(|_| misfit(self.dataset, mapping))?;
            Ok(space)
        };
        self.take(mapping, &target, open, source_of, parts)
    }

    /// Finds the part of a source that may grow: as many slices as both sides have.
    fn find_unlimited(&self, mapping: &Mapping, parts: &mut Vec<Part>) -> Result<()> {
        let (Some((dim, along)), Some((source_dim, source_along))) =
            (mapping.target.chosen.unlimited(), mapping.source.chosen.unlimited())
        else {
            return Ok(());
        };
        let Some(source) = self.source(mapping, 0)? else { return Ok(()) };
        let source_dims = source.dataset.extent()?.dims().to_vec();
        let Some(source_end) = source_dims.get(source_dim) else { return Err(misfit(self.dataset, mapping)) };
        let slices = unlimited::slices_below(source_along, *source_end)
            .min(unlimited::slices_below(along, self.asked.dims[dim]));
        if slices == 0 {
            return Ok(());
        }
        let first = |chosen: &Chosen, dim| unlimited::first_slices(dims_of(chosen), dim, slices);
        let target = self.target(&self.asked.dims, &first(&mapping.target.chosen, dim))?;
        let source_of = |_: &Source| self.target(&source_dims, &first(&mapping.source.chosen, source_dim));
        self.take(mapping, &target, || Ok(Some(source.clone())), source_of, parts)
    }

    /// Finds the parts of numbered sources, one per block.
    fn find_numbered(&self, mapping: &Mapping, parts: &mut Vec<Part>) -> Result<()> {
        let Some((dim, along)) = mapping.target.chosen.unlimited() else { return Ok(()) };
        let end = self.asked.high[dim].saturating_add(1);
        let first = unlimited::first_incomplete(along, self.asked.low[dim]);
        for number in first.. {
            let block = unlimited::block(dims_of(&mapping.target.chosen), dim, number);
            if block[dim].start >= end {
                return Ok(());
            }
            let chosen = Chosen::Regular(block);
            if !self.may_meet(&chosen) {
                continue;
            }
            let open = || self.source(mapping, number);
            let target = self.target(&self.asked.dims, std::slice::from_ref(&chosen))?;
            let source_of = |source: &Source| {
                let space = source.dataset.extent()?.space(self.h5())?;
                mapping.source.chosen.apply(self.h5(), space.get()).map_err(|_| misfit(self.dataset, mapping))?;
                self.without_outside(mapping, &chosen, &target, space)
            };
            self.take(mapping, &target, open, source_of, parts)?;
        }
        Ok(())
    }

    /// The part of a numbered source that corresponds to the part of its block inside the extent.
    fn without_outside(&self, mapping: &Mapping, block: &Chosen, inside: &Hid, source: Hid) -> Result<Hid> {
        let ends = block.ends().unwrap_or_default();
        if ends.iter().zip(&self.asked.dims).all(|(end, dim)| end <= dim) {
            return Ok(source);
        }
        let large: Vec<u64> = ends.iter().zip(&self.asked.dims).map(|(end, dim)| *end.max(dim)).collect();
        let whole = Extent::Simple { dims: large.clone(), max: large }.space(self.h5())?;
        block.apply(self.h5(), whole.get())?;
        self.project(mapping, &whole, &source, inside)
    }

    /// Checks cheaply whether a selection of the virtual dataset can intersect the selection of the call.
    fn may_meet(&self, chosen: &Chosen) -> bool {
        let starts = match chosen {
            Chosen::None => return false,
            Chosen::Regular(dims) => dims.iter().map(|along| along.start).collect(),
            _ => vec![0; self.asked.dims.len()],
        };
        let after = starts.iter().zip(&self.asked.high).any(|(start, high)| start > high);
        let before = chosen.ends().is_some_and(|ends| ends.iter().zip(&self.asked.low).any(|(end, low)| end <= low));
        !after && !before
    }

    /// A dataspace with these dimensions and the union of the selections, clipped to the extent.
    fn target(&self, dims: &[u64], chosen: &[Chosen]) -> Result<Hid> {
        let h5 = self.h5();
        let extent = match dims {
            [] => Extent::Scalar,
            dims => Extent::Simple { dims: dims.to_vec(), max: dims.to_vec() },
        };
        let space = extent.space(h5)?;
        let mut inside = true;
        for (i, one) in chosen.iter().enumerate() {
            inside &= one.ends().is_none_or(|ends| ends.iter().zip(dims).all(|(end, dim)| end <= dim));
            if i == 0 {
                one.apply(h5, space.get())?;
                continue;
            }
            let other = extent.space(h5)?;
            one.apply(h5, other.get())?;
            // SAFETY: both are dataspaces with hyperslab selections.
            h5_check("H5Smodify_select", unsafe { (h5.H5Smodify_select)(space.get(), H5S_SELECT_OR, other.get()) })?;
        }
        if !inside {
            let start = vec![0u64; dims.len()];
            // SAFETY: the lists have an entry for each dimension; null means ones.
            let status = unsafe {
                let (none, count, block) = (std::ptr::null(), vec![1u64; dims.len()], dims.as_ptr());
                (h5.H5Sselect_hyperslab)(space.get(), H5S_SELECT_AND, start.as_ptr(), none, count.as_ptr(), block)
            };
            h5_check("H5Sselect_hyperslab", status)?;
        }
        Ok(space)
    }

    /// Adds the part of a source, if the source exists and the call selects any of it.
    fn take(
        &self,
        mapping: &Mapping,
        target: &Hid,
        open: impl FnOnce() -> Result<Option<Arc<Source>>>,
        source_of: impl FnOnce(&Source) -> Result<Hid>,
        parts: &mut Vec<Part>,
    ) -> Result<()> {
        let mem = self.project(mapping, &self.asked.file, &self.asked.mem, target)?;
        let count = self.count(mem.get())?;
        if count == 0 {
            return Ok(());
        }
        let Some(source) = open()? else { return Ok(()) };
        let from = source_of(&source)?;
        let file = self.project(mapping, target, &from, &self.asked.file)?;
        parts.push(Part { source, mem, file, count });
        Ok(())
    }

    /// Maps the elements of `from` that `meets` selects to the corresponding elements of `to`.
    fn project(&self, mapping: &Mapping, from: &Hid, to: &Hid, meets: &Hid) -> Result<Hid> {
        let h5 = self.h5();
        // SAFETY: plain call with dataspaces.
        let id = quietly(h5, || unsafe { (h5.H5Sselect_project_intersection)(from.get(), to.get(), meets.get()) });
        Hid::new(h5, id).ok_or_else(|| misfit(self.dataset, mapping))
    }

    fn count(&self, space: hid_t) -> Result<u64> {
        // SAFETY: a plain query.
        let count = unsafe { (self.h5().H5Sget_select_npoints)(space) };
        u64::try_from(count).map_err(|_| h5_failed("H5Sget_select_npoints"))
    }
}

fn runs_of(h5: &'static Api, space: hid_t) -> Result<Vec<Run>> {
    select::all_runs(&mut *Selection::of(h5, space)?.runs)
}

/// The elements of `runs` that are not in `covered`, which is sorted.
fn outside_of(runs: &[Run], covered: &[Run]) -> Vec<Run> {
    let mut out = Vec::new();
    for run in runs {
        let (mut at, end) = (run.at, run.at + run.count);
        let first = covered.partition_point(|c| c.at + c.count <= at);
        for c in covered[first..].iter().take_while(|c| c.at < end) {
            if c.at > at {
                out.push(Run { at, count: c.at - at });
            }
            at = at.max(c.at + c.count);
        }
        if at < end {
            out.push(Run { at, count: end - at });
        }
    }
    out
}

/// Sorted, disjoint runs with the same elements.
fn joined(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable_by_key(|run| run.at);
    let mut out: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        match out.last_mut() {
            Some(last) if run.at <= last.at + last.count => last.count = last.count.max(run.at + run.count - last.at),
            _ => out.push(run),
        }
    }
    out
}

/// Fills elements that no part has covered.
fn fill(io: &Io<'_>, asked: &Selections, parts: &[Part]) -> Result<()> {
    let (h5, header) = (io.dataset.h5(), &io.dataset.header);
    if header.props.fill_status == H5D_FILL_VALUE_UNDEFINED {
        return Ok(());
    }
    let mut covered = Vec::new();
    for part in parts {
        covered.extend(runs_of(h5, part.mem.get())?);
    }
    let bare = outside_of(&runs_of(h5, asked.mem.get())?, &joined(covered));
    let bytes = dtype::size(h5, io.mem_type)?;
    let room = bytes.checked_mul(FILL_ELEMENTS).ok_or_else(|| h5_failed("H5Tget_size"))?;
    let mut values = vec![0u8; if header.props.fill.is_some() { room } else { 0 }];
    for run in bare {
        let mut at = run.at;
        while at < run.at + run.count {
            let count = (run.at + run.count - at).min(FILL_ELEMENTS as u64) as usize;
            // SAFETY: HDF5's caller promises a buffer for the memory selection, which contains the run.
            let to =
                unsafe { std::slice::from_raw_parts_mut(io.buf.cast::<u8>().add(at as usize * bytes), count * bytes) };
            match &header.props.fill {
                None => to.fill(0),
                Some(one) => {
                    // Each element gets variable-length parts of its own: the program frees them one by one.
                    let many = Stored { elements: one.elements.repeat(count), heap: one.heap.clone() };
                    let dtype = header.dtype.get();
                    value::load(&io.dataset.file, dtype, &many, count, io.mem_type, values.as_mut_ptr().cast())?;
                    to.copy_from_slice(&values[..count * bytes]);
                }
            }
            at += count as u64;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_covered_is_left_over() {
        let run = |at, count| Run { at, count };
        let covered = joined(vec![run(20, 5), run(3, 4), run(5, 4), run(25, 1)]);
        assert_eq!(covered, [run(3, 6), run(20, 6)]);
        assert_eq!(outside_of(&[run(0, 30)], &covered), [run(0, 3), run(9, 11), run(26, 4)]);
        assert_eq!(outside_of(&[run(4, 2), run(22, 10)], &covered), [run(26, 6)]);
        assert_eq!(outside_of(&[run(0, 2)], &[]), [run(0, 2)]);
    }
}
