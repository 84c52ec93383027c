//! Ids of a tree's indices and objects, and keys of its records.

use cenote::{IndexId, ObjectId};

/// Upper bits of the ids of everything that belongs to a tree.
const TREE: u128 = u128::from_be_bytes(*b"cenotetree\0\0\0\0\0\0");
/// Indices other than directories.
const SPECIAL: u128 = 1 << super::INO_BITS;

const TAG_SUPER: u8 = 0;
const TAG_NODE: u8 = 1;
const TAG_ENTRY: u8 = 2;
const TAG_TIMES: u8 = 3;
const TAG_XATTR: u8 = 4;
const TAG_ORPHAN: u8 = 5;
const TAG_IMAGE: u8 = 6;
const TAG_UNNAMED: u8 = 7;

/// Index of nodes: directories, files with several names or none, extended attributes.
pub fn nodes_index() -> IndexId {
    IndexId(TREE | SPECIAL)
}
/// Index of the counter of inode numbers.
pub fn numbers_index() -> IndexId {
    IndexId(TREE | SPECIAL | 1)
}
/// Index of the processes that may have files open.
pub fn opens_index() -> IndexId {
    IndexId(TREE | SPECIAL | 2)
}
/// Index of files that have a page cache. Created with the first page cache.
pub fn page_caches_index() -> IndexId {
    IndexId(TREE | SPECIAL | 3)
}
/// Index of a directory's entries.
pub fn dir_index(dir: u64) -> IndexId {
    IndexId(TREE | u128::from(dir))
}
/// Object of a file's bytes.
pub fn object(ino: u64) -> ObjectId {
    ObjectId(TREE | u128::from(ino))
}
/// Returns the inode number of the file whose bytes an object has, if it belongs to a tree.
pub fn ino_of_object(id: ObjectId) -> Option<u64> {
    (id.0 >> super::INO_BITS == TREE >> super::INO_BITS).then_some(id.0 as u64 & ((1 << super::INO_BITS) - 1))
}

/// Returns the directory whose entries an index has.
pub fn dir_of_index(id: IndexId) -> Option<u64> {
    ino_of_object(ObjectId(id.0))
}

fn ino(tag: u8, ino: u64) -> [u8; 6] {
    let b = ino.to_be_bytes();
    [tag, b[3], b[4], b[5], b[6], b[7]]
}

/// Returns the inode number at the end of a key of the index of nodes.
pub fn ino_in(key: &[u8]) -> Option<u64> {
    let b = key.get(1..6)?;
    Some(u64::from_be_bytes([0, 0, 0, b[0], b[1], b[2], b[3], b[4]]))
}

/// Key of the superblock (index of nodes) and of the counter (index of numbers).
pub fn superblock() -> [u8; 1] {
    [TAG_SUPER]
}
/// Key of a node.
pub fn node(number: u64) -> [u8; 6] {
    ino(TAG_NODE, number)
}
/// Key of a node without a name, in the index of opens.
pub fn orphan(number: u64) -> [u8; 6] {
    ino(TAG_UNNAMED, number)
}
/// Prefix of all nodes without a name.
pub fn orphans() -> [u8; 1] {
    [TAG_UNNAMED]
}
/// Key that earlier versions used for a node without a name, in the index of nodes.
pub fn old_orphan(number: u64) -> [u8; 6] {
    ino(TAG_ORPHAN, number)
}
/// Key of an extended attribute.
pub fn xattr(number: u64, name: &[u8]) -> Vec<u8> {
    [&ino(TAG_XATTR, number), name].concat()
}
/// Prefix of a node's extended attributes.
pub fn xattrs(number: u64) -> [u8; 6] {
    ino(TAG_XATTR, number)
}
/// Key of the record of what a file's image was made of.
pub fn image(number: u64) -> [u8; 6] {
    ino(TAG_IMAGE, number)
}
/// Returns the name in the key of an extended attribute.
pub fn xattr_name(key: &[u8]) -> &[u8] {
    key.get(6..).unwrap_or_default()
}
/// Key of an entry, in its directory's index.
pub fn entry(name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 1);
    key.push(TAG_ENTRY);
    key.extend_from_slice(name);
    key
}
/// Prefix of all entries.
pub fn entries() -> [u8; 1] {
    [TAG_ENTRY]
}
/// Returns the name in the key of an entry.
pub fn entry_name(key: &[u8]) -> &[u8] {
    key.get(1..).unwrap_or_default()
}
/// Key of a directory's times, in its own index.
pub fn times() -> [u8; 1] {
    [TAG_TIMES]
}
/// Key of the processes that may have files of a directory open (0: of any directory), in the index of opens.
pub fn claims(dir: u64) -> [u8; 6] {
    ino(TAG_NODE, dir)
}
/// Key of the processes that may still have a file without a name open, in the index of opens.
pub fn holders(number: u64) -> [u8; 6] {
    ino(TAG_ORPHAN, number)
}
/// Key of the record that a file has a page cache, in the index of page caches.
pub fn page_cache(number: u64) -> [u8; 6] {
    ino(TAG_NODE, number)
}
/// Prefix of all page cache records.
pub fn page_caches() -> [u8; 1] {
    [TAG_NODE]
}
/// Prefix of all holders of files without a name.
pub fn all_holders() -> [u8; 1] {
    [TAG_ORPHAN]
}
