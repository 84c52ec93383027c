//! Attempts to get in: a second user, a reader, a hostile, copied or removed store directory. A table of commands,
//! each of which must be refused within five seconds without changing a byte. Without root there is no second user,
//! and nothing is tried.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{TestDir, tree};

const READER: u32 = 65_534;
const WRITER: u32 = 65_533;
const NOBODY: u32 = 65_532;
/// A command that takes longer counts as hanging.
const PATIENCE: Duration = Duration::from_secs(5);
const DISK: &str = "name=disk,kind=directory,path=disk,size=64MiB";

/// Attempts, and what went wrong.
#[derive(Default)]
struct Tried {
    cases: usize,
    doors: Vec<String>,
    hangs: Vec<String>,
    changed: Vec<String>,
}

impl Tried {
    /// Runs the command as a user: it must fail in time, with an informative error that does not contain the secret.
    fn refused(&mut self, place: &TestDir, uid: u32, args: &[&str], more: &[(&str, &str)]) {
        self.cases += 1;
        let what = format!("`cenote {}` by user {uid}", args.join(" "));
        let mut command = place.command(args);
        command.stdin(Stdio::null()).envs(more.iter().copied());
        if uid != 0 {
            command.uid(uid).gid(uid);
        }
        let Some((code, said)) = in_time(&mut command) else { return self.hangs.push(what) };
        if code == Some(0) || said.contains(SECRET) {
            self.doors.push(format!("{what}: {said}"));
        } else if code != Some(1) {
            self.doors.push(format!("{what} ended with {code:?}: {said}"));
        } else if !said.contains("cenote: ") {
            self.doors.push(format!("{what} says nothing: {said}"));
        }
    }
    fn unchanged(&mut self, what: &str, is_same: bool) {
        if !is_same {
            self.changed.push(what.to_owned());
        }
    }
}

/// Returns its exit code and output; `None` if it did not end in time.
fn in_time(command: &mut Command) -> Option<(Option<i32>, String)> {
    let out = tempfile();
    let (to, errors) = (out.try_clone().unwrap(), out.try_clone().unwrap());
    let mut child = command.stdout(to).stderr(errors).spawn().unwrap();
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begin.elapsed() > PATIENCE => {
                child.kill().unwrap();
                child.wait().unwrap();
                return None;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let mut out = out;
    std::io::Seek::rewind(&mut out).unwrap();
    let mut said = Vec::new();
    std::io::Read::read_to_end(&mut out, &mut said).unwrap();
    Some((status.code(), String::from_utf8_lossy(&said).into_owned()))
}

/// A file without a name.
fn tempfile() -> fs::File {
    rustix::fs::memfd_create("said", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into()
}

const SECRET: &str = "the-secret-that-nobody-else-reads";

/// Commands on private data: an object of a container, and the object that is a file of a tree.
fn on_private(at: &str, file: &str) -> Vec<Vec<String>> {
    let all: &[&[&str]] = &[
        &["ls", "private"],
        &["stat", "private"],
        &["stat", at],
        &["get", at, "there"],
        &["explain", at],
        &["put", "/etc/hostname", "private"],
        &["put", "/etc/hostname", at],
        &["cat", at],
        &["rm", "-r", "private"],
        &["rm", at],
        &["truncate", at, "0"],
        &["rename", "private", "mine"],
        &["set", "private", "--quota", "1MiB"],
        &["chmod", "0777", "private"],
        &["chown", "65534", "private"],
        &["chown", ":65534", "private"],
        &["mk", "private"],
        &["snapshot", "create", "private", "s"],
        &["snapshot", "list", "private"],
        &["snapshot", "delete", "private", "kept"],
        &["snapshot", "rollback", "private", "kept"],
        &["promote", at],
        &["evict", at],
        &["pin", at],
        &["archive", at],
        &["verify", "private"],
        &["verify", at],
        &["flush", "private"],
        &["index", "ls", "private"],
        &["index", "get", "private/1", "k"],
        &["index", "put", "private/1", "k", "v"],
        &["index", "del", "private/1", "k"],
        &["index", "next", "private/1"],
        &["ls", "tree"],
        &["get", file, "there"],
        &["cat", file],
        &["put", "/etc/hostname", file],
        &["index", "ls", "tree"],
        &["rm", "-r", "tree"],
        &["chmod", "0755", "tree"],
        &["tier", "add", "name=more,kind=memory,size=16MiB"],
        &["tier", "drain", "disk"],
        &["policy", "set", "/etc/hostname"],
        &["checkpoint"],
        &["stop"],
        &["destroy", "--yes"],
        &["destroy", "--yes", "--force"],
        &["serve", "--background"],
        &["adopt", "store"],
        &["clone", "store"],
        &["s3", "key", "list"],
    ];
    all.iter().map(|words| words.iter().map(|word| (*word).to_owned()).collect()).collect()
}

/// Creates a file of mode 0600 in a tree; returns the id of the object with its bytes.
fn private_file(place: &TestDir) -> String {
    use cenote_posix::{Caller, FileSystem, Kind, Make, OpenFlags, Options};
    let store = cenote::Store::open(place.store()).unwrap();
    let files = FileSystem::new(&store, Options { container: Some("tree".into()), ..Options::default() }).unwrap();
    let me = Caller { uid: 0, gid: 0, groups: [].into(), is_checked: false };
    let what = Make { kind: Kind::File, mode: 0o600, rdev: 0, target: Vec::new() };
    let made = files.make(&me, files.root(), b"file", &what).unwrap();
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    files.open(&me, made.ino, flags).unwrap().write_at(SECRET.as_bytes(), 0).unwrap();
    let ids = store.container("tree").unwrap().objects(None, 9).unwrap();
    assert_eq!(ids.len(), 1);
    ids[0].to_string()
}

/// What the private containers hold, as their owner sees it.
#[derive(PartialEq)]
struct PrivateState {
    object: Vec<u8>,
    file: Vec<u8>,
    value: String,
    /// Modes of the two containers.
    modes: [serde_json::Value; 2],
}

fn second_users(tried: &mut Tried) {
    let place = TestDir::new();
    fs::set_permissions(&place.dir, fs::Permissions::from_mode(0o755)).unwrap();
    let names = ["--writer", "65533", "--reader", "65534"];
    let mut args = vec!["init", "--tier", "name=memory,kind=memory,size=16MiB", "--tier", DISK];
    args.extend(names);
    place.ok(args);
    place.ok(["serve", "--background", "--idle-exit", "120"]);
    place.ok(["mk", "private", "--rights", "0700"]);
    fs::write(place.path("secret"), SECRET).unwrap();
    fs::set_permissions(place.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let at = place.ok(["put", "secret", "private"]);
    place.ok(["index", "mk", "private/1"]);
    place.ok(["index", "put", "private/1", "k", SECRET]);
    place.ok(["snapshot", "create", "private", "kept"]);
    let file = format!("tree/{}", private_file(&place));
    let state = |place: &TestDir| {
        let get = |at: &str| place.run(["cat", at]).bytes;
        let mode = |label| place.json(["stat", label])["mode"].clone();
        PrivateState {
            object: get(&at),
            file: get(&file),
            value: place.ok(["index", "get", "private/1", "k"]),
            modes: [mode("private"), mode("tree")],
        }
    };
    let before = state(&place);
    assert_eq!((&before.object[..], &before.file[..]), (SECRET.as_bytes(), SECRET.as_bytes()));
    assert!(before.modes.iter().all(|mode| mode == "0700"));
    for uid in [READER, WRITER, NOBODY] {
        for words in on_private(&at, &file) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            tried.refused(&place, uid, &words, &[]);
        }
        let list = in_time(place.command(["ls"]).uid(uid).gid(uid));
        let (_, said) = list.expect("a list in time");
        if said.contains("private") || said.contains("tree") {
            tried.doors.push(format!("`cenote ls` by user {uid}: {said}"));
        }
    }
    let after = state(&place);
    tried.unchanged("the private container", before == after);
    // What is opened to them is accessible.
    place.ok(["chmod", "go+r", "private"]);
    let open = in_time(place.command(["cat", &at]).uid(READER).gid(READER));
    assert_eq!(open, Some((Some(0), SECRET.to_owned())));
}

/// A directory that another user prepared for whoever opens it.
fn hostile(tried: &mut Tried) {
    let place = TestDir::new();
    chown(&place.dir, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut made = place.command(["init", "--tier", "name=memory,kind=memory,size=16MiB", "--tier", DISK]);
    let made = in_time(made.uid(NOBODY).gid(NOBODY)).unwrap();
    assert_eq!(made.0, Some(0), "{made:?}");
    let victim = place.path("victim");
    fs::write(&victim, "untouched").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
    let trust = ("CENOTE_TRUST_OWNER", "65532");
    let commands: [&[&str]; 6] =
        [&["ls"], &["mk", "c"], &["serve", "--background"], &["destroy", "--yes", "--force"], &["stop"], &["verify"]];
    for uid in [0, READER] {
        for words in commands {
            tried.refused(&place, uid, words, &[]);
        }
    }
    // Links that lead elsewhere, even if its owner is trusted.
    for name in ["daemon.log", "lock", "superblock", "identity", "socket", "profile"] {
        let at = place.store().join(name);
        let kept = fs::read(&at).ok();
        let _ = fs::remove_file(&at);
        symlink(&victim, &at).unwrap();
        let words: &[&str] = if name == "daemon.log" { &["serve", "--background"] } else { &["ls"] };
        if name == "profile" {
            // It only contains measurements: the store works without it, and must not follow a link there.
            let _ = in_time(place.command(words).env(trust.0, trust.1));
        } else {
            tried.refused(&place, 0, words, &[trust]);
        }
        fs::remove_file(&at).unwrap();
        if let Some(bytes) = kept {
            fs::write(&at, bytes).unwrap();
            chown(&at, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    tried.unchanged("a victim", fs::read_to_string(&victim).unwrap() == "untouched");
    let _ = in_time(place.command(["destroy", "--yes", "--force"]).env(trust.0, trust.1));
}

fn copied(tried: &mut Tried) {
    let place = TestDir::with_store();
    let file = place.file("bytes", 100_000).0;
    place.ok(["put", "--flush", file.to_str().unwrap(), "runs"]);
    let copy = place.path("copy");
    let done = Command::new("cp").arg("-a").arg(place.store()).arg(&copy).status().unwrap();
    assert!(done.success());
    let before = (tree(&place.path("disk")), tree(&copy));
    let named = ("CENOTE_STORE", copy.to_str().unwrap());
    let commands: [&[&str]; 8] = [
        &["ls"],
        &["ls", "runs"],
        &["put", "bytes", "runs"],
        &["put", "--flush", "bytes", "runs"],
        &["mk", "more"],
        &["verify"],
        &["serve", "--background"],
        &["destroy", "--yes"],
    ];
    for words in commands {
        tried.refused(&place, 0, words, &[named]);
    }
    let after = tree(&place.path("disk"));
    tried.unchanged("the original's tier", before.0 == after);
    tried.unchanged("the copy's objects", before.1.len() <= tree(&copy).len());
    place.ok(["verify"]);
}

fn removed(tried: &mut Tried) {
    let place = TestDir::served();
    place.ok(["ls"]);
    fs::remove_dir_all(place.store()).unwrap();
    let commands: [&[&str]; 6] = [
        &["ls"],
        &["mk", "more"],
        &["verify"],
        &["put", "/etc/hostname", "runs"],
        &["status"],
        &["serve", "--background"],
    ];
    for words in commands {
        tried.refused(&place, 0, words, &[]);
    }
    assert!(!place.store().exists(), "nobody makes it anew");
}

#[test]
fn doors() {
    if !rustix::process::geteuid().is_root() {
        println!("(not root: there is no second user to try)");
        return;
    }
    let mut tried = Tried::default();
    second_users(&mut tried);
    hostile(&mut tried);
    copied(&mut tried);
    removed(&mut tried);
    let Tried { cases, doors, hangs, changed } = &tried;
    println!(
        "{cases} cases: {} doors, {} hangs past {} s, {} changed",
        doors.len(),
        hangs.len(),
        PATIENCE.as_secs(),
        changed.len()
    );
    assert!(*cases >= 100);
    assert!(doors.is_empty() && hangs.is_empty() && changed.is_empty(), "{doors:#?}\n{hangs:#?}\n{changed:#?}");
}
