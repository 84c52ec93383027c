//! Node (inode): everything known of a file or directory except its size, which its object has.

use cenote::{ContainerId, ObjectId, ObjectKey};
use cenote_codec::Encode as _;

use crate::{Consistency, FsResult, Kind, Time};

use super::{PutFields as _, TakeFields as _, VERSION, reader};

/// Attributes of a file or directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// File type.
    pub kind: Kind,
    /// Permissions: at most `0o7777`.
    pub mode: u32,
    /// Number of hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u64,
    /// Last access.
    pub accessed: Time,
    /// Last change of bytes; of a directory only until [`super::Times`] exist.
    pub modified: Time,
    /// Last change of bytes or attributes.
    pub changed: Time,
    /// Creation.
    pub born: Time,
    /// Consistency of a directory.
    pub consistency: Consistency,
    /// Layout of the bytes of files that are made in a directory; `None`: any. Boxed, since nearly all nodes have none.
    pub layout: Option<Box<str>>,
    /// The object exists.
    pub has_object: bool,
    /// Extended attributes exist.
    pub has_xattrs: bool,
    /// Parent of a directory; its own number if none.
    pub parent: u64,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// The bytes are an object outside the tree: those of an HDF5 file as an image (see [`crate::images`]). Boxed,
    /// since nearly all nodes have none, and nodes are copied often.
    pub image: Option<Box<ObjectKey>>,
}

const HAS_OBJECT: u8 = 1;
const HAS_XATTRS: u8 = 2;
/// The access time differs from that of birth, and follows.
const ACCESSED: u8 = 4;
const MODIFIED: u8 = 8;
const CHANGED: u8 = 16;
/// The key of the object with the bytes follows.
const IMAGE: u8 = 32;
/// The layout of a directory's files follows, as text, to the end.
const LAYOUT: u8 = 64;

/// Returns the type with that number.
pub fn kind(number: u8) -> Option<Kind> {
    use Kind as K;
    [K::File, K::Directory, K::Symlink, K::Fifo, K::Socket, K::CharDevice, K::BlockDevice]
        .into_iter()
        .find(|kind| *kind as u8 == number)
}

/// Returns the consistency with that number.
pub fn consistency(number: u8) -> Option<Consistency> {
    use Consistency as C;
    [C::Strict, C::Commit, C::Laminated].into_iter().find(|one| *one as u8 == number)
}

impl Node {
    /// Creates a new node.
    pub fn new(kind: Kind, mode: u32, (uid, gid): (u32, u32), now: Time) -> Self {
        Self {
            kind,
            mode: mode & 0o7777,
            links: if kind == Kind::Directory { 2 } else { 1 },
            uid,
            gid,
            rdev: 0,
            accessed: now,
            modified: now,
            changed: now,
            born: now,
            consistency: Consistency::Strict,
            layout: None,
            has_object: false,
            has_xattrs: false,
            parent: 0,
            target: Vec::new(),
            image: None,
        }
    }
    /// Encodes a record of its own.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::with_capacity(48);
        self.write(&mut w);
        w
    }
    pub(super) fn write(&self, w: &mut Vec<u8>) {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        w.put_u8(VERSION);
        w.put_u8(self.kind as u8);
        w.put_u8(
            flag(self.has_object, HAS_OBJECT)
                | flag(self.has_xattrs, HAS_XATTRS)
                | flag(self.accessed != self.born, ACCESSED)
                | flag(self.modified != self.born, MODIFIED)
                | flag(self.changed != self.born, CHANGED)
                | flag(self.image.is_some(), IMAGE)
                | flag(self.kind == Kind::Directory && self.layout.is_some(), LAYOUT),
        );
        w.put_u16(self.mode as u16);
        w.put_u32(self.links);
        w.put_u32(self.uid);
        w.put_u32(self.gid);
        w.put_time(self.born);
        for time in [self.accessed, self.modified, self.changed] {
            if time != self.born {
                w.put_time(time);
            }
        }
        match self.kind {
            Kind::Directory => {
                w.put_u8(self.consistency as u8);
                w.put_ino(self.parent);
                w.extend_from_slice(self.layout.as_deref().unwrap_or_default().as_bytes());
            }
            Kind::Symlink => w.extend_from_slice(&self.target),
            Kind::CharDevice | Kind::BlockDevice => w.put_u64(self.rdev),
            Kind::File | Kind::Fifo | Kind::Socket => {}
        }
        if let Some(key) = &self.image {
            w.put_u64(key.container.0);
            w.put_u64(key.object.0 as u64);
            w.put_u64((key.object.0 >> 64) as u64);
        }
    }
    /// Decodes a record.
    pub fn decode(record: &[u8]) -> FsResult<Self> {
        let mut r = reader("node of a file", record)?;
        let kind = kind(r.u8()?).ok_or_else(|| r.malformed("a kind that there is none of"))?;
        let flags = r.u8()?;
        let mode = u32::from(r.u16()?) & 0o7777;
        let (links, uid, gid, born) = (r.u32()?, r.u32()?, r.u32()?, r.time()?);
        let mut time = |flag: u8| if flags & flag == 0 { Ok(born) } else { r.time() };
        let (accessed, modified, changed) = (time(ACCESSED)?, time(MODIFIED)?, time(CHANGED)?);
        let mut node = Self {
            links,
            accessed,
            modified,
            changed,
            has_object: flags & HAS_OBJECT != 0,
            has_xattrs: flags & HAS_XATTRS != 0,
            ..Self::new(kind, mode, (uid, gid), born)
        };
        match kind {
            Kind::Directory => {
                let number = r.u8()?;
                node.consistency =
                    consistency(number).ok_or_else(|| r.malformed("a consistency that there is none of"))?;
                node.parent = r.ino()?;
                if flags & LAYOUT != 0 {
                    let text = str::from_utf8(r.rest()).map_err(|_| r.malformed("a layout that is no text"))?;
                    node.layout = Some(text.into());
                }
            }
            Kind::Symlink => node.target = r.rest().to_vec(),
            Kind::CharDevice | Kind::BlockDevice => node.rdev = r.u64()?,
            Kind::File if flags & IMAGE != 0 => {
                let (container, low, high) = (ContainerId(r.u64()?), r.u64()?, r.u64()?);
                let object = ObjectId(u128::from(high) << 64 | u128::from(low));
                node.image = Some(Box::new(ObjectKey { container, object }));
            }
            Kind::File | Kind::Fifo | Kind::Socket => {}
        }
        r.end()?;
        Ok(node)
    }
}
