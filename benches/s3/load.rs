//! An HTTP load generator: sends requests with URLs that were signed elsewhere, and measures the time.
//!
//! It knows nothing of S3 and next to nothing of HTTP, so that its cost is small beside the measured servers: each
//! client is a thread with a persistent connection, requests are prepared in memory, and only the status and the length
//! of answers are parsed.

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Bytes of an answer read at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// A server that is silent for this long has failed.
const PATIENCE: Duration = Duration::from_mins(1);

const USAGE: &str = "usage: s3load ADDRESS:PORT METHOD BODY_BYTES CLIENTS SECONDS ROUNDS <TARGETS
TARGETS are lines, each the path and query of a request; clients take turns with them. Each goes on for SECONDS, and for ROUNDS requests at least.
Prints one line of JSON.";

/// Settings of all clients.
struct Plan {
    address: SocketAddr,
    method: String,
    body: Vec<u8>,
    seconds: f64,
    rounds: usize,
}

/// Results of one client.
#[derive(Default)]
struct ClientResult {
    times: Vec<Duration>,
    bytes: u64,
    elapsed: Duration,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("s3load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, method, body_bytes, clients, seconds, rounds] = words.as_slice() else { return Err(USAGE.into()) };
    let bad = |error: &dyn std::fmt::Display| format!("{error}\n{USAGE}");
    let body_bytes: usize = body_bytes.parse().map_err(|error| bad(&error))?;
    let clients: usize = clients.parse().map_err(|error| bad(&error))?;
    let plan = Plan {
        address: address.parse().map_err(|error| bad(&error))?,
        method: method.clone(),
        // Bytes that do not compress well.
        body: (0..body_bytes as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect(),
        seconds: seconds.parse().map_err(|error| bad(&error))?,
        rounds: rounds.parse().map_err(|error| bad(&error))?,
    };
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| bad(&error))?;
    let targets: Vec<&str> = text.lines().collect();
    if clients == 0 || targets.len() < clients {
        return Err(format!("{} targets for {clients} clients", targets.len()));
    }
    let gate = Barrier::new(clients);
    let all: Result<Vec<ClientResult>, String> = std::thread::scope(|scope| {
        let client = |number: usize| {
            let mine: Vec<Vec<u8>> =
                targets.iter().skip(number).step_by(clients).map(|target| head(&plan, target)).collect();
            let (plan, gate) = (&plan, &gate);
            scope.spawn(move || work(plan, &mine, gate))
        };
        let threads: Vec<_> = (0..clients).map(client).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a client panicked".to_owned())?).collect()
    });
    tell(&all?);
    Ok(())
}

/// The head of a request.
fn head(plan: &Plan, target: &str) -> Vec<u8> {
    let (method, address, length) = (&plan.method, plan.address, plan.body.len());
    let length = if method == "PUT" { format!("Content-Length: {length}\r\n") } else { String::new() };
    format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\n{length}\r\n").into_bytes()
}

/// Runs one client.
fn work(plan: &Plan, heads: &[Vec<u8>], gate: &Barrier) -> Result<ClientResult, String> {
    let text = |error: std::io::Error| error.to_string();
    let connected = TcpStream::connect(plan.address).and_then(|stream| {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    });
    gate.wait();
    let mut stream = connected.map_err(text)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut found = ClientResult::default();
    let begun = Instant::now();
    for head in heads.iter().cycle() {
        let sent = Instant::now();
        let body: &[u8] = if plan.method == "PUT" { &plan.body } else { &[] };
        send(&mut stream, head, body).map_err(text)?;
        let came = answer(&mut stream, &mut buffer)?;
        found.bytes += came.max(body.len() as u64);
        found.times.push(sent.elapsed());
        if begun.elapsed().as_secs_f64() >= plan.seconds && found.times.len() >= plan.rounds {
            break;
        }
    }
    found.elapsed = begun.elapsed();
    Ok(found)
}

fn send(stream: &mut TcpStream, head: &[u8], body: &[u8]) -> std::io::Result<()> {
    let first = stream.write_vectored(&[IoSlice::new(head), IoSlice::new(body)])?;
    if first < head.len() {
        stream.write_all(&head[first..])?;
    }
    stream.write_all(&body[first.saturating_sub(head.len())..])
}

/// Reads an answer; returns the length of its body.
fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<u64, String> {
    let mut filled = 0;
    let end = loop {
        let read = stream.read(&mut buffer[filled..]).map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("the server closed the connection".into());
        }
        filled += read;
        if let Some(at) = buffer[..filled].windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
    if head.split(' ').nth(1).is_none_or(|status| !status.starts_with('2')) {
        return Err(format!("refused: {}", String::from_utf8_lossy(&buffer[..filled])));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: u64 = length.and_then(|text| text.trim().parse().ok()).ok_or("an answer without a length")?;
    let mut left = length.saturating_sub((filled - end) as u64);
    while left > 0 {
        let at_once = buffer.len().min(left as usize);
        let read = stream.read(&mut buffer[..at_once]).map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("the server closed the connection in an answer".into());
        }
        left -= read as u64;
    }
    Ok(length)
}

/// Processor seconds of this process: fields 14 and 15 of its status, behind the name, in hundredths.
fn processor_s() -> f64 {
    let status = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = status.rsplit(')').next().unwrap_or_default().split(' ');
    fields.skip(12).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn tell(all: &[ClientResult]) {
    let mut times: Vec<f64> = all.iter().flat_map(|found| &found.times).map(Duration::as_secs_f64).collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let rate = |found: &ClientResult, amount: f64| amount / found.elapsed.as_secs_f64();
    let per_s: f64 = all.iter().map(|found| rate(found, found.times.len() as f64)).sum();
    let bytes_per_s: f64 = all.iter().map(|found| rate(found, found.bytes as f64)).sum();
    let elapsed_s = all.iter().map(|found| found.elapsed.as_secs_f64()).fold(0.0, f64::max);
    println!(
        "{{\"per_s\": {per_s:.1}, \"mb_s\": {:.1}, \"p50_us\": {:.0}, \"p99_us\": {:.0}, \"best_s\": {:.6}, \"median_s\": {:.6}, \"load_cores\": {:.3}}}",
        bytes_per_s / 1e6,
        at(0.5) * 1e6,
        at(0.99) * 1e6,
        at(0.0),
        at(0.5),
        processor_s() / elapsed_s
    );
}
