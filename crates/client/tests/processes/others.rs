//! Several processes share a store, and all of them live.

use std::time::{Duration, Instant};

use cenote::{ContainerSpec, ErrorKind, Mode, ObjectId, OpenOptions, Store};
use cenote_rpc::Connection;
use cenote_server::daemon::{SOCKET, ring_memories};

use crate::tools::{Other, Random, TestDir, daemon_pid, eventually, signal};

/// Parent and child change the same objects and see each other's changes.
fn converse(place: &TestDir, store: &Store) {
    let container = store.open_container("shared", &ContainerSpec::default()).unwrap();
    let object = container.create_object(Some(ObjectId(1)), None).unwrap();
    object.write_at(0, b"question").unwrap();
    let mut buf = [0; 64];
    object.read_at(0, &mut buf).unwrap();
    let mut other = Other::start("answer", &[place.dir().to_str().unwrap()]);
    assert_eq!(other.line(), "answered");
    let n = container.object(ObjectId(2)).read_at(0, &mut buf).unwrap();
    assert_eq!(&buf[..n], b"noitseuq");
    object.write_at(0, b"changed!").unwrap();
    object.truncate(7).unwrap();
    other.finish();
    assert_eq!(store.reached(), Mode::Daemon);
}

pub fn visibility() {
    let place = TestDir::new();
    converse(&place, &place.make(Mode::Daemon));
}

pub fn handover() {
    let place = TestDir::new();
    let store = place.make(Mode::Auto);
    assert_eq!(store.reached(), Mode::InProcess);
    let container = store.create_container("mine", &ContainerSpec::default()).unwrap();
    let object = container.create_object(None, None).unwrap();
    object.write_at(0, b"before").unwrap();
    let view = object.view(0, 6).unwrap().expect("memory");
    let mut staged = object.write_in_place(5).unwrap();
    staged.bytes().copy_from_slice(b"stage");
    let mut transaction = store.begin();
    transaction.write(&object, 10, b"later").unwrap();
    // A thread that writes all the time notices nothing.
    let stop = std::sync::atomic::AtomicBool::new(false);
    let busy = container.create_object(None, None).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut count = 0u64;
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                busy.launch_write(count * 8, &count.to_le_bytes()).unwrap();
                let mut buf = [0; 8];
                assert_eq!(object.read_at(0, &mut buf[..6]).unwrap(), 6);
                count += 1;
                std::thread::sleep(Duration::from_micros(100));
            }
            count
        });
        converse(&place, &store);
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        let count = writer.join().unwrap();
        store.wait_all().unwrap();
        let mut buf = vec![0; count as usize * 8];
        assert_eq!(busy.read_at(0, &mut buf).unwrap(), buf.len());
        let expected: Vec<u8> = (0..count).flat_map(u64::to_le_bytes).collect();
        assert!(buf == expected);
    });
    assert_eq!(&view[..], b"before");
    staged.commit(20).unwrap();
    transaction.commit().unwrap();
    let mut buf = [0; 25];
    assert_eq!(object.read_at(0, &mut buf).unwrap(), 25);
    assert_eq!(&buf, b"before\0\0\0\0later\0\0\0\0\0stage");
}

pub fn twice_in_one_process() {
    let place = TestDir::new();
    let one = place.make(Mode::Auto);
    let container = one.create_container("c", &ContainerSpec::default()).unwrap();
    let object = container.create_object(Some(ObjectId(1)), None).unwrap();
    object.write_at(0, b"one").unwrap();
    let two = place.open(Mode::Auto);
    let mut buf = [0; 3];
    let same = two.container("c").unwrap().object(ObjectId(1));
    same.read_at(0, &mut buf).unwrap();
    assert_eq!(&buf, b"one");
    same.write_at(0, b"two").unwrap();
    object.read_at(0, &mut buf).unwrap();
    assert_eq!(&buf, b"two");
}

pub fn starters_race() {
    let place = TestDir::new();
    let store = place.make(Mode::InProcess);
    store.create_container("shared", &ContainerSpec::default()).unwrap();
    store.close().unwrap();
    let dir = place.dir();
    let mut others: Vec<_> = (0..5).map(|_| Other::start("racer", &[dir.to_str().unwrap()])).collect();
    for other in &mut others {
        assert_eq!(other.line(), "raced");
    }
    let store = place.open(Mode::Daemon);
    assert_eq!(store.container("shared").unwrap().objects(None, 100).unwrap().len(), 5);
    for other in others {
        other.finish();
    }
}

pub fn readers() {
    // SAFETY: no arguments, no effects.
    if unsafe { libc::geteuid() } != 0 {
        println!("(not root: cannot become another user)");
        return;
    }
    for may_read in [true, false] {
        let place = TestDir::new();
        let mut config = place.config(64 << 20, 256 << 20);
        config.readers = if may_read { vec![65_534] } else { vec![1] };
        let options = OpenOptions { mode: Mode::Daemon, create: true, config, ..OpenOptions::default() };
        let store = Store::open_with(place.dir(), &options).unwrap();
        let container = store.create_container("shared", &ContainerSpec::default()).unwrap();
        container.create_object(Some(ObjectId(1)), None).unwrap().write_at(0, b"for readers").unwrap();
        let mut other = Other::start("reader", &[place.dir().to_str().unwrap()]);
        assert_eq!(other.line(), if may_read { "for readers" } else { "refused PermissionDenied" });
        other.finish();
    }
}

/// The daemon survives any message, and still serves others.
pub fn hostile() {
    let place = TestDir::new();
    let store = place.make(Mode::Daemon);
    let container = store.create_container("c", &ContainerSpec::default()).unwrap();
    let object = container.create_object(None, None).unwrap();
    let pid = daemon_pid(&place.dir());
    let patience = Duration::from_secs(5);
    let connect = || Connection::connect(&place.dir(), SOCKET, patience).unwrap();
    let mut random = Random::new(9);
    let mut hello = Vec::new();
    for round in 0..60 {
        let connection = connect();
        let len = random.below(60) as usize;
        let mut bytes = random.bytes(len);
        if round % 3 == 0 {
            hello.clear();
            let greeting = cenote_wire::Greeting::Hello {
                nonce: u128::from(random.next()),
                read_only: false,
                home: cenote_model::HomeId(0),
            };
            cenote_wire::encode_greeting(&greeting, &mut hello);
            let _ = connection.send(&[&hello], &[], patience);
            if let Some(first) = bytes.first_mut() {
                *first = cenote_wire::WIRE_VERSION;
            }
        }
        if round % 5 == 0 {
            // Not even a frame.
            let _ = rustix::io::write(&connection, &bytes);
        } else {
            let _ = connection.send(&[&bytes], &[], patience);
        }
        if random.below(2) == 0 {
            let _ = connection.receive(Duration::from_millis(5));
        }
    }
    // A proper client whose rings then contain garbage.
    for round in 0..20 {
        let connection = connect();
        hello.clear();
        let greeting = cenote_wire::Greeting::Hello {
            nonce: u128::from(random.next()),
            read_only: false,
            home: cenote_model::HomeId(0),
        };
        cenote_wire::encode_greeting(&greeting, &mut hello);
        connection.send(&[&hello], &[], patience).unwrap();
        let frame = connection.receive(patience).unwrap().unwrap();
        let [_, file, bell, _alive] = <[_; 4]>::try_from(frame.fds).unwrap();
        let file = cenote_device::ClientFile::map(file).unwrap();
        let [requests, _] = ring_memories(&file).unwrap();
        if round % 2 == 0 {
            let waker = cenote_rpc::Waker::Doorbell(cenote_rpc::Doorbell::from_fd(bell));
            let mut ring = cenote_rpc::Producer::new(requests, waker).unwrap();
            for _ in 0..10 {
                let len = random.below(100) as usize;
                let mut bytes = random.bytes(len);
                if bytes.len() > 1 {
                    bytes[0] = 0;
                    bytes[1] = cenote_wire::WIRE_VERSION;
                }
                let _ = ring.try_push(&[&bytes]);
            }
            ring.publish();
        } else {
            // The ring's positions, and everything else in it.
            let noise = random.bytes(1000);
            let (base, _) = file.rings().unwrap()[0];
            let offset = base as usize - file.mapping().as_ptr() as usize;
            assert!(file.mapping().copy_in(offset as u64, &noise));
            let doorbell = cenote_rpc::Doorbell::from_fd(bell);
            doorbell.ring();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    object.write_at(0, b"still here").unwrap();
    let mut buf = [0; 10];
    object.read_at(0, &mut buf).unwrap();
    assert_eq!(&buf, b"still here");
    assert_eq!(daemon_pid(&place.dir()), pid, "the daemon has survived");
}

pub fn stopped_client() {
    let place = TestDir::new();
    let store = place.make(Mode::Daemon);
    let container = store.create_container("shared", &ContainerSpec::default()).unwrap();
    let object = container.create_object(None, None).unwrap();
    let mut other = Other::start("endless", &[place.dir().to_str().unwrap()]);
    let id: ObjectId = other.line().parse().unwrap();
    let first: u64 = other.line().parse().unwrap();
    signal(other.child.id(), libc::SIGSTOP);
    let begin = Instant::now();
    for i in 0..2000u32 {
        object.write_at(u64::from(i % 10) * 4096, &[i as u8; 4096]).unwrap();
    }
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    check_blocks(&store, id, first);
    signal(other.child.id(), libc::SIGCONT);
    let later: u64 = other.line().parse().unwrap();
    assert!(later > first);
    other.kill();
}

/// Clients truncate the files that they share with the daemon: it survives, and forgets them at the end of their
/// processes.
pub fn cut_files() {
    let place = TestDir::new();
    let store = place.make(Mode::Daemon);
    let pid = daemon_pid(&place.dir());
    let container = store.create_container("shared", &ContainerSpec::default()).unwrap();
    let object = container.create_object(None, None).unwrap();
    let work_on = || {
        // Longer than the daemon sleeps. Retired space makes it check the slots of every client.
        let begin = std::time::Instant::now();
        for i in (0..10u32).cycle().take_while(|_| begin.elapsed() < Duration::from_millis(700)) {
            object.write_at(u64::from(i) * 4096, &[i as u8; 4096]).unwrap();
        }
        assert_eq!(daemon_pid(&place.dir()), pid, "the daemon has survived");
    };
    for left in ["0", "4096", "100000"] {
        let mut other = Other::start("cutter", &[place.dir().to_str().unwrap(), left]);
        assert_eq!(other.line(), "cut", "{left}");
        work_on();
        other.kill();
        eventually("the client is forgotten", || store.stats().unwrap().sessions == 1);
        work_on();
    }
    let mut back = [0; 4096];
    object.read_at(9 * 4096, &mut back).unwrap();
    assert_eq!(back, [9; 4096]);
}

/// The acknowledged part of `endless` is in its object.
pub fn check_blocks(store: &Store, id: ObjectId, count: u64) {
    let object = store.container("shared").unwrap().object(id);
    let mut random = Random(id.0 as u64);
    let mut buf = vec![0; 4096];
    for block in 0..count {
        assert_eq!(object.read_at(block * 4096, &mut buf).unwrap(), 4096, "block {block} of {count}");
        assert!(buf == random.bytes(4096), "block {block} of {count}");
    }
}

pub fn stop_and_idle() {
    let place = TestDir::new();
    let store = place.make(Mode::Daemon);
    store.create_container("c", &ContainerSpec::default()).unwrap();
    let first = daemon_pid(&place.dir());
    // Stopped during a session: the client starts another daemon, and continues.
    assert!(Store::stop_daemon(place.dir()).unwrap());
    store.container("c").unwrap().create_object(Some(ObjectId(1)), None).unwrap().write_at(0, b"x").unwrap();
    assert_ne!(daemon_pid(&place.dir()), first);
    // By itself, without clients (after 2 s in these tests).
    store.close().unwrap();
    eventually("the daemon leaves", || {
        matches!(Connection::connect(&place.dir(), SOCKET, Duration::from_secs(1)), Err(error)
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Disconnected))
    });
    assert!(!Store::stop_daemon(place.dir()).unwrap());
    let store = place.open(Mode::InProcess);
    assert_eq!(store.container("c").unwrap().objects(None, 9).unwrap(), [ObjectId(1)]);
}
