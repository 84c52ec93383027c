//! Groups of three members in one process: the suite of all registers, members that end and come back, links that are cut.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, Weak};

use cenote_ha::View;

use super::*;
use crate::register::conformance::{self, Place, view};
use crate::register::{Attempt, Held, Outcome, Register, SwapError, Swapped, Token, settle};

const MEMBERS: u16 = 3;
const PATIENCE: Duration = Duration::from_secs(4);
const TIMES: GroupTimes = GroupTimes { silence: Duration::from_millis(300), patience: PATIENCE };

/// The links between members.
#[derive(Default)]
struct Net {
    members: Mutex<BTreeMap<u16, Weak<GroupRegister>>>,
    /// From, to.
    cuts: Mutex<BTreeSet<(u16, u16)>>,
    /// Members that refuse connections though they are there; what they ask is answered.
    blamed: Mutex<BTreeSet<u16>>,
}

/// What a member sends through.
struct Link(Arc<Net>, u16);

impl Carry for Link {
    fn carry(&self, to: NodeId, message: Vec<u8>, timeout: Duration) -> Result<Vec<u8>> {
        let cut = |from, to| self.0.cuts.lock().unwrap().contains(&(from, to));
        let lost = || Err(Error::new(ErrorKind::Disconnected, format!("node {}", to.0)).because("the link is cut"));
        let member = self.0.members.lock().unwrap().get(&to.0).and_then(Weak::upgrade);
        let is_blamed = self.0.blamed.lock().unwrap().contains(&to.0);
        let Some(member) = member.filter(|_| !is_blamed && !cut(self.1, to.0)) else { return lost() };
        let (send, receive) = std::sync::mpsc::channel();
        member.answer(message, move |answer| drop(send.send(answer)));
        match receive.recv_timeout(timeout) {
            Ok(answer) if !cut(to.0, self.1) => Ok(answer),
            _ => lost(),
        }
    }
    fn refuses(&self, node: NodeId) -> bool {
        let is_blamed = self.0.blamed.lock().unwrap().contains(&node.0);
        is_blamed || !self.0.members.lock().unwrap().contains_key(&node.0)
    }
}

/// A group.
struct Group {
    dir: PathBuf,
    net: Arc<Net>,
    members: Mutex<Vec<Option<Arc<GroupRegister>>>>,
    next: AtomicU32,
}

/// A member as a register.
struct Client(Arc<GroupRegister>);

impl Register for Client {
    fn subject(&self) -> String {
        Cell::subject(self.0.as_ref())
    }
    fn read(&self) -> Result<Option<Held>> {
        self.0.read()
    }
    fn swap_as(&self, seen: Option<&Token>, view: &View, stamp: Stamp) -> Result<Swapped, SwapError> {
        self.0.swap_as(seen, view, stamp)
    }
}

impl Group {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("cenote-group-of-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        for member in 1..=MEMBERS {
            std::fs::create_dir_all(dir.join(member.to_string())).unwrap();
            GroupRegister::make(&dir.join(member.to_string())).unwrap();
        }
        let members = Mutex::new(vec![None; usize::from(MEMBERS)]);
        let this = Self { dir, net: Arc::default(), members, next: AtomicU32::new(0) };
        (1..=MEMBERS).for_each(|member| this.start(member));
        this
    }
    fn open(&self, member: u16) -> Result<GroupRegister> {
        let group: Vec<NodeId> = (1..=MEMBERS).map(NodeId).collect();
        let (dir, begin) = (self.dir.join(member.to_string()), Instant::now());
        loop {
            let carry = Arc::new(Link(self.net.clone(), member));
            match GroupRegister::open(&dir, NodeId(member), &group, TIMES, carry) {
                // The former one's last work may hold the file for a moment, as that of a process that ends does.
                Err(error) if error.kind() == ErrorKind::Busy && begin.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                opened => return opened,
            }
        }
    }
    fn start(&self, member: u16) {
        let opened = Arc::new(self.open(member).unwrap());
        self.net.members.lock().unwrap().insert(member, Arc::downgrade(&opened));
        self.members.lock().unwrap()[usize::from(member) - 1] = Some(opened);
    }
    fn stop(&self, member: u16) {
        self.net.members.lock().unwrap().remove(&member);
        let stopped = self.members.lock().unwrap()[usize::from(member) - 1].take();
        let stopped = stopped.expect("it runs");
        // Others may hold it for the time of a call.
        while Arc::strong_count(&stopped) > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    fn member(&self, member: u16) -> Arc<GroupRegister> {
        self.members.lock().unwrap()[usize::from(member) - 1].clone().expect("it runs")
    }
    /// The member that leads, once there is one.
    fn leader(&self) -> u16 {
        let begin = Instant::now();
        loop {
            for member in self.members.lock().unwrap().iter().flatten() {
                let runtime = member.runtime.as_ref().unwrap();
                if runtime.block_on(member.part.raft.current_leader()) == Some(u64::from(member.me.0)) {
                    return member.me.0;
                }
            }
            assert!(begin.elapsed() < 4 * PATIENCE, "no leader");
            std::thread::sleep(AGAIN_AFTER);
        }
    }
    /// The greatest term that a member knows.
    fn term(&self) -> u64 {
        let members = self.members.lock().unwrap();
        let term = |member: &Arc<GroupRegister>| member.part.raft.metrics().borrow().current_term;
        members.iter().flatten().map(term).max().unwrap_or_default()
    }
    fn cut(&self, from: u16, to: u16) {
        self.net.cuts.lock().unwrap().insert((from, to));
    }
    fn mend(&self) {
        self.net.cuts.lock().unwrap().clear();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.members.lock().unwrap().clear();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Place for Group {
    fn client(&self) -> Box<dyn Register> {
        let member = self.next.fetch_add(1, Ordering::Relaxed) as u16 % MEMBERS + 1;
        Box::new(Client(self.member(member)))
    }
    fn damage(&self, bytes: &[u8]) {
        let member = self.member(self.leader());
        let seen = member.part.machine.record().map(|(stamp, _)| stamp.0);
        assert!(matches!(member.store(seen, Stamp::draw().unwrap(), bytes), Stored::Done));
    }
    fn set_away(&self, is_away: bool) -> bool {
        for (from, to) in (1..=MEMBERS).flat_map(|from| (1..=MEMBERS).map(move |to| (from, to))) {
            if is_away {
                self.cut(from, to);
            }
        }
        if !is_away {
            self.mend();
        }
        true
    }
    fn patience(&self) -> Duration {
        PATIENCE + Duration::from_secs(2)
    }
}

#[test]
fn a_group_is_a_register() {
    conformance::register(Group::new);
}

fn swap(member: &GroupRegister, number: u64) -> Token {
    let begin = Instant::now();
    loop {
        let held = member.read();
        match held {
            Ok(Some((found, token))) if found.number == number => return token,
            Ok(held) => match member.swap(held.as_ref().map(|(_, token)| token), &view(number)) {
                Ok(Swapped::Won(token)) => return token,
                other => assert!(begin.elapsed() < 4 * PATIENCE, "{other:?}"),
            },
            Err(error) => assert!(begin.elapsed() < 4 * PATIENCE, "{error}"),
        }
    }
}

#[test]
fn the_rest_goes_on_without_the_leader_and_it_comes_back() {
    let group = Group::new();
    swap(&group.member(1), 1);
    let first = group.leader();
    group.stop(first);
    let others: Vec<u16> = (1..=MEMBERS).filter(|member| *member != first).collect();
    let begin = Instant::now();
    // More than it keeps entries of: the first one needs a snapshot.
    for number in 2..60 {
        swap(&group.member(others[number as usize % 2]), number);
    }
    println!("58 views took {:?}, with an election", begin.elapsed());
    group.start(first);
    let begin = Instant::now();
    while group.member(first).part.machine.record() != group.member(others[0]).part.machine.record() {
        assert!(begin.elapsed() < 4 * PATIENCE, "the member that was away gets nothing");
        std::thread::sleep(AGAIN_AFTER);
    }
    // Then it counts again: one of the others may go.
    group.stop(others[0]);
    swap(&group.member(first), 60);
    assert_eq!(group.member(others[1]).read().unwrap().unwrap().0, view(60));
}

/// The machine of a leader that has ended refuses connections: the others do not wait for its lease.
#[test]
fn a_leader_that_is_known_to_be_gone_is_replaced_before_its_lease_is_over() {
    let group = Group::new();
    swap(&group.member(1), 1);
    let mut took = Vec::new();
    for number in 2..8 {
        let gone = group.leader();
        let term = group.term();
        // Only reads find out.
        let reader = group.member(gone % MEMBERS + 1);
        reader.read().unwrap();
        group.stop(gone);
        let begin = Instant::now();
        reader.read().unwrap();
        took.push(begin.elapsed());
        assert!(group.term() <= term + 4, "terms {term} to {}: members stand against each other", group.term());
        swap(&reader, number);
        group.start(gone);
        // It counts again before the next one ends.
        let begin = Instant::now();
        while group.member(gone).part.machine.record() != reader.part.machine.record() {
            assert!(begin.elapsed() < 4 * PATIENCE, "the member that was away gets nothing");
            std::thread::sleep(AGAIN_AFTER);
        }
    }
    println!("reads after a leader's end took {took:?}");
    // `openraft` alone takes the lease and an election time-out: never less than this.
    let alone = TIMES.silence * (LEASE_PERCENT + 100) / 100;
    took.sort_unstable();
    assert!(took[took.len() / 2] < alone, "{took:?}");
}

/// Members that cannot ask a leader and think that it is gone leave it alone as long as it is heard.
#[test]
fn a_leader_that_is_heard_is_not_replaced_whatever_is_said_of_its_machine() {
    let group = Group::new();
    swap(&group.member(1), 1);
    let (leader, term) = (group.leader(), group.term());
    let others: Vec<u16> = (1..=MEMBERS).filter(|member| *member != leader).collect();
    group.net.blamed.lock().unwrap().insert(leader);
    let begin = Instant::now();
    while begin.elapsed() < 6 * TIMES.silence {
        let doubted = group.member(others[0]);
        let runtime = doubted.runtime.as_ref().unwrap();
        let told = runtime.block_on(doubted.ask_leader(&Message::Read, TIMES.silence));
        assert!(matches!(told, Err(Hitch::NoLeader(true))));
        group.member(leader).read().unwrap();
    }
    assert_eq!((group.leader(), group.term()), (leader, term));
    // Once it is silent as well, it is replaced.
    for other in &others {
        group.cut(leader, *other);
    }
    swap(&group.member(others[0]), 2);
    assert!(group.term() > term);
}

/// Two members that both reach the third one need not reach each other, whichever of them leads.
#[test]
fn a_member_that_does_not_reach_the_leader_asks_by_way_of_another_one() {
    let group = Group::new();
    swap(&group.member(1), 1);
    let (leader, term) = (group.leader(), group.term());
    let apart = leader % MEMBERS + 1;
    group.cut(leader, apart);
    group.cut(apart, leader);
    let begin = Instant::now();
    for number in 2..8 {
        swap(&group.member(apart), number);
        assert_eq!(group.member(leader).read().unwrap().unwrap().0, view(number));
        std::thread::sleep(TIMES.silence);
    }
    println!(
        "six views took {:?}; leader {leader} in term {term}, {} in {}",
        begin.elapsed(),
        group.leader(),
        group.term()
    );
    let begin = Instant::now();
    group.member(apart).read().unwrap();
    assert!(begin.elapsed() < PATIENCE / 2, "{:?}", begin.elapsed());
}

#[test]
fn all_members_may_end_and_come_back() {
    let group = Group::new();
    let token = swap(&group.member(2), 1);
    (1..=MEMBERS).for_each(|member| group.stop(member));
    (1..=MEMBERS).for_each(|member| group.start(member));
    assert_eq!(group.member(3).read().unwrap(), Some((view(1), token)));
}

#[test]
fn one_of_three_says_that_the_register_is_away() {
    let group = Group::new();
    let token = swap(&group.member(1), 1);
    let alone = group.leader();
    for other in (1..=MEMBERS).filter(|member| *member != alone) {
        group.cut(alone, other);
        group.cut(other, alone);
    }
    // It led, and may think that it still does.
    let begin = Instant::now();
    assert_eq!(group.member(alone).read().unwrap_err().kind(), ErrorKind::Disconnected);
    let attempt = group.member(alone).swap(Some(&token), &view(2)).unwrap_err();
    assert_eq!(attempt.error().kind(), ErrorKind::Disconnected, "{attempt}");
    assert!(begin.elapsed() < 3 * PATIENCE, "{:?}", begin.elapsed());
    let other = group.member(alone % MEMBERS + 1);
    let newer = swap(&other, 2);
    group.mend();
    assert_eq!(group.member(alone).read().unwrap(), Some((view(2), newer)));
}

#[test]
fn a_member_that_stops_waits_for_no_other_one() {
    let group = Group::new();
    group.leader();
    (2..=MEMBERS).for_each(|other| group.stop(other));
    let member = group.member(1);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let read = scope.spawn(|| member.read());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!read.is_finished(), "it waits for the others");
        member.end();
        read.join().unwrap().unwrap_err();
    });
    member.read().unwrap_err();
    assert!(begin.elapsed() < PATIENCE, "it took {:?}", begin.elapsed());
}

#[test]
fn a_member_that_lost_its_file_takes_no_part() {
    let group = Group::new();
    swap(&group.member(1), 1);
    group.stop(2);
    std::fs::remove_file(group.dir.join("2").join(GROUP_FILE)).unwrap();
    let error = group.open(2).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    swap(&group.member(3), 2);
}

#[test]
fn hostile_messages_are_answered_with_an_error() {
    let group = Group::new();
    for message in [&b""[..], b"\x02", b"\x02{}", b"\x09\"Read\"", b"\x02{\"Vote\":3}", &[2; 3000]] {
        let (send, receive) = std::sync::mpsc::channel();
        group.member(1).answer(message.to_vec(), move |answer| drop(send.send(answer)));
        let answer = receive.recv_timeout(PATIENCE).unwrap();
        assert!(decode::<Result<Told, String>>(&answer).unwrap().is_err());
    }
    swap(&group.member(1), 1);
}

/// Cuts links and ends members for a while.
fn make_trouble(group: &Group, draw: &dyn Fn(u64) -> u64) {
    for _ in 0..8 {
        let (one, other) = (draw(u64::from(MEMBERS)) as u16 + 1, draw(u64::from(MEMBERS)) as u16 + 1);
        match draw(4) {
            0 => group.cut(one, other),
            1 => (1..=MEMBERS).for_each(|other| {
                group.cut(one, other);
                group.cut(other, one);
            }),
            2 => (1..=MEMBERS).for_each(|other| group.cut(one, other)),
            _ => {
                group.stop(one);
                std::thread::sleep(Duration::from_millis(draw(800)));
                group.start(one);
            }
        }
        std::thread::sleep(Duration::from_millis(draw(1200)));
        group.mend();
        std::thread::sleep(Duration::from_millis(draw(600)));
    }
}

/// Views by several writers while links are cut, in one direction too, and members end: no number is given twice, and what was
/// won is in the history.
#[test]
fn cuts_give_no_number_twice() {
    let seed: u64 = std::env::var("CENOTE_GROUP_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        u64::from(std::process::id()) ^ std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64)
    });
    println!("CENOTE_GROUP_SEED={seed}");
    let random = AtomicU64::new(seed);
    // SplitMix64 (Steele and others 2014).
    let draw = |below: u64| {
        let mut mixed = random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % below
    };
    let group = Group::new();
    let is_over = AtomicBool::new(false);
    let (won, open) = (Mutex::new(Vec::<(u64, Stamp)>::new()), Mutex::new(Vec::<Attempt>::new()));
    std::thread::scope(|scope| {
        for writer in 1..=MEMBERS {
            let (group, is_over, won, open) = (&group, &is_over, &won, &open);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let member = group.members.lock().unwrap()[usize::from(writer) - 1].clone();
                    let Some(member) = member else {
                        std::thread::sleep(AGAIN_AFTER);
                        continue;
                    };
                    let Ok(held) = member.read() else { continue };
                    let number = held.as_ref().map_or(1, |(view, _)| view.number + 1);
                    match member.swap(held.as_ref().map(|(_, token)| token), &view(number)) {
                        Ok(Swapped::Won(token)) => won.lock().unwrap().push((number, token.stamp())),
                        Ok(Swapped::Lost(_)) | Err(SwapError::Failed(_)) => {}
                        Err(SwapError::Unknown(attempt, _)) => open.lock().unwrap().push(attempt),
                    }
                }
            });
        }
        make_trouble(&group, &draw);
        is_over.store(true, Ordering::Relaxed);
    });
    let (last, token) = settle_all(&group);
    let won = won.into_inner().unwrap();
    let numbers: BTreeSet<u64> = won.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers.len(), won.len(), "a number was won twice");
    assert!(won.len() > 20, "only {} views came to be", won.len());
    // Numbers that nobody is known to have won are those of attempts without an answer.
    let open = open.into_inner().unwrap();
    for number in (1..=last.number).filter(|number| !numbers.contains(number)) {
        assert!(open.iter().any(|attempt| attempt.number == number), "view {number} has no attempt");
    }
    for (number, stamp) in won {
        let told = token.tells(&Attempt { number, stamp });
        assert!(matches!(told, Outcome::Won | Outcome::Forgotten), "view {number}: {told:?}");
    }
}

/// The view at the end, when nothing is cut any more.
fn settle_all(group: &Group) -> Held {
    let member = group.member(1);
    let nobody = Attempt { number: u64::MAX, stamp: Stamp(1) };
    let (_, held) = settle(member.as_ref(), &nobody, Duration::from_millis(100)).unwrap();
    held.expect("a view")
}
