//! Targets for messages between processes, and text that people type.

use cenote_device::control::ClientFile;
use cenote_model::{
    Check, ContainerId, ContainerSpec, DeviceId, DeviceKind, DeviceSpec, Error, ErrorKind, Extent, FlushTarget, HomeId,
    IndexId, IndexKey, KeyCode, LockHolder, LockHow, LockMode, LockSet, LockWish, Lookup, NextFrom, ObjectId,
    ObjectKey, Request, Response, Run, StoreId, Sums, Update, size,
};
use cenote_rpc::{Consumer, Producer, Waker};
use cenote_server::daemon::ring_memories;
use cenote_store::Outcome;
use cenote_wire::{
    Assembly, Between, Changed, Greeting, NodeLock, NodeMessage, PlaceAnswer, PlaceAsk, PlaceOf, RemoteSession,
    WordsMessage, decode_between, decode_greeting, decode_request, decode_response, encode_between, encode_forwarded,
    encode_greeting, encode_locks, encode_request, encode_response, encode_words,
};

use super::base::{chosen, work};
use super::media::memory_file;
use super::mend;

/// Bytes of each ring in the ring target's file.
const RING_BYTES: usize = 8192;
const RINGS_AT: usize = 65_536;

/// Bytes that a peer wrote into a ring: read as the daemon does, and written to as a client does.
pub(super) fn ring(bytes: &[u8]) {
    let mut file = vec![0; RINGS_AT + 2 * RING_BYTES];
    file[48] = 1;
    file[60] = 64;
    file[72..80].copy_from_slice(&(RING_BYTES as u64).to_le_bytes());
    mend::tail_sum(&mut file, *b"CENOTCLI", 128);
    // The words of the header are 64 bytes apart; the input has them one after the other.
    let (words, data) = bytes.split_at(bytes.len().min(5 * 8));
    for (number, word) in words.chunks(8).enumerate() {
        for ring in [RINGS_AT, RINGS_AT + RING_BYTES] {
            file[ring + number * 64..][..word.len()].copy_from_slice(word);
        }
    }
    let len = data.len().min(RING_BYTES - 512);
    for ring in [RINGS_AT, RINGS_AT + RING_BYTES] {
        file[ring + 512..][..len].copy_from_slice(&data[..len]);
    }
    let client = memory_file(&file).and_then(|fd| ClientFile::map(fd).ok()).expect("a file with a sound header");
    let [requests, responses] = ring_memories(&client).expect("it has rings");
    if let Ok(mut consumer) = Consumer::new(requests) {
        let mut assembly = Assembly::default();
        for _ in 0..RING_BYTES {
            match consumer.take() {
                Ok(Some(frame)) if assembly.take(frame, |message| drop(decode_request(message))).is_ok() => {}
                _ => break,
            }
            consumer.release();
        }
    }
    if let Ok(mut producer) = Producer::new(responses, Waker::Futex) {
        for len in [0, 1, 100, producer.frame_max()] {
            if producer.try_push(&[&vec![7; len]]).is_err() {
                break;
            }
            producer.publish();
        }
        let _ = producer.is_drained();
    }
}
pub(super) fn ring_seeds() -> Vec<Vec<u8>> {
    let mut message = vec![0];
    encode_request(3, &Request::Stats, &mut message);
    let mut data = Vec::new();
    for _ in 0..3 {
        data.extend((message.len() as u32).to_le_bytes());
        data.extend([0; 4]);
        data.extend(&message);
        data.resize(data.len().next_multiple_of(8), 0);
    }
    let with_words = |tail: u64, head: u64, data: &[u8]| {
        let mut input = [tail, head, 0, 0, 0].map(u64::to_le_bytes).concat();
        input.extend_from_slice(data);
        input
    };
    let skip = [&u32::MAX.to_le_bytes()[..], &[0; 4]].concat();
    vec![
        with_words(data.len() as u64, 0, &data),
        with_words(4096, 4088, &data),
        with_words(0u64.wrapping_sub(8), 0u64.wrapping_sub(4096), &skip),
    ]
}

/// Frames separated by 0xff.
pub(super) fn frames(bytes: &[u8]) {
    let mut assembly = Assembly::default();
    for frame in bytes.split(|byte| *byte == 0xff) {
        if assembly.take(frame, |message| decode_request(message).is_ok()).is_err() {
            return;
        }
    }
}
pub(super) fn frames_seeds() -> Vec<Vec<u8>> {
    request_seeds().into_iter().map(|message| [&[0][..], &message, &[0xff, 1], &message, &[0xff, 0]].concat()).collect()
}

pub(super) fn request(bytes: &[u8]) {
    if let Ok((seq, value)) = decode_request(bytes) {
        let mut again = Vec::new();
        encode_request(seq, &value, &mut again);
        assert_eq!(decode_request(&again), Ok((seq, value)));
    }
}
pub(super) fn request_seeds() -> Vec<Vec<u8>> {
    let encode = |request: &Request| {
        let mut bytes = Vec::new();
        encode_request(7, request, &mut bytes);
        bytes
    };
    requests().iter().map(encode).collect()
}

pub(super) fn response(bytes: &[u8]) {
    if let Ok((seq, value)) = decode_response(bytes) {
        let mut again = Vec::new();
        encode_response(seq, &value, &mut again);
        assert_eq!(decode_response(&again), Ok((seq, value)));
    }
}
pub(super) fn response_seeds() -> Vec<Vec<u8>> {
    let extent = Extent::whole(DeviceId(1), 4096, 100, Sums::from_slice(&[5]));
    let lookup =
        Lookup { version: 1, epoch: 2, size: 100, block_shift: 12, extents: vec![(0, extent)], covered_to: 100 };
    let responses = [
        Response::Applied {
            epoch: 9,
            codes: vec![KeyCode::Exists],
            words: vec![(1, 2)],
            created: Some(ContainerId(4)),
        },
        Response::Lookup(lookup),
        Response::Values(vec![None, Some((vec![1, 2], 3))]),
        Response::Records { records: [([1], [2])].into_iter().collect(), more: true },
        Response::Failed(Error::new(ErrorKind::Full, "store").because("why").try_next("next")),
        Response::Done,
    ];
    let encode = |response: &Response| {
        let mut bytes = Vec::new();
        encode_response(7, response, &mut bytes);
        bytes
    };
    responses.iter().map(encode).collect()
}

pub(super) fn greeting(bytes: &[u8]) {
    if let Ok(value) = decode_greeting(bytes) {
        let mut again = Vec::new();
        encode_greeting(&value, &mut again);
        assert_eq!(decode_greeting(&again), Ok(value));
    }
    let _ = cenote_server::daemon::read_report(&String::from_utf8_lossy(bytes));
}
pub(super) fn greeting_seeds() -> Vec<Vec<u8>> {
    let greetings = [
        Greeting::Hello { nonce: 5, read_only: true, home: HomeId(0) },
        Greeting::Welcome {
            store: StoreId(3),
            instance: 1,
            write: true,
            bound: false,
            engines: 1,
            place: cenote_wire::ClusterPlace::default(),
        },
        Greeting::Moving,
        Greeting::Refused(Error::new(ErrorKind::Busy, "store")),
        Greeting::Segment { device: DeviceId(2), number: 8 },
        Greeting::SegmentIs { data_offset: 4096, len: 1 << 20, mode: 1, write: false },
    ];
    let encode = |greeting: &Greeting| {
        let mut bytes = Vec::new();
        encode_greeting(greeting, &mut bytes);
        bytes
    };
    greetings.iter().map(encode).chain([b"!00".to_vec()]).collect()
}

/// A message of another node's daemon.
pub(super) fn between(bytes: &[u8]) {
    match decode_between(bytes) {
        Ok(Between::Request { message, .. }) => {
            if let (Ok((_, request)), changed) = (decode_request(message), Changed::by_encoded(message)) {
                assert_eq!(changed, Ok(Changed::by(&request)));
            }
        }
        Ok(Between::Answer { message, .. }) => drop(decode_response(message)),
        Ok(Between::Sessions(message)) => {
            let mut again = Vec::new();
            encode_between(&message, &mut again);
            assert_eq!(decode_between(&again), Ok(Between::Sessions(message)));
        }
        Ok(Between::Words(message)) => {
            let mut again = Vec::new();
            encode_words(&message, &mut again);
            assert_eq!(decode_between(&again), Ok(Between::Words(message)));
        }
        Ok(Between::Locks(message)) => {
            let mut again = Vec::new();
            encode_locks(&message, &mut again);
            assert_eq!(decode_between(&again), Ok(Between::Locks(message)));
        }
        Ok(Between::Changes { .. } | Between::Piece { .. }) | Err(_) => {}
    }
}
pub(super) fn between_seeds() -> Vec<Vec<u8>> {
    let who = RemoteSession { nonce: 5, pid: 2, groups: Some(vec![4, 5]), ..RemoteSession::default() };
    let of = PlaceOf { home: HomeId(2), term: 3, store: StoreId(4), device: DeviceId(5), place: 6 };
    let messages = [
        NodeMessage::Open { who: who.clone() },
        NodeMessage::Opened { nonce: 5, session: 3 },
        NodeMessage::Refused { nonce: 5, error: Error::new(ErrorKind::Busy, "store") },
        NodeMessage::AskPlace { of, ask: PlaceAsk::Put { name: "s/pack-1@0.2+1".into(), len: 9 } },
        NodeMessage::AskPlace { of, ask: PlaceAsk::Get { name: "s/pack-1@0.2+1".into(), from: 1, len: 2 } },
        NodeMessage::AskPlace { of, ask: PlaceAsk::List { prefix: "s/".into() } },
        NodeMessage::PlaceSays { answer: PlaceAnswer::Names { names: vec!["a".into(), "b/c".into()] } },
        NodeMessage::PlaceSays {
            answer: PlaceAnswer::Refused { error: Error::new(ErrorKind::Full, "a place"), again: true },
        },
        NodeMessage::Close { session: 3 },
        NodeMessage::Home { store: StoreId(3), sessions: vec![(3, who)] },
    ];
    let encode = |message: &NodeMessage| {
        let mut bytes = Vec::new();
        encode_between(message, &mut bytes);
        bytes
    };
    let forwarded = |request: Vec<u8>| {
        let mut bytes = Vec::new();
        encode_forwarded(false, 3, &mut bytes);
        [bytes, request].concat()
    };
    let words = [
        WordsMessage::Trusted { asked_ns: 5, for_ms: 2000 },
        WordsMessage::Told { upto: 3, words: vec![(1, 9), (70_000, 1 << 40)] },
        WordsMessage::Revoke { number: 4, words: vec![1, 2] },
    ];
    let about_words = |message: &WordsMessage| {
        let mut bytes = Vec::new();
        encode_words(message, &mut bytes);
        bytes
    };
    let whole = LockWish::whole(LockMode::Exclusive);
    let locks = [
        NodeLock::Want { number: 1, file: 7, wish: whole, how: LockHow::Wait },
        NodeLock::Revoked { number: 2, file: 7, holder: Some(LockHolder { node: 2, pid: 5, lock: whole }) },
        NodeLock::Reclaim { admitted: 1, locks: vec![(7, LockSet::all())] },
        NodeLock::Lost { files: vec![7, 8] },
    ];
    let about_locks = |message: &NodeLock| {
        let mut bytes = Vec::new();
        encode_locks(message, &mut bytes);
        bytes
    };
    let requests = request_seeds().into_iter().map(forwarded);
    let of_daemons = words.iter().map(about_words).chain(locks.iter().map(about_locks));
    messages.iter().map(encode).chain(of_daemons).chain(requests).collect()
}

/// Requests of a hostile client to an open store: each a length (u16) and a message. The first byte selects the store.
pub(super) fn engine(bytes: &[u8]) {
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let base = chosen(*first);
    let (world, mut engine, session) = base.open();
    let mut seq = 0;
    while let Some((len, tail)) = rest.split_first_chunk::<2>() {
        let (message, tail) = tail.split_at(usize::from(u16::from_le_bytes(*len)).min(tail.len()));
        rest = tail;
        seq += 1;
        if let Ok((number, request)) = decode_request(message)
            && !matches!(request, Request::Shutdown { .. })
            && let Outcome::Wait(_) = engine.handle(session, if number == 7 { seq } else { number }, request)
        {
            work(&mut engine, &world, 10);
        }
    }
    work(&mut engine, &world, 20);
    engine.close().expect("nothing failed");
    drop(engine);
    world.kill();
    base.open_and_use(&world);
}
pub(super) fn engine_seeds() -> Vec<Vec<u8>> {
    let messages = request_seeds();
    (0..6u8)
        .map(|first| {
            let mut input = vec![first];
            for message in &messages {
                input.extend((message.len() as u16).to_le_bytes());
                input.extend(message);
            }
            input
        })
        .collect()
}

/// Text that people type: sizes, tiers, ids.
pub(super) fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = size::parse(text);
    let _ = text.parse::<DeviceSpec>();
    let _ = text.parse::<ObjectId>();
    let _ = text.parse::<StoreId>();
}
pub(super) fn text_seeds() -> Vec<Vec<u8>> {
    ["1.5GiB", "name=ram,kind=memory,size=2GiB,high=90%,low=70%", "00ff", "-1e400KiB", "16EiB"].map(Vec::from).to_vec()
}

/// One request of each kind, in a valid order.
fn requests() -> Vec<Request> {
    let container = ContainerId(1);
    let key = ObjectKey { container, object: ObjectId(1) };
    let index = IndexKey { container, index: IndexId(1) };
    let apply = |updates| Request::Apply { checks: vec![], updates, atomic: true };
    let spec = |name: &str, kind| DeviceSpec {
        name: name.into(),
        kind,
        path: name.into(),
        capacity_bytes: 1 << 20,
        watermark_high_permille: 900,
        watermark_low_permille: 700,
        options: cenote_model::TierOptions::default(),
    };
    let extent = Extent::whole(DeviceId(1), 65536, 5000, Sums::from_slice(&[1]));
    vec![
        apply(vec![Update::ContainerCreate { id: ContainerId(0), label: "x".into(), spec: ContainerSpec::default() }]),
        Request::Lease { container, bytes: 65536, run_min: 4096, avoid: vec![DeviceId(9)], durability: None },
        apply(vec![
            Update::ObjectCreate { key, block_shift: 12 },
            Update::Write { key, offset: 100, extent: extent.clone() },
            Update::Punch { key, offset: 200, len: 300 },
            Update::Truncate { key, size: 1 << 40 },
            Update::IndexCreate { key: index },
            Update::Put { index, key: vec![1], value: vec![2; 9], only_new: true },
            Update::Del { index, key: vec![1] },
        ]),
        Request::Apply {
            checks: vec![Check::Object { key, epoch: 1 }, Check::Record { index, key: vec![1], epoch: 0 }],
            updates: vec![Update::Write { key, offset: 0, extent }],
            atomic: false,
        },
        Request::Lookup { key, offset: 0, len: u64::MAX, limit: 9 },
        Request::ObjectStat { key },
        Request::ObjectList { container, after: Some(ObjectId(0)), limit: 9 },
        Request::Get { index, keys: vec![vec![1], vec![]] },
        Request::Next { index, from: NextFrom::After(vec![0]), prefix: vec![1], limit: 9, bytes_max: 100 },
        Request::IndexList { container, after: None, limit: 9 },
        Request::ContainerByLabel { label: "x".into() },
        Request::Explain { key },
        Request::Verify { target: FlushTarget::Object(key) },
        Request::Flush { target: FlushTarget::Container(container) },
        Request::DeviceAdd { spec: spec("more", DeviceKind::Directory) },
        Request::DeviceDrain { name: "more".into() },
        Request::DeviceRemove { name: "more".into() },
        Request::Unlease { runs: vec![Run { device: DeviceId(1), offset: 65536, len: 4096 }] },
        apply(vec![
            Update::ContainerSet { id: container, spec: ContainerSpec::default() },
            Update::ContainerRename { id: container, label: "y".into() },
            Update::ObjectDelete { key },
            Update::IndexDelete { key: index },
        ]),
        Request::Checkpoint,
        apply(vec![Update::ContainerDelete { id: container }]),
    ]
}
