//! Keys of the metadata index: a tag, the object's number (big-endian, so that an object's records are adjacent),
//! and the subject of the record. Tags from 0x40 on belong to the raw-data module.

/// Object header: kind, times, constant properties.
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
/// Number of datasets and attributes made with a committed datatype.
pub const TAG_USERS: u8 = 0x0b;
/// Creation properties of the file, at its root group.
pub const TAG_FILE: u8 = 0x0c;
/// A map's pair, by key in stored form.
pub const TAG_MAP: u8 = 0x0d;
/// The last message launched by the file's only writer, at its root group.
pub const TAG_SERIES: u8 = 0x0e;
/// The object that this number also stands for: imported files name their root group by its old address.
pub const TAG_ALIAS: u8 = 0x0f;
/// Target of an old region reference.
pub const TAG_REGION: u8 = 0x10;
/// First tag of the raw-data module.
pub const TAG_DATA: u8 = 0x40;

/// Number of the root group.
pub const ROOT: u64 = 1;

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
/// The part of a key after tag and object number.
pub fn suffix(key: &[u8]) -> &[u8] {
    key.get(9..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objects_names_sort_as_bytes_and_stay_apart_from_its_neighbours() {
        let mut keys = [named(TAG_LINK, 7, b"b"), named(TAG_LINK, 7, b"a"), named(TAG_LINK, 6, b"z"), of(TAG_LINK, 8)];
        keys.sort();
        assert_eq!(keys[0], named(TAG_LINK, 6, b"z"));
        assert_eq!(keys[1], named(TAG_LINK, 7, b"a"));
        assert_eq!(suffix(&keys[2]), b"b");
        assert!(keys[3].starts_with(&of(TAG_LINK, 8)));
        assert!(!named(TAG_LINK, 0x0700, b"x").starts_with(&of(TAG_LINK, 7)));
    }

    #[test]
    fn creation_order_sorts_as_numbers() {
        let orders = [0u64, 1, 255, 256, 65_536, u64::from(u32::MAX) + 1];
        let mut keys: Vec<_> = orders.iter().rev().map(|o| ordered(TAG_LINK_ORDER, 3, *o)).collect();
        keys.sort();
        let back: Vec<_> = orders.iter().map(|o| ordered(TAG_LINK_ORDER, 3, *o)).collect();
        assert_eq!(keys, back);
    }
}
