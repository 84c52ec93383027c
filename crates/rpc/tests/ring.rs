//! Rings between threads and processes, and with a hostile peer.
#![allow(unsafe_code, reason = "a mapping to share")]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cenote_model::ErrorKind;
use cenote_rpc::{Consumer, Doorbell, FrameLog, Poller, Producer, RingMemory, Waker, ring_bytes_for};
use rustix::event::PollFlags;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Shared memory with its own mapping.
struct Shared {
    base: *mut u8,
    len: usize,
    fd: OwnedFd,
}
// SAFETY: plain memory, used through rings and the raw writes of the hostile tests.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(len: usize) -> Arc<Self> {
        let fd = rustix::fs::memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, len as u64).unwrap();
        Self::map(fd, len)
    }
    fn map(fd: OwnedFd, len: usize) -> Arc<Self> {
        // SAFETY: a new mapping.
        let base = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &fd, 0).unwrap()
        };
        Arc::new(Self { base: base.cast(), len, fd })
    }
    fn ring(self: &Arc<Self>, at: usize, len: usize) -> RingMemory {
        assert!(at + len <= self.len);
        // SAFETY: in bounds; the owner keeps it mapped.
        unsafe { RingMemory::new(self.base.add(at), len, Arc::clone(self) as _).unwrap() }
    }
    fn poke(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len);
        // SAFETY: in bounds.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at), bytes.len()) };
    }
}
impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`.
        unsafe { rustix::mm::munmap(self.base.cast(), self.len).unwrap() };
    }
}

fn pair(data_bytes: usize) -> (Arc<Shared>, Producer, Consumer) {
    let len = ring_bytes_for(data_bytes);
    let shared = Shared::new(len);
    let producer = Producer::new(shared.ring(0, len), Waker::Futex).unwrap();
    let consumer = Consumer::new(shared.ring(0, len)).unwrap();
    (shared, producer, consumer)
}

/// A frame that describes itself: number and length, then a pattern.
fn frame(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len.max(16)];
    bytes[0..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..16].copy_from_slice(&(len as u64).to_le_bytes());
    bytes
}

fn check(bytes: &[u8], number: u64) {
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(u64_at(0), number);
    assert_eq!(bytes.len(), (u64_at(8) as usize).max(16));
    assert!(bytes[16..].iter().all(|byte| *byte == number as u8), "frame {number}");
}

#[test]
fn frames_come_out_in_order_and_only_when_published() {
    let (_shared, mut producer, mut consumer) = pair(4096);
    assert!(consumer.take().unwrap().is_none());
    assert!(producer.try_push(&[b"one ", b"", b"frame"]).unwrap());
    assert!(producer.try_push(&[]).unwrap());
    assert!(consumer.take().unwrap().is_none(), "not published");
    producer.publish();
    assert_eq!(consumer.take().unwrap(), Some(&b"one frame"[..]));
    assert_eq!(consumer.take().unwrap(), Some(&b""[..]));
    assert!(consumer.take().unwrap().is_none());
    assert!(!producer.is_drained().unwrap());
    consumer.release();
    assert!(producer.is_drained().unwrap());
    assert_eq!(producer.try_push(&[&vec![0; producer.frame_max() + 1]]).unwrap_err().kind(), ErrorKind::LimitExceeded);
}

#[test]
fn a_full_ring_says_so_and_every_length_passes() {
    let (_shared, mut producer, mut consumer) = pair(4096);
    let (mut pushed, mut taken) = (0_u64, 0_u64);
    for round in 0..2000_usize {
        let len = (round * 37) % (producer.frame_max() + 1 - 16) + 16;
        while !producer.try_push(&[&frame(pushed, len)]).unwrap() {
            producer.publish();
            assert!(taken < pushed, "a ring that is empty takes any frame up to the maximum");
            while let Some(bytes) = consumer.take().unwrap() {
                check(bytes, taken);
                taken += 1;
            }
            consumer.release();
        }
        pushed += 1;
    }
    producer.publish();
    while let Some(bytes) = consumer.take().unwrap() {
        check(bytes, taken);
        taken += 1;
    }
    assert_eq!(taken, pushed);
}

#[test]
fn threads_with_waits_lose_nothing() {
    let (_shared, mut producer, mut consumer) = pair(4096);
    let count = 20_000_u64;
    let sender = thread::spawn(move || {
        for number in 0..count {
            let bytes = frame(number, (number as usize * 13) % 700);
            while !producer.try_push(&[&bytes]).unwrap() {
                assert!(producer.wait_room(Duration::from_secs(10)).unwrap(), "no room at {number}");
            }
            if number % 7 == 0 {
                producer.publish();
            }
            if number % 1000 == 0 {
                thread::sleep(Duration::from_micros(200)); // let the other side fall asleep
            }
        }
        producer.publish();
        while !producer.is_drained().unwrap() {
            thread::yield_now();
        }
    });
    for number in 0..count {
        loop {
            if let Some(bytes) = consumer.take().unwrap() {
                check(bytes, number);
                break;
            }
            assert!(consumer.wait(Duration::from_secs(10)).unwrap(), "nothing came after {number}");
        }
        if number % 3 == 0 {
            consumer.release();
        }
        if number % 1500 == 0 {
            thread::sleep(Duration::from_micros(200));
        }
    }
    consumer.release();
    sender.join().unwrap();
}

#[test]
fn one_poller_serves_many_rings() {
    let bell = Doorbell::new().unwrap();
    let mut poller = Poller::new(bell.clone());
    let (mut producers, mut consumers) = (vec![], vec![]);
    let len = ring_bytes_for(4096);
    for _ in 0..5 {
        let shared = Shared::new(len);
        producers.push(Producer::new(shared.ring(0, len), Waker::Doorbell(bell.clone())).unwrap());
        consumers.push(Consumer::new(shared.ring(0, len)).unwrap());
    }
    let senders: Vec<_> = producers
        .into_iter()
        .map(|mut producer| {
            thread::spawn(move || {
                for number in 0..500 {
                    while !producer.try_push(&[&frame(number, 100)]).unwrap() {
                        assert!(producer.wait_room(Duration::from_secs(10)).unwrap());
                    }
                    producer.publish();
                    if number % 50 == 0 {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            })
        })
        .collect();
    let mut next = [0_u64; 5];
    let begin = Instant::now();
    while next != [500; 5] {
        assert!(begin.elapsed() < Duration::from_secs(20), "{next:?}");
        poller.wait(consumers.iter(), Duration::from_secs(5));
        for (consumer, next) in consumers.iter_mut().zip(&mut next) {
            while let Some(bytes) = consumer.take().unwrap() {
                check(bytes, *next);
                *next += 1;
            }
            consumer.release();
        }
    }
    for sender in senders {
        sender.join().unwrap();
    }
    bell.ring();
    let begin = Instant::now();
    poller.wait(consumers.iter(), Duration::from_secs(5));
    assert!(begin.elapsed() < Duration::from_secs(4), "the bell was rung");
}

#[test]
fn who_is_crowded_hears_no_announcements() {
    let (_shared, mut producer, consumer) = pair(4096);
    for is_crowded in [false, true, false] {
        consumer.set_crowded(is_crowded);
        producer.announce();
        assert_eq!(consumer.take_announcement(), !is_crowded);
        assert!(!consumer.take_announcement(), "once");
    }
}

#[test]
fn closing_ends_waits() {
    let (_shared, producer, mut consumer) = pair(4096);
    let waiter = thread::spawn(move || consumer.wait(Duration::from_secs(20)).unwrap_err().kind());
    thread::sleep(Duration::from_millis(20));
    producer.close();
    assert_eq!(waiter.join().unwrap(), ErrorKind::Disconnected);
    let (_shared, mut producer, mut consumer) = pair(4096);
    producer.try_push(&[b"last words"]).unwrap();
    producer.publish();
    producer.close();
    assert_eq!(consumer.take().unwrap(), Some(&b"last words"[..]));
    assert_eq!(consumer.take().unwrap_err().kind(), ErrorKind::Disconnected);
    let (_shared, mut producer, consumer) = pair(4096);
    while producer.try_push(&[&[0; 500]]).unwrap() {}
    consumer.close();
    assert_eq!(producer.wait_room(Duration::from_secs(20)).unwrap_err().kind(), ErrorKind::Disconnected);
}

#[test]
fn waits_end_in_time() {
    let (_shared, mut producer, mut consumer) = pair(4096);
    assert!(!consumer.wait(Duration::from_millis(5)).unwrap());
    while producer.try_push(&[&[0; 500]]).unwrap() {}
    assert!(!producer.wait_room(Duration::from_millis(5)).unwrap());
}

/// Whatever a peer writes anywhere, the result is a frame within bounds, nothing, or an error.
#[test]
fn hostile_memory_is_an_error_at_worst() {
    let mut seed = 0x1234_5678_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut errors = 0;
    for _ in 0..3000 {
        let (shared, mut producer, mut consumer) = pair(4096);
        for number in 0..random() % 6 {
            producer.try_push(&[&frame(number, random() as usize % 500)]).unwrap();
        }
        producer.publish();
        for _ in 0..=random() % 3 {
            let at = [0, 64, 128, 256, 512, 512 + random() as usize % 4088][random() as usize % 6];
            let value = match random() % 5 {
                0 => u64::MAX,
                1 => 0xffff_fff8,
                2 => random() % 9000,
                3 => (random() % 1100) * 8,
                _ => random(),
            };
            shared.poke(at, &value.to_le_bytes());
        }
        for _ in 0..20 {
            match consumer.take() {
                Ok(Some(bytes)) => assert!(bytes.len() <= 2048),
                Ok(None) => break,
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Disconnected), "{error}");
                    errors += 1;
                    break;
                }
            }
        }
        consumer.release();
        for _ in 0..10 {
            if !producer.try_push(&[&[7; 300]]).unwrap_or(false) {
                break;
            }
        }
        producer.publish();
        let _ = (Producer::new(shared.ring(0, shared.len), Waker::Futex), Consumer::new(shared.ring(0, shared.len)));
    }
    assert!(errors > 300, "{errors} errors");
}

/// Not a test of its own: the peer process of the next test. Echoes what it receives.
#[test]
fn child_that_echoes() {
    let Ok(path) = std::env::var("CENOTE_TEST_RINGS") else { return };
    let fd = rustix::fs::open(path, OFlags::RDWR, Mode::empty()).unwrap();
    let len = ring_bytes_for(64 << 10);
    let shared = Shared::map(fd, 2 * len);
    let mut requests = Consumer::new(shared.ring(0, len)).unwrap();
    let mut responses = Producer::new(shared.ring(len, len), Waker::Futex).unwrap();
    while requests.wait(Duration::from_secs(20)).is_ok_and(|ready| ready) {
        while let Ok(Some(bytes)) = requests.take() {
            if bytes.starts_with(b"die") {
                std::process::abort();
            }
            let bytes = bytes.to_vec();
            while !responses.try_push(&[&bytes]).unwrap() {
                responses.wait_room(Duration::from_secs(20)).unwrap();
            }
        }
        responses.publish();
    }
}

#[test]
fn two_processes_and_a_death() {
    let len = ring_bytes_for(64 << 10);
    let shared = Shared::new(2 * len);
    let path = format!("/proc/{}/fd/{}", std::process::id(), shared.fd.as_raw_fd());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_echoes"])
        .env("CENOTE_TEST_RINGS", path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut requests = Producer::new(shared.ring(0, len), Waker::Futex).unwrap();
    let mut responses = Consumer::new(shared.ring(len, len)).unwrap();
    let (mut sent, mut received) = (0, 0);
    while received < 5000 {
        while sent < 5000 && sent < received + 32 {
            assert!(requests.try_push(&[&frame(sent, (sent as usize * 31) % 900)]).unwrap());
            sent += 1;
        }
        requests.publish();
        assert!(responses.wait(Duration::from_secs(20)).unwrap(), "no answer to {received}");
        while let Some(bytes) = responses.take().unwrap() {
            check(bytes, received);
            received += 1;
        }
    }
    requests.try_push(&[b"die"]).unwrap();
    requests.publish();
    assert!(!child.wait().unwrap().success());
    assert!(!responses.wait(Duration::from_millis(10)).unwrap(), "the dead do not answer, and nobody hangs");
}

#[test]
fn a_log_has_what_its_writer_did_not_take_back() {
    let len = ring_bytes_for(4096);
    let shared = Shared::new(len);
    let mut log = FrameLog::new(shared.ring(0, len)).unwrap();
    let mut ends = std::collections::VecDeque::new();
    let mut first = 0;
    for number in 0..500u64 {
        let bytes = frame(number, (number as usize * 37) % 900);
        while !log.has_room(bytes.len()).unwrap() {
            log.take_back(ends.pop_front().unwrap());
            first += 1;
        }
        assert!(log.push(&[&bytes[..8], &bytes[8..]]).unwrap(), "there is room");
        ends.push_back(log.end());
        // A reader after the writer finds exactly what is left, at any moment.
        let mut found = Consumer::new(shared.ring(0, len)).unwrap();
        for expected in first..=number {
            check(found.take().unwrap().unwrap(), expected);
        }
        assert!(!found.is_ready());
    }
    assert!(first > 400, "its memory was used again");
}

#[test]
fn a_bell_that_rings_while_the_poller_looks_around_is_heard() {
    let bell = Doorbell::new().unwrap();
    let silent = Doorbell::new().unwrap();
    let mut poller = Poller::new(bell.clone());
    for round in 0..300_u64 {
        let bell = bell.clone();
        let ringing = std::thread::spawn(move || {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_micros(round % 30) {}
            bell.ring();
        });
        let begin = Instant::now();
        poller.wait_also([].iter(), &[(silent.as_fd(), PollFlags::IN)], Duration::from_secs(5));
        assert!(begin.elapsed() < Duration::from_secs(4), "round {round}");
        ringing.join().unwrap();
        poller.wait_also([].iter(), &[(silent.as_fd(), PollFlags::IN)], Duration::from_millis(1));
    }
}
