//! The protocol between nodes beside a raw TCP loop: `cargo run --release -p cenote-rpc --example tcp -- [PAIRS]`.
//!
//! A client asks with 64 bytes; a server answers with some bytes that it has in memory. Both run in this process, over the
//! loopback device. "raw": `read` and `write` of blocking sockets and nothing else, no frames, no checksums. Pairs
//! alternate; the medians, and the smallest and largest ratio, are shown.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener as RawListener, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cenote_rpc::net::{Class, ClusterKey, Event, Introduction, TcpConnection, TcpListener};

const ASK_BYTES: usize = 64;
const PATIENCE: Duration = Duration::from_secs(30);

/// What is measured: bytes of an answer, questions under way, and how many in all.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    answer_bytes: usize,
    under_way: usize,
    count: usize,
}

const CASES: &[Case] = &[
    Case { name: "round trip, 64 bytes", answer_bytes: 64, under_way: 1, count: 5_000 },
    Case { name: "get of 4 KiB, awaited", answer_bytes: 4 << 10, under_way: 1, count: 5_000 },
    Case { name: "64 bytes, 64 under way", answer_bytes: 64, under_way: 64, count: 200_000 },
    Case { name: "get of 64 KiB, 4 under way", answer_bytes: 64 << 10, under_way: 4, count: 20_000 },
    Case { name: "get of 1 MiB, 4 under way", answer_bytes: 1 << 20, under_way: 4, count: 3_000 },
];

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Seconds of a case over plain sockets.
fn raw(case: Case) -> std::io::Result<f64> {
    let listener = RawListener::bind(loopback())?;
    let address = listener.local_addr()?;
    std::thread::scope(|scope| {
        scope.spawn(move || -> std::io::Result<()> {
            let (mut socket, _) = listener.accept()?;
            socket.set_nodelay(true)?;
            let (mut asks, answer) = (vec![0; 64 * ASK_BYTES], vec![7_u8; case.answer_bytes * 64]);
            let (mut have, mut done) = (0, 0);
            while done < case.count {
                have += socket.read(&mut asks[have..])?;
                let whole = have / ASK_BYTES;
                // As many answers at once as there are questions, if they are short.
                for chunk in [whole].into_iter().filter(|whole| *whole > 0) {
                    socket.write_all(&answer[..chunk * case.answer_bytes])?;
                }
                (have, done) = (have % ASK_BYTES, done + whole);
            }
            Ok(())
        });
        let mut socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let mut answers = vec![0; (case.answer_bytes * case.under_way).min(4 << 20)];
        let begin = Instant::now();
        let (mut asked, mut got) = (0, 0);
        let ask = [1; ASK_BYTES * 64];
        while got < case.count * case.answer_bytes {
            let due = (got / case.answer_bytes + case.under_way).min(case.count) - asked;
            socket.write_all(&ask[..due * ASK_BYTES])?;
            asked += due;
            got += socket.read(&mut answers)?;
        }
        Ok(begin.elapsed().as_secs_f64())
    })
}

fn who(node: u16) -> Introduction {
    Introduction { cluster: 1, node, incarnation: u64::from(node), view: 1 }
}

fn serve(listener: &TcpListener, key: &ClusterKey, case: Case) -> cenote_model::Result<()> {
    let Some(mut server) = listener.accept(who(2), key, PATIENCE)? else { return Ok(()) };
    server.open(PATIENCE)?;
    let answer = Bytes::from(vec![7_u8; case.answer_bytes]);
    loop {
        server.turn()?;
        let mut is_idle = true;
        while let Some(event) = server.endpoint().next_event() {
            is_idle = false;
            match event {
                Event::Message(message) => {
                    server.endpoint().release(message);
                    server.endpoint().send(Class::Bulk, answer.clone())?;
                }
                Event::Left => return Ok(()),
                _ => {}
            }
        }
        if is_idle {
            server.wait(PATIENCE)?;
        }
    }
}

fn ask(address: SocketAddr, key: &ClusterKey, case: Case) -> cenote_model::Result<f64> {
    let mut client = TcpConnection::connect(address, who(1), key, PATIENCE)?;
    let question = Bytes::from(vec![1_u8; ASK_BYTES]);
    let begin = Instant::now();
    let (mut asked, mut got) = (0, 0);
    while got < case.count {
        while asked < case.count && asked - got < case.under_way {
            client.endpoint().send(Class::Control, question.clone())?;
            asked += 1;
        }
        client.turn()?;
        let mut is_idle = true;
        while let Some(event) = client.endpoint().next_event() {
            is_idle = false;
            if let Event::Message(message) = event {
                client.endpoint().release(message);
                got += 1;
            }
        }
        if is_idle {
            client.wait(PATIENCE)?;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    client.endpoint().leave();
    client.turn()?;
    Ok(seconds)
}

/// Seconds of a case over the protocol.
fn framed(case: Case) -> cenote_model::Result<f64> {
    let key = ClusterKey::draw()?;
    let listener = TcpListener::bind(loopback())?;
    let address = listener.address();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&listener, &key, case));
        let seconds = ask(address, &key, case);
        let _ = server.join();
        seconds
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let pairs = std::env::args().nth(1).and_then(|pairs| pairs.parse().ok()).unwrap_or(7);
    for case in CASES {
        let (mut raws, mut frameds) = (Vec::new(), Vec::new());
        for _ in 0..pairs {
            raws.push(raw(*case).expect("the loopback device works"));
            frameds.push(framed(*case).expect("the protocol works"));
        }
        let ratios: Vec<f64> = raws.iter().zip(&frameds).map(|(raw, framed)| raw / framed).collect();
        let (least, most) = ratios.iter().fold((f64::MAX, 0.0_f64), |(low, high), r| (low.min(*r), high.max(*r)));
        let each = |seconds: f64| seconds / case.count as f64;
        let [raw, framed] = [raws, frameds].map(median);
        let rate = |seconds: f64| case.answer_bytes as f64 / each(seconds) / 1e9;
        println!(
            "{:28} raw {:8.2} us {:6.2} GB/s, framed {:8.2} us {:6.2} GB/s, framed/raw speed {:.2} ({least:.2} to {most:.2})",
            case.name,
            each(raw) * 1e6,
            rate(raw),
            each(framed) * 1e6,
            rate(framed),
            median(ratios),
        );
    }
}
