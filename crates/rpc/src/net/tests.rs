//! Two ends, with a wire between them that cuts bytes anywhere.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cenote_model::ErrorKind;

use super::*;

mod lent;

const PATIENCE: Duration = Duration::from_secs(20);

/// Numbers from a seed (splitmix64).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn who(node: u16) -> Introduction {
    Introduction { cluster: 77, node, incarnation: 1000 + u64::from(node), view: 5 }
}

fn key(byte: u8) -> ClusterKey {
    ClusterKey::from_bytes([byte; 32])
}

fn ends() -> [Endpoint; 2] {
    [Endpoint::new(Role::Client, who(1), &key(1)).unwrap(), Endpoint::new(Role::Server, who(2), &key(1)).unwrap()]
}

/// Moves up to `most` bytes from one end to the other. Returns how many there were.
fn pass(from: &mut Endpoint, to: &mut Endpoint, most: usize) -> cenote_model::Result<usize> {
    let mut slices = Vec::new();
    from.slices(&mut slices);
    let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(most).collect();
    from.written(bytes.len());
    receive(to, &bytes).map(|()| bytes.len())
}

fn receive(to: &mut Endpoint, mut bytes: &[u8]) -> cenote_model::Result<()> {
    while !bytes.is_empty() {
        let (first, second) = to.spaces();
        let in_first = first.len().min(bytes.len());
        first[..in_first].copy_from_slice(&bytes[..in_first]);
        let in_second = second.len().min(bytes.len() - in_first);
        second[..in_second].copy_from_slice(&bytes[in_first..in_first + in_second]);
        bytes = &bytes[in_first + in_second..];
        to.received(in_first + in_second)?;
    }
    Ok(())
}

/// Moves bytes until neither end has any.
fn settle(ends: &mut [Endpoint; 2]) -> [cenote_model::Result<()>; 2] {
    let mut results = [Ok(()), Ok(())];
    loop {
        let [one, two] = ends;
        let forth = pass(one, two, usize::MAX).map(|count| count > 0);
        let back = pass(two, one, usize::MAX).map(|count| count > 0);
        let is_over = !matches!((&forth, &back), (Ok(true) | Err(_), _) | (_, Ok(true) | Err(_)));
        if is_over {
            return results;
        }
        for (result, at) in [(forth, 1), (back, 0)] {
            if let Err(error) = result {
                results[at] = Err(error);
            }
        }
    }
}

/// The same, where nothing may fail.
fn settle_well(ends: &mut [Endpoint; 2]) {
    let [one, two] = settle(ends);
    one.and(two).unwrap();
}

fn opened() -> [Endpoint; 2] {
    let mut ends = ends();
    settle_well(&mut ends);
    for (end, other) in ends.iter_mut().zip([2, 1]) {
        assert!(matches!(end.next_event(), Some(Event::Opened(peer)) if peer == who(other)));
    }
    ends
}

/// A message that says who it is.
fn message(class: Class, number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![(number as u8) ^ (class as u8); len];
    let name = number.to_le_bytes();
    let end = len.min(8);
    bytes[..end].copy_from_slice(&name[..end]);
    bytes
}

/// Random messages both ways, over a wire that cuts anywhere; each arrives whole, in the order of its class.
fn exchange(seed: u64) {
    let mut draws = Draws(seed);
    let mut ends = ends();
    let mut sent: [Vec<VecDeque<Vec<u8>>>; 2] = std::array::from_fn(|_| vec![VecDeque::new(); 3]);
    let mut kept: [Vec<Message>; 2] = Default::default();
    let mut to_send = 60;
    let (mut quiet, mut rounds) = (0, 0);
    while quiet < 4 {
        rounds += 1;
        assert!(rounds < 3_000_000, "seed {seed}: nothing moves any more");
        let at = draws.below(2) as usize;
        if to_send > 0 && ends[at].is_open() && draws.below(3) == 0 {
            let class = Class::ALL[draws.below(3) as usize];
            let len = [0, 5, 4096, 300_000, 6 << 20][draws.below(5) as usize] + draws.below(9) as usize;
            let bytes = message(class, to_send, len);
            sent[at][class as usize].push_back(bytes.clone());
            ends[at].set_view(to_send);
            ends[at].send(class, bytes).unwrap();
            to_send -= 1;
        }
        let most = [1, 7, 100, 70_000, usize::MAX][draws.below(5) as usize];
        let [one, two] = &mut ends;
        let (from, to) = if at == 0 { (one, two) } else { (two, one) };
        let moved = pass(from, to, most).unwrap();
        while let Some(event) = to.next_event() {
            if let Event::Message(got) = event {
                let expected = sent[at][got.class as usize].pop_front().unwrap();
                assert!(got.bytes == expected, "seed {seed}: {:?} of {} bytes", got.class, expected.len());
                kept[1 - at].push(got);
            }
        }
        // The receiver deals with messages at its leisure, and with none while it is slow.
        if draws.below(4) == 0 || moved == 0 {
            kept[1 - at].drain(..).for_each(|message| to.release(message));
        }
        quiet = if moved == 0 && to_send == 0 { quiet + 1 } else { 0 };
        if quiet > 0 && sent.iter().flatten().any(|queue| !queue.is_empty()) {
            quiet = 0;
        }
    }
}

#[test]
fn messages_arrive_whole_and_in_order() {
    let seeds = match std::env::var("CENOTE_SEED") {
        Ok(seed) => seed.parse().map(|seed| seed..seed + 1).unwrap(),
        Err(_) => 1..9,
    };
    for seed in seeds {
        println!("CENOTE_SEED={seed}");
        exchange(seed);
    }
}

#[test]
fn a_class_without_credits_holds_up_no_other() {
    let mut ends = opened();
    for _ in 0..200 {
        ends[0].send(Class::Bulk, vec![1; 1 << 20]).unwrap();
    }
    settle_well(&mut ends);
    let mut bulk = Vec::new();
    while let Some(event) = ends[1].next_event() {
        if let Event::Message(message) = event {
            bulk.push(message);
        }
    }
    assert!((20..=40).contains(&bulk.len()), "{} of 200 messages without a release", bulk.len());
    assert!(ends[0].queued_bytes(Class::Bulk) > 100 << 20);
    ends[0].send(Class::Control, b"still heard".to_vec()).unwrap();
    settle_well(&mut ends);
    assert!(matches!(ends[1].next_event(), Some(Event::Message(got)) if got.bytes == b"still heard"));
    let before = bulk.len();
    for message in bulk {
        ends[1].release(message);
    }
    settle_well(&mut ends);
    let after = std::iter::from_fn(|| ends[1].next_event()).count();
    assert!(after >= before - 9, "{after} more after the release of {before}");
}

#[test]
fn a_message_may_be_longer_than_its_window() {
    let mut ends = opened();
    let long = message(Class::Control, 9, 20 << 20);
    ends[1].send(Class::Control, long.clone()).unwrap();
    settle_well(&mut ends);
    assert!(matches!(ends[0].next_event(), Some(Event::Message(got)) if got.bytes == long));
    let error = ends[0].send(Class::Bulk, vec![0; (256 << 20) + 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
}

#[test]
fn who_does_not_belong_is_told_why() {
    let wrong_key = Endpoint::new(Role::Server, who(2), &key(9)).unwrap();
    let other_cluster = Introduction { cluster: 78, ..who(2) };
    let cases = [
        (wrong_key, ErrorKind::PermissionDenied, "key"),
        (Endpoint::new(Role::Server, other_cluster, &key(1)).unwrap(), ErrorKind::Conflict, "cluster"),
        (
            Endpoint::new(Role::Server, Introduction { incarnation: 4, ..who(1) }, &key(1)).unwrap(),
            ErrorKind::Conflict,
            "this node's number",
        ),
    ];
    for (server, kind, word) in cases {
        let mut ends = [Endpoint::new(Role::Client, who(1), &key(1)).unwrap(), server];
        let results = settle(&mut ends);
        for result in results {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(ends.iter().all(|end| !end.is_open()));
    }
    // A process may connect to itself: it may have another node's home.
    let mut same = [Role::Client, Role::Server].map(|role| Endpoint::new(role, who(1), &key(1)).unwrap());
    settle_well(&mut same);
    assert!(same.iter().all(Endpoint::is_open));
}

/// What a client said once proves nothing the next time.
#[test]
fn a_recorded_handshake_is_worth_nothing() {
    let mut ends = ends();
    let mut said = Vec::new();
    for _ in 0..4 {
        let mut slices = Vec::new();
        ends[0].slices(&mut slices);
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        ends[0].written(bytes.len());
        receive(&mut ends[1], &bytes).unwrap();
        said.push(bytes);
        let [one, two] = &mut ends;
        pass(two, one, usize::MAX).unwrap();
    }
    assert!(ends[1].is_open());
    let mut again = Endpoint::new(Role::Server, who(2), &key(1)).unwrap();
    let result = said.iter().try_for_each(|bytes| receive(&mut again, bytes));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::PermissionDenied);
}

/// Whatever arrives, an end says so or waits: it neither panics nor takes it for a message.
#[test]
fn damaged_bytes_are_never_messages() {
    let mut draws = Draws(20_261_126);
    for round in 0..400 {
        let mut ends = if round % 2 == 0 { ends() } else { opened() };
        if ends[0].is_open() {
            ends[0].send(Class::Bulk, vec![7; 3000]).unwrap();
        }
        let mut slices = Vec::new();
        ends[0].slices(&mut slices);
        let mut bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let at = draws.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << draws.below(8);
        let result = receive(&mut ends[1], &bytes);
        let event = ends[1].next_event();
        assert!(event.is_none(), "round {round}, byte {at}: {event:?}, {result:?}");
    }
    for _ in 0..400 {
        let mut end = Endpoint::new(Role::Server, who(2), &key(1)).unwrap();
        let bytes: Vec<u8> = (0..200).map(|_| draws.next() as u8).collect();
        assert!(receive(&mut end, &bytes).is_err());
    }
}

#[test]
fn a_stranger_gets_no_memory() {
    let mut end = Endpoint::new(Role::Server, who(2), &key(1)).unwrap();
    let head = frame::encode_head((frame::Kind::Message, Class::Bulk), 0, &[0; 100], 200 << 20);
    assert_eq!(receive(&mut end, &head).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut end = Endpoint::new(Role::Server, who(2), &key(1)).unwrap();
    let head = frame::encode_head((frame::Kind::Hello, Class::Control), 0, &[0; 2000], 0);
    assert_eq!(receive(&mut end, &head).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn credits_are_no_suggestion() {
    let mut ends = opened();
    // A peer that ignores credits: frames without asking the outbound side.
    let mut result = Ok(());
    for _ in 0..300 {
        let payload = vec![0; 256 << 10];
        let head = frame::encode_head((frame::Kind::Message, Class::Bulk), 0, &payload, 0);
        result = result.and_then(|()| receive(&mut ends[1], &head)).and_then(|()| receive(&mut ends[1], &payload));
    }
    let error = result.unwrap_err();
    assert!(error.to_string().contains("credits"), "{error}");
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[test]
fn over_tcp_messages_go_both_ways() {
    both_ways(&key(1));
}

#[test]
fn encrypted_messages_go_both_ways() {
    both_ways(&key(1).encrypting().unwrap());
}

fn both_ways(key: &ClusterKey) {
    let listener = TcpListener::bind(loopback()).unwrap();
    let address = listener.address();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut server = listener.accept(who(2), key, PATIENCE).unwrap().unwrap();
            assert_eq!(server.open(PATIENCE).unwrap(), who(1));
            loop {
                server.turn().unwrap();
                match server.endpoint().next_event() {
                    Some(Event::Message(mut message)) => {
                        let bytes = std::mem::take(&mut message.bytes);
                        server.endpoint().send(message.class, bytes).unwrap();
                        server.endpoint().release(message);
                    }
                    Some(Event::Left) => return,
                    Some(_) => {}
                    None => server.wait(PATIENCE).unwrap(),
                }
            }
        });
        let mut client = TcpConnection::connect(address, who(1), key, PATIENCE).unwrap();
        let wanted: Vec<Vec<u8>> = (0..40).map(|n| message(Class::Bulk, n, 1 << (n % 22))).collect();
        for bytes in &wanted {
            client.endpoint().send(Class::Bulk, bytes.clone()).unwrap();
        }
        let mut got = 0;
        while got < wanted.len() {
            client.turn().unwrap();
            match client.endpoint().next_event() {
                Some(Event::Message(message)) => {
                    assert!(message.bytes == wanted[got]);
                    client.endpoint().release(message);
                    got += 1;
                }
                Some(_) => {}
                None => client.wait(PATIENCE).unwrap(),
            }
        }
        client.endpoint().leave();
        client.turn().unwrap();
    });
}

#[test]
fn over_tcp_failures_are_told_apart() {
    let listener = TcpListener::bind(loopback()).unwrap();
    let address = listener.address();
    // Nobody answers: the connection waits in the backlog.
    let begin = Instant::now();
    let error = TcpConnection::connect(address, who(1), &key(1), Duration::from_millis(200)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    assert!(begin.elapsed() < PATIENCE, "a silent node costs the time-out");
    // The port is taken.
    assert!(TcpListener::bind(address).unwrap_err().to_string().contains("port"));
    // Another key.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(listener.accept(who(2), &key(1), PATIENCE).unwrap()); // the one that gave up
            let mut server = listener.accept(who(2), &key(1), PATIENCE).unwrap().unwrap();
            assert_eq!(server.open(PATIENCE).unwrap_err().kind(), ErrorKind::PermissionDenied);
        });
        let error = TcpConnection::connect(address, who(1), &key(3), PATIENCE).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    });
    // Nothing listens any more.
    drop(listener);
    let error = TcpConnection::connect(address, who(1), &key(1), PATIENCE).err().unwrap();
    assert!(error.to_string().contains("nothing listens"), "{error}");
}

/// Both ends of a connection, with these keys; and what went over it.
fn met(client: &ClusterKey, server: &ClusterKey) -> ([cenote_model::Result<()>; 2], Vec<u8>) {
    let (listener, middle) = (TcpListener::bind(loopback()).unwrap(), std::net::TcpListener::bind(loopback()).unwrap());
    let (address, through) = (listener.address(), middle.local_addr().unwrap());
    std::thread::scope(|scope| {
        let wire = scope.spawn(move || {
            let (from, to) = (middle.accept().unwrap().0, std::net::TcpStream::connect(address).unwrap());
            let pass = |mut from: std::net::TcpStream, mut to: std::net::TcpStream| {
                let (mut seen, mut bytes) = (Vec::new(), [0; 4096]);
                while let Ok(count @ 1..) = std::io::Read::read(&mut from, &mut bytes) {
                    seen.extend_from_slice(&bytes[..count]);
                    if std::io::Write::write_all(&mut to, &bytes[..count]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Both);
                seen
            };
            let (back_from, back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
            let back = std::thread::spawn(move || pass(back_from, back_to));
            [pass(from, to), back.join().unwrap()].concat()
        });
        let serve = scope.spawn(|| {
            let mut end = listener.accept(who(2), server, PATIENCE).unwrap().unwrap();
            end.open(PATIENCE)?;
            end.endpoint().send(Class::Control, b"a secret that is told".to_vec())?;
            while end.turn()? {}
            end.wait(Duration::from_millis(100))
        });
        let connected = TcpConnection::connect(through, who(1), client, PATIENCE).and_then(|mut end| {
            while end.endpoint().next_event().is_none() {
                end.turn()?;
                end.wait(PATIENCE)?;
            }
            Ok(())
        });
        let served = serve.join().unwrap();
        ([connected, served], wire.join().unwrap())
    })
}

#[test]
fn nothing_that_is_said_is_seen_on_the_way() {
    let has = |wire: &[u8], text: &[u8]| wire.windows(text.len()).any(|part| part == text);
    let (ends, wire) = met(&key(1), &key(1));
    assert!(ends.iter().all(Result::is_ok) && has(&wire, b"a secret"), "{ends:?}");
    let encrypting = key(1).encrypting().unwrap();
    let (ends, wire) = met(&encrypting, &encrypting);
    assert!(ends.iter().all(Result::is_ok) && !has(&wire, b"a secret") && !has(&wire, b"told"), "{ends:?}");
    // Nor is the key from which all follows.
    assert!(!has(&wire, &encrypting.derive("encryption between nodes, 1")));
}

#[test]
fn who_has_another_key_or_does_not_encrypt_is_refused_in_time() {
    let begin = Instant::now();
    let (one, other) = (key(1).encrypting().unwrap(), key(3).encrypting().unwrap());
    let (ends, _) = met(&one, &other);
    for end in ends {
        let error = end.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains("cluster.key"), "{error}");
    }
    for (client, server) in [(&one, &key(1)), (&key(1), &one)] {
        let (ends, wire) = met(client, server);
        assert!(ends.iter().all(Result::is_err), "{ends:?}");
        assert!(!wire.windows(8).any(|part| part == b"a secret"));
    }
    assert!(begin.elapsed() < 3 * PATIENCE, "{:?}", begin.elapsed());
}

#[test]
fn strangers_can_send_anything_to_a_node_that_encrypts() {
    let mut draws = Draws(20_261_127);
    let encrypting = key(1).encrypting().unwrap();
    for _ in 0..40 {
        let listener = TcpListener::bind(loopback()).unwrap();
        let mut stranger = std::net::TcpStream::connect(listener.address()).unwrap();
        let mut end = listener.accept(who(2), &encrypting, PATIENCE).unwrap().unwrap();
        let mut bytes: Vec<u8> = (0..600).map(|_| draws.next() as u8).collect();
        if draws.below(2) == 0 {
            // A record of a handshake, as it begins.
            bytes[..5].copy_from_slice(&[0x16, 3, 1, 2, 0x53]);
        }
        std::io::Write::write_all(&mut stranger, &bytes).unwrap();
        drop(stranger);
        assert!(end.open(PATIENCE).is_err());
    }
}
