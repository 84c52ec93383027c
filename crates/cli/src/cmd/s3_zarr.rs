//! HDF5 files as Zarr keys in two S3 buckets: `hdf5-zarr` (format 3) and `hdf5-zarr2` (format 2).

use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cenote::{Error, ErrorKind, Result, Store};
use cenote_hdf5::file;
use cenote_posix::IMAGES_CONTAINER;
use cenote_s3::Keyed;
use cenote_zarr::{Entry, Format, Tree};

/// Maximum number of files kept open.
const OPEN_MAX: usize = 256;

/// The Zarr buckets of a store.
#[derive(Debug)]
pub struct ZarrBuckets {
    store: Store,
    open: Mutex<HashMap<(PathBuf, bool), Opened>>,
}

#[derive(Clone)]
struct Opened {
    tree: Arc<Tree>,
    writable: bool,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("writable", &self.writable).finish_non_exhaustive()
    }
}

fn format(bucket: &str) -> Option<Format> {
    match bucket.strip_prefix(IMAGES_CONTAINER)? {
        "-zarr" => Some(Format::V3),
        "-zarr2" => Some(Format::V2),
        _ => None,
    }
}

impl ZarrBuckets {
    pub fn new(store: &Store) -> Self {
        Self { store: store.clone(), open: Mutex::default() }
    }
    /// Splits a key into the file and the key within it.
    fn split(key: &str) -> Option<(PathBuf, &str)> {
        let ends = key.match_indices('/').map(|(at, _)| at).chain([key.len()]);
        ends.map(|end| (PathBuf::from(format!("/{}", &key[..end])), key[end..].trim_start_matches('/')))
            .find(|(path, _)| file::is_stub(path))
    }
    fn tree(&self, bucket: &str, path: &Path, writable: bool) -> Result<Arc<Tree>> {
        let format = format(bucket).unwrap_or_default();
        let name = (path.to_path_buf(), format == Format::V2);
        let (_, generation) = file::open::locate(&self.store, path)?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = open.get(&name)
            && (opened.writable || !writable)
            && opened.tree.generation() == generation
        {
            return Ok(opened.tree.clone());
        }
        let tree = Arc::new(Tree::open(&self.store, path, writable, format)?);
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(name, Opened { tree: tree.clone(), writable });
        Ok(tree)
    }
    fn missing(key: &str) -> Error {
        Error::new(ErrorKind::NotFound, format!("key {key}")).because("no HDF5 file of the store has this key")
    }
    /// Returns the paths of all files, without the leading slash.
    fn files(&self) -> Result<BTreeSet<String>> {
        let all = file::open::files(&self.store)?.into_iter();
        let shown =
            all.filter_map(|(path, _)| Some(std::str::from_utf8(path.as_os_str().as_bytes()).ok()?[1..].to_owned()));
        Ok(shown.collect())
    }
}

impl Keyed for ZarrBuckets {
    fn rights_of(&self, bucket: &str) -> Option<&str> {
        format(bucket).map(|_| IMAGES_CONTAINER)
    }
    fn get(&self, bucket: &str, key: &str) -> Result<Option<Vec<u8>>> {
        match Self::split(key) {
            Some((path, within)) => self.tree(bucket, &path, false)?.get(within),
            None => Ok(None),
        }
    }
    fn size(&self, bucket: &str, key: &str) -> Result<Option<u64>> {
        let Some((path, within)) = Self::split(key) else { return Ok(None) };
        Ok(match self.tree(bucket, &path, false)?.entry(within)? {
            Some(Entry::File(bytes)) => Some(bytes),
            _ => None,
        })
    }
    fn set(&self, bucket: &str, key: &str, value: &[u8]) -> Result<()> {
        let (path, within) = Self::split(key).ok_or_else(|| Self::missing(key))?;
        self.tree(bucket, &path, true)?.set(within, value)
    }
    fn delete(&self, bucket: &str, key: &str) -> Result<()> {
        match Self::split(key) {
            Some((path, within)) => self.tree(bucket, &path, true)?.delete(within).map(drop),
            None => Ok(()),
        }
    }
    fn names(&self, bucket: &str, directory: &str) -> Result<Vec<String>> {
        if let Some((path, within)) = Self::split(directory.trim_end_matches('/')) {
            let names = self.tree(bucket, &path, false)?.list_dir(within)?.into_iter();
            let mut names: Vec<String> =
                names.map(|(name, is_directory)| if is_directory { name + "/" } else { name }).collect();
            names.sort_unstable();
            return Ok(names);
        }
        let files = self.files()?;
        let below = files.iter().filter_map(|file| file.strip_prefix(directory));
        let names: BTreeSet<String> =
            below.map(|rest| format!("{}/", rest.split_once('/').map_or(rest, |(name, _)| name))).collect();
        Ok(names.into_iter().collect())
    }
    fn keys(&self, bucket: &str, directory: &str) -> Result<Vec<String>> {
        let within = |path: &Path, within: &str| -> Result<Vec<String>> {
            let file = path.to_string_lossy()[1..].to_owned();
            let keys = self.tree(bucket, path, false)?.list(within)?.into_iter();
            Ok(keys.map(|key| format!("{file}/{key}")).collect())
        };
        let mut keys = Vec::new();
        if let Some((path, inner)) = Self::split(directory.trim_end_matches('/')) {
            keys = within(&path, inner)?;
        } else {
            for file in self.files()?.into_iter().filter(|file| file.starts_with(directory)) {
                keys.extend(within(&Path::new("/").join(&file), "")?);
            }
        }
        keys.sort_unstable();
        Ok(keys)
    }
}
