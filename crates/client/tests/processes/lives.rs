//! Processes die, fork and leave.

use std::time::Duration;

use cenote::{ContainerSpec, ErrorKind, Mode, ObjectId, Store};

use crate::others::check_blocks;
use crate::tools::{Other, Random, TestDir, daemon_pid, eventually, signal};

/// SIGKILL in the middle of pipelined writes, several times: the application sees a pause; no write is lost or done
/// twice.
pub fn daemon_dies() {
    let place = TestDir::new();
    let store = place.make(Mode::Daemon);
    let container = store.create_container("c", &ContainerSpec::default()).unwrap();
    let object = container.create_object(None, None).unwrap();
    let index = container.create_index(None).unwrap();
    let mut random = Random::new(10);
    let mut image = vec![0u8; 2 << 20];
    object.write_at(0, &image).unwrap();
    for round in 0..4u64 {
        let dir = place.dir();
        let pause = random.below(30);
        let killer = std::thread::spawn(move || {
            let pid = daemon_pid(&dir);
            std::thread::sleep(Duration::from_millis(pause));
            signal(pid, libc::SIGKILL);
        });
        let mut count = 0;
        while !killer.is_finished() || count < 500 {
            let at = random.below(image.len() as u64 - 5000) as usize;
            let len = 1 + random.below(5000) as usize;
            let bytes = random.bytes(len);
            drop(object.launch_write(at as u64, &bytes).unwrap());
            image[at..at + bytes.len()].copy_from_slice(&bytes);
            // A record that must be new: a repetition would fail.
            let key = [round.to_be_bytes(), (count as u64).to_be_bytes()].concat();
            if count % 50 == 0 {
                assert_eq!(index.put_new(&[(&key, b"v")]).unwrap(), [cenote::KeyCode::Ok]);
                let mut buf = vec![0; 1000];
                let at = random.below(image.len() as u64 - 1000) as usize;
                object.read_at(at as u64, &mut buf).unwrap();
                assert!(buf == image[at..at + 1000], "round {round}, after {count}");
            }
            count += 1;
        }
        killer.join().unwrap();
        store.wait_all().unwrap();
        let mut back = vec![0; image.len()];
        object.read_at(0, &mut back).unwrap();
        assert!(back == image, "round {round}");
    }
    assert!(store.verify().unwrap().findings.is_empty());
    // A view from before a death still holds.
    let view = object.view(0, 100).unwrap();
    signal(daemon_pid(&place.dir()), libc::SIGKILL);
    for _ in 0..50 {
        object.write_at(0, &random.bytes(100_000)).unwrap();
    }
    if let Some(view) = view {
        assert!(view[..] == image[..100]);
    }
}

pub fn clients_die() {
    let place = TestDir::new();
    let store = place.make(Mode::Daemon);
    store.create_container("shared", &ContainerSpec::default()).unwrap();
    let dir = place.dir();
    let mut random = Random::new(11);
    for _ in 0..4 {
        let mut other = Other::start("endless", &[dir.to_str().unwrap()]);
        let id: ObjectId = other.line().parse().unwrap();
        let mut acknowledged = 0;
        for _ in 0..=random.below(20) {
            acknowledged = other.line().parse().unwrap();
        }
        let mut sitter = Other::start("sitter", &[dir.to_str().unwrap()]);
        assert_eq!(sitter.line(), "sitting");
        other.kill();
        sitter.kill();
        check_blocks(&store, id, acknowledged);
    }
    // The leases of the dead are given back; this session keeps its own.
    eventually("sessions of the dead are closed", || store.stats().unwrap().sessions == 1);
    assert!(store.verify().unwrap().findings.is_empty());
}

/// Forks; the child runs `body` and exits at once, without destructors, like Python's multiprocessing.
fn in_child(body: impl FnOnce()) {
    // SAFETY: the child uses the library, whose fork handling is under test, and ends with _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!ok)) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child; `status` is ours.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0, "the child failed");
}

fn forks(store: &Store) {
    let container = store.create_container("c", &ContainerSpec::default()).unwrap();
    let object = container.create_object(None, None).unwrap();
    object.write_at(0, &[1; 10_000]).unwrap();
    let mut view = object.view(0, 10).unwrap();
    // A transaction from before the fork belongs to the parent.
    let mut transaction = store.begin();
    transaction.write(&object, 20_000, b"parent").unwrap();
    container.snapshot("kept").unwrap();
    let mut kept = Some(container.open_snapshot("kept").unwrap());
    container.delete_snapshot("kept").unwrap();
    let mut ids = Vec::new();
    for round in 0..3u8 {
        object.launch_write(100, &[round; 50]).unwrap();
        let fresh = container.create_object(None, None).unwrap();
        ids.push(fresh.key().object);
        in_child(|| {
            let mut buf = [0; 100];
            object.read_at(0, &mut buf).unwrap();
            assert_eq!(buf, [1; 100]);
            // The child's copy of the view is dropped; the parent's still holds its bytes.
            let copy = view.take();
            assert!(copy.is_none_or(|view| view[..] == [1; 10]));
            for _ in 0..300 {
                object.write_at(0, &[1; 100]).unwrap();
            }
            fresh.write_at(0, b"child").unwrap();
            for i in 0..500u64 {
                object.launch_write(20_100 + i * 8, &i.to_le_bytes()).unwrap();
            }
            store.wait_all().unwrap();
            object.read_at(20_100 + 499 * 8, &mut buf[..8]).unwrap();
            assert_eq!(buf[..8], 499u64.to_le_bytes());
            let ours = container.create_object(None, None).unwrap();
            ours.write_at(0, b"ours").unwrap();
            let refused = transaction.punch(&object, 0, 1).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
            assert!(refused.next_step().contains("child"), "{refused}");
            // The parent's session still reads the snapshot.
            drop(kept.take());
            // A child of the child.
            in_child(|| {
                let mut buf = [0; 5];
                fresh.read_at(0, &mut buf).unwrap();
                assert_eq!(&buf, b"child");
            });
        });
        let mut buf = [0; 50];
        fresh.read_at(0, &mut buf[..5]).unwrap();
        assert_eq!(&buf[..5], b"child");
        object.read_at(100, &mut buf).unwrap();
        assert_eq!(buf, [round; 50]);
    }
    for i in 0..200u8 {
        object.write_at(0, &vec![i; 10_000]).unwrap();
    }
    assert!(view.is_none_or(|view| view[..] == [1; 10]));
    transaction.commit().unwrap();
    let kept = kept.expect("only children gave it up").object(object.key().object);
    let mut whole = [0; 10_000];
    assert_eq!(kept.read_at(0, &mut whole).unwrap(), 10_000);
    assert_eq!(whole, [1; 10_000]);
    let mut buf = [0; 6];
    object.read_at(20_000, &mut buf).unwrap();
    assert_eq!(&buf, b"parent");
    assert_eq!(container.objects(None, 100).unwrap().len(), 1 + 3 + 3);
    assert!(store.verify().unwrap().findings.is_empty());
}

pub fn fork_with_a_daemon() {
    let place = TestDir::new();
    forks(&place.make(Mode::Daemon));
}

pub fn fork_in_process() {
    let place = TestDir::new();
    let store = place.make(Mode::Auto);
    assert_eq!(store.reached(), Mode::InProcess);
    forks(&store);
    assert_eq!(store.reached(), Mode::Daemon);
    // If a handover of the engine is impossible, a child gets an error.
    let place = TestDir::new();
    let store = place.make(Mode::InProcess);
    let container = store.create_container("c", &ContainerSpec::default()).unwrap();
    in_child(|| {
        let error = container.info().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    });
    container.info().unwrap();
}

pub fn closing() {
    let place = TestDir::new();
    for mode in [Mode::InProcess, Mode::Auto, Mode::Daemon] {
        let store = place.make(mode);
        let container = store.open_container("c", &ContainerSpec::default()).unwrap();
        let object = container.create_object(None, None).unwrap();
        object.launch_write(0, b"launched").unwrap();
        let view = {
            object.write_at(10, b"viewed").unwrap();
            object.view(10, 6).unwrap()
        };
        store.clone().close().unwrap();
        store.close().unwrap();
        assert_eq!(object.write_at(0, b"x").unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(store.container("c").unwrap_err().kind(), ErrorKind::InvalidInput);
        let _ = Store::stop_daemon(place.dir());
        // The directory is free at once.
        let again = place.open(Mode::InProcess);
        let container = again.container("c").unwrap();
        let object = container.object(object.key().object);
        let mut buf = [0; 8];
        object.read_at(0, &mut buf).unwrap();
        assert_eq!(&buf, b"launched");
        for _ in 0..20 {
            object.write_at(0, &vec![9; 100_000]).unwrap();
        }
        if let Some(view) = view {
            assert_eq!(&view[..], b"viewed");
        }
        drop(again);
        drop((object, container));
        place.open(Mode::InProcess).close().unwrap();
    }
}
