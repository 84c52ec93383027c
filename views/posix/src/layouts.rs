//! Layouts of directories: the bytes of files that are made there are kept by a tier with that layout (copies, stripes, parity).
//!
//! A directory's node has the layout as text; new directories in it inherit it. The object of a file's bytes is made with its first bytes, and pinned to a
//! tier with the layout of the directory by the same transaction.

use std::time::{Duration, Instant};

use cenote::model::DeviceId;
use cenote::{Error, ErrorKind, LayoutTier, LayoutWish, Object};

use crate::tree::{Change, FoundNode, NodeLocation, Tree};
use crate::{FileSystem, FsError, FsResult, Ino, Kind, fail, gate};

/// The attribute of a directory by which programs set its layout; not a record.
pub const XATTR: &[u8] = b"user.cenote.layout";
/// How long it is trusted which tier has a layout.
const HOLDS: Duration = Duration::from_secs(1);

/// The tier that had a layout when it was last looked for.
pub type KnownTier = Option<(Box<str>, DeviceId, Instant)>;

/// Parses the value of the attribute; `None`: no layout any more. `EINVAL` if it is none, `ENODEV` if no tier has it.
pub fn wanted(tree: &Tree, value: &[u8]) -> FsResult<Option<Box<str>>> {
    let wish = parsed(value)?;
    if wish.is_plain() {
        return Ok(None);
    }
    tier(tree, &wish).map_err(|error| error.with_errno(libc::ENODEV))?;
    Ok(Some(wish.to_string().into()))
}

fn parsed(value: &[u8]) -> FsResult<LayoutWish> {
    let text = String::from_utf8_lossy(value);
    Ok(text.trim_end_matches(['\0', '\n']).parse()?)
}

fn tier(tree: &Tree, wish: &LayoutWish) -> FsResult<LayoutTier> {
    Ok(tree.container.store().tier_with(tree.container.home(), wish)?)
}

impl Tree {
    /// Returns the tier for the bytes of a new file in a directory; `None`: any. `ENOSPC` if no tier has the directory's layout any more.
    fn tier_for_files_in(&self, dir: u64) -> FsResult<Option<DeviceId>> {
        let Some(layout) = self.directory(dir)?.node.layout.clone() else { return Ok(None) };
        if let Some((known, device, when)) = &*self.known_tier.lock()
            && *known == layout
            && when.elapsed() < HOLDS
        {
            return Ok(Some(*device));
        }
        let wish = parsed(layout.as_bytes())?;
        let device = tier(self, &wish).map_err(|error| error.with_errno(libc::ENOSPC))?.device;
        *self.known_tier.lock() = Some((layout, device, Instant::now()));
        Ok(Some(device))
    }
}

impl Change<'_> {
    /// Creates the object of a file's bytes, in the layout of the directory that the file is in.
    pub fn create_object(&mut self, found: &FoundNode) -> FsResult<Object> {
        let dir = match &found.place {
            NodeLocation::Entry { dir, .. } => *dir,
            NodeLocation::Own | NodeLocation::Orphan => found.dir,
        };
        self.create_object_in(dir, found.ino)
    }
    /// The same for a file that is being made in a directory; 0: in none that is known.
    pub fn create_object_in(&mut self, dir: u64, ino: u64) -> FsResult<Object> {
        let tree = self.tree;
        let device = if dir == 0 { None } else { tree.tier_for_files_in(dir)? };
        let object = self.txn.create_object(&tree.container, Some(tree.object(ino).key().object), None)?;
        if let Some(device) = device {
            self.txn.keep_object(&object, device)?;
        }
        Ok(object)
    }
}

impl FileSystem {
    /// Returns the object with a file's bytes, if it has any, for placing them by hand.
    pub fn object_of(&self, ino: Ino) -> FsResult<Option<Object>> {
        let _in = gate::enter();
        let (tree, ino) = self.0.in_tree(ino, libc::EISDIR)?;
        let found = tree.find(ino)?;
        Ok(found.node.has_object.then(|| tree.object_of(ino, &found.node)))
    }
}

/// Returns `ENOTDIR` for something that has no layout of its own.
pub fn check_directory(found: &FoundNode) -> FsResult<()> {
    if found.node.kind == Kind::Directory {
        return Ok(());
    }
    let error = Error::new(ErrorKind::InvalidInput, "layout of a file")
        .because("a file has the layout that its directory had when its first bytes were written")
        .try_next("set it for a directory; `cenote layout CONTAINER/OBJECT LAYOUT` moves what is there");
    Err(FsError { errno: libc::ENOTDIR, cause: Some(Box::new(error)) })
}

/// Returns the value of the attribute of a directory; `ENODATA` if files in it may lie anywhere.
pub fn get(found: &FoundNode) -> FsResult<Vec<u8>> {
    match &found.node.layout {
        Some(layout) => Ok(layout.as_bytes().to_vec()),
        None => fail(libc::ENODATA),
    }
}
