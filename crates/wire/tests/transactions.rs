//! Requests about transactions over several homes survive the round trip; no bytes make the decoder panic. `CENOTE_SEED`
//! replays a run.

use cenote_model::*;
use cenote_wire::{decode_request, decode_response, encode_request, encode_response};

/// splitmix64: random enough for inputs, and no dependency.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

fn seed() -> u64 {
    let given = std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
    });
    println!("CENOTE_SEED={seed}");
    seed
}

fn bytes(rng: &mut Rng) -> Vec<u8> {
    (0..rng.below(30)).map(|_| rng.below(256) as u8).collect()
}
fn index(rng: &mut Rng) -> IndexKey {
    IndexKey { container: ContainerId(rng.below(u64::MAX)), index: IndexId(u128::from(rng.below(u64::MAX))) }
}
fn transaction(rng: &mut Rng) -> TransactionId {
    let home = HomeId(rng.below(1 << 16) as u16);
    TransactionId { home, session: rng.below(u64::MAX), number: rng.below(u64::MAX) }
}
fn homes(rng: &mut Rng) -> Vec<HomeId> {
    (0..rng.below(5)).map(|_| HomeId(rng.below(1 << 16) as u16)).collect()
}
fn checks(rng: &mut Rng) -> Vec<Check> {
    let one = |rng: &mut Rng| Check::Value { index: index(rng), key: bytes(rng), value: Some(bytes(rng)) };
    (0..rng.below(4)).map(|_| one(rng)).collect()
}
fn updates(rng: &mut Rng) -> Vec<Update> {
    let one = |rng: &mut Rng| Update::Put {
        index: index(rng),
        key: bytes(rng),
        value: bytes(rng),
        only_new: rng.below(2) == 0,
    };
    (0..rng.below(4)).map(|_| one(rng)).collect()
}

fn request(rng: &mut Rng) -> Request {
    let transaction = transaction(rng);
    match rng.below(5) {
        0 => Request::Prepare { transaction, checks: checks(rng), updates: updates(rng) },
        1 => {
            let (participants, is_sync) = (homes(rng), rng.below(2) == 0);
            let decision = Box::new(Decision { transaction, participants, is_sync });
            Request::Decide { decision, checks: checks(rng), updates: updates(rng) }
        }
        2 => Request::Settle { transaction, commits: rng.below(2) == 0 },
        3 => Request::Ask { transaction, tell: homes(rng) },
        _ => Request::Forget { transaction, participant: HomeId(rng.below(1 << 16) as u16) },
    }
}

#[test]
fn requests_are_read_as_they_were_written() {
    let mut rng = Rng(seed());
    for seq in 0..2000 {
        let request = request(&mut rng);
        let mut out = Vec::new();
        encode_request(seq, &request, &mut out);
        assert_eq!(decode_request(&out), Ok((seq, request)));
        for len in 0..out.len() {
            assert!(decode_request(&out[..len]).is_err());
        }
        let at = rng.below(out.len() as u64) as usize;
        out[at] ^= 1 << rng.below(8);
        let _ = decode_request(&out); // whatever it is, it is no panic
    }
}

#[test]
fn responses_are_read_as_they_were_written() {
    for response in [
        Response::Prepared { is_sync: true },
        Response::Prepared { is_sync: false },
        Response::Decided(true),
        Response::Decided(false),
    ] {
        let mut out = Vec::new();
        encode_response(7, &response, &mut out);
        assert_eq!(decode_response(&out), Ok((7, response)));
        assert!((0..out.len()).all(|len| decode_response(&out[..len]).is_err()));
    }
}
