//! HDF5 files of the store as byte images (plain `.h5` files): files of one tree whose bytes are objects of other containers.
//!
//! This module does not know what an image contains, nor how it is made from the file's records: the `cenote` program makes images
//! (`cenote images`), since that takes libhdf5, which no view links. The view starts it when somebody looks at an image that is out of
//! date, tells it what to make, and keeps it running. Version words in shared memory tell whether an image is up to date.

mod maker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sync::Mutex;
use cenote::{Container, ContainerId, ContainerSpec, ErrorKind, Object, ObjectKey};

use crate::inner::Inner;
use crate::names::{self, lose};
use crate::records::{Entry, Node, ROOT, Source, keys};
use crate::tree::{Change, FoundNode, Tree};
use crate::{Caller, FsError, FsResult, Ino, Kind, Make, Time, fail};

use maker::{Ask, Maker};

/// Label of the container that shows HDF5 files.
pub const IMAGES_CONTAINER: &str = "hdf5";
/// Prefix of the labels of HDF5 files; the file's path follows.
pub const IMAGES_LABELS: &str = "hdf5:";
/// How long the list of names is trusted, if the requested name exists.
const NAMES_HOLD: Duration = Duration::from_secs(1);
/// How long a new image is trusted by an open by number, or if its file cannot report changes.
const IMAGE_HOLDS_S: i64 = 1;

/// An image to be shown.
#[derive(Clone, Debug, Default)]
pub struct ImageFile {
    /// The object with the bytes, used by nothing else. `None`: it is made at the first look.
    pub object: Option<ObjectKey>,
    /// The container of the HDF5 file.
    pub container: ContainerId,
    /// How often its sources had changed when it was made.
    pub changes: cenote::Changes,
    /// Indices of that container that the image depends on.
    pub indices: Vec<cenote::IndexId>,
    /// Objects that the image depends on.
    pub objects: Vec<cenote::ObjectId>,
    /// Permissions; nobody can write an image.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The ordinary file that it replaces: that file's content has become the HDF5 file.
    pub in_place_of: Option<Ino>,
}

/// A file system's state for images.
#[derive(Debug, Default)]
pub struct Images {
    /// Number of the container; 0: not met yet.
    number: AtomicU64,
    /// Time of the last comparison of names.
    compared: Mutex<Option<Instant>>,
    maker: Maker,
}

impl Images {
    /// Records that a container was met.
    pub fn found(&self, label: &str, tree: Option<&Arc<Tree>>) {
        if label == IMAGES_CONTAINER
            && let Some(tree) = tree
        {
            self.number.store(tree.number, Ordering::Relaxed);
        }
    }
    fn is(&self, tree: &Tree) -> bool {
        self.number.load(Ordering::Relaxed) == tree.number
    }
}

/// Returns true if the tree shows HDF5 files and keeps them up to date.
pub fn shows(fs: &Inner, tree: &Tree) -> bool {
    fs.images.is(tree) && !fs.common.options.keeps_images
}

/// Returns the container that shows HDF5 files, created now if there are any.
pub fn begun(fs: &Inner, label: &str) -> FsResult<Option<Container>> {
    let wanted = label == IMAGES_CONTAINER && !fs.common.options.is_read_only;
    if !wanted || fs.store.labels(IMAGES_LABELS)?.is_empty() {
        return Ok(None);
    }
    Ok(Some(fs.store.open_container(IMAGES_CONTAINER, &ContainerSpec { ..fs.common.options.new_containers.clone() })?))
}

/// Creates that container if there are HDF5 files among these; returns true if it did.
pub fn begin_where(fs: &Inner, all: &[(String, ContainerId)]) -> FsResult<bool> {
    let is_there = all.iter().any(|(label, _)| label == IMAGES_CONTAINER);
    if is_there || !all.iter().any(|(label, _)| label.starts_with(IMAGES_LABELS)) {
        return Ok(false);
    }
    Ok(begun(fs, IMAGES_CONTAINER)?.is_some())
}

/// Looks up a name, and brings an HDF5 file's image up to date.
pub fn find_in(fs: &Inner, tree: &Tree, dir: u64, name: &[u8]) -> FsResult<FoundNode> {
    if !shows(fs, tree) {
        return tree.find_in(dir, name);
    }
    look_at_shown(fs, tree, dir, name)?;
    tree.find_in(dir, name)
}

/// Brings an HDF5 file's image up to date before an open by name.
pub fn look_at(fs: &Inner, tree: &Tree, dir: u64, name: &[u8]) -> FsResult<()> {
    if shows(fs, tree) { look_at_shown(fs, tree, dir, name) } else { Ok(()) }
}

fn look_at_shown(fs: &Inner, tree: &Tree, dir: u64, name: &[u8]) -> FsResult<()> {
    let old = fs.images.compared.lock().is_none_or(|when| when.elapsed() > NAMES_HOLD);
    match tree.find_in(dir, name) {
        Err(error) if error.errno == libc::ENOENT => compare(fs)?,
        Ok(_) if old => compare(fs)?,
        _ => {}
    }
    match tree.find_in(dir, name) {
        Ok(found) if found.node.image.is_some() && !is_fresh(tree, &found)? => refresh(fs, tree, dir, name),
        _ => Ok(()),
    }?;
    match tree.find_in(dir, name) {
        // An image without bytes does not show the file.
        Ok(found) if is_unmade(&found) => fail(libc::EIO),
        // The directory may have left with the last of its files, and be there anew: `ESTALE` makes the caller look it up again.
        Err(error) if error.errno == libc::ENOENT => tree.directory(dir).map(drop),
        _ => Ok(()),
    }
}

/// Returns true for an image of which only the name exists.
fn is_unmade(found: &FoundNode) -> bool {
    found.node.image.is_some() && !found.node.has_object
}

/// Checks an image before an open by number: `ESTALE` makes the caller look up the name again.
pub fn check_open(fs: &Inner, tree: &Tree, ino: u64) -> FsResult<()> {
    if !shows(fs, tree) {
        return Ok(());
    }
    let found = tree.find(ino)?;
    if is_unmade(&found) {
        return fail(libc::ESTALE);
    }
    if found.node.image.is_none() || is_fresh(tree, &found)? || age_s(tree, found.node.modified) <= IMAGE_HOLDS_S {
        return Ok(());
    }
    fail(libc::ESTALE)
}

/// Brings names up to date before a directory is read.
pub fn sync(fs: &Inner, tree: &Tree) -> FsResult<()> {
    if shows(fs, tree) { compare(fs) } else { Ok(()) }
}

/// Brings a listed entry up to date; `None`: it cannot be shown.
pub fn of_list(fs: &Inner, tree: &Tree, dir: u64, name: &[u8], found: FoundNode) -> FsResult<Option<FoundNode>> {
    if !shows(fs, tree) || found.node.image.is_none() || is_fresh(tree, &found)? {
        return Ok(Some(found));
    }
    if refresh(fs, tree, dir, name).is_err() {
        return Ok(None);
    }
    match tree.find_in(dir, name) {
        Err(error) if error.errno == libc::ENOENT => Ok(None),
        found => Ok(Some(found?).filter(|found| !is_unmade(found))),
    }
}

fn age_s(tree: &Tree, time: Time) -> i64 {
    tree.common.clock.now().s - time.s
}

/// Returns true if the image is up to date with its file.
fn is_fresh(tree: &Tree, found: &FoundNode) -> FsResult<bool> {
    if !found.node.has_object {
        return Ok(false); // only its name is known so far
    }
    let Some(raw) = tree.nodes().get_one(&keys::image(found.ino))? else { return Ok(false) };
    let source = Source::decode(&raw)?;
    if source.changes.instance == 0 {
        return Ok(age_s(tree, source.made) <= IMAGE_HOLDS_S);
    }
    let container = tree.container.store().container_numbered(source.container);
    Ok(container.changes(&source.indices, &source.objects)? == source.changes)
}

fn compare(fs: &Inner) -> FsResult<()> {
    if fs.store.labels(IMAGES_LABELS)?.is_empty() && all(fs)?.is_empty() {
        return Ok(()); // this store has no HDF5 files
    }
    ask(fs, &Ask::Names)?;
    *fs.images.compared.lock() = Some(Instant::now());
    Ok(())
}

fn refresh(fs: &Inner, tree: &Tree, dir: u64, name: &[u8]) -> FsResult<()> {
    let mut path = name.to_vec();
    let mut at = dir;
    while at != ROOT {
        let (above, name) = above(tree, at)?;
        path = [&name[..], b"/", &path].concat();
        at = above;
    }
    ask(fs, &Ask::Image(path))
}

fn ask(fs: &Inner, what: &Ask) -> FsResult<()> {
    fs.images.maker.ask(fs.store.dir(), what, fs.common.options.descriptors_from)
}

/// Returns a directory's parent, and its name there.
fn above(tree: &Tree, dir: u64) -> FsResult<(u64, Vec<u8>)> {
    let parent = tree.directory(dir)?.node.parent;
    for record in tree.dir(parent).iter(&keys::entries()) {
        let (key, raw) = record?;
        if Entry::decode(&raw)?.ino == dir {
            return Ok((parent, keys::entry_name(&key).to_vec()));
        }
    }
    fail(libc::ESTALE)
}

/// Returns the tree for the maker of images.
fn shown(fs: &Inner) -> FsResult<Arc<Tree>> {
    fs.tree_in_label(IMAGES_CONTAINER)
}

/// Credentials of the maker of images: no rights are checked; a new image belongs to the given owner.
fn maker(uid: u32, gid: u32) -> Caller {
    Caller { uid, gid, groups: Arc::default(), is_checked: true }
}

/// Implements [`crate::FileSystem::images`].
pub fn all(fs: &Inner) -> FsResult<Vec<(Vec<u8>, Option<ObjectKey>)>> {
    let tree = match shown(fs) {
        Err(error) if error.errno == libc::ENOENT => return Ok(Vec::new()),
        tree => tree?,
    };
    let (mut found, mut dirs) = (Vec::new(), vec![(ROOT, Vec::new())]);
    if !tree.is_there()? {
        return Ok(found);
    }
    while let Some((dir, path)) = dirs.pop() {
        for record in tree.dir(dir).iter(&keys::entries()) {
            let (key, raw) = record?;
            let entry = Entry::decode(&raw)?;
            let path = [&path[..], keys::entry_name(&key)].concat();
            match (entry.kind, entry.node) {
                (Kind::Directory, _) => dirs.push((entry.ino, [&path[..], b"/"].concat())),
                (_, Some(Node { image: Some(key), .. })) => found.push((path, (key.object.0 != 0).then_some(*key))),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Implements [`crate::FileSystem::put_image`].
pub fn put(fs: &Inner, path: &[u8], file: &ImageFile) -> FsResult<()> {
    begun(fs, IMAGES_CONTAINER)?;
    let tree = shown(fs)?;
    tree.make(None, 0o755)?;
    let (dir, name) = directory_of(&tree, path, Some(&maker(file.uid, file.gid)))?;
    let ino = tree.draw()?;
    let gone = ObjectKey { container: file.container, object: cenote::ObjectId(0) };
    tree.change(|change| {
        let now = change.now;
        let mut node = Node::new(Kind::File, file.mode & 0o555, (file.uid, file.gid), now);
        node.image = Some(Box::new(file.object.unwrap_or(gone)));
        node.has_object = file.object.is_some();
        let before = match tree.slot(dir, name)? {
            Some(slot) => tree.found_at(dir, name, slot.clone())?.map(|found| (slot, found)),
            None => None,
        };
        let source = Source {
            container: file.container,
            made: now,
            changes: file.changes,
            indices: file.indices.clone(),
            objects: file.objects.clone(),
        };
        change.txn.put(tree.nodes(), &keys::image(ino), &source.encode())?;
        let mut entry = Entry { kind: Kind::File, ino, node: Some(node) };
        let Some((slot, found)) = before else { return change.add_over(dir, name, &entry) };
        if found.node.image.is_none() && file.in_place_of != Some(tree.whole(found.ino)) {
            return Err(FsError::because(
                libc::EEXIST,
                ErrorKind::Exists,
                format!("byte image of HDF5 file /{}", String::from_utf8_lossy(path)),
                "a file that somebody has put there has its name",
            ));
        }
        if let Some(node) = &mut entry.node {
            node.born = found.node.born;
        }
        lose(change, &found)?;
        change.set(dir, name, &slot.raw, &entry)
    })
}

/// Implements [`crate::FileSystem::put_file`].
pub fn put_file(fs: &Inner, path: &[u8]) -> FsResult<Option<(Ino, Object)>> {
    let tree = match shown(fs) {
        Err(error) if error.errno == libc::ENOENT => return Ok(None),
        tree => tree?,
    };
    let found = directory_of(&tree, path, None).and_then(|(dir, name)| tree.find_in(dir, name));
    match found {
        Ok(found) if found.node.kind == Kind::File && found.node.image.is_none() && found.node.has_object => {
            Ok(Some((tree.whole(found.ino), tree.object(found.ino))))
        }
        Ok(_) => Ok(None),
        Err(error) if matches!(error.errno, libc::ENOENT | libc::ENOTDIR | libc::EINVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Implements [`crate::FileSystem::drop_image`].
pub fn drop_at(fs: &Inner, path: &[u8]) -> FsResult<()> {
    let tree = shown(fs)?;
    let Some((mut dir, name)) = there(directory_of(&tree, path, None))? else { return Ok(()) };
    let dropped = tree.change(|change| {
        let (found, raw) = tree.find_with_entry(dir, name)?;
        if found.node.image.is_none() {
            return Ok(());
        }
        change.remove(dir, name, &raw)?;
        lose(change, &found).map(drop)
    });
    if there(dropped)?.is_none() {
        return Ok(()); // another process removed it first
    }
    while dir != ROOT {
        let (parent, name) = above(&tree, dir)?;
        match names::rmdir(&tree, &maker(0, 0), parent, &name) {
            Ok(()) => dir = parent,
            Err(_) => break, // the directory holds something else
        }
    }
    Ok(())
}

/// Maps a missing name to `None`.
fn there<T>(found: FsResult<T>) -> FsResult<Option<T>> {
    match found {
        Err(error) if matches!(error.errno, libc::ENOENT | libc::ENOTDIR) => Ok(None),
        found => found.map(Some),
    }
}

/// Returns the parent directory of a path, and the last component.
fn directory_of<'a>(tree: &Tree, path: &'a [u8], makes: Option<&Caller>) -> FsResult<(u64, &'a [u8])> {
    let mut dir = ROOT;
    let mut parts = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = parts.next() {
        if parts.peek().is_none() {
            return Ok((dir, name));
        }
        dir = match tree.find_in(dir, name) {
            Ok(found) => found.directory()?.ino,
            Err(error) => {
                let Some(maker) = makes.filter(|_| error.errno == libc::ENOENT) else { return Err(error) };
                let what = Make { kind: Kind::Directory, mode: 0o755, rdev: 0, target: Vec::new() };
                match names::make(tree, maker, dir, name, &what) {
                    Err(error) if error.errno == libc::EEXIST => tree.find_in(dir, name)?.directory()?.ino,
                    made => made?.ino,
                }
            }
        };
    }
    fail(libc::EINVAL)
}

/// Deletes the data of an image without a name.
pub fn bury(change: &mut Change<'_>, ino: u64, node: &Node) -> FsResult<()> {
    let tree = change.tree;
    if node.has_object && node.image.is_some() {
        let object = tree.object_of(ino, node);
        match object.stat() {
            Ok(_) => change.txn.delete_object(&object)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {} // deleted with its HDF5 file
            Err(error) => return Err(error.into()),
        }
    }
    if tree.nodes().get_one(&keys::image(ino))?.is_some() {
        change.txn.del(tree.nodes(), &keys::image(ino))?;
    }
    Ok(())
}
