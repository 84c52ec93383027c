//! Opening of files, by number or by name.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::file::{File, Live};
use crate::rights::{self, READ, SEARCH, WRITE};
use crate::tree::{FoundNode, Moment, NodeLocation, Tree};
use crate::{Caller, Consistency, FsResult, Kind, Make, OpenFlags, fail};

use super::make::{gather, make_alone};

/// Opens a file by its number.
pub fn open(tree: &Arc<Tree>, caller: &Caller, ino: u64, flags: OpenFlags) -> FsResult<File> {
    let (live, _) = enter(tree, caller, flags, || tree.find(ino))?;
    opened(live, caller, flags)
}

/// Registers the file that `find` finds as open, so that from here on no other thread or process deletes it.
fn enter(
    tree: &Arc<Tree>,
    caller: &Caller,
    flags: OpenFlags,
    find: impl Fn() -> FsResult<FoundNode>,
) -> FsResult<(Arc<Live>, FoundNode)> {
    loop {
        let first = find()?;
        check(tree, caller, &first, flags)?;
        let gate = match first.place {
            NodeLocation::Entry { dir, .. } => tree.claim_and_keep(dir)?,
            NodeLocation::Own | NodeLocation::Orphan => {
                tree.claim(0)?;
                tree.gates.of(&first.place).read()
            }
        };
        let found = find()?;
        if found.ino == first.ino && found.place == first.place {
            let live = Live::of(tree, &found);
            drop(gate);
            if found.place == NodeLocation::Orphan {
                live.note_orphaned();
                tree.hold_too(found.ino)?;
            }
            return Ok((live, found));
        }
    }
}

/// Checks that `caller` may open a found file with these flags.
fn check(tree: &Tree, caller: &Caller, found: &FoundNode, flags: OpenFlags) -> FsResult<()> {
    match found.node.kind {
        Kind::File => {}
        Kind::Directory => return fail(libc::EISDIR),
        Kind::Symlink => return fail(libc::ELOOP),
        _ => return fail(libc::ENXIO),
    }
    let changes = flags.write || flags.truncate;
    let mask = if flags.read { READ } else { 0 } | if changes { WRITE } else { 0 };
    rights::need(caller, &found.node, mask)?;
    if changes { tree.check_changes(found) } else { Ok(()) }
}

fn opened(live: Arc<Live>, caller: &Caller, flags: OpenFlags) -> FsResult<File> {
    let file = File::new(live, flags, caller);
    if flags.truncate {
        file.truncate(0)?;
    }
    Ok(file)
}

/// Opens `name` in `dir`, and creates it first if `flags` say so and it does not exist. Returns true if it was created.
pub fn open_at(
    tree: &Arc<Tree>,
    caller: &Caller,
    dir: u64,
    name: &[u8],
    flags: OpenFlags,
    mode: u32,
) -> FsResult<(File, FoundNode, bool)> {
    super::check(name)?;
    if super::is_dots(name) {
        return fail(libc::EISDIR);
    }
    if flags.create {
        tree.make(None, 0o755)?;
    }
    loop {
        // Take the moment before the lookup that finds nothing: a name taken after that lookup must not be gathered.
        let since = tree.gathered.moment();
        let found = tree.directory(dir)?;
        let parent = &found.node;
        // Where others create files as well, a lookup is a message, so try to create first if the last file opened for creation was new. Not
        // in a `commit` directory, which would not notice an existing file at once.
        let is_likely_new = parent.consistency == Consistency::Strict && tree.makes_new.load(Ordering::Relaxed);
        let is_looked_for = !flags.create || !(flags.exclusive || is_likely_new);
        if is_looked_for {
            rights::need(caller, parent, SEARCH)?;
            match enter(tree, caller, flags, || tree.find_in(dir, name)) {
                Ok((live, found)) => return Ok((opened(live, caller, flags)?, found, false)),
                Err(error) if error.errno == libc::ENOENT && flags.create => {}
                Err(error) => return Err(error),
            }
        }
        let what = Make { kind: Kind::File, mode, rdev: 0, target: Vec::new() };
        match made(tree, caller, (dir, name), &what, is_looked_for.then_some(since)) {
            Ok((live, found)) => {
                tree.makes_new.store(true, Ordering::Relaxed);
                tree.publish_if_full();
                return Ok((File::new(live, flags, caller), found, true));
            }
            Err(error) if error.errno == libc::EEXIST && !flags.exclusive => {
                tree.makes_new.store(false, Ordering::Relaxed);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Creates a file and registers it as open, so that no other thread deletes it in between. It may be gathered if its name was seen to be free
/// after `free_since`.
fn made(
    tree: &Arc<Tree>,
    caller: &Caller,
    (dir, name): (u64, &[u8]),
    what: &Make,
    free_since: Option<Moment>,
) -> FsResult<(Arc<Live>, FoundNode)> {
    if let Some(since) = free_since {
        let _gate = tree.claim_and_keep(dir)?;
        if let Some(found) = gather(tree, caller, since, dir, name, what.mode)? {
            return Ok((Live::of(tree, &found), found));
        }
    }
    let _apart = tree.apart(); // before the gate, which a publisher may need
    let _gate = tree.claim_and_keep(dir)?;
    let found = make_alone(tree, caller, dir, name, what)?;
    Ok((Live::of(tree, &found), found))
}
