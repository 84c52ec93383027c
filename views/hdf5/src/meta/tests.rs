//! Records as they lie in stores, byte for byte.

use std::fmt::Write as _;

use super::attrs::Attr;
use super::header::{Body, Header};
use super::links::{Link, Target};
use crate::props::{DatasetProps, Filter, GroupProps, Layout, ObjectProps};
use crate::space::Extent;
use crate::value::Stored;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn bytes_in_stores_stay_as_they_are() {
    let link = Link { target: Target::User(64, b"ext".to_vec()), order: Some(5), cset: 1 };
    let attr = Attr {
        uid: 1,
        order: 2,
        cset: 3,
        dtype: vec![4, 5],
        committed: 6,
        extent: Extent::Simple { dims: vec![7, 8], max: vec![7, u64::MAX] },
        value: Some(Stored { elements: vec![9], heap: vec![10, 11] }),
    };
    let object = ObjectProps { track_times: true, attr_order: 3, attr_phase: (8, 6) };
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
    let body = Body::Dataset { dtype: vec![12], committed: 13, props, extent: Extent::Scalar };
    let dataset = Header { born_unix_s: -1, body };
    let group = GroupProps { object, link_order: 3, link_phase: (8, 6), est_link_info: (4, 8), heap_size_hint: 14 };
    let group = Header { born_unix_s: 15, body: Body::Group(group) };
    assert_eq!(hex(&link.encode()), "4001050000000000000003000000657874");
    assert_eq!(
        hex(&attr.encode()),
        "0101000000000000000200000000000000030200000004050600000000000000020207000000000000000800000000000000\
         0700000000000000ffffffffffffffff010100000009020000000a0b"
    );
    assert_eq!(
        hex(&dataset.encode()),
        "0101ffffffffffffffff010000000c0d000000000000000103000000080000000600000002020a0000000000000014000000\
         000000000100000001000100000001000000010004000000070000006465666c617465020000000200000003000000010400\
         0000010203040000000001"
    );
    assert_eq!(
        hex(&group.encode()),
        "01000f000000000000000103000000080000000600000003000000080000000600000004000000080000000e000000000000\
         00"
    );
}
