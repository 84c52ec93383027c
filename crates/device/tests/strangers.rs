//! What other users put where a store looks for its files.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use cenote_device::store_dir::{Purpose, make_private_dir};
use cenote_device::{Control, Devices, FsMetaDir, MetaDir, SharedControl, StoreDir, StoreLock, SystemDevices};
use cenote_model::{DeviceId, DeviceKind, DeviceSpec, ErrorKind, Result, StoreId, TierOptions};
use rustix::fs::{CWD, FileType, Mode, mknodat};

const STRANGER: u32 = 65_534;

struct Scratch(PathBuf);
impl Scratch {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/dev/shm/cenote-strangers-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}
impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("(not root: cannot make files of another user)");
    }
    is_root
}

/// All functions that open files of a store's directory.
fn ways(dir: &Path, name: &str) -> Vec<(&'static str, Result<()>)> {
    let mode = Mode::RUSR | Mode::WUSR;
    let open = || StoreDir::open(dir);
    vec![
        ("read", open().and_then(|dir| dir.file(name, Purpose::Read)).map(drop)),
        ("write", open().and_then(|dir| dir.file_or_new(name, Purpose::Write, mode)).map(drop)),
        ("append", open().and_then(|dir| dir.file_or_new(name, Purpose::Append, mode)).map(drop)),
        ("text", open().and_then(|dir| dir.read_text(name)).map(drop)),
        ("log", open().and_then(|dir| dir.log(name, "before", 100)).map(drop)),
        ("journal", FsMetaDir::open(dir).and_then(|dir| dir.open_log(name)).map(drop)),
        ("superblock", FsMetaDir::open_to_look(dir).and_then(|dir| dir.read_file(name)).map(drop)),
        (
            "lock",
            if name == "lock" {
                StoreLock::acquire(dir).map(drop)
            } else {
                open().and_then(|d| d.read_text(name)).map(drop)
            },
        ),
    ]
}

type Plant = fn(&Path);

#[test]
fn nothing_planted_in_a_store_directory_is_opened() {
    let table: [(&str, &str, Plant); 5] = [
        ("a link to another file", "symbolic link", |at| symlink(at.with_file_name("../victim"), at).unwrap()),
        ("a link to nothing", "symbolic link", |at| symlink("/no/such/file", at).unwrap()),
        ("a pipe", "no plain file", |at| mknodat(CWD, at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap()),
        ("a directory", "", |at| std::fs::create_dir(at).unwrap()),
        ("a stranger's file", "belongs to user 65534", |at| {
            if rustix::process::geteuid().is_root() {
                std::fs::write(at, "planted").unwrap();
                chown(at, Some(STRANGER), None).unwrap();
            }
        }),
    ];
    for (what, said, plant) in table {
        for name in ["lock", "daemon.log", "web-address"] {
            let scratch = Scratch::new("planted");
            let dir = scratch.0.join("store");
            make_private_dir(&dir, Mode::RWXU).unwrap();
            let victim = scratch.0.join("victim");
            std::fs::write(&victim, "untouched").unwrap();
            plant(&dir.join(name));
            if dir.join(name).symlink_metadata().is_err() {
                println!("(not root: {what} is left out)");
                continue;
            }
            for (way, done) in ways(&dir, name) {
                let error = done.expect_err(&format!("{what} as {name} was opened to {way}"));
                assert!(error.to_string().contains(said), "{what} as {name}, {way}: {error}");
                assert!(error.subject().contains(name), "{what} as {name}, {way}: {error}");
            }
            // Writing the name replaces the link, and nothing else.
            if what != "a directory" {
                StoreDir::open(&dir).unwrap().write_text(name, "ours", Mode::RUSR | Mode::WUSR).unwrap();
                assert_eq!(std::fs::read_to_string(dir.join(name)).unwrap(), "ours");
            }
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched", "{what} as {name}");
            assert!(!Path::new("/no/such/file").exists());
        }
    }
}

#[test]
fn directories_of_others_are_opened_only_if_asked_for() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("others");
    let dir = scratch.0.join("store");
    make_private_dir(&dir, Mode::RWXU).unwrap();
    chown(&dir, Some(STRANGER), Some(STRANGER)).unwrap();
    for (what, done) in [
        ("directory", StoreDir::open(&dir).map(drop)),
        ("metadata", FsMetaDir::open(&dir).map(drop)),
        ("lock", StoreLock::acquire(&dir).map(drop)),
    ] {
        let error = done.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{what}: {error}");
        assert!(error.next_step().contains("CENOTE_TRUST_OWNER=65534"), "{what}: {error}");
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "nothing was made there");
}

#[test]
fn modes_do_not_follow_the_umask() {
    let scratch = Scratch::new("modes");
    let before = rustix::process::umask(Mode::empty());
    let dir = scratch.0.join("above/store");
    make_private_dir(&dir, Mode::RWXU).unwrap();
    let store = StoreDir::open(&dir).unwrap();
    store.log("daemon.log", "daemon.log.1", 100).unwrap();
    store.write_text("kept", "text", Mode::RUSR | Mode::WUSR).unwrap();
    drop(StoreLock::acquire(&dir).unwrap().unwrap());
    FsMetaDir::open(&dir).unwrap().write_file("superblock", b"bytes").unwrap();
    let control = SharedControl::new(&scratch.0);
    control.attach(StoreId(8)).unwrap();
    rustix::process::umask(before);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&dir), 0o700);
    for name in ["daemon.log", "kept", "lock", "superblock"] {
        assert_eq!(mode(&dir.join(name)), 0o600, "{name}");
    }
    let memory = SystemDevices::with_shm_base(&scratch.0).store_dir(StoreId(8)).unwrap();
    assert_eq!((mode(&memory), mode(&memory.join("control"))), (0o700, 0o600));
    // Opening a directory of an earlier version closes it to others.
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    StoreDir::open(&dir).unwrap();
    assert_eq!(mode(&dir), 0o775);
}

#[test]
fn nobody_is_locked_out_of_shared_memory() {
    if !is_root() {
        return;
    }
    let store = StoreId(0x7a6e);
    let spec = DeviceSpec {
        name: "memory".into(),
        kind: DeviceKind::SharedMemory,
        path: PathBuf::new(),
        capacity_bytes: 1 << 20,
        watermark_high_permille: 800,
        watermark_low_permille: 600,
        options: TierOptions::default(),
    };
    let table: [(&str, Plant); 4] = [
        ("a directory", |at| std::fs::DirBuilder::new().mode(0o777).create(at).unwrap()),
        ("a link", |at| symlink("/tmp", at).unwrap()),
        ("a file", |at| std::fs::write(at, "taken").unwrap()),
        ("nothing", |_| {}),
    ];
    for (what, plant) in table {
        let scratch = Scratch::new("taken");
        let taken = scratch.0.join(format!("cenote-{store}"));
        plant(&taken);
        let _ = std::os::unix::fs::lchown(&taken, Some(STRANGER), Some(STRANGER));
        let devices = SystemDevices::with_shm_base(&scratch.0);
        let open = |create| devices.open(store, DeviceId(1), &spec, create).unwrap();
        let control = SharedControl::new(&scratch.0);
        control.attach(store).unwrap();
        control.instance_raise();
        let first = open(true);
        first.device.write_at(0, &[7; 512]).unwrap();
        drop((first, control));
        // The next engine finds what this one left.
        let control = SharedControl::new(&scratch.0);
        assert!(control.attach(store).unwrap(), "{what}: the table survives");
        let second = open(false);
        assert!(second.survived, "{what}: the memory survives");
        let mut back = [0; 512];
        second.device.read_at(0, &mut back).unwrap();
        assert_eq!(back, [7; 512], "{what}");
        let memory = devices.store_dir(store).unwrap();
        assert_eq!(memory == taken, what == "nothing", "{what}");
        let meta = std::fs::metadata(&memory).unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o777), (0, 0o700), "{what}");
        drop(second);
        cenote_device::home::remove_memory(&scratch.0, store).unwrap();
        assert!(devices.store_dir(store).is_none(), "{what}");
        assert_eq!(taken.symlink_metadata().is_ok(), what != "nothing", "{what}: another's is left alone");
    }
}

/// A tier's path may lead to another user's work if others may write to the parent directory.
#[test]
fn tiers_do_not_follow_strangers() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("tiers");
    let path = |name: &str| scratch.0.join(name);
    let devices = SystemDevices::with_shm_base(path("shm"));
    let spec = |kind, path: PathBuf| DeviceSpec {
        name: "tier".into(),
        kind,
        path,
        capacity_bytes: 16 << 20,
        watermark_high_permille: 800,
        watermark_low_permille: 600,
        options: TierOptions::default(),
    };
    let try_all = |what: &str, name: &str, kind: DeviceKind, cause: Option<&str>| {
        for create in [true, false] {
            let spec = spec(kind, path(name));
            let opened = devices.open(StoreId(3), DeviceId(1), &spec, create).map(drop);
            let removed = if create { Ok(()) } else { devices.remove(StoreId(3), DeviceId(1), &spec) };
            match cause {
                None => assert!(opened.is_ok() && removed.is_ok(), "{what}: {opened:?} {removed:?}"),
                Some(cause) => {
                    let error = opened.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{what}, create {create}: {error}");
                    assert!(error.to_string().contains(cause), "{what}: {error}");
                    assert!(create || removed.is_err(), "{what}: it was removed");
                }
            }
        }
    };
    for kind in [DeviceKind::File, DeviceKind::PersistentMemory, DeviceKind::Directory] {
        let is_dir = kind == DeviceKind::Directory;
        let make = |name: &str| if is_dir { std::fs::create_dir(path(name)) } else { std::fs::write(path(name), "") };
        let clear = || {
            for name in ["own", "theirs", "link", "good-link"] {
                let at = path(name);
                let _ = if at.is_dir() && !at.is_symlink() {
                    std::fs::remove_dir_all(&at)
                } else {
                    std::fs::remove_file(&at)
                };
            }
        };
        try_all("nothing there", "own", kind, None);
        clear();
        make("own").unwrap();
        symlink(path("own"), path("link")).unwrap();
        rustix::fs::chownat(
            CWD,
            path("link"),
            Some(rustix::fs::Uid::from_raw(STRANGER)),
            None,
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        )
        .unwrap();
        try_all("a link of a stranger's", "link", kind, Some("symbolic link that user 65534 made"));
        symlink(path("own"), path("good-link")).unwrap();
        let opened = devices.open(StoreId(3), DeviceId(1), &spec(kind, path("good-link")), true).map(drop);
        assert!(opened.is_ok(), "a link of one's own: {opened:?}");
        make("theirs").unwrap();
        chown(path("theirs"), Some(STRANGER), None).unwrap();
        try_all("what is a stranger's", "theirs", kind, Some("it belongs to user 65534"));
        clear();
    }
}
