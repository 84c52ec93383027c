//! Keys of the metadata index: a tag, the object's number (big-endian, so that an object's records are neighbours),
//! and what the record is about. Tags from 0x40 on belong to the raw-data room.

/// Object header: kind, times, what is fixed.
pub const TAG_HEADER: u8 = 0x01;
/// Number of hard links.
pub const TAG_REFCOUNT: u8 = 0x02;
/// Current extent of a dataset.
pub const TAG_EXTENT: u8 = 0x03;
/// Link by name.
pub const TAG_LINK: u8 = 0x04;
/// Link name by creation order.
pub const TAG_LINK_ORDER: u8 = 0x05;
/// Attribute by name.
pub const TAG_ATTR: u8 = 0x06;
/// Attribute name by creation order.
pub const TAG_ATTR_ORDER: u8 = 0x07;
/// Next creation order of links.
pub const TAG_LINK_NEXT: u8 = 0x08;
/// Next creation order of attributes.
pub const TAG_ATTR_NEXT: u8 = 0x09;
/// Comment of an object.
pub const TAG_COMMENT: u8 = 0x0a;
/// First tag of the raw-data room.
pub const TAG_DATA: u8 = 0x40;

/// Tag and object number.
pub fn of(tag: u8, oid: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(9);
    key.push(tag);
    key.extend_from_slice(&oid.to_be_bytes());
    key
}
/// Tag, object number and name.
pub fn named(tag: u8, oid: u64, name: &[u8]) -> Vec<u8> {
    let mut key = of(tag, oid);
    key.extend_from_slice(name);
    key
}
/// Tag, object number and creation order.
pub fn ordered(tag: u8, oid: u64, order: u64) -> Vec<u8> {
    let mut key = of(tag, oid);
    key.extend_from_slice(&order.to_be_bytes());
    key
}
/// Key of a dataset's current extent.
pub fn extent(oid: u64) -> Vec<u8> {
    of(TAG_EXTENT, oid)
}
