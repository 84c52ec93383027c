//! How many accesses to keep in flight, and by what: blocking threads, or one thread with an `io_uring`.
//! `cargo run --release -p cenote-device --example depth -- DIRECTORY`.
//!
//! Direct I/O at random places of one file, in alternating rounds; medians of thousands of accesses a second, bandwidth,
//! and the processor time that each access takes.
#![allow(unsafe_code, reason = "the kernel reads and writes buffers on its own")]

use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use cenote_device::aligned::AlignedBuf;
use io_uring::{IoUring, opcode, types::Fd};

const SPAN_BYTES: u64 = 512 << 20;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(150);

fn cpu_ns() -> u64 {
    let usage = |who| {
        // SAFETY: zeros are a valid `rusage`, which the call fills.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &raw mut usage);
            let of = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
            of(usage.ru_utime) + of(usage.ru_stime)
        }
    };
    usage(libc::RUSAGE_SELF)
}

struct Places(u64);
impl Places {
    fn next(&mut self, bytes: usize) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % (SPAN_BYTES / bytes as u64) * bytes as u64
    }
}

/// Accesses done by `depth` threads, each with one access in flight.
fn threads(fd: &std::fs::File, bytes: usize, depth: usize, is_write: bool) -> u64 {
    std::thread::scope(|scope| {
        let lane = |number: usize| {
            let mut buffer = AlignedBuf::new(bytes);
            let mut places = Places(number as u64 + 1);
            let (begin, mut done) = (Instant::now(), 0);
            while begin.elapsed() < ROUND {
                let at = places.next(bytes);
                let n = if is_write {
                    rustix::io::pwrite(fd, &buffer[..bytes], at)
                } else {
                    rustix::io::pread(fd, &mut buffer[..bytes], at)
                };
                assert_eq!(n.expect("I/O"), bytes);
                done += 1;
            }
            done
        };
        let all: Vec<_> = (0..depth).map(|number| scope.spawn(move || lane(number))).collect();
        all.into_iter().map(|thread| thread.join().expect("a lane")).sum()
    })
}

/// Accesses done by one thread that keeps `depth` accesses in flight.
fn ring(fd: &std::fs::File, bytes: usize, depth: usize, is_write: bool) -> u64 {
    let mut ring = IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(16).expect("a ring");
    let mut buffers: Vec<AlignedBuf> = (0..depth).map(|_| AlignedBuf::new(bytes)).collect();
    let mut places = Places(1);
    let mut push = |ring: &mut IoUring, slot: usize| {
        let (fd, base) = (Fd(fd.as_raw_fd()), buffers[slot].as_mut_ptr());
        let at = places.next(bytes);
        let entry = if is_write {
            opcode::Write::new(fd, base, bytes as u32).offset(at).build()
        } else {
            opcode::Read::new(fd, base, bytes as u32).offset(at).build()
        };
        // SAFETY: the buffers live until all accesses have completed.
        unsafe { ring.submission().push(&entry.user_data(slot as u64)).expect("room") };
    };
    let (begin, mut done, mut under_way) = (Instant::now(), 0, depth);
    (0..depth).for_each(|slot| push(&mut ring, slot));
    while under_way > 0 {
        ring.submit_and_wait(1).expect("submitted");
        let landed: Vec<(usize, i32)> =
            ring.completion().map(|entry| (entry.user_data() as usize, entry.result())).collect();
        for (slot, result) in landed {
            assert_eq!(result, bytes as i32);
            done += 1;
            if begin.elapsed() < ROUND {
                push(&mut ring, slot);
            } else {
                under_way -= 1;
            }
        }
    }
    done
}

fn median(mut values: Vec<(f64, f64)>) -> (f64, f64) {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    values[values.len() / 2]
}

fn main() {
    use std::os::unix::fs::OpenOptionsExt;
    let dir = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let path = Path::new(&dir).join("cenote-depth-example");
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .expect("a file with direct I/O");
    let zeros = AlignedBuf::new(4 << 20);
    for at in (0..SPAN_BYTES).step_by(4 << 20) {
        rustix::io::pwrite(&file, &zeros[..4 << 20], at).expect("filled");
    }
    println!("{:>5} {:>8} {:>5}  {:>26}  {:>26}  ratio", "", "bytes", "depth", "threads", "io_uring, one thread");
    for is_write in [false, true] {
        for bytes in [4 << 10, 64 << 10, 1 << 20, 4 << 20] {
            for depth in [1, 4, 8] {
                let (mut by_threads, mut by_ring) = (Vec::new(), Vec::new());
                for _ in 0..ROUNDS {
                    for (run, into) in [(threads as fn(&_, _, _, _) -> u64, &mut by_threads), (ring, &mut by_ring)] {
                        let (begin, cpu) = (Instant::now(), cpu_ns());
                        let done = run(&file, bytes, depth, is_write) as f64;
                        into.push((done / begin.elapsed().as_secs_f64(), (cpu_ns() - cpu) as f64 / done));
                    }
                }
                let ((a, a_cpu), (b, b_cpu)) = (median(by_threads), median(by_ring));
                let show = |rate: f64, cpu: f64| {
                    format!("{:7.1} k/s {:5.2} GB/s {:5.0} us", rate / 1e3, rate * bytes as f64 / 1e9, cpu / 1e3)
                };
                let what = if is_write { "write" } else { "read" };
                println!("{what:>5} {bytes:>8} {depth:>5}  {}  {}  {:.2}", show(a, a_cpu), show(b, b_cpu), b / a);
            }
        }
    }
    let _ = std::fs::remove_file(&path);
}
