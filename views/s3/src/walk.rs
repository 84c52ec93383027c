//! Ordered walk over keys: from any start, in the byte order of whole keys, at a cost proportional to the number of keys returned.
//!
//! A tree orders names within a directory; among keys, a directory `a` counts as `a/`, so that `a-b` comes before `a/x`. A directory is therefore
//! deferred until no name before its `a/` is left: such names begin with `a`, so the deferred directories form a stack. To start at a key, the walk
//! descends through the directories on its path, and looks up the few names that could be deferred there.
#![allow(clippy::option_option, reason = "no next page, the first page, or the one after a name")]

use s3s::S3Result;

/// Nodes requested when a directory is entered.
const FIRST_PAGE: usize = 16;

/// Target of a name.
pub struct Node<D, T> {
    /// The name.
    pub name: String,
    /// The key that ends with this name, if there is one.
    pub key: Option<T>,
    /// The directory below it, if there is one.
    pub below: Option<D>,
}

/// A tree that can be walked.
pub trait Tree {
    /// A directory.
    type Directory: Clone;
    /// Data of a key.
    type Item;
    /// Returns nodes of a directory in the order of names: those after `after` (bytes that need not be a name), at most `limit`. Omits names that are
    /// in no key; the second value is where the next page begins, `None` at the end.
    #[expect(clippy::type_complexity, reason = "a page and where it ended")]
    fn page(
        &self,
        of: &Self::Directory,
        after: Option<&[u8]>,
        limit: usize,
    ) -> S3Result<(Vec<Node<Self::Directory, Self::Item>>, Option<Vec<u8>>)>;
    /// Looks up one name of a directory.
    fn node(&self, of: &Self::Directory, name: &str) -> S3Result<Option<Node<Self::Directory, Self::Item>>>;
    /// Returns the key that a directory itself is, with the trailing slash.
    fn own(&self, directory: &Self::Directory) -> S3Result<Option<Self::Item>>;
}

struct Level<D, T> {
    directory: D,
    /// Length of the key up to here, with its slash.
    prefix_len: usize,
    /// Fetched nodes, the next one last.
    fetched: Vec<Node<D, T>>,
    /// Where the next page begins; `None` if there is none.
    after: Option<Option<Vec<u8>>>,
    /// Deferred directories by name; the next one last.
    put_off: Vec<(String, D)>,
    /// Nodes to request next: few at first, since the walk may leave at once.
    page: usize,
}

/// A walk.
pub struct Walk<'a, T: Tree> {
    tree: &'a T,
    root: T::Directory,
    levels: Vec<Level<T::Directory, T::Item>>,
    /// The current directory as a key.
    prefix: String,
    /// The next key, if it was found while seeking.
    ready: Option<(String, T::Item)>,
    page: usize,
}

impl<'a, T: Tree> Walk<'a, T> {
    /// Starts at the first key that is not before `from`; requests `page` nodes at a time.
    pub fn new(tree: &'a T, root: T::Directory, from: &str, page: usize) -> S3Result<Self> {
        let mut walk = Self { tree, root, levels: Vec::new(), prefix: String::new(), ready: None, page: page.max(2) };
        walk.seek(from)?;
        Ok(walk)
    }
    /// Continues at the first key that is not before `from`.
    pub fn seek(&mut self, from: &str) -> S3Result<()> {
        self.levels.clear();
        self.prefix.clear();
        self.ready = None;
        let mut directory = self.root.clone();
        let mut rest = from;
        loop {
            let mut level = Level {
                directory: directory.clone(),
                prefix_len: self.prefix.len(),
                fetched: Vec::new(),
                after: Some(None),
                put_off: Vec::new(),
                page: self.page,
            };
            if rest.is_empty() {
                // Everything in this directory follows; its own key is the first, unless it is the root.
                self.levels.push(level);
                return self.own();
            }
            let (name, deeper) = rest.split_once('/').map_or((rest, None), |(name, deeper)| (name, Some(deeper)));
            // Directories whose names are prefixes of `name`, but whose keys come later.
            for (len, byte) in name.bytes().enumerate().skip(1) {
                if byte < b'/'
                    && name.is_char_boundary(len)
                    && let Some(Node { name, below: Some(below), .. }) = self.tree.node(&directory, &name[..len])?
                {
                    level.put_off.push((name, below));
                }
            }
            let Some(deeper) = deeper else {
                // From this name on: the name itself, then those after it.
                level.after = Some(Some(name.as_bytes().to_vec()));
                level.fetched.extend(self.tree.node(&directory, name)?);
                self.levels.push(level);
                return Ok(());
            };
            // Names between `name` and `name/` come before `from`; those after `name/` follow once everything below is done.
            level.after = Some(Some(format!("{name}/").into_bytes()));
            let below =
                if name.is_empty() { None } else { self.tree.node(&directory, name)?.and_then(|node| node.below) };
            self.levels.push(level);
            let Some(below) = below else { return Ok(()) };
            self.prefix.push_str(name);
            self.prefix.push('/');
            directory = below;
            rest = deeper;
        }
    }
    /// Returns the next key.
    pub fn next(&mut self) -> S3Result<Option<(String, T::Item)>> {
        loop {
            if let Some(ready) = self.ready.take() {
                return Ok(Some(ready));
            }
            let page_max = self.page;
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            self.prefix.truncate(level.prefix_len);
            if level.fetched.is_empty()
                && let Some(after) = level.after.take()
            {
                let (nodes, end) = self.tree.page(&level.directory, after.as_deref(), level.page)?;
                level.page = (level.page * 4).min(page_max);
                level.fetched = nodes;
                level.fetched.reverse();
                level.after = end.map(Some);
                if level.fetched.is_empty() && level.after.is_some() {
                    continue;
                }
            }
            let goes_first = match (level.put_off.last(), level.fetched.last()) {
                (Some((put_off, _)), Some(node)) => is_before(put_off, &node.name),
                (put_off, _) => put_off.is_some(),
            };
            if goes_first {
                if let Some((name, below)) = level.put_off.pop() {
                    self.enter(&name, below)?;
                }
                continue;
            }
            let Some(node) = level.fetched.pop() else {
                self.levels.pop();
                continue;
            };
            if let Some(below) = node.below {
                level.put_off.push((node.name.clone(), below));
            }
            if let Some(item) = node.key {
                return Ok(Some((format!("{}{}", self.prefix, node.name), item)));
            }
        }
    }

    /// Skips the remaining keys with `prefix`, one of which was just returned.
    pub fn skip(&mut self, prefix: &str) -> S3Result<()> {
        if !prefix.ends_with('/') {
            return if let Some(next) = successor(prefix) {
                self.seek(&next)
            } else {
                self.levels.clear();
                Ok(())
            };
        }
        // All of them are in one directory.
        self.ready = None;
        while self.levels.last().is_some_and(|level| level.prefix_len >= prefix.len()) {
            self.levels.pop();
        }
        Ok(())
    }

    fn enter(&mut self, name: &str, directory: T::Directory) -> S3Result<()> {
        self.prefix.push_str(name);
        self.prefix.push('/');
        self.levels.push(Level {
            directory,
            prefix_len: self.prefix.len(),
            fetched: Vec::new(),
            after: Some(None),
            put_off: Vec::new(),
            page: self.page.min(FIRST_PAGE),
        });
        self.own()
    }
    fn own(&mut self) -> S3Result<()> {
        if let Some(level) = self.levels.last()
            && level.prefix_len > 0
            && let Some(item) = self.tree.own(&level.directory)?
        {
            self.ready = Some((self.prefix.clone(), item));
        }
        Ok(())
    }
}

/// Returns whether all keys below the directory come before the name.
fn is_before(directory: &str, name: &str) -> bool {
    directory.bytes().chain(std::iter::once(b'/')).lt(name.bytes())
}

/// Returns the smallest text after all that begin with `prefix`; `None` if there is none.
pub fn successor(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(last as u32 + 1) };
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// Paths of files; a directory is its path with a slash, the root is empty.
    #[derive(Default)]
    struct Paths {
        files: BTreeSet<String>,
        marked: BTreeSet<String>,
        asked: Cell<usize>,
    }

    impl Paths {
        fn names(&self, of: &str) -> BTreeMap<String, (bool, bool)> {
            let mut names: BTreeMap<String, (bool, bool)> = BTreeMap::new();
            for path in self.files.iter().chain(&self.marked) {
                let Some(rest) = path.strip_prefix(of).filter(|rest| !rest.is_empty()) else { continue };
                match rest.split_once('/') {
                    Some((name, _)) => names.entry(name.to_owned()).or_default().1 = true,
                    None => names.entry(rest.to_owned()).or_default().0 = true,
                }
            }
            names
        }
        fn make(of: &str, (name, (is_key, is_directory)): (&String, &(bool, bool))) -> Node<String, ()> {
            Node { name: name.clone(), key: is_key.then_some(()), below: is_directory.then(|| format!("{of}{name}/")) }
        }
    }

    impl Tree for Paths {
        type Directory = String;
        type Item = ();
        fn page(
            &self,
            of: &String,
            after: Option<&[u8]>,
            limit: usize,
        ) -> S3Result<(Vec<Node<String, ()>>, Option<Vec<u8>>)> {
            let after = after.unwrap_or_default();
            let names = self.names(of);
            let page: Vec<_> = names
                .iter()
                .filter(|(name, _)| name.as_bytes() > after)
                .take(limit)
                .map(|one| Self::make(of, one))
                .collect();
            self.asked.set(self.asked.get() + page.len() + 1);
            let end = (page.len() == limit).then(|| page[limit - 1].name.clone().into_bytes());
            Ok((page, end))
        }
        fn node(&self, of: &String, name: &str) -> S3Result<Option<Node<String, ()>>> {
            self.asked.set(self.asked.get() + 1);
            Ok(self.names(of).get_key_value(name).map(|one| Self::make(of, one)))
        }
        fn own(&self, directory: &String) -> S3Result<Option<()>> {
            Ok(self.marked.contains(directory).then_some(()))
        }
    }

    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn keys_come_in_the_order_of_keys() {
        let mut tree = Paths::default();
        for key in ["a-b", "a/x", "a.txt", "a0", "a-/y", "a-.x", "b", "a/b/c", "ab/c", "a!"] {
            tree.files.insert(key.into());
        }
        let mut walk = Walk::new(&tree, String::new(), "", 2).unwrap();
        let mut seen = Vec::new();
        while let Some((key, ())) = walk.next().unwrap() {
            seen.push(key);
        }
        assert_eq!(seen, ["a!", "a-.x", "a-/y", "a-b", "a.txt", "a/b/c", "a/x", "a0", "ab/c", "b"]);
    }

    #[test]
    fn every_beginning_gives_the_rest() {
        let seed = std::env::var("CENOTE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed_1234_u64);
        println!("seed {seed} (CENOTE_SEED replays it)");
        let mut state = seed;
        for _ in 0..300 {
            let mut tree = Paths::default();
            let draw = |state: &mut u64| {
                let mut key = String::new();
                for part in 0..=random(state) % 3 {
                    if part > 0 {
                        key.push('/');
                    }
                    for _ in 0..=random(state) % 3 {
                        key.push(char::from(b"ab-.0!"[(random(state) % 6) as usize]));
                    }
                }
                key
            };
            for _ in 0..random(&mut state) % 24 {
                let key = draw(&mut state);
                let above = |key: &str| {
                    tree.files
                        .iter()
                        .any(|file| key.starts_with(&format!("{file}/")) || file.starts_with(&format!("{key}/")))
                };
                let collides = above(&key) || tree.marked.iter().any(|marked| marked.starts_with(&format!("{key}/")));
                if random(&mut state).is_multiple_of(5)
                    && !tree.files.contains(&key)
                    && !tree.files.iter().any(|file| key.starts_with(&format!("{file}/")))
                {
                    tree.marked.insert(format!("{key}/"));
                } else if !collides {
                    tree.files.insert(key);
                }
            }
            let all: BTreeSet<String> = tree.files.union(&tree.marked).cloned().collect();
            let mut froms: Vec<String> = (0..12).map(|_| draw(&mut state)).collect();
            froms.extend(all.iter().flat_map(|key| {
                [key.clone(), format!("{key}/"), format!("{key}\u{1}"), key[..key.len() - 1].to_owned()]
            }));
            for from in froms {
                for page in [2, 3, 100] {
                    let mut walk = Walk::new(&tree, String::new(), &from, page).unwrap();
                    let mut seen = Vec::new();
                    while let Some((key, ())) = walk.next().unwrap() {
                        seen.push(key);
                    }
                    let expected: Vec<String> = all.range(from.clone()..).cloned().collect();
                    assert_eq!(seen, expected, "from {from:?} of {all:?}, seed {seed}");
                }
            }
        }
    }

    #[test]
    fn a_page_costs_what_it_gives() {
        let mut tree = Paths::default();
        for number in 0..2000 {
            tree.files.insert(format!("d{:02}/f{:02}", number / 50, number % 50));
        }
        let mut walk = Walk::new(&tree, String::new(), "d20/f10", 10).unwrap();
        for _ in 0..10 {
            walk.next().unwrap().unwrap();
        }
        assert!(tree.asked.get() < 40, "{} names were asked for", tree.asked.get());
    }
}
