//! Start and end of mounts, of the processes that serve them, and of the daemon behind.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::mounted::{Mounted, children_of, errno, is_alive, is_guard, kill, pattern, until};

const SOON: Duration = Duration::from_secs(15);

#[test]
fn files_outlive_the_mount() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.path("kept"), pattern(1, 3 << 20)).unwrap();
    let server = Mounted::server(&mounted.dir);
    mounted.unmount();
    assert!(!is_alive(server), "the command returns when everything is on media");
    assert!(!mounted.dir.join("runs").exists());
    let said = mounted.try_mount(&mounted.dir, &["--read-only"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(fs::read(mounted.path("kept")).unwrap() == pattern(1, 3 << 20));
    assert_eq!(errno(File::create(mounted.path("new"))), libc::EROFS);
    assert_eq!(errno(OpenOptions::new().write(true).open(mounted.path("kept"))), libc::EROFS);
    assert_eq!(errno(fs::remove_file(mounted.path("kept"))), libc::EROFS);
}

#[test]
fn signals_unmount() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let Some(mounted) = Mounted::new() else { return };
        fs::write(mounted.path("kept"), b"kept").unwrap();
        let server = Mounted::server(&mounted.dir);
        kill(server, signal);
        until(SOON, || !is_alive(server));
        assert!(!mounted.dir.join("runs").exists());
        assert_eq!(mounted.try_mount(&mounted.dir, &[]).code, 0);
        assert_eq!(fs::read(mounted.path("kept")).unwrap(), b"kept");
    }
}

#[test]
fn a_mount_in_use_is_not_unmounted_but_by_force_or_in_time() {
    let Some(mounted) = Mounted::new() else { return };
    let file = File::create(mounted.path("open")).unwrap();
    let said = mounted.place.run(["unmount".as_ref(), mounted.dir.as_os_str()]);
    assert!(said.code == 1 && said.err.contains("open") && said.err.contains("fuser"), "{said:?}");
    file.write_all_at(b"still", 0).unwrap();

    // After a signal it waits for its users.
    let server = Mounted::server(&mounted.dir);
    kill(server, Signal::TERM);
    std::thread::sleep(Duration::from_millis(500));
    file.write_all_at(b"longer", 0).unwrap();
    drop(file);
    until(SOON, || !is_alive(server));
    assert_eq!(mounted.try_mount(&mounted.dir, &[]).code, 0);
    assert_eq!(fs::read(mounted.path("open")).unwrap(), b"longer");

    // A second signal ends it without waiting.
    let file = File::open(mounted.path("open")).unwrap();
    let (server, begin) = (Mounted::server(&mounted.dir), Instant::now());
    kill(server, Signal::TERM);
    std::thread::sleep(Duration::from_millis(300));
    kill(server, Signal::TERM);
    until(SOON, || !is_alive(server));
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    assert!(file.read_at(&mut [0; 1], 0).is_err());

    // Detached at once, and ended by its last user.
    assert_eq!(mounted.try_mount(&mounted.dir, &[]).code, 0);
    let (server, file) = (Mounted::server(&mounted.dir), File::open(mounted.path("open")).unwrap());
    mounted.place.ok(["unmount".as_ref(), "--lazy".as_ref(), mounted.dir.as_os_str()]);
    assert!(!mounted.dir.join("runs").exists() && is_alive(server));
    let mut got = [0; 6];
    file.read_exact_at(&mut got, 0).unwrap();
    drop(file);
    until(SOON, || !is_alive(server));
}

#[test]
fn a_killed_server_is_cleared_away_and_nothing_acknowledged_is_lost() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.path("kept"), pattern(2, 1 << 20)).unwrap();
    let open = File::open(mounted.path("kept")).unwrap();
    let server = Mounted::server(&mounted.dir);
    let guard = children_of(server).into_iter().find(|child| is_guard(*child)).expect("somebody looks after it");
    kill(server, Signal::KILL);
    until(SOON, || !is_alive(server));
    let is_gone = |errno| [libc::ENOTCONN, libc::ECONNABORTED].contains(&errno);
    assert!(is_gone(errno(open.read_at(&mut [0; 8], 0))));
    // Without any action.
    until(SOON, || !is_alive(guard));
    assert_eq!(errno(fs::read(mounted.path("kept"))), libc::ENOENT);
    drop(open);
    assert_eq!(mounted.try_mount(&mounted.dir, &[]).code, 0);
    assert!(fs::read(mounted.path("kept")).unwrap() == pattern(2, 1 << 20));

    // After both are killed, somebody has to unmount.
    let server = Mounted::server(&mounted.dir);
    let guard = children_of(server).into_iter().find(|child| is_guard(*child)).unwrap();
    kill(guard, Signal::KILL);
    kill(server, Signal::KILL);
    until(SOON, || !is_alive(server));
    assert!(is_gone(errno(fs::read(mounted.path("kept")))));
    let said = mounted.try_mount_over();
    assert!(said.code == 1 && said.err.contains("cenote unmount"), "{said:?}");
    mounted.unmount();
    assert_eq!(mounted.try_mount(&mounted.dir, &[]).code, 0);
    assert!(fs::read(mounted.path("kept")).unwrap() == pattern(2, 1 << 20));
    // A mount that ends normally ends its guard too.
    let server = Mounted::server(&mounted.dir);
    let guard = children_of(server).into_iter().find(|child| is_guard(*child)).unwrap();
    mounted.unmount();
    until(SOON, || !is_alive(guard));
}

#[test]
fn options_can_be_written_as_mount_writes_them() {
    let Some(mounted) = Mounted::with(&["-o", "rw,nofail,allow_other,noexec,consistency=commit"]) else { return };
    let line = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = line.lines().find(|line| line.contains(mounted.dir.to_str().unwrap())).unwrap().to_owned();
    assert!(line.contains("noexec") && line.contains("allow_other") && line.contains("fuse.cenote"), "{line}");
    mounted.unmount();
    let said = mounted.try_mount(&mounted.dir, &["-o", "ro,sync"]);
    assert!(said.code == 1 && said.err.contains("`sync`"), "{said:?}");
    // As `mount -t cenote` calls it.
    let helper = mounted.place.path("mount.cenote");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cenote"), &helper).unwrap();
    let mut command = Command::new(&helper);
    command.arg(mounted.place.store()).arg(&mounted.dir).args(["-o", "ro"]).env("CENOTE_BIN", mounted.program());
    assert!(command.status().unwrap().success());
    assert_eq!(errno(File::create(mounted.path("new"))), libc::EROFS);
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_mounted() {
    let Some(mounted) = Mounted::new() else { return };
    let refused = |args: &[&str], words: &str| {
        let said = mounted.place.run(args);
        assert!(said.code == 1 && said.err.contains(words), "{args:?}: {said:?}");
    };
    let (store, dir) = (mounted.place.store().display().to_string(), mounted.place.path("free").display().to_string());
    fs::create_dir(&dir).unwrap();
    refused(&["mount", &store, "/no/such/directory"], "No such file");
    refused(&["mount", "/no/such/store", &dir], "/no/such/store");
    refused(&["mount", &store, &mounted.place.file("file", 1).0.display().to_string()], "directory");
    refused(&["mount", &store, mounted.dir.to_str().unwrap()], "is mounted on it");
    refused(&["mount", "--read-only", "--container", "none", &store, &dir], "none");
    refused(&["unmount", &dir], "no store is mounted");
    refused(&["unmount", "/proc"], "no store is mounted");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

/// Writers and readers continue while the daemon is killed repeatedly.
#[test]
fn the_daemon_dies_in_the_middle_of_writes() {
    const BLOCK: usize = 64 << 10;
    const KILLS: usize = 4;
    let Some(mounted) = Mounted::with(&["--mode", "daemon"]) else { return };
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..3_u64)
        .map(|writer| {
            let (path, stop, written) = (mounted.path(&format!("file-{writer}")), stop.clone(), written.clone());
            std::thread::spawn(move || {
                let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
                let (mut block, mut got) = (0, vec![0; BLOCK]);
                while !stop.load(Ordering::Relaxed) {
                    file.write_all_at(&pattern(writer << 32 | block, BLOCK), block % 64 * BLOCK as u64).unwrap();
                    file.read_exact_at(&mut got, block % 64 * BLOCK as u64).unwrap();
                    assert!(got == pattern(writer << 32 | block, BLOCK), "writer {writer}, block {block}");
                    // Names as well.
                    let (made, moved) = (path.with_extension("made"), path.with_extension("moved"));
                    fs::write(&made, block.to_string()).unwrap();
                    fs::rename(&made, &moved).unwrap();
                    assert_eq!(fs::read_to_string(&moved).unwrap(), block.to_string());
                    block += 1;
                    written.fetch_add(1, Ordering::Relaxed);
                }
                block
            })
        })
        .collect();
    for _ in 0..KILLS {
        let before = written.load(Ordering::Relaxed);
        until(SOON, || {
            written.load(Ordering::Relaxed) > before + 20 || writers.iter().any(std::thread::JoinHandle::is_finished)
        });
        mounted.kill_daemon();
    }
    let before = written.load(Ordering::Relaxed);
    until(SOON, || {
        written.load(Ordering::Relaxed) > before + 20 || writers.iter().any(std::thread::JoinHandle::is_finished)
    });
    stop.store(true, Ordering::Relaxed);
    let blocks: Vec<u64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    mounted.unmount();
    assert_eq!(mounted.try_mount(&mounted.dir, &[]).code, 0);
    for (writer, blocks) in blocks.into_iter().enumerate() {
        let bytes = fs::read(mounted.path(&format!("file-{writer}"))).unwrap();
        for block in blocks.saturating_sub(64)..blocks {
            let at = (block % 64) as usize * BLOCK;
            assert!(
                bytes[at..at + BLOCK] == pattern((writer as u64) << 32 | block, BLOCK),
                "writer {writer}, block {block}"
            );
        }
    }
}

/// The client looks for a daemon for half a minute; nothing waits much longer, however many wait.
#[test]
fn nothing_hangs_when_no_daemon_comes_back() {
    let Some(mounted) = Mounted::with(&["--mode", "daemon"]) else { return };
    fs::write(mounted.path("file"), pattern(3, 1 << 20)).unwrap();
    // The program for a new daemon is missing.
    fs::remove_file(mounted.program()).unwrap();
    mounted.kill_daemon();
    let begin = Instant::now();
    let callers: Vec<_> = (0..24)
        .map(|caller| {
            let path = mounted.path(&format!("new-{caller}"));
            std::thread::spawn(move || fs::write(path, b"x").map_err(|error| error.raw_os_error()))
        })
        .collect();
    // A killed process does not wait for any of it.
    let mut killed = Command::new("touch").arg(mounted.path("never")).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let since = Instant::now();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    assert!(begin.elapsed() < Duration::from_secs(20), "the others were still waiting");
    for caller in callers {
        assert_eq!(caller.join().unwrap(), Err(Some(libc::EIO)));
    }
    assert!(begin.elapsed() < Duration::from_secs(75), "{:?}", begin.elapsed());
    mounted.place.ok(["serve", "--background", "--idle-exit", "60"]);
    assert!(fs::read(mounted.path("file")).unwrap() == pattern(3, 1 << 20));
    fs::write(mounted.path("after"), b"works again").unwrap();
    mounted.unmount();
    // The mount's own files are removed with the store.
    mounted.place.ok(["destroy", "--yes"]);
    assert!(!mounted.place.store().exists());
}
