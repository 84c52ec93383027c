//! Every message about locks survives the round trip; no bytes make the decoder panic. `CENOTE_SEED` replays a run.

mod common;

use cenote_model::{HomeId, LOCK_END, LockAnswer, LockHolder, LockHow, LockMode, LockSet, LockSpace, LockWish};
use cenote_wire::{
    Between, Greeting, LockAsk, LockTokens, NodeLock, decode_between, decode_greeting, decode_lock_tokens,
    encode_greeting, encode_lock_tokens, encode_locks,
};
use common::Random;

impl Random {
    fn wish(&mut self) -> LockWish {
        let mode = if self.below(2) == 0 { LockMode::Shared } else { LockMode::Exclusive };
        if self.below(3) == 0 {
            return LockWish::whole(mode);
        }
        let first = self.below(LOCK_END);
        LockWish { space: LockSpace::Ranges, first, last: first + self.below(LOCK_END - first + 1), mode }
    }
    fn set(&mut self) -> LockSet {
        let mut set = LockSet::default();
        for _ in 0..self.below(5) {
            set.raise(&self.wish());
        }
        set
    }
    fn how(&mut self) -> LockHow {
        [LockHow::Settle, LockHow::Test, LockHow::Try, LockHow::Wait][self.below(4) as usize]
    }
    fn holder(&mut self) -> Option<LockHolder> {
        let (node, pid) = (self.next() as u16, self.next() as u32);
        (self.below(3) > 0).then(|| LockHolder { node, pid, lock: self.wish() })
    }
    fn message(&mut self) -> NodeLock {
        let (number, file) = (self.next(), self.next());
        match self.below(11) {
            0 => NodeLock::Want { number, file, wish: self.wish(), how: self.how() },
            1 => NodeLock::Cancel { number },
            2 => NodeLock::Revoked { number, file, holder: self.holder() },
            3 => NodeLock::MayRetry { file },
            4 => NodeLock::GaveUp { file },
            5 => {
                let locks = (0..self.below(4)).map(|_| (self.next(), self.set())).collect();
                NodeLock::Reclaim { admitted: self.next(), locks }
            }
            6 => NodeLock::Granted { number },
            7 => NodeLock::Busy { number, holder: self.holder() },
            8 => NodeLock::Revoke { number, file, wish: self.wish() },
            9 => NodeLock::Lost { files: (0..self.below(9)).map(|_| self.next()).collect() },
            _ => NodeLock::Alone { file },
        }
    }
}

#[test]
fn every_message_survives_the_round_trip() {
    let mut random = Random::new();
    for _ in 0..20_000 {
        let message = random.message();
        let mut bytes = Vec::new();
        encode_locks(&message, &mut bytes);
        assert_eq!(decode_between(&bytes), Ok(Between::Locks(message)));
        assert!((0..bytes.len()).all(|len| decode_between(&bytes[..len]).is_err()));
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        let _ = decode_between(&bytes); // whatever it is, it is no panic
    }
}

#[test]
fn what_processes_see_survives_the_round_trip() {
    let mut random = Random::new();
    for _ in 0..5_000 {
        let home = HomeId(random.next() as u16);
        let (file, term) = (random.next(), random.next());
        let ask = LockAsk { home, file, wish: random.wish(), how: random.how(), term };
        let answers = [LockAnswer::Granted, LockAnswer::Busy(random.holder()), LockAnswer::Lost];
        let greetings = answers.map(|answer| Greeting::LockIs { answer });
        for greeting in greetings.into_iter().chain([Greeting::Lock { ask }]) {
            let mut bytes = Vec::new();
            encode_greeting(&greeting, &mut bytes);
            assert_eq!(decode_greeting(&bytes), Ok(greeting));
            assert!((0..bytes.len()).all(|len| decode_greeting(&bytes[..len]).is_err()));
        }
        let (era, version, admitted) = (random.next(), random.next(), random.next());
        let is_changing = random.below(2) == 0;
        let tokens = LockTokens { home, era, version, admitted, is_changing, has: random.set() };
        let mut bytes = Vec::new();
        encode_lock_tokens(&tokens, &mut bytes);
        assert_eq!(decode_lock_tokens(&bytes), Ok(tokens));
        assert!((0..bytes.len()).all(|len| decode_lock_tokens(&bytes[..len]).is_err()));
    }
}
