//! Measures the ring between two processes: `cargo run --release -p cenote-rpc --example roundtrip`.
//!
//! Prints the round trip of 64 bytes with one in flight (p50, p99), and messages per second with 32 in
//! flight.
#![allow(unsafe_code, reason = "a mapping to share")]

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_rpc::{Consumer, Producer, RingMemory, Waker, ring_bytes_for};
use rustix::mm::{MapFlags, ProtFlags};

const DATA_BYTES: usize = 256 << 10;
const WAIT: Duration = Duration::from_secs(10);

fn rings(path: &str) -> [RingMemory; 2] {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("open");
    let len = ring_bytes_for(DATA_BYTES);
    // SAFETY: a new mapping, never unmapped; the file has that size.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let base = rustix::mm::mmap(std::ptr::null_mut(), 2 * len, protection, MapFlags::SHARED, &file, 0);
        let base = base.expect("mmap").cast::<u8>();
        [base, base.add(len)].map(|base| RingMemory::new(base, len, Arc::new(())).expect("ring"))
    }
}

fn serve(path: &str) {
    let [requests, responses] = rings(path);
    let mut requests = Consumer::new(requests).expect("consumer");
    let mut responses = Producer::new(responses, Waker::Futex).expect("producer");
    loop {
        while let Ok(Some(bytes)) = requests.take() {
            if bytes.is_empty() {
                return;
            }
            while !responses.try_push(&[bytes]).expect("push") {
                responses.wait_room(WAIT).expect("room");
            }
        }
        requests.release();
        responses.publish();
        if !requests.wait(WAIT).unwrap_or(false) {
            return;
        }
    }
}

fn main() {
    if let Some(path) = std::env::args().nth(1) {
        return serve(&path);
    }
    let len = ring_bytes_for(DATA_BYTES);
    let fd = rustix::fs::memfd_create("rings", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
    rustix::fs::ftruncate(&fd, 2 * len as u64).expect("size");
    let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    let mut child = std::process::Command::new(std::env::current_exe().expect("exe"));
    let mut child = child.arg(&path).spawn().expect("spawn");
    let [requests, responses] = rings(&path);
    let mut requests = Producer::new(requests, Waker::Futex).expect("producer");
    let mut responses = Consumer::new(responses).expect("consumer");
    one_in_flight(&mut requests, &mut responses);
    for depth in [8, 32, 128] {
        pipelined(&mut requests, &mut responses, depth);
    }
    requests.try_push(&[]).expect("push");
    requests.publish();
    child.wait().expect("child");
}

fn one_in_flight(requests: &mut Producer, responses: &mut Consumer) {
    let mut times = Vec::with_capacity(40_000);
    for _ in 0..40_000 {
        let begin = Instant::now();
        requests.try_push(&[&[1; 64]]).expect("push");
        requests.publish();
        while responses.take().expect("take").is_none() {
            responses.wait(WAIT).expect("wait");
        }
        responses.release();
        times.push(begin.elapsed().as_nanos() as u64);
    }
    let total: u64 = times.iter().sum();
    times.sort_unstable();
    println!(
        "one in flight: p50 {:.2} us, p99 {:.2} us, {:.0} k/s",
        times[times.len() / 2] as f64 / 1e3,
        times[times.len() * 99 / 100] as f64 / 1e3,
        times.len() as f64 / (total as f64 / 1e9) / 1e3
    );
}

fn pipelined(requests: &mut Producer, responses: &mut Consumer, depth: u64) {
    const COUNT: u64 = 400_000;
    let (mut sent, mut received) = (0, 0);
    let begin = Instant::now();
    while received < COUNT {
        while sent < COUNT && sent < received + depth {
            assert!(requests.try_push(&[&[1; 64]]).expect("push"), "the ring is larger than what is in flight");
            sent += 1;
        }
        requests.publish();
        responses.wait(WAIT).expect("wait");
        while responses.take().expect("take").is_some() {
            received += 1;
        }
        responses.release();
    }
    println!("{depth} in flight: {:.0} k/s", COUNT as f64 / begin.elapsed().as_secs_f64() / 1e3);
}
