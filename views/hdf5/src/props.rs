//! Creation properties of datasets, groups, datatypes and files, in our own encoding: an older libhdf5 cannot read
//! HDF5's encoded property lists, and several versions share one file here.

use std::ffi::{c_int, c_uint};
use std::sync::{Arc, OnceLock};

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::error::{h5_check, h5_id, unsupported};
use crate::ffi::entry::SLOTS_MAX;
use crate::ffi::types::{
    H5D_ALLOC_TIME_INCR, H5D_ALLOC_TIME_LATE, H5D_CHUNKED, H5D_COMPACT, H5D_CONTIGUOUS, H5D_FILL_TIME_IFSET,
    H5D_FILL_VALUE_DEFAULT, H5D_FILL_VALUE_UNDEFINED, H5D_FILL_VALUE_USER_DEFINED, H5D_VIRTUAL, hid_t,
};
use crate::ffi::{Api, Hid};
use crate::file::File;
use crate::mapping::{self, Mapping, Segment};
use crate::meta::bytes::{Encode, Reader};
use crate::value::{self, Stored};

/// Most dimensions of a dataset.
const RANK_MAX: usize = 32;

/// The layout of a dataset's raw data, as requested by the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Small data inside the header (here: like contiguous).
    Compact,
    /// One run.
    Contiguous,
    /// Chunks of this shape.
    Chunked(Vec<u64>),
    /// Parts of other datasets.
    Virtual(Vec<Mapping>),
    /// One run, in external files.
    External(Vec<Segment>),
}

impl Layout {
    /// Returns true if a dataset's current dimensions can change; then they have their own record.
    pub fn is_resizable(&self) -> bool {
        !matches!(self, Self::Compact | Self::Contiguous)
    }
    /// The layout's name.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Contiguous => "contiguous",
            Self::Chunked(_) => "chunked",
            Self::Virtual(_) => "virtual",
            Self::External(_) => "in external files",
        }
    }
}

/// A filter of the chunk pipeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// HDF5's number of the filter (1 deflate, 2 shuffle, 3 fletcher32, …).
    pub id: i32,
    /// Bit 0: optional (if it fails, the chunk is stored without it).
    pub flags: u32,
    /// Parameters.
    pub params: Vec<u32>,
    /// Name.
    pub name: String,
}

/// Properties common to all objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectProps {
    /// Record times.
    pub track_times: bool,
    /// Bit 0: attribute creation order is tracked, bit 1: indexed.
    pub attr_order: u32,
    /// Kept only to be returned: where native files change from compact to dense storage.
    pub attr_phase: (u32, u32),
}

/// Creation properties of a group, or of a file's root group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupProps {
    /// Properties common to all objects.
    pub object: ObjectProps,
    /// Bit 0: link creation order is tracked, bit 1: indexed.
    pub link_order: u32,
    /// Kept only to be returned.
    pub link_phase: (u32, u32),
    /// Kept only to be returned.
    pub est_link_info: (u32, u32),
    /// Kept only to be returned.
    pub heap_size_hint: u64,
}

/// Creation properties of a dataset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatasetProps {
    /// Properties common to all objects.
    pub object: ObjectProps,
    /// Layout.
    pub layout: Layout,
    /// Bit 0 of the chunk options: do not filter partial edge chunks.
    pub chunk_opts: u32,
    /// Filters in writing order.
    pub filters: Vec<Filter>,
    /// `H5D_FILL_VALUE_*`.
    pub fill_status: i32,
    /// The fill value as one element of the dataset's type, if user-defined; [`crate::value::load`] converts it to
    /// any memory type.
    pub fill: Option<Stored>,
    /// `H5D_FILL_TIME_*`.
    pub fill_time: i32,
    /// `H5D_ALLOC_TIME_*`.
    pub alloc_time: i32,
    /// True if the program set that time itself. Native files do not store this, so only the handle that made a
    /// dataset knows when it is the layout's default time.
    pub alloc_chosen: bool,
}

impl ObjectProps {
    /// HDF5's defaults.
    pub fn defaults() -> Self {
        Self { track_times: false, attr_order: 0, attr_phase: (8, 6) }
    }
    /// Reads them from a property list.
    pub fn of(h5: &'static Api, plist: hid_t) -> Result<Self> {
        let (mut track_times, mut attr_order, mut phase) = (true, 0, (8, 6));
        // SAFETY: the places are valid; the list is an object creation property list.
        unsafe {
            h5_check("H5Pget_obj_track_times", (h5.H5Pget_obj_track_times)(plist, &raw mut track_times))?;
            h5_check("H5Pget_attr_creation_order", (h5.H5Pget_attr_creation_order)(plist, &raw mut attr_order))?;
            h5_check(
                "H5Pget_attr_phase_change",
                (h5.H5Pget_attr_phase_change)(plist, &raw mut phase.0, &raw mut phase.1),
            )?;
        }
        Ok(Self { track_times, attr_order, attr_phase: phase })
    }
    fn apply(&self, h5: &'static Api, plist: hid_t) -> Result<()> {
        // SAFETY: plain calls with values that came from the same functions.
        unsafe {
            h5_check("H5Pset_obj_track_times", (h5.H5Pset_obj_track_times)(plist, self.track_times))?;
            h5_check("H5Pset_attr_creation_order", (h5.H5Pset_attr_creation_order)(plist, self.attr_order))?;
            h5_check(
                "H5Pset_attr_phase_change",
                (h5.H5Pset_attr_phase_change)(plist, self.attr_phase.0, self.attr_phase.1),
            )?;
        }
        Ok(())
    }
    /// A property list of `class` with these properties.
    pub fn plist(&self, h5: &'static Api, class: hid_t) -> Result<Hid> {
        let plist = new_plist(h5, class)?;
        self.apply(h5, plist.get())?;
        Ok(plist)
    }
    /// Appends the encoding.
    pub fn encode(&self, w: &mut Vec<u8>) {
        w.put_u8(u8::from(self.track_times));
        w.put_u32(self.attr_order);
        w.put_u32(self.attr_phase.0);
        w.put_u32(self.attr_phase.1);
    }
    /// Reads an encoding.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { track_times: r.u8()? != 0, attr_order: r.u32()?, attr_phase: (r.u32()?, r.u32()?) })
    }
}

fn new_plist(h5: &'static Api, class: hid_t) -> Result<Hid> {
    // SAFETY: a plain call.
    h5_id(h5, "H5Pcreate", unsafe { (h5.H5Pcreate)(class) })
}

impl GroupProps {
    /// HDF5's defaults.
    pub fn defaults() -> Self {
        Self {
            object: ObjectProps::defaults(),
            link_order: 0,
            link_phase: (8, 6),
            est_link_info: (4, 8),
            heap_size_hint: 0,
        }
    }
    /// Reads them from a group or file creation property list.
    pub fn of(h5: &'static Api, plist: hid_t) -> Result<Self> {
        static DEFAULTS: [OnceLock<GroupProps>; SLOTS_MAX] = [const { OnceLock::new() }; SLOTS_MAX];
        if plist != h5.H5P_LST_GROUP_CREATE_ID_g() {
            return Self::asked(h5, plist);
        }
        let defaults = &DEFAULTS[h5.slot];
        if let Some(known) = defaults.get() {
            return Ok(known.clone());
        }
        let found = Self::asked(h5, plist)?;
        Ok(defaults.get_or_init(|| found).clone())
    }
    fn asked(h5: &'static Api, plist: hid_t) -> Result<Self> {
        let mut out = Self {
            object: ObjectProps::of(h5, plist)?,
            link_order: 0,
            link_phase: (8, 6),
            est_link_info: (4, 8),
            heap_size_hint: 0,
        };
        let mut hint = 0usize;
        // SAFETY: the places are valid; the list has group creation properties.
        unsafe {
            h5_check("H5Pget_link_creation_order", (h5.H5Pget_link_creation_order)(plist, &raw mut out.link_order))?;
            h5_check(
                "H5Pget_link_phase_change",
                (h5.H5Pget_link_phase_change)(plist, &raw mut out.link_phase.0, &raw mut out.link_phase.1),
            )?;
            h5_check(
                "H5Pget_est_link_info",
                (h5.H5Pget_est_link_info)(plist, &raw mut out.est_link_info.0, &raw mut out.est_link_info.1),
            )?;
            h5_check("H5Pget_local_heap_size_hint", (h5.H5Pget_local_heap_size_hint)(plist, &raw mut hint))?;
        }
        out.heap_size_hint = hint as u64;
        Ok(out)
    }
    /// A property list of `class` (group or file creation) with these properties.
    pub fn plist(&self, h5: &'static Api, class: hid_t) -> Result<Hid> {
        let plist = self.object.plist(h5, class)?;
        // SAFETY: plain calls with values that came from the same functions.
        unsafe {
            h5_check("H5Pset_link_creation_order", (h5.H5Pset_link_creation_order)(plist.get(), self.link_order))?;
            h5_check(
                "H5Pset_link_phase_change",
                (h5.H5Pset_link_phase_change)(plist.get(), self.link_phase.0, self.link_phase.1),
            )?;
            h5_check(
                "H5Pset_est_link_info",
                (h5.H5Pset_est_link_info)(plist.get(), self.est_link_info.0, self.est_link_info.1),
            )?;
            h5_check(
                "H5Pset_local_heap_size_hint",
                (h5.H5Pset_local_heap_size_hint)(plist.get(), self.heap_size_hint as usize),
            )?;
        }
        Ok(plist)
    }
    /// Appends the encoding.
    pub fn encode(&self, w: &mut Vec<u8>) {
        self.object.encode(w);
        w.put_u32(self.link_order);
        w.put_u32(self.link_phase.0);
        w.put_u32(self.link_phase.1);
        w.put_u32(self.est_link_info.0);
        w.put_u32(self.est_link_info.1);
        w.put_u64(self.heap_size_hint);
    }
    /// Reads an encoding.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            object: ObjectProps::decode(r)?,
            link_order: r.u32()?,
            link_phase: (r.u32()?, r.u32()?),
            est_link_info: (r.u32()?, r.u32()?),
            heap_size_hint: r.u64()?,
        })
    }
}

/// Root-group properties and user-block size of a file creation property list.
pub fn file_props(h5: &'static Api, fcpl: hid_t) -> Result<(GroupProps, u64)> {
    let mut userblock = 0;
    // SAFETY: the place is valid.
    h5_check("H5Pget_userblock", unsafe { (h5.H5Pget_userblock)(fcpl, &raw mut userblock) })?;
    Ok((GroupProps::of(h5, fcpl)?, userblock))
}

impl DatasetProps {
    /// HDF5's defaults for a layout, with filters and a fill value (an element in stored form without
    /// variable-length parts).
    pub fn defaults(layout: Layout, filters: Vec<Filter>, fill: Option<Vec<u8>>) -> Self {
        let alloc_time = if matches!(layout, Layout::Chunked(_)) { H5D_ALLOC_TIME_INCR } else { H5D_ALLOC_TIME_LATE };
        Self {
            object: ObjectProps::defaults(),
            layout,
            chunk_opts: 0,
            filters,
            fill_status: if fill.is_some() { H5D_FILL_VALUE_USER_DEFINED } else { H5D_FILL_VALUE_DEFAULT },
            fill: fill.map(|elements| Stored { elements, heap: Vec::new() }),
            fill_time: H5D_FILL_TIME_IFSET,
            alloc_time,
            alloc_chosen: false,
        }
    }
    /// Reads them from a dataset creation property list, for a dataset of type `dtype`.
    pub fn of(file: &Arc<File>, plist: hid_t, dtype: hid_t) -> Result<Self> {
        // HDF5 looks up each property by name, so the default list, which holds no fill value, is read once.
        static DEFAULTS: [OnceLock<DatasetProps>; SLOTS_MAX] = [const { OnceLock::new() }; SLOTS_MAX];
        if plist != file.h5.H5P_LST_DATASET_CREATE_ID_g() {
            return Self::asked(file, plist, dtype);
        }
        let defaults = &DEFAULTS[file.h5.slot];
        if let Some(known) = defaults.get() {
            return Ok(known.clone());
        }
        let found = Self::asked(file, plist, dtype)?;
        Ok(defaults.get_or_init(|| found).clone())
    }
    fn asked(file: &Arc<File>, plist: hid_t, dtype: hid_t) -> Result<Self> {
        let h5 = file.h5;
        let (mut fill_status, mut fill_time, mut alloc_time) = (0, 0, 0);
        // SAFETY: the places are valid; the list is a dataset creation property list.
        unsafe {
            h5_check("H5Pfill_value_defined", (h5.H5Pfill_value_defined)(plist, &raw mut fill_status))?;
            h5_check("H5Pget_fill_time", (h5.H5Pget_fill_time)(plist, &raw mut fill_time))?;
            h5_check("H5Pget_alloc_time", (h5.H5Pget_alloc_time)(plist, &raw mut alloc_time))?;
        }
        let (layout, chunk_opts) = layout_of(h5, plist)?;
        let mut is_default: c_uint = 1;
        // SAFETY: the property is of this size.
        unsafe { (h5.H5Pget)(plist, c"alloc_time_state".as_ptr(), (&raw mut is_default).cast()) };
        let fill = if fill_status == H5D_FILL_VALUE_USER_DEFINED { Some(fill_of(file, plist, dtype)?) } else { None };
        Ok(Self {
            object: ObjectProps::of(h5, plist)?,
            layout,
            chunk_opts,
            filters: filters_of(h5, plist)?,
            fill_status,
            fill,
            fill_time,
            alloc_time,
            alloc_chosen: is_default == 0,
        })
    }
    /// A property list with these properties, for a dataset of type `dtype`.
    pub fn plist(&self, file: &Arc<File>, dtype: hid_t) -> Result<Hid> {
        let h5 = file.h5;
        let plist = self.object.plist(h5, h5.H5P_CLS_DATASET_CREATE_ID_g())?;
        let id = plist.get();
        // SAFETY: plain calls with values that came from the same functions; arrays have the lengths given.
        unsafe {
            match &self.layout {
                Layout::Compact => h5_check("H5Pset_layout", (h5.H5Pset_layout)(id, H5D_COMPACT))?,
                Layout::Contiguous => h5_check("H5Pset_layout", (h5.H5Pset_layout)(id, H5D_CONTIGUOUS))?,
                Layout::Chunked(dims) => {
                    h5_check("H5Pset_chunk", (h5.H5Pset_chunk)(id, dims.len() as c_int, dims.as_ptr()))?;
                    h5_check("H5Pset_chunk_opts", (h5.H5Pset_chunk_opts)(id, self.chunk_opts))?
                }
                Layout::Virtual(mappings) => mapping::put_mappings(h5, id, mappings).map(|()| 0)?,
                Layout::External(segments) => mapping::put_segments(h5, id, segments).map(|()| 0)?,
            };
            for f in &self.filters {
                h5_check("H5Pset_filter", (h5.H5Pset_filter)(id, f.id, f.flags, f.params.len(), f.params.as_ptr()))?;
            }
            h5_check("H5Pset_fill_time", (h5.H5Pset_fill_time)(id, self.fill_time))?;
            let mut defaults = 0;
            h5_check("H5Pget_alloc_time", (h5.H5Pget_alloc_time)(id, &raw mut defaults))?;
            if self.alloc_chosen || self.alloc_time != defaults {
                h5_check("H5Pset_alloc_time", (h5.H5Pset_alloc_time)(id, self.alloc_time))?;
            }
            if self.fill_status == H5D_FILL_VALUE_UNDEFINED {
                h5_check("H5Pset_fill_value", (h5.H5Pset_fill_value)(id, dtype, std::ptr::null()))?;
            }
            if let Some(fill) = &self.fill {
                let mut buf = vec![0u8; (h5.H5Tget_size)(dtype).max(1)];
                value::load(file, dtype, fill, 1, dtype, buf.as_mut_ptr().cast())?;
                let status = (h5.H5Pset_fill_value)(id, dtype, buf.as_ptr().cast());
                value::reclaim(h5, dtype, buf.as_mut_ptr().cast());
                h5_check("H5Pset_fill_value", status)?;
            }
        }
        Ok(plist)
    }
    /// Appends the encoding.
    pub fn encode(&self, w: &mut Vec<u8>) {
        self.object.encode(w);
        match &self.layout {
            Layout::Compact => w.put_u8(0),
            Layout::Contiguous => w.put_u8(1),
            Layout::Chunked(dims) => {
                w.put_u8(2);
                w.put_u8(dims.len() as u8);
                for d in dims {
                    w.put_u64(*d);
                }
            }
            Layout::Virtual(mappings) => {
                w.put_u8(3);
                w.put_u32(mappings.len() as u32);
                for mapping in mappings {
                    mapping.encode(w);
                }
            }
            Layout::External(segments) => {
                w.put_u8(4);
                w.put_u32(segments.len() as u32);
                for segment in segments {
                    segment.encode(w);
                }
            }
        }
        w.put_u32(self.chunk_opts);
        w.put_u16(self.filters.len() as u16);
        for f in &self.filters {
            w.put_u32(f.id as u32);
            w.put_u32(f.flags);
            w.put_u16(f.params.len() as u16);
            for p in &f.params {
                w.put_u32(*p);
            }
            w.put_bytes(f.name.as_bytes());
        }
        w.put_u32(self.fill_status as u32);
        w.put_u32(self.fill_time as u32);
        w.put_u32(self.alloc_time as u32);
        match &self.fill {
            None => w.put_u8(0),
            Some(fill) => {
                w.put_u8(1);
                fill.encode(w);
            }
        }
    }
    /// Reads an encoding.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let object = ObjectProps::decode(r)?;
        let layout = match r.u8()? {
            0 => Layout::Compact,
            1 => Layout::Contiguous,
            2 => {
                let rank = r.u8()?;
                Layout::Chunked((0..rank).map(|_| r.u64()).collect::<Result<_>>()?)
            }
            3 => {
                let count = r.u32()?;
                Layout::Virtual((0..count).map(|_| Mapping::decode(r)).collect::<Result<_>>()?)
            }
            4 => {
                let count = r.u32()?;
                Layout::External((0..count).map(|_| Segment::decode(r)).collect::<Result<_>>()?)
            }
            _ => return Err(r.malformed("dataset of an unknown layout")),
        };
        let chunk_opts = r.u32()?;
        let count = r.u16()?;
        let mut filters = Vec::new();
        for _ in 0..count {
            let (id, flags, n) = (r.u32()? as i32, r.u32()?, r.u16()?);
            let params = (0..n).map(|_| r.u32()).collect::<Result<_>>()?;
            filters.push(Filter { id, flags, params, name: r.text()? });
        }
        let (fill_status, fill_time, alloc_time) = (r.u32()? as i32, r.u32()? as i32, r.u32()? as i32);
        let fill = if r.u8()? == 0 { None } else { Some(Stored::decode(r)?) };
        Ok(Self { object, layout, chunk_opts, filters, fill_status, fill, fill_time, alloc_time, alloc_chosen: false })
    }
}

fn layout_of(h5: &'static Api, plist: hid_t) -> Result<(Layout, u32)> {
    // SAFETY: the list is a dataset creation property list; the array has the length given.
    unsafe {
        match h5_check("H5Pget_layout", (h5.H5Pget_layout)(plist))? {
            H5D_COMPACT => Ok((Layout::Compact, 0)),
            H5D_CONTIGUOUS => {
                let segments = mapping::segments_of(h5, plist)?;
                Ok((if segments.is_empty() { Layout::Contiguous } else { Layout::External(segments) }, 0))
            }
            H5D_CHUNKED => {
                if h5_check("H5Pget_external_count", (h5.H5Pget_external_count)(plist))? > 0 {
                    return Err(Error::new(ErrorKind::InvalidInput, "dataset layout")
                        .because("external storage not supported with chunked layout"));
                }
                let mut dims = vec![0u64; RANK_MAX];
                let rank = h5_check("H5Pget_chunk", (h5.H5Pget_chunk)(plist, RANK_MAX as c_int, dims.as_mut_ptr()))?;
                dims.truncate(rank as usize);
                let mut opts = 0;
                h5_check("H5Pget_chunk_opts", (h5.H5Pget_chunk_opts)(plist, &raw mut opts))?;
                Ok((Layout::Chunked(dims), opts))
            }
            H5D_VIRTUAL => Ok((Layout::Virtual(mapping::mappings_of(h5, plist)?), 0)),
            other => {
                Err(Error::new(ErrorKind::InvalidInput, "dataset layout").because(format!("layout {other} is unknown")))
            }
        }
    }
}

/// The filters of a dataset creation property list.
pub fn filters_of(h5: &'static Api, plist: hid_t) -> Result<Vec<Filter>> {
    // SAFETY: the list is a dataset creation property list.
    let count = h5_check("H5Pget_nfilters", unsafe { (h5.H5Pget_nfilters)(plist) })?;
    let mut out = Vec::new();
    for i in 0..count {
        let mut params = vec![0u32; 256];
        let mut name = [0u8; 256];
        let (mut flags, mut n, mut config) = (0, params.len(), 0);
        // SAFETY: the arrays have the lengths given.
        let id = h5_check("H5Pget_filter2", unsafe {
            (h5.H5Pget_filter2)(
                plist,
                i as u32,
                &raw mut flags,
                &raw mut n,
                params.as_mut_ptr(),
                name.len(),
                name.as_mut_ptr().cast(),
                &raw mut config,
            )
        })?;
        if n > params.len() {
            return Err(unsupported(format!("filter {id} with {n} parameters"), "use at most 256"));
        }
        params.truncate(n);
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        out.push(Filter { id, flags, params, name: String::from_utf8_lossy(&name[..end]).into_owned() });
    }
    Ok(out)
}

fn fill_of(file: &Arc<File>, plist: hid_t, dtype: hid_t) -> Result<Stored> {
    let h5 = file.h5;
    // SAFETY: the buffer holds one element of the type.
    unsafe {
        let mut buf = vec![0u8; (h5.H5Tget_size)(dtype).max(1)];
        h5_check("H5Pget_fill_value", (h5.H5Pget_fill_value)(plist, dtype, buf.as_mut_ptr().cast()))?;
        let stored = value::store(file, dtype, 1, dtype, buf.as_ptr().cast(), None);
        value::reclaim(h5, dtype, buf.as_mut_ptr().cast());
        stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_survive_encoding() {
        let object = ObjectProps { track_times: false, attr_order: 3, attr_phase: (8, 6) };
        let props = DatasetProps {
            object: object.clone(),
            layout: Layout::Chunked(vec![10, 20]),
            chunk_opts: 1,
            filters: vec![Filter { id: 1, flags: 1, params: vec![4], name: "deflate".into() }],
            fill_status: 2,
            fill: Some(Stored { elements: vec![1, 2, 3, 4], heap: vec![] }),
            fill_time: 2,
            alloc_time: 3,
            alloc_chosen: false,
        };
        let mut w = Vec::new();
        props.encode(&mut w);
        assert_eq!(DatasetProps::decode(&mut Reader::of("test", &w)).unwrap(), props);
        let group = GroupProps { object, link_order: 3, link_phase: (8, 6), est_link_info: (4, 8), heap_size_hint: 0 };
        let mut w = Vec::new();
        group.encode(&mut w);
        assert_eq!(GroupProps::decode(&mut Reader::of("test", &w)).unwrap(), group);
    }
}
