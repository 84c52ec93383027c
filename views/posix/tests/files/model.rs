//! Two sessions change one tree at random, one call after the other; the test compares every answer with that of a model in
//! memory, and in the end the whole tree and its records.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cenote::Mode;
use cenote_posix::{Attr, Caller, Consistency, File, FileSystem, FsResult, Ino, Kind, Make, Rename, SetAttr, SetXattr};

use crate::rng::{Rng, seed, steps};
use crate::test_dir::{CREATE, READ_WRITE, TestDir, client, root_user};

const ROOT: usize = 0;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[derive(Clone, Debug)]
struct Node {
    kind: Kind,
    links: u32,
    bytes: Vec<u8>,
    entries: BTreeMap<String, usize>,
    parent: usize,
}

/// Expected state.
struct Model {
    nodes: Vec<Node>,
}

impl Model {
    fn new() -> Self {
        let mut model = Self { nodes: Vec::new() };
        model.add(Kind::Directory, ROOT);
        model
    }
    fn add(&mut self, kind: Kind, parent: usize) -> usize {
        let links = if kind == Kind::Directory { 2 } else { 1 };
        self.nodes.push(Node { kind, links, bytes: Vec::new(), entries: BTreeMap::new(), parent });
        self.nodes.len() - 1
    }
    fn is_dir(&self, id: usize) -> bool {
        self.nodes[id].kind == Kind::Directory
    }
    fn find(&self, dir: usize, name: &str) -> Result<usize, i32> {
        if !self.is_dir(dir) {
            return Err(libc::ENOTDIR);
        }
        self.nodes[dir].entries.get(name).copied().ok_or(libc::ENOENT)
    }
    fn make(&mut self, dir: usize, name: &str, kind: Kind) -> Result<usize, i32> {
        match self.find(dir, name) {
            Err(libc::ENOENT) => {}
            Err(errno) => return Err(errno),
            Ok(_) => return Err(libc::EEXIST),
        }
        let id = self.add(kind, dir);
        self.nodes[dir].entries.insert(name.into(), id);
        self.nodes[dir].links += u32::from(kind == Kind::Directory);
        Ok(id)
    }
    fn drop_name(&mut self, dir: usize, name: &str) {
        let id = self.nodes[dir].entries.remove(name).unwrap();
        if self.is_dir(id) {
            self.nodes[dir].links -= 1;
            self.nodes[id].links = 0;
        } else {
            self.nodes[id].links -= 1;
        }
    }
    fn unlink(&mut self, dir: usize, name: &str) -> Result<(), i32> {
        let id = self.find(dir, name)?;
        if self.is_dir(id) {
            return Err(libc::EISDIR);
        }
        self.drop_name(dir, name);
        Ok(())
    }
    fn rmdir(&mut self, dir: usize, name: &str) -> Result<(), i32> {
        let id = self.find(dir, name)?;
        if !self.is_dir(id) {
            return Err(libc::ENOTDIR);
        }
        if !self.nodes[id].entries.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.drop_name(dir, name);
        Ok(())
    }
    fn link(&mut self, id: usize, dir: usize, name: &str) -> Result<(), i32> {
        match self.find(dir, name) {
            Err(libc::ENOENT) => {}
            Err(errno) => return Err(errno),
            Ok(_) => return Err(libc::EEXIST),
        }
        if self.is_dir(id) {
            return Err(libc::EPERM);
        }
        self.nodes[id].links += 1;
        self.nodes[dir].entries.insert(name.into(), id);
        Ok(())
    }
    fn is_below(&self, dir: usize, id: usize) -> bool {
        let mut at = dir;
        loop {
            if at == id {
                return true;
            }
            if at == ROOT {
                return false;
            }
            at = self.nodes[at].parent;
        }
    }
    fn rename(&mut self, from: (usize, &str), to: (usize, &str), how: Rename) -> Result<(), i32> {
        for (dir, _) in [from, to] {
            if !self.is_dir(dir) {
                return Err(libc::ENOTDIR);
            }
        }
        let id = self.find(from.0, from.1)?;
        let there = self.find(to.0, to.1).ok();
        if how == Rename::Exchange {
            return self.exchange(from, to, id, there.ok_or(libc::ENOENT)?);
        }
        if how == Rename::Keep && there.is_some() {
            return Err(libc::EEXIST);
        }
        if self.is_dir(id) && self.is_below(to.0, id) {
            return Err(libc::EINVAL);
        }
        if let Some(there) = there {
            if there == id {
                return Ok(());
            }
            match (self.is_dir(id), self.is_dir(there)) {
                (true, false) => return Err(libc::ENOTDIR),
                (false, true) if self.is_below(from.0, there) => return Err(libc::ENOTEMPTY),
                (false, true) => return Err(libc::EISDIR),
                (true, true) if !self.nodes[there].entries.is_empty() => return Err(libc::ENOTEMPTY),
                _ => self.drop_name(to.0, to.1),
            }
        }
        self.nodes[from.0].entries.remove(from.1);
        self.nodes[to.0].entries.insert(to.1.into(), id);
        self.moved(id, from.0, to.0);
        Ok(())
    }
    fn moved(&mut self, id: usize, from: usize, to: usize) {
        if self.is_dir(id) {
            self.nodes[from].links -= 1;
            self.nodes[to].links += 1;
            self.nodes[id].parent = to;
        }
    }
    fn exchange(&mut self, from: (usize, &str), to: (usize, &str), a: usize, b: usize) -> Result<(), i32> {
        if (self.is_dir(a) && self.is_below(to.0, a)) || (self.is_dir(b) && self.is_below(from.0, b)) {
            return Err(libc::EINVAL);
        }
        self.nodes[from.0].entries.insert(from.1.into(), b);
        self.nodes[to.0].entries.insert(to.1.into(), a);
        if a != b {
            self.moved(a, from.0, to.0);
            self.moved(b, to.0, from.0);
        }
        Ok(())
    }
}

/// An open file, and its expected content.
struct Open {
    file: File,
    id: usize,
    session: usize,
}

struct World {
    _place: TestDir,
    fs: [FileSystem; 2],
    model: Model,
    /// Inode numbers of the model's nodes.
    inos: Vec<Ino>,
    open: Vec<Open>,
    me: Caller,
    rng: Rng,
    consistency: Consistency,
    /// The session to use next.
    session: usize,
}

/// Compares a result with the expected one.
fn same<T: std::fmt::Debug, U>(real: &FsResult<T>, wanted: &Result<U, i32>, what: &str) {
    match (real, wanted) {
        (Ok(_), Ok(_)) => {}
        (Err(error), Err(errno)) if error.errno == *errno => {}
        // A session that never saw a file does not know its number.
        (Err(error), Err(libc::ENOTDIR)) if error.errno == libc::ESTALE => {}
        (real, wanted) => {
            let wanted = wanted.as_ref().err();
            panic!("{what}: {real:?}; wanted: {:?}", wanted.map(|errno| std::io::Error::from_raw_os_error(*errno)))
        }
    }
}

impl World {
    fn new(rng: Rng, consistency: Consistency) -> Self {
        let place = TestDir::new();
        drop(place.make(Mode::InProcess));
        let fs = [client(&place.dir()).1, client(&place.dir()).1];
        let (me, inos) = (root_user(), vec![fs[0].root()]);
        fs[0]
            .set_xattr(&me, inos[0], b"user.cenote.consistency", consistency.word().as_bytes(), SetXattr::Any)
            .unwrap();
        Self { _place: place, fs, model: Model::new(), inos, open: Vec::new(), me, rng, consistency, session: 0 }
    }
    fn dir(&mut self) -> usize {
        // Sometimes also files, and deleted directories.
        let live: Vec<usize> = (0..self.model.nodes.len()).filter(|id| self.model.nodes[*id].links > 0).collect();
        let dirs: Vec<usize> = live.iter().copied().filter(|id| self.model.is_dir(*id)).collect();
        if self.rng.below(50) == 0 { live[self.rng.below(live.len())] } else { dirs[self.rng.below(dirs.len())] }
    }
    fn name(&mut self) -> &'static str {
        NAMES[self.rng.below(NAMES.len())]
    }
    fn step(&mut self) -> String {
        if self.consistency != Consistency::Commit || self.rng.below(5) == 0 {
            let next = self.rng.below(2);
            if next != self.session && self.consistency == Consistency::Commit {
                self.fs[self.session].sync_dir(self.inos[ROOT]).unwrap(); // from here on the other session sees it
            }
            self.session = next;
        }
        let session = self.session;
        let (dir, name) = (self.dir(), self.name());
        let (other_dir, other_name) = (self.dir(), self.name());
        let fs = self.fs[session].clone();
        let (at, to) = (self.inos[dir], self.inos[other_dir]);
        let said = |what: &str| format!("session {session}: {what} {dir}/{name} {other_dir}/{other_name}");
        match self.rng.below(100) {
            0..15 => {
                let kind = [Kind::Directory, Kind::File, Kind::Symlink, Kind::Fifo][self.rng.below(4)];
                let what = Make { kind, mode: 0o755, rdev: 0, target: b"x".into() };
                let real = fs.make(&self.me, at, name.as_bytes(), &what);
                let wanted = self.model.make(dir, name, kind);
                same(&real, &wanted, &said("make"));
                if let Ok(attr) = real {
                    self.inos.push(attr.ino);
                }
                said("make")
            }
            15..30 => {
                let real = fs.open_at(&self.me, at, name.as_bytes(), CREATE, 0o644);
                let wanted = match self.model.find(dir, name) {
                    Err(libc::ENOENT) => self.model.make(dir, name, Kind::File),
                    Ok(id) => match self.model.nodes[id].kind {
                        Kind::File => Ok(id),
                        Kind::Directory => Err(libc::EISDIR),
                        Kind::Symlink => Err(libc::ELOOP),
                        _ => Err(libc::ENXIO),
                    },
                    Err(errno) => Err(errno),
                };
                same(&real, &wanted, &said("open"));
                if let (Ok((file, attr, is_made)), Ok(id)) = (real, wanted) {
                    if is_made {
                        self.inos.push(attr.ino);
                    }
                    self.open.push(Open { file, id, session });
                }
                said("open")
            }
            30..45 => self.use_open(),
            45..50 => {
                if !self.open.is_empty() {
                    let at = self.rng.below(self.open.len());
                    let open = self.open.swap_remove(at);
                    open.file.close().unwrap();
                    return format!("close {}", open.id);
                }
                String::new()
            }
            50..62 => {
                let real = fs.unlink(&self.me, at, name.as_bytes());
                same(&real, &self.model.unlink(dir, name), &said("unlink"));
                said("unlink")
            }
            62..70 => {
                let real = fs.rmdir(&self.me, at, name.as_bytes());
                same(&real, &self.model.rmdir(dir, name), &said("rmdir"));
                said("rmdir")
            }
            70..84 => {
                let how = [Rename::Replace, Rename::Replace, Rename::Keep, Rename::Exchange][self.rng.below(4)];
                let real = fs.rename(&self.me, (at, name.as_bytes()), (to, other_name.as_bytes()), how);
                let wanted = self.model.rename((dir, name), (other_dir, other_name), how);
                same(&real, &wanted, &said(&format!("{how:?}")));
                said(&format!("rename {how:?}"))
            }
            84..90 => {
                let Ok(id) = self.model.find(dir, name) else { return String::new() };
                let real = fs
                    .lookup(&self.me, at, name.as_bytes())
                    .and_then(|attr| fs.link(&self.me, attr.ino, to, other_name.as_bytes()));
                same(&real, &self.model.link(id, other_dir, other_name), &said("link"));
                said("link")
            }
            _ => {
                let real = fs.lookup(&self.me, at, name.as_bytes());
                let wanted = self.model.find(dir, name);
                same(&real, &wanted, &said("lookup"));
                if let (Ok(attr), Ok(id)) = (real, wanted) {
                    self.check_attr(&attr, id);
                    self.check_attr(&fs.attr(self.inos[id]).unwrap(), id);
                }
                said("lookup")
            }
        }
    }
    fn check_attr(&self, attr: &Attr, id: usize) {
        let node = &self.model.nodes[id];
        assert_eq!((attr.ino, attr.kind, attr.links), (self.inos[id], node.kind, node.links), "{id}");
        if node.kind == Kind::File {
            assert_eq!(attr.size_bytes, node.bytes.len() as u64, "size of {id}");
        }
    }
    /// Uses a file that one of the sessions has open, with or without a name.
    fn use_open(&mut self) -> String {
        if self.open.is_empty() {
            return String::new();
        }
        let at = self.rng.below(self.open.len());
        let Open { file, id, session } = &self.open[at];
        let (id, session) = (*id, *session);
        if session != self.session && self.consistency == Consistency::Commit {
            return String::new();
        }
        let bytes = vec![self.rng.next() as u8; 1 + self.rng.below(5000)];
        let offset = self.rng.below(9000);
        let node = &mut self.model.nodes[id].bytes;
        match self.rng.below(4) {
            0 => {
                file.write_at(&bytes, offset as u64).unwrap();
                if node.len() < offset + bytes.len() {
                    node.resize(offset + bytes.len(), 0);
                }
                node[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
            1 => {
                assert_eq!(file.append(&bytes).unwrap(), node.len() as u64);
                node.extend_from_slice(&bytes);
            }
            2 => {
                let set = SetAttr { size_bytes: Some(offset as u64), ..SetAttr::default() };
                file.set_attr(&self.me, &set).unwrap();
                node.resize(offset, 0);
            }
            _ => {
                let mut buf = vec![1; node.len() + 100];
                let read = file.read_at(&mut buf, 0).unwrap();
                assert!(buf[..read] == node[..], "bytes of {id}: {read} of {}", node.len());
                let attr = file.attr().unwrap();
                self.check_attr(&attr, id);
            }
        }
        format!("session {session}: bytes of {id}")
    }
    /// Compares everything with the model, as each session sees it.
    fn check(&mut self) {
        for open in self.open.drain(..) {
            open.file.close().unwrap();
        }
        for fs in &self.fs {
            fs.sync_dir(fs.root()).unwrap();
        }
        for fs in &self.fs {
            for (id, node) in self.model.nodes.iter().enumerate() {
                if node.kind != Kind::Directory || node.links == 0 {
                    continue;
                }
                self.check_attr(&fs.attr(self.inos[id]).unwrap(), id);
                let listed = fs.list(self.inos[id], None, 1000).unwrap();
                let names: Vec<_> = listed.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
                assert_eq!(names, node.entries.keys().cloned().collect::<Vec<_>>(), "names in {id}");
                for ((_, attr), id) in listed.iter().zip(node.entries.values()) {
                    self.check_attr(attr, *id);
                    if attr.kind == Kind::File {
                        let mut buf = vec![1; 1 << 20];
                        let read = fs.open(&self.me, attr.ino, READ_WRITE).unwrap().read_at(&mut buf, 0).unwrap();
                        assert!(buf[..read] == self.model.nodes[*id].bytes[..], "bytes of {id}");
                    }
                }
            }
        }
        let begun = Instant::now();
        loop {
            let wrong = self.fs[0].check(self.fs[0].root()).unwrap();
            let orphans = self.fs[0].orphans(self.fs[0].root()).unwrap();
            if wrong.is_empty() && orphans == 0 {
                return;
            }
            // Files without a name are deleted when each session has noticed.
            assert!(begun.elapsed() < Duration::from_secs(10), "{orphans} files without a name; {wrong:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub fn strict() {
    run("strict", Consistency::Strict, steps(3000));
}

pub fn commit() {
    run("commit", Consistency::Commit, steps(3000));
}

fn run(test: &str, consistency: Consistency, steps: usize) {
    let seed = seed(test);
    let mut world = World::new(Rng::new(seed), consistency);
    let mut done = Vec::new();
    for step in 0..steps {
        let one = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let said = world.step();
            if step % 500 == 499 {
                world.check();
            }
            said
        }));
        match one {
            Ok(said) => done.push(said),
            Err(panic) => {
                let last = done.len().saturating_sub(12);
                println!("CENOTE_SEED={seed}, step {step}; before it:\n{}", done[last..].join("\n"));
                std::panic::resume_unwind(panic);
            }
        }
    }
    world.check();
}
