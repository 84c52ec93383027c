//! Object headers: an object's kind, and its constant properties.

use crate::Result;
use crate::file::Core;
use crate::props::{DatasetProps, GroupProps, ObjectProps};
use crate::space::Extent;

use super::bytes::{Encode, Reader};
use super::{gone, keys};

const VERSION: u8 = 1;

/// An object's header record.
#[derive(Clone, PartialEq, Debug)]
pub struct Header {
    /// Creation time in seconds since 1970; 0 if times are not tracked.
    pub born_unix_s: i64,
    /// Kind and constant properties.
    pub body: Body,
}

/// Kind and constant properties of an object.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// A group.
    Group(GroupProps),
    /// A dataset.
    Dataset {
        /// Encoded datatype.
        dtype: Vec<u8>,
        /// The committed datatype given at creation; 0 if none.
        committed: u64,
        /// Creation properties.
        props: DatasetProps,
        /// Extent at creation.
        extent: Extent,
    },
    /// A map.
    Map {
        /// Encoded datatype of keys.
        key: Vec<u8>,
        /// Encoded datatype of values.
        value: Vec<u8>,
        /// Creation properties.
        props: ObjectProps,
    },
    /// A committed datatype.
    Datatype {
        /// Encoded datatype.
        dtype: Vec<u8>,
        /// Creation properties.
        props: ObjectProps,
    },
}

impl Header {
    /// The properties common to all objects.
    pub fn object_props(&self) -> &ObjectProps {
        match &self.body {
            Body::Group(props) => &props.object,
            Body::Dataset { props, .. } => &props.object,
            Body::Datatype { props, .. } | Body::Map { props, .. } => props,
        }
    }
    /// Encodes the header.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        w.put_u8(VERSION);
        w.put_u8(match self.body {
            Body::Group(_) => 0,
            Body::Dataset { .. } => 1,
            Body::Datatype { .. } => 2,
            Body::Map { .. } => 3,
        });
        w.put_i64(self.born_unix_s);
        match &self.body {
            Body::Group(props) => props.encode(&mut w),
            Body::Dataset { dtype, committed, props, extent } => {
                w.put_bytes(dtype);
                w.put_u64(*committed);
                props.encode(&mut w);
                extent.encode(&mut w);
            }
            Body::Datatype { dtype, props } => {
                w.put_bytes(dtype);
                props.encode(&mut w);
            }
            Body::Map { key, value, props } => {
                w.put_bytes(key);
                w.put_bytes(value);
                props.encode(&mut w);
            }
        }
        w
    }
    /// Decodes a header.
    pub fn decode(record: &[u8]) -> Result<Self> {
        let mut r = Reader::of("object header record", record);
        if r.u8()? != VERSION {
            return Err(r.malformed("object header of an unknown version"));
        }
        let kind = r.u8()?;
        let born_unix_s = r.i64()?;
        let body = match kind {
            0 => Body::Group(GroupProps::decode(&mut r)?),
            1 => Body::Dataset {
                dtype: r.bytes()?.to_vec(),
                committed: r.u64()?,
                props: DatasetProps::decode(&mut r)?,
                extent: Extent::decode(&mut r)?,
            },
            2 => Body::Datatype { dtype: r.bytes()?.to_vec(), props: ObjectProps::decode(&mut r)? },
            3 => {
                Body::Map { key: r.bytes()?.to_vec(), value: r.bytes()?.to_vec(), props: ObjectProps::decode(&mut r)? }
            }
            _ => return Err(r.malformed("object of an unknown kind")),
        };
        Ok(Self { born_unix_s, body })
    }
}

/// An object's header, if the object exists.
pub fn find(file: &Core, oid: u64) -> Result<Option<Header>> {
    file.meta.get_one(&keys::of(keys::TAG_HEADER, oid))?.map(|r| Header::decode(&r)).transpose()
}

/// An object's header.
pub fn get(file: &Core, oid: u64) -> Result<Header> {
    find(file, oid)?.ok_or_else(|| gone(file, oid))
}
