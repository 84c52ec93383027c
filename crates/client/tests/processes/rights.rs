//! A second user of a store: the daemon carries its bytes, and no foreign bytes reach it.

use std::time::{Duration, Instant};

use cenote::{CONTAINER_MODE_PRIVATE, ContainerSpec, ErrorKind, Mode, ObjectId, OpenOptions, Result, Store};
use cenote_device::control::ClientFile;
use cenote_rpc::Connection;
use cenote_server::daemon::SOCKET;
use cenote_wire::{Greeting, decode_greeting, encode_greeting};

use crate::child::say;
use crate::tools::{Other, Random, TestDir};

/// A user among the store's writers.
const WRITER: u32 = 65_533;

pub fn second_user() {
    if !rustix::process::geteuid().is_root() {
        println!("(not root: cannot become another user)");
        return;
    }
    let place = TestDir::new();
    let mut config = place.config(32 << 20, 256 << 20);
    config.writers = vec![WRITER];
    let options = OpenOptions { mode: Mode::Daemon, create: true, config, ..OpenOptions::default() };
    let store = Store::open_with(place.dir(), &options).unwrap();
    let with = |mode| ContainerSpec { mode, ..ContainerSpec::default() };
    let secret = vec![0xA5; 3 << 20];
    let private = store.create_container("private", &with(CONTAINER_MODE_PRIVATE)).unwrap();
    private.create_object(Some(ObjectId(1)), None).unwrap().write_at(0, &secret).unwrap();
    // Old content of free space must not appear in the space of others.
    let gone = private.create_object(Some(ObjectId(2)), None).unwrap();
    for _ in 0..4 {
        gone.write_at(0, &secret).unwrap();
    }
    private.delete_object(ObjectId(2)).unwrap();
    let readable = store.create_container("readable", &with(0o744)).unwrap();
    readable.create_object(Some(ObjectId(1)), None).unwrap().write_at(5, b"for all").unwrap();
    store.create_container("open", &with(0o777)).unwrap();
    let mut other = Other::start("second", &[place.dir().to_str().unwrap()]);
    assert_eq!(other.line(), "done");
    // The other's writes are visible here. The daemon is a new one by then: rights and bytes are the same.
    let mine = store.container("mine").unwrap().info().unwrap().spec;
    assert_eq!((mine.owner_uid, mine.owner_gid), (Some(WRITER), Some(WRITER)));
    let found = store.container("open").unwrap().object(ObjectId(7));
    let mut bytes = vec![0; 5 << 20];
    assert_eq!(found.read_at(0, &mut bytes).unwrap(), bytes.len());
    assert!(bytes == Random(7).bytes(5 << 20));
    Store::stop_daemon(place.dir()).unwrap();
    assert_eq!(store.container("open").unwrap().object(ObjectId(7)).size().unwrap(), 5 << 20);
    other.finish();
}

/// The role of the second user.
pub fn second(dir: &str) {
    // SAFETY: no other thread runs yet.
    let dropped =
        unsafe { libc::setgroups(0, std::ptr::null()) == 0 && libc::setgid(WRITER) == 0 && libc::setuid(WRITER) == 0 };
    assert!(dropped, "root can become anybody");
    let store = Store::open_with(dir, &OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() }).unwrap();
    refused(&store);
    let readable = store.container("readable").unwrap().object(ObjectId(1));
    let mut buf = [9; 20];
    assert_eq!(readable.read_at(0, &mut buf).unwrap(), 12);
    assert_eq!(&buf[..12], b"\0\0\0\0\0for all");
    assert!(readable.view(5, 7).unwrap().is_none_or(|view| &view[..] == b"for all"));
    assert_eq!(readable.next_data(0).unwrap(), Some(5));
    writes(&store);
    no_segments(dir);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.contains("/dev-"));
    assert_eq!(mapped.collect::<Vec<_>>(), Vec::<&str>::new());
    say("done");
    let begin = Instant::now();
    let _ = std::io::Read::read_to_end(&mut std::io::stdin(), &mut Vec::new());
    // The daemon has left: this user may not start one for the owner, and gets an error soon.
    drop(store);
    assert!(begin.elapsed() < Duration::from_mins(1));
}

fn is_denied<T>(what: &str, result: Result<T>) {
    let error = result.err().unwrap_or_else(|| panic!("{what} was let through"));
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{what}: {error}");
}

fn refused(store: &Store) {
    is_denied("finding", store.container("private"));
    is_denied("deleting", store.delete_container("private"));
    is_denied("renaming", store.rename_container("private", "taken"));
    assert!(store.containers("").unwrap().iter().all(|info| info.label != "private"));
    let readable = store.container("readable").unwrap();
    is_denied("writing", readable.object(ObjectId(1)).write_at(0, b"no"));
    is_denied("appending", readable.object(ObjectId(1)).append(b"no"));
    is_denied("creating", readable.create_object(None, None));
    is_denied("an index", readable.create_index(None));
    is_denied("setting", readable.set(&ContainerSpec::default()));
    is_denied("a checkpoint", store.checkpoint());
    is_denied("a verify of all", store.verify());
    is_denied(
        "giving away",
        store.create_container("given", &ContainerSpec { owner_uid: Some(0), ..ContainerSpec::default() }),
    );
    // Numbers of containers are no secret.
    let private = store.container_numbered(readable.id());
    assert!(private.object(ObjectId(1)).size().is_ok());
    for id in 1..4 {
        let container = store.container_numbered(cenote::ContainerId(id));
        if container.info().is_err() {
            is_denied("reading by number", container.object(ObjectId(1)).read_at(0, &mut [0]));
            is_denied("listing by number", container.objects(None, 9));
        }
    }
}

/// All ways to write and read back.
fn writes(store: &Store) {
    let mine = store.create_container("mine", &ContainerSpec::default()).unwrap();
    let object = mine.create_object(Some(ObjectId(1)), None).unwrap();
    let mut random = Random(3);
    let mut expected = vec![0; 300_000];
    for _ in 0..20 {
        let (at, len) = (random.below(200_000) as usize, 1 + random.below(100_000) as usize);
        let bytes = random.bytes(len);
        expected[at..at + len].copy_from_slice(&bytes);
        object.launch_write(at as u64, &bytes).unwrap();
    }
    let mut found = vec![1; 300_001];
    let n = object.read_at(0, &mut found).unwrap();
    assert!(found[..n] == expected[..n] && expected[n..].iter().all(|byte| *byte == 0));
    let end = object.append(b"the end").unwrap();
    assert_eq!(end, n as u64);
    let mut staged = object.write_in_place(5).unwrap();
    staged.bytes().copy_from_slice(b"stage");
    staged.commit(2).unwrap();
    let mut txn = store.begin();
    txn.write(&object, 1_000_000, b"in a transaction").unwrap();
    let mut buf = [0; 16];
    assert_eq!(txn.read(&object, 1_000_000, &mut buf).unwrap(), 16);
    assert_eq!(&buf, b"in a transaction");
    txn.commit().unwrap();
    let mut buf = [0; 16];
    assert_eq!(object.read_at(1_000_000, &mut buf).unwrap(), 16);
    assert_eq!(&buf, b"in a transaction");
    mine.flush().unwrap();
    // Space for this user never contains another one's bytes.
    let mut all = vec![0; 1_000_016];
    assert_eq!(object.read_at(0, &mut all).unwrap(), all.len());
    assert!(!all.windows(64).any(|window| window == [0xA5; 64]));
    // Longer than a message.
    let long = store.container("open").unwrap().create_object(Some(ObjectId(7)), None).unwrap();
    let begin = Instant::now();
    long.write_at(0, &Random(7).bytes(5 << 20)).unwrap();
    let wrote = begin.elapsed();
    let mut bytes = vec![0; 5 << 20];
    let begin = Instant::now();
    assert_eq!(long.read_at(0, &mut bytes).unwrap(), bytes.len());
    eprintln!("# 5 MiB carried: written in {wrote:?}, read in {:?}", begin.elapsed());
    assert!(bytes == Random(7).bytes(5 << 20));
}

/// Requests descriptors, unlike any client of Cenote.
fn no_segments(dir: &str) {
    let patience = Duration::from_secs(5);
    let connection = Connection::connect(dir.as_ref(), SOCKET, patience).unwrap();
    let say = |greeting: &Greeting| {
        let mut bytes = Vec::new();
        encode_greeting(greeting, &mut bytes);
        connection.send(&[&bytes], &[], patience).unwrap();
        connection.receive(patience).unwrap().expect("an answer")
    };
    let frame = say(&Greeting::Hello { nonce: 77, read_only: false, home: cenote_model::HomeId(0) });
    assert!(matches!(decode_greeting(&frame.bytes), Ok(Greeting::Welcome { bound: true, .. })));
    let [_, file, _, alive] = <[_; 4]>::try_from(frame.fds).expect("four descriptors");
    let _held = ClientFile::map_held(file, alive).unwrap();
    for device in 1..3 {
        for number in 0..3 {
            let frame = say(&Greeting::Segment { device: cenote_model::DeviceId(device), number });
            assert!(frame.fds.is_empty(), "a descriptor of device {device}");
            match decode_greeting(&frame.bytes) {
                Ok(Greeting::Refused(error)) => assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
