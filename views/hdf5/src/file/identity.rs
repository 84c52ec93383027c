//! What a stub stands for. A file is identified by container and file id, wherever its stub is; the path is only where it was last seen.
//!
//! - A stub that was renamed, linked, or reached through another directory still is the file. A stub with another inode is a copy, and
//!   no file, while the file's own stub exists ([`super::kept`]).
//! - Each opening for writing, and each re-creation, raises the file's *state*: first in the stub, then in the record. A stub with a
//!   smaller state is a stale copy that was put back. (A greater one is left by a program that died in between, or by a rollback of the
//!   file to a snapshot.)
//! - Labels are for people and listings. If another file needs the label of a file that is gone, that file's container gets another
//!   label.
//!
//! Nothing here deletes anything.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use cenote::{
    CONTAINER_MODE_BITS, CONTAINER_MODE_PRIVATE, Container, ContainerId, ContainerSpec, Error, ErrorKind, FirstIndex,
    FirstRecords, Index, Store,
};

use super::kept::{self, Judged};
use super::locks::Turn;
use super::making::{index_id, metadata};
use super::open::{LABEL_PREFIX, label_of};
use super::stub::{self, Stub};
use super::superblock::{STATE_KEY, SUPER_INDEX, Super};
use super::{in_use, path};
use crate::Result;
use crate::meta::bytes::Encode;

/// Prefix of the names of per-state snapshots, kept if asked for; the state follows.
pub const STATE_SNAPSHOT: &str = "state-";
/// Attempts at a label that other processes take at the same time.
const TRIES: usize = 20;
/// Separates the former label of a file from a suffix that tells it from the file now there. No path contains a NUL.
const ASIDE: &str = "\u{1}moved-";

/// The environment variable that asks for a snapshot at each close by a writer (`1`), so that copied stubs can be opened as copies of
/// that state.
const COPIES_ENV: &str = "CENOTE_HDF5_COPIES";

/// Returns true if each close keeps the written state, for copies of the stub.
pub fn keeps_states() -> bool {
    static KEEPS: LazyLock<bool> = LazyLock::new(|| std::env::var_os(COPIES_ENV).is_some_and(|value| value == "1"));
    *KEEPS
}

/// What a stub stands for.
pub enum StubTarget {
    /// The file.
    File(There),
    /// A copy of the stub at this path, if the path is known.
    Copy(Container, Option<PathBuf>),
    /// A stub that records an earlier state of the file.
    Stale(Container, Super),
    /// A file that is not in this store.
    Nothing,
}

/// An existing file.
pub struct There {
    pub container: Container,
    pub sup: Super,
    /// Its metadata index; this process already knows the records that came with the container.
    pub meta: Index,
    /// The store already knows this stub.
    pub is_kept: bool,
}

/// Finds out what `stub` at `path` stands for.
pub fn know(store: &Store, store_path: &Path, path: &Path, stub: &Stub) -> Result<StubTarget> {
    let seen = path.metadata().map_err(|e| stub::open_error(path, &e))?;
    know_seen(store, store_path, path, stub, &seen)
}

/// Finds out what a stub stands for, given its file status.
pub fn know_seen(store: &Store, store_path: &Path, path: &Path, stub: &Stub, seen: &Metadata) -> Result<StubTarget> {
    let Some(FoundContainer { container, sup, meta }) = container_of(store, path, stub)? else {
        return Ok(StubTarget::Nothing);
    };
    match kept::judge(store_path, container.id(), stub, seen, || place_of(container.label())) {
        Judged::Copy(of) => Ok(StubTarget::Copy(container, of)),
        _ if stub.state < sup.state && !has_risen(path, stub, sup.state) => Ok(StubTarget::Stale(container, sup)),
        judged => Ok(StubTarget::File(There { container, sup, meta, is_kept: judged == Judged::Linked })),
    }
}

/// Returns true if the stub at `path` has reached that state by now. A writer raises the stub before the record, so a stub raised
/// between the two looks is no stale copy.
fn has_risen(path: &Path, stub: &Stub, state: u64) -> bool {
    matches!(stub::look(path), Ok(stub::Seen::Stub(now)) if now.uuid == stub.uuid && now.state >= state)
}

/// A container that holds an HDF5 file.
struct FoundContainer {
    container: Container,
    sup: Super,
    meta: Index,
}

/// The path where the file with this label was last seen.
fn place_of(label: &str) -> PathBuf {
    let text = label.strip_prefix(LABEL_PREFIX).unwrap_or_default();
    path::of_label(text.split(ASIDE).next().unwrap_or_default())
}

fn container_of(store: &Store, path: &Path, stub: &Stub) -> Result<Option<FoundContainer>> {
    let is_it = |found: &FoundContainer| found.sup.uuid == stub.uuid;
    if let Some(id) = stub.container {
        return Ok(found_by(store, id)?.filter(is_it));
    }
    // Stubs of version 1 name no container: try the label of their present path, then of their recorded one.
    for label in [label_of(path), format!("{LABEL_PREFIX}{}", stub.path)] {
        if let Some(found) = read(store.container(&label))?.filter(is_it) {
            return Ok(Some(found));
        }
    }
    // Its label may meanwhile belong to another file.
    for info in store.containers(&format!("{LABEL_PREFIX}{}{ASIDE}", stub.path))? {
        if let Some(found) = found_by(store, info.id)?.filter(is_it) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Fetches the container together with the content of a small file, in one message.
fn found_by(store: &Store, id: ContainerId) -> Result<Option<FoundContainer>> {
    match store.container_content(id) {
        Ok(content) => Ok(Super::read_in(&content)?.map(|sup| FoundContainer {
            meta: content.index(index_id(sup.generation)),
            container: content.container,
            sup,
        })),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read(container: Result<Container>) -> Result<Option<FoundContainer>> {
    match container {
        Ok(container) => Ok(Super::read(&container)?.map(|sup| {
            let meta = metadata(&container, sup.generation);
            FoundContainer { container, sup, meta }
        })),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file's container for a stub.
pub fn find(store: &Store, store_path: &Path, path: &Path, stub: &Stub) -> Result<(Container, Super)> {
    match know(store, store_path, path, stub)? {
        StubTarget::File(There { container, sup, .. }) => Ok((container, sup)),
        other => Err(other.refusal(store_path, path, stub)),
    }
}

impl StubTarget {
    /// Why this is no file, with the way to what was wanted.
    pub fn refusal(&self, store_path: &Path, path: &Path, stub: &Stub) -> Error {
        let subject = format!("unable to open file: name = '{}'", path.display());
        match self {
            Self::Copy(container, of) => {
                let of = of.clone().unwrap_or_else(|| place_of(container.label()));
                Error::new(ErrorKind::InvalidInput, subject)
                    .because(format!("it is a copy of the stub of {}, not of the file", of.display()))
                    .try_next("open the original; copy files with `cenote cp FROM TO`")
            }
            Self::Stale(container, sup) => Error::new(ErrorKind::InvalidInput, subject)
                .because(format!(
                    "it is a stale copy of the stub of {}: of its state {}, and the file was opened for writing since (state {})",
                    place_of(container.label()).display(),
                    stub.state,
                    sup.state
                ))
                .try_next(format!(
                    "the file as it is now: `cenote cp --current {0} TO`; as it was: `cenote snapshot list {0}` lists what was \
                     kept (CENOTE_HDF5_COPIES=1 keeps a snapshot at each close, so that copies of stubs are copies)",
                    path.display()
                )),
            _ => Error::new(ErrorKind::NotFound, subject)
                .because(format!(
                    "its stub is there, but store {} does not hold it (the stub names store {})",
                    store_path.display(),
                    stub.store
                ))
                .try_next(format!(
                    "name the right store: HDF5_VOL_CONNECTOR='cenote store={}' or CENOTE_STORE",
                    stub.store
                )),
        }
    }
}

/// Returns true if this store is to keep the stub: in a cluster, the node that has the file does so alone, since a stub with two
/// further links would never be without a name.
pub fn is_kept_here(store: &Store, container: &Container) -> bool {
    container.home() == store.home()
}

/// Tells the store where the file is now. The file is not changed, and failures are silent. `is_kept`: the store already knew this stub.
pub fn seen_at(
    store: &Store,
    store_path: &Path,
    (container, sup): (&Container, &Super),
    is_kept: bool,
    (file, path): (&File, &Path),
) {
    if !is_kept && is_kept_here(store, container) {
        kept::keep(store_path, container.id(), sup.uuid, (file, path), false);
    }
    let label = label_of(path);
    if container.label() == label || path::is_same(&place_of(container.label()), path) {
        return;
    }
    // The old label stays if nobody may change it, or if another process changes labels at the same time.
    let _ = with_label(store, &label, || store.rename_container_by_id(container.id(), &label));
}

/// Runs `take`, which needs a label; if the label belongs to a file that is not there any more, relabels that file first.
fn with_label<T>(store: &Store, label: &str, take: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 0..TRIES {
        match take() {
            Err(error) if error.kind() == ErrorKind::Exists => {}
            result => return result,
        }
        match store.container(label) {
            Ok(other) => set_aside(store, label, other.id())?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    take()
}

/// Gives a container, with all its content, a label that no file needs.
fn set_aside(store: &Store, label: &str, id: ContainerId) -> Result<()> {
    let long = format!("{label}{ASIDE}{:x}", id.0);
    match store.rename_container_by_id(id, &long) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()), // deleted meanwhile
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::LimitExceeded) => {
            store.rename_container_by_id(id, &format!("{LABEL_PREFIX}{ASIDE}{:x}", id.0))
        }
        result => result,
    }
}

/// Makes a container with its first records for a file at `path`, taking the label from whatever had it.
pub fn new_container(store: &Store, path: &Path, indices: &[FirstRecords<'_>]) -> Result<(Container, Vec<FirstIndex>)> {
    let label = label_of(path);
    // Users who may read and write the stub may read and write the file.
    let spec = match std::fs::metadata(path) {
        Ok(stub) => rights_of(&stub, &ContainerSpec::default()),
        Err(_) => ContainerSpec { mode: CONTAINER_MODE_PRIVATE, ..ContainerSpec::default() },
    };
    let made = with_label(store, &label, || store.create_container_with(&label, &spec, indices));
    match made {
        // A set-group-id directory may give files a group that their owner is not in; containers refuse that.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let spec = ContainerSpec { mode: spec.mode & 0o707, ..ContainerSpec::default() };
            with_label(store, &label, || store.create_container_with(&label, &spec, indices))
        }
        made => made,
    }
}

/// Container settings with the owner, group and mode of a stub.
fn rights_of(stub: &std::fs::Metadata, spec: &ContainerSpec) -> ContainerSpec {
    let mode = (stub.mode() & u32::from(CONTAINER_MODE_BITS)) as u16;
    ContainerSpec { owner_uid: Some(stub.uid()), owner_gid: Some(stub.gid()), mode, ..spec.clone() }
}

/// Gives the container the owner, group and mode of its stub. Changes of the stub take effect when somebody who may change the container
/// next opens the file for writing.
fn follow_rights(container: &Container, file: &File) -> Result<()> {
    let (Some(had), Ok(stub)) = (container.had_spec(), file.metadata()) else { return Ok(()) };
    if rights_of(&stub, had) == *had {
        return Ok(());
    }
    let spec = container.info()?.spec;
    match container.set(&rights_of(&stub, &spec)) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        done => done,
    }
}

/// Makes a container that was made elsewhere the one of the file at `path`.
pub fn give_label(store: &Store, container: ContainerId, path: &Path) -> Result<()> {
    let label = label_of(path);
    with_label(store, &label, || store.rename_container_by_id(container, &label))
}

/// Raises the state of a file that is opened for writing. `file`: its stub, open for writing.
pub fn raise(container: &Container, sup: &mut Super, stub: &Stub, file: &File, path: &Path) -> Result<()> {
    let wrap = |e: std::io::Error| stub::open_error(path, &e);
    follow_rights(container, file)?;
    let _turn = Turn::wait(file, true).map_err(wrap)?;
    // Another writer may have changed the stub meanwhile.
    let stub = Stub::read(file, path)?.filter(|now| now.uuid == stub.uuid).unwrap_or_else(|| stub.clone());
    let supers = container.index(SUPER_INDEX);
    let state = super::superblock::state_of(supers.get_one(STATE_KEY)?.as_deref())?.max(stub.state) + 1;
    let store = path::absolute(container.store().dir())?.display().to_string();
    let next = Stub { container: Some(container.id()), state, path: path::label(path), store, ..stub };
    next.put(file).map_err(wrap)?;
    in_use::touch(file);
    supers.put(&[(STATE_KEY, &record(state))])?;
    sup.state = state;
    Ok(())
}

/// The record of a state.
pub fn record(state: u64) -> Vec<u8> {
    let mut w = Vec::new();
    w.put_u64(state);
    w
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_that_was_raised_between_two_looks_is_no_stale_copy() {
        let path = std::env::temp_dir().join(format!("cenote-risen-{}.h5", std::process::id()));
        let stub = |uuid, state| Stub {
            uuid,
            container: Some(ContainerId(1)),
            state,
            path: "/a".into(),
            store: "/s".into(),
            user_block: 0,
            staged: false,
        };
        let put = |stub: &Stub| stub.put(&File::create(&path).unwrap()).unwrap();
        let seen = stub(7, 3);
        put(&seen);
        assert!(!has_risen(&path, &seen, 4), "a copy that was put back");
        put(&stub(8, 4));
        assert!(!has_risen(&path, &seen, 4), "another file");
        put(&stub(7, 4));
        assert!(has_risen(&path, &seen, 4));
        std::fs::remove_file(&path).unwrap();
        assert!(!has_risen(&path, &seen, 4));
    }
}
