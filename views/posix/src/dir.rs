//! Reading of directories.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cenote::{ErrorKind, NextFrom};

use crate::inner::Inner;
use crate::records::{Entry, ROOT, keys};
use crate::tree::{NameChange, Slot, Tree};
use crate::{Attr, DirEntry, FsResult, Ino, Kind, gate, images, stat, top};

/// Entries per request.
const PAGE: u32 = 512;
/// Positions before the first name's: start, after `.`, after `..`.
const DOTS: u64 = 2;

/// Cursor over a directory; `.` and `..` come first. An entry that exists all the time is returned exactly once; one that appears or
/// disappears meanwhile at most once.
///
/// A position stands for the name read before it, so it stays valid as long as the cursor.
#[derive(Debug)]
pub struct DirCursor {
    fs: Arc<Inner>,
    ino: Ino,
    parent: Ino,
    /// Entries fetched and not yet returned.
    page: VecDeque<Read>,
    /// The last entry was fetched.
    is_read: bool,
    position: u64,
    names: Names,
}

/// Name, inode number, type.
type Read = (Vec<u8>, Ino, Kind);

/// Names returned so far, in the order of positions.
#[derive(Debug, Default)]
struct Names {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    /// Likely position of the next name.
    next: usize,
}

impl Names {
    fn get(&self, at: usize) -> Option<&[u8]> {
        let end = *self.ends.get(at)? as usize;
        let begin = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        Some(&self.bytes[begin..end])
    }
    /// Returns the position of a name that follows the previous one.
    fn place(&mut self, name: &[u8]) -> usize {
        if self.get(self.next) != Some(name) {
            self.next = self.ends.len();
            self.bytes.extend_from_slice(name);
            self.ends.push(self.bytes.len() as u32);
        }
        self.next += 1;
        self.next - 1
    }
}

impl DirCursor {
    pub(crate) fn new(fs: &Arc<Inner>, ino: Ino, parent: Ino) -> Self {
        let (page, names) = (VecDeque::new(), Names::default());
        Self { fs: fs.clone(), ino, parent, page, is_read: false, position: 0, names }
    }
    /// Returns the next entry; `None` at the end.
    #[allow(clippy::should_implement_trait, reason = "it can fail, and it can be set back")]
    pub fn next(&mut self) -> FsResult<Option<DirEntry>> {
        let _in = gate::enter();
        if self.position < DOTS {
            self.position += 1;
            let (name, ino) = if self.position == 1 { (&b"."[..], self.ino) } else { (&b".."[..], self.parent) };
            return Ok(Some(DirEntry { name: name.to_vec(), ino, kind: Kind::Directory, next: self.position }));
        }
        if self.page.is_empty() && !self.is_read {
            self.ask()?;
        }
        let Some((name, ino, kind)) = self.page.pop_front() else { return Ok(None) };
        self.position = self.names.place(&name) as u64 + DOTS + 1;
        Ok(Some(DirEntry { name, ino, kind, next: self.position }))
    }
    /// Continues at `position` as `seekdir` does; 0 reads again from the start as `rewinddir` does.
    pub fn seek(&mut self, position: u64) {
        if position == self.position && position != 0 {
            return;
        }
        self.position = position.min(DOTS + self.names.ends.len() as u64);
        self.names.next = self.position.saturating_sub(DOTS) as usize;
        self.page.clear();
        self.is_read = false;
    }
    fn ask(&mut self) -> FsResult<()> {
        let last = (self.position - DOTS).checked_sub(1).and_then(|at| self.names.get(at as usize));
        let Some((tree, ino)) = self.fs.split(self.ino)? else {
            let all = top::containers(&self.fs)?.into_iter();
            let numbering = self.fs.common.numbering;
            for (label, id) in all.filter(|(label, _)| last.is_none_or(|last| label.as_bytes() > last)) {
                let root = match numbering.tree(id) {
                    Some(tree) => numbering.whole(tree, ROOT),
                    None => self.fs.tree_in_label(&label)?.whole(ROOT), // its error says why there is no number
                };
                self.page.push_back((label.into_bytes(), root, Kind::Directory));
            }
            self.is_read = true;
            return Ok(());
        };
        images::sync(&self.fs, &tree)?;
        let (read, is_end) = page(&tree, ino, last, PAGE)?;
        self.is_read = is_end;
        for (name, slot) in read {
            self.page.push_back((name, tree.whole(slot.entry.ino), slot.entry.kind));
        }
        Ok(())
    }
}

/// Entries of a directory, and whether they are the last.
type Page = (Vec<(Vec<u8>, Slot)>, bool);

/// Returns the entries after a name, as this process sees them.
fn page(tree: &Tree, dir: u64, after: Option<&[u8]>, limit: u32) -> FsResult<Page> {
    let from = after.map_or(NextFrom::Start, |name| NextFrom::After(keys::entry(name)));
    // Read gathered names before the index: a name published in between is then seen twice, not missed.
    let gathered = tree.gathered.names(dir, after);
    let records = match tree.dir(dir).next_with_prefix(&keys::entries(), from, limit) {
        Ok(records) => records,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), true)), // the directory was removed
        Err(error) => return Err(error.into()),
    };
    let slot = |raw: &[u8]| FsResult::Ok(Slot { entry: Entry::decode(raw)?, raw: raw.to_vec() });
    let there = records.iter().map(|(key, raw)| Ok((keys::entry_name(key).to_vec(), slot(raw)?)));
    let there: Vec<(Vec<u8>, Slot)> = there.collect::<FsResult<_>>()?;
    if gathered.is_empty() {
        return Ok((there, records.len() < limit as usize));
    }
    // Gathered names after the last one fetched belong to a later page.
    let is_end = there.len() < limit as usize;
    let last = there.last().map(|(name, _)| name.clone());
    let mut all: BTreeMap<Vec<u8>, Slot> = there.into_iter().collect();
    for (name, fate) in gathered {
        if !is_end && last.as_ref().is_some_and(|last| name > *last) {
            break;
        }
        match fate {
            NameChange::Made(slot) => drop(all.insert(name, slot)),
            NameChange::Gone(_) => drop(all.remove(&name)),
        }
    }
    if all.is_empty() && !is_end {
        return page(tree, dir, last.as_deref(), limit);
    }
    Ok((all.into_iter().collect(), is_end))
}

/// Lists entries with attributes, in the order of names.
pub fn list(fs: &Inner, ino: Ino, after: Option<&[u8]>, limit: usize) -> FsResult<Vec<(Vec<u8>, Attr)>> {
    let mut all = Vec::new();
    let Some((tree, dir)) = fs.split(ino)? else {
        let later = top::whole_containers(fs)?.into_iter();
        for (label, _) in later.filter(|(label, _)| after.is_none_or(|after| label.as_bytes() > after)).take(limit) {
            let tree = fs.tree_in_label(&label)?;
            let attr = stat::attr(&tree, &*tree.directory(ROOT)?)?;
            all.push((label.into_bytes(), attr));
        }
        return Ok(all);
    };
    tree.directory(dir)?;
    images::sync(fs, &tree)?;
    let mut last = after.map(<[u8]>::to_vec);
    while all.len() < limit {
        let want = (limit - all.len()).min(PAGE as usize);
        let (read, is_end) = page(&tree, dir, last.as_deref(), want as u32)?;
        last = read.last().map(|(name, _)| name.clone());
        for (name, slot) in read {
            if all.len() == limit {
                break;
            }
            if let Some(found) = tree.found_at(dir, &name, slot)?
                && let Some(found) = images::of_list(fs, &tree, dir, &name, found)?
            {
                all.push((name, stat::attr(&tree, &found)?));
            }
        }
        if is_end {
            break;
        }
    }
    Ok(all)
}
