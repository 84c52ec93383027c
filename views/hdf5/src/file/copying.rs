//! `cenote cp`: copies a file of the store into a new file.
//!
//! The source is a snapshot, so that a concurrent writer's changes are not copied by half: all metadata records as they are, and
//! the bytes of each object where it has data. The copy has its own file id; object numbers stay.

use std::path::Path;

use cenote::{Container, Error, ErrorKind, Index, IndexId, NextFrom, Object, Store};

use super::identity::{self, STATE_SNAPSHOT, StubTarget, There};
use super::incoming::Making;
use super::stub::{self, Seen, Stub};
use super::superblock::Super;
use super::{checkpoint, path, random_u64};
use crate::Result;

/// Records read and put in one message.
const RECORDS: u32 = 512;
/// Bytes read and written in one call.
const PIECE: u64 = 4 << 20;

/// Copies the file at `from` to a new file at `to`, which it replaces. For a copied or stale stub, the source is the state that
/// the stub records, if that was kept; with `current`, the file as it is now. `tell` is called with copied bytes. Returns their
/// number.
pub fn copy(store: &Store, from: &Path, to: &Path, current: bool, tell: &mut dyn FnMut(u64)) -> Result<u64> {
    let from = path::absolute(from)?;
    let stub = match stub::look(&from)? {
        Seen::Stub(stub) => stub,
        other => return Err(stub::refuse(&from, &other)),
    };
    let mut head = vec![0; usize::try_from(stub.user_block).unwrap_or_default()];
    let wrap = |e: std::io::Error| stub::open_error(&from, &e);
    let file = stub::open_quietly(&from).map_err(wrap)?;
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut head, 0).map_err(wrap)?;
    let (source, passing) = source(store, &from, &stub, current)?;
    let copied = copy_of(store, &source, to, &stub, head, tell);
    if let Some((container, name)) = passing {
        drop(source);
        let forgotten = container.delete_snapshot(&name);
        return copied.and_then(|bytes| forgotten.map(|()| bytes));
    }
    copied
}

/// The container to copy, and a snapshot to delete afterwards.
type Source = (Container, Option<(Container, String)>);

fn source(store: &Store, from: &Path, stub: &Stub, current: bool) -> Result<Source> {
    let store_path = path::absolute(store.dir())?;
    let known = identity::know(store, &store_path, from, stub)?;
    let refusal = known.refusal(&store_path, from, stub);
    let (container, sup) = match known {
        StubTarget::File(There { container, sup, .. }) => (container, sup),
        StubTarget::Copy(container, _) | StubTarget::Stale(container, _) if current => {
            let sup = Super::read(&container)?.ok_or(refusal)?;
            (container, sup)
        }
        StubTarget::Copy(container, _) | StubTarget::Stale(container, _) => {
            let kept = container.open_snapshot(&format!("{STATE_SNAPSHOT}{}", stub.state));
            return kept.map(|kept| (kept, None)).map_err(|_| refusal);
        }
        StubTarget::Nothing => return Err(refusal),
    };
    if sup.is_published
        && let Some(published) = checkpoint::published(&store_path, &container, None)?
    {
        return Ok((published, None));
    }
    let name = format!("copying-{}-{:x}", std::process::id(), random_u64()?);
    container.snapshot(&name)?;
    let source = container.open_snapshot(&name)?;
    Ok((source, Some((container, name))))
}

fn copy_of(
    store: &Store,
    source: &Container,
    to: &Path,
    stub: &Stub,
    head: Vec<u8>,
    tell: &mut dyn FnMut(u64),
) -> Result<u64> {
    let sup = Super::read(source)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("file {}", stub.path)).because("it holds no HDF5 file")
    })?;
    let making = Making::begin(store, to, stub.staged, head)?;
    let meta = making.begin_copy(store, sup.generation)?;
    copy_records(&source.index(IndexId(u128::from(sup.generation))), &meta)?;
    let (mut after, mut bytes) = (None, 0);
    loop {
        let page = source.objects(after, RECORDS)?;
        let Some(last) = page.last() else { break };
        after = Some(*last);
        for id in page.iter().filter(|id| (id.0 >> 64) as u64 == sup.generation) {
            let from = source.object(*id);
            let stat = from.stat()?;
            let into = making.container.create_object(Some(*id), Some(stat.block_shift))?;
            bytes += copy_bytes(&from, &into, stat.size, tell)?;
        }
    }
    making.place()?;
    Ok(bytes)
}

fn copy_records(from: &Index, to: &Index) -> Result<()> {
    let mut next = NextFrom::Start;
    loop {
        let page = from.next(next, RECORDS)?;
        let records: Vec<(&[u8], &[u8])> = page.iter().collect();
        let Some((last, _)) = records.last() else { return Ok(()) };
        to.put(&records)?;
        next = NextFrom::After(last.to_vec());
    }
}

/// Copies the data of an object; holes stay holes.
fn copy_bytes(from: &Object, to: &Object, size: u64, tell: &mut dyn FnMut(u64)) -> Result<u64> {
    let (mut at, mut copied) = (0, 0);
    let mut piece = Vec::new();
    while let Some(begin) = from.next_data(at)?.filter(|begin| *begin < size) {
        let end = from.next_hole(begin)?.unwrap_or(size).min(size);
        let mut offset = begin;
        while offset < end {
            piece.resize((end - offset).min(PIECE) as usize, 0);
            let read = from.read_at(offset, &mut piece)?;
            to.write_at(offset, &piece[..read])?;
            offset += piece.len() as u64;
            copied += read as u64;
            tell(read as u64);
        }
        at = end;
    }
    if to.size()? < size {
        to.truncate(size)?;
    }
    Ok(copied)
}
