//! Several processes change one tree at random at the same time, and some are killed meanwhile. Then the test walks the records: every entry leads
//! somewhere, every link count is right, and nothing unreachable is kept.

use std::process::{Child, Command};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cenote::Mode;
use cenote_posix::{File, FileSystem, FsError, Ino, Kind, Make, Rename, SetAttr, SetXattr};

use crate::rng::{Rng, seed};
use crate::test_dir::{CREATE, TestDir, client, root_user, what};

/// Errors expected when others interfere; any other is a failure.
const EXPECTED: &[i32] = &[
    libc::ENOENT,
    libc::EEXIST,
    libc::ENOTEMPTY,
    libc::EISDIR,
    libc::ENOTDIR,
    libc::EINVAL,
    libc::ESTALE,
    libc::ELOOP,
    libc::ENXIO,
];
const NAMES: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

/// Entry point of a child: `DIR SEED`.
pub fn child(args: &[String]) {
    let fs = client(args[0].as_ref()).1;
    let mut rng = Rng::new(args[1].parse().unwrap());
    let begun = Instant::now();
    let mut files: Vec<File> = Vec::new();
    while begun.elapsed() < Duration::from_secs(20) {
        if let Err(error) = step(&fs, &mut rng, &mut files)
            && !EXPECTED.contains(&error.errno)
        {
            eprintln!("child with seed {}: {error}", args[1]);
            std::process::exit(3);
        }
    }
}

/// Returns a random directory.
fn walk(fs: &FileSystem, rng: &mut Rng) -> Ino {
    let mut at = fs.root();
    for _ in 0..rng.below(4) {
        match fs.lookup(&root_user(), at, NAMES[rng.below(4)]) {
            Ok(attr) if attr.kind == Kind::Directory => at = attr.ino,
            _ => {}
        }
    }
    at
}

fn step(fs: &FileSystem, rng: &mut Rng, files: &mut Vec<File>) -> Result<(), FsError> {
    let me = root_user();
    let (dir, other) = (walk(fs, rng), walk(fs, rng));
    let (name, other_name) = (NAMES[rng.below(4)], NAMES[rng.below(4)]);
    match rng.below(12) {
        0 | 1 => fs.make(&me, dir, name, &what(Kind::Directory, 0o755)).map(drop),
        2 => fs.make(&me, dir, name, &Make { target: b"a/b".into(), ..what(Kind::Symlink, 0o755) }).map(drop),
        3 | 4 => {
            let (file, _, _) = fs.open_at(&me, dir, name, CREATE, 0o644)?;
            if rng.below(2) == 0 {
                file.write_at(&[7; 3000], rng.below(5000) as u64)?;
            }
            files.push(file);
            Ok(())
        }
        5 => {
            if files.len() > 3 {
                files.swap_remove(rng.below(files.len())).close()?;
            }
            Ok(())
        }
        6 => {
            let Some(file) = files.last() else { return Ok(()) };
            file.append(b"more")?;
            file.set_attr(&me, &SetAttr { size_bytes: Some(rng.below(9000) as u64), ..SetAttr::default() }).map(drop)
        }
        7 => fs.unlink(&me, dir, name),
        8 => fs.rmdir(&me, dir, name),
        9 => {
            let how = [Rename::Replace, Rename::Keep, Rename::Exchange][rng.below(3)];
            fs.rename(&me, (dir, name), (other, other_name), how)
        }
        10 => {
            let found = fs.lookup(&me, dir, name)?;
            if found.kind == Kind::File {
                fs.set_xattr(&me, found.ino, b"user.x", b"y", SetXattr::Any)?;
                fs.link(&me, found.ino, other, other_name)?;
            }
            Ok(())
        }
        _ => {
            let mut cursor = fs.read_dir(&me, dir)?;
            while cursor.next()?.is_some() {}
            Ok(())
        }
    }
}

fn start(place: &TestDir, seed: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("child").arg("churn").arg(place.dir()).arg(seed.to_string()).spawn().unwrap()
}

pub fn strict() {
    run("strict", 1);
}

pub fn commit() {
    run("commit", 1);
}

fn run(consistency: &str, rounds: usize) {
    let seed = seed(consistency);
    let mut rng = Rng::new(seed);
    for _ in 0..rounds {
        let place = TestDir::new();
        drop(place.make(Mode::InProcess));
        let fs = client(&place.dir()).1;
        let me = root_user();
        fs.set_xattr(&me, fs.root(), b"user.cenote.consistency", consistency.as_bytes(), SetXattr::Any).unwrap();
        let mut children: Vec<Child> = (0..3).map(|_| start(&place, rng.next())).collect();
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(150 + rng.below(200) as u64));
            let at = rng.below(children.len());
            children[at].kill().unwrap();
            let status = children[at].wait().unwrap();
            assert!(status.code().is_none(), "a child failed on its own: {status}");
            children[at] = start(&place, rng.next());
        }
        for mut child in children {
            child.kill().unwrap();
            let status = child.wait().unwrap();
            assert!(status.code().is_none(), "a child failed on its own: {status}");
        }
        settles(&fs);
    }
}

/// Threads of one process, half of them in another session: none waits for ever, and the records agree.
pub fn threads() {
    let seed = seed("threads");
    for consistency in ["strict", "commit"] {
        let place = TestDir::new();
        drop(place.make(Mode::InProcess));
        let both = [client(&place.dir()).1, client(&place.dir()).1];
        let root = both[0].root();
        both[0]
            .set_xattr(&root_user(), root, b"user.cenote.consistency", consistency.as_bytes(), SetXattr::Any)
            .unwrap();
        let threads: Vec<_> = (0..4)
            .map(|n| {
                let fs = both[n % 2].clone();
                std::thread::spawn(move || {
                    let (mut rng, mut files) = (Rng::new(seed + n as u64), Vec::new());
                    for _ in 0..1500 {
                        if let Err(error) = step(&fs, &mut rng, &mut files) {
                            assert!(EXPECTED.contains(&error.errno), "{error}");
                        }
                    }
                })
            })
            .collect();
        let begun = Instant::now();
        while threads.iter().any(|thread| !thread.is_finished()) {
            assert!(begun.elapsed() < Duration::from_mins(1), "threads wait for each other");
            std::thread::sleep(Duration::from_millis(20));
        }
        for thread in threads {
            thread.join().unwrap();
        }
        both[1].sync_dir(root).unwrap();
        settles(&both[0]);
    }
}

/// Two threads create a file and a directory of one name at the same time, in a `commit` directory where nobody had anything open: one of them gets
/// `EEXIST`, and no created file is lost.
pub fn directories_beside() {
    let place = TestDir::new();
    drop(place.make(Mode::InProcess));
    let fs = client(&place.dir()).1;
    let (me, root) = (root_user(), fs.root());
    fs.set_xattr(&me, root, b"user.cenote.consistency", b"commit", SetXattr::Any).unwrap();
    let (mut files, mut directories) = (0, 0);
    for n in 0..300 {
        let above = fs.make(&me, root, format!("{n}").as_bytes(), &what(Kind::Directory, 0o755)).unwrap().ino;
        let both = Barrier::new(2);
        let (made, opened) = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                both.wait();
                fs.make(&root_user(), above, b"name", &what(Kind::Directory, 0o755))
            });
            both.wait();
            // Opening the first file claims the directory: a message between lookup and creation of a name.
            let opened = fs.open_at(&me, above, b"name", CREATE, 0o600);
            (other.join().unwrap(), opened)
        });
        match opened {
            Ok((file, _, _)) => {
                files += 1;
                assert_eq!(made.unwrap_err().errno, libc::EEXIST, "{n}: both were made");
                file.close().unwrap();
            }
            Err(error) => {
                directories += 1;
                assert_eq!(error.errno, libc::EISDIR, "{n}: {error}");
                made.unwrap();
            }
        }
    }
    println!("  {files} files, {directories} directories"); // the scheduler decides how many of each
    settles(&fs);
}

/// Forks as a view does. Returns 0 in the child, which is killed if it waits for ever, and must end by [`leave`].
#[allow(unsafe_code, reason = "fork")]
fn fork(fs: &FileSystem) -> libc::pid_t {
    let forking = fs.before_fork();
    // SAFETY: the child uses only what works in children (the store makes its sessions anew there) and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    drop(forking);
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: affects this process alone.
        unsafe { libc::alarm(90) };
    }
    pid
}

/// Ends a child.
#[allow(unsafe_code, reason = "_exit")]
fn leave(code: i32) -> ! {
    // SAFETY: ends this process, and nothing else.
    unsafe { libc::_exit(code) }
}

/// Waits for a child and returns its status.
#[allow(unsafe_code, reason = "waitpid")]
fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child made by `fork`, and writes to a local variable.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    status
}

/// A forked child keeps its parent's open file, even after the parent closed it and its name is gone.
pub fn forked() {
    let place = TestDir::new();
    drop(place.make(Mode::InProcess));
    let fs = client(&place.dir()).1;
    let (me, root) = (root_user(), fs.root());
    let file = fs.open_at(&me, root, b"f", CREATE, 0o600).unwrap().0;
    file.write_at(b"bytes", 0).unwrap();
    let go = place.dir().join("../go");
    let pid = fork(&fs);
    if pid == 0 {
        let mut buf = [0; 8];
        let first = file.read_at(&mut buf, 0).is_ok_and(|read| read == 5);
        std::fs::write(go.with_extension("child"), b"").unwrap();
        while !go.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let second = file.append(b"!").is_ok_and(|at| at == 5) && file.read_at(&mut buf, 0).is_ok_and(|read| read == 6);
        let gone = fs.lookup(&me, root, b"f").is_err_and(|error| error.errno == libc::ENOENT);
        let code =
            i32::from(!first) + 2 * i32::from(!second) + 4 * i32::from(!gone) + 8 * i32::from(file.close().is_err());
        leave(code);
    }
    while !go.with_extension("child").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    fs.unlink(&me, root, b"f").unwrap();
    file.close().unwrap();
    std::thread::sleep(Duration::from_millis(150)); // some rounds of the keeper
    std::fs::write(&go, b"").unwrap();
    assert_eq!(wait(pid), 0);
    settles(&fs);
}

/// After a failed publication in a process that forked, the process gets the error, and its child, which created nothing, does not.
pub fn lost_before_a_fork() {
    let place = TestDir::new();
    drop(place.make(Mode::InProcess));
    let [fs, other] = [client(&place.dir()).1, client(&place.dir()).1];
    let (me, root) = (root_user(), fs.root());
    fs.set_xattr(&me, root, b"user.cenote.consistency", b"commit", SetXattr::Any).unwrap();
    let kept = fs.open_at(&me, root, b"kept", CREATE, 0o600).unwrap().0;
    kept.write_at(b"bytes", 0).unwrap();
    let file = fs.open_at(&me, root, b"name", CREATE, 0o600).unwrap().0;
    other.make(&me, root, b"name", &what(Kind::Directory, 0o755)).unwrap();
    let pid = fork(&fs);
    if pid == 0 {
        let code = i32::from(kept.close().is_err());
        leave(code);
    }
    assert_eq!(wait(pid), 0, "the child was told");
    assert_eq!(file.close().unwrap_err().errno, libc::EEXIST);
    kept.close().unwrap();
}

/// Stops other threads, also when a test fails.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A process forks while its other threads are in calls: no child waits for locks of its parent's threads, and a file that was open and lost its
/// name just after the fork exists for the child.
pub fn forked_amid_threads() {
    let seed = seed("forks");
    let place = TestDir::new();
    drop(place.make(Mode::InProcess));
    let fs = client(&place.dir()).1;
    let (me, root) = (root_user(), fs.root());
    let dir = fs.make(&me, root, b"own", &what(Kind::Directory, 0o755)).unwrap().ino;
    fs.set_xattr(&me, root, b"user.cenote.consistency", b"commit", SetXattr::Any).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for n in 0..3 {
            let (fs, is_over) = (&fs, &is_over);
            scope.spawn(move || {
                let (mut rng, mut files) = (Rng::new(seed + n), Vec::new());
                while !is_over.load(Ordering::Relaxed) {
                    if let Err(error) = step(fs, &mut rng, &mut files) {
                        assert!(EXPECTED.contains(&error.errno), "{error}");
                    }
                }
            });
        }
        let _stop = Sets(&is_over);
        for n in 0..30u32 {
            let name = n.to_string().into_bytes();
            let file = fs.open_at(&me, dir, &name, CREATE, 0o600).unwrap().0;
            file.write_at(b"bytes", 0).unwrap();
            let pid = fork(&fs);
            if pid == 0 {
                std::thread::sleep(Duration::from_millis(u64::from(n % 7)));
                let mut buf = [0; 8];
                let (read, made) =
                    (file.read_at(&mut buf, 0), fs.open_at(&me, dir, &[&name[..], b"child"].concat(), CREATE, 0o600));
                let closed = file.close();
                let code = i32::from(!read.as_ref().is_ok_and(|read| *read == 5))
                    + 2 * i32::from(made.is_err())
                    + 4 * i32::from(closed.is_err());
                if code != 0 {
                    eprintln!("child {n}: read {read:?}, made {:?}, closed {closed:?}", made.err());
                }
                leave(code);
            }
            fs.unlink(&me, dir, &name).unwrap();
            file.close().unwrap();
            assert_eq!(wait(pid), 0, "child {n}");
        }
    });
    settles(&fs);
}

/// Checks that within some seconds the records agree, and files that nobody has open are deleted.
pub fn settles(fs: &FileSystem) {
    fs.sync_dir(fs.root()).unwrap();
    let _keeper = fs.open_unnamed(&root_user(), fs.root(), CREATE, 0o600).unwrap();
    let begun = Instant::now();
    loop {
        let wrong = fs.check(fs.root()).unwrap();
        let orphans = fs.orphans(fs.root()).unwrap() - 1; // except the one open here
        if wrong.is_empty() && orphans == 0 {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{orphans} files without a name; {wrong:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
