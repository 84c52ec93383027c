//! What every register must do. Called from tests; panics on a violation.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use cenote_ha::{ClusterId, Home, HomeId, Identity, Member, MemberState, View};
use cenote_model::{ErrorKind, NodeId, Result};

use super::{Held, Outcome, Register, Stamp, SwapError, Swapped, Token, settle};

const THREADS: u32 = 8;
/// Rounds in which all threads want the same number.
const ROUNDS: u32 = 25;
/// Increments of all threads together.
const INCREMENTS: u32 = 500;
/// Views that the writers of a history bring, each.
const WRITES: u32 = 25;
/// A view of so many members takes more than half of what a record may.
const MEMBERS: u16 = 10_000;

/// Where a register is: what a suite needs besides the register itself. Each is empty when it is made.
pub trait Place: Sync {
    /// A client of the register.
    fn client(&self) -> Box<dyn Register>;
    /// Puts bytes into the place of the record's.
    fn damage(&self, bytes: &[u8]);
    /// Keeps all clients from it, or lets them at it again. False: that cannot be done here.
    fn set_away(&self, is_away: bool) -> bool;
    /// Within which time a client says that the register is away.
    fn patience(&self) -> Duration;
}

/// All of the contract.
pub fn register<P: Place>(make: impl Fn() -> P) {
    swaps(&make());
    numbers(&make());
    attempts(&make());
    one_of_many_wins(&make());
    no_update_is_lost(&make());
    histories(&make());
    changes_are_seen(&make());
    large_views(&make());
    damage(&make());
    absence(&make());
}

/// A view of three nodes, each with its home.
pub fn view(number: u64) -> View {
    let member = |id: u16| Member {
        id: NodeId(id),
        address: format!("10.0.0.{id}:7000"),
        identity: Identity(u128::from(id) << 100 | 7),
        state: MemberState::Live { since_view: 1 },
        is_leaving: false,
    };
    let home = |id: u16| Home {
        id: HomeId(id),
        host: NodeId(id),
        wanted_host: NodeId(id),
        mirrors: vec![NodeId(id % 3 + 1)],
        term: 1,
        mirrors_wanted: 1,
        moving: None,
        is_shared: false,
    };
    View {
        cluster: ClusterId(0xc1),
        number,
        survives: 1,
        members: (1..=3).map(member).collect(),
        homes: (1..=3).map(home).collect(),
    }
}

fn won(swapped: Result<Swapped, SwapError>) -> Token {
    match swapped {
        Ok(Swapped::Won(token)) => token,
        other => panic!("it must win: {other:?}"),
    }
}

fn lost(swapped: Result<Swapped, SwapError>) -> Option<Held> {
    match swapped {
        Ok(Swapped::Lost(held)) => held,
        other => panic!("it must lose: {other:?}"),
    }
}

/// The first view, in force.
fn begin(place: &impl Place) -> (Box<dyn Register>, Token) {
    let client = place.client();
    let token = won(client.swap(None, &view(1)));
    (client, token)
}

fn swaps(place: &impl Place) {
    let (one, other) = (place.client(), place.client());
    assert_eq!(one.read().unwrap(), None, "it must be empty");
    let first = won(one.swap(None, &view(1)));
    assert_eq!(other.read().unwrap(), Some((view(1), first.clone())));
    assert_eq!(lost(other.swap(None, &view(1))), Some((view(1), first.clone())), "the first view is there");
    let second = won(other.swap(Some(&first), &view(2)));
    assert_eq!(lost(one.swap(Some(&first), &view(2))), Some((view(2), second.clone())), "another one was quicker");
    let mut changed = view(3);
    changed.members[2].state = MemberState::Excluded { is_owed: true, since_view: 3 };
    changed.homes[2] = Home { host: NodeId(1), mirrors: vec![NodeId(2)], term: 2, ..changed.homes[2].clone() };
    let third = won(one.swap(Some(&second), &changed));
    assert_eq!(other.read().unwrap(), Some((changed, third)));
}

fn numbers(place: &impl Place) {
    let client = place.client();
    let invalid = |swapped: Result<Swapped, SwapError>| {
        let Err(SwapError::Failed(error)) = swapped else { panic!("it must be refused: {swapped:?}") };
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    };
    invalid(client.swap(None, &view(0)));
    // A cluster that moves to another register goes on with its numbers.
    let token = won(client.swap(None, &view(41)));
    for number in [0, 1, 40, 41, 43, u64::MAX] {
        invalid(client.swap(Some(&token), &view(number)));
    }
    let mut twice = view(42);
    twice.members[1].id = NodeId(1);
    invalid(client.swap(Some(&token), &twice));
    assert_eq!(client.read().unwrap(), Some((view(41), token)));
}

/// An attempt that is made again takes place once, and the record tells for a while what became of it.
fn attempts(place: &impl Place) {
    let (client, first) = begin(place);
    let stamp = Stamp::draw().unwrap();
    let token = won(client.swap_as(Some(&first), &view(2), stamp));
    assert_eq!(won(client.swap_as(Some(&first), &view(2), stamp)), token, "its answer could have been lost");
    let mut latest = won(client.swap(Some(&token), &view(3)));
    assert_eq!(won(client.swap_as(Some(&first), &view(2), stamp)), token, "others went on");
    let mine = super::Attempt { number: 2, stamp };
    let (told, held) = settle(client.as_ref(), &mine, Duration::ZERO).unwrap();
    assert_eq!((told, held.unwrap().0.number), (Outcome::Won, 3));
    let not_mine = super::Attempt { number: 2, stamp: Stamp::draw().unwrap() };
    assert_eq!(settle(client.as_ref(), &not_mine, Duration::ZERO).unwrap().0, Outcome::Lost);
    let future = super::Attempt { number: 4, stamp };
    assert_eq!(settle(client.as_ref(), &future, Duration::from_millis(30)).unwrap().0, Outcome::Open);
    for number in 4..30 {
        latest = won(client.swap(Some(&latest), &view(number)));
    }
    assert_eq!(latest.tells(&mine), Outcome::Forgotten);
}

fn one_of_many_wins(place: &impl Place) {
    let (_, first) = begin(place);
    let seen = Mutex::new(first);
    let (winners, barrier) = (AtomicU32::new(0), Barrier::new(THREADS as usize));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let client = place.client();
                for round in 0..ROUNDS {
                    let mine = seen.lock().unwrap().clone();
                    barrier.wait();
                    match client.swap(Some(&mine), &view(u64::from(round) + 2)) {
                        Ok(Swapped::Won(token)) => {
                            winners.fetch_add(1, Ordering::Relaxed);
                            *seen.lock().unwrap() = token;
                        }
                        Ok(Swapped::Lost(Some((found, _)))) => assert_eq!(found.number, u64::from(round) + 2),
                        other => panic!("round {round}: {other:?}"),
                    }
                    barrier.wait();
                }
            });
        }
    });
    assert_eq!(winners.into_inner(), ROUNDS, "one wins each round");
}

fn no_update_is_lost(place: &impl Place) {
    let (client, _) = begin(place);
    let left = AtomicU32::new(INCREMENTS);
    // Attempts of which the record does not tell any more: their threads had to wait while many others went on.
    let forgotten = AtomicU32::new(0);
    let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let client = place.client();
                let mut held = client.read().unwrap();
                while take() {
                    forgotten.fetch_add(increment(client.as_ref(), &mut held), Ordering::Relaxed);
                }
            });
        }
    });
    let (last, token) = client.read().unwrap().unwrap();
    let (term, known) = (last.homes[0].term, 1 + u64::from(INCREMENTS));
    assert!((known..=known + u64::from(forgotten.into_inner())).contains(&term), "{term}");
    assert_eq!((last.number, token.number()), (term, term));
}

/// Raises the term of the first home by one. Returns how many attempts before that may have done it too.
fn increment(client: &dyn Register, held: &mut Option<Held>) -> u32 {
    let mut forgotten = 0;
    loop {
        let (mut view, token) = held.take().expect("a view");
        view.number += 1;
        view.homes[0].term += 1;
        *held = match client.swap(Some(&token), &view) {
            Ok(Swapped::Won(token)) => {
                *held = Some((view, token));
                return forgotten;
            }
            Ok(Swapped::Lost(found)) => found,
            Err(SwapError::Unknown(_, error)) if error.kind() == ErrorKind::Busy => {
                forgotten += 1;
                client.read().expect("an answer")
            }
            Err(error) => panic!("no answer: {error}"),
        };
    }
}

/// Something that a client did: when it began and ended, and the view that it brought or found.
pub(super) struct Step {
    pub begin: Instant,
    pub end: Instant,
    pub number: u64,
    pub stamp: Stamp,
    pub is_write: bool,
}

fn histories(place: &impl Place) {
    let (_, first) = begin(place);
    let steps = Mutex::new(Vec::new());
    let writers = AtomicU32::new(THREADS / 2);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (steps, writers) = (&steps, &writers);
            scope.spawn(move || {
                let client = place.client();
                let mut mine = Vec::new();
                if thread % 2 == 0 {
                    let _one_less = Writing(writers); // after a panic, too: readers would wait for ever
                    write(client.as_ref(), &mut mine);
                } else {
                    while writers.load(Ordering::Acquire) > 0 {
                        mine.push(read(client.as_ref()).0);
                    }
                }
                steps.lock().unwrap().append(&mut mine);
            });
        }
    });
    let steps = steps.into_inner().unwrap();
    let writes = steps.iter().filter(|step| step.is_write).count();
    assert_eq!(writes as u32, THREADS / 2 * WRITES);
    check_history(steps, &first);
}

/// One of those that write, until it is dropped.
struct Writing<'a>(&'a AtomicU32);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

fn read(client: &dyn Register) -> (Step, Held) {
    let begin = Instant::now();
    let held = client.read().expect("an answer").expect("a view");
    let (number, stamp) = (held.0.number, held.1.stamp());
    assert_eq!(number, held.1.number());
    (Step { begin, end: Instant::now(), number, stamp, is_write: false }, held)
}

fn write(client: &dyn Register, steps: &mut Vec<Step>) {
    let mut written = 0;
    while written < WRITES {
        let (step, (mut view, token)) = read(client);
        steps.push(step);
        view.number += 1;
        let begin = Instant::now();
        let (number, stamp, is_write) = match client.swap(Some(&token), &view) {
            Ok(Swapped::Won(token)) => (token.number(), token.stamp(), true),
            Ok(Swapped::Lost(held)) => held.map(|(view, token)| (view.number, token.stamp(), false)).expect("a view"),
            // Its thread had to wait while many others went on: the record does not tell any more that it was refused.
            Err(SwapError::Unknown(_, error)) if error.kind() == ErrorKind::Busy => continue,
            Err(error) => panic!("no answer: {error}"),
        };
        steps.push(Step { begin, end: Instant::now(), number, stamp, is_write });
        written += u32::from(is_write);
    }
}

/// Views are numbered, so there is one order that the steps can have had: a write before all that found its number, those before the
/// next write. It must agree with the times: whatever ended before a step began comes before it.
pub(super) fn check_history(mut steps: Vec<Step>, first: &Token) {
    let mut stamps = BTreeMap::from([(first.number(), first.stamp())]);
    for step in &steps {
        assert_eq!(*stamps.entry(step.number).or_insert(step.stamp), step.stamp, "view {} is two", step.number);
    }
    let writes: BTreeMap<u64, Instant> =
        steps.iter().filter(|step| step.is_write).map(|step| (step.number, step.begin)).collect();
    assert_eq!(writes.len(), steps.iter().filter(|step| step.is_write).count(), "each number is brought once");
    assert_eq!(stamps.len(), writes.len() + 1, "each view was brought by somebody");
    for step in &steps {
        let is_later = writes.get(&step.number).is_none_or(|begin| *begin <= step.end);
        assert!(is_later, "view {} was found before it was proposed", step.number);
    }
    steps.sort_by_key(|step| step.begin);
    let mut ended: Vec<(Instant, u64)> = steps.iter().map(|step| (step.end, step.number)).collect();
    ended.sort_unstable();
    let (mut at, mut newest) = (0, 1);
    for step in &steps {
        while ended[at].0 < step.begin {
            newest = newest.max(ended[at].1);
            at += 1;
        }
        let is_newer = if step.is_write { step.number > newest } else { step.number >= newest };
        assert!(is_newer, "view {} was found or brought after view {newest}", step.number);
    }
}

fn changes_are_seen(place: &impl Place) {
    let client = place.client();
    let begin = Instant::now();
    assert_eq!(client.wait_change(None, Duration::from_millis(200)).unwrap(), None);
    assert!(begin.elapsed() >= Duration::from_millis(200), "it waits");
    let mut token = None;
    for number in 1..=3 {
        let proposer = place.client();
        let before = token.clone();
        let found = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(150));
                won(proposer.swap(before.as_ref(), &view(number)));
            });
            client.wait_change(before.as_ref(), Duration::from_secs(20)).unwrap()
        });
        let (found, present) = found.expect("a change");
        assert_eq!(found, view(number));
        token = Some(present);
    }
    assert!(begin.elapsed() < Duration::from_secs(15), "changes are seen soon: {:?}", begin.elapsed());
    // What changed before is seen at once.
    assert_eq!(client.wait_change(None, Duration::ZERO).unwrap().unwrap().0, view(3));
    assert_eq!(client.wait_change(token.as_ref(), Duration::from_millis(50)).unwrap(), None);
}

fn large_views(place: &impl Place) {
    let (client, first) = begin(place);
    let mut large = view(2);
    let member =
        |id: u16| Member { id: NodeId(id), address: format!("node-{id:05}.example:7000"), ..large.members[0].clone() };
    large.members = (1..=MEMBERS).map(member).collect();
    let token = won(client.swap(Some(&first), &large));
    assert!(client.read().unwrap() == Some((large.clone(), token.clone())));
    large.number = 3;
    large.members = (0..4 * MEMBERS).map(|id| Member { id: NodeId(id), ..large.members[0].clone() }).collect();
    let Err(SwapError::Failed(error)) = client.swap(Some(&token), &large) else { panic!("it is too large") };
    assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
}

fn damage(place: &impl Place) {
    let (client, token) = begin(place);
    let whole = super::record::encode("a test", &token, &view(1)).unwrap();
    let mut bytes: Vec<Vec<u8>> = vec![Vec::new(), b"\0".to_vec(), vec![0xff; 4096], b"{\"view\": 1}".to_vec()];
    bytes.extend([1, 9, 14, whole.len() / 2, whole.len() - 1].map(|len| whole[..len].to_vec()));
    bytes.push([whole.clone(), vec![0]].concat());
    let mut changed = whole.clone();
    changed[40] ^= 1;
    bytes.push(changed);
    for bytes in bytes {
        place.damage(&bytes);
        let error = client.read().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(!error.cause().is_empty() && !error.next_step().is_empty(), "{error}");
        let waited = client.wait_change(Some(&token), Duration::from_secs(20)).unwrap_err();
        assert_eq!(waited.kind(), ErrorKind::Corrupt, "{waited}");
        let swapped = client.swap(None, &view(1)).unwrap_err();
        assert_eq!(swapped.error().kind(), ErrorKind::Corrupt, "{swapped}");
    }
    place.damage(&whole);
    assert_eq!(client.read().unwrap(), Some((view(1), token)));
}

fn absence(place: &impl Place) {
    let (client, token) = begin(place);
    if !place.set_away(true) {
        return;
    }
    let patience = place.patience();
    let soon = |what: &str, begin: Instant| {
        assert!(begin.elapsed() <= patience, "{what} took {:?} of {patience:?}", begin.elapsed());
    };
    let begin = Instant::now();
    let error = client.read().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    assert!(!error.cause().is_empty() && !error.next_step().is_empty(), "{error}");
    soon("a read", begin);
    let begin = Instant::now();
    let swapped = client.swap(Some(&token), &view(2)).unwrap_err();
    assert_eq!(swapped.error().kind(), ErrorKind::Disconnected, "{swapped}");
    soon("a swap", begin);
    let begin = Instant::now();
    let waited = client.wait_change(Some(&token), Duration::from_millis(100)).unwrap_err();
    assert_eq!(waited.kind(), ErrorKind::Disconnected, "{waited}");
    soon("a wait", begin + Duration::from_millis(100));
    place.set_away(false);
    // The swap may have been on its way all the time.
    let (found, token) = back(client.as_ref(), Duration::from_secs(30));
    let may_be = if matches!(swapped, SwapError::Unknown(..)) { 1..=2 } else { 1..=1 };
    assert!(may_be.contains(&found.number), "view {} after {swapped}", found.number);
    match client.swap(Some(&token), &view(found.number + 1)).expect("an answer") {
        Swapped::Won(_) => {}
        // It arrived between the two.
        Swapped::Lost(held) => drop(won(client.swap(held.as_ref().map(|(_, token)| token), &view(3)))),
    }
}

/// What the register holds once it is back.
fn back(client: &dyn Register, within: Duration) -> Held {
    let until = Instant::now() + within;
    loop {
        match client.read() {
            Ok(held) => return held.expect("the view is still there"),
            Err(error) => assert!(Instant::now() < until, "it does not come back: {error}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}
