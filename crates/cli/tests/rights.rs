//! Access rights to a store: a second user, a reader, a hostile store directory, names in shared memory that others
//! took first. Each case is a line of a table. Without root these cases are skipped, since there is no second user.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{CommandOutput, TestDir, said};

/// Another user without any rights here.
const OTHER: u32 = 65_534;
/// A user whom stores name.
const NAMED: u32 = 65_533;

impl TestDir {
    /// Runs the command as a user, with additional environment variables.
    fn by(&self, uid: u32, args: &[&str], more: &[(&str, &str)]) -> CommandOutput {
        let begin = Instant::now();
        let mut command = self.command(args);
        command.stdin(Stdio::null()).envs(more.iter().copied()).uid(uid).gid(uid);
        let said = said(&mut command);
        assert!(begin.elapsed() < Duration::from_secs(20), "{args:?} by {uid} took {:?}", begin.elapsed());
        said
    }
    /// Creates a store that belongs to another user.
    fn of_other() -> Self {
        let place = Self::new();
        chown(&place.dir, Some(OTHER), Some(OTHER)).unwrap();
        let made = place.by(OTHER, &["init", "--tier", "name=memory,kind=memory,size=16MiB", "--tier", DISK], &[]);
        assert_eq!(made.code, 0, "{made:?}");
        place
    }
    /// Creates a store of root's that names users.
    fn naming(words: &[&str]) -> Self {
        let place = Self::new();
        let mut args = vec!["init", "--tier", "name=memory,kind=memory,size=16MiB", "--tier", DISK];
        args.extend(words);
        place.ok(args);
        place.ok(["mk", "runs"]);
        place
    }
    fn mode_of(&self, name: &str) -> u32 {
        fs::metadata(self.store().join(name)).unwrap().mode() & 0o7777
    }
}

const DISK: &str = "name=disk,kind=directory,path=disk,size=64MiB";
const TRUST: (&str, &str) = ("CENOTE_TRUST_OWNER", "65534");

#[track_caller]
fn refused(said: &CommandOutput, words: &str) {
    assert!(said.code == 1 && said.err.contains(words), "wanted `{words}`: {said:?}");
}

type Case = (&'static str, fn());

const CASES: &[Case] = &[
    ("root opens another user's store by accident", || {
        let place = TestDir::of_other();
        for args in [&["ls"][..], &["mk", "runs"], &["serve", "--background"], &["destroy", "--yes"], &["stop"]] {
            refused(&place.run(args), "it belongs to user 65534");
        }
        assert!(!place.store().join("daemon.log").exists());
        // Also through that user's daemon.
        assert_eq!(place.by(OTHER, &["serve", "--background", "--idle-exit", "60"], &[]).code, 0);
        refused(&place.run(["ls"]), "CENOTE_TRUST_OWNER=65534");
        assert_eq!(place.run_in(["ls"], &[TRUST]).code, 0);
        assert_eq!(place.by(OTHER, &["destroy", "--yes", "--force"], &[]).code, 0);
    }),
    ("root opens it as asked, and its owner goes on", || {
        let place = TestDir::of_other();
        for args in [&["mk", "by-root"][..], &["put", "--flush", "store/superblock", "by-root"]] {
            let said = place.run_in(args, &[TRUST]);
            assert_eq!(said.code, 0, "{said:?}");
        }
        for entry in fs::read_dir(place.store()).unwrap().flatten() {
            assert_eq!(entry.metadata().unwrap().uid(), OTHER, "{}", entry.path().display());
        }
        let listed = place.by(OTHER, &["ls", "by-root"], &[]);
        assert!(listed.code == 0 && !listed.out.trim().is_empty(), "{listed:?}");
        assert_eq!(place.by(OTHER, &["destroy", "--yes", "--force"], &[]).code, 0);
    }),
    ("daemon.log, web-address and lock lead elsewhere", || {
        let place = TestDir::of_other();
        let victim = place.path("victim");
        fs::write(&victim, "untouched").unwrap();
        for name in ["daemon.log", "lock"] {
            let at = place.store().join(name);
            let _ = fs::remove_file(&at);
            symlink(&victim, &at).unwrap();
            refused(&place.run_in(["serve", "--background"], &[TRUST]), "symbolic link");
            assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched", "{name}");
            fs::remove_file(&at).unwrap();
        }
        symlink(&victim, place.store().join("web-address")).unwrap();
        let args = ["serve", "--background", "--idle-exit", "60", "--http=127.0.0.1:0"];
        let said = place.run_in(args, &[TRUST]);
        assert_eq!(said.code, 0, "{said:?}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(place.run_in(["destroy", "--yes", "--force"], &[TRUST]).code, 0);
    }),
    ("the socket leads elsewhere, or a stranger listens", || {
        let place = TestDir::with_store();
        let elsewhere = place.path("elsewhere");
        let _listener = std::os::unix::net::UnixListener::bind(&elsewhere).unwrap();
        symlink(&elsewhere, place.store().join("socket")).unwrap();
        refused(&place.run(["ls"]), "it is no socket");
        fs::remove_file(place.store().join("socket")).unwrap();
        fs::set_permissions(place.store(), fs::Permissions::from_mode(0o777)).unwrap();
        let script = "import socket, sys, time\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\nprint('up', flush=True)\ntime.sleep(60)";
        let mut stranger = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(place.store().join("socket"))
            .stdout(Stdio::piped())
            .uid(OTHER)
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stranger.stdout.take().unwrap()), &mut line).unwrap();
        let said = place.run(["ls"]);
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        refused(&said, "user 65534 listens there");
        place.ok(["ls"]);
        assert_eq!(place.mode_of("") & 0o002, 0, "opening it has shut strangers out");
    }),
    ("umask 000", || {
        let place = TestDir::new();
        let line = format!(
            "umask 000; \"$0\" init --tier name=memory,kind=memory,size=16MiB --tier {DISK} && \"$0\" serve --background --idle-exit 60"
        );
        let mut command = place.command([] as [&str; 0]);
        let env: Vec<_> = command.get_envs().map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned))).collect();
        command = std::process::Command::new("sh");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_cenote")]).current_dir(&place.dir);
        for (key, value) in env {
            command.env(key, value.unwrap_or_default());
        }
        let done = said(&mut command);
        assert_eq!(done.code, 0, "{done:?}");
        assert_eq!(place.mode_of(""), 0o700);
        for entry in fs::read_dir(place.store()).unwrap().flatten() {
            let (name, mode) = (entry.file_name(), entry.metadata().unwrap().mode() & 0o777);
            let wanted = if name == "socket" {
                0o666
            } else if name == "disk" {
                0o700
            } else {
                0o600
            };
            assert_eq!(mode, wanted, "{}", name.display());
        }
    }),
    ("names in shared memory that another took first", || {
        let place = TestDir::with_store();
        place.ok(["put", "--flush", "store/superblock", "runs"]);
        let id = place.json(["status"])["store"].as_str().map(ToOwned::to_owned);
        let id = id.unwrap_or_else(|| panic!("{}", place.json(["status"])));
        let memory =
            fs::read_dir("/dev/shm").unwrap().flatten().find(|entry| entry.file_name().to_string_lossy().contains(&id));
        let memory = memory.expect("the store's memory").path();
        fs::remove_dir_all(&memory).unwrap(); // as after a reboot
        fs::create_dir(&memory).unwrap();
        chown(&memory, Some(OTHER), Some(OTHER)).unwrap();
        let lines = place.ok(["ls", "runs"]).lines().count();
        place.ok(["put", "store/superblock", "runs"]);
        assert_eq!(place.ok(["ls", "runs"]).lines().count(), lines + 1);
        assert_eq!(fs::read_dir(&memory).unwrap().count(), 0, "nothing of it is used");
        fs::remove_dir(&memory).unwrap();
    }),
    ("a writer, a reader and nobody, without a daemon and with one", || {
        let place = TestDir::naming(&["--writer", "65533", "--reader", "65534"]);
        assert_eq!(place.mode_of(""), 0o711);
        place.ok(["put", "--flush", "store/superblock", "runs"]);
        for uid in [NAMED, OTHER] {
            let said = place.by(uid, &["ls"], &[]);
            assert!(said.code == 1 && said.err.contains("cenote serve"), "{said:?}");
        }
        place.ok(["serve", "--background", "--idle-exit", "60"]);
        assert_eq!(place.by(NAMED, &["mk", "by-writer"], &[]).code, 0);
        assert_eq!(place.by(OTHER, &["ls", "runs"], &[]).code, 0);
        refused(&place.by(OTHER, &["mk", "by-reader"], &[]), "may only read");
        refused(&place.by(NAMED, &["weight", "65533", "9"], &[]), "to set the weights of users, and user 65533 is not");
        refused(&place.by(OTHER, &["weight", "65534", "9"], &[]), "may only read");
        place.ok(["weight", "65533", "9"]);
        assert_eq!(place.by(OTHER, &["weight", "65533"], &[]).out.trim(), "9", "all may see them");
        refused(&place.by(1, &["ls"], &[]), "neither its owner nor among its writers and readers");
    }),
    ("a client in another PID namespace lives", || {
        let place = TestDir::served();
        let namespace = ["--pid", "--fork", "--mount-proc"];
        let can = std::process::Command::new("unshare").args(namespace).arg("true").status();
        if !can.is_ok_and(|status| status.success()) {
            println!("(no PID namespaces here)");
            return;
        }
        let command = place.command(["put", "-", "runs"]);
        let mut inside = std::process::Command::new("unshare");
        inside.args(namespace).arg(command.get_program()).args(command.get_args()).current_dir(&place.dir);
        for (key, value) in command.get_envs() {
            inside.env(key, value.unwrap_or_default());
        }
        let mut child = inside.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        // Half is written, and others connect meanwhile: each makes the daemon look for dead clients.
        std::io::Write::write_all(&mut input, &bytes[..2_000_000]).unwrap();
        let connected = || place.json(["top", "--once"])["clients"].as_array().map_or(0, Vec::len) > 1;
        let begin = Instant::now();
        while !connected() && begin.elapsed() < Duration::from_secs(5) {}
        assert!(connected(), "it is connected still, after everybody who came");
        for at in 0..5_u8 {
            place.run_with_input(&[at; 1 << 16], ["put", "-", "runs"]);
        }
        std::io::Write::write_all(&mut input, &bytes[2_000_000..]).unwrap();
        drop(input);
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let at = String::from_utf8(done.stdout).unwrap();
        assert!(place.run(["cat", at.trim()]).bytes == bytes);
        place.ok(["verify"]);
    }),
    ("S3 by a writer, and by a reader", || {
        let place = TestDir::naming(&["--writer", "65533", "--reader", "65534"]);
        place.ok(["serve", "--background", "--idle-exit", "60"]);
        let home = place.path("home");
        fs::create_dir(&home).unwrap();
        chown(&home, Some(NAMED), Some(NAMED)).unwrap();
        let home = home.to_str().unwrap();
        let made = place.by(NAMED, &["s3", "key", "add", "ann"], &[("XDG_CONFIG_HOME", home)]);
        assert!(made.code == 0 && made.out.contains("AWS_SECRET_ACCESS_KEY="), "{made:?}");
        let secret = made.out.trim().rsplit('=').next().unwrap().to_owned();
        let listed = place.by(NAMED, &["s3", "key", "list"], &[("XDG_CONFIG_HOME", home)]);
        assert!(listed.code == 0 && listed.out.contains("65533:65533") && !listed.out.contains(&secret), "{listed:?}");
        for (path, bytes) in common::tree(&place.dir) {
            assert!(!bytes.windows(secret.len()).any(|at| at == secret.as_bytes()), "{}", path.display());
        }
        let said = place.by(OTHER, &["s3", "key", "list"], &[("XDG_CONFIG_HOME", home)]);
        assert!(said.code == 1 && said.err.contains("may not find it"), "{said:?}");
    }),
    ("keys of S3 that root makes", || {
        let place = TestDir::with_store();
        refused(&place.run(["s3", "key", "add", "ann"]), "--uid UID");
        let made = place.ok(["s3", "key", "add", "ann", "--uid", "65534"]);
        assert!(made.contains("AWS_SECRET_ACCESS_KEY="), "{made}");
        let secret = made.rsplit('=').next().unwrap();
        let listed = place.ok(["s3", "key", "list"]);
        assert!(listed.contains("65534:65534") && !listed.contains(secret), "its group is not root's: {listed}");
        assert_eq!(place.mode_of("secret"), 0o600);
        for (path, bytes) in common::tree(&place.store()) {
            assert!(!bytes.windows(secret.len()).any(|at| at == secret.as_bytes()), "{}", path.display());
        }
    }),
];

#[test]
fn strangers_find_no_door() {
    if !rustix::process::geteuid().is_root() {
        println!("(not root: there is no second user to try)");
        return;
    }
    let wanted = std::env::var("CENOTE_CASE").unwrap_or_default();
    for (what, case) in CASES.iter().filter(|(what, _)| what.contains(&wanted)) {
        println!("case: {what}");
        case();
    }
}
