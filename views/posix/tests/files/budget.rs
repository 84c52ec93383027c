//! Messages per call, compared with the table in `docs/files.md`.

use cenote::{Mode, Store};
use cenote_posix::{FileSystem, Kind, OpenFlags, Rename, SetAttr, SetXattr};

use crate::test_dir::{CREATE, READ_WRITE, TestDir, one_tree, root_user, what};

/// Calls of each kind.
const CALLS: u64 = 500;

struct Budget {
    store: Store,
    table: Vec<(String, f64, f64)>,
}

impl Budget {
    fn requests(&self) -> u64 {
        self.store.telemetry(0).unwrap().counts.requests
    }
    /// Counts messages for [`CALLS`] calls.
    fn each(&mut self, name: &str, most: f64, mut call: impl FnMut(u64)) {
        let before = self.requests();
        for n in 0..CALLS {
            call(n);
        }
        // Asking for the count is a request itself.
        let each = (self.requests() - before - 1) as f64 / CALLS as f64;
        self.table.push((name.into(), each, most));
    }
}

pub fn messages() {
    let place = TestDir::new();
    let store = place.make(Mode::InProcess);
    let fs = FileSystem::new(&store, one_tree()).unwrap();
    let me = root_user();
    let root = fs.root();
    let mut budget = Budget { store, table: Vec::new() };
    let name = |n: u64| format!("file{n}").into_bytes();
    for consistency in ["strict", "commit"] {
        let dir = fs.make(&me, root, consistency.as_bytes(), &what(Kind::Directory, 0o755)).unwrap().ino;
        fs.set_xattr(&me, dir, b"user.cenote.consistency", consistency.as_bytes(), SetXattr::Any).unwrap();
        let is_strict = consistency == "strict";
        let gathered = if is_strict { 1.0 } else { 0.01 };
        let said = |what: &str| format!("{what} ({consistency})");
        let read = OpenFlags { write: false, ..READ_WRITE };
        // The first one claims the directory and draws numbers.
        fs.open_at(&me, dir, b"first", CREATE, 0o644).unwrap().0.close().unwrap();
        budget.each(&said("create, close"), gathered + 0.05, |n| {
            fs.open_at(&me, dir, &name(n), CREATE, 0o644).unwrap().0.close().unwrap();
        });
        budget.each(&said("lookup of an empty file"), 0.01, |n| {
            fs.lookup(&me, dir, &name(n)).unwrap();
        });
        budget.each(&said("lookup of what is not there"), 0.01, |n| {
            fs.lookup(&me, dir, &[&name(n), &b"x"[..]].concat()).unwrap_err();
        });
        budget.each(&said("open, close"), 0.01, |n| {
            fs.open_at(&me, dir, &name(n), read, 0).unwrap().0.close().unwrap();
        });
        if is_strict {
            let bytes = vec![1; 4096];
            budget.each("open, first write, close", 2.1, |n| {
                let file = fs.open_at(&me, dir, &name(n), READ_WRITE, 0).unwrap().0;
                file.write_at(&bytes, 0).unwrap();
                file.close().unwrap();
            });
            let (file, _, _) = fs.open_at(&me, dir, b"file0", READ_WRITE, 0).unwrap();
            budget.each("write", 1.1, |n| file.write_at(&bytes, n * 4096).unwrap());
            let mut buf = vec![0; 4096];
            budget.each("read", 0.1, |n| assert_eq!(file.read_at(&mut buf, n * 4096).unwrap(), 4096));
            budget.each("append", 1.1, |n| assert_eq!(file.append(&bytes).unwrap(), (CALLS + n) * 4096));
            file.close().unwrap();
            budget.each("lookup of a file with bytes", 0.01, |n| {
                fs.lookup(&me, dir, &name(n)).unwrap();
            });
            budget.each("chmod", 1.01, |n| {
                let ino = fs.lookup(&me, dir, b"first").unwrap().ino;
                fs.set_attr(&me, ino, &SetAttr { mode: Some(n as u32 & 0o777), ..SetAttr::default() })
                    .map(drop)
                    .unwrap();
            });
            budget.each("rename", 1.01, |n| {
                let (from, to) = if n % 2 == 0 { (&b"first"[..], &b"last"[..]) } else { (&b"last"[..], &b"first"[..]) };
                fs.rename(&me, (dir, from), (dir, to), Rename::Replace).unwrap();
            });
            budget.each("mkdir", 1.1, |n| {
                fs.make(&me, dir, &[b"d", &name(n)[..]].concat(), &what(Kind::Directory, 0o755)).unwrap();
            });
            budget.each("rmdir", 1.1, |n| fs.rmdir(&me, dir, &[b"d", &name(n)[..]].concat()).unwrap());
        }
        budget.each(&said("unlink"), gathered + 0.01, |n| fs.unlink(&me, dir, &name(n)).unwrap());
    }
    let mut failed = false;
    for (name, each, most) in &budget.table {
        let mark = if each > most { " TOO MANY" } else { "" };
        failed |= each > most;
        println!("  {name:<40} {each:6.3} messages{mark}");
    }
    assert!(!failed);
}
