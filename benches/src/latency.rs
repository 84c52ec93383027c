//! Latencies of single gets and puts of 4 KiB: the program that `benches/tiers` observes while it drains a tier.

use std::io::Write;
use std::time::{Duration, Instant};

use cenote::{ContainerSpec, Mode, OpenOptions, Store};

use crate::Outcome;
use crate::reference::shuffled;

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;
const SPAN: usize = 32 * MIB;
/// Interval of a get and a put. Written bytes have to be copied to slow layers: without pauses they would be more than
/// these accept.
const EVERY: Duration = Duration::from_micros(250);

/// The program: `--child latency DIR POLICY`. For each line, a number of milliseconds, it gets and puts 4 KiB at random
/// for that time, waiting for each, one of each every 250 us, and answers with latencies in ns: median and 99th
/// percentile of gets, then of puts, and their number.
pub fn child(dir: &str, policy: &str) -> Outcome {
    let options = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
    let store = Store::open_with(dir, &options)?;
    let spec = ContainerSpec { policy: policy.to_owned(), ..ContainerSpec::default() };
    let object = store.create_container("latency", &spec)?.create_object(None, Some(12))?;
    let piece = vec![3u8; MIB];
    for at in (0..SPAN).step_by(MIB) {
        object.write_at(at as u64, &piece)?;
    }
    println!("ready");
    let (mut buf, data) = (vec![0u8; BLOCK], vec![5u8; BLOCK]);
    let blocks = shuffled((SPAN / BLOCK) as u64, 1 << 16, 1);
    let mut next = blocks.iter().cycle();
    for line in std::io::stdin().lines() {
        let until = Instant::now() + Duration::from_millis(line?.parse()?);
        let (mut gets, mut puts) = (Vec::new(), Vec::new());
        let mut turn = Instant::now();
        while turn < until {
            while Instant::now() < turn {
                std::hint::spin_loop();
            }
            turn = Instant::now() + EVERY;
            let at = next.next().copied().unwrap_or(0) * BLOCK as u64;
            let begin = Instant::now();
            object.read_at(at, &mut buf)?;
            let between = Instant::now();
            object.write_at(at, &data)?;
            gets.push((between - begin).as_nanos());
            puts.push(between.elapsed().as_nanos());
        }
        for times in [&mut gets, &mut puts] {
            times.sort_unstable();
            print!("{} {} ", times[times.len() / 2], times[times.len() * 99 / 100]);
        }
        println!("{}", gets.len());
        std::io::stdout().flush()?;
    }
    store.close()?;
    Ok(())
}
